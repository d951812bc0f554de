"""Totals released without noise: invariants of a release."""

from __future__ import annotations

import warnings
from typing import Any

import numba
import numpy as np
import pytensor.tensor as pt
from numpy.typing import ArrayLike, NDArray
from pymc.vartypes import discrete_types
from pytensor.tensor.variable import TensorVariable

from pymc_dp.mechanisms.base import (
    Guarantee,
    Mechanism,
    PrivacyWarning,
    advance,
    check_finite,
    check_shape,
    check_whole,
)

__all__ = ["Exact"]


#: what each unit by which a statistic is off takes from the log-density: exp(-_FAR) is zero
_FAR = np.float64(1e100)


@numba.njit
def _log_density(released: float, statistic: float, noise: float) -> float:
    return 0.0 if released == statistic else -np.inf


class Exact(Mechanism):
    """No noise at all: the statistic was published as it is, and the records must agree with it.

    :class:`~pymc_dp.RecordGibbs` honours totals of how many records are in which category (or in
    which of several groups of categories, no record in two): it starts from records that agree,
    keeps every record in its group, and lets pairs of records swap their categories. One such
    release may be declared of a categorical or Bernoulli variable, whose other releases may have
    any noise that is added to components. Other exact totals, of amounts for instance, it refuses.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_dp as pmdp
    >>> with pm.Model():
    ...     p = pm.Beta("p", 1, 1, shape=6)
    ...     x = pm.Bernoulli("x", p)
    ...     number = pmdp.Privatized("number", x.sum(), pmdp.Exact(), observed=4)
    """

    dtype = "int64"
    log_density = staticmethod(_log_density)
    noise = np.zeros(())

    def logp(self, released: Any, statistic: Any) -> TensorVariable:
        """Zero where the statistic agrees; elsewhere the less, the further off it is.

        Finite there, so that samplers may start anywhere, and far below what any other term of a
        model can make up for.
        """
        return pt.switch(
            pt.eq(released, statistic), 0.0, pt.abs(released - statistic) * pt.constant(-_FAR)
        )

    def draw(self, statistic: TensorVariable, rng: Any) -> tuple[Any, TensorVariable]:
        """Return the statistic."""
        return advance(rng, pt.round(statistic).astype("int64"))

    def checked_input(self, statistic: ArrayLike) -> NDArray[np.int64]:
        """Insist on whole numbers."""
        return check_whole("The statistic", statistic)

    def noised(self, value: NDArray) -> NDArray:
        """Return the statistic, with a warning."""
        warnings.warn("Exact() protects nothing: no noise is added.", PrivacyWarning, stacklevel=3)
        return value

    def guarantee(self, sensitivity: ArrayLike | None = None) -> Guarantee:
        """None: epsilon is infinite."""
        return Guarantee(np.inf, 0.0, np.inf)

    def check_statistic(self, name: str, statistic: TensorVariable, shape: tuple[int, ...]) -> None:
        """Insist on counts."""
        if statistic.dtype not in discrete_types:
            raise ValueError(
                f"The statistic of {name!r} has type {statistic.dtype}: only exact counts of "
                "records can be honoured. For an amount known almost exactly write small noise."
            )

    def checked_release(self, name: str, value: NDArray, shape: tuple[int, ...]) -> NDArray:
        """Insist on whole numbers."""
        check_shape(name, value, shape)
        check_finite(name, value)
        return check_whole(f"The released value of {name!r} under {self!r}", value)

    def __repr__(self) -> str:
        return "Exact()"
