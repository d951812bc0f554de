"""Tests that do not know of each other; a table of p-values, after `make calibrate`."""

import gc
import os

# matrices here are small, and threads of two processes wait for each other on two cores
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytensor
import pytest
from pytensor.compile.mode import predefined_linkers
from pytensor.link.vm import VMLinker

import pymc_dp as pmdp
from pymc_dp.analyst.record_gibbs.cycles import Cycles
from pymc_dp.curator import curated, model
from tests import checks

_KEY = "p-values"

# A quarter of the time, in many small graphs that are evaluated a few times and let go: C code for
# nested graphs of functions in Python, a note of where each node was made, searches for garbage.
predefined_linkers["vm"] = VMLinker(use_cloop=False, c_thunks=False)
pytensor.config.traceback__limit = 0
gc.set_threshold(100_000, 10, 100)


@pytest.fixture(autouse=True, scope="module")
def forget_models():
    """Forget which models are confidential: the frames of a failed test keep its models alive."""
    yield
    for known in (curated.curated_models, curated.confidential_arrays, curated.read_freely):
        known.clear()
    model.sharded_models.clear()


def _stay(rng, tune, times, every, thetas, tables, reports, theta, given, table, *others):
    """Stand in for moves of records and parameters, with arguments as they are: nothing moves."""
    thetas[:], tables[:], reports[:] = theta, table, 1.0


@pytest.fixture
def made_only(monkeypatch):
    """Steps are made and not compiled: of RecordGibbs and NormalX a test looks at all the rest."""
    monkeypatch.setattr(Cycles, "run", staticmethod(_stay))
    monkeypatch.setattr(pmdp.NormalX, "step", lambda self, point: (point, []))


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem(collector, name, obj):
    """Mark what ``wide_except`` does not name; a name that no case has is a mistake."""
    found = yield
    cases = found if isinstance(found, list) else []
    for marker in cases[0].iter_markers("wide_except") if cases else ():
        names = {case.callspec.id for case in cases}
        if strangers := set(marker.args) - names:
            raise ValueError(f"{name} has no cases {strangers}, but {sorted(names)}")
        for case in cases:
            if case.callspec.id not in marker.args:
                case.add_marker(pytest.mark.wide)
    return found


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Keep what a test has judged with the test: its report travels from worker to controller."""
    checks.made.clear()
    try:
        return (yield)
    finally:
        found = [
            (check.label, check.p_value, report.false_alarm / len(report.checks))
            for report in checks.made
            for check in report.checks
        ]
        if found:
            item.user_properties.append((_KEY, found))
        checks.made.clear()


def pytest_terminal_summary(terminalreporter, config):
    """Print the smallest p-value of every test that was judged by some, the smallest first."""
    if config.option.markexpr != "calibrate":
        return
    rows = []
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, []):
            for key, found in getattr(report, "user_properties", []):
                if key == _KEY and report.when == "call":
                    label, p_value, bound = min(found, key=lambda check: check[1] / check[2])
                    rows.append((p_value, bound, len(found), label, report.nodeid))
    if not rows:
        return
    terminalreporter.section("smallest p-value of each test")
    terminalreporter.write_line("p-value   fails below  checks  test: check")
    for p_value, bound, number, label, name in sorted(rows):
        terminalreporter.write_line(f"{p_value:<9.2g} {bound:<12.1g} {number:<7} {name}: {label}")
