"""Readers against thousands of releases of the tools themselves, each in an environment of its own.

``make test-interop`` has them installed. False-alarm rate 1e-5 for each comparison, some sixty.
"""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from pymc_dp.interop import (
    from_diffprivlib,
    from_smartnoise,
    opendp_summary_releases,
    smartnoise_release,
    tumult_release,
)
from tests.mechanisms.chi_square import FALSE_ALARM, assert_follows, evaluate

pytestmark = pytest.mark.interop
TOOLS = Path(__file__).parent / "tools"


def run(tool):
    """Facts that a tool's script prints, by the Python named PYMC_DP_<TOOL>_PYTHON."""
    python = os.path.abspath(os.environ.get(f"PYMC_DP_{tool.upper()}_PYTHON", sys.executable))
    script = TOOLS / f"{tool}_releases.py"
    done = subprocess.run([python, script], capture_output=True, text=True, check=False)
    if "ModuleNotFoundError" in done.stderr:
        pytest.skip(f"{tool} is not installed for {python}: make test-interop")
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


def assert_released_by(mechanism, values, truth):
    """Compare released values with the law that was read: chi-square if whole, else K-S."""
    values = np.asarray(values, float)
    if mechanism.dtype == "int64" or getattr(mechanism, "lattice", 0.0):
        whole = np.arange(math.floor(truth) - 400, math.ceil(truth) + 401)
        with np.errstate(invalid="ignore"):
            log_p = evaluate(mechanism.logp(whole, np.full(whole.size, truth)))
        assert_follows(values, whole, log_p)
        return
    inner = getattr(mechanism, "inner", mechanism)
    scale = float(np.max(mechanism.noise))
    grid = truth + scale * np.linspace(-45, 45, 90_001)
    p = np.exp(evaluate(inner.logp(grid, np.full(grid.size, truth))))
    cdf = np.concatenate([[0], np.cumsum((p[1:] + p[:-1]) / 2 * (grid[1] - grid[0]))])
    assert cdf[-1] == pytest.approx(1, abs=2e-3)
    if inner is not mechanism:  # clamped: values at the bounds stand for all beyond
        low, high = mechanism.span
        at = [(values == low).sum(), (values == high).sum()]
        chances = [np.interp(low, grid, cdf), 1 - np.interp(high, grid, cdf)]
        for seen, chance in zip(at, chances, strict=True):
            assert stats.binomtest(int(seen), values.size, chance).pvalue > FALSE_ALARM
        values = values[(values > low) & (values < high)]
        below, above = np.interp([low, high], grid, cdf)
        cdf = np.clip((cdf - below) / (above - below), 0, 1)
    assert stats.kstest(values, lambda x: np.interp(x, grid, cdf)).pvalue > FALSE_ALARM


class Frame:
    """What a reader uses of a Polars frame."""

    def __init__(self, columns, types):
        self.columns, self.schema = columns, types

    def to_dict(self, as_series):
        return self.columns


def assert_kept_by(mechanism, values, truth):
    """Compare counts, NaN where they were dropped, with a law that has a threshold."""
    low = math.ceil(mechanism.threshold)
    whole = np.append(np.arange(low, low + 300), -1)
    log_p = evaluate(mechanism.logp(whole, truth))
    assert_follows(np.where(np.isnan(values), -1, values), whole, log_p)


def test_opendp_summaries():
    seen = set()
    for each in run("opendp"):
        frame = Frame(each["released"], each["types"])
        keys = list(range(each["groups"]))
        for name, release in opendp_summary_releases(each["summary"], frame, keys=keys).items():
            mechanism, truth = release.mechanism, each["truth"][name]
            kind = type(getattr(mechanism, "inner", mechanism)).__name__
            seen.add(f"{type(mechanism).__name__} {kind}")
            if hasattr(mechanism, "threshold"):
                assert_kept_by(mechanism, release.value, truth)
            else:
                assert_released_by(mechanism, release.value, truth)
    assert len(seen) == 8, seen  # four distributions, and unsigned counts and thresholds of two


def test_diffprivlib():
    for each in run("diffprivlib"):
        made = type(each["name"], (), {})()
        vars(made).update(each["vars"])
        assert_released_by(from_diffprivlib(made), each["values"], each["truth"])


def test_smartnoise():
    for each in run("smartnoise"):
        read = from_smartnoise(each["name"], column=each["column"], **each["given"])
        assert float(read.noise) == pytest.approx(each["scale"], rel=1e-4)
        assert_released_by(read, each["values"], each["truth"])
        release = smartnoise_release(
            each["name"], each["values"][0], "a number", column=each["column"], **each["given"]
        )
        assert release.epsilon == each["given"]["epsilon"]


def test_tumult():
    for each in run("tumult"):
        dropped = [math.nan] * (each["groups"] - len(each["values"]))
        release = tumult_release(
            each["info"], each["values"] + dropped, "groups", threshold=each["threshold"]
        )
        if each["threshold"] is None:
            assert_released_by(release.mechanism, release.value, each["truth"])
        else:
            assert_kept_by(release.mechanism, release.value, each["truth"])
