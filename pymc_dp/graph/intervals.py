"""Interval arithmetic on PyTensor graphs: the range of an expression of bounded records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.vartypes import discrete_types
from pytensor.compile.mode import Mode
from pytensor.compile.ops import ViewOp
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors, explicit_graph_inputs, io_toposort
from pytensor.graph.utils import MissingInputError
from pytensor.scalar import basic as ps
from pytensor.scalar.math import Sigmoid, Softplus
from pytensor.tensor.basic import Alloc, Join, MakeVector
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot, Sum
from pytensor.tensor.random import basic as rvs
from pytensor.tensor.random.op import RNGConsumerOp
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.subtensor import AdvancedSubtensor, IncSubtensor, Subtensor
from pytensor.tensor.variable import TensorVariable

from pymc_dp.graph.additivity import direct_inputs

__all__ = ["ONCE", "UnboundedError", "bounds", "rows_are_alike", "unknowns"]


class UnboundedError(ValueError):
    """The range of an expression cannot be derived."""


#: for graphs that are evaluated once and not worth compiling
ONCE = Mode(linker="py", optimizer="fast_compile")

Interval = tuple[Any, Any]

#: operations that only move values around
_STRUCTURAL = (
    AdvancedSubtensor,
    Alloc,
    DimShuffle,
    IncSubtensor,
    Join,
    JoinDims,
    MakeVector,
    Reshape,
    SpecifyShape,
    SplitDims,
    Subtensor,
    Sum,
    ViewOp,
)
#: operations that treat all rows alike, however many there are
_ALIKE = (Blockwise, DimShuffle, Elemwise, Join, Sum)
_INCREASING = (
    ps.Add, ps.Cast, ps.Ceil, ps.Clip, ps.Exp, ps.Expm1, ps.Floor, ps.Identity, ps.Log, ps.Log1p,
    ps.Maximum, ps.Minimum, ps.RoundHalfToEven, ps.Sqrt, ps.Tanh, Sigmoid, Softplus,
)  # fmt: skip
#: true or false; of whole numbers, some of these are operations on bits
_LOGICAL = (ps.LT, ps.GT, ps.LE, ps.GE, ps.EQ, ps.NEQ, ps.AND, ps.OR, ps.Invert, ps.IsNan, ps.IsInf)

_POSITIVE = (0.0, np.inf)
_SUPPORT: dict[type, tuple[float, float]] = {
    rvs.BernoulliRV: (0.0, 1.0),
    rvs.BetaRV: (0.0, 1.0),
    rvs.PoissonRV: _POSITIVE,
    rvs.ExponentialRV: _POSITIVE,
    rvs.GammaRV: _POSITIVE,
    rvs.HalfNormalRV: _POSITIVE,
    rvs.LogNormalRV: _POSITIVE,
    rvs.BinomialRV: _POSITIVE,
    rvs.GeometricRV: (1.0, np.inf),
    rvs.CategoricalRV: _POSITIVE,
}


def unknowns(output: TensorVariable, records: list[TensorVariable]) -> list[str]:
    """Names of random or free variables that `output` depends on besides the records."""
    random = [
        var
        for var in ancestors([output], blockers=records)
        if var.owner is not None and isinstance(var.owner.op, RNGConsumerOp) and var.name
    ]
    free = [var for var in explicit_graph_inputs([output]) if not isinstance(var.type, RandomType)]
    return [
        str(var.name)
        for var in direct_inputs([output], [*records, *random, *free])
        if var not in records
    ]


def rows_are_alike(output: TensorVariable, records: list[TensorVariable]) -> bool:
    """Whether row i of `output` is the same function of row i of the records for every i.

    Proven from the graph: its operations know no positions, and nothing besides the records has as
    many rows as they have. False says nothing.
    """
    n = records[0].type.shape[0]
    if n is None or any(rv.type.shape[0] != n or None in rv.type.shape for rv in records):
        return False
    involved: set[Any] = set(records)
    for node in io_toposort(records, [output]):
        if not any(var in involved for var in node.inputs):
            continue
        known = [var for var in node.inputs if var not in involved]
        # records may choose from a table, but not be chosen from
        chooses = isinstance(node.op, AdvancedSubtensor) and node.inputs[0] in known
        if not (chooses or isinstance(node.op, _ALIKE)) or any(
            size is None or size == n for var in known for size in getattr(var.type, "shape", ())
        ):
            return False
        involved.update(node.outputs)
    return output in involved


def bounds(
    output: TensorVariable, records: list[TensorVariable], rows: int | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64], bool, bool]:
    """Lowest and highest value of every entry of `output`, whatever the records are.

    Nothing else in `output` may be unknown (see :func:`unknowns`). Where all rows are alike (see
    :func:`rows_are_alike`), `rows` of them suffice.

    Returns
    -------
    lower, upper : arrays
        Valid bounds.
    attained : bool
        Whether each entry comes from one value of one record by a chain of operations, so that no
        bound is wider than the entry's true range.
    separate : bool
        Whether, besides, each entry comes from a value of its own: all bounds can then be attained
        together.

    Raises
    ------
    UnboundedError
        Where an operation has no rule.
    """
    intervals: dict[Any, Interval] = {}
    chain = elementwise = True
    for rv in records:
        low, high = _SUPPORT.get(type(rv.owner.op), (-np.inf, np.inf))
        intervals[rv] = (pt.full_like(rv, low, dtype="float64"), pt.full_like(rv, high, "float64"))
    for node in io_toposort(records, [output]):
        if isinstance(node.op, Shape | Shape_i) or not any(v in intervals for v in node.inputs):
            continue
        chain = chain and sum(var in intervals for var in node.inputs) == 1
        if isinstance(node.op, Sum | Blockwise | Dot):
            # values that are repeated cannot all be at their bounds, as their sum's bound has it
            summed = [var for var in node.inputs if var in intervals]
            chain = chain and elementwise and _size(summed) == (_size(records) or -1)
        elementwise = elementwise and isinstance(node.op, Elemwise | DimShuffle | Reshape)
        if _is_short(node.outputs[0].type.dtype) and isinstance(node.op, Elemwise | Sum):
            # what wraps around need not come to all that the type holds
            chain = chain and isinstance(getattr(node.op, "scalar_op", None), ps.Cast)
        ends = [intervals.get(var, (var, var)) for var in node.inputs]
        intervals[node.outputs[0]] = _wrapped(node.outputs[0].type.dtype, _propagate(node, ends))
    if output not in intervals:
        raise UnboundedError("it does not involve the records")
    found = [pt.as_tensor(end) for end in intervals[output]]
    # records enter by their shape alone: any value does
    shapes = [tuple(rv.shape.eval(mode=ONCE)) for rv in records]
    if rows is not None:
        shapes = [(rows, *shape[1:]) for shape in shapes]
    given: dict[Any, Any] = {
        rv: pt.zeros(shape, rv.dtype) for rv, shape in zip(records, shapes, strict=True)
    }
    low, high = pytensor.function(
        [], clone_replace(found, given, rebuild_strict=False), mode=ONCE
    )()
    if np.isnan(low).any() or np.isnan(high).any():
        raise UnboundedError("its range is not bounded: clamp the records first")
    # elementwise operations and moves of axes only repeat values, so the same number of values
    # means that none is repeated
    values = sum(int(np.prod(shape)) for shape in shapes)
    separate = chain and elementwise and low.size == values
    return low, high, chain, separate


def _propagate(node: Any, ends: list[Interval]) -> Interval:
    op = node.op
    if isinstance(op, Sum):  # bounds of integers are floats
        low, high = (pt.sum(end, axis=op.axis) for end in ends[0])
        return low, high
    if isinstance(op, AdvancedSubtensor | Subtensor | IncSubtensor):
        first = 2 if isinstance(op, IncSubtensor) else 1
        if any(low is not high for low, high in ends[first:]):
            raise UnboundedError("no rule for the range of entries that records look up in a table")
    if isinstance(op, _STRUCTURAL):
        return tuple(op(*(end[side] for end in ends)) for side in (0, 1))  # type: ignore[return-value]
    if isinstance(getattr(op, "core_op", op), Dot):
        return _weighted_sums(node, ends)
    scalar_op = op.scalar_op if isinstance(op, Elemwise) else None
    low, high = [end[0] for end in ends], [end[1] for end in ends]
    if isinstance(scalar_op, ps.Cast):
        return _cast(node, low[0]), _cast(node, high[0], 1.0)
    if isinstance(scalar_op, _INCREASING):
        return op(*low), op(*high)
    if isinstance(scalar_op, _LOGICAL) and node.outputs[0].type.dtype == "bool":
        like = node.outputs[0]
        return pt.zeros_like(like, dtype="float64"), pt.ones_like(like, dtype="float64")
    if isinstance(scalar_op, ps.Sub):
        return low[0] - high[1], high[0] - low[1]
    if isinstance(scalar_op, ps.Neg):
        return -high[0], -low[0]
    if isinstance(scalar_op, ps.Switch):
        return pt.minimum(low[1], low[2]), pt.maximum(high[1], high[2])
    if isinstance(scalar_op, ps.Abs | ps.Sqr) or _is_even_power(scalar_op, node):
        return _folded(lambda value: op(value, *node.inputs[1:]), *ends[0])
    if isinstance(scalar_op, ps.Mul):
        return _product(node, ends)
    if isinstance(scalar_op, ps.TrueDiv) and ends[1][0] is ends[1][1]:
        quotients = low[0] / low[1], high[0] / low[1]
        return pt.minimum(*quotients), pt.maximum(*quotients)
    raise UnboundedError(f"no rule for the range of `{type(scalar_op or op).__name__}`")


def _cast(node: Any, end: Any, any_number: float = 0.0) -> Any:
    """Cast an end of a range; whether any number is true does not depend on how large it is."""
    to, end = node.outputs[0].type.dtype, pt.as_tensor(end)
    if to == "bool":
        return pt.full_like(end, any_number, dtype="float64")
    if to.startswith("float"):
        return pt.cast(pt.cast(end, to), "float64")
    end = pt.cast(end, "float64")
    return end if node.inputs[0].type.dtype in discrete_types else pt.trunc(end)


def _is_short(dtype: str) -> bool:
    """Whether numbers that occur may be beyond a type of whole numbers."""
    return np.dtype(dtype).kind in "iu" and dtype != "int64"


def _wrapped(dtype: str, ends: Interval) -> Interval:
    """Widen a range that a short type of whole numbers does not hold to all that it does."""
    if not _is_short(dtype):
        return ends
    known = np.iinfo(dtype)
    low, high = (pt.as_tensor(end) for end in ends)
    fits = (low >= float(known.min)) & (high <= float(known.max))
    return pt.switch(fits, low, float(known.min)), pt.switch(fits, high, float(known.max))


def _weighted_sums(node: Any, ends: list[Interval]) -> Interval:
    """Range of a matrix product of which one factor is known."""
    left, right = ends
    if left[0] is left[1]:
        up, down = pt.maximum(left[0], 0), pt.minimum(left[0], 0)
        corners = [node.op(up, end) for end in right], [node.op(down, end) for end in right]
    elif right[0] is right[1]:
        up, down = pt.maximum(right[0], 0), pt.minimum(right[0], 0)
        corners = [node.op(end, up) for end in left], [node.op(end, down) for end in left]
    else:
        raise UnboundedError("no rule for the range of a matrix product of records with records")
    return corners[0][0] + corners[1][1], corners[0][1] + corners[1][0]


def _size(variables: list[Any]) -> int | None:
    """Return how many entries variables have together; None where that is not known."""
    shapes = [var.type.shape for var in variables]
    if any(None in shape for shape in shapes):
        return None
    return sum(int(np.prod(shape)) for shape in shapes)


def _is_even_power(scalar_op: Any, node: Any) -> bool:
    if not isinstance(scalar_op, ps.Pow):
        return False
    try:
        exponent = np.asarray(node.inputs[1].eval(mode=ONCE))
        return bool(np.all((exponent % 2 == 0) & (exponent >= 0)))
    except MissingInputError:  # the exponent is not known
        return False


def _folded(function: Any, low: Any, high: Any) -> Interval:
    """Range of an even function that grows away from zero."""
    at_low, at_high = function(low), function(high)
    crosses = (low <= 0) & (high >= 0)
    return pt.switch(crosses, 0.0, pt.minimum(at_low, at_high)), pt.maximum(at_low, at_high)


def _product(node: Any, factors: list[Interval]) -> Interval:
    """Range of a product; a factor that occurs twice is a square."""
    interval_of = dict(zip(node.inputs, factors, strict=True))
    product: Interval = (pt.ones(()), pt.ones(()))
    for factor, power in Counter(node.inputs).items():
        low, high = interval_of[factor]
        raised = _power(power)
        ends_of_power = (
            _folded(raised, low, high) if power % 2 == 0 else (raised(low), raised(high))
        )
        corners = [a * b for a in product for b in ends_of_power]
        product = reduce(pt.minimum, corners), reduce(pt.maximum, corners)
    return product


def _power(exponent: int) -> Callable[[Any], Any]:
    return lambda value: value**exponent
