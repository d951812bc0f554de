"""Laplace noise: pure epsilon differential privacy under an l1 sensitivity."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.tensor.variable import TensorVariable

from pymc_dp.mechanisms.base import warn_floating_point
from pymc_dp.mechanisms.calibration import LaplaceCalibration
from pymc_dp.mechanisms.postprocess import PostProcessing
from pymc_dp.numerics.entropy import system_uniform

__all__ = ["Laplace"]


@numba.njit
def _log_density(released: float, statistic: float, scale: float) -> float:
    return -abs(released - statistic) / scale


@numba.njit
def _log_tail(x: float, scale: float) -> float:
    return -x / scale - np.log(2.0)


class Laplace(LaplaceCalibration, PostProcessing):
    r"""The Laplace mechanism: released = statistic + Laplace(0, scale).

    Satisfies :math:`\epsilon`-differential privacy with
    :math:`\epsilon = \Delta_1 / \text{scale}`, :math:`\Delta_1` the statistic's l1 sensitivity
    (Dwork, McSherry, Nissim & Smith 2006).

    Parameters
    ----------
    scale : float or array, optional
        Scale of the noise, one number or one a component.
    epsilon : float or array, optional
        Guarantee instead of the scale, with `sensitivity`.
    sensitivity : float or array, optional
        l1 sensitivity of the whole statistic. An array gives every component a sensitivity, an
        epsilon and noise of its own; the epsilons then add up.

    Examples
    --------
    >>> import pymc_dp as pmdp
    >>> pmdp.Laplace(epsilon=0.5, sensitivity=10)
    Laplace(scale=20.)
    >>> pmdp.Laplace(scale=20).guarantee(sensitivity=10).epsilon
    0.5
    """

    log_density = staticmethod(_log_density)
    log_tail = staticmethod(_log_tail)
    opendp_maker = "make_laplace"

    def logp(self, released: Any, statistic: Any) -> TensorVariable:
        """Symbolic log-density of each component."""
        return pm.logp(pm.Laplace.dist(statistic, self.noise_of(statistic)), released)

    def draw(self, statistic: TensorVariable, rng: Any) -> tuple[Any, TensorVariable]:
        """Symbolic draw of a released value."""
        noise = self.noise_of(statistic)
        return pt.random.laplace(statistic, noise, rng=rng, return_next_rng=True)

    def symbolic_log_tail(self, x: TensorVariable) -> TensorVariable:
        """Log of half an exponential's tail."""
        return -x / self.noise - np.log(2)

    def noisy(self, value: NDArray, noise: NDArray[np.float64]) -> NDArray[np.float64]:
        """Add noise by inversion, with a warning about floating-point numbers."""
        warn_floating_point(self)
        centred = system_uniform(noise.shape) - 0.5
        return value - noise * np.sign(centred) * np.log1p(-2 * np.abs(centred))
