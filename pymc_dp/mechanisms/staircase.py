"""Staircase noise: pure epsilon privacy of single numbers, with the least expected error."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
import pytensor.tensor as pt
from numpy.typing import ArrayLike, NDArray
from pytensor.tensor.variable import TensorVariable

from pymc_dp.mechanisms.base import (
    Guarantee,
    check_same_shape,
    one_positive,
    positive,
    warn_floating_point,
)
from pymc_dp.mechanisms.postprocess import PostProcessing
from pymc_dp.numerics.arguments import number
from pymc_dp.numerics.entropy import system_uniform

__all__ = ["Staircase"]


class Staircase(PostProcessing):
    r"""Released = statistic + noise whose density falls in steps.

    With :math:`\Delta` = `sensitivity`, the density of noise x in
    :math:`[k\Delta, (k + 1)\Delta)` is :math:`a e^{-k\epsilon}` in the first part
    :math:`\gamma` of that interval and :math:`a e^{-(k + 1)\epsilon}` in the rest (Geng, Kairouz,
    Oh & Viswanath 2015, section II). Moved by up to :math:`\Delta` it changes by at most one step,
    so that one number is :math:`\epsilon`-private. A small change can cost a whole step: numbers
    that are released together cost an epsilon each.

    Parameters
    ----------
    epsilon : float
        Height of a step, in logarithms: the guarantee for one number.
    sensitivity : float or array
        Most that one record can change the number, or each of them.
    gamma : float, optional
        Where the steps are, in (0, 1); by default where the expected absolute error is least,
        :math:`1 / (1 + e^{\epsilon/2})`.

    Examples
    --------
    >>> import pymc_dp as pmdp
    >>> noise = pmdp.Staircase(epsilon=1, sensitivity=2)
    >>> noise
    Staircase(epsilon=1, sensitivity=2., gamma=0.377541)
    >>> noise.guarantee().epsilon
    1.0
    """

    number_by_number = True

    def __init__(
        self, *, epsilon: float, sensitivity: ArrayLike, gamma: float | None = None
    ) -> None:
        self.epsilon = one_positive("epsilon", epsilon)
        self.noise = self.sensitivity = positive("sensitivity", sensitivity)
        least = 1 / (1 + math.exp(self.epsilon / 2))
        self.gamma = least if gamma is None else number("gamma", gamma)
        if not 0 < self.gamma < 1:
            raise ValueError(f"gamma must lie in (0, 1), got {gamma!r}.")
        self.log_density, self.log_tail = _compiled(self.epsilon, self.gamma, self._height)

    @property
    def _height(self) -> float:
        """Density at zero, times the sensitivity."""
        fall = math.exp(-self.epsilon)
        return (1 - fall) / 2 / (self.gamma + fall * (1 - self.gamma))

    def guarantee(self, sensitivity: ArrayLike | None = None) -> Guarantee:
        """Epsilon of one number, or of all numbers with one sensitivity each."""
        change = self._sensitivity_or_declared(sensitivity)
        check_same_shape("sensitivity", change, "the noise", self.noise)
        epsilon = self.epsilon * float(np.sum(np.ceil(change / self.noise * (1 - 1e-12))))
        return Guarantee(epsilon, 0.0, epsilon**2 / 2)

    def check_statistic(self, name: str, statistic: TensorVariable, shape: tuple[int, ...]) -> None:
        """Insist on one sensitivity for every number: their guarantees add up."""
        if self.noise.ndim == 0 and math.prod(shape) != 1:
            raise ValueError(
                f"The statistic of {name!r} has shape {shape}, and {self!r} protects one number: "
                "write sensitivity= for every component, in the statistic's shape."
            )
        super().check_statistic(name, statistic, shape)

    def logp(self, released: Any, statistic: Any) -> TensorVariable:
        """Symbolic log-density of each component."""
        width = self.noise_of(statistic)
        whole, step = _steps(pt.abs(pt.as_tensor(released) - statistic) / width, self.gamma, pt)
        return np.log(self._height / width) - self.epsilon * (whole + step)

    def draw(self, statistic: TensorVariable, rng: Any) -> tuple[Any, TensorVariable]:
        """Symbolic draw of a released value."""
        shape = (4, *(statistic.shape[i] for i in range(statistic.type.ndim)))
        rng, uniform = pt.random.uniform(size=shape, rng=rng, return_next_rng=True)
        return rng, statistic + self.noise_of(statistic) * self._drawn(uniform, pt)

    def symbolic_log_tail(self, x: TensorVariable) -> TensorVariable:
        """Log of what is left of half the mass beyond x."""
        x = x / self.noise
        whole, part = pt.floor(x), x - pt.floor(x)
        first, rest = pt.minimum(part, self.gamma), pt.maximum(part - self.gamma, 0.0)
        taken = self._height * (first + math.exp(-self.epsilon) * rest)
        return pt.log(0.5 - taken) - self.epsilon * whole

    def noised(self, value: NDArray) -> NDArray:
        """Draw the released value with operating-system entropy."""
        return self.noisy(value, np.broadcast_to(self.noise_of(value), value.shape))

    def noisy(self, value: NDArray, noise: NDArray[np.float64]) -> NDArray[np.float64]:
        """Add noise, with a warning about floating-point numbers."""
        warn_floating_point(self)
        return value + noise * self._drawn(system_uniform((4, *noise.shape)), np)

    def _drawn(self, uniform: Any, module: Any) -> Any:
        """Noise of sensitivity 1 from four uniforms: Geng et al. (2015), Algorithm 1."""
        fall = math.exp(-self.epsilon)
        sign = module.where(uniform[0] < 0.5, -1.0, 1.0)
        whole = module.floor(-module.log(uniform[1]) / self.epsilon)
        first = uniform[2] < self.gamma / (self.gamma + (1 - self.gamma) * fall)
        inside = self.gamma * uniform[3]
        beyond = self.gamma + (1 - self.gamma) * uniform[3]
        return sign * (whole + module.where(first, inside, beyond))

    def __repr__(self) -> str:
        width = np.array2string(self.noise, threshold=6)
        return f"Staircase(epsilon={self.epsilon:g}, sensitivity={width}, gamma={self.gamma:g})"


def _steps(x: Any, gamma: float, module: Any) -> tuple[Any, Any]:
    whole = module.floor(x)
    return whole, x - whole >= gamma


def _compiled(epsilon: float, gamma: float, height: float) -> tuple[Any, Any]:
    """Density and tail of one component, numba-compiled."""

    @numba.njit
    def log_density(released: float, statistic: float, width: float) -> float:
        x = abs(released - statistic) / width
        whole = np.floor(x)
        return -epsilon * (whole + 1.0 if x - whole >= gamma else whole)

    @numba.njit
    def log_tail(x: float, width: float) -> float:
        x = x / width
        whole = np.floor(x)
        part = x - whole
        taken = height * (min(part, gamma) + np.exp(-epsilon) * max(part - gamma, 0.0))
        return np.log(0.5 - taken) - epsilon * whole

    return log_density, log_tail
