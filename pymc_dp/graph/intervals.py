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
from pytensor.compile.mode import Mode
from pytensor.compile.ops import ViewOp
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors, explicit_graph_inputs, io_toposort
from pytensor.scalar import basic as ps
from pytensor.scalar.math import Sigmoid, Softplus
from pytensor.tensor.basic import Alloc, Join, MakeVector
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Sum
from pytensor.tensor.random import basic as rvs
from pytensor.tensor.random.op import RNGConsumerOp
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.subtensor import AdvancedSubtensor, IncSubtensor, Subtensor
from pytensor.tensor.variable import TensorVariable

from pymc_dp.graph.additivity import direct_inputs

__all__ = ["ONCE", "UnboundedError", "bounds", "unknowns"]


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
_INCREASING = (
    ps.Add, ps.Cast, ps.Ceil, ps.Clip, ps.Exp, ps.Expm1, ps.Floor, ps.Identity, ps.Log, ps.Log1p,
    ps.Maximum, ps.Minimum, ps.RoundHalfToEven, ps.Sqrt, ps.Tanh, Sigmoid, Softplus,
)  # fmt: skip
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


def bounds(
    output: TensorVariable, records: list[TensorVariable]
) -> tuple[NDArray[np.float64], NDArray[np.float64], bool, bool]:
    """Lowest and highest value of every entry of `output`, whatever the records are.

    Nothing else in `output` may be unknown (see :func:`unknowns`).

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
        elementwise = elementwise and isinstance(node.op, Elemwise | DimShuffle | Reshape)
        ends = [intervals.get(var, (var, var)) for var in node.inputs]
        intervals[node.outputs[0]] = _propagate(node, ends)
    if output not in intervals:
        raise UnboundedError("it does not involve the records")
    found = [pt.as_tensor(end) for end in intervals[output]]
    # records enter by their shape alone: any value does
    given: dict[Any, Any] = {rv: pt.zeros(rv.shape.eval(mode=ONCE), rv.dtype) for rv in records}
    low, high = pytensor.function(
        [], clone_replace(found, given, rebuild_strict=False), mode=ONCE
    )()
    if np.isnan(low).any() or np.isnan(high).any():
        raise UnboundedError("its range is not bounded: clamp the records first")
    # elementwise operations and moves of axes only repeat values, so the same number of values
    # means that none is repeated
    values = sum(int(np.prod(rv.shape.eval(mode=ONCE))) for rv in records)
    separate = chain and elementwise and low.size == values
    return low, high, chain, separate


def _propagate(node: Any, ends: list[Interval]) -> Interval:
    op = node.op
    if isinstance(op, _STRUCTURAL):
        return tuple(op(*(end[side] for end in ends)) for side in (0, 1))  # type: ignore[return-value]
    scalar_op = op.scalar_op if isinstance(op, Elemwise) else None
    low, high = [end[0] for end in ends], [end[1] for end in ends]
    if isinstance(scalar_op, ps.Cast):
        return pt.cast(low[0], "float64"), pt.cast(high[0], "float64")
    if isinstance(scalar_op, _INCREASING):
        return op(*low), op(*high)
    if isinstance(scalar_op, _LOGICAL):
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


def _is_even_power(scalar_op: Any, node: Any) -> bool:
    if not isinstance(scalar_op, ps.Pow):
        return False
    try:
        return bool(np.all(np.asarray(node.inputs[1].eval(mode=ONCE)) % 2 == 0))
    except Exception:
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
