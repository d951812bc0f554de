"""Laplace and Gaussian: densities, draws, calibration, and what they refuse."""

import numpy as np
import pytest
from scipy import stats

import pymc_dp as pmdp
from pymc_dp.accounting.gaussian import gaussian_delta
from pymc_dp.graph.intervals import ONCE

CASES = [
    (pmdp.Laplace(scale=2.5), stats.laplace(scale=2.5)),
    (pmdp.Gaussian(sigma=2.5), stats.norm(scale=2.5)),
]


@pytest.mark.parametrize(("mechanism", "noise"), CASES)
def test_densities(mechanism, noise):
    released, statistic = np.linspace(-30, 30, 13), 1.5
    symbolic = mechanism.logp(released, statistic).eval(mode=ONCE)
    np.testing.assert_allclose(symbolic, noise.logpdf(released - statistic))
    kernel = np.array([mechanism.log_density(r, statistic, 2.5) for r in released])
    np.testing.assert_allclose(kernel - kernel[0], symbolic - symbolic[0], atol=1e-12)


@pytest.mark.parametrize(("mechanism", "noise"), CASES)
def test_release_has_the_right_noise(mechanism, noise, without_opendp):
    # false-alarm rate 1e-5; the entropy is the system's, so this one has no seed
    with pytest.warns(pmdp.PrivacyWarning, match="Mironov"):
        released = mechanism.release(np.full(4000, 7.0))
    assert stats.kstest(released - 7.0, noise.cdf).pvalue > 1e-5


def test_release_is_not_seeded(without_opendp):
    np.random.seed(1)  # noqa: NPY002
    with pytest.warns(pmdp.PrivacyWarning):
        first = pmdp.Laplace(scale=1).release(0.0)
    np.random.seed(1)  # noqa: NPY002
    with pytest.warns(pmdp.PrivacyWarning):
        assert pmdp.Laplace(scale=1).release(0.0) != first


def test_small_integers_are_cast():
    # pm.Laplace("s", mu, 100) would overflow an int8
    assert pmdp.Laplace(scale=100).noise.dtype == np.float64
    assert np.isfinite(pmdp.Laplace(scale=100).logp(np.int8(5), np.int8(3)).eval(mode=ONCE))


def test_calibration_from_a_guarantee():
    assert pmdp.Laplace(epsilon=0.5, sensitivity=10).noise == 20
    assert pmdp.Gaussian(rho=0.5, sensitivity=3).noise == pytest.approx(3)
    np.testing.assert_allclose(pmdp.Laplace(epsilon=2, sensitivity=[1, 4]).noise, [0.5, 2])


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1, 1e-5), (8, 1e-10)])
def test_analytic_gaussian_is_tight(epsilon, delta):
    sigma = float(pmdp.Gaussian(epsilon=epsilon, delta=delta, sensitivity=2).noise)
    assert gaussian_delta(epsilon, 2**2 / (2 * sigma**2)) <= delta
    assert gaussian_delta(epsilon, 2**2 / (2 * (0.999 * sigma) ** 2)) > delta
    # Balle & Wang (2018), Theorem 8, by its definition
    a, b = 2 / (2 * sigma), epsilon * sigma / 2
    direct = stats.norm.cdf(a - b) - np.exp(epsilon) * stats.norm.cdf(-a - b)
    assert direct == pytest.approx(delta, rel=1e-4)


def test_guarantees():
    assert pmdp.Laplace(scale=20).guarantee(10).epsilon == 0.5
    assert pmdp.Laplace(scale=[1, 2]).guarantee([1, 1]).epsilon == 1.5
    # one l1 sensitivity for all: the least noise counts
    assert pmdp.Laplace(scale=[1, 2]).guarantee(1).epsilon == 1
    gaussian = pmdp.Gaussian(sigma=2).guarantee(2)
    assert gaussian.rho == 0.5
    assert gaussian.epsilon is None
    assert gaussian.epsilon_at(1e-5) == pytest.approx(
        pmdp.Gaussian(epsilon=gaussian.epsilon_at(1e-5), delta=1e-5, sensitivity=2)
        .guarantee()
        .epsilon
    )
    declared = pmdp.Gaussian(epsilon=1, delta=1e-5, sensitivity=2).guarantee()
    assert (declared.epsilon, declared.delta) == (pytest.approx(1), 1e-5)
    assert str(declared) == "epsilon 1, delta 1e-05"
    assert str(gaussian) == "rho 0.5 (zCDP)"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pmdp.Laplace(), "Neither"),
        (lambda: pmdp.Laplace(scale=1, epsilon=1), "Both"),
        (lambda: pmdp.Laplace(scale=1, sensitivity=1), "Both"),
        (lambda: pmdp.Laplace(epsilon=1), "sensitivity"),
        (lambda: pmdp.Laplace(scale=0), "scale must be positive"),
        (lambda: pmdp.Laplace(scale=[1, -1]), "scale must be positive"),
        (lambda: pmdp.Laplace(scale=np.nan), "scale must be positive"),
        (lambda: pmdp.Laplace(epsilon=-1, sensitivity=1), "epsilon must be positive"),
        (lambda: pmdp.Laplace(epsilon=1, sensitivity=0), "sensitivity must be positive"),
        (lambda: pmdp.Gaussian(), "Neither"),
        (lambda: pmdp.Gaussian(sigma=1, rho=1), "Both"),
        (lambda: pmdp.Gaussian(rho=1, epsilon=1, delta=1e-5, sensitivity=1), "Two guarantees"),
        (lambda: pmdp.Gaussian(epsilon=1, sensitivity=1), "delta is missing"),
        (lambda: pmdp.Gaussian(delta=1e-5, sensitivity=1), "epsilon is missing"),
        (lambda: pmdp.Gaussian(epsilon=1, delta=1.5, sensitivity=1), "delta"),
        (lambda: pmdp.Gaussian(epsilon=1, delta=0, sensitivity=1), "delta"),
        (lambda: pmdp.Gaussian(sigma=np.inf), "sigma must be positive"),
        (lambda: pmdp.Laplace(scale=1).guarantee(), "sensitivity"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()
