"""The draws against scipy's inverse Gaussian; false-alarm rate 1e-5 a test."""

import numpy as np
import pytest
from scipy import stats

from pymc_dp.numerics.normal_mixture import laplace_variances

DRAWS = 40_000
FALSE_ALARM = 1e-5


@pytest.mark.parametrize("scale", [0.3, 1.0, 40.0])
@pytest.mark.parametrize("ratio", [1e-6, 0.2, 1.0, 30.0])
def test_conditional_law(scale, ratio):
    r = ratio * scale
    rng = np.random.default_rng(1)
    drawn = laplace_variances(rng, np.full(DRAWS, -r), np.full(DRAWS, scale))
    # 1 / w is inverse Gaussian with mean 1 / (b r) and shape 1 / b^2
    exact = stats.invgauss(scale / r, scale=1 / scale**2)
    assert stats.kstest(1 / drawn, exact.cdf).pvalue > FALSE_ALARM


def test_without_noise_the_limit():
    drawn = laplace_variances(np.random.default_rng(2), np.zeros(DRAWS), np.full(DRAWS, 3.0))
    assert stats.kstest(drawn / 9, stats.chi2(1).cdf).pvalue > FALSE_ALARM


def test_keeps_the_joint_law():
    """Noise and variance drawn in turn stay a Laplace and an exponential variable."""
    rng = np.random.default_rng(3)
    noise, scale = rng.laplace(0, 2.0, DRAWS), np.full(DRAWS, 2.0)
    for _ in range(3):
        variance = laplace_variances(rng, noise, scale)
        noise = rng.normal(0, np.sqrt(variance))
    assert stats.kstest(noise, stats.laplace(0, 2).cdf).pvalue > FALSE_ALARM
    assert stats.kstest(variance, stats.expon(scale=8).cdf).pvalue > FALSE_ALARM
