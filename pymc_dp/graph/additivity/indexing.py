"""Indexing of, and by, each record's own values: rules registered with the other operations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.basic import ARange
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
    arrays = [axis for axis, entry in enumerate(index) if not isinstance(entry, slice)]
    contiguous = arrays == list(range(arrays[0], arrays[-1] + 1))
    #: the indexed axes' place in the result, and how many there are (NumPy's rules)
    start = arrays[0] if contiguous else 0
    width = max(_ndim(index[axis]) for axis in arrays)
    positions = _record_positions(index, arrays, forms, width)
    form = forms.get(base)

    if form is None:
        if len(positions) != 1:
            raise NotAdditiveError(f"{describe(node)} pairs records with other records")
        return PerRecord(start + positions.pop(), _common_rows(index, arrays, forms))
    entry = index[form.axis]
    if positions:  # base[arange(n), index of each record]
        if not _is_arange(entry) or positions != {width - 1}:
            raise NotAdditiveError(f"{describe(node)} looks up other records' values")
        return PerRecord(start + width - 1, form.rows)
    if isinstance(entry, slice):
        rows = form.rows if entry == slice(None) else _select(form, entry, number)
        before = sum(isinstance(i, slice) for i in index[: form.axis])
        return PerRecord(before + (width if start <= before else 0), rows)
    if _ndim(entry) != 1 or width != 1:
        raise NotAdditiveError(f"{describe(node)} rearranges the records")
    return PerRecord(start, _select(form, entry, number))


@form_of_node.register(IncSubtensor)
def _(op: IncSubtensor, node: Node, forms: PerRecordForms, number: TensorVariable) -> Form:
    base, value, *flat = node.inputs
    index = _full_index(op, base, flat)
    kept = [axis for axis, entry in enumerate(index) if isinstance(entry, slice)]
    found: set[int] = set()
    if base in forms:
        found.add(forms[base].axis)
    if value in forms:  # the axis of `base` that the record axis of `value` is written to
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
    arrays = [axis for axis, entry in enumerate(index) if not isinstance(entry, slice)]
    value_form = forms.get(value)
    value_fits = value_form is None or (value_form.axis == 0 and value_form.rows is None)
    if _is_arange(index[0]) and value_fits:  # one-hot rows: base[arange(n), index of each record]
        positions = _record_positions(index, arrays, forms, 1)
        if positions <= {0} and (base not in forms or forms[base].axis == 0):
            return PerRecord(0)
    counts = arrays == [0] and _ndim(index[0]) == 1 and not op.set_instead_of_inc
    if not (counts and base not in forms and value_fits):
        raise NotAdditiveError(f"{describe(node)} writes records to other records' places")
    # a table of counts or sums: each record is added to the cell that its index names
    nothing = pt.zeros((number, *base.shape), dtype=node.outputs[0].dtype)
    return total(nothing[pt.arange(number), index[0]].inc(value), None, number)


def _ndim(entry: Any) -> int:
    return getattr(entry.type, "ndim", 0)


def _record_positions(
    index: Index, arrays: list[int], forms: PerRecordForms, width: int
) -> set[int]:
    """Record axes of the index arrays, counted in the axes that they broadcast to."""
    return {
        width - _ndim(index[axis]) + forms[index[axis]].axis
        for axis in arrays
        if index[axis] in forms
    }


def _common_rows(index: Index, arrays: list[int], forms: PerRecordForms) -> TensorVariable | None:
    rows = [forms[index[axis]].rows for axis in arrays if index[axis] in forms]
    if not all(same_rows(rows[0], r) for r in rows):
        raise NotAdditiveError("an index combines different selections of the records")
    return rows[0]


def _is_arange(entry: Any) -> bool:
    """Whether an index array counts 0, 1, 2, ..."""
    if isinstance(entry, slice) or _ndim(entry) != 1:
        return False
    if entry.owner is not None and isinstance(entry.owner.op, ARange):
        start, _, step = entry.owner.inputs
        return constant_value(start) == 0 and constant_value(step) == 1
    try:
        values = np.asarray(constant_value(entry))
    except NotAdditiveError:
        return False
    return bool(np.array_equal(values, np.arange(len(values))))
