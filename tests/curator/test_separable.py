"""Log-likelihoods as sums of products, against the likelihood itself."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_dp as pmdp
from pymc_dp.curator.model import RecordModel
from pymc_dp.curator.separable import MOST_COLUMNS, separated
from pymc_dp.graph.intervals import ONCE

N = 30
rng = np.random.default_rng(0)
NORMAL, POSITIVE = rng.normal(size=(N, 3)), rng.exponential(size=N)


def vector_mean():
    pm.Normal("y", pm.Normal("mu", shape=3), 2, observed=NORMAL)


def common_mean():
    pm.Normal("y", pm.Normal("mu"), 2, observed=NORMAL)


def mean_and_sd():
    pm.Normal("y", pm.Normal("mu"), pm.HalfNormal("sigma"), observed=NORMAL[:, 0])


def means_and_sds():
    mu, sigma = pm.Normal("mu", shape=3), pm.HalfNormal("sigma", shape=3)
    pm.Normal("y", mu, sigma, observed=NORMAL)


def two_variables():
    mu = pm.Normal("mu", shape=2)
    pm.Normal("x", mu[0], 1, observed=NORMAL[:, 0])
    pm.Normal("y", mu[1] + mu[0] ** 2, 3, observed=NORMAL[:, 1])


def own_spread():
    # every record has a known spread of its own
    pm.Normal("y", pm.Normal("mu"), POSITIVE, observed=NORMAL[:, 0])


def slope():
    pm.Normal("y", pm.Normal("slope") * NORMAL[:, 1], 1, observed=NORMAL[:, 0])


def bernoulli():
    pm.Bernoulli("y", pm.Beta("p", 1, 1), observed=NORMAL[:, 0] > 0)


def exponential():
    pm.Exponential("y", pm.Gamma("rate", 2, 1), observed=POSITIVE)


def logistic():
    pm.Bernoulli("y", logit_p=NORMAL @ pm.Normal("beta", shape=3), observed=NORMAL[:, 0] > 0)


def robust():
    pm.StudentT("y", nu=4, mu=pm.Normal("mu"), sigma=1, observed=NORMAL[:, 0])


def mixture():
    pm.NormalMixture("y", [0.5, 0.5], pm.Normal("mu", shape=2), 1, observed=NORMAL[:, 0])


def own_means():
    pm.Normal("y", pm.Normal("mu", shape=N), 1, observed=NORMAL[:, 0])


def many_columns():
    wide = np.zeros((N, MOST_COLUMNS + 1))
    pm.Normal("y", pm.Normal("mu", shape=MOST_COLUMNS + 1), 1, observed=wide)


def reader(declare):
    with pm.Model() as model:
        declare()
    return RecordModel(model, confidential=False)


@pytest.mark.parametrize(
    ("declare", "columns"),
    [
        (vector_mean, 3),
        (common_mean, 1),
        (mean_and_sd, 2),
        (means_and_sds, 6),
        (two_variables, 2),
        (own_spread, 2),
        (slope, 2),
        (bernoulli, 2),
        (exponential, 2),
    ],
)
def test_ratios_are_those_of_the_likelihood(declare, columns):
    records = reader(declare)
    theta, rows, logp = records.likelihood.graph
    found = separated(theta, rows, logp)
    assert found is not None
    statistics = found.statistics.eval(
        dict(zip(rows, records.likelihood.data, strict=True)), mode=ONCE
    )
    assert statistics.shape == (N, columns)
    draw = np.random.default_rng(1)
    one, other = (records.space.start + draw.normal(size=records.space.size) for _ in range(2))
    factors = found.natural.eval({theta: one}, mode=ONCE) - found.natural.eval(
        {theta: other}, mode=ONCE
    )
    expected = records.likelihood(one) - records.likelihood(other)
    np.testing.assert_allclose(statistics @ factors[1:] + factors[0], expected, rtol=1e-10)


@pytest.mark.parametrize("declare", [logistic, robust, mixture, own_means, many_columns])
def test_other_likelihoods_do_not_separate(declare):
    assert separated(*reader(declare).likelihood.graph) is None


def test_conditions_on_parameters_do_not_separate():
    theta, x = pt.dvector("theta"), pt.dvector("x")
    assert separated(theta, [x], pt.switch(theta[0] > 0, x, -x) * theta[0]) is None


def test_records_beyond_the_range_have_no_infinite_statistic():
    """Minus infinity at every point has left the ratio."""
    theta, x = pt.dvector("theta"), pt.dvector("x")
    found = separated(theta, [x], pt.switch(x > 0, -x * theta[0], -np.inf))
    statistics = found.statistics.eval({x: [-1.0, 2.0]}, mode=ONCE)
    np.testing.assert_array_equal(np.abs(statistics), [[0.0], [2.0]])


def test_published_problems_separate():
    banana, gauss = pmdp.datasets.banana(50), pmdp.datasets.correlated_gaussian(50)
    for problem, columns in ((banana, 2), (gauss, 10)):
        likelihood = RecordModel(problem.model(), confidential=False).likelihood
        rows = dict(zip(likelihood.graph[1], likelihood.data, strict=True))
        assert separated(*likelihood.graph).statistics.eval(rows, mode=ONCE).shape == (50, columns)
