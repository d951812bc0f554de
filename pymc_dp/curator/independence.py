"""Row i of a log-likelihood is a function of record i: read from the graph, then tried on numbers.

The proof decides. The trial is a second line, for operations that the user vouches for and against
mistakes in the rules.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.graph.basic import Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.tensor.basic import Alloc, ARange, Eye, MakeVector
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.reshape import SplitDims
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    Subtensor,
    indices_from_subtensor,
)

from pymc_dp.curator.confidential import as_written, record_arrays
from pymc_dp.graph.additivity import (
    Additive,
    NotAdditiveError,
    PerRecord,
    UnknownOperationError,
    per_record_forms,
)
from pymc_dp.graph.inner_graphs import is_foreign, with_parts
from pymc_dp.types import Variable

Rows = list[NDArray[Any]]

_COLUMNS = 4  # whose largest and smallest entries are changed by themselves


def refuse_mixed_records(
    names: str,
    logp: Variable,
    rows: Sequence[Variable],
    axes: Sequence[int],
    independent_records: bool,
    lengths: Collection[Variable] = (),
) -> bool:
    """Refuse a log-likelihood unless the graph tells that row i is a function of record i.

    Parameters
    ----------
    names : str
        Of the observed variables.
    logp : TensorVariable
        One entry for each record.
    rows : sequence of TensorVariable
        Arrays that hold the records, with their lengths.
    axes : sequence of int
        Which of their axes the records are.
    independent_records : bool
        The user vouches for operations that are not known here.
    lengths : collection of TensorVariable
        Numbers of records by other names, such as a named dimension's length.

    Returns
    -------
    bool
        Whether a record's place in the order matters.
    """
    known = dict(zip(rows, axes, strict=True))
    form = _refuse_mixed(names, logp, known, independent_records)
    if uses_number_of_records(logp, known, lengths):
        raise ValueError(
            f"The log-likelihood of {names} changes with the number of records, which one record "
            "more or less would change for all: write a number that is public in its place."
        )
    if form is not None and form.axis != 0:
        raise ValueError(_MIXED.format(names=names, reason="records are along another axis"))
    return uses_number_of_records(logp, known, lengths, by_place=True)


def _refuse_mixed(
    names: str,
    graph: Variable,
    axes: dict[Variable, int],
    vouched: bool,
    fixed: Collection[Variable] = (),
) -> PerRecord | None:
    """Refuse a graph unless it has one slice for each record, or none of them."""
    try:
        if not vouched:
            _refuse_foreign(graph, axes, fixed)
        form = per_record_forms(graph, axes, vouched, fixed).get(graph)
    except UnknownOperationError as error:
        if vouched:
            return None
        raise ValueError(
            f"The log-likelihood of {names} cannot be seen to keep records apart: {error}. Write "
            "it with other operations; or, if row i of the log-likelihood depends on row i of the "
            "data alone whatever the data, vouch for that by independent_records=True. Nothing "
            "is private if it is not so."
        ) from error
    except NotAdditiveError as error:
        raise ValueError(_MIXED.format(names=names, reason=error)) from error
    if isinstance(form, Additive) or (form is not None and form.rows is not None):
        reason = "they are added up, picked or put in another order"
        raise ValueError(_MIXED.format(names=names, reason=reason))
    return form


def _refuse_foreign(
    graph: Variable, records: Collection[Variable], fixed: Collection[Variable]
) -> None:
    """Refuse what others' operations do to records, in disguise too.

    That is as part of a known operation, or as one that is derived from it.
    """
    reached = set(records)
    for node in io_toposort([*records, *fixed], [graph]):
        if reached.isdisjoint(node.inputs):
            continue
        reached.update(node.outputs)
        for op in with_parts(node.op):
            if is_foreign(op):
                raise UnknownOperationError(
                    f"`{type(op).__name__}` is not one of PyTensor's or PyMC's operations"
                )


def uses_number_of_records(
    logp: Variable,
    axes: dict[Variable, int],
    named: Collection[Variable] = (),
    by_place: bool = False,
) -> bool:
    """Whether the length of the record axis enters as a number, not as a length.

    With `by_place`, whether a record's place in the order does: one record less, and all later ones
    are in other places.
    """
    try:
        forms: dict[Variable, Any] = per_record_forms(logp, axes, vouched=True)
    except NotAdditiveError:
        return False  # vouched for, and not to be read
    first, axis = next(iter(axes.items()))
    n_records = first.type.shape[axis]
    lengths: set[Variable] = set()  # all of an array's
    numbers: set[Variable] = set(named)  # made of the records'
    places: set[Variable] = set()  # made of the order of records
    long: set[Variable] = set()  # as many entries, all alike
    for node in FunctionGraph(outputs=[logp], clone=False).toposort():
        own = _is_own_length(node, forms, numbers)
        inputs = [var for i, var in enumerate(node.inputs) if not (_is_length(node.op, i) and own)]
        if isinstance(node.op, Shape) and node.inputs[0] in forms:
            lengths.add(node.outputs[0])
        elif isinstance(node.op, Shape_i):
            form = forms.get(node.inputs[0])
            if isinstance(form, PerRecord) and form.axis == node.op.i:
                numbers.add(node.outputs[0])
        elif isinstance(node.op, Elemwise) and set(inputs) <= lengths:
            lengths.add(node.outputs[0])  # a cast
        elif isinstance(node.op, Subtensor) and inputs[0] in lengths:
            numbers.update(node.outputs if _is_record_length(node, forms) else [])
        elif not (lengths | numbers).isdisjoint(inputs) or _counts(node, forms, n_records):
            numbers.update(node.outputs)
        elif not places.isdisjoint(_written(node, inputs, forms)) or (
            isinstance(node.op, ARange | Eye) and not numbers.isdisjoint(node.inputs)
        ):
            places.update(node.outputs)
        elif not set(node.outputs) <= forms.keys():
            if isinstance(node.op, Alloc) and not numbers.isdisjoint(node.inputs):
                long.update(node.outputs)
            elif not long.isdisjoint(inputs):
                same = isinstance(node.op, Elemwise | DimShuffle | SpecifyShape | Alloc)
                (long if same else places).update(node.outputs)
    return logp in numbers or (by_place and logp in places)


def _counts(node: Any, forms: dict[Variable, Any], n_records: int) -> bool:
    """Whether as many entries as there are records, which are not theirs, become one."""
    reduced = node.inputs[0]
    if not isinstance(node.op, CAReduce) or reduced in forms:
        return False
    over = range(reduced.type.ndim) if node.op.axis is None else node.op.axis
    made = (var.owner.op for var in ancestors([reduced]) if var.owner is not None)
    is_long = any(reduced.type.shape[axis] in (None, n_records) for axis in over)
    return is_long and any(isinstance(op, Alloc | ARange | Eye) for op in made)


def _written(node: Any, inputs: list[Variable], forms: dict[Variable, Any]) -> list[Variable]:
    """Leave out indices of rows that are each record's own."""
    if isinstance(node.op, AdvancedIncSubtensor):  # one-hot rows
        return inputs[:2]
    own = isinstance(node.op, AdvancedSubtensor) and node.inputs[0] in forms
    return inputs[:1] if own else inputs


