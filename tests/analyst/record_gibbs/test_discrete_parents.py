"""Discrete parameters of records move along with these; where they cannot, it is said."""

import arviz as az
import numpy as np
import pymc as pm
import pytest
from scipy import stats

import pymc_dp as pmdp
from pymc_dp.analyst.record_gibbs.discrete_parents import MOST_TRIED, Window, chosen_discrete
from pymc_dp.analyst.record_gibbs.interweave import held_discrete, interweaving_plan
from pymc_dp.analyst.records import record_blocks, record_variables
from tests.checks import assert_mean_and_sd
from tests.sampling import draw, values


def assert_shares(draws, p, false_alarm=1e-5):
    """Compare how often 0, 1, ... are drawn with their probabilities, each by a normal tail."""
    for value, expected in enumerate(p):
        hits = (draws == value).astype(float)
        size = float(az.ess(hits, method="mean"))
        error = np.sqrt(expected * (1 - expected) / size)
        assert size > 200
        assert abs(hits.mean() - expected) < stats.norm.isf(false_alarm / 2 / len(p)) * error


def test_a_group_of_records_moves_with_them():
    # given 60 records k, j and mu stay where they are; sums of normal records are normal
    n, sigma, released = 60, 60.0, 61.0
    prior, shifts = np.array([0.2, 0.5, 0.3]), np.array([-1.0, 0.0, 1.5])
    with pm.Model() as model:
        k = pm.Categorical("k", prior)
        j = pm.Poisson("j", 9.0)
        mu = pm.Normal("mu", 0, 0.3)
        x = pm.Normal("x", mu + pm.math.stack(list(shifts))[k] + (j - 9) / 4, 1, shape=n)
        pmdp.Privatized("s", x.sum(), pmdp.Gaussian(sigma=sigma), observed=released)
    posterior = draw(model, draws=6000)
    counts = np.arange(60)
    left = released - n * (shifts[:, None] + (counts - 9) / 4)
    variance = n**2 * 0.3**2 + n + sigma**2
    p = prior[:, None] * stats.poisson.pmf(counts, 9.0) * np.exp(-(left**2) / (2 * variance))
    p /= p.sum()
    assert_shares(values(posterior, "k"), p.sum(axis=1))
    mean, square = (np.sum(p * counts**power) for power in (1, 2))
    assert_mean_and_sd(values(posterior, "j").astype(float), mean, np.sqrt(square - mean**2))
    means = 0.3**2 * n * left / variance
    mean = np.sum(p * means)
    within = 0.3**2 * (1 - 0.3**2 * n**2 / variance)
    spread = np.sqrt(within + np.sum(p * (means - mean) ** 2))
    assert_mean_and_sd(values(posterior, "mu"), mean, spread)


@pytest.mark.wide
@pytest.mark.parametrize("rate", [0, 1])
def test_counts_move_with_what_is_discrete(rate):
    # counts have residuals that are drawn: u between F(x - 1) and F(x)
    n, scale, released = 12, 30.0, 50.0
    with pm.Model() as model:
        k = pm.Poisson("k", 3.0)
        x = pm.Poisson("x", rate + k, shape=n)
        pmdp.Privatized("s", x.sum(), pmdp.Laplace(scale=scale), observed=released)
    posterior = draw(model, draws=6000)
    counts, totals = np.arange(40), np.arange(2000)
    noise = np.exp(-np.abs(released - totals) / scale)
    p = stats.poisson.pmf(counts, 3.0) * np.array(
        [stats.poisson.pmf(totals, n * (rate + count)) @ noise for count in counts]
    )
    p /= p.sum()
    assert_shares(values(posterior, "k"), p[:6])


def test_windows():
    assert Window.of(pm.Bernoulli.dist(0.5)) == (0, 2, False)
    assert Window.of(pm.DiscreteUniform.dist(3, 7)) == (3, 5, False)
    assert Window.of(pm.Binomial.dist(1000, 0.5)).slides
    assert Window.of(pm.Poisson.dist(4.0)).slides
    few, many = pm.Bernoulli.dist(0.5, shape=3), pm.Bernoulli.dist(0.5, shape=MOST_TRIED)
    assert list(chosen_discrete({many: MOST_TRIED, few: 3, pm.Normal.dist(): 1})) == [few]


def mixture(n):
    with pm.Model() as model:
        z = pm.Bernoulli("z", 0.5, shape=n)
        mu = pm.Normal("mu", 0, 1)
        x = pm.Normal("x", mu + 20 * z, 1, shape=n)
        pmdp.Privatized("s", x.sum(), pmdp.Laplace(scale=5), observed=1.0)
    return model


def test_what_is_held_is_told(made_only, caplog):
    model = mixture(100)
    [block] = record_blocks(model, record_variables(model))
    plan = interweaving_plan(model, block)
    assert [rv.name for rv in plan[1]] == ["mu"]
    assert [rv.name for rv in held_discrete(model, plan, [block])] == ["z"]
    told = pmdp.explain(model).interweaving["x"]
    assert "interweaved with mu; 'z' is discrete" in told
    assert "pmdp.marginalize(model)" in told
    with model:
        pmdp.RecordGibbs()
    [record] = caplog.records
    assert record.levelname == "WARNING"
    assert "'z' is discrete" in record.message
    assert "pmdp.marginalize(model)" in record.message
    caplog.clear()
    with mixture(5):
        pmdp.RecordGibbs()
    assert not caplog.records
    with mixture(5):
        pmdp.RecordGibbs(interweave=False)
    assert "'z' is discrete" in caplog.text


def test_records_without_a_rule_hold_what_is_discrete(made_only, caplog):
    with pm.Model() as model:
        k = pm.Bernoulli("k", 0.5)
        x = pm.VonMises("x", 0.0 * k, 1 + k, shape=5)
        pmdp.Privatized("s", x.sum(), pmdp.Laplace(scale=5), observed=1.0)
    assert "not interweaved: no rule" in pmdp.explain(model).interweaving["x"]
    with model:
        pmdp.RecordGibbs()
    assert "'k' is discrete" in caplog.text


def test_discrete_parameters_are_left_to_steps_of_their_own():
    with mixture(5) as model, pytest.raises(ValueError, match=r"'z' is discrete.*leave it out"):
        pmdp.RecordGibbs([model["x"], model["z"]])
