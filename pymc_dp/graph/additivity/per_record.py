"""Operations on each record's own values, and the sums that turn them into totals.

One small function a family of operations, registered by the operation's class. Each takes the
node, the forms of its inputs (all of them per record or free) and the number of records.
Indexing has its own module, :mod:`~pymc_dp.graph.additivity.indexing`.
"""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Constant, Variable, equal_computations
from pytensor.graph.op import Op
from pytensor.graph.traversal import graph_inputs
from pytensor.scalar import basic as ps
from pytensor.tensor.basic import Alloc, ExtractDiag, Join, Split
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import Argmax, Dot
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.sort import ArgSortOp, SortOp
from pytensor.tensor.special import LogSoftmax, Softmax
from pytensor.tensor.variable import TensorVariable

from pymc_dp.graph.additivity.forms import (
    Additive,
    Form,
    Node,
    NotAdditiveError,
    PerRecord,
    PerRecordForms,
    UnknownOperationError,
    describe,
)
from pymc_dp.graph.additivity.whole import check_values_kept


@singledispatch
def form_of_node(op: Op, node: Node, forms: PerRecordForms, number: TensorVariable) -> Form:
    """Form of `node`'s output, where all inputs that involve records are per record."""
    raise UnknownOperationError(f"{describe(node)} is not known to act on each record by itself")


def common_form(node: Node, forms: PerRecordForms) -> PerRecord:
    """Return the one form that all inputs with records share."""
    found = [forms[var] for var in node.inputs if var in forms]
    if any(form.axis != found[0].axis for form in found):
        raise NotAdditiveError(f"{describe(node)} pairs records with other records")
    if any(not same_rows(form.rows, found[0].rows) for form in found):
        raise NotAdditiveError(f"{describe(node)} combines different selections of the records")
    return found[0]


def same_rows(a: Variable | None, b: Variable | None) -> bool:
    """Whether two selections of the records are known to be the same."""
    if a is None or b is None:
        return a is b
    return equal_computations([a], [b])


def constant_value(var: Variable) -> Any:
    """Value of a variable that has no inputs but constants."""
    if not all(isinstance(i, Constant) for i in graph_inputs([var])):
        raise NotAdditiveError("not a constant")
    return var.eval()


def total(per_record: TensorVariable, rows: Variable | None, number: TensorVariable) -> Additive:
    """Sum over the first axis, whose slices come from the records `rows` (all in order if None)."""
    if rows is None:
        return Additive(per_record)
    nothing = pt.zeros((number, *list(per_record.shape)[1:]), dtype=per_record.dtype)
    return Additive(nothing[rows].inc(per_record))


# --- elementwise, reshaping, reducing ------------------------------------------------------------


@form_of_node.register(Elemwise)
def _(op: Elemwise, node: Node, forms: PerRecordForms, number: TensorVariable) -> Form:
    form = common_form(node, forms)
    lengths = {var.type.shape[form.axis] for var in node.inputs if var in forms} - {None}
    if lengths == {1} and node.outputs[0].type.shape[form.axis] != 1:
        raise NotAdditiveError(f"{describe(node)} broadcasts a single record along its axis")
    return form


@form_of_node.register(DimShuffle)
def _(op: DimShuffle, node: Node, forms: PerRecordForms, number: TensorVariable) -> Form:
    form = common_form(node, forms)
    if form.axis not in op.new_order:  # squeezed: there is one record
        kept = [axis for axis in op.new_order if axis != "x"]
        with_record_first = [form.axis, *kept]
        value = node.inputs[0].dimshuffle(with_record_first)
        return total(value.dimshuffle(0, *_placed(op.new_order)), form.rows, number)
    return PerRecord(op.new_order.index(form.axis), form.rows)


def _placed(order: tuple[int | str, ...]) -> list[int | str]:
    """Axes 1, 2, ... in the places of an order's axes, its new ones kept."""
    counter = iter(range(1, len(order) + 1))
    return ["x" if axis == "x" else next(counter) for axis in order]


@form_of_node.register(CAReduce)
def _(op: CAReduce, node: Node, forms: PerRecordForms, number: TensorVariable) -> Form:
    form = common_form(node, forms)
    [value] = node.inputs
    axes = tuple(range(value.type.ndim)) if op.axis is None else op.axis
    if form.axis not in axes:
        return PerRecord(form.axis - sum(a < form.axis for a in axes), form.rows)
    if not isinstance(op.scalar_op, ps.Add):
        raise NotAdditiveError(f"{describe(node)} over the records is not a sum")
    check_values_kept(node, forms)
    others = tuple(a + (a < form.axis) for a in axes if a != form.axis)
    value = pt.moveaxis(value, form.axis, 0)
    value = value.sum(axis=others) if others else value
    return total(value.astype(node.outputs[0].dtype), form.rows, number)


@form_of_node.register(SpecifyShape)
@form_of_node.register(ViewOp)
def _(op: Op, node: Node, forms: PerRecordForms, number: TensorVariable) -> Form:
    return forms[node.inputs[0]]


@form_of_node.register(Alloc)
def _(op: Alloc, node: Node, forms: PerRecordForms, number: TensorVariable) -> Form:
    form = common_form(node, forms)
    return PerRecord(form.axis + node.outputs[0].type.ndim - node.inputs[0].type.ndim, form.rows)


@form_of_node.register(Reshape)
def _(op: Reshape, node: Node, forms: PerRecordForms, number: TensorVariable) -> Form:
    form = common_form(node, forms)
    before, after = node.inputs[0].type.shape, node.outputs[0].type.shape
    kept = slice(form.axis + 1)
    if None in before[kept] or None in after[kept]:
        raise UnknownOperationError(
            f"{describe(node)} to or from lengths that only the run will tell"
        )
    if before[kept] != after[kept]:
        raise NotAdditiveError(f"{describe(node)} does not keep the record axis apart")
    return form


