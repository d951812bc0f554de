"""Graphs on a few rows, chosen freely, in place of graphs on all records.

A quantity whose i-th slice is a function of record i alone is known when that function is. Here it
is written for a table of other rows: `index[r]` says which record's public values (covariates,
group, exposure) row r has, and the records' own values are given. Nothing in the result has the
records' length, so that a billion of them cost no more than one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import singledispatch
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Constant
from pytensor.graph.op import Op
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.basic import Alloc, ARange, Join
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import Dot
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.sort import SortOp
from pytensor.tensor.special import LogSoftmax, Softmax
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    Subtensor,
    indices_from_subtensor,
)

from pymc_dp.compat import inline_ofg_node
from pymc_dp.graph.additivity.forms import NotAdditiveError, describe
from pymc_dp.types import Variable

__all__ = ["distinct_rows", "on_rows", "without_shapes"]

Take = Callable[[Variable, int], Variable]


def on_rows(
    outputs: Sequence[tuple[Variable, int]],
    values: Mapping[Variable, Variable],
    index: NDArray[np.int64],
    fixed: Iterable[Variable] = (),
) -> list[Variable]:
    """Write quantities that have one slice a record for a table of rows.

    Parameters
    ----------
    outputs : sequence of (variable, axis)
        What to write, and which of its axes is the record axis.
    values : mapping
        The records' own values in the table, rows along the first axis.
    index : array of int, shape (rows,)
        The record whose public values each row has.
    fixed : iterable of Variable
        Variables to take as given: parameters.

    Examples
    --------
    >>> import numpy as np
    >>> import pytensor.tensor as pt
    >>> from pymc_dp.graph.rows import on_rows
    >>> x, dose = pt.vector("x", shape=(3,)), pt.constant(np.array([1.0, 5.0, 9.0]))
    >>> [row] = on_rows([(x * dose, 0)], {x: pt.constant(np.array([2.0, 3.0]))}, np.array([0, 2]))
    >>> row.eval()
    array([ 2., 27.])
    """
    return _Rows(outputs, values, index, fixed).taken


def distinct_rows(
    outputs: Sequence[tuple[Variable, int]],
    records: Sequence[Variable],
    n: int,
    fixed: Iterable[Variable] = (),
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find records that differ in the public values which some quantities use.

    Returns
    -------
    index : array of int
        One record of each kind.
    counts : array of int
        How many there are of it.
    """
    one = np.zeros(1, dtype=np.int64)
    values = {rv: rv.type.clone(shape=(1, *rv.type.shape[1:]))() for rv in records}
    seen = _Rows(outputs, values, one, fixed)
    if seen.varying:  # values that may change, of parameters or of pm.Data
        return np.arange(n), np.ones(n, dtype=np.int64)
    if not seen.constants:
        return one, np.array([n])
    flat = [np.moveaxis(array, axis, 0).reshape(n, -1) for array, axis in seen.constants]
    table = np.concatenate([np.asarray(part, dtype=np.float64) for part in flat], axis=1)
    _, index, counts = np.unique(table, axis=0, return_index=True, return_counts=True)
    return index, counts


def without_shapes(
    outputs: Sequence[Variable], records: Iterable[Variable], fixed: Iterable[Variable] = ()
) -> list[Variable]:
    """Replace lengths by numbers: those of a table of rows differ, and others are known."""
    own = set(records)
    replaced: dict[Variable, Variable] = {}
    nodes: list[Any] = list(io_toposort([*own, *fixed], list(outputs)))
    for node in nodes:
        if isinstance(node.op, Shape | Shape_i):
            [var] = node.inputs
            if None not in var.type.shape or own & set(ancestors([var], blockers=own)):
                static = enumerate(var.type.shape)
                lengths = [var.shape[i].eval() if s is None else s for i, s in static]
                whole = np.array(lengths, dtype=np.int64)
                replaced[node.outputs[0]] = pt.constant(
                    whole if isinstance(node.op, Shape) else whole[node.op.i]
                )
    if not replaced:
        return list(outputs)
    # the variables themselves stay: where an output is a part of them, they would be copied too
    stay = {var: var for var in (*own, *fixed)}
    return graph_replace(list(outputs), stay | replaced, strict=False)


