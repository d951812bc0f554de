"""How much can one record move a statistic? Derived from its graph, where bounds allow.

Records with few possible values are enumerated, which is exact. Otherwise intervals are carried
from the clamps through the graph of a record's contribution (:mod:`pymc_dp.graph.intervals`): a valid
upper bound, not always the tightest, because an interval forgets what two components share.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import io_toposort
from pytensor.tensor.basic import Alloc, Join, MakeVector
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor
from pytensor.tensor.variable import TensorVariable

from pymc_dp.analyst.records import small_support
from pymc_dp.graph.intervals import ONCE, UnboundedError, bounds, unknowns
from pymc_dp.mechanisms import Mechanism, PrivacyWarning

__all__ = ["Sensitivity", "check_declared", "derive_sensitivities", "derive_sensitivity"]

#: how many different records are enumerated at the most
_MOST_RECORDS = 1500
#: how many numbers this may take
_MOST_CELLS = 20_000_000


#: operations that have nothing to do with which record is which
_ON_ALL = (
    Alloc, CAReduce, DimShuffle, Dot, Elemwise, Join, JoinDims, MakeVector, Reshape, SpecifyShape,
    SplitDims,
)  # fmt: skip


@dataclass(frozen=True)
class Sensitivity:
    """Greatest change of a statistic between neighbouring tables of records.

    Attributes
    ----------
    l1, l2 : float
        In the sum of absolute changes, which Laplace noise needs, and in the Euclidean norm,
        which Gaussian noise needs.
    exact : bool
        False for an upper bound.
    components : array
        Greatest change of every component by itself.
    components_exact : bool
        False where these are upper bounds.
    """

    l1: float
    l2: float
    exact: bool
    components: NDArray[np.float64]
    components_exact: bool

    def __str__(self) -> str:
        relation = "" if self.exact else "at most "
        return f"l1 {relation}{self.l1:.6g}, l2 {relation}{self.l2:.6g}"

    def norm(self, order: int) -> float:
        """Return l1 or l2, by number."""
        return self.l1 if order == 1 else self.l2


def derive_sensitivity(
    contributions: TensorVariable, records: list[TensorVariable], relation: str = "replace"
) -> Sensitivity | str:
    """Sensitivity of a statistic to which each record adds its row of `contributions`.

    Parameters
    ----------
    contributions : TensorVariable
        What each record adds, of shape (n, *statistic.shape).
    records : list of TensorVariable
        The record variables.
    relation : {"replace", "add_remove"}
        Which tables are neighbours: those that differ in the values of one record, or those of
        which one has a record more.

    Returns
    -------
    Sensitivity or str
        The reason where it cannot be derived.
    """
    return derive_sensitivities(contributions, records, (relation,))[0]


def derive_sensitivities(
    contributions: TensorVariable,
    records: list[TensorVariable],
    relations: Sequence[str] = ("replace", "add_remove"),
) -> list[Sensitivity | str]:
    """Return the same for several kinds of neighbours, the contributions looked at once."""
    if unknown := unknowns(contributions, records):
        names = ", ".join(map(repr, unknown))
        return [f"it depends on {names} besides the records"] * len(relations)
    flat = contributions.reshape((contributions.shape[0], -1)).astype("float64")
    rows = _all_contributions(flat, records)
    if rows is not None:
        return [_from_rows(rows, relation) for relation in relations]
    try:
        found = bounds(flat, records)
    except UnboundedError as err:
        return [str(err)] * len(relations)
    return [_from_bounds(*found, relation) for relation in relations]


def _from_bounds(
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
    attained: bool,
    separate: bool,
    relation: str,
) -> Sensitivity | str:
    """Sensitivity from the range of what each record adds, of shape (records, components)."""
    by_row = upper - lower if relation == "replace" else np.maximum(np.abs(lower), np.abs(upper))
    l1, l2 = by_row.sum(axis=1).max(), np.sqrt((by_row**2).sum(axis=1)).max()
    if not np.isfinite(l1):
        return "one record can move it without bound: clamp the records first"
    exact = separate or (attained and by_row.shape[1] == 1)
    return Sensitivity(float(l1), float(l2), exact, by_row.max(axis=0), attained)


def check_declared(
    name: str, mechanism: Mechanism, contributions: TensorVariable, records: list[TensorVariable]
) -> None:
    """Warn where the declared sensitivity of a release is too small, as far as that is certain."""
    declared, order = mechanism.sensitivity, mechanism.norm
    if declared is None or order is None:
        return
    replace = derive_sensitivity(contributions, records)
    if not _exceeds(replace, declared, order):
        return
    assert isinstance(replace, Sensitivity)
    derived = replace.norm(order) if declared.ndim == 0 else replace.components
    remove = derive_sensitivity(contributions, records, "add_remove")
    if _exceeds(remove, declared, order):
        so = "The release is less private than its guarantee says."
    else:
        so = "It suffices for adding or removing a record: say which of the two is guaranteed."
    warnings.warn(
        f"The sensitivity declared for {name!r}, {declared}, is smaller than the l{order} "
        f"sensitivity {np.array2string(np.asarray(derived), precision=6)} of its statistic to "
        f"replacing one record. {so}",
        PrivacyWarning,
        stacklevel=3,
    )


def _exceeds(derived: Sensitivity | str, declared: NDArray[np.float64], order: int) -> bool:
    """Whether the true sensitivity is certainly larger than the declared one."""
    if isinstance(derived, str):
        return False
    slack = 1 + 1e-9
    if declared.ndim == 0:
        return derived.exact and derived.norm(order) > float(declared) * slack
    if derived.components.size != declared.size:
        return False
    return derived.components_exact and bool(np.any(derived.components > declared.ravel() * slack))


def _all_contributions(
    flat: TensorVariable, records: list[TensorVariable]
) -> NDArray[np.float64] | None:
    """Enumerate what a record can add, (possibilities, records, components); None if too many."""
    supports = [small_support(rv) for rv in records]
    if None in supports or any(None in rv.type.shape for rv in records):
        return None
    cells = [int(np.prod(rv.type.shape[1:])) for rv in records]
    values = [s for s, c in zip(supports, cells, strict=True) for _ in range(c) if s is not None]
    if np.prod([float(len(s)) for s in values]) > _MOST_RECORDS:
        return None
    table = np.array(list(itertools.product(*values)))

    inputs = [rv.type() for rv in records]
    given: dict[Any, Any] = dict(zip(records, inputs, strict=True))
    graph = clone_replace(flat, given, rebuild_strict=False)
    evaluate = pytensor.function(inputs, graph, on_unused_input="ignore", mode=ONCE)
    n = int(records[0].type.shape[0])
    if len(table) * n > _MOST_CELLS:
        return None
    ends = np.cumsum(cells)[:-1]

    def added(rows: NDArray) -> NDArray:
        """Contributions of records with these values, one record a row."""
        parts = np.split(rows, ends, axis=1)
        shaped = [p.reshape(rv.type.shape) for p, rv in zip(parts, records, strict=True)]
        return evaluate(*(v.astype(rv.dtype) for v, rv in zip(shaped, records, strict=True)))

    if (alike := _of_any_record(flat, records, table, added)) is not None:
        return np.unique(alike, axis=0)[:, None]
    found = np.array([added(np.repeat(row[None], n, axis=0)) for row in table])
    if np.all(found == found[:, :1]):  # what a record adds does not depend on which one it is
        return np.unique(found[:, 0], axis=0)[:, None]
    return found if len(table) * found.size <= _MOST_CELLS else None


def _of_any_record(
    flat: TensorVariable, records: list[TensorVariable], table: NDArray, added: Any
) -> NDArray[np.float64] | None:
    """Compute what a record adds for each row of `table`, where all records are alike.

    So it is where whatever the records are combined with is the same for all of them. Some tables
    in which all possible values occur then tell what would take one table for each.
    """
    n, size = int(records[0].type.shape[0]), len(table)
    if n < size or not _combined_with_the_same(flat, records, n):
        return None
    seen: NDArray[np.float64] | None = None
    for shift in range(min(3, size)):
        which = (np.arange(n) + shift) % size
        found = added(table[which])
        seen = found[np.argsort(which[:size])] if seen is None else seen
        if not np.array_equal(found, seen[which]):
            return None
    return seen


def _combined_with_the_same(flat: TensorVariable, records: list[TensorVariable], n: int) -> bool:
    """Whether operations on the records leave none out, and use the same numbers for all."""
    involved: set[Any] = set(records)
    others: list[Any] = []
    for node in io_toposort(records, [flat]):
        if isinstance(node.op, Shape | Shape_i):
            continue
        if any(var in involved for var in node.inputs):
            if not _keeps_all(node, involved, n):
                return False
            involved.update(node.outputs)
            others += [v for v in node.inputs if v not in involved and hasattr(v.type, "ndim")]
    zeros: dict[Any, Any] = {rv: pt.zeros(rv.type.shape, rv.dtype) for rv in records}
    graphs = clone_replace(others, zeros, rebuild_strict=False)
    for value in pytensor.function([], graphs, mode=ONCE)():
        for axis in np.flatnonzero(np.asarray(np.shape(value)) == n):
            if np.any(value != np.take(value, [0], axis)):
                return False
    return True


def _keeps_all(node: Any, involved: set[Any], n: int) -> bool:
    """Whether an operation treats all records alike, but for the numbers it combines them with."""
    if isinstance(node.op, AdvancedSubtensor):  # records that choose from a table
        return node.inputs[0] not in involved
    if isinstance(node.op, Subtensor):
        axes = zip(node.op.idx_list, node.inputs[0].type.shape, strict=False)
        return all(index == slice(None) or length not in (n, None) for index, length in axes)
    return isinstance(node.op, _ON_ALL)


def _from_rows(rows: NDArray[np.float64], relation: str) -> Sensitivity:
    """Sensitivity from all that a record can add, of shape (possibilities, records, components)."""
    others = rows if relation == "replace" else np.zeros_like(rows[:1])
    l1 = l2 = 0.0
    components = np.zeros(rows.shape[-1])
    for other in others:
        change = np.abs(rows - other)
        l1 = max(l1, float(change.sum(axis=-1).max()))
        l2 = max(l2, float(np.sqrt((change**2).sum(axis=-1)).max()))
        components = np.maximum(components, change.max(axis=(0, 1)))
    return Sensitivity(l1, l2, True, components, True)
