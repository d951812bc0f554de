"""Exact totals of categorical records: what is honoured, what is refused, the posterior."""

import itertools

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import special

import pymc_dp as pmdp
from pymc_dp.graph.intervals import ONCE
from tests.checks import assert_same_distribution
from tests.oracles import GridPosterior
from tests.sampling import draw, values

Z = np.linspace(-1.5, 1.5, 6)


def test_exact_number_and_noisy_sum_against_enumeration():
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1.5)
        x = pm.Bernoulli("x", logit_p=b * Z, shape=6)
        pmdp.Privatized("number", x.sum(), pmdp.Exact(), observed=2)
        pmdp.Privatized("weighted", (x * Z).sum(), pmdp.Laplace(scale=0.7), observed=1.5)
    grid = np.linspace(-9, 9, 1201)
    log_p = []
    for table in itertools.product([0, 1], repeat=6):
        if sum(table) == 2:
            t = np.array(table)
            records = special.log_expit(np.where(t, 1, -1) * grid[:, None] * Z).sum(axis=1)
            log_p.append(records - abs(1.5 - t @ Z) / 0.7)
    posterior = special.logsumexp(log_p, axis=0) - grid**2 / (2 * 1.5**2)
    exact = GridPosterior.from_log_density(grid, posterior)
    found = draw(model, draws=2000, tune=300, var_names=["b", "x"])
    assert np.all(found["x"].sum("x_dim_0") == 2)
    assert_same_distribution(values(found, "b"), exact.cdf)


@pytest.mark.wide
def test_groups_of_categories_and_a_child_variable():
    # two of four categories are counted together; a measurement depends on the category
    with pm.Model() as model:
        g = pm.Categorical("g", [0.1, 0.2, 0.3, 0.4], shape=3)
        y = pm.Normal("y", g.astype("float64"), 1.0)
        counted = pt.stack([pt.le(g, 1).sum(), pt.eq(g, 2).sum()])
        pmdp.Privatized("counts", counted, pmdp.Exact(), observed=[1, 1])
        pmdp.Privatized("total", pmdp.clamp(y, -9, 9).sum(), pmdp.Gaussian(sigma=1), observed=7.0)
    p = np.array([0.1, 0.2, 0.3, 0.4])
    tables = [t for t in itertools.product(range(4), repeat=3) if _counts(t) == (1, 1)]
    # the sum of y is normal given g: the clamp is out of reach
    weight = [np.prod(p[list(t)]) * np.exp(-0.5 * (7 - sum(t)) ** 2 / 4) for t in tables]
    expected = np.array(
        [sum(w for t, w in zip(tables, weight, strict=True) if c in t) for c in range(4)]
    )
    found = draw(model, draws=4000, tune=200, var_names=["g"])["g"].values
    share = np.array([(found == c).any(axis=-1).mean() for c in range(4)])
    # worth more than 1000 independent draws: six standard errors
    np.testing.assert_allclose(share, expected / sum(weight), atol=6 * 0.5 / np.sqrt(1000))


def _counts(table):
    return sum(c <= 1 for c in table), sum(c == 2 for c in table)


def test_records_that_disagree_are_impossible_and_may_be_started_from():
    logp = pmdp.Exact().logp(np.array([4, 1]), np.array([4, 3])).eval(mode=ONCE)
    assert logp[0] == 0
    assert np.isfinite(logp[1])
    assert logp[1] < -1e99


@pytest.mark.parametrize(
    ("statistic", "observed", "message"),
    [
        (lambda g: pt.eq(g, 1).sum(), 8, "cannot be those of 7 records"),
        (lambda g: pt.eq(g, 1).sum(), -1, "cannot be those of 7 records"),
        (lambda g: pt.eq(g[:, None], np.arange(3)).sum(0), [1, 1, 1], "cannot be those"),
        (lambda g: pt.eq(g, 1).sum(), 1.5, "whole numbers"),
        (lambda g: pt.eq(g, 1).mean(), 1, "exact counts"),
    ],
)
def test_refusals(statistic, observed, message):
    with pm.Model():
        g = pm.Categorical("g", np.ones(3) / 3, shape=7)
        with pytest.raises(ValueError, match=message):
            pmdp.Privatized("r", statistic(g), pmdp.Exact(), observed=observed)


@pytest.mark.parametrize("weights", [np.ones(7, dtype=int), np.arange(7)])
def test_record_gibbs_refuses_what_it_cannot_honour(weights):
    with pm.Model():
        g = pm.Categorical("g", np.ones(3) / 3, shape=7)
        pmdp.Privatized("r", (g * weights).sum(), pmdp.Exact(), observed=3)
        with pytest.raises(ValueError, match=r"groups of categories.*method=.counts"):
            pmdp.RecordGibbs()


def test_amounts_cannot_be_honoured():
    with pm.Model():
        x = pm.Poisson("x", 2.0, shape=5)
        with pytest.raises(ValueError, match="released exactly"):
            pmdp.Privatized("r", (x**2).sum(), pmdp.Exact(), observed=9)


def test_exact_is_no_protection():
    assert pmdp.Exact().guarantee().epsilon == np.inf
    with pytest.warns(pmdp.PrivacyWarning):
        assert pmdp.Exact().release(3) == 3
    with pm.Model() as model:
        x = pm.Bernoulli("x", [1.0, 1.0, 0.0])
        pmdp.Privatized("r", x.sum(), pmdp.Exact())
    assert pm.draw(model["r"], mode=ONCE) == 2