class _Rows:
    """One pass over a graph; remembers which public values it met."""

    def __init__(
        self,
        outputs: Sequence[tuple[Variable, int]],
        values: Mapping[Variable, Variable],
        index: NDArray[np.int64],
        fixed: Iterable[Variable],
    ) -> None:
        self.index, self.values = index, values
        self.fixed = {var for var in fixed if var not in values}
        self.memo: dict[tuple[Variable, int], Variable] = {}
        self.constants: list[tuple[NDArray, int]] = []
        self.varying = False
        graphs = without_shapes([var for var, _ in outputs], values, self.fixed)
        blockers = {*values, *self.fixed}
        self.involved = {
            var
            for var in ancestors(graphs, blockers=blockers)
            if not self.fixed & {var} and set(values) & set(ancestors([var], blockers=blockers))
        }
        self.taken = [self.take(g, axis) for g, (_, axis) in zip(graphs, outputs, strict=True)]

    def take(self, var: Variable, axis: int) -> Variable:
        """Write one variable for the table, whose rows are along its axis `axis`."""
        if (var, axis) not in self.memo:
            self.memo[var, axis] = self._take(var, axis)
        return self.memo[var, axis]

    def _take(self, var: Variable, axis: int) -> Variable:
        if var in self.values:
            if axis != 0:
                raise NotAdditiveError(f"{var.name!r} has its records along another axis")
            return self.values[var]
        if var not in self.involved and var.type.shape[axis] == 1:
            return var
        if isinstance(var, Constant):
            self.constants.append((var.data, axis))
            return pt.constant(np.take(var.data, self.index, axis=axis))
        if var.owner is not None and var not in self.fixed:
            found = _on_rows(var.owner.op, var, axis, self)
            if found is not None:
                return found
            if var in self.involved:
                raise NotAdditiveError(f"{describe(var.owner)} of each record has no rule for it")
        self.varying = True
        return pt.take(var, pt.constant(self.index), axis=axis)


@singledispatch
def _on_rows(op: Op, var: Variable, axis: int, rows: _Rows) -> Variable | None:
    """Write an operation's output for a table; None where there is no rule."""
    return None


def _again(var: Variable, inputs: Sequence[Variable]) -> Variable:
    return var.owner.op(*inputs, return_list=True)[var.owner.outputs.index(var)]


@_on_rows.register(Elemwise)
def _(op: Elemwise, var: Variable, axis: int, rows: _Rows) -> Variable:
    return _again(var, [rows.take(inp, axis) for inp in var.owner.inputs])


@_on_rows.register(DimShuffle)
def _(op: DimShuffle, var: Variable, axis: int, rows: _Rows) -> Variable | None:
    [inp] = var.owner.inputs
    own = op.new_order[axis]
    return None if own == "x" else rows.take(inp, int(own)).dimshuffle(*op.new_order)


@_on_rows.register(Alloc)
def _(op: Alloc, var: Variable, axis: int, rows: _Rows) -> Variable:
    value, *shape = var.owner.inputs
    own = axis - (var.type.ndim - value.type.ndim)
    value = rows.take(value, own) if own >= 0 else value
    shape[axis] = pt.constant(np.int64(len(rows.index)))
    return pt.alloc(value, *shape)


@_on_rows.register(CAReduce)
def _(op: CAReduce, var: Variable, axis: int, rows: _Rows) -> Variable:
    [inp] = var.owner.inputs
    reduced = range(inp.type.ndim) if op.axis is None else op.axis
    kept = [a for a in range(inp.type.ndim) if a not in reduced]
    return _again(var, [rows.take(inp, kept[axis])])


@_on_rows.register(Softmax)
@_on_rows.register(LogSoftmax)
@_on_rows.register(CumOp)
@_on_rows.register(SortOp)
@_on_rows.register(ViewOp)
def _(op: Op, var: Variable, axis: int, rows: _Rows) -> Variable:
    return _again(var, [rows.take(var.owner.inputs[0], axis), *var.owner.inputs[1:]])


@_on_rows.register(SpecifyShape)
@_on_rows.register(CheckAndRaise)
def _(op: Op, var: Variable, axis: int, rows: _Rows) -> Variable:
    return rows.take(var.owner.inputs[0], axis)


