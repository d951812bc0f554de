"""Discrete Gaussian noise: zero-concentrated privacy on integers."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numba
import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable

from pymc_dp.accounting.errors import PrivacyError
from pymc_dp.accounting.renyi import zcdp_rho
from pymc_dp.compat import numba_core_rv_funcify
from pymc_dp.mechanisms.additive import IntegerNoise
from pymc_dp.mechanisms.calibration import GaussianCalibration
from pymc_dp.mechanisms.exact_sampling import discrete_gaussian
from pymc_dp.mechanisms.gaussian_sums import (
    log_interval,
    log_normaliser,
    log_tail,
    symbolic_log_sum,
)
from pymc_dp.mechanisms.postprocess import PostProcessing

__all__ = ["DiscreteGaussian"]


@numba.njit
def _log_density(released: float, statistic: float, sigma: float) -> float:
    z = (released - statistic) / sigma
    return -0.5 * z * z


@numba.njit
def _draw_one(rng: np.random.Generator, sigma: float) -> int:
    """Rejection from the discrete Laplace: Canonne, Kamath & Steinke (2020), Algorithm 3."""
    t = np.floor(sigma) + 1
    p = -np.expm1(-1 / t)
    while True:
        k = rng.geometric(p) - rng.geometric(p)
        excess = (abs(k) - sigma * sigma / t) / sigma
        if -rng.standard_exponential() < -0.5 * excess * excess:
            return k


@numba.njit
def _draw_all(rng: np.random.Generator, sigma: NDArray[np.float64]) -> NDArray[np.int64]:
    out = np.empty(sigma.size, dtype=np.int64)
    for i in range(sigma.size):
        out[i] = _draw_one(rng, sigma[i])
    return out


class DiscreteGaussianRV(RandomVariable):
    """Draws of discrete Gaussian noise."""

    name = "discrete_gaussian"
    signature = "()->()"
    dtype = "int64"
    _print_name = ("DiscreteGaussian", "\\operatorname{DiscreteGaussian}")

    @classmethod
    def rng_fn(cls, rng: np.random.Generator, sigma: Any, size: Any = None) -> NDArray[np.int64]:
        """Draw in Python; PyTensor's numba backend uses the same scalar function."""
        shape = np.shape(sigma) if size is None else tuple(size)
        flat = np.broadcast_to(np.asarray(sigma, dtype=np.float64), shape).ravel()
        return _draw_all(rng, flat).reshape(shape)


@numba_core_rv_funcify.register(DiscreteGaussianRV)
def _draw_in_numba(op: Any, node: Any) -> Any:
    return _draw_one


_discrete_gaussian_rv = DiscreteGaussianRV()


class DiscreteGaussian(GaussianCalibration, IntegerNoise, PostProcessing):
    r"""Released = statistic + k, P(k) proportional to ``exp(-k^2 / (2 sigma^2))``.

    With l2 sensitivity :math:`\Delta_2` it satisfies :math:`\rho`-zCDP with
    :math:`\rho = \Delta_2^2 / 2\sigma^2` (Canonne, Kamath & Steinke 2020, Theorem 4), the guarantee
    of the 2020 US Census. The statistic must be integer.

    Parameters
    ----------
    sigma : float or array, optional
        The density's parameter, one number or one a component; close to the standard deviation
        where it is above 0.5.
    epsilon, delta : float, optional
        Guarantee instead of sigma, with `sensitivity`: met by way of zCDP, which holds for
        statistics of any dimension and takes somewhat more noise than the continuous Gaussian.
    rho : float, optional
        zCDP guarantee instead of sigma, with `sensitivity`.
    sensitivity : float or array, optional
        l2 sensitivity of the whole statistic. An array gives every component a sensitivity and
        noise of its own, each calibrated to the guarantee by itself; their rhos then add up.

    Examples
    --------
    >>> import pymc_dp as pmdp
    >>> pmdp.DiscreteGaussian(rho=0.5, sensitivity=10)
    DiscreteGaussian(sigma=10.)
    >>> float(pmdp.DiscreteGaussian(sigma=1).logp(2, 0).eval().round(4))
    -2.9189
    """

    log_density = staticmethod(_log_density)
    log_tail = staticmethod(log_tail)
    compiled_interval = staticmethod(log_interval)
    opendp_maker = "make_gaussian"

    @staticmethod
    def unit_sigma(epsilon: float, delta: float) -> float:
        """Calibrate by way of zCDP."""
        return float(1 / np.sqrt(2 * zcdp_rho(epsilon, delta)))

    @cached_property
    def _log_normaliser(self) -> NDArray[np.float64]:
        return np.vectorize(log_normaliser, otypes=[float])(self.noise)

    @property
    def continuous_noise(self) -> NDArray[np.float64]:
        """Sigma of continuous Gaussian noise that costs no less: see `accounting/noise.py`."""
        if not np.all(self.noise > 2):
            raise PrivacyError(
                f"{self!r} has sigma of 2 or less, for which its cost in a budget is not known. "
                "Write a larger sigma, or pmdp.Gaussian(...).rounded(), which any budget can count."
            )
        return np.sqrt(self.noise**2 - 4)

    def logp(self, released: Any, statistic: Any) -> TensorVariable:
        """Symbolic log-probability of each component."""
        k = pt.as_tensor(released) - statistic
        log_p = -0.5 * (k / self.noise_of(statistic)) ** 2 - self._log_normaliser
        return pt.switch(pt.eq(k, pt.floor(k)), log_p, -np.inf)

    def draw(self, statistic: TensorVariable, rng: Any) -> tuple[Any, TensorVariable]:
        """Symbolic draw of a released value."""
        rng, k = _discrete_gaussian_rv(
            pt.as_tensor(self.noise_of(statistic)),
            size=statistic.shape,
            rng=rng,
            return_next_rng=True,
        )
        return rng, pt.round(statistic).astype("int64") + k

    def symbolic_log_tail(self, x: TensorVariable) -> TensorVariable:
        """Log of the sum of exp(-k^2 / (2 sigma^2)) from x on, normalised."""
        return symbolic_log_sum(x, self.noise) - self._log_normaliser

    def noisy(self, value: NDArray, noise: NDArray[np.float64]) -> NDArray[np.int64]:
        """Add noise drawn exactly (Canonne, Kamath & Steinke 2020, Algorithm 3)."""
        drawn = [discrete_gaussian(float(sigma)) for sigma in np.ravel(noise)]
        return value + np.array(drawn, dtype=np.int64).reshape(value.shape)
