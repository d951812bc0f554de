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
from pymc_dp.mechanisms.gaussian import log_normal_tail

__all__ = ["DiscreteGaussian"]

#: from here on tails come from the Euler-Maclaurin series, below from a sum
_LARGE_SIGMA = 20.0


@numba.njit
def _log_density(released: float, statistic: float, sigma: float) -> float:
    z = (released - statistic) / sigma
    return -0.5 * z * z


@numba.njit
def log_normaliser(sigma: float) -> float:
    r"""Log of :math:`\sum_k \exp(-k^2 / 2\sigma^2)`, to machine precision.

    Both series are of the same theta function, which Poisson's summation formula turns into each
    other: the sum itself for small sigma,
    :math:`\sigma\sqrt{2\pi}\,(1 + 2\sum_{j \ge 1} \exp(-2\pi^2\sigma^2 j^2))` for large.
    """
    rate, factor = (0.5 / sigma**2, 0.0)
    if sigma > 0.4:  # where both exponents are near pi
        rate, factor = 2 * np.pi**2 * sigma**2, np.log(sigma) + 0.5 * np.log(2 * np.pi)
    rest = 0.0
    for j in range(1, 7):
        rest += np.exp(-rate * j * j)
    return factor + np.log1p(2 * rest)


@numba.njit
def _midpoint_corrections(m: Any, sigma: Any) -> Any:
    """Euler-Maclaurin terms of a sum over midpoints from m on, over the density at m.

    The integral's corrections are f'/24 - 7 f'''/5760 + 31 f'''''/967680 at m.
    """
    y, v = m / sigma**2, 1 / sigma**2
    third = y * y * y - 3 * y * v
    fifth = y**5 - 10 * y**3 * v + 15 * y * v * v
    return -y / 24 + 7 * third / 5760 - 31 * fifth / 967680


@numba.njit
def _log_tail(x: float, sigma: float) -> float:
    if x == np.inf:
        return -np.inf
    if sigma >= _LARGE_SIGMA:
        m = x - 0.5
        log_f = -0.5 * (m / sigma) ** 2
        area = (
            log_normal_tail(abs(m), sigma)
            if m >= 0
            else np.log1p(-np.exp(log_normal_tail(-m, sigma)))
        )
        area += np.log(sigma) + 0.5 * np.log(2 * np.pi)
        total = np.exp(area - log_f) + _midpoint_corrections(m, sigma)
        return log_f + np.log(total) - log_normaliser(sigma)
    total, term, j = 1.0, 1.0, 0.0
    while term > 1e-18 * total:
        j += 1.0
        term = np.exp(-j * (2 * x + j) / (2 * sigma**2))
        total += term
    return -0.5 * (x / sigma) ** 2 + np.log(total) - log_normaliser(sigma)


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


class DiscreteGaussian(GaussianCalibration, IntegerNoise):
    r"""Released = statistic + k, P(k) proportional to :math:`\exp(-k^2 / 2\sigma^2)`.

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
    log_tail = staticmethod(_log_tail)
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
        """Sum from x on for small sigma, Euler-Maclaurin series for large; as the compiled one."""
        sigma = self.noise
        j = np.arange(np.ceil(9 * min(float(sigma.max()), _LARGE_SIGMA)) + 2)
        exponents = -j * (2 * x[..., None] + j) / (2 * np.expand_dims(sigma, -1) ** 2)
        log_sum = -0.5 * (x / sigma) ** 2 + pt.log(pt.exp(exponents).sum(axis=-1))
        m = x - 0.5
        area = np.sqrt(np.pi / 2) * sigma * pt.erfcx(m / (np.sqrt(2) * sigma))
        series = -0.5 * (m / sigma) ** 2 + pt.log(area + _midpoint_corrections.py_func(m, sigma))
        return pt.switch(sigma < _LARGE_SIGMA, log_sum, series) - self._log_normaliser

    def noisy(self, value: NDArray, noise: NDArray[np.float64]) -> NDArray[np.int64]:
        """Add noise drawn exactly (Canonne, Kamath & Steinke 2020, Algorithm 3)."""
        drawn = [discrete_gaussian(float(sigma)) for sigma in np.ravel(noise)]
        return value + np.array(drawn, dtype=np.int64).reshape(value.shape)
