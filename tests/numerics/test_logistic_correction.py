"""Normal noise and the correction together are logistic, to what is said of it."""

import math

import numpy as np
import pytest
from scipy.stats import kstest, logistic, norm

from pymc_dp.numerics.logistic_correction import logistic_correction


@pytest.mark.parametrize(("variance", "most"), [(0.3, 1e-9), (1.0, 2e-6), (2.0, 5e-3)])
def test_total_variation_by_other_means(variance, most):
    found = logistic_correction(variance)
    masses = np.diff(found.cumulative, prepend=0.0)
    edges = np.linspace(-40, 40, 8001)
    # masses of small cells from distribution functions, which the fit did not use
    summed = norm.cdf((edges[:, None] - found.values) / math.sqrt(variance)) @ masses
    off = np.abs(np.diff(summed) - np.diff(logistic.cdf(edges))).sum() / 2
    assert off <= found.error * 1.05 + 1e-9
    assert found.error < most
    assert np.all(masses >= 0)


def test_draws_are_logistic():
    rng, found = np.random.default_rng(0), logistic_correction(1.0)
    draws = [found.draw(rng) + rng.normal() for _ in range(40_000)]
    # false alarm 1e-4
    assert kstest(draws, logistic.cdf).pvalue > 1e-4
    assert kstest([d * 1.05 for d in draws], logistic.cdf).pvalue < 1e-4


def test_variances_for_which_there_is_no_correction():
    for variance in (3.0, 0.0, math.nan):
        with pytest.raises(ValueError, match="variance"):
            logistic_correction(variance)
