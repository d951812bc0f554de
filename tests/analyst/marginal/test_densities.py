"""Densities of records by the parameters that they know, and sums of covariates' moments."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats

import pymc_dp as pmdp
from pymc_dp.analyst.marginal.normal.curvature import Bend
from pymc_dp.analyst.marginal.normal.densities import Density
from pymc_dp.analyst.marginal.normal.expansion import SimulatedRecords, parameter_layout
from pymc_dp.analyst.records import record_blocks

N = 2000
# centre, logarithms of the scales, entry below the diagonal, coefficients
THETA = np.array([0.3, -0.2, 0.1, -0.1, 0.4, 0.5, -0.6])


def moments(x):
    return pt.stack([x[:, 0], x[:, 1], x[:, 0] ** 2, x[:, 0] * x[:, 1], x[:, 1] ** 2], axis=1)


@pytest.fixture(scope="module")
def model():
    """Make a logistic regression whose covariates are normal with unknown moments."""
    with pm.Model() as model:
        centre = pm.Normal("centre", 0, 1, shape=2)
        scale = pm.Normal("scale", 0, 1, shape=2)
        below = pm.Normal("below", 0, 1)
        beta = pm.Normal("beta", 0, 1, shape=2)
        chol = pt.set_subtensor(pt.diag(pt.exp(scale))[1, 0], below)
        x = pm.MvNormal("x", centre, chol=chol, shape=(N, 2))
        y = pm.Bernoulli("y", logit_p=x @ beta, shape=N)
        added = pt.concatenate([moments(x), (x * y[:, None])], axis=1)
        pmdp.Privatized("told", added.sum(axis=0), pmdp.Gaussian(sigma=30.0), observed=np.zeros(7))
    return model


def law(theta):
    root = np.diag(np.exp(theta[2:4]))
    root[1, 0] = theta[4]
    return theta[:2], root @ root.T


def log_density(theta, x, y):
    eta = x @ theta[5:]
    return stats.multivariate_normal(*law(theta)).logpdf(x), y * eta - np.logaddexp(0, eta)


def numbers(theta):
    """Expect the moments of a record's covariates."""
    mean, covariance = law(theta)
    second = covariance + np.outer(mean, mean)
    return np.array([*mean, second[0, 0], second[0, 1], second[1, 1]])


def test_densities_and_derivatives_are_those_of_their_own_parameters(model):
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(30, 2)), rng.integers(0, 2, 30)
    records = [model["x"], model["y"]]
    layout = parameter_layout(model, records)
    assert list(layout.shapes) == ["centre", "scale", "below", "beta"]
    slots = {rv: rv.type.clone(shape=(None, *rv.type.shape[1:]))() for rv in records}
    step = 1e-5 * np.eye(7)
    for i, own in enumerate((range(5), range(5, 7))):
        density = Density(records[i], slots, model, layout)
        assert density.own.tolist() == list(own)
        value, slopes = density(THETA, [x, y])
        np.testing.assert_allclose(value, log_density(THETA, x, y)[i], rtol=1e-10)
        by_hand = [
            (log_density(THETA + e, x, y)[i] - log_density(THETA - e, x, y)[i]) / 2e-5 for e in step
        ]
        np.testing.assert_allclose(slopes, by_hand, atol=1e-7)
        for j, where, values in density.columns(THETA, [x, y]):
            up, down = (density(THETA + s * step[j], [x, y])[1] for s in (1, -1))
            np.testing.assert_allclose(values, ((up - down) / 2e-5)[where], atol=1e-4)


def test_moments_of_a_normal_law_by_expansion(model):
    """Against their formulas, up to two posterior standard deviations away.

    In standard deviations of the sums; simulated records are drawn from fixed seeds.
    """
    [block] = record_blocks(model, [model["x"], model["y"]])
    simulated = SimulatedRecords(model, block)
    noise = 30.0**2 * np.eye(7)
    found = simulated.expand(THETA, 6, noise)
    assert found.error < 0.1
    spread = np.sqrt(np.diag(found.covariance) * N + 30.0**2) / N
    rng = np.random.default_rng(2)
    for _ in range(10):
        delta = np.append(0.03 * rng.normal(size=5), [0.0, 0.0])
        off = (found.at(delta)[:5] - numbers(THETA + delta)) / spread[:5]
        assert np.max(np.abs(off)) < 0.3


def test_a_bend_is_known_when_its_error_moves_nothing():
    rng = np.random.default_rng(3)
    for size, known in ((1e-3, True), (10.0, False)):
        bend = Bend(np.eye(2), np.array([1.0]))
        for _ in range(4):
            assert not bend.is_known or known
            bend.add(np.eye(2)[None] + size * rng.normal(size=(1, 2, 2)))
        assert bend.is_known == known
        assert bend.mean.shape == (1, 2, 2)
