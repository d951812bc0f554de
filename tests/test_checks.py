"""The statistical assertions: how often they cry wolf, and what they catch."""

import numpy as np
import pytest
from scipy import signal, stats

from tests.checks import (
    assert_mean_and_sd,
    assert_same_distribution,
    effective_size,
    rank_uniformity,
)

pytestmark = pytest.mark.oracles


def autoregressive(rng, correlation, chains, draws):
    """Stationary AR(1) chains with standard normal marginals."""
    noise = rng.normal(size=(chains, draws)) * np.sqrt(1 - correlation**2)
    noise[:, 0] = rng.normal(size=chains)
    return signal.lfilter([1], [1, -correlation], noise, axis=1)


def alarm_rate(check, runs):
    """Share of runs that are turned down."""
    alarms = 0
    for run in range(runs):
        try:
            check(run)
        except AssertionError:
            alarms += 1
    return alarms / runs


CHAINS = [(0.0, 4, 250), (0.5, 4, 500), (0.9, 4, 3000), (-0.5, 2, 500)]


# With a true rate of 0.01, more than 10 alarms in 400 runs have probability 0.003; the seeds are
# fixed, so this is not drawn again each time the tests run.
@pytest.mark.parametrize(("correlation", "chains", "draws"), CHAINS)
def test_false_alarms_of_same_distribution(correlation, chains, draws):
    def check(run):
        values = autoregressive(np.random.default_rng([1, run]), correlation, chains, draws)
        assert_same_distribution(values, stats.norm.cdf, false_alarm=0.01)

    assert alarm_rate(check, 400) <= 0.025


@pytest.mark.parametrize(("correlation", "chains", "draws"), CHAINS)
def test_false_alarms_of_mean_and_sd(correlation, chains, draws):
    def check(run):
        values = autoregressive(np.random.default_rng([2, run]), correlation, chains, draws)
        assert_mean_and_sd(values, 0.0, 1.0, false_alarm=0.01)

    assert alarm_rate(check, 400) <= 0.025


@pytest.mark.parametrize("runs", [200, pytest.param(2000, marks=pytest.mark.calibrate)])
def test_no_false_alarm_at_a_small_rate(runs):
    def check(run):
        values = autoregressive(np.random.default_rng([3, run]), 0.5, 4, 500)
        assert_same_distribution(values, stats.norm.cdf, false_alarm=1e-4)

    assert alarm_rate(check, runs) == 0


# four chains of this length are worth 4000 independent draws of the mean
EFFECTIVE_4000 = [(0.0, 1000), (0.5, 3000)]


@pytest.mark.parametrize(("correlation", "draws"), EFFECTIVE_4000)
@pytest.mark.parametrize(
    ("shift", "scale"), [(0.2, 1.0), (-0.2, 1.0), (0.0, np.sqrt(1.2)), (0.0, np.sqrt(0.8))]
)
@pytest.mark.parametrize("by", ["distribution", "moments"])
def test_wrong_targets_are_caught(correlation, draws, shift, scale, by):
    def check(run):
        values = autoregressive(np.random.default_rng([4, run]), correlation, 4, draws)
        if by == "distribution":
            assert_same_distribution(shift + scale * values, stats.norm.cdf)
        else:
            assert_mean_and_sd(shift + scale * values, 0.0, 1.0)

    assert alarm_rate(check, 20) >= 0.8


def test_report_reads_well():
    values = autoregressive(np.random.default_rng(5), 0.5, 4, 1000)
    report = assert_same_distribution(values, stats.norm.cdf)
    assert report.passed
    assert len(report.checks) == 7
    assert "ok   share below the 5% point: 0.0" in str(report)
    with pytest.raises(AssertionError, match=r"FAIL share below the 50% point.*expected 0\.5"):
        assert_same_distribution(values + 1, stats.norm.cdf)


@pytest.mark.parametrize("draws", [100, 1000])
def test_short_runs_are_refused(draws):
    values = autoregressive(np.random.default_rng(6), 0.99, 4, draws)
    with pytest.raises(AssertionError, match="too short"):
        assert_same_distribution(values, stats.norm.cdf)
    with pytest.raises(AssertionError, match="too short"):
        assert_mean_and_sd(values, 0, 1)


def test_stuck_and_broken_chains_are_refused():
    with pytest.raises(AssertionError, match="too short"):
        assert_same_distribution(np.zeros((4, 1000)), stats.norm.cdf)
    apart = autoregressive(np.random.default_rng(7), 0.0, 4, 1000) * 0.1
    with pytest.raises(AssertionError, match="too short"):
        assert_mean_and_sd(apart + np.arange(4)[:, None], 1.5, 1.1)
    with pytest.raises(AssertionError, match="not finite"):
        assert_same_distribution(np.full((4, 1000), np.nan), stats.norm.cdf)
    with pytest.raises(ValueError, match="shape"):
        assert_same_distribution(np.zeros(1000), stats.norm.cdf)


def test_a_missing_tail_is_caught():
    values = np.random.default_rng(8).uniform(0.05, 1, size=(4, 1000))
    with pytest.raises(AssertionError, match="FAIL share below the 5% point"):
        assert_same_distribution(values, stats.uniform.cdf)


def test_error_of_the_reference_is_allowed_for():
    values = autoregressive(np.random.default_rng(9), 0.0, 4, 1000)
    with pytest.raises(AssertionError, match="FAIL mean"):
        assert_mean_and_sd(values, 0.2, 1.0)
    assert assert_mean_and_sd(values, 0.2, 1.0, mean_error=0.1).passed
    with pytest.raises(AssertionError, match="FAIL sd"):
        assert_mean_and_sd(values, 0.0, 1.2)
    assert assert_mean_and_sd(values, 0.0, 1.2, sd_error=0.1).passed


def test_effective_size_is_cautious():
    values = autoregressive(np.random.default_rng(10), 0.8, 4, 9000)
    truth = 36000 / 9  # (1 + 0.8) / (1 - 0.8) = 9
    assert 0.6 * truth < effective_size(values) < truth
    assert effective_size(autoregressive(np.random.default_rng(10), -0.5, 4, 1000)) < 4000


def test_ranks_rate_and_power():
    rng = np.random.default_rng(11)

    def alarms(draw, runs, false_alarm):
        return np.mean([not rank_uniformity(draw(), 99, false_alarm).passed for _ in range(runs)])

    assert alarms(lambda: rng.integers(0, 100, 400), 2000, 0.01) <= 0.015
    assert alarms(lambda: rng.integers(0, 100, 400), 2000, 1e-4) <= 0.001
    shifted = stats.norm(0.5, 1), stats.norm(0, 1.5), stats.norm(0, 0.6)
    for wrong in shifted:
        ranks = lambda w=wrong: (100 * stats.norm.cdf(w.rvs(400, random_state=rng))).astype(int)  # noqa: E731
        assert alarms(ranks, 20, 1e-5) >= 0.9


def test_ranks_with_bins_of_unequal_width():
    ranks = np.tile(np.arange(31), 20)
    report = rank_uniformity(ranks, 30)
    assert report.checks[0].observed == pytest.approx(0, abs=1e-9)
    assert report.checks[1].observed == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("ranks", [np.arange(39), np.full(50, 101), np.full(50, 0.5)])
def test_wrong_ranks_are_refused(ranks):
    with pytest.raises(ValueError, match="ranks must be"):
        rank_uniformity(ranks, 100)
