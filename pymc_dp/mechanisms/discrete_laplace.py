"""Discrete Laplace (two-sided geometric) noise: pure epsilon privacy on integers."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.tensor.variable import TensorVariable

from pymc_dp.mechanisms.additive import IntegerNoise
from pymc_dp.mechanisms.calibration import LaplaceCalibration
from pymc_dp.mechanisms.exact_sampling import discrete_laplace
from pymc_dp.mechanisms.postprocess import PostProcessing

__all__ = ["DiscreteLaplace"]


@numba.njit
def _log_density(released: float, statistic: float, scale: float) -> float:
    return -abs(released - statistic) / scale


@numba.njit
def _log_tail(x: float, scale: float) -> float:
    return -x / scale - np.log1p(np.exp(-1 / scale))


class DiscreteLaplace(LaplaceCalibration, IntegerNoise, PostProcessing):
    r"""Two-sided geometric: released = statistic + k, P(k) proportional to ``exp(-|k|/scale)``.

    The normaliser is :math:`\tanh(1 / (2\,\text{scale}))`. Satisfies :math:`\epsilon`-differential
    privacy with :math:`\epsilon = \Delta_1 / \text{scale}` (Ghosh, Roughgarden & Sundararajan
    2009). The statistic must be integer.

    Parameters
    ----------
    scale : float or array, optional
        Scale of the noise, one number or one a component. Where a source gives the ratio
        ``alpha = exp(-epsilon / sensitivity)`` instead, write ``scale=-1 / np.log(alpha)``.
    epsilon : float or array, optional
        Guarantee instead of the scale, with `sensitivity`.
    sensitivity : float or array, optional
        l1 sensitivity of the whole statistic. An array gives every component a sensitivity, an
        epsilon and noise of its own; the epsilons then add up.

    Examples
    --------
    >>> import pymc_dp as pmdp
    >>> pmdp.DiscreteLaplace(epsilon=0.5, sensitivity=1)
    DiscreteLaplace(scale=2.)
    >>> float(pmdp.DiscreteLaplace(scale=2).logp(5, 5).eval().round(4))  # log tanh(1/4)
    -1.4068
    """

    log_density = staticmethod(_log_density)
    log_tail = staticmethod(_log_tail)
    opendp_maker = "make_laplace"

    def logp(self, released: Any, statistic: Any) -> TensorVariable:
        """Symbolic log-probability of each component."""
        k = pt.abs(pt.as_tensor(released) - statistic)
        # log tanh(1/2s) = log(1 - q) - log(1 + q), q = exp(-1/s)
        noise = self.noise_of(statistic)
        log_normaliser = np.log(-np.expm1(-1 / noise)) - np.log1p(np.exp(-1 / noise))
        return pt.switch(pt.eq(k, pt.floor(k)), log_normaliser - k / noise, -np.inf)

    def draw(self, statistic: TensorVariable, rng: Any) -> tuple[Any, TensorVariable]:
        """Symbolic draw: the difference of two geometric numbers."""
        p = pt.as_tensor(-np.expm1(-1 / self.noise_of(statistic)))
        size = statistic.shape
        rng, first = pt.random.geometric(p, size=size, rng=rng, return_next_rng=True)
        rng, second = pt.random.geometric(p, size=size, rng=rng, return_next_rng=True)
        return rng, pt.round(statistic).astype("int64") + first - second

    def symbolic_log_tail(self, x: TensorVariable) -> TensorVariable:
        """Log of a geometric series."""
        return -x / self.noise - np.log1p(np.exp(-1 / self.noise))

    def noisy(self, value: NDArray, noise: NDArray[np.float64]) -> NDArray[np.int64]:
        """Add noise drawn exactly (Canonne, Kamath & Steinke 2020, Algorithm 2)."""
        drawn = [discrete_laplace(float(scale)) for scale in np.ravel(noise)]
        return value + np.array(drawn, dtype=np.int64).reshape(value.shape)