@_on_rows.register(Join)
def _(op: Join, var: Variable, axis: int, rows: _Rows) -> Variable | None:
    if op.axis % var.type.ndim == axis:
        return None
    return pt.join(op.axis, *[rows.take(inp, axis) for inp in var.owner.inputs])


@_on_rows.register(Reshape)
def _(op: Reshape, var: Variable, axis: int, rows: _Rows) -> Variable | None:
    value, shape = var.owner.inputs
    kept = slice(axis + 1)
    if value.type.shape[kept] != var.type.shape[kept] or None in var.type.shape[kept]:
        return None
    new = [shape[a] for a in range(var.type.ndim)]
    new[axis] = pt.constant(np.int64(len(rows.index)))
    return rows.take(value, axis).reshape(new)


@_on_rows.register(Dot)
def _(op: Dot, var: Variable, axis: int, rows: _Rows) -> Variable:
    left, right = var.owner.inputs
    if axis == 0:
        return pt.dot(rows.take(left, 0), right)
    return pt.dot(left, rows.take(right, 1))


@_on_rows.register(Blockwise)
def _(op: Blockwise, var: Variable, axis: int, rows: _Rows) -> Variable | None:
    batch, inputs = op.batch_ndim(var.owner), list(var.owner.inputs)
    if axis < batch:
        return _again(var, [rows.take(inp, axis) for inp in inputs])
    if isinstance(op.core_op, Dot):
        which = axis - batch  # rows of the left factor, or columns of the right one
        inputs[which] = rows.take(inputs[which], axis)
        return _again(var, inputs)
    return None


@_on_rows.register(Subtensor)
def _(op: Subtensor, var: Variable, axis: int, rows: _Rows) -> Variable | None:
    base, *flat = var.owner.inputs
    index = list(indices_from_subtensor(flat, op.idx_list))
    index += [slice(None)] * (base.type.ndim - len(index))
    kept = [a for a, entry in enumerate(index) if isinstance(entry, slice)]
    if index[kept[axis]] != slice(None):
        return None
    return rows.take(base, kept[axis])[tuple(index)]


@_on_rows.register(AdvancedSubtensor)
def _(op: AdvancedSubtensor, var: Variable, axis: int, rows: _Rows) -> Variable | None:
    """Look up by each record's index, in what has no records itself: effect[group]."""
    base, *flat = var.owner.inputs
    index: list[Any] = list(indices_from_subtensor(flat, op.idx_list))
    arrays = [a for a, entry in enumerate(index) if not isinstance(entry, slice)]
    if base in rows.involved or arrays != list(range(len(arrays))):
        return None  # the axes of an index that begins with arrays come first
    ndims = [pt.as_tensor(index[a]).type.ndim for a in arrays]
    if axis >= max(ndims) or any(pt.as_tensor(index[a]).type.dtype == "bool" for a in arrays):
        return None
    for a, ndim in zip(arrays, ndims, strict=True):
        own = axis - (max(ndims) - ndim)
        index[a] = rows.take(pt.as_tensor(index[a]), own) if own >= 0 else index[a]
    return base[tuple(index)]


@_on_rows.register(AdvancedIncSubtensor)
def _(op: AdvancedIncSubtensor, var: Variable, axis: int, rows: _Rows) -> Variable | None:
    """Write each record's value to its own row, at its own place: sums by group."""
    base, value, *flat = var.owner.inputs
    index: list[Any] = list(indices_from_subtensor(flat, op.idx_list))
    if axis != 0 or any(isinstance(i, slice) or i.type.ndim != 1 for i in index):
        return None
    if index[0].owner is None or not isinstance(index[0].owner.op, ARange):
        return None
    places = (pt.arange(len(rows.index)), *(rows.take(i, 0) for i in index[1:]))
    target = rows.take(base, 0)[places]
    value = rows.take(value, 0)
    return target.set(value) if op.set_instead_of_inc else target.inc(value)


@_on_rows.register(OpFromGraph)
def _(op: OpFromGraph, var: Variable, axis: int, rows: _Rows) -> Variable:
    inlined = inline_ofg_node(var.owner)[var.owner.outputs.index(var)]
    rows.involved |= {
        inner
        for inner in ancestors([inlined], blockers={*rows.values, *rows.fixed})
        if set(rows.values) & set(ancestors([inner], blockers={*rows.values, *rows.fixed}))
    }
    return rows.take(inlined, axis)
