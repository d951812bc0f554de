"""Laplace noise drawn from an interval alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numba
import numpy as np
import pytensor.tensor as pt
import scipy
from numpy.typing import ArrayLike, NDArray
from pytensor.tensor.variable import TensorVariable

from pymc_dp.mechanisms.base import Guarantee, one_positive, warn_floating_point
from pymc_dp.mechanisms.within_bounds import WithinBounds
from pymc_dp.numerics.entropy import system_uniform

__all__ = ["BoundedLaplace", "bounded_scale"]

_ROUNDED = 4e-9  # of an epsilon, which is a difference of numbers that may be close


class BoundedLaplace(WithinBounds):
    r"""Laplace noise drawn from ``[lower, upper]`` alone.

    The density of r is proportional to :math:`e^{-|r - s|/b}` within the bounds and zero outside
    (Holohan, Antonatos, Braghin & Mac Aonghusa 2020); the statistic s is moved into the bounds
    first. The normaliser depends on s, so that more noise is needed for an epsilon than without
    bounds: :math:`\epsilon = \Delta/b + \log \Delta C(b)` with :math:`\Delta C(b) =
    (2 - e^{-\Delta/b} - e^{-(d - \Delta)/b}) / (1 - e^{-d/b})` and d the bounds' distance.
    That is the price of one number: numbers that one record changes together cost one each.

    Parameters
    ----------
    scale : float or array, optional
        The density's parameter b.
    lower, upper : float
        The bounds, finite.
    epsilon, sensitivity : float, optional
        Guarantee instead of the scale.

    Examples
    --------
    >>> import pymc_dp as pmdp
    >>> pmdp.BoundedLaplace(epsilon=1, sensitivity=1, lower=0, upper=10)
    BoundedLaplace(scale=1.61156011, lower=0, upper=10)
    """

    def __init__(
        self,
        scale: ArrayLike | None = None,
        *,
        lower: float,
        upper: float,
        epsilon: float | None = None,
        sensitivity: float | None = None,
    ) -> None:
        super().__init__(scale, lower=lower, upper=upper, epsilon=epsilon, sensitivity=sensitivity)
        if scale is None:
            width = one_positive("sensitivity", sensitivity)
            wanted = one_positive("epsilon", epsilon)
            self.noise = np.asarray(bounded_scale(wanted, width, self.upper - self.lower))
        self.log_density = _bounded_density(self.lower, self.upper)

    _also = ", both finite"
    number_by_number = True

    def _allowed(self, lower: float, upper: float) -> bool:
        return math.isfinite(lower) and math.isfinite(upper)

    def check_statistic(self, name: str, statistic: TensorVariable, shape: tuple[int, ...]) -> None:
        """Insist on one scale for every number: their guarantees add up."""
        if self.noise.ndim == 0 and math.prod(shape) != 1:
            raise ValueError(
                f"The statistic of {name!r} has shape {shape}, and {self!r} protects one number: "
                "write scale= for every component, np.full(shape, scale)."
            )
        super().check_statistic(name, statistic, shape)

    def logp(self, released: Any, statistic: Any) -> TensorVariable:
        """Symbolic log-density, normalised within the bounds."""
        released, scale = pt.as_tensor(released), self._noise_for(pt.as_tensor(statistic))
        centre = pt.clip(statistic, self.lower, self.upper)
        inside = -pt.expm1((self.lower - centre) / scale) - pt.expm1((centre - self.upper) / scale)
        log_p = -pt.abs(released - centre) / scale - np.log(scale) - pt.log(inside)
        possible = pt.and_(released >= self.lower, released <= self.upper)
        return pt.switch(possible, log_p, -np.inf)

    def draw(self, statistic: TensorVariable, rng: Any) -> tuple[Any, TensorVariable]:
        """Symbolic draw of a released value."""
        shape = [statistic.shape[i] for i in range(statistic.type.ndim)]
        rng, uniform = pt.random.uniform(size=shape, rng=rng, return_next_rng=True)
        return rng, self._drawn(statistic, self._noise_for(statistic), uniform, pt)

    def noised(self, value: NDArray) -> NDArray[np.float64]:
        """Draw with operating-system entropy, with a warning about floating-point numbers."""
        warn_floating_point(self)
        return self._drawn(value, self._noise_for(value), system_uniform(value.shape), np)

    def _drawn(self, statistic: Any, scale: Any, uniform: Any, module: Any) -> Any:
        """Invert the distribution function on either side of the statistic.

        In what lies between the statistic and the bounds, however small: differences from one would
        be lost where the scale is large, and the statistic itself released.
        """
        centre = module.clip(statistic, self.lower, self.upper)
        below = -module.expm1((self.lower - centre) / scale)
        above = -module.expm1((centre - self.upper) / scale)
        place = uniform * (below + above) - below  # negative below the statistic
        left = scale * module.log1p(module.minimum(place, 0.0))
        right = -scale * module.log1p(-module.maximum(place, 0.0))
        drawn = centre + module.where(place < 0, left, right)
        return module.clip(drawn, self.lower, self.upper)

    def guarantee(self, sensitivity: ArrayLike | None = None) -> Guarantee:
        """Epsilon of one number; of several, one sensitivity each, the sum."""
        change = np.broadcast_to(self._sensitivity_or_declared(sensitivity), self.noise.shape)
        diameter = self.upper - self.lower
        each = [
            _bounded_epsilon(float(b), min(float(c), diameter), diameter)
            for b, c in zip(self.noise.ravel(), change.ravel(), strict=True)
        ]
        return Guarantee(sum(each), 0.0, sum(each) ** 2 / 2)


def bounded_scale(epsilon: float, sensitivity: float, diameter: float) -> float:
    """Smallest scale of a bounded Laplace mechanism that is epsilon-private.

    diffprivlib asks for ``epsilon - log(1 - delta)`` where there is a delta.
    """
    change = min(sensitivity, diameter)

    def missed(log_scale: float) -> float:
        return _bounded_epsilon(math.exp(log_scale), change, diameter) - epsilon

    start = math.log(change / epsilon) - 1e-3
    return math.exp(
        scipy.optimize.brentq(missed, start, start + math.log(4.0), xtol=1e-15, rtol=1e-15)
    )


def _bounded_epsilon(scale: float, change: float, diameter: float) -> float:
    ends = -math.expm1(-change / scale) - math.expm1(-(diameter - change) / scale)
    shifted = change / scale + math.log(ends / -math.expm1(-diameter / scale))
    return max(shifted, change / scale) * (1 + _ROUNDED)


@lru_cache(maxsize=256)  # not all that were ever made
def _bounded_density(lower: float, upper: float) -> Callable[..., float]:
    @numba.njit
    def log_density(released: float, statistic: float, scale: float) -> float:
        centre = min(max(statistic, lower), upper)
        inside = -np.expm1((lower - centre) / scale) - np.expm1((centre - upper) / scale)
        return -abs(released - centre) / scale - np.log(inside)

    return log_density
