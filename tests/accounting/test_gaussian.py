"""The exact Gaussian formulas against high precision, integration and dp-accounting."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from pymc_dp.accounting import (
    gaussian_delta,
    gaussian_epsilon,
    gaussian_iterations,
    gaussian_mu,
    gaussian_sigma,
    zcdp_epsilon,
    zcdp_rho,
)

epsilons = st.floats(math.log(1e-3), math.log(100)).map(math.exp)
deltas = st.floats(math.log(1e-300), math.log(0.5)).map(math.exp)


def exact_log_delta(epsilon: float, mu: float) -> float:
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(160):
        s, e = mpmath.sqrt(2 * mpmath.mpf(mu)), mpmath.mpf(epsilon)

        def cdf(x):
            return mpmath.erfc(-x / mpmath.sqrt(2)) / 2

        return float(mpmath.log(cdf(s / 2 - e / s) - mpmath.exp(e) * cdf(-s / 2 - e / s)))


@settings(max_examples=200, deadline=None)
@given(epsilons, deltas)
def test_calibration_is_safe_and_tight_in_high_precision(epsilon, delta):
    mu = gaussian_mu(epsilon, delta)
    excess = exact_log_delta(epsilon, mu) - math.log(delta)
    assert -1e-8 < excess <= 0
    assert exact_log_delta(epsilon, mu) <= math.log(gaussian_delta(epsilon, mu))


@settings(max_examples=200, deadline=None)
@given(epsilons, deltas)
def test_inverses_agree_and_never_promise_too_much(epsilon, delta):
    mu = gaussian_mu(epsilon, delta)
    assert gaussian_delta(epsilon, mu) <= delta
    assert gaussian_epsilon(delta, mu) == pytest.approx(epsilon, rel=1e-7)
    assert gaussian_delta(gaussian_epsilon(delta, mu), mu) <= delta


@settings(max_examples=200, deadline=None)
@given(epsilons, deltas, st.floats(1e-6, 1e6), st.integers(1, 10**6))
def test_calibrated_sigma_never_gives_more_than_the_asked_delta(epsilon, delta, sensitivity, k):
    sigma = gaussian_sigma(epsilon, delta, sensitivity, k)
    assert gaussian_delta(epsilon, k * sensitivity**2 / (2 * sigma**2)) <= delta


@settings(max_examples=100, deadline=None)
@given(epsilons, deltas, st.floats(0.5, 1e4))
def test_iterations_are_the_most_that_fit(epsilon, delta, noise_multiplier):
    k = gaussian_iterations(epsilon, delta, noise_multiplier)
    cost = 1 / (2 * noise_multiplier**2)
    if k:
        assert gaussian_delta(epsilon, k * cost) <= delta
    assert gaussian_delta(epsilon, (k + 1) * cost) > delta * (1 - 1e-6)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 5.0])
@pytest.mark.parametrize("mu", [1e-4, 0.01, 0.5, 10.0])
def test_delta_by_numerical_integration(epsilon, mu):
    s = math.sqrt(2 * mu)
    # N(s, 1) against N(0, 1): p exceeds exp(epsilon) q to the right of the threshold
    start = epsilon / s + s / 2

    def gap(x):
        return norm.pdf(x, s) - math.exp(epsilon) * norm.pdf(x)

    expected, _ = quad(gap, start, start + 40, epsabs=0, epsrel=1e-10, limit=500)
    if expected > 1e-14:
        assert gaussian_delta(epsilon, mu) == pytest.approx(expected, rel=1e-6)


@settings(max_examples=15, deadline=None)
@given(st.floats(0.5, 8), st.sampled_from([1e-4, 1e-6, 1e-9]), st.integers(1, 500))
def test_agrees_with_the_pld_accountant(epsilon, delta, k):
    dp = pytest.importorskip("dp_accounting")
    pld = pytest.importorskip("dp_accounting.pld")
    noise = gaussian_sigma(epsilon, delta, 1.0, k)
    accountant = pld.PLDAccountant(value_discretization_interval=1e-4)
    accountant.compose(dp.GaussianDpEvent(noise), k)
    assert accountant.get_epsilon(delta) == pytest.approx(epsilon, rel=3e-3)
    assert gaussian_epsilon(delta, k / (2 * noise**2)) <= accountant.get_epsilon(delta) * (1 + 1e-6)


def test_iterations_of_the_dp_hmc_paper():
    n = 100_000
    gauss = [gaussian_iterations(e, 1e-6, 0.05 * n**0.5) for e in (4, 8, 15)]
    banana = [gaussian_iterations(e, 1e-6, 0.17 * n**0.5) for e in (4, 8, 15)]
    assert gauss == [175, 586, 1659]
    assert banana == [2028, 6778, 19180]


def test_zcdp_bound_is_looser_by_the_known_amount():
    mu = gaussian_mu(4.0, 1e-6)
    assert 1.10 < zcdp_epsilon(mu, 1e-6) / 4.0 < 1.20
    assert zcdp_epsilon(zcdp_rho(4.0, 1e-6), 1e-6) == pytest.approx(4.0)
    assert zcdp_rho(4.0, 1e-6) < mu


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: gaussian_mu(-1.0, 1e-6), "epsilon"),
        (lambda: gaussian_mu(1.0, 0.0), "delta"),
        (lambda: gaussian_sigma(1.0, 1e-6, sensitivity=0.0), "sensitivity"),
        (lambda: gaussian_sigma(1.0, 1e-6, iterations=0), "iterations"),
        (lambda: gaussian_delta(1.0, np.nan), "mu"),
        (lambda: gaussian_mu(0.0, 1e-300), "too strict"),
    ],
)
def test_errors_name_the_argument(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_extremes_stay_on_the_safe_side():
    assert gaussian_delta(100.0, 1e-20) > 0  # truly about exp(-2.5e23): never reported as none
    assert gaussian_delta(0.0, 1e9) == 1.0
    assert gaussian_delta(1.0, 0.0) == gaussian_epsilon(1e-6, 0.0) == 0.0
