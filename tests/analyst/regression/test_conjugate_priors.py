"""Conjugate priors are found in every unit, and nothing else is taken for one."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_dp.analyst.regression.conjugate_priors import (
    normal_inverse_gamma,
    normal_inverse_wishart,
)
from pymc_dp.analyst.regression.priors import InverseWishart

UNITS = (1e-9, 1e-6, 1.0, 1e6, 1e9)


def coefficients(u, sd, mean=lambda variance: 0.0):
    with pm.Model() as model:
        sigma2 = pm.InverseGamma("sigma2", 3, 0.5 * u**2)
        coef = pm.Normal("coef", mean(sigma2), sd(sigma2), shape=2)
    return normal_inverse_gamma(model, coef, sigma2)


@pytest.mark.parametrize("u", UNITS)
def test_normal_inverse_gamma(u):
    found = coefficients(u, lambda v: pt.sqrt(v) * 3e-5, lambda v: 2 * u)
    np.testing.assert_allclose(found.precision, np.eye(2) / 9e-10)
    np.testing.assert_allclose(found.mean, 2 * u)
    np.testing.assert_allclose([found.shape, found.rate], [3, 0.5 * u**2])


@pytest.mark.parametrize("u", UNITS)
def test_what_is_no_normal_inverse_gamma(u):
    assert coefficients(u, lambda v: pt.sqrt(v + 0.01 * u**2)) is None
    assert coefficients(u, lambda v: 1e-5 * pt.sqrt(v + u**2)) is None
    assert coefficients(u, lambda v: 1e-5 * v / u) is None
    assert coefficients(u, pt.sqrt, lambda v: 0.1 * v / u) is None


def mean_and_covariance(u, of_mean, mean=lambda cov: np.zeros(2)):
    scale = u**2 * np.array([[1.0, 2e3], [2e3, 1e8]])  # two units at once
    with pm.Model() as model:
        cov = InverseWishart("cov", nu=5, psi=scale)
        mu = pm.MvNormal("mu", mean(cov), of_mean(cov))
    return normal_inverse_wishart(model, mu, cov), scale


@pytest.mark.parametrize("u", UNITS)
def test_normal_inverse_wishart(u):
    found, scale = mean_and_covariance(u, lambda cov: cov / 1e7)
    np.testing.assert_allclose([found.weight, found.df], [1e7, 5])
    np.testing.assert_allclose(found.scale, scale)


@pytest.mark.parametrize("u", UNITS)
def test_what_is_no_normal_inverse_wishart(u):
    more = 0.01 * u**2 * np.eye(2)
    assert mean_and_covariance(u, lambda cov: (cov + more) / 1e7)[0] is None
    first = lambda cov: cov[0] / u  # noqa: E731
    assert mean_and_covariance(u, lambda cov: cov, first)[0] is None