def _is_length(op: Any, place: int) -> bool:
    """Whether an operation's input is but the length of what it makes."""
    if isinstance(op, Alloc | Reshape | SpecifyShape | SplitDims):
        return place > 0
    return isinstance(op, Shape | Shape_i | ARange | Eye)


def _is_own_length(node: Any, forms: dict[Variable, Any], numbers: set[Variable]) -> bool:
    """Whether a number of records among an array's new lengths is that of its axis of records.

    Elsewhere it decides how many entries of one record, or of no record, are where.
    """
    if not isinstance(node.op, Reshape | SplitDims) or numbers.isdisjoint(node.inputs[1:]):
        return True
    form, lengths = forms.get(node.outputs[0]), node.inputs[1].owner
    if not isinstance(form, PerRecord) or lengths is None or not isinstance(lengths.op, MakeVector):
        return False
    before = node.op.axis if isinstance(node.op, SplitDims) else 0
    return all(
        length not in numbers or (before + place == form.axis and _is_plain(length))
        for place, length in enumerate(lengths.inputs)
    )


def _is_plain(length: Variable) -> bool:
    """Whether a number is a length as it is, perhaps of another type."""
    while length.owner is not None and not isinstance(length.owner.op, Shape | Shape_i):
        if isinstance(length.owner.op, Elemwise) and len(length.owner.inputs) > 1:
            return False
        length = length.owner.inputs[0]
    return True


def _is_record_length(node: Any, forms: dict[Variable, Any]) -> bool:
    """Whether what is taken from an array's lengths is, or may be, that of the record axis."""
    vector = node.inputs[0]
    while not isinstance(vector.owner.op, Shape):
        vector = vector.owner.inputs[0]
    array = vector.owner.inputs[0]
    if isinstance(forms[array], Additive):  # a total has no axis of records
        return False
    entry: Any = indices_from_subtensor(node.inputs[1:], node.op.idx_list)[0]
    if not isinstance(getattr(entry, "data", None), int | np.integer | np.ndarray):
        return True
    return int(entry.data) % array.type.ndim == forms[array].axis


def refuse_mixed_constants(
    model: pm.Model, n_records: int, public: Collection[str], independent_records: bool
) -> None:
    """Refuse parameters of observed variables that mix records written as constants.

    PyMC has computed such constants by the time there is a log-likelihood.
    """
    for rv in model.observed_RVs:
        others = {other: 0 for other in model.observed_RVs if other is not rv}
        for graph in as_written(rv):
            sources, axes = record_arrays(graph, model, n_records, public)
            known = {
                source: axis
                for source, axis in zip(sources, axes, strict=True)
                if isinstance(source, Constant)
            }
            if known:
                axes_of = known | others
                _refuse_mixed(repr(rv.name), graph, axes_of, independent_records, model.free_RVs)