@form_of_node.register(JoinDims)
def _(op: JoinDims, node: Node, forms: PerRecordForms, number: TensorVariable) -> Form:
    form = common_form(node, forms)
    joined = range(op.start_axis, op.start_axis + op.n_axes)
    lengths = node.inputs[0].type.shape
    if form.axis in joined and any(lengths[a] != 1 for a in joined if a != form.axis):
        raise NotAdditiveError(f"{describe(node)} does not keep the record axis apart")
    if form.axis in joined:
        return PerRecord(op.start_axis, form.rows)
    fewer = op.n_axes - 1 if form.axis >= op.start_axis else 0
    return PerRecord(form.axis - fewer, form.rows)


@form_of_node.register(SplitDims)
def _(op: SplitDims, node: Node, forms: PerRecordForms, number: TensorVariable) -> Form:
    form = common_form(node, forms)
    if op.axis == form.axis:
        raise NotAdditiveError(f"{describe(node)} does not keep the record axis apart")
    more = node.outputs[0].type.ndim - node.inputs[0].type.ndim
    return PerRecord(form.axis + (more if op.axis < form.axis else 0), form.rows)


@form_of_node.register(Join)
def _(op: Join, node: Node, forms: PerRecordForms, number: TensorVariable) -> Form:
    form = common_form(node, forms)
    if op.axis % node.outputs[0].type.ndim == form.axis:
        raise NotAdditiveError(
            "records are concatenated along the record axis: sum each part, then add the sums"
        )
    return form


@form_of_node.register(Softmax)
@form_of_node.register(LogSoftmax)
@form_of_node.register(CumOp)
@form_of_node.register(Argmax)
@form_of_node.register(SortOp)
@form_of_node.register(ArgSortOp)
@form_of_node.register(Split)
def _(op: Any, node: Node, forms: PerRecordForms, number: TensorVariable) -> Form:
    form = common_form(node, forms)
    if node.inputs[0] not in forms or any(var in forms for var in node.inputs[1:]):
        raise NotAdditiveError(f"{describe(node)} cuts at places that depend on records")
    ndim = node.inputs[0].type.ndim
    axes = range(ndim) if op.axis is None else [a % ndim for a in np.atleast_1d(op.axis)]
    if form.axis in axes:
        raise NotAdditiveError(f"{describe(node)} is taken over the records")
    dropped = sum(a < form.axis for a in axes) if isinstance(op, Argmax) else 0
    return PerRecord(form.axis - dropped, form.rows)


@form_of_node.register(ExtractDiag)
def _(op: ExtractDiag, node: Node, forms: PerRecordForms, number: TensorVariable) -> Form:
    form = common_form(node, forms)
    if form.axis in (op.axis1, op.axis2):
        raise NotAdditiveError(f"{describe(node)} pairs records with other records")
    return PerRecord(form.axis - sum(a < form.axis for a in (op.axis1, op.axis2)), form.rows)


# --- products ------------------------------------------------------------------------------------


@form_of_node.register(Dot)
def _(op: Dot, node: Node, forms: PerRecordForms, number: TensorVariable) -> Form:
    """Contract the record axis, or keep it (matrices, with batch axes before them or without)."""
    left, right = node.inputs
    sides = [(left, left.type.ndim - 1), (right, right.type.ndim - 2)]
    found = [(forms[var], contracted) for var, contracted in sides if var in forms]
    if all(form.axis == contracted for form, contracted in found):
        first, *others = [form for form, _ in found]
        if not all(same_rows(first.rows, form.rows) for form in others):
            raise NotAdditiveError(f"{describe(node)} combines different selections of the records")
        outer = pt.moveaxis(left, -1, 0)[..., None] * pt.moveaxis(right, -2, 0)[..., None, :]
        return total(outer, first.rows, number)
    if len(found) == 2:
        raise NotAdditiveError(f"{describe(node)} pairs records with other records")
    return common_form(node, forms)


@form_of_node.register(Blockwise)
def _(op: Blockwise, node: Node, forms: PerRecordForms, number: TensorVariable) -> Form:
    found = [forms[var] for var in node.inputs if var in forms]
    if isinstance(op.core_op, Dot) and any(form.axis >= op.batch_ndim(node) for form in found):
        return form_of_node(op.core_op, node, forms, number)
    form = common_form(node, forms)
    if form.axis >= op.batch_ndim(node):
        raise NotAdditiveError(f"{describe(node)} is taken over the records")
    return form


@form_of_node.register(RandomVariable)
def _(op: RandomVariable, node: Node, forms: PerRecordForms, number: TensorVariable) -> Form:
    """Draws whose parameters are per record are per record themselves."""
    batch = node.outputs[1].type.ndim - op.ndim_supp
    positions = set()
    for param, core in zip(op.dist_params(node), op.ndims_params, strict=True):
        if param in forms:
            if forms[param].axis >= param.type.ndim - core:
                raise NotAdditiveError(f"{describe(node)} takes one parameter from all records")
            positions.add(forms[param].axis + batch - (param.type.ndim - core))
    if len(positions) != 1:
        raise NotAdditiveError(f"{describe(node)} pairs records with other records")
    rows = next(form.rows for form in forms.values())
    if not all(same_rows(rows, form.rows) for form in forms.values()):
        raise NotAdditiveError(f"{describe(node)} combines different selections of the records")
    return PerRecord(positions.pop(), rows)
