"""Rényi conversions against dp-accounting and against the exact Gaussian answer."""

import numpy as np
import pytest

from pymc_dp.accounting import (
    gaussian_epsilon,
    poisson_gaussian_rdp,
    rdp_epsilon,
    subsampled_gaussian_rdp,
    zcdp_epsilon,
)
from pymc_dp.accounting.renyi import ORDERS


@pytest.mark.parametrize("mu", [0.01, 0.5, 5.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-12])
def test_gaussian_exact_below_rdp_below_zcdp(mu, delta):
    orders = 1 + np.geomspace(1e-3, 1e4, 20_000)
    renyi = rdp_epsilon(orders, orders * mu, delta)
    assert gaussian_epsilon(delta, mu) < renyi < zcdp_epsilon(mu, delta)


@pytest.mark.parametrize("noise", [0.7, 1.2, 8.0])
@pytest.mark.parametrize("fraction", [1e-3, 0.01, 0.3])
def test_amplification_against_direct_evaluation(noise, fraction):
    def direct(order):
        def base(j):
            return j / (2 * noise**2)

        total = 1 + fraction**2 * order * (order - 1) / 2 * min(
            4 * (np.exp(base(2)) - 1), 2 * np.exp(base(2))
        )
        binomial = order * (order - 1) / 2
        for j in range(3, order + 1):
            binomial *= (order - j + 1) / j
            total += 2 * fraction**j * binomial * np.exp((j - 1) * base(j))
        return min(np.log(total) / (order - 1), base(order))

    orders = [2, 3, 5, 9]
    expected = [direct(order) for order in orders]
    np.testing.assert_allclose(
        subsampled_gaussian_rdp(noise, fraction, orders), expected, rtol=1e-9
    )


def test_subsampled_epsilon_of_a_published_setting():
    # SGLD of the DP-HMC paper: 2256 batches of 1000 out of 1e5; exact epsilon is 4.000
    rdp = 2256 * subsampled_gaussian_rdp(1.1785113019775793, 0.01)
    assert 4.0 < rdp_epsilon(ORDERS, rdp, 1e-6) < 5.8


@pytest.mark.parametrize(
    ("order", "noise", "fraction", "expected"),
    [
        (2, 0.05274, 2.17e-26, 5.09343021086545e-13),
        (2, 0.1, 4.564e-13, 1.56556147188866e-14),
        (2, 1.0, 1e-9, 1.01044926690492e-18),
        (7, 0.5, 1e-7, 1.64528114552128e-13),
        (3, 200.0, 1e-3, 3.74999997661021e-11),
        (20, 1.0, 1e-4, 1.01041698600551e-7),
    ],
)
def test_tiny_divergences_of_substitution_keep_their_digits(order, noise, fraction, expected):
    """Against quadrature with 50 digits: of very many looks every digit counts."""
    found = poisson_gaussian_rdp(noise, fraction, "substitute", [order])
    np.testing.assert_allclose(found, expected, rtol=1e-10)


@pytest.mark.parametrize("order", [2, 5, 37])
@pytest.mark.parametrize("noise", [0.5, 3.0, 1e4])
def test_tiny_divergences_of_a_record_that_is_missing_keep_their_digits(order, noise):
    """With a small fraction q only pairs of looks tell: a q^2 (exp(1 / s^2) - 1) / 2."""
    fraction = 1e-12 / order**2 * np.exp(-order / noise**2)
    found = poisson_gaussian_rdp(noise, fraction, "add_remove", [order])
    expected = order * fraction**2 * np.expm1(1 / noise**2) / 2
    np.testing.assert_allclose(found, expected, rtol=1e-8)


def test_no_subsampling_gains_nothing_and_overflow_is_finite():
    np.testing.assert_allclose(subsampled_gaussian_rdp(1.0, 1.0, [2, 4]), [1.0, 2.0])
    assert np.all(np.isfinite(subsampled_gaussian_rdp(1e-2, 0.5)))


def test_errors():
    with pytest.raises(ValueError, match="fraction"):
        subsampled_gaussian_rdp(1.0, 0.0)
    with pytest.raises(ValueError, match="orders"):
        rdp_epsilon([1.0], [0.1], 1e-6)
