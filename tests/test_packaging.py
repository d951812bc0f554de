"""What is shipped: the source distribution can do what its Makefile says."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import pymc_dp as pmdp

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_source_distribution_has_what_the_makefile_needs():
    shipped = PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    shipped += ["pyproject.toml", "LICENSE"]  # always there
    rules = re.findall(r"^\$\(\w*READY\):(.*)$", (ROOT / "Makefile").read_text(), flags=re.M)
    needed = {Path(name) for rule in rules for name in rule.split()}
    assert Path("tools/find_python.sh") in needed
    assert {name.parts[0] for name in needed} | {".python-version"} <= set(shipped)


@pytest.mark.parametrize("version", ["0.14.2", "0.16.0"])  # smartnoise-sql 1.0.10 needs the first
def test_versions_of_opendp(version):
    [extra] = PROJECT["project"]["optional-dependencies"]["opendp"]
    assert version in Requirement(extra).specifier


def test_readers_are_there_without_another_import():
    assert "interop" in pmdp.__all__
    assert callable(pmdp.interop.from_opendp)
