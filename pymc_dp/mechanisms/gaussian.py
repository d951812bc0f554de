"""Gaussian noise: (epsilon, delta) and zero-concentrated privacy under an l2 sensitivity."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.tensor.variable import TensorVariable

from pymc_dp.accounting.gaussian import gaussian_sigma
from pymc_dp.mechanisms.base import warn_floating_point
from pymc_dp.mechanisms.calibration import GaussianCalibration
from pymc_dp.mechanisms.postprocess import PostProcessing
from pymc_dp.numerics.entropy import system_normal

__all__ = ["Gaussian"]


@numba.njit
def _log_density(released: float, statistic: float, sigma: float) -> float:
    z = (released - statistic) / sigma
    return -0.5 * z * z


@numba.njit
def mills_ratio(z: float) -> float:
    """Tail of a standard normal over its density, to a relative error below 1e-12, z > -5."""
    if z < 20:
        return np.sqrt(0.5 * np.pi) * math.erfc(z / np.sqrt(2.0)) * np.exp(0.5 * z * z)
    # Abramowitz & Stegun 26.2.12
    s = 1 / (z * z)
    return (1 - s * (1 - 3 * s * (1 - 5 * s * (1 - 7 * s * (1 - 9 * s * (1 - 11 * s)))))) / z


@numba.njit
def log_normal_tail(x: float, sigma: float) -> float:
    """Log P(Normal(0, sigma) >= x) for x >= 0, to a relative error of the tail below 1e-12."""
    z = x / sigma
    if z < 20:
        return np.log(0.5 * math.erfc(z / np.sqrt(2.0)))
    if z == np.inf:
        return -np.inf
    return -0.5 * z * z - 0.5 * np.log(2 * np.pi) + np.log(mills_ratio(z))


class Gaussian(GaussianCalibration, PostProcessing):
    r"""The Gaussian mechanism: released = statistic + Normal(0, sigma).

    With l2 sensitivity :math:`\Delta_2` it satisfies :math:`\rho`-zCDP with
    :math:`\rho = \Delta_2^2 / 2\sigma^2` (Bun & Steinke 2016, Proposition 1.6). A guarantee
    (epsilon, delta) is met with the smallest possible noise, the analytic calibration of
    Balle & Wang (2018, Theorem 9).

    Parameters
    ----------
    sigma : float or array, optional
        Standard deviation of the noise, one number or one a component.
    epsilon, delta : float, optional
        Guarantee instead of sigma, with `sensitivity`.
    rho : float, optional
        zCDP guarantee instead of sigma, with `sensitivity`.
    sensitivity : float or array, optional
        l2 sensitivity of the whole statistic. An array gives every component a sensitivity and
        noise of its own, each calibrated to the guarantee by itself; their rhos then add up.

    Examples
    --------
    >>> import pymc_dp as pmdp
    >>> pmdp.Gaussian(rho=0.5, sensitivity=10)
    Gaussian(sigma=10.)
    >>> float(pmdp.Gaussian(epsilon=1, delta=1e-5, sensitivity=1).noise.round(3))
    3.731
    """

    gaussian = True
    log_density = staticmethod(_log_density)
    log_tail = staticmethod(log_normal_tail)
    opendp_maker = "make_gaussian"

    @staticmethod
    def unit_sigma(epsilon: float, delta: float) -> float:
        """Calibrate analytically: the smallest sigma that suffices."""
        return gaussian_sigma(epsilon, delta)

    def logp(self, released: Any, statistic: Any) -> TensorVariable:
        """Symbolic log-density of each component."""
        return pm.logp(pm.Normal.dist(statistic, self.noise_of(statistic)), released)

    def draw(self, statistic: TensorVariable, rng: Any) -> tuple[Any, TensorVariable]:
        """Symbolic draw of a released value."""
        noise = self.noise_of(statistic)
        return pt.random.normal(statistic, noise, rng=rng, return_next_rng=True)

    def symbolic_log_tail(self, x: TensorVariable) -> TensorVariable:
        """Log of the normal distribution's tail."""
        z = x / self.noise
        return pt.log(pt.erfcx(z / np.sqrt(2))) - 0.5 * z**2 - np.log(2)

    def noisy(self, value: NDArray, noise: NDArray[np.float64]) -> NDArray[np.float64]:
        """Add noise by inversion, with a warning about floating-point numbers."""
        warn_floating_point(self)
        drawn = np.array(system_normal(noise.size)).reshape(noise.shape)
        return value + noise * drawn
