"""Importing the package is cheap, and hides no name."""

import subprocess
import sys
from importlib import import_module

import pymc_dp as pmdp


def run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_importing_brings_neither_numba_nor_scipy():
    code = """
import sys, pymc
before = set(sys.modules)
import pymc_dp
print(*{name.partition('.')[0] for name in set(sys.modules) - before})
"""
    assert run(code) == ["pymc_dp"]


def test_a_release_brings_the_samplers_that_pymc_picks():
    code = """
import pymc_dp
from pymc.step_methods import STEP_METHODS
print([step.__name__ for step in STEP_METHODS if step.__module__.startswith('pymc_dp')])
import pymc_dp.analyst.release
print(*[step.__name__ for step in STEP_METHODS if step.__module__.startswith('pymc_dp')])
"""
    assert run(code) == ["[]", "CountGibbs", "NormalX", "GibbsSS", "RecordGibbs"]


def test_every_public_name_is_there():
    assert set(pmdp.__all__) <= set(dir(pmdp))
    assert set(pmdp._homes()) == set(pmdp.__all__)
    for name, home in pmdp._homes().items():
        found = getattr(pmdp, name)
        assert found is (
            import_module(f"{home}.{name}")
            if home == "pymc_dp"
            else vars(import_module(home))[name]
        )
    assert not hasattr(pmdp, "no_such_name")
