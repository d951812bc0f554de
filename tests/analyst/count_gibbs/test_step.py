"""CountGibbs against posteriors computed by sums over counts and grids of parameters."""

import numpy as np
import pymc as pm
import pytest
from scipy import stats
from scipy.special import logsumexp

import pymc_dp as pmdp
from tests.checks import assert_mean_and_sd, assert_same_distribution
from tests.sampling import draw, values


def grid_cdf(grid, log_p):
    p = np.exp(log_p - log_p.max())
    total = np.concatenate([[0], np.cumsum((p[1:] + p[:-1]) * np.diff(grid) / 2)])
    return lambda x: np.interp(x, grid, total / total[-1])


def test_shared_rate_with_noise_on_every_cell():
    """Cells and rate; two releases of the same cells, one of them doubled and clamped."""
    y, twice = np.array([4, 9, 2, -1, 6]), np.array([10, 13, 0, 3, 8])
    with pm.Model() as model:
        rate = pm.Gamma("rate", 2, 0.3)
        counts = pm.Poisson("counts", rate, shape=5)
        pmdp.Privatized("cells", counts, pmdp.DiscreteGaussian(sigma=2), observed=y)
        noise = pmdp.DiscreteLaplace(scale=3).clamped(lower=0)
        pmdp.Privatized("twice", 2 * counts[::-1], noise, observed=twice[::-1])
    k, grid = np.arange(80), np.linspace(0.01, 25, 4001)
    noise_1 = -((y[:, None] - k) ** 2) / 8
    noise_2 = -np.abs(twice[:, None] - 2 * k) / 3
    q = np.exp(-1 / 3)  # P(noise <= -m) = q^m / (1 + q) for m >= 0
    at_zero = np.where(k > 0, -2 * k / 3 - np.log1p(q), np.log(1 / (1 + q)))
    # at the clamp the value stands for all noisy ones at or below it; elsewhere the normaliser
    noise_2 = np.where(twice[:, None] == 0, at_zero, noise_2 + np.log((1 - q) / (1 + q)))
    seen = noise_1 + noise_2
    poisson = stats.poisson.logpmf(k[None], grid[:, None])
    log_p = sum(logsumexp(poisson + seen[i], axis=1) for i in range(5))
    log_p += stats.gamma.logpdf(grid, 2, scale=1 / 0.3)
    posterior = draw(model)
    assert_same_distribution(values(posterior, "rate"), grid_cdf(grid, log_p))
    weight = np.exp(log_p - logsumexp(log_p))
    for i in range(5):
        cell = poisson + seen[i]
        p = weight @ np.exp(cell - logsumexp(cell, axis=1, keepdims=True))
        mean = (p * k).sum()
        sd = ((p * (k - mean) ** 2).sum()) ** 0.5
        assert_mean_and_sd(values(posterior, "counts")[..., i], mean, sd)


@pytest.mark.wide
def test_binomial_cells_below_a_threshold():
    """Dropped cells tell that the noisy value was small."""
    released = np.array([np.nan, 12.0, np.nan, 9.0])
    trials = np.array([30, 40, 25, 20])
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        counts = pm.Binomial("counts", trials, p)
        noise = pmdp.DiscreteGaussian(sigma=3).thresholded(8, dropped=np.nan)
        pmdp.Privatized("cells", counts, noise, observed=released)
    grid, log_p = np.linspace(1e-4, 1 - 1e-4, 2001), 0.0
    noise = np.arange(-200, 201)
    mass = np.exp(-(noise**2) / 18)
    mass /= mass.sum()
    for y, n in zip(released, trials, strict=True):
        k = np.arange(n + 1)
        if np.isnan(y):
            seen = np.array([mass[noise + count < 8].sum() for count in k])
        else:
            seen = np.array([mass[noise == y - count].sum() for count in k])
        log_p = log_p + np.log(stats.binom.pmf(k[None], n, grid[:, None]) @ seen)
    assert_same_distribution(values(draw(model), "p"), grid_cdf(grid, log_p))
