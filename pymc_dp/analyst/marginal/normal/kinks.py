"""Where what a record adds is not smooth: clamps, comparisons, rounding.

Integrals are only cheap between such places. They are found on numbers, whatever way the clamp was
written: every operation that has a kink is a function of the record which changes its sign there.
Those that involve parameters, or several record variables, are not found; the error of an integral
over them is measured like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.graph.traversal import ancestors
from pytensor.scalar import basic as ps
from pytensor.tensor.elemwise import Elemwise

from pymc_dp.analyst.marginal.normal.places import NoNodesError
from pymc_dp.analyst.marginal.normal.tails import growth, tail_index
from pymc_dp.analyst.precision import check_double
from pymc_dp.graph.additivity import PerRecord, direct_inputs, per_record_forms
from pymc_dp.graph.intervals import ONCE
from pymc_dp.graph.rows import on_rows
from pymc_dp.types import Array, Matrix, Variable

__all__ = ["kinks_of", "on_numbers"]

_MOST = 64
#: of a power that is found on numbers
_ROUNDING = 1e-6
_sizes = np.geomspace(1e-9, 1e15, 1200)
_GRID = np.concatenate([-_sizes[::-1], [0.0], _sizes])


def on_numbers(
    outputs: Sequence[tuple[Variable, int]], record: Variable, index: NDArray[np.int64]
) -> Callable[[Array], list[NDArray]]:
    """Make a function of numbers: values of one record variable, for the records in `index`."""
    value = pt.vector("x")
    rest = [1] * (record.type.ndim - 1)  # all numbers of a record at once, if it has several
    whole = value.reshape((-1, *rest)) * np.ones((1, *record.type.shape[1:]))
    taken = on_rows(outputs, {record: whole.astype(record.dtype)}, index)
    graphs = [pt.moveaxis(g, axis, 0) for g, (_, axis) in zip(taken, outputs, strict=True)]
    function = pytensor.function([value], graphs, mode=ONCE, on_unused_input="ignore")

    def evaluate(x: Array) -> list[NDArray]:
        return [np.broadcast_to(f, (len(index), *f.shape[1:])) for f in function(x)]

    return evaluate


def kinks_of(
    contributions: Sequence[Variable],
    records: Sequence[Variable],
    record: Variable,
    parameters: Sequence[Variable],
    index: NDArray[np.int64],
) -> Matrix:
    """Places where contributions are not smooth in one record variable.

    Returns
    -------
    array, shape (len(index), number of places)
        Sorted, a row for each record in `index`; infinite where a record has fewer.
    """
    check_double([*records, *parameters])
    _check_variance(contributions, records, record, parameters, index)
    switches = []
    for contribution in contributions:
        forms = per_record_forms(contribution, dict.fromkeys(records, 0), fixed=parameters)
        for var in list(forms):
            if var.owner is not None and isinstance(var.owner.op, Elemwise):
                for graph in _switches(var.owner):
                    form = forms.get(graph) or per_record_forms(
                        graph, dict.fromkeys(records, 0), fixed=parameters
                    ).get(graph)
                    reached = set(ancestors([graph], blockers={*records, *parameters}))
                    if isinstance(form, PerRecord) and reached & {*records, *parameters} == {
                        record
                    }:
                        switches.append((graph, form.axis))
    if not switches:
        return np.zeros((len(index), 0))
    with np.errstate(all="ignore"):
        return _sign_changes(switches, record, index)


def _check_variance(
    contributions: Sequence[Variable],
    records: Sequence[Variable],
    record: Variable,
    parameters: Sequence[Variable],
    index: NDArray[np.int64],
) -> None:
    """Refuse records without a variance, of which sums are not normal however many there are."""
    index_of_tail = tail_index(record)
    reached = direct_inputs(contributions, [*records, *parameters])
    if index_of_tail is None or set(reached) != {record}:
        return
    outputs = [(contribution, 0) for contribution in contributions]
    if 2 * growth(on_numbers(outputs, record, index), len(index)) < index_of_tail - _ROUNDING:
        return
    raise NoNodesError(
        f"what a record of {record.name!r} adds has infinite variance, so that sums of it are not "
        f"normal: clamp it, pmdp.clamp({record.name}, low, high)."
    )


def _switches(node: Any) -> list[Variable]:
    """Functions that change their sign where an operation has a kink or jumps."""
    op, inputs = node.op.scalar_op, [inp.astype("float64") for inp in node.inputs]
    match op:
        case ps.Clip():
            return [inputs[0] - inputs[1], inputs[0] - inputs[2]]
        case ps.ScalarMaximum() | ps.ScalarMinimum() | ps.LogicalComparison():
            return [inputs[0] - inputs[1]]
        case ps.Abs() | ps.Sign():
            return [inputs[0]]
        case ps.Floor() | ps.Ceil() | ps.Trunc():
            return [pt.sin(np.pi * inputs[0])]
        case ps.RoundHalfToEven() | ps.RoundHalfAwayFromZero():
            return [pt.cos(np.pi * inputs[0])]
    return []


def _sign_changes(
    switches: Sequence[tuple[Variable, int]], record: Variable, index: NDArray[np.int64]
) -> Matrix:
    """Bracket sign changes on a wide grid, then halve the brackets to the last bit."""
    table = np.repeat(index, _GRID.size)
    places: list[list[float]] = [[] for _ in index]
    for switch in switches:
        [values] = on_numbers([switch], record, table)(np.tile(_GRID, len(index)))
        signs = np.sign(np.nan_to_num(values)).reshape(len(index), _GRID.size, -1)
        rows, left, column = np.nonzero(signs[:, 1:] != signs[:, :-1])
        if not rows.size or rows.size > _MOST * len(index):
            continue
        before = signs[rows, left, column]
        low, high = _GRID[left], _GRID[left + 1]
        evaluate = on_numbers([switch], record, index[rows])
        for _ in range(110):
            middle = 0.5 * (low + high)
            found = np.sign(np.nan_to_num(evaluate(middle)[0])).reshape(rows.size, -1)
            same = found[np.arange(rows.size), column] == before
            low, high = np.where(same, middle, low), np.where(same, high, middle)
        for row, place in zip(rows, high, strict=True):
            places[row].append(0.0 if abs(place) < _sizes[0] else float(f"{place:.14g}"))
    unique = [np.unique(p) for p in places]
    width = max(map(len, unique))
    return np.array([np.pad(u, (0, width - len(u)), constant_values=np.inf) for u in unique])
