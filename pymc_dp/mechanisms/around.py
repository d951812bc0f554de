"""A mechanism around another one: all that does not depend on what happened to the noisy value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import ArrayLike, NDArray
from pytensor.tensor.variable import TensorVariable

from pymc_dp.accounting.composition import GaussianQueries
from pymc_dp.mechanisms.additive import AdditiveNoise
from pymc_dp.mechanisms.base import Guarantee
from pymc_dp.numerics.arguments import numbers

__all__ = ["Around"]


class Around(AdditiveNoise):
    """A mechanism around another, whose noisy value was changed before it was released."""

    #: whether nothing can be done to the released value afterwards
    last = False

    def __init__(self, inner: AdditiveNoise) -> None:
        if getattr(inner, "last", False):
            raise ValueError(
                f"{inner!r} has dropped cells, which nothing can be done to afterwards: write "
                ".thresholded(...) last."
            )
        self.inner = inner
        self.noise = inner.noise
        self.sensitivity = inner.sensitivity
        self.lattice = inner.lattice
        self.dtype = inner.dtype

    def __getattr__(self, name: str) -> Any:
        # the noise's own parameters, under the names they were given by
        if name in ("scale", "sigma", "epsilon", "delta", "rho"):
            return getattr(self.inner, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def norm(self) -> int | None:  # type: ignore[override]
        """The inner mechanism's."""
        return self.inner.norm

    @property
    def number_by_number(self) -> bool:  # type: ignore[override]
        """The inner mechanism's."""
        return self.inner.number_by_number

    def guarantee(self, sensitivity: ArrayLike | None = None) -> Guarantee:
        """Guarantee of the noise: post-processing keeps it (Dwork & Roth 2014, Proposition 2.1)."""
        return self.inner.guarantee(sensitivity)

    def check_statistic(self, name: str, statistic: TensorVariable, shape: tuple[int, ...]) -> None:
        """As the inner mechanism."""
        self.inner.check_statistic(name, statistic, shape)

    def symbolic_log_tail(self, x: TensorVariable) -> TensorVariable:
        """Belongs to noise that is symmetric; this is not."""
        raise NotImplementedError

    def noisy(self, value: NDArray, noise: NDArray[np.float64]) -> NDArray:
        """Belongs to the inner mechanism."""
        raise NotImplementedError

    def cost(self, sensitivity: ArrayLike | None = None) -> GaussianQueries:
        """Cost of the noise."""
        return self.inner.cost(sensitivity)

    def checked_input(self, statistic: ArrayLike) -> NDArray:
        """As the inner mechanism."""
        return self.inner.checked_input(statistic)

    def noised(self, value: NDArray) -> NDArray:
        """Draw with the inner mechanism, then do the same to the number."""
        return self.change(self.inner.noised(value), np)

    def draw(self, statistic: TensorVariable, rng: Any) -> tuple[Any, TensorVariable]:
        """Symbolic draw of a released value."""
        rng, value = self.inner.draw(statistic, rng)
        return rng, self.change(value, pt).astype(self.dtype)

    def support_point(self, statistic: TensorVariable) -> TensorVariable:
        """Return what becomes of the statistic without noise."""
        return self.change(statistic, pt).astype(self.dtype)

    def change(self, noisy: Any, module: Any) -> Any:
        """Do to a noisy value what was done before release, with NumPy or PyTensor functions."""
        raise NotImplementedError

    def _check_span(self, name: str, value: Any) -> None:
        low, high = self.span
        value = numbers(f"The released value of {name!r}", value)
        if np.any(value < low) or np.any(value > high):
            raise ValueError(
                f"The released value of {name!r} lies outside [{low:g}, {high:g}], which {self!r} "
                "cannot give."
            )

    def _on_lattice(self, name: str, value: float) -> float:
        step = self.inner.lattice
        if step and value != step * round(value / step):
            raise ValueError(
                f"{name}={value:g} is not a value that {self.inner!r} can release: write a "
                f"multiple of {step:g}."
            )
        return value
