"""Which entries of a graph are zero, or positive, whatever its random variables are.

Cells whose rate, probability or number of trials is a public zero are empty by law: a table has
structural zeros. They are read from the graph, where a zero that is multiplied with a parameter
stays one; entries that are zero at a few points may not be so elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.compile.ops import ViewOp
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar import basic as ps
from pytensor.scalar.math import Sigmoid, Softplus
from pytensor.tensor.basic import Alloc, Join, MakeVector
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot, Sum
from pytensor.tensor.random import basic as rvs
from pytensor.tensor.random.op import RNGConsumerOp
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.special import Softmax
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
)

from pymc_dp.graph.intervals import ONCE

__all__ = ["ONE", "SHARE", "ZERO", "Signs", "is_positive", "signs"]

Signs = NDArray[np.int8]

#: what is known of an entry: nothing; that it is 0, 1, minus or plus infinity, between 0 and 1,
#: or positive
UNKNOWN, ZERO, ONE, BELOW, ABOVE, SHARE, POSITIVE = range(7)

_POSITIVE_RVS = (
    rvs.GammaRV, rvs.ExponentialRV, rvs.HalfNormalRV, rvs.HalfCauchyRV, rvs.LogNormalRV,
    rvs.InvGammaRV, rvs.WeibullRV, rvs.WaldRV, rvs.ParetoRV, rvs.GeometricRV,
)  # fmt: skip
_SHARE_RVS = (rvs.BetaRV, rvs.DirichletRV)
#: operations that move entries of their first input, and of all
_MOVES_FIRST = (
    AdvancedSubtensor, Alloc, JoinDims, Reshape, SpecifyShape, SplitDims, Subtensor, ViewOp,
    CheckAndRaise,
)  # fmt: skip
_MOVES_TWO = (AdvancedIncSubtensor, IncSubtensor)


def is_positive(found: Signs) -> NDArray[np.bool_]:
    """Which entries are known to be positive."""
    return (found == ONE) | (found == SHARE) | (found == POSITIVE)


def signs(var: Any, known: dict[Any, Signs] | None = None) -> Signs:
    """Tell what is known of a variable's entries, in a shape that broadcasts to the variable's.

    Parameters
    ----------
    var : TensorVariable
        The variable.
    known : dict, optional
        What was found of variables before; it grows.
    """
    known = {} if known is None else known
    waiting = [var]
    while waiting:  # not by recursion: graphs are deep
        here = waiting[-1]
        if here in known:
            waiting.pop()
            continue
        inputs = _followed(here)
        missing = [v for v in inputs if v not in known]
        if missing:
            waiting += missing
            continue
        found = _signs(here, [known[v] for v in inputs])
        known[here] = found if found is not None else _nothing(here)
        waiting.pop()
    return known[var]


def _nothing(var: Any) -> Signs:
    return np.full((1,) * getattr(var.type, "ndim", 0), UNKNOWN, dtype=np.int8)


def _followed(var: Any) -> list[Any]:
    """List inputs whose signs tell those of a variable."""
    if var.owner is None or isinstance(var.owner.op, RNGConsumerOp):
        return []
    op, inputs = var.owner.op, list(var.owner.inputs)
    if isinstance(op, _MOVES_FIRST):
        return inputs[:1]
    if isinstance(op, _MOVES_TWO):
        return inputs[:2]
    if isinstance(op, Join):
        return [v for v in inputs if v.type.ndim]
    if isinstance(op, Elemwise | DimShuffle | Sum | Softmax | Dot | MakeVector):
        return inputs
    return [] if getattr(op, "core_op", None) is None else inputs


def _signs(var: Any, inputs: list[Signs]) -> Signs | None:
    """Signs of a variable, from those of what :func:`_followed` gives."""
    if var.owner is None:
        return _of_numbers(var)
    op = var.owner.op
    if isinstance(op, RNGConsumerOp):
        return _of_random(var)
    if not inputs:
        return None
    if isinstance(op, Elemwise):
        rule = _RULES.get(type(op.scalar_op))
        return None if rule is None else _arranged(rule(*inputs), var)
    if isinstance(op, DimShuffle):
        order = [i for i in op.new_order if i != "x"]
        dropped = tuple(i for i in range(inputs[0].ndim) if i not in order)
        moved = inputs[0].squeeze(axis=dropped).transpose(np.argsort(np.argsort(order)))
        places = tuple(i for i, where in enumerate(op.new_order) if where == "x")
        return np.asarray(np.expand_dims(moved, places))
    if isinstance(op, Sum):
        axes = tuple(range(inputs[0].ndim)) if op.axis is None else tuple(op.axis)
        return _sums(inputs[0] == ZERO, is_positive(inputs[0]), axes)
    if isinstance(op, Softmax):
        return np.where(inputs[0] == BELOW, ZERO, POSITIVE).astype(np.int8)
    if isinstance(op, Dot) or isinstance(getattr(op, "core_op", None), Dot):
        return _dots(var, inputs)
    moved_only = (*_MOVES_FIRST, *_MOVES_TWO, Join, MakeVector)
    return _moved(var, inputs) if isinstance(op, moved_only) else None


def _of_numbers(var: Any) -> Signs | None:
    if isinstance(var, Constant):
        value = np.asarray(var.data)
    elif isinstance(var, SharedVariable):
        value = np.asarray(var.get_value(borrow=True))
    else:
        return None
    if value.dtype.kind not in "biuf":
        return None
    found = np.full(value.shape, UNKNOWN, dtype=np.int8)
    found[value > 0] = POSITIVE
    found[(value > 0) & (value < 1)] = SHARE
    found[value == 0] = ZERO
    found[value == 1] = ONE
    found[value == np.inf] = ABOVE
    found[value == -np.inf] = BELOW
    alike = found.size > 0 and np.all(found == found.flat[0])
    return found[(slice(1),) * found.ndim] if alike else found


def _of_random(var: Any) -> Signs | None:
    op = var.owner.op
    shape = (1,) * var.type.ndim
    if isinstance(op, _SHARE_RVS):
        return np.full(shape, SHARE, dtype=np.int8)
    if isinstance(op, _POSITIVE_RVS):
        return np.full(shape, POSITIVE, dtype=np.int8)
    return None


def _sums(zero: Any, positive: Any, axes: Any) -> Signs:
    """Signs of sums along axes, whatever the signs' own lengths there."""
    least = np.all(zero | positive, axis=axes)
    found = np.where(least & np.any(positive, axis=axes), POSITIVE, UNKNOWN)
    return np.where(np.all(zero, axis=axes), ZERO, found).astype(np.int8)


