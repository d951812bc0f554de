"""Noise on a normal total, against integrals over the total."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import integrate, stats

import pymc_dp as pmdp
from pymc_dp.analyst.marginal.normal.convolved import convolved_logp
from pymc_dp.graph.intervals import ONCE

MECHANISMS = {
    "gaussian": pmdp.Gaussian(sigma=2),
    "laplace": pmdp.Laplace(scale=2),
    "sharp laplace": pmdp.Laplace(scale=0.05),
    "flat laplace": pmdp.Laplace(scale=300),
    "clamped": pmdp.Laplace(scale=2).clamped(lower=0),
    "rounded": pmdp.Laplace(scale=2).rounded(5),
    "rounded gaussian": pmdp.Gaussian(sigma=2).rounded(5),
    "thresholded": pmdp.Laplace(scale=2).thresholded(4, dropped=0),
}


def integrated(mechanism, released, mean, sd):
    """Sum over a fine grid of totals, broken where the noise has its kink."""
    edges = np.unique(np.concatenate([mean + sd * np.linspace(-12, 12, 500), [released]]))
    nodes, weights = np.polynomial.legendre.leggauss(16)
    half = np.diff(edges)[:, None] / 2
    t = (edges[:-1, None] + half) + half * nodes
    statistic = pt.vector("t")
    logp = pytensor.function([statistic], mechanism.logp(released, statistic), mode=ONCE)(t.ravel())
    steps = (stats.norm.pdf(t, mean, sd) * half * weights).ravel()
    return np.log(np.sum(np.exp(logp) * steps))


@pytest.mark.parametrize("name", MECHANISMS)
def test_density_is_the_integral_over_the_total(name):
    mechanism = MECHANISMS[name]
    r, m, v = pt.dscalars("r", "m", "v")
    logp = pytensor.function([r, m, v], convolved_logp(mechanism, r, m, v), mode=ONCE)
    for released in (0.0, 5.0, 10.0, 25.0):
        for mean, sd in ((3.0, 1.0), (5.0, 4.0), (-2.0, 7.0)):
            expected = integrated(mechanism, released, mean, sd)
            if expected > -200:
                found = logp(released, mean, sd**2)
                np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)


def test_laplace_is_finite_and_smooth_far_out():
    r, m, v = pt.dscalars("r", "m", "v")
    logp = convolved_logp(pmdp.Laplace(scale=1.0), r, m, v)
    function = pytensor.function([r, m, v], [logp, *pt.grad(logp, [m, v])], mode=ONCE)
    for x in (0.0, 1e-9, 1.0, 30.0, 1e3, 1e6, -1e6):
        for variance in (1e-8, 1.0, 1e4, 1e10):
            assert np.all(np.isfinite(function(x, 0.0, variance)))


@pytest.mark.parametrize("scale", [0.1, 1.0, 20.0])
def test_gradients(scale):
    r, m, v = pt.dscalars("r", "m", "v")
    logp = convolved_logp(pmdp.Laplace(scale=scale), r, m, v)
    value = pytensor.function([r, m, v], logp, mode=ONCE)
    gradient = pytensor.function([r, m, v], pt.grad(logp, [m, v]), mode=ONCE)
    for x, mean, variance in ((1.0, 0.2, 2.0), (8.0, 0.2, 0.5), (0.3, 0.3, 4.0), (40.0, 1.0, 3.0)):
        h = 1e-5
        by_mean = (value(x, mean + h, variance) - value(x, mean - h, variance)) / (2 * h)
        by_variance = (value(x, mean, variance + h) - value(x, mean, variance - h)) / (2 * h)
        found = gradient(x, mean, variance)
        np.testing.assert_allclose(found, [by_mean, by_variance], rtol=1e-4, atol=1e-6)


@pytest.mark.wide_except(
    "DiscreteLaplace(scale=0.7)",
    "DiscreteLaplace(scale=6.)",
    "DiscreteGaussian(sigma=0.6)",
    "DiscreteGaussian(sigma=4.)",
    "DiscreteLaplace(scale=6.).clamped(lower=0)",
)
@pytest.mark.parametrize(
    "mechanism",
    [
        pmdp.DiscreteLaplace(scale=0.7),
        pmdp.DiscreteLaplace(scale=6),
        pmdp.DiscreteGaussian(sigma=0.6),
        pmdp.DiscreteGaussian(sigma=4),
        pmdp.DiscreteLaplace(scale=6).clamped(lower=0),
        pmdp.DiscreteGaussian(sigma=4).rounded(5),
    ],
    ids=repr,
)
def test_integer_noise_on_binomial_totals(mechanism):
    """Exact sums over the integers, for a total whose own law is nearly normal."""
    n, p = 400, 0.4
    k = np.arange(n + 1)
    statistic = pt.vector("t")
    mean, variance = n * p, n * p * (1 - p)
    law = np.exp(-0.5 * (k - mean) ** 2 / variance)
    law /= law.sum()
    for released in (150, 160, 185):
        logp = pytensor.function([statistic], mechanism.logp(released, statistic), mode=ONCE)(
            k.astype(float)
        )
        expected = np.log(np.sum(np.exp(logp) * law))
        given = [pt.constant(float(x)) for x in (released, mean, variance)]
        found = convolved_logp(mechanism, *given)
        np.testing.assert_allclose(found.eval(mode=ONCE), expected, atol=2e-3)


def test_exact_counts_are_normal():
    found = convolved_logp(pmdp.Exact(), pt.constant(7.0), pt.constant(5.0), pt.constant(9.0))
    np.testing.assert_allclose(found.eval(mode=ONCE), stats.norm.logpdf(7, 5, np.sqrt(9 + 1 / 12)))


def test_integrates_to_one():
    r = pt.dscalar("r")
    logp = convolved_logp(pmdp.Laplace(scale=2.0), r, pt.constant(1.0), pt.constant(3.0))
    density = pytensor.function([r], pt.exp(logp), mode=ONCE)
    total, _ = integrate.quad(density, -60, 60, points=[1.0], limit=200)
    np.testing.assert_allclose(total, 1, rtol=1e-9)
