"""The list of ways to break the package fits the package."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))
from mutate import chosen  # noqa: E402
from mutations import MUTATIONS  # noqa: E402


def test_there_are_enough_and_names_differ():
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS) >= 30


def test_they_are_looked_for_in_what_make_test_runs():
    assert {"not wide", "not calibrate", "not oracles"} <= set(chosen().split(" and "))


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_what_is_replaced_is_there_once(mutation):
    assert (ROOT / "pymc_dp" / mutation.file).read_text().count(mutation.old) == 1
    assert mutation.new != mutation.old
    assert all((ROOT / "tests" / name).exists() for name in mutation.tests.split())
