"""Records of many dimensions: quasi-random points, against closed forms and larger samples."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import special

import pymc_dp as pmdp
from pymc_dp.analyst.marginal.normal.accuracy import quadrature_error
from pymc_dp.analyst.marginal.normal.sums import Normal
from pymc_dp.analyst.marginal.start import find_mode
from pymc_dp.analyst.marginal.strategy import integrated_out
from pymc_dp.analyst.records import record_blocks, record_variables
from pymc_dp.graph.intervals import ONCE
from tests.analyst.marginal.test_moments import found_moments

D, N = 4, 5000
COVARIANCE = 0.7 * np.eye(D) + 0.3
PLACE = np.linspace(-0.5, 0.6, D)


def score_model(n=N, sigma=10.0):
    """Scores of a logistic regression, their length clipped to one, covariates confidential."""
    with pm.Model() as model:
        b = pm.Normal("b", 0, 2, shape=D)
        x = pm.MvNormal("x", np.zeros(D), COVARIANCE, shape=(n, D))
        y = pm.Bernoulli("y", logit_p=x @ b)
        score = (y - pm.math.sigmoid(x @ PLACE))[:, None] * x
        clipped = score * pt.minimum(1.0, 1 / pt.sqrt((score**2).sum(axis=1, keepdims=True)))
        noise = pmdp.Gaussian(sigma=sigma)
        pmdp.Privatized("s", clipped.sum(axis=0), noise, observed=[3.0, 10.0, -20.0, 8.0])
    return model


def test_moments_of_a_clipped_score():
    b = np.array([0.3, -0.2, 0.1, 0.5])
    means, covariances = found_moments(score_model(), 32)(b=b)
    rng = np.random.default_rng(3)
    x = rng.multivariate_normal(np.zeros(D), COVARIANCE, size=2_000_000)
    p = special.expit(x @ b)
    score = {y: (y - special.expit(x @ PLACE))[:, None] * x for y in (0, 1)}
    clipped = {y: s / np.maximum(1, np.linalg.norm(s, axis=1))[:, None] for y, s in score.items()}
    expected = (p[:, None] * clipped[1] + (1 - p)[:, None] * clipped[0]).mean(axis=0)
    np.testing.assert_allclose(means / N, expected, atol=1.5e-3)  # five errors of the simulation
    second = (p[:, None] * clipped[1]).T @ clipped[1] + ((1 - p)[:, None] * clipped[0]).T @ clipped[
        0
    ]
    spread = second / len(x) - np.outer(expected, expected)
    np.testing.assert_allclose(covariances / N, spread[np.tril_indices(D)], atol=1.5e-3)


def test_linear_and_quadratic_functions_have_no_error():
    with pm.Model() as model:
        m = pm.Normal("m", 0, 1)
        x = pm.Normal("x", m, 2.0, shape=(N, 3))
        y = pm.Normal("y", x.sum(axis=1), 1.0)
        sums = pt.stack([y.sum(), (x[:, 0] * y).sum()])
        pmdp.Privatized("s", sums, pmdp.Gaussian(sigma=1.0), observed=[0.0, 0.0])
    means, covariances = found_moments(model, 8)(m=0.7)
    np.testing.assert_allclose(means / N, [2.1, 0.7 * 2.1 + 4], rtol=1e-12)
    np.testing.assert_allclose(covariances[0] / N, 13, rtol=1e-12)


def test_error_is_stated_and_small_enough():
    small = pmdp.marginalize(score_model(), method="normal")
    assert "quasi-random points" in integrated_out(small)["s"].how
    assert quadrature_error(small, find_mode(small)) < 0.05


def test_other_families_stay_at_quantiles():
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1)
        x = pm.Normal("x", a, 1.0, shape=(N, 3))
        g = pm.Gamma("g", pt.exp(a), 1.0, shape=N)
        pmdp.Privatized("s", (g * x[:, 0]).sum(), pmdp.Gaussian(sigma=500.0), observed=200.0)
    means, _ = found_moments(model, 32)(a=0.3)
    np.testing.assert_allclose(means / N, 0.3 * np.exp(0.3), atol=3e-3)
    small = pmdp.marginalize(model)
    logp, dlogp = small.compile_logp(mode=ONCE), small.compile_dlogp(mode=ONCE)
    numeric = (logp({"a": np.array(0.301)}) - logp({"a": np.array(0.299)})) / 0.002
    np.testing.assert_allclose(dlogp({"a": np.array(0.3)})[0], numeric, rtol=2e-2)


@pytest.mark.parametrize(
    ("latent", "mechanism", "preferred"),
    [
        (True, pmdp.Gaussian(sigma=1), False),
        (True, pmdp.Laplace(scale=1), True),
        (False, pmdp.Gaussian(sigma=1), True),
    ],
)
def test_a_latent_covariance_is_left_to_the_expansion(latent, mechanism, preferred):
    """Points with a covariance to factor each are no default where moments can be expanded."""
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 1) if latent else 1.0
        mean = pm.Normal("mean", 0, 1, shape=3)
        x = pm.MvNormal("x", mean, chol=scale * np.eye(3), shape=(1000, 3))
        pmdp.Privatized("s", x.sum(axis=0), mechanism, observed=np.zeros(3))
    [block] = record_blocks(model, record_variables(model))
    assert Normal().preferred(model, block) is preferred


@pytest.mark.parametrize(
    ("n", "held", "columns", "preferred"),
    [(5000, True, 3, False), (5000, False, 3, True), (5000, True, 2, True), (4000, True, 3, True)],
)
def test_many_held_parts_are_left_to_the_expansion(n, held, columns, preferred):
    """Those of records of many dimensions; sums of a few thousand, or on a grid, are not."""
    with pm.Model() as model:
        x = pm.Normal("x", pm.Normal("mean", 0, 1, shape=columns), 1, shape=(n, columns))
        parts = pmdp.clamp(x, -1, 1) if held else x
        pmdp.Privatized("s", parts.sum(axis=0), pmdp.Gaussian(sigma=1), observed=np.zeros(columns))
    [block] = record_blocks(model, record_variables(model))
    assert Normal().preferred(model, block) is preferred
