"""Laplace noise that never leaves an interval; here, folded back into it."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numba
import numpy as np
import pytensor.tensor as pt
from numpy.typing import ArrayLike, NDArray
from pymc.vartypes import discrete_types
from pytensor.tensor.variable import TensorVariable

from pymc_dp.mechanisms.base import check_finite, check_shape, check_whole
from pymc_dp.mechanisms.calibration import LaplaceCalibration
from pymc_dp.mechanisms.discrete_laplace import DiscreteLaplace
from pymc_dp.mechanisms.laplace import Laplace
from pymc_dp.numerics.arguments import number, numbers

__all__ = ["FoldedDiscreteLaplace", "FoldedLaplace", "WithinBounds"]


class WithinBounds(LaplaceCalibration):
    """Noise with a scale whose released values lie in ``[lower, upper]``."""

    def __init__(
        self,
        scale: ArrayLike | None = None,
        *,
        lower: float,
        upper: float,
        epsilon: ArrayLike | None = None,
        sensitivity: ArrayLike | None = None,
    ) -> None:
        self.lower, self.upper = number("lower", lower), number("upper", upper)
        if not self.lower < self.upper or not self._allowed(self.lower, self.upper):
            raise ValueError(
                f"{type(self).__name__} needs lower < upper{self._also}, got {lower!r} and "
                f"{upper!r}."
            )
        super().__init__(scale, epsilon=epsilon, sensitivity=sensitivity)

    _also = ""

    def _allowed(self, lower: float, upper: float) -> bool:
        return math.isfinite(lower) or math.isfinite(upper)

    def _noise_for(self, statistic: Any) -> NDArray[np.float64]:
        """Insist on one scale, or one for every component: noise makes no copies of a number."""
        shape = np.shape(statistic) if not hasattr(statistic, "type") else statistic.type.shape
        self._check_noise(shape)
        return self.noise

    def _check_noise(self, shape: tuple[int | None, ...]) -> None:
        own = self.noise.shape
        same = len(own) == len(shape) and all(
            b in (None, a) for a, b in zip(own, shape, strict=True)
        )
        if own and not same:
            raise ValueError(
                f"{self!r} has noise of shape {own}, the statistic has shape {shape}: give one "
                "number, or one for every component of the statistic, in its shape."
            )

    def check_statistic(self, name: str, statistic: TensorVariable, shape: tuple[int, ...]) -> None:
        """Insist on one noise parameter, or one for every component."""
        self._check_noise(shape)

    def checked_input(self, statistic: ArrayLike) -> NDArray:
        """Insist on finite numbers, in the shape of the noise."""
        value = numbers("The statistic", statistic)
        check_finite("the statistic", value)
        self._noise_for(value)
        return value

    def checked_release(self, name: str, value: NDArray, shape: tuple[int, ...]) -> NDArray:
        """Insist on values within the bounds."""
        value = super().checked_release(name, value, shape)
        if np.any(value < self.lower) or np.any(value > self.upper):
            raise ValueError(
                f"The released value of {name!r} lies outside [{self.lower:g}, {self.upper:g}], "
                f"which {self!r} cannot give."
            )
        self._check_noise(value.shape)
        return value

    def support_point(self, statistic: TensorVariable) -> TensorVariable:
        """Return the statistic, moved into the bounds."""
        return pt.clip(statistic, self.lower, self.upper).astype(self.dtype)

    def __repr__(self) -> str:
        scale = np.array2string(self.noise, threshold=6)
        bounds = f"lower={self.lower:g}, upper={self.upper:g}"
        return f"{type(self).__name__}(scale={scale}, {bounds})"


class _Folded(WithinBounds):
    """Noise that is reflected at the bounds until it lies between them."""

    whole = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.log_density = _folded_density(self.lower, self.upper, self.whole)

    @property
    @abstractmethod
    def _unfolded(self) -> Laplace | DiscreteLaplace:
        """The noise before it was folded."""

    def _fold(self, noisy: Any, module: Any) -> Any:
        """Reflect at the bounds."""
        if math.isinf(self.upper):
            return self.lower + module.abs(noisy - self.lower)
        if math.isinf(self.lower):
            return self.upper - module.abs(self.upper - noisy)
        width = self.upper - self.lower
        return self.lower + width - module.abs((noisy - self.lower) % (2 * width) - width)

    def logp(self, released: Any, statistic: Any) -> TensorVariable:
        """Symbolic log-density: of all noisy values that are folded onto the released one."""
        released, statistic = pt.as_tensor(released), pt.as_tensor(statistic)
        scale, period = self._noise_for(statistic), 2 * (self.upper - self.lower)
        edge = self.lower if math.isfinite(self.lower) else self.upper
        direct, mirrored = released - statistic, 2 * edge - released - statistic
        if math.isfinite(period):
            terms = [
                pt.logaddexp(-m / scale, (m - period) / scale)
                for m in (direct % period, mirrored % period)
            ]
            rest = np.log(-np.expm1(-period / scale))
        else:
            terms, rest = [-pt.abs(direct) / scale, -pt.abs(mirrored) / scale], np.zeros(())
        log_p = pt.logaddexp(*terms)
        if self.whole:  # a value at a bound is its own reflection
            at_bound = pt.or_(pt.eq(released, self.lower), pt.eq(released, self.upper))
            log_p = pt.switch(at_bound, terms[0], log_p)
            log_p = pt.switch(pt.eq(direct, pt.floor(direct)), log_p, -np.inf)
            log_unit = np.log(-np.expm1(-1 / scale)) - np.log1p(np.exp(-1 / scale))
        else:
            log_unit = -np.log(2 * scale)
        inside = pt.and_(released >= self.lower, released <= self.upper)
        return pt.switch(inside, log_p + log_unit - rest, -np.inf)

    def draw(self, statistic: TensorVariable, rng: Any) -> tuple[Any, TensorVariable]:
        """Symbolic draw of a released value."""
        rng, noisy = self._unfolded.draw(statistic, rng)
        return rng, self._fold(noisy, pt).astype(self.dtype)

    def noised(self, value: NDArray) -> NDArray:
        """Draw with operating-system entropy, then fold."""
        return self._fold(self._unfolded.noised(value), np).astype(self.dtype)


class FoldedLaplace(_Folded):
    r"""Laplace noise, then reflected at the bounds until it lies in ``[lower, upper]``.

    The released value is the noisy one, folded: :math:`r` stands for all noisy values
    :math:`r + 2k(u - l)` and :math:`2l - r + 2k(u - l)`. Folding costs no privacy: the guarantee is
    that of :class:`~pymc_dp.Laplace`.

    Parameters
    ----------
    scale : float or array, optional
        Scale of the noise before folding.
    lower, upper : float
        The bounds; one of them may be infinite.
    epsilon, sensitivity : float or array, optional
        Guarantee instead of the scale.

    Examples
    --------
    >>> import pymc_dp as pmdp
    >>> pmdp.FoldedLaplace(epsilon=0.5, sensitivity=1, lower=0, upper=10)
    FoldedLaplace(scale=2., lower=0, upper=10)
    """

    @property
    def _unfolded(self) -> Laplace:
        return Laplace(self.noise)


class FoldedDiscreteLaplace(_Folded):
    """Two-sided geometric noise on integers, then reflected at the bounds.

    As :class:`FoldedLaplace`; the bounds are whole or half numbers, and the guarantee is that of
    :class:`~pymc_dp.DiscreteLaplace`.

    Parameters
    ----------
    scale : float or array, optional
        Scale of the noise before folding.
    lower, upper : float
        The bounds; one of them may be infinite.
    epsilon, sensitivity : float or array, optional
        Guarantee instead of the scale.

    Examples
    --------
    >>> import pymc_dp as pmdp
    >>> noise = pmdp.FoldedDiscreteLaplace(scale=2, lower=0, upper=3)
    >>> float(np.exp(noise.logp([0, 1, 2, 3], 1).eval()).sum().round(9))
    1.0
    """

    dtype = "int64"
    whole = True
    _also = " and whole or half numbers as bounds"

    def _allowed(self, lower: float, upper: float) -> bool:
        known = [bound for bound in (lower, upper) if math.isfinite(bound)]
        return bool(known) and all(float(2 * bound).is_integer() for bound in known)

    @property
    def _unfolded(self) -> DiscreteLaplace:
        return DiscreteLaplace(self.noise)

    def check_statistic(self, name: str, statistic: TensorVariable, shape: tuple[int, ...]) -> None:
        """Insist on an integer statistic."""
        super().check_statistic(name, statistic, shape)
        if statistic.dtype not in discrete_types:
            raise ValueError(
                f"The statistic of {name!r} has type {statistic.dtype}, and "
                f"{type(self).__name__} adds integer noise to integers: sum integer records."
            )

    def checked_input(self, statistic: ArrayLike) -> NDArray:
        """Insist on whole numbers."""
        super().checked_input(statistic)
        return check_whole("The statistic", statistic)

    def checked_release(self, name: str, value: NDArray, shape: tuple[int, ...]) -> NDArray:
        """Insist on whole numbers within the bounds."""
        check_shape(name, value, shape)
        whole = check_whole(f"The released value of {name!r}", value)
        super().checked_release(name, value, shape)
        return whole


@lru_cache(maxsize=256)  # not all that were ever made
def _folded_density(lower: float, upper: float, whole: bool) -> Callable[..., float]:
    edge = lower if math.isfinite(lower) else upper
    period = 2 * (upper - lower)

    @numba.njit
    def log_density(released: float, statistic: float, scale: float) -> float:
        m = (released - statistic) % period
        log_p = np.logaddexp(-m / scale, (m - period) / scale)
        if whole and released in (lower, upper):
            return log_p
        m = (2 * edge - released - statistic) % period
        return np.logaddexp(log_p, np.logaddexp(-m / scale, (m - period) / scale))

    @numba.njit
    def log_density_one_side(released: float, statistic: float, scale: float) -> float:
        direct = -abs(released - statistic) / scale
        if whole and released == edge:
            return direct
        return np.logaddexp(direct, -abs(2 * edge - released - statistic) / scale)

    return log_density if math.isfinite(period) else log_density_one_side