def _spread(found: Signs, var: Any) -> Signs | None:
    shape = var.type.shape
    return None if None in shape else np.broadcast_to(found, shape)


def _dots(var: Any, inputs: list[Signs]) -> Signs | None:
    if all(np.all(is_positive(found)) for found in inputs):
        return np.full((1,) * var.type.ndim, POSITIVE, dtype=np.int8)
    whole = [_spread(f, v) for f, v in zip(inputs, var.owner.inputs, strict=True)]
    if any(found is None or not found.ndim for found in whole):
        return None
    zeros = [found == ZERO for found in whole if found is not None]
    good = [is_positive(found) for found in whole if found is not None]
    other = [~(z | g) for z, g in zip(zeros, good, strict=True)]
    products = [np.matmul(a.astype(np.int32), b.astype(np.int32)) for a, b in (
        (~zeros[0], ~zeros[1]), (good[0], good[1]), (other[0], ~zeros[1]), (~zeros[0], other[1]),
    )]  # fmt: skip
    some, positive, unclear = products[0], products[1], products[2] + products[3]
    found = np.where((positive > 0) & (unclear == 0), POSITIVE, UNKNOWN)
    return np.where(some == 0, ZERO, found).astype(np.int8)


def _moved(var: Any, inputs: list[Signs]) -> Signs | None:
    """Signs after entries were moved to other places."""
    op, node = var.owner.op, var.owner
    first = inputs[0].flat[0] if inputs[0].size else UNKNOWN
    incremented = isinstance(op, _MOVES_TWO) and not op.set_instead_of_inc
    if all(found.size == 1 and found.flat[0] == first for found in inputs) and not incremented:
        return np.full((1,) * var.type.ndim, first, dtype=np.int8)
    data = _followed(var)
    whole = [_spread(found, v) for found, v in zip(inputs, data, strict=True)]
    if incremented or any(found is None for found in whole):
        return None
    stand_in = {v: pt.constant(found) for v, found in zip(data, whole, strict=True)}
    kept = [stand_in.get(v, v) for v in node.inputs]
    if isinstance(op, CheckAndRaise):
        return whole[0]
    try:  # where entries go must be public
        found = op.make_node(*kept).outputs[0].eval(mode=ONCE)
    except Exception:
        return None
    return np.asarray(found).astype(np.int8)


def _arranged(found: Any, var: Any) -> Signs:
    kept = np.asarray(found).astype(np.int8)
    if var.type.dtype.startswith(("int", "uint", "bool")):  # rounded
        kept = np.where((kept == ZERO) | (kept == ONE), kept, UNKNOWN).astype(np.int8)
    return kept


