"""A mechanism known only by its density."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import ArrayLike, NDArray
from pytensor.graph.traversal import ancestors
from pytensor.raise_op import Assert
from pytensor.tensor.variable import TensorVariable

from pymc_dp.mechanisms.base import Guarantee, Mechanism, advance

__all__ = ["CustomMechanism"]


class CustomMechanism(Mechanism):
    """A mechanism given by its log-density, an expression of released value and statistic.

    The expression is compiled into the sampler's inner loop. The statistic must be a sum over
    records; what it looks like otherwise is free, and it may use the released value itself, as
    objective perturbation does (Ju et al. 2022, Assumption 2, type 2).

    Parameters
    ----------
    logp : callable
        ``logp(released, statistic)``: a PyTensor expression of the log-density, up to a constant
        that does not depend on the statistic; entries are summed.
    shape : tuple of int, optional
        Shape of the released value, where it is not the statistic's.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dp as pmdp
    >>> def student_noise(released, statistic):
    ...     return pm.logp(pm.StudentT.dist(nu=3, mu=statistic, sigma=2), released)
    >>> with pm.Model() as model:
    ...     p = pm.Beta("p", 1, 1)
    ...     x = pm.Bernoulli("x", p, shape=20)
    ...     noise = pmdp.CustomMechanism(logp=student_noise)
    ...     total = pmdp.Privatized("total", x.sum(), noise, observed=13.1)
    """

    elementwise = False

    def __init__(
        self, logp: Callable[[Any, Any], Any], *, shape: tuple[int, ...] | None = None
    ) -> None:
        if not callable(logp):
            raise TypeError(f"logp must be a function of (released, statistic), got {logp!r}.")
        self._logp = logp
        self.shape = shape

    def check_statistic(self, name: str, statistic: TensorVariable, shape: tuple[int, ...]) -> None:
        """Insist on a density that uses the released value and the statistic."""
        released = pt.tensor("released", dtype="float64", shape=self.released_shape(shape))
        totals = pt.tensor("statistic", dtype="float64", shape=shape)
        what = f"The logp of {self!r} for {name!r}"
        check_uses(what, self._logp(released, totals), released=released, statistic=totals)

    def released_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the declared shape, or the statistic's."""
        return shape if self.shape is None else tuple(self.shape)

    def logp(self, released: Any, statistic: Any) -> TensorVariable:
        """Symbolic log-density, one number."""
        return pt.sum(self._logp(pt.as_tensor(released), pt.as_tensor(statistic)))

    def draw(self, statistic: TensorVariable, rng: Any) -> tuple[Any, TensorVariable]:
        """Refuse, when evaluated: a density alone cannot be drawn from."""
        value = pt.zeros(self.released_shape(statistic.shape))
        return cannot_draw("CustomMechanism", value, rng)

    def support_point(self, statistic: TensorVariable) -> TensorVariable:
        """Zeros of the released value's shape."""
        return pt.zeros(self.released_shape(tuple(statistic.shape)))

    def checked_input(self, statistic: ArrayLike) -> NDArray:
        """Refuse: a density alone cannot be drawn from."""
        raise NotImplementedError("CustomMechanism knows a density, not how to draw from it.")

    def noised(self, value: NDArray) -> NDArray:
        """Refuse, as `checked_input`."""
        raise NotImplementedError

    def guarantee(self, sensitivity: ArrayLike | None = None) -> Guarantee:
        """Refuse: nothing is known of the density."""
        raise NotImplementedError("The guarantee of a CustomMechanism is not known.")

    def __repr__(self) -> str:
        return f"CustomMechanism(logp={getattr(self._logp, '__name__', '...')})"


def check_uses(what: str, expression: Any, **arguments: TensorVariable) -> None:
    """Insist that an expression which a user's function returned depends on its arguments."""
    used = set(ancestors([pt.as_tensor(expression)]))
    for name, argument in arguments.items():
        if argument not in used:
            raise ValueError(
                f"{what} does not use its argument {name!r}: it would be the same for every value. "
                f"Write it as a PyTensor expression of {name!r}."
            )


def cannot_draw(mechanism: str, value: TensorVariable, rng: Any) -> tuple[Any, TensorVariable]:
    """Return a draw, of the shape of `value`, that raises when it is evaluated."""
    message = f"{mechanism} knows a density, not how to draw from it: give observed=."
    rng, value = advance(rng, value)
    return rng, Assert(message)(value, np.array(False))  # type: ignore[return-value]
