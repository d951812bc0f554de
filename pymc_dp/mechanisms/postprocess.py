"""What happened to a number after the noise: clamping, rounding, dropping small cells.

Each is a mechanism around another one. Post-processing costs no privacy, so that guarantees are the
inner mechanism's; but it changes the likelihood: a value at a clamp stands for all noisy values
beyond it, a rounded one for an interval, a dropped cell for everything below the threshold.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import ArrayLike, NDArray
from pytensor.tensor.variable import TensorVariable

from pymc_dp.mechanisms.additive import AdditiveNoise, Bound
from pymc_dp.mechanisms.around import Around
from pymc_dp.mechanisms.base import check_finite, check_shape, positive
from pymc_dp.mechanisms.postprocess_compiled import (
    clamped_density,
    clamped_first_density,
    clamped_first_interval,
    clamped_interval,
    compiled_edge,
    rounded_density,
    rounded_interval,
    thresholded_density,
)
from pymc_dp.numerics.arguments import number, numbers

__all__ = ["Clamped", "PostProcessing", "Rounded", "Thresholded"]


#: a dropped cell inside a model: PyMC would impute NaN, and everything below the threshold means
#: dropped
_DROPPED = -(2.0**60)
#: ways to round: to the nearest multiple, down, up, towards zero
_ROUNDINGS = ("nearest", "floor", "ceil", "trunc")
#: part of a step that no continuous noise falls into, but a value at a clamp may lie below
_JUST_ABOVE = 2.0**-40


class PostProcessing(AdditiveNoise):
    """What may be said to have happened to a noisy value before it was released."""

    def clamped(
        self,
        lower: float | None = None,
        upper: float | None = None,
        *,
        statistic_too: bool = False,
    ) -> Clamped:
        """Say that the noisy value was then moved into ``[lower, upper]``.

        With `statistic_too` the statistic itself was moved into these bounds as well, before the
        noise.

        Examples
        --------
        >>> import pymc_dp as pmdp
        >>> pmdp.Laplace(scale=2).clamped(lower=0)
        Laplace(scale=2.).clamped(lower=0)
        """
        return Clamped(self, lower, upper, statistic_too)

    def rounded(self, step: float = 1.0, *, how: str = "nearest") -> Rounded:
        """Say that the noisy value was then rounded to a multiple of `step`.

        `how` says which: ``"nearest"`` with halves upwards, ``"floor"`` (down), ``"ceil"`` (up) or
        ``"trunc"``, towards zero, as ``int(value)`` does.

        Examples
        --------
        >>> import pymc_dp as pmdp
        >>> pmdp.Gaussian(sigma=3).rounded(10)
        Gaussian(sigma=3.).rounded(10)
        >>> pmdp.Laplace(scale=2).rounded(how="trunc")
        Laplace(scale=2.).rounded(1, how='trunc')
        """
        return Rounded(self, step, how)

    def thresholded(self, threshold: float, *, dropped: float | None = None) -> Thresholded:
        """Say that values below `threshold` were then dropped, and how a dropped one is written.

        A dropped cell is information: the noisy value was below the threshold. Write `dropped` in
        the release where a cell is missing: ``np.nan``, or a number below the threshold.

        Examples
        --------
        >>> import pymc_dp as pmdp
        >>> pmdp.DiscreteGaussian(sigma=10).thresholded(90, dropped=0)
        DiscreteGaussian(sigma=10.).thresholded(90, dropped=0)
        """
        return Thresholded(self, threshold, dropped)


class PostProcessed(Around, PostProcessing):
    """A mechanism whose noisy value was changed before it was released."""


class Clamped(PostProcessed):
    """Noisy values moved into ``[lower, upper]``; made by ``mechanism.clamped(lower, upper)``."""

    def __init__(
        self,
        inner: AdditiveNoise,
        lower: float | None,
        upper: float | None,
        statistic_too: bool = False,
    ) -> None:
        super().__init__(inner)
        if lower is None and upper is None:
            raise ValueError("clamped needs a bound. Write .clamped(lower=0), for one.")
        self.lower = None if lower is None else self._on_lattice("lower", number("lower", lower))
        self.upper = None if upper is None else self._on_lattice("upper", number("upper", upper))
        self.statistic_too = bool(statistic_too)
        self._low = -math.inf if self.lower is None else self.lower
        self._high = math.inf if self.upper is None else self.upper
        if not self._low < self._high:
            raise ValueError(f"clamped needs lower < upper, got {lower!r} and {upper!r}.")
        density, interval = inner.log_density, inner.compiled_interval
        if self.statistic_too:
            density = clamped_first_density(density, self._low, self._high)
            interval = clamped_first_interval(interval, self._low, self._high)
        self._inner_interval = interval
        half = inner.lattice / 2
        self.log_density = clamped_density(density, interval, self._low, self._high, half)

    @property
    def compiled_interval(self) -> Callable[..., float]:
        """Numba-compiled ``log_interval``."""
        return clamped_interval(self._inner_interval, self._low, self._high)

    def _before(self, statistic: Any, module: Any) -> Any:
        """Return what the noise was added to."""
        return module.clip(statistic, self._low, self._high) if self.statistic_too else statistic

    def checked_input(self, statistic: ArrayLike) -> NDArray:
        """Clamp the statistic where that was done."""
        value = self.inner.checked_input(statistic)
        return self.inner.checked_input(self._before(value, np))

    def draw(self, statistic: TensorVariable, rng: Any) -> tuple[Any, TensorVariable]:
        """Symbolic draw of a released value."""
        return super().draw(self._before(statistic, pt), rng)

    def logp(self, released: Any, statistic: Any) -> TensorVariable:
        """Symbolic log-density inside the bounds, log-probability at them."""
        released, statistic = pt.as_tensor(released), self._before(pt.as_tensor(statistic), pt)
        half = self.inner.lattice / 2
        log_p = self.inner.logp(released, statistic)
        if self.lower is not None:
            at_bound = self.inner.log_interval(None, self.lower + half, statistic)
            log_p = pt.switch(pt.eq(released, self.lower), at_bound, log_p)
        if self.upper is not None:
            at_bound = self.inner.log_interval(self.upper, None, statistic)
            log_p = pt.switch(pt.eq(released, self.upper), at_bound, log_p)
        outside = pt.or_(released < self._low, released > self._high)
        return pt.switch(outside, -np.inf, log_p)

    def log_interval(self, low: Bound, high: Bound, statistic: TensorVariable) -> TensorVariable:
        """Symbolic log P(low <= released < high): a bound outside the clamp is none."""
        inner, nothing = self.inner, -np.inf
        statistic = self._before(statistic, pt)
        low, high = (None if bound is None else pt.as_tensor(bound) for bound in (low, high))
        log_p = inner.log_interval(low, high, statistic)
        if low is not None:
            no_low = low <= self._low
            log_p = pt.switch(no_low, inner.log_interval(None, high, statistic), log_p)
            log_p = pt.switch(low > self._high, nothing, log_p)
        if high is not None:
            no_high = high > self._high
            log_p = pt.switch(no_high, inner.log_interval(low, None, statistic), log_p)
            log_p = pt.switch(high <= self._low, nothing, log_p)
        if low is not None and high is not None:
            log_p = pt.switch(pt.and_(no_low, no_high), 0.0, log_p)
        return log_p

    @property
    def span(self) -> tuple[float, float]:  # type: ignore[override]
        """The bounds, as far as the inner mechanism reaches them."""
        low, high = np.clip(self.inner.span, self._low, self._high)
        return float(low), float(high)

    def change(self, noisy: Any, module: Any) -> Any:
        """Clamp."""
        return module.clip(noisy, self._low, self._high).astype(self.dtype)

    def checked_release(self, name: str, value: NDArray, shape: tuple[int, ...]) -> NDArray:
        """Insist on values within the bounds."""
        self._check_span(name, value)
        return self.inner.checked_release(name, value, shape)

    def __repr__(self) -> str:
        bounds = {"lower": self.lower, "upper": self.upper}
        text = ", ".join(f"{name}={b:g}" for name, b in bounds.items() if b is not None)
        text += ", statistic_too=True" if self.statistic_too else ""
        return f"{self.inner!r}.clamped({text})"


class Rounded(PostProcessed):
    """Noisy values moved to multiples of a step; made by ``mechanism.rounded(step, how=...)``.

    The multiple ``k * step`` stands for the noisy values from ``edge(k)``, included, to
    ``edge(k + 1)``: see :func:`_edge`.
    """

    def __init__(self, inner: AdditiveNoise, step: float, how: str = "nearest") -> None:
        super().__init__(inner)
        if how not in _ROUNDINGS:
            raise ValueError(f"how={how!r} is not a way to round: write one of {list(_ROUNDINGS)}.")
        self.how = how
        self.step = float(positive("step", step))
        if inner.lattice and self.step != inner.lattice * round(self.step / inner.lattice):
            raise ValueError(
                f"step={step!r} is not a multiple of {inner.lattice:g}, the step of {inner!r}."
            )
        self.lattice = self.step
        # noisy values above a multiple of the step begin here
        self._above = inner.lattice / 2 if inner.lattice else self.step * _JUST_ABOVE
        edge = compiled_edge(self.step, self._above, how)
        self.log_density = rounded_density(inner.compiled_interval, edge, self.step)

    @property
    def compiled_interval(self) -> Callable[..., float]:
        """Numba-compiled ``log_interval``."""
        edge = compiled_edge(self.step, self._above, self.how)
        return rounded_interval(self.inner.compiled_interval, edge, self.step)

    def _edge(self, k: TensorVariable) -> TensorVariable:
        return _edge(k, self.step, self._above, self.how, pt.switch)

    def logp(self, released: Any, statistic: Any) -> TensorVariable:
        """Symbolic log-probability of each component."""
        released, statistic = pt.as_tensor(released), pt.as_tensor(statistic)
        k = pt.round(released / self.step)
        log_p = self.inner.log_interval(self._edge(k), self._edge(k + 1), statistic)
        on_grid = pt.abs(released - self.step * k) < 1e-6 * self.step
        return pt.switch(on_grid, log_p, -np.inf)

    def log_interval(self, low: Bound, high: Bound, statistic: TensorVariable) -> TensorVariable:
        """Symbolic log P(low <= released < high)."""
        edges = [None if b is None else self._edge(pt.ceil(b / self.step)) for b in (low, high)]
        return self.inner.log_interval(edges[0], edges[1], statistic)

    @property
    def span(self) -> tuple[float, float]:  # type: ignore[override]
        """What becomes of the ends of the inner span."""
        low, high = self._moved(np.array(self.inner.span), np)
        return float(low), float(high)

    def change(self, noisy: Any, module: Any) -> Any:
        """Round; to the nearest with halves upwards."""
        return self._moved(noisy, module).astype(self.dtype)

    def _moved(self, noisy: Any, module: Any) -> Any:
        steps = noisy / self.step
        if self.how == "nearest":
            return self.step * module.floor(steps + 0.5)
        return self.step * getattr(module, self.how)(steps)

    def checked_release(self, name: str, value: NDArray, shape: tuple[int, ...]) -> NDArray:
        """Insist on multiples of the step; the inner mechanism's values need not be such."""
        check_shape(name, value, shape)
        check_finite(name, value)
        self._check_span(name, value)
        value = numbers(f"The released value of {name!r}", value)
        if np.any(np.abs(value - self.step * np.round(value / self.step)) > 1e-6 * self.step):
            raise ValueError(
                f"The released value of {name!r} is not a multiple of step={self.step:g}, to which "
                f"{self!r} rounds."
            )
        return value.astype(self.dtype)

    def __repr__(self) -> str:
        how = "" if self.how == "nearest" else f", how={self.how!r}"
        return f"{self.inner!r}.rounded({self.step:g}{how})"


