"""Parameters of counts that may be zero: which cells they leave no choice, and finite slopes.

The slope of a logarithm at zero is no number, and one of them leaves none of the others. Where a
parameter may be zero, slopes are cut off there; where it cannot be (`exp`, shares, a gamma
variable) graphs stay as they are, so that PyTensor still takes ``log(exp(x))`` for ``x``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import walk
from pytensor.scalar import basic as ps
from pytensor.tensor.elemwise import Elemwise

from pymc_dp.analyst.count_gibbs.signs import ONE, SHARE, ZERO, Signs, is_positive, signs
from pymc_dp.graph.additivity import direct_inputs
from pymc_dp.graph.intervals import ONCE

__all__ = ["LEAST_PHI", "Guarded", "guarded"]

#: stands for the logarithm of zero: less than that of any number, and still finite
LEAST_PHI = -750.0
#: stands in for a parameter that plays no part
_HARMLESS = 0.5


@dataclass(frozen=True)
class Guarded:
    """A parameter of counts.

    Attributes
    ----------
    var : TensorVariable
        It.
    value : TensorVariable
        Its value, with no slopes at the edges of its range.
    zero, one : ndarray of bool
        Where it is 0 and 1 whatever the random variables are; they broadcast to it.
    never_zero, never_one : bool
        Whether it is proven to be neither anywhere.
    changed : bool
        Whether the value has other slopes than the parameter.
    """

    var: Any
    value: Any
    zero: NDArray[np.bool_]
    one: NDArray[np.bool_]
    never_zero: bool
    never_one: bool
    changed: bool

    def log(self) -> Any:
        """Its logarithm; `LEAST_PHI` where it is zero."""
        found = pt.log(self.value)
        return found if self.never_zero else pt.switch(pt.eq(self.value, 0), LEAST_PHI, found)

    def log_rest(self) -> Any:
        """Logarithm of one less it; `LEAST_PHI` where it is one."""
        found = pt.log1p(-self.value)
        return found if self.never_one else pt.switch(pt.eq(self.value, 1), LEAST_PHI, found)

    def replaced(self, settled: Any = False) -> dict[Any, Any]:
        """Give what takes its place in densities, where `settled` cells have no part."""
        value = pt.switch(settled, _HARMLESS, self.value) if np.any(settled) else self.value
        changed = self.changed or np.any(settled)
        return {self.var: value.astype(self.var.dtype)} if changed else {}


def guarded(var: Any, random: Sequence[Any], zero: bool = True, one: bool = False) -> Guarded:
    """Read a parameter.

    Parameters
    ----------
    var : TensorVariable
        The parameter.
    random : sequence of TensorVariable
        The model's variables.
    zero, one : bool
        Whether a slope is no number where it is 0, and 1.
    """
    known: dict[Any, Signs] = {}
    if direct_inputs([var], random):
        found = signs(var, known)
        plain = _logs_guarded(var, random, known)
    else:  # as it is
        plain = var
        numbers = np.asarray(var.eval(mode=ONCE))
        edges = [numbers == 0, numbers == 1, (numbers > 0) & (numbers < 1)]
        found = np.select(edges, [ZERO, ONE, SHARE], len(edges) + ONE).astype(np.int8)
    never_zero = bool(np.all(is_positive(found)))
    never_one = bool(np.all((found == SHARE) | (found == ZERO)))
    value = plain.astype("float64")
    cut = (zero and not never_zero, one and not never_one)
    if cut[0]:
        value = pt.switch(pt.eq(value, 0), 0.0, value)
    if cut[1]:
        value = pt.switch(pt.eq(value, 1), 1.0, value)
    changed = plain is not var or any(cut)
    return Guarded(var, value, found == ZERO, found == ONE, never_zero, never_one, changed)


def _logs_guarded(var: Any, random: Sequence[Any], known: dict[Any, Signs]) -> Any:
    """Cut off slopes of logarithms of what may be zero, on the way from the random variables."""
    stops = set(random)

    def expand(at: Any) -> list[Any] | None:
        return None if at in stops or at.owner is None else list(at.owner.inputs)

    replaced = {}
    for at in walk([var], expand, bfs=False):
        op = None if at.owner is None or at in stops else at.owner.op
        if not isinstance(op, Elemwise) or not isinstance(op.scalar_op, ps.Log):
            continue
        inner = at.owner.inputs[0]
        if not np.all(is_positive(signs(inner, known))):
            kept = pt.switch(pt.eq(inner, 0), 1.0, inner)
            replaced[at] = pt.switch(pt.eq(inner, 0), -np.inf, pt.log(kept)).astype(at.dtype)
    [found] = graph_replace([var], replaced, strict=False) if replaced else [var]
    return found
