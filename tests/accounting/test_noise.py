"""What leaves by the door: exact noise that costs no more than it is charged for."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import kstest, norm

from pymc_dp.accounting import PrivacyError, gaussian_delta
from pymc_dp.accounting.noise import LEVELS, release
from pymc_dp.numerics.entropy import system_normal


def test_parity_tells_nothing():
    # rounded floats had an excess of even numbers: 0.5055 here. False alarm 1e-5, no seed
    size = 400_000
    even = np.count_nonzero(np.array(release([0] * size, 2e4 * LEVELS)) % 2 == 0)
    assert abs(even - size / 2) < norm.isf(0.5e-5) * math.sqrt(size / 4)


def test_noise_is_normal_of_the_size_asked_for():
    # false alarm 1e-5, no seed
    noisy = np.array(release([10**12] * 20_000, 1e6)) - 10**12
    assert kstest(noisy / 1e6, norm.cdf).pvalue > 1e-5
    assert all(isinstance(level, int) for level in release([5, -5, 2**62, 10**30], 100.0))


def test_floating_point_noise_of_mechanisms_is_standard_normal():
    assert kstest(system_normal(20_000), norm.cdf).pvalue > 1e-5


@pytest.mark.parametrize("sd", [0.0, 1.9, 2.0**56, math.inf, math.nan])
def test_noise_that_cannot_be_exact_is_refused(sd):
    with pytest.raises(PrivacyError, match="cannot be drawn exactly"):
        release([1], sd)


def test_what_is_drawn_is_wide_enough_for_what_is_charged(monkeypatch):
    asked = []

    def spy(scale, size):
        asked.append(scale)
        return np.zeros(size, dtype=np.int64)

    monkeypatch.setattr("pymc_dp.accounting.noise.system_discrete_gaussian", spy)
    sds = [2.0, 2.999, 3.0, 1e6 + 0.5, 2.0**52 - 0.5, 2.0**55]
    for sd in sds:
        release([0], sd)
    for scale, sd in zip(asked, sds, strict=True):
        assert scale**2 >= Fraction(sd) ** 2 + 4
        assert scale <= Fraction(sd) + 2


def test_simulated_noise_of_a_vector_is_that_of_its_components():
    one, other = np.random.default_rng(0), np.random.default_rng(0)
    together = release([1, 2, 3], 1e6, one)
    assert together == [release([total], 1e6, other)[0] for total in (1, 2, 3)]
    assert release([1, 2], 0.0, one) == [1, 2]


def discrete_gaussian(scale):
    k = np.arange(-60 * scale, 60 * scale + 1)
    p = np.exp(-0.5 * (k / scale) ** 2)
    return k, p / p.sum()


@pytest.mark.parametrize("scale", [3, 5, 12])
def test_the_proof_step_by_step(scale):
    # continuous noise, then a discrete Gaussian of scale 2 around it, is the discrete Gaussian
    s, y = math.sqrt(scale**2 - 4), np.linspace(-12 * scale, 12 * scale, 24 * scale * 20 + 1)
    k = np.arange(-9 * scale, 9 * scale + 1)
    lattice = np.arange(y[0] - 40, y[-1] + 41)
    rho = np.exp(-((lattice - y[:, None]) ** 2) / 8).sum(axis=1)
    assert np.ptp(rho) / rho.mean() < 1e-14  # the theory says 1e-33, floats know no better
    density = norm.pdf(y, scale=s) * (y[1] - y[0])
    processed = np.array([density @ (np.exp(-((one - y) ** 2) / 8) / rho) for one in k])
    drawn = np.interp(k, *discrete_gaussian(scale))
    np.testing.assert_allclose(processed, drawn, rtol=1e-9)


@pytest.mark.parametrize("scale", [3, 5, 12])
@pytest.mark.parametrize("number", [1, 10, 50])
@pytest.mark.parametrize("shift", [1, 2, 7])
def test_composed_discrete_noise_costs_no_more_than_charged(scale, number, shift):
    # the sum of all numbers is sufficient: its law by exact convolution
    k, p = discrete_gaussian(scale)
    total, width = np.ones(1), 0
    for _ in range(number):
        total, width = np.convolve(total, p), width + k[-1]
        cut = max(0, width - round(14 * scale * math.sqrt(number)))
        total, width = total[cut : total.size - cut], width - cut
    sums = np.arange(-width, width + 1)
    loss = shift * (2 * sums + number * shift) / (2 * scale**2)
    charged = number * shift**2 / (2 * (scale**2 - 4))
    for epsilon in (0.1, 1.0, 4.0, 10.0):
        delta = float(total @ np.maximum(-np.expm1(np.minimum(epsilon - loss, 0.0)), 0.0))
        if delta > 1e-12:  # below, the convolution's rounding shows
            assert delta <= gaussian_delta(epsilon, charged) + 1e-13
            assert delta >= gaussian_delta(epsilon, number * shift**2 / (2 * scale**2)) / 1.5