class Thresholded(PostProcessed):
    """Values below a threshold dropped; made by ``mechanism.thresholded(t, dropped=...)``."""

    last = True

    def __init__(self, inner: AdditiveNoise, threshold: float, dropped: float | None) -> None:
        super().__init__(inner)
        self.threshold = number("threshold", threshold)
        if not math.isfinite(self.threshold):
            raise ValueError(f"threshold must be finite, got {threshold!r}.")
        if dropped is None:
            raise ValueError(
                "thresholded needs the marker that the release has in place of a dropped cell: "
                f"write .thresholded({threshold:g}, dropped=np.nan), or a number below it."
            )
        self.dropped = number("dropped", dropped)
        if self.dropped >= self.threshold:
            raise ValueError(
                f"dropped={dropped!r} could be a value that was kept: choose a marker below the "
                f"threshold {threshold:g}, or np.nan."
            )
        if math.isnan(self.dropped) or self.dropped != round(self.dropped):
            self.dtype = "float64"
        density, interval = inner.log_density, inner.compiled_interval
        self.log_density = thresholded_density(density, interval, self.threshold)

    @property
    def compiled_interval(self) -> Callable[..., float]:
        """None: a dropped cell is not a number."""
        raise NotImplementedError

    def logp(self, released: Any, statistic: Any) -> TensorVariable:
        """Symbolic log-density of a kept value, log P(noisy < threshold) of a dropped one."""
        released, statistic = pt.as_tensor(released), pt.as_tensor(statistic)
        missing = pt.or_(pt.isnan(released), released < self.threshold)
        value = pt.switch(missing, self.threshold, released)
        below = self.inner.log_interval(None, self.threshold, statistic)
        return pt.switch(missing, below, self.inner.logp(value, statistic))

    def change(self, noisy: Any, module: Any) -> Any:
        """Drop what is below the threshold."""
        choose = np.where if module is np else pt.switch
        return choose(noisy < self.threshold, self.dropped, noisy).astype(self.dtype)

    def checked_release(self, name: str, value: NDArray, shape: tuple[int, ...]) -> NDArray:
        """Insist that a value below the threshold is the marker, and hide NaN from PyMC."""
        value = numbers(f"The released value of {name!r}", value)
        check_shape(name, value, shape)
        marked = np.isnan(value) if math.isnan(self.dropped) else value == self.dropped
        marked |= value == _DROPPED
        wrong = ~marked & (value < self.threshold)
        if np.any(wrong):
            raise ValueError(
                f"The released value of {name!r} has {value[wrong].ravel()[0]:g}, below the "
                f"threshold {self.threshold:g} and not the marker of a dropped cell, "
                f"dropped={self.dropped:g}. Write the marker where a cell was dropped."
            )
        filled = np.where(marked, _DROPPED, value)
        check_finite(name, filled)
        step = self.lattice or 1.0
        possible = np.where(marked, step * np.ceil(self.threshold / step), value)
        self.inner.checked_release(name, possible, shape)
        return filled.astype(self.dtype)

    def __repr__(self) -> str:
        return f"{self.inner!r}.thresholded({self.threshold:g}, dropped={self.dropped:g})"


def _edge(k: Any, step: float, above: float, how: str, choose: Any) -> Any:
    """Least noisy value that is moved to ``k * step`` or higher.

    Upwards, that is the first one above ``(k - 1) * step``: `above` is what lies between.
    """
    if how == "nearest":
        return step * (k - 0.5)
    if how == "floor":
        return step * k
    up = step * (k - 1) + above
    return up if how == "ceil" else choose(k > 0, step * k, up)
