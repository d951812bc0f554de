"""Indexing of, and by, each record's own values: rules registered with the other operations."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.tensor.basic import ARange
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.shape import Reshape, Shape, Shape_i
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
    indices_from_subtensor,
)
from pytensor.tensor.variable import TensorVariable

from pymc_dp.graph.additivity.forms import (
    Additive,
    Form,
    Node,
    NotAdditiveError,
    PerRecord,
    PerRecordForms,
    describe,
)
from pymc_dp.graph.additivity.per_record import constant_value, form_of_node, same_rows, total

Index = list[Any]  # slices and variables


def _full_index(op: Any, base: Any, flat: list[Variable]) -> Index:
    """One entry for every axis of `base`."""
    index = list(indices_from_subtensor(flat, op.idx_list))
    if any(_ndim(i) > 1 and i.type.dtype == "bool" for i in index if not isinstance(i, slice)):
        raise NotAdditiveError("a table of true and false as an index puts axes together")
    return index + [slice(None)] * (base.type.ndim - len(index))


def _select(form: PerRecord, entry: Any, number: TensorVariable) -> TensorVariable:
    """Which records remain when the record axis is indexed by `entry`."""
    return (pt.arange(number) if form.rows is None else form.rows)[entry]


@form_of_node.register(Subtensor)
def _(op: Subtensor, node: Node, forms: PerRecordForms, number: TensorVariable) -> Form:
    base, *flat = node.inputs
    index = _full_index(op, base, flat)
    form = forms[base]
    entry = index[form.axis]
    if not isinstance(entry, slice):  # one record by itself
        value = node.outputs[0]
        nothing = pt.zeros((number, *value.shape), dtype=value.dtype)
        return Additive(nothing[_select(form, entry, number)].inc(value))
    axis = sum(isinstance(i, slice) for i in index[: form.axis])
    rows = form.rows if entry == slice(None) else _select(form, entry, number)
    return PerRecord(axis, rows)


@form_of_node.register(AdvancedSubtensor)
def _(op: AdvancedSubtensor, node: Node, forms: PerRecordForms, number: TensorVariable) -> Form:
    base, *flat = node.inputs
    index = _full_index(op, base, flat)
    layout = _layout(index)
    positions = _record_positions(node, index, layout, forms)
    rows = _common_rows(index, layout.arrays, forms)
    form = forms.get(base)

    if form is None:
        return PerRecord(layout.start + positions.pop(), rows)
    entry = index[form.axis]
    if (counted := _counted(entry, base.type.shape[form.axis])) is not None:
        position = layout.width - _ndim(entry) + counted  # base[arange(n), index of each record]
        if positions <= {position} and (not positions or same_rows(rows, form.rows)):
            return PerRecord(layout.start + position, form.rows)
    if positions:
        raise NotAdditiveError(f"{describe(node)} looks up other records' values")
    if isinstance(entry, slice):
        rows = form.rows if entry == slice(None) else _select(form, entry, number)
        return PerRecord(layout.place(index, form.axis), rows)
    if _ndim(entry) != 1 or layout.width != 1:
        raise NotAdditiveError(f"{describe(node)} rearranges the records")
    return PerRecord(layout.start, _select(form, entry, number))


@form_of_node.register(IncSubtensor)
def _(op: IncSubtensor, node: Node, forms: PerRecordForms, number: TensorVariable) -> Form:
    base, value, *flat = node.inputs
    index = _full_index(op, base, flat)
    kept = [axis for axis, entry in enumerate(index) if isinstance(entry, slice)]
    found: set[int] = set()
    if base in forms:
        found.add(forms[base].axis)
    if value in forms:  # the axis of `base` that the record axis of `value` is written to
        _refuse_spread(node, base, value, forms)
        found.add(kept[forms[value].axis + len(kept) - value.type.ndim])
    rows = [forms[var].rows for var in (base, value) if var in forms]
    axis = found.pop()
    if found or index[axis] != slice(None) or not all(same_rows(rows[0], r) for r in rows):
        raise NotAdditiveError(f"{describe(node)} writes records to other records' places")
    return PerRecord(axis, rows[0])


@form_of_node.register(AdvancedIncSubtensor)
def _(op: AdvancedIncSubtensor, node: Node, forms: PerRecordForms, number: TensorVariable) -> Form:
    base, value, *flat = node.inputs
    index = _full_index(op, base, flat)
    layout = _layout(index)
    positions = {layout.start + p for p in _record_positions(node, index, layout, forms)}
    all_rows = [form.rows for form in forms.values()]
    if not all(same_rows(all_rows[0], rows) for rows in all_rows):
        raise NotAdditiveError(f"{describe(node)} combines different selections of the records")
    if value in forms:  # counted in the axes of what is written to
        _refuse_spread(node, base, value, forms)
        positions.add(forms[value].axis + layout.ndim - value.type.ndim)
    for axis in range(base.type.ndim):
        if base not in forms or forms[base].axis == axis:
            counted = _counted(index[axis], base.type.shape[axis])
            if index[axis] == slice(None):  # every record's own part
                place = layout.place(index, axis)
            elif counted is not None:  # one-hot rows: base[arange(n), index of each record]
                place = layout.start + layout.width - _ndim(index[axis]) + counted
            else:
                continue
            if positions <= {place} and (positions or base in forms):
                return PerRecord(axis, all_rows[0])
    value_fits = value not in forms or forms[value] == PerRecord(0)
    counts = layout.arrays == [0] and _ndim(index[0]) == 1 and not op.set_instead_of_inc
    if not (counts and base not in forms and value_fits and all_rows[0] is None):
        raise NotAdditiveError(f"{describe(node)} writes records to other records' places")
    # a table of counts or sums: each record is added to the cell that its index names
    nothing = pt.zeros((number, *base.shape), dtype=node.outputs[0].dtype)
    return total(nothing[pt.arange(number), index[0]].inc(value), None, number)


def _refuse_spread(node: Node, base: Any, value: Any, forms: PerRecordForms) -> None:
    """Refuse a single record that is written to many places."""
    if value.type.shape[forms[value].axis] == 1 and 1 not in base.type.shape:
        raise NotAdditiveError(f"{describe(node)} broadcasts a single record along its axis")


class _Layout(NamedTuple):
    """Where index arrays put what they pick (NumPy's rules)."""

    arrays: list[int]  # indexed axes
    start: int  # their place in the result
    width: int  # how many axes they broadcast to
    ndim: int  # of the result

    def place(self, index: Index, axis: int) -> int:
        """Place in the result of an axis that is sliced."""
        before = sum(isinstance(i, slice) for i in index[:axis])
        return before + (self.width if self.start <= before else 0)


def _layout(index: Index) -> _Layout:
    arrays = [axis for axis, entry in enumerate(index) if not isinstance(entry, slice)]
    contiguous = arrays == list(range(arrays[0], arrays[-1] + 1))
    width = max(_ndim(index[axis]) for axis in arrays)
    return _Layout(arrays, arrays[0] if contiguous else 0, width, width + len(index) - len(arrays))


def _ndim(entry: Any) -> int:
    return getattr(entry.type, "ndim", 0)


def _record_positions(node: Node, index: Index, layout: _Layout, forms: PerRecordForms) -> set[int]:
    """Record axes of the index arrays, counted in the axes that they broadcast to."""
    involved = [index[axis] for axis in layout.arrays if index[axis] in forms]
    if any(entry.type.dtype == "bool" for entry in involved):
        raise NotAdditiveError(
            f"{describe(node)} picks records by what is in them: write pm.math.switch instead"
        )
    positions = {layout.width - _ndim(entry) + forms[entry].axis for entry in involved}
    if len(positions) > 1:
        raise NotAdditiveError(f"{describe(node)} pairs records with other records")
    return positions


def _common_rows(index: Index, arrays: list[int], forms: PerRecordForms) -> TensorVariable | None:
    rows = [forms[index[axis]].rows for axis in arrays if index[axis] in forms]
    if not all(same_rows(rows[0], r) for r in rows):
        raise NotAdditiveError("an index combines different selections of the records")
    return rows[0] if rows else None


def _counted(entry: Any, length: int | None) -> int | None:
    """Axis along which an index array counts 0, 1, ..., length - 1, one number a slice."""
    if isinstance(entry, slice) or length is None or entry.type.dtype == "bool":
        return None
    lengths = entry.type.shape
    axes = [axis for axis, static in enumerate(lengths) if static != 1]
    if length == 1 or len(axes) != 1 or lengths[axes[0]] not in (None, length):
        return None
    counts = entry
    while counts.owner is not None and isinstance(counts.owner.op, Reshape | DimShuffle):
        counts = counts.owner.inputs[0]
        if sum(static != 1 for static in counts.type.shape) != 1:  # a matrix could be turned
            return None
    if counts.owner is not None and isinstance(counts.owner.op, ARange):
        start, stop, step = counts.owner.inputs
        numbers = [_static_number(number) for number in (start, stop, step)]
        return axes[0] if numbers == [0, length, 1] else None
    if not isinstance(counts, Constant):
        return None
    return axes[0] if np.array_equal(np.ravel(counts.data), np.arange(length)) else None


def _static_number(var: Variable) -> int | None:
    """Value of a single number made of constants, or of the length of an axis, where known."""
    if var.owner is not None and isinstance(var.owner.op, Shape_i):
        return var.owner.inputs[0].type.shape[var.owner.op.i]
    if var.owner is not None and isinstance(var.owner.op, Subtensor):
        vector, *flat = var.owner.inputs
        if vector.owner is not None and isinstance(vector.owner.op, Shape):
            entry: Any = indices_from_subtensor(flat, var.owner.op.idx_list)[0]
            return vector.owner.inputs[0].type.shape[int(constant_value(entry))]
    try:
        return int(constant_value(var))
    except NotAdditiveError:
        return None