_MIXED = (
    "The log-likelihood of {names} mixes records ({reason}), so a single record's influence cannot "
    "be bounded: write the model so that row i is a function of record i, and compute means, "
    "scales, ranks and the like outside, from public information."
)


def check_records_apart(
    names: str,
    evaluate: Callable[[Rows], NDArray[np.float64]],
    data: Sequence[NDArray[Any]],
    axes: Sequence[int],
) -> None:
    """Change some records in several ways and see that the others' log-likelihood stays.

    Parameters
    ----------
    names : str
        Of the observed variables.
    evaluate : callable
        Log-likelihood of all records as a function of their arrays.
    data : sequence of ndarray
        These arrays.
    axes : sequence of int
        Which of their axes the records are.
    """
    n = data[0].shape[axes[0]]
    before = np.array(evaluate([np.ascontiguousarray(rows) for rows in data]))
    if before.shape != (n,):
        raise ValueError(
            f"The log-likelihood has shape {before.shape} for {n} records: write the model so that "
            "every observed variable's first axis is the records."
        )
    turned = [np.moveaxis(rows, axis, 0) for rows, axis in zip(data, axes, strict=True)]
    for stay, rows in _trials(turned):
        back = [np.moveaxis(array, 0, axis) for array, axis in zip(rows, axes, strict=True)]
        after = evaluate([np.ascontiguousarray(array) for array in back])
        if not np.allclose(before[stay], after[stay], 1e-9, 1e-9, equal_nan=True):
            raise ValueError(
                _MIXED.format(names=names, reason="one changes with another record's values")
            )


def _trials(data: Sequence[NDArray[Any]]) -> Iterator[tuple[Any, Rows]]:
    """Which records stay as they are, and all arrays with the others changed.

    Records are along the first axis. Every record is among the changed ones and among those that
    stay. Arrays are changed in place, and good until the next trial.
    """
    n = len(data[0])
    even, odd = slice(0, None, 2), slice(1, None, 2)
    changed = [rows.copy() for rows in data]
    beyond = [_beyond(rows) for rows in data]
    for some, others in ((even, odd), (odd, even)):
        for rows, kept in zip(changed, data, strict=True):
            rows[some] = np.roll(kept[some], 1, axis=0)  # values of others
        yield others, changed
        for rows, kept, change in zip(changed, data, beyond, strict=True):
            rows[some] = change(kept[some])
        yield others, changed
        for rows, kept in zip(changed, data, strict=True):
            rows[some] = kept[some][:1]  # all alike
        yield others, changed
        for rows, kept in zip(changed, data, strict=True):
            rows[some] = kept[some]
    extremes = _extreme_records(data)
    for record in extremes:
        stay = np.arange(n) != record
        for rows, kept, change in zip(changed, data, beyond, strict=True):
            rows[record] = change(kept[record])
        yield stay, changed
        for rows, kept in zip(changed, data, strict=True):
            rows[record] = kept[record - 1]  # what stood out is gone
        yield stay, changed
        for rows, kept in zip(changed, data, strict=True):
            rows[record] = kept[record]
    for record in extremes[:3]:
        for rows, kept in zip(changed, data, strict=True):
            rows[:] = kept[record]
        yield slice(record, record + 1), changed


def _beyond(rows: NDArray[Any]) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """Move values beyond all others, or integers and the like to the other end of their range."""
    if rows.dtype.kind == "b":
        return np.logical_not
    if rows.dtype.kind == "f":
        finite = rows[np.isfinite(rows)]
        shift = 10 * np.ptp(finite) + 1 if finite.size else 1.0
        return lambda some: 3 * some + shift
    lowest, highest = rows.min(axis=0), rows.max(axis=0)
    return lambda some: lowest + (highest - some)


def _extreme_records(data: Sequence[NDArray[Any]]) -> list[int]:
    """Find records with the largest or smallest entry of some columns, and the first."""
    columns = [rows.reshape(len(rows), -1).T for rows in data]
    by_turns = [column for turn in zip_longest(*columns) for column in turn if column is not None]
    found = [0]
    for column in by_turns[:_COLUMNS]:
        found += [int(np.argmin(column)), int(np.argmax(column))]
    return list(dict.fromkeys(found))


def with_lengths(sources: Sequence[Variable], shapes: Sequence[tuple[int, ...]]) -> list[Variable]:
    """Make inputs in place of arrays, which know their lengths."""
    return [
        pt.tensor(dtype=source.type.dtype, shape=shape)
        for source, shape in zip(sources, shapes, strict=True)
    ]
