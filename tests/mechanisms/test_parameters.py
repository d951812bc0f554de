"""Mechanisms show their parameters under the names they are given by."""

import copy
import pickle

import numpy as np
import pytest

import pymc_dp as pmdp


@pytest.mark.parametrize("family", [pmdp.Laplace, pmdp.DiscreteLaplace])
def test_scale(family):
    assert family(scale=2.5).scale == 2.5
    np.testing.assert_array_equal(family(scale=[1, 2]).scale, [1, 2])
    calibrated = family(epsilon=0.5, sensitivity=10)
    assert (calibrated.scale, calibrated.epsilon, calibrated.sensitivity) == (20, 0.5, 10)
    assert calibrated.rounded(5).clamped(lower=0).scale == 20


@pytest.mark.parametrize("family", [pmdp.Gaussian, pmdp.DiscreteGaussian])
def test_sigma(family):
    assert family(sigma=2.5).sigma == 2.5
    assert family(rho=0.5, sensitivity=10).sigma == 10
    calibrated = family(epsilon=1, delta=1e-5, sensitivity=1)
    assert (calibrated.epsilon, calibrated.delta, calibrated.rho) == (1, 1e-5, None)
    assert calibrated.sigma == pytest.approx(float(calibrated.noise))
    assert not hasattr(calibrated, "scale")


def test_randomized_response():
    coin = pmdp.RandomizedResponse(3, epsilon=np.log(4))
    assert (coin.n_categories, coin.keep) == (3, pytest.approx(2 / 3))
    assert not hasattr(pmdp.RandomizedResponse(matrix=[[0.9, 0.1], [0.4, 0.6]]), "keep")


def test_changed_noise_can_be_copied():
    mechanism = pmdp.Laplace(scale=2).rounded(how="trunc")
    assert copy.deepcopy(mechanism).scale == 2
    assert pickle.loads(pickle.dumps(pmdp.Gaussian(sigma=3))).sigma == 3
