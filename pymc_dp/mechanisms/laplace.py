"""Laplace noise: pure epsilon differential privacy under an l1 sensitivity."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import ArrayLike, NDArray
from pytensor.tensor.variable import TensorVariable

from pymc_dp.entropy import system_uniform
from pymc_dp.mechanisms.additive import AdditiveNoise
from pymc_dp.mechanisms.base import Guarantee, check_one_way, positive, warn_floating_point

__all__ = ["Laplace"]


@numba.njit
def _log_density(released: float, statistic: float, scale: float) -> float:
    return -abs(released - statistic) / scale


@numba.njit
def _log_tail(x: float, scale: float) -> float:
    return -x / scale - np.log(2.0)


class Laplace(AdditiveNoise):
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

    noise_name = "scale"
    norm = 1
    log_density = staticmethod(_log_density)
    log_tail = staticmethod(_log_tail)
    opendp_maker = "make_laplace"

    def __init__(
        self,
        scale: ArrayLike | None = None,
        *,
        epsilon: ArrayLike | None = None,
        sensitivity: ArrayLike | None = None,
    ) -> None:
        check_one_way("Laplace", "scale", scale, sensitivity, {"epsilon=": epsilon is not None})
        if scale is not None:
            self.noise = positive("scale", scale)
        else:
            self.sensitivity = positive("sensitivity", sensitivity)  # type: ignore[arg-type]
            self.noise = np.asarray(self.sensitivity / positive("epsilon", epsilon))  # type: ignore[arg-type]

    def logp(self, released: Any, statistic: Any) -> TensorVariable:
        """Symbolic log-density of each component."""
        return pm.logp(pm.Laplace.dist(statistic, self.noise), released)

    def draw(self, statistic: TensorVariable, rng: Any) -> tuple[Any, TensorVariable]:
        """Symbolic draw of a released value."""
        return pt.random.laplace(statistic, self.noise, rng=rng, return_next_rng=True)

    def symbolic_log_tail(self, x: TensorVariable) -> TensorVariable:
        """Log of half an exponential's tail."""
        return -x / self.noise - np.log(2)

    def noisy(self, value: NDArray, noise: NDArray[np.float64]) -> NDArray[np.float64]:
        """Add noise by inversion, with a warning about floating-point numbers."""
        warn_floating_point(self)
        centred = system_uniform(noise.shape) - 0.5
        return value - noise * np.sign(centred) * np.log1p(-2 * np.abs(centred))

    def guarantee(self, sensitivity: ArrayLike | None = None) -> Guarantee:
        """Epsilon for an l1 sensitivity, or for one sensitivity a component."""
        delta_1 = self._sensitivity_or_declared(sensitivity)
        together = delta_1 / self.noise.min() if delta_1.ndim == 0 else np.sum(delta_1 / self.noise)
        epsilon = float(together)
        # pure epsilon-DP implies (epsilon^2 / 2)-zCDP: Bun & Steinke 2016, Proposition 1.4
        return Guarantee(epsilon, 0.0, epsilon**2 / 2)