def _product(*parts: Signs) -> Any:
    zero = np.logical_or.reduce(np.broadcast_arrays(*(p == ZERO for p in parts)))
    positive = np.logical_and.reduce(np.broadcast_arrays(*(is_positive(p) for p in parts)))
    small = [(p == ONE) | (p == SHARE) for p in parts]
    shares = np.logical_and.reduce(np.broadcast_arrays(*small))
    ones = np.logical_and.reduce(np.broadcast_arrays(*(p == ONE for p in parts)))
    return np.select([zero, ones, shares, positive], [ZERO, ONE, SHARE, POSITIVE], UNKNOWN)


def _sum(*parts: Signs) -> Any:
    arrays = np.broadcast_arrays(*parts)
    stacked = np.stack(arrays)
    below, above = np.any(stacked == BELOW, axis=0), np.any(stacked == ABOVE, axis=0)
    plain = _sums(stacked == ZERO, is_positive(stacked), 0)
    return np.select([below & ~above, above & ~below, below], [BELOW, ABOVE, UNKNOWN], plain)


def _negative(a: Signs) -> Any:
    return np.select([a == ZERO, a == BELOW, a == ABOVE], [ZERO, ABOVE, BELOW], UNKNOWN)


def _difference(a: Signs, b: Signs) -> Any:
    from_one = [(a == ONE) & (b == SHARE), (a == ONE) & (b == ONE), b == ZERO]
    return np.select(from_one, [SHARE, ZERO, a], _sum(a, _negative(b)))


def _quotient(a: Signs, b: Signs) -> Any:
    positive = is_positive(a) & is_positive(b)
    return np.select([(a == ZERO) & (b != ZERO), positive], [ZERO, POSITIVE], UNKNOWN)


def _power(a: Signs, b: Signs) -> Any:
    zero = (a == ZERO) & is_positive(b)
    return np.select([zero, is_positive(a)], [ZERO, POSITIVE], UNKNOWN)


def _chosen(condition: Signs, a: Signs, b: Signs) -> Any:
    same, both = a == b, is_positive(a) & is_positive(b)
    yes, no = is_positive(condition), condition == ZERO
    return np.select([yes, no, same, both], [a, b, a, POSITIVE], UNKNOWN)


def _largest(*parts: Signs) -> Any:
    positive = np.logical_or.reduce(np.broadcast_arrays(*(is_positive(p) for p in parts)))
    zero = np.logical_and.reduce(np.broadcast_arrays(*(p == ZERO for p in parts)))
    return np.select([positive, zero], [POSITIVE, ZERO], UNKNOWN)


def _smallest(*parts: Signs) -> Any:
    positive = np.logical_and.reduce(np.broadcast_arrays(*(is_positive(p) for p in parts)))
    zero = np.logical_and.reduce(np.broadcast_arrays(*(p == ZERO for p in parts)))
    return np.select([positive, zero], [POSITIVE, ZERO], UNKNOWN)


def _kept(a: Signs) -> Any:
    return np.where((a == ZERO) | is_positive(a), a, UNKNOWN)


def _increasing(a: Signs) -> Any:
    """Functions that are 0 at 0 and increase."""
    return np.select([a == ZERO, is_positive(a)], [ZERO, POSITIVE], UNKNOWN)


_RULES: dict[type, Callable[..., Any]] = {
    ps.Exp: lambda a: np.select([a == BELOW, a == ABOVE], [ZERO, ABOVE], POSITIVE),
    ps.Log: lambda a: np.select([a == ZERO, a == ONE], [BELOW, ZERO], UNKNOWN),
    Sigmoid: lambda a: np.select([a == BELOW, a == ABOVE], [ZERO, ONE], SHARE),
    Softplus: lambda a: np.select([a == BELOW, a == ABOVE], [ZERO, ABOVE], POSITIVE),
    ps.Mul: _product,
    ps.Add: _sum,
    ps.Sub: _difference,
    ps.Neg: _negative,
    ps.TrueDiv: _quotient,
    ps.Pow: _power,
    ps.Sqr: _kept,
    ps.Sqrt: _kept,
    ps.Abs: _kept,
    ps.Cast: lambda a: a,
    ps.Identity: lambda a: a,
    ps.Expm1: _increasing,
    ps.Log1p: _increasing,
    ps.Tanh: _increasing,
    ps.Switch: _chosen,
    ps.Maximum: _largest,
    ps.Minimum: _smallest,
    ps.Clip: lambda a, low, high: _smallest(_largest(a, low), high),
}
