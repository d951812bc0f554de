"""Exact posteriors of the shipped problems agree with PyMC's own log-density of the models."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from pymc_dp.datasets import banana, correlated_gaussian
from pymc_dp.graph.intervals import ONCE
from pymc_dp.graph.vector import FlatSpace


@pytest.mark.parametrize("problem", [correlated_gaussian(300, 3), banana(300)])
def test_log_density_differs_by_a_constant_only(problem):
    model = problem.model()
    space = FlatSpace(model)
    logp = model.compile_logp(mode=ONCE)
    draws = problem.posterior(30, 1)
    start = model.initial_point()
    ours = np.array([float(logp(space.unflatten(theta, start))) for theta in draws])
    straight = draws.copy()
    if problem.bend:
        straight[:, 1] += problem.bend * straight[:, 0] ** 2
    exact = multivariate_normal(problem.mean, problem.covariance).logpdf(straight)
    np.testing.assert_allclose(ours - exact, (ours - exact)[0], atol=1e-6)


def test_the_papers_settings_are_the_defaults():
    problem = banana()
    assert problem.data.shape == (100_000, 2)
    # the exact moments depend on the data only a little at this size
    assert problem.covariance[0, 0] == pytest.approx(0.0199996, rel=1e-4)
    assert correlated_gaussian(100).data.shape == (100, 10)
