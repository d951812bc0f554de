"""How much can one record move a statistic? Derived from its graph, where bounds allow.

Records with few possible values are enumerated, which is exact. Otherwise intervals are carried
from the clamps through the graph of a record's contribution (:mod:`pymc_dp.graph.intervals`): a
valid upper bound, not always the tightest, because an interval forgets what two components share.
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
from pytensor.tensor.variable import TensorVariable

from pymc_dp.graph.intervals import ONCE, UnboundedError, bounds, rows_are_alike, unknowns
from pymc_dp.graph.support import small_support
from pymc_dp.mechanisms import Guarantee, Mechanism, PrivacyWarning

__all__ = ["Sensitivity", "check_declared", "derive_sensitivities", "derive_sensitivity"]

#: how many different records are enumerated at the most
_MOST_RECORDS = 1500
#: how many numbers this may take
_MOST_CELLS = 20_000_000


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
    in_noise : tuple of float, optional
        l1 and l2 of the changes over the noise parameter of their component, where noise was given.
    """

    l1: float
    l2: float
    exact: bool
    components: NDArray[np.float64]
    components_exact: bool
    in_noise: tuple[float, float] | None = None

    def __str__(self) -> str:
        relation = "" if self.exact else "at most "
        return f"l1 {relation}{self.l1:.6g}, l2 {relation}{self.l2:.6g}"

    def norm(self, order: int) -> float:
        """Return l1 or l2, by number."""
        return self.l1 if order == 1 else self.l2

    def guarantee(self, mechanism: Mechanism) -> Guarantee:
        """Guarantee of a mechanism on this statistic, all components together.

        With a noise parameter for every component, that is the greatest change in units of the
        noise, not the greatest change over the least noise.
        """
        assert mechanism.norm is not None
        if self.in_noise is None:
            return mechanism.guarantee(self.norm(mechanism.norm))
        # the guarantee for one number is that number over the least noise
        return mechanism.guarantee(self.in_noise[mechanism.norm - 1] * mechanism.noise.min())

    def guarantee_text(self, mechanism: Mechanism) -> str:
        """Say the guarantee, and whether it is exact."""
        relation = "" if self.exact else "at most "
        return f"{relation}{self.guarantee(mechanism)}"


def derive_sensitivity(
    contributions: TensorVariable,
    records: list[TensorVariable],
    relation: str = "replace",
    noise: NDArray[np.float64] | None = None,
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
    noise : array, optional
        Noise parameter of the components, for `Sensitivity.in_noise`.

    Returns
    -------
    Sensitivity or str
        The reason where it cannot be derived.
    """
    return derive_sensitivities(contributions, records, (relation,), noise)[0]


def derive_sensitivities(
    contributions: TensorVariable,
    records: list[TensorVariable],
    relations: Sequence[str] = ("replace", "add_remove"),
    noise: NDArray[np.float64] | None = None,
) -> list[Sensitivity | str]:
    """Return the same for several kinds of neighbours, the contributions looked at once."""
    if unknown := unknowns(contributions, records):
        names = ", ".join(map(repr, unknown))
        return [f"it depends on {names} besides the records"] * len(relations)
    alike = rows_are_alike(contributions, records) and None not in contributions.type.shape
    width = int(np.prod(contributions.type.shape[1:])) if alike else -1
    n = -1 if alike else contributions.shape[0]
    flat = contributions.reshape((n, width)).astype("float64")
    noise = None if noise is None else _of_components(noise, contributions)
    rows = _all_contributions(flat, records, alike)
    if rows is not None:
        return [_from_rows(rows, relation, noise) for relation in relations]
    try:
        found = bounds(flat, records, rows=1 if alike else None)
    except UnboundedError as err:
        return [str(err)] * len(relations)
    return [_from_bounds(*found, relation, noise) for relation in relations]


def _from_bounds(
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
    attained: bool,
    separate: bool,
    relation: str,
    noise: NDArray[np.float64] | None,
) -> Sensitivity | str:
    """Sensitivity from the range of what each record adds, of shape (records, components)."""
    by_row = upper - lower if relation == "replace" else np.maximum(np.abs(lower), np.abs(upper))
    l1, l2 = _norms(by_row)
    if not np.isfinite(l1):
        return "one record can move it without bound: clamp the records first"
    exact = separate or (attained and by_row.shape[1] == 1)
    in_noise = None if noise is None else _norms(by_row / noise)
    return Sensitivity(l1, l2, exact, by_row.max(axis=0), attained, in_noise)


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
    flat: TensorVariable, records: list[TensorVariable], alike: bool
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

    if alike:  # one table with all the different records as its rows
        inputs = [pt.tensor(dtype=rv.dtype, shape=(None, *rv.type.shape[1:])) for rv in records]
    else:
        inputs = [rv.type() for rv in records]
    given: dict[Any, Any] = dict(zip(records, inputs, strict=True))
    graph = clone_replace(flat, given, rebuild_strict=False)
    evaluate = pytensor.function(inputs, graph, on_unused_input="ignore", mode=ONCE)
    n = int(records[0].type.shape[0])
    ends = np.cumsum(cells)[:-1]

    def contributions_of(rows: NDArray) -> NDArray:
        parts = np.split(rows, ends, axis=1)
        tables = [
            part.reshape((len(rows), *rv.type.shape[1:])).astype(rv.dtype)
            for part, rv in zip(parts, records, strict=True)
        ]
        return evaluate(*tables)

    if alike:
        return np.unique(contributions_of(table), axis=0)[:, None]
    if len(table) * n > _MOST_CELLS:
        return None
    # the contributions of tables in which all records have the same values
    found = np.array([contributions_of(np.repeat(row[None], n, axis=0)) for row in table])
    if np.all(found == found[:, :1]):  # what a record adds does not depend on which one it is
        return np.unique(found[:, 0], axis=0)[:, None]
    return found if len(table) * found.size <= _MOST_CELLS else None


def _from_rows(
    rows: NDArray[np.float64], relation: str, noise: NDArray[np.float64] | None
) -> Sensitivity:
    """Sensitivity from all that a record can add, of shape (possibilities, records, components)."""
    others = rows if relation == "replace" else np.zeros_like(rows[:1])
    greatest, in_noise = np.zeros(2), np.zeros(2)
    components = np.zeros(rows.shape[-1])
    for other in others:
        change = np.abs(rows - other)
        greatest = np.maximum(greatest, _norms(change))
        components = np.maximum(components, change.max(axis=(0, 1)))
        if noise is not None:
            in_noise = np.maximum(in_noise, _norms(change / noise))
    l1, l2 = map(float, greatest)
    together = None if noise is None else (float(in_noise[0]), float(in_noise[1]))
    return Sensitivity(l1, l2, True, components, True, together)


def _norms(change: NDArray[np.float64]) -> tuple[float, float]:
    """Greatest l1 and l2 norm of changes along the last axis."""
    return float(change.sum(axis=-1).max()), float(np.sqrt((change**2).sum(axis=-1)).max())


def _of_components(
    noise: NDArray[np.float64], contributions: TensorVariable
) -> NDArray[np.float64]:
    """Noise parameters of a statistic's components, flat."""
    if noise.size == 1:
        return noise.reshape(1)
    shape = contributions.type.shape[1:]
    if None in shape:
        shape = tuple(int(size) for size in contributions.shape[1:].eval(mode=ONCE))
    return np.broadcast_to(noise, shape).ravel()
