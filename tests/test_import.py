"""Importing the package is cheap, and hides no name."""

import subprocess
import sys
from importlib import import_module

import pytest

import pymc_dp as pmdp

CODE = """
import sys, pymc
from pymc.step_methods import STEP_METHODS

def picked():
    return [step.__name__ for step in STEP_METHODS if step.__module__.startswith('pymc_dp')]

before = set(sys.modules)
import pymc_dp
print(*{name.partition('.')[0] for name in set(sys.modules) - before})
print(*picked())
import pymc_dp.analyst.release
print(*picked())
"""


@pytest.fixture(scope="module")
def told():
    """What a new process prints, in lines."""
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    return done.stdout.split("\n")


def test_importing_brings_neither_numba_nor_scipy(told):
    assert told[0] == "pymc_dp"


def test_a_release_brings_the_samplers_that_pymc_picks(told):
    assert told[1:3] == ["", "CountGibbs NormalX GibbsSS RecordGibbs"]


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
