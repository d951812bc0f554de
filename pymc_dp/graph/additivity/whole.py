"""Types that hold a total as it is: a cast that rounds it, or wraps around, is not linear."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Constant
from pytensor.scalar import basic as ps
from pytensor.tensor.basic import Alloc, ExtractDiag, Join, MakeVector
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot, Sum
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from pymc_dp.graph.additivity.forms import Node, NotAdditiveError

__all__ = ["check_values_kept", "is_whole", "keeps_values"]

#: whole numbers whatever they are given
_ROUNDED = (
    ps.Ceil, ps.Floor, ps.RoundHalfAwayFromZero, ps.RoundHalfToEven, ps.Sign, ps.Trunc,
)  # fmt: skip
#: whole numbers of whole numbers
_WHOLE = (
    Dot, ExtractDiag, Join, MakeVector, Sum, ps.Abs, ps.Add, ps.Cast, ps.Clip, ps.Identity, ps.Mul,
    ps.Neg, ps.ScalarMaximum, ps.ScalarMinimum, ps.Sub,
)  # fmt: skip
#: whole numbers of whole numbers in the first input; the others are lengths and places
_WHOLE_IN_FIRST = (
    Alloc, AdvancedSubtensor, DimShuffle, Reshape, SpecifyShape, Subtensor, ViewOp,
)  # fmt: skip


def keeps_values(before: str, after: str) -> bool:
    """Whether every number of a type is one of another.

    Examples
    --------
    >>> from pymc_dp.graph.additivity.whole import keeps_values
    >>> keeps_values("int64", "float64"), keeps_values("float64", "int64")
    (True, False)
    """
    return bool(np.can_cast(before, after))


def is_whole(var: Any) -> bool:
    """Whether a graph has whole numbers as its values, for all that can be seen.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from pymc_dp.graph.additivity.whole import is_whole
    >>> x = pt.dvector("x")
    >>> is_whole(2.0 * (x > 0).sum()), is_whole(0.5 * (x > 0).sum())
    (True, False)
    """
    if np.dtype(var.dtype).kind in "biu":
        return True
    if isinstance(var, Constant):
        return bool(np.all(np.asarray(var.data) == np.round(var.data)))
    if var.owner is None:
        return False
    op, inputs = var.owner.op, var.owner.inputs
    core = op.core_op if isinstance(op, Blockwise) else op
    core = core.scalar_op if isinstance(core, Elemwise) else core
    if isinstance(core, _ROUNDED):
        return True
    if isinstance(core, ps.Switch):
        return all(map(is_whole, inputs[1:]))
    if isinstance(core, _WHOLE_IN_FIRST):
        return is_whole(inputs[0])
    return isinstance(core, _WHOLE) and all(map(is_whole, inputs))


def check_values_kept(node: Node, totals: Collection[Any]) -> None:
    """Insist that the type of an operation's output holds totals as they are.

    Parameters
    ----------
    node : Apply
        A linear operation.
    totals : collection of TensorVariable
        Totals over records, or what is summed here, among its inputs.

    Raises
    ------
    NotAdditiveError
        Where it rounds, or may wrap around, and what to write instead.
    """
    after = node.outputs[0].type.dtype
    for var in (var for var in node.inputs if var in totals):
        before = var.type.dtype
        if keeps_values(before, after) or (after == "int64" and _is_whole_float(var)):
            continue
        if np.dtype(before).kind == "f" and np.dtype(after).kind in "biu":
            raise NotAdditiveError(
                f"a total over the records is cast from {before} to {after}, which rounds it. "
                "Round each record first, pt.round(x).astype('int64').sum(), or, where the noisy "
                "total was rounded, release it as it is with pmdp.Gaussian(...).rounded()"
            )
        raise NotAdditiveError(
            f"a total over the records is cast from {before} to {after}, which cannot hold all "
            "of its values: leave the cast out"
        )


def _is_whole_float(var: Any) -> bool:
    return np.dtype(var.dtype).kind == "f" and is_whole(var)
