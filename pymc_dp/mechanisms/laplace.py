"""Laplace noise: pure epsilon differential privacy under an l1 sensitivity."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import ArrayLike, NDArray
from pytensor.tensor.variable import TensorVariable

from pymc_dp.mechanisms.base import Guarantee, Mechanism, check_one_way, positive
from pymc_dp.mechanisms.entropy import system_uniform, warn_floating_point

__all__ = ["Laplace"]


@numba.njit
def _log_density(released: float, statistic: float, scale: float) -> float:
    return -abs(released - statistic) / scale


class Laplace(Mechanism):
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

    def release(self, statistic: ArrayLike) -> NDArray[np.float64]:
        """Release a confidential statistic with noise from operating-system entropy."""
        warn_floating_point(self)
        value = np.asarray(statistic, dtype=np.float64)
        centred = system_uniform(np.broadcast_shapes(value.shape, self.noise.shape)) - 0.5
        return value - self.noise * np.sign(centred) * np.log1p(-2 * np.abs(centred))

    def guarantee(self, sensitivity: ArrayLike | None = None) -> Guarantee:
        """Epsilon for an l1 sensitivity, or for one sensitivity a component."""
        delta_1 = self._sensitivity_or_declared(sensitivity)
        together = delta_1 / self.noise.min() if delta_1.ndim == 0 else np.sum(delta_1 / self.noise)
        epsilon = float(together)
        # pure epsilon-DP implies (epsilon^2 / 2)-zCDP: Bun & Steinke 2016, Proposition 1.4
        return Guarantee(epsilon, 0.0, epsilon**2 / 2)
