"""Noise added to every component of a statistic, symmetric around zero."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import lru_cache
from typing import Any, ClassVar

import numba
import numpy as np
import pytensor.tensor as pt
from numpy.typing import ArrayLike, NDArray
from pymc.vartypes import discrete_types
from pytensor.tensor.variable import TensorVariable

from pymc_dp.mechanisms import opendp_noise
from pymc_dp.mechanisms.base import Mechanism, check_finite, check_shape, check_whole
from pymc_dp.numerics.arguments import numbers

__all__ = ["AdditiveNoise", "IntegerNoise"]

Bound = Any  # a symbolic bound, a number, or None where there is none


class AdditiveNoise(Mechanism):
    """Released = statistic + noise, independent over components.

    `noise` holds the noise parameter as float64, a scalar or one number a component of the
    statistic. A subclass gives `log_density` and the two forms of the noise's tail; whatever
    happened to the number afterwards follows from these.
    """

    #: name of the noise parameter, as users write it
    noise_name: ClassVar[str]
    #: step of the grid on which released values lie; 0 where they are continuous
    lattice: float = 0.0
    #: lowest and highest value that can be released
    span: tuple[float, float] = (-np.inf, np.inf)
    #: numba-compiled ``log_tail(x, noise)``: log P(noise >= x) for x >= 0
    log_tail: Any
    #: OpenDP's constructor of the same noise
    opendp_maker: ClassVar[str]

    @abstractmethod
    def symbolic_log_tail(self, x: TensorVariable) -> TensorVariable:
        """Symbolic log P(noise >= x) for x >= 0."""

    @property
    def compiled_interval(self) -> Callable[..., float]:
        """Numba-compiled ``log_interval(low, high, statistic, noise)``; see `log_interval`."""
        return _interval_function(self.log_tail, self.lattice > 0)

    def noise_of(self, statistic: Any) -> NDArray[np.float64]:
        """Noise parameter for a statistic, which is never made larger by it.

        Two released numbers of one component would be two releases, at the price of one.
        """
        shape = np.shape(statistic) if not hasattr(statistic, "type") else statistic.type.shape
        self._check_shape("the statistic", shape)
        return self.noise

    def _check_shape(self, what: str, shape: tuple[int | None, ...]) -> None:
        own = self.noise.shape
        fits = len(own) == len(shape) and all(
            n in (None, m) for n, m in zip(shape, own, strict=True)
        )
        if own and not fits:
            raise ValueError(
                f"{self!r} has noise of shape {own}, {what} has shape {shape}: give one number, or "
                "one for every component of the statistic, in its shape (np.broadcast_to). Noise "
                "does not make more numbers of a statistic."
            )

    def log_interval(self, low: Bound, high: Bound, statistic: TensorVariable) -> TensorVariable:
        """Symbolic log P(low <= released < high); None stands for no bound."""
        self.noise_of(statistic)
        if low is None and high is None:
            return pt.zeros_like(statistic, dtype="float64")
        whole = self.lattice > 0
        mirror = 1.0 if whole else 0.0

        def from_statistic(bound: Any) -> Any:
            return pt.ceil(bound - statistic) if whole else bound - statistic

        if low is None:
            return self._log_above(mirror - from_statistic(high), mirror)
        if high is None:
            return self._log_above(from_statistic(low), mirror)
        u, v = from_statistic(low), from_statistic(high)
        left = u + v < mirror  # the noise is symmetric: turn the interval to the right
        start, end = pt.switch(left, mirror - v, u), pt.switch(left, mirror - u, v)
        beyond = start > 0
        first, second = self._tail(pt.switch(beyond, start, mirror - start)), self._tail(end)
        outside = pt.switch(beyond, 0.5, pt.exp(first) + pt.exp(second))
        inside = pt.switch(beyond, _log_diff(first, second), pt.log1p(-outside))
        return pt.switch(u < v, inside, -np.inf)

    def _tail(self, x: TensorVariable) -> TensorVariable:
        # branches that are not taken must stay finite, or gradients would be NaN
        return self.symbolic_log_tail(pt.maximum(x, 0.0))

    def _log_above(self, x: TensorVariable, mirror: float) -> TensorVariable:
        """Log P(noise >= x) for any x."""
        tail = self._tail(pt.switch(x >= 0, x, mirror - x))
        return pt.switch(x >= 0, tail, pt.log1p(-pt.exp(tail)))

    def noised(self, value: NDArray) -> NDArray:
        """Draw the released value with operating-system entropy.

        Through OpenDP where it is installed (``pip install pymc_dp[opendp]``), whose samplers
        withstand attacks on floating-point numbers; otherwise integer noise is drawn exactly, and
        continuous noise with a warning.
        """
        noise = np.broadcast_to(self.noise_of(value), value.shape)
        if opendp_noise.is_installed():
            return opendp_noise.add_noise(self.opendp_maker, value, noise)
        return self.noisy(value, noise)

    @abstractmethod
    def noisy(self, value: NDArray, noise: NDArray[np.float64]) -> NDArray:
        """Add noise from operating-system entropy without OpenDP."""

    def checked_input(self, statistic: ArrayLike) -> NDArray:
        """Insist on finite numbers, in the shape of the noise."""
        value = numbers("The statistic", statistic)
        check_finite("the statistic", value)
        self.noise_of(value)
        return value

    def check_statistic(self, name: str, statistic: TensorVariable, shape: tuple[int, ...]) -> None:
        """Insist on one noise parameter, or one for every component."""
        self._check_shape(f"the statistic of {name!r}", shape)

    def __repr__(self) -> str:
        text = np.array2string(self.noise, threshold=6)
        return f"{type(self).__name__}({self.noise_name}={text})"


class IntegerNoise(AdditiveNoise):
    """Noise on the integers, added to an integer statistic."""

    dtype = "int64"
    lattice = 1.0

    def check_statistic(self, name: str, statistic: TensorVariable, shape: tuple[int, ...]) -> None:
        """Insist on an integer statistic."""
        super().check_statistic(name, statistic, shape)
        if statistic.dtype not in discrete_types:
            raise ValueError(
                f"The statistic of {name!r} has type {statistic.dtype}, and "
                f"{type(self).__name__} adds integer noise to integers. Sum integer records, "
                'write matrices of whole numbers, A.astype("int64") @ counts, or round each record '
                'first: pt.round(x).astype("int64").'
            )

    def checked_input(self, statistic: ArrayLike) -> NDArray:
        """Insist on whole numbers, in the shape of the noise."""
        value = check_whole("The statistic", statistic)
        self.noise_of(value)
        return value

    def checked_release(self, name: str, value: NDArray, shape: tuple[int, ...]) -> NDArray:
        """Insist on whole numbers."""
        check_shape(name, value, shape)
        check_finite(name, value)
        if np.any(value != np.round(value)):
            raise ValueError(
                f"The released value of {name!r} under {self!r} must be whole numbers, got "
                f"{value!r}. Where noise was real, write Gaussian or Laplace."
            )
        return check_whole(f"The released value of {name!r}", value)


def _log_diff(larger: TensorVariable, smaller: TensorVariable) -> TensorVariable:
    # the bound keeps the branch that is not taken away from log(0)
    return larger + pt.log1mexp(pt.minimum(smaller - larger, -1e-300))


@lru_cache(maxsize=256)  # not all that were ever made
def _interval_function(log_tail: Callable[..., float], whole: bool) -> Callable[..., float]:
    mirror = 1.0 if whole else 0.0

    @numba.njit
    def log_interval(low: float, high: float, statistic: float, noise: float) -> float:
        u, v = low - statistic, high - statistic
        if whole:
            u, v = np.ceil(u), np.ceil(v)
        if not u < v:
            return -np.inf
        if u > 0:
            larger, smaller = log_tail(u, noise), log_tail(v, noise)
        elif v <= mirror:
            larger, smaller = log_tail(mirror - v, noise), log_tail(mirror - u, noise)
        else:
            outside = np.exp(log_tail(v, noise)) + np.exp(log_tail(mirror - u, noise))
            return np.log1p(-outside)
        return larger + np.log(-np.expm1(smaller - larger))

    return log_interval
