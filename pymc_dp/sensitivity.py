"""How much can one record move a statistic? Derived from its graph, where bounds allow.

Records with few possible values are enumerated, which is exact. Otherwise intervals are carried
from the clamps through the graph of a record's contribution (:mod:`pymc_dp.intervals`): a valid
upper bound, not always the tightest, because an interval forgets what two components share.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor
from numpy.typing import NDArray
from pytensor.graph.replace import clone_replace
from pytensor.tensor.random.basic import BernoulliRV, CategoricalRV
from pytensor.tensor.variable import TensorVariable

from pymc_dp.intervals import UnboundedError, bounds, unknowns

__all__ = ["Sensitivity", "derive_sensitivity"]

#: how many different records are enumerated at the most
_MOST_RECORDS = 1500


@dataclass(frozen=True)
class Sensitivity:
    """Greatest change of a statistic when one record is replaced by any other.

    Attributes
    ----------
    l1, l2 : float
        In the sum of absolute changes, which Laplace noise needs, and in the Euclidean norm,
        which Gaussian noise needs.
    exact : bool
        False for an upper bound.
    """

    l1: float
    l2: float
    exact: bool

    def __str__(self) -> str:
        relation = "" if self.exact else "at most "
        return f"l1 {relation}{self.l1:.6g}, l2 {relation}{self.l2:.6g}"


def derive_sensitivity(
    contributions: TensorVariable, records: list[TensorVariable]
) -> Sensitivity | str:
    """Sensitivity of a statistic to which each record adds its row of `contributions`.

    Returns
    -------
    Sensitivity or str
        The reason where it cannot be derived.
    """
    if unknown := unknowns(contributions, records):
        return f"it depends on {', '.join(map(repr, unknown))} besides the records"
    flat = contributions.reshape((contributions.shape[0], -1)).astype("float64")
    rows = _all_contributions(flat, records)
    if rows is not None:
        return _greatest_distance(rows)
    try:
        lower, upper, attained = bounds(flat, records)
    except UnboundedError as err:
        return str(err)
    width = np.asarray(upper - lower)
    l1, l2 = width.sum(axis=1).max(), np.sqrt((width**2).sum(axis=1)).max()
    if not np.isfinite(l1):
        return "one record can move it without bound: clamp the records first"
    return Sensitivity(float(l1), float(l2), exact=attained and width.shape[1] == 1)


def _all_contributions(
    flat: TensorVariable, records: list[TensorVariable]
) -> NDArray[np.float64] | None:
    """Enumerate what a record can add; None where there are too many or it depends on the row."""
    supports = [_support(rv) for rv in records]
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
    evaluate = pytensor.function(inputs, graph, on_unused_input="ignore")
    n = records[0].type.shape[0]
    ends = np.cumsum(cells)[:-1]

    def at(rows: NDArray) -> NDArray:
        parts = np.split(rows, ends, axis=1)
        return evaluate(
            *(
                p.reshape(rv.type.shape).astype(rv.dtype)
                for p, rv in zip(parts, records, strict=True)
            )
        )

    same = at(np.repeat(table[:1], n, axis=0))
    if not np.allclose(same, same[0]):
        return None
    padded = np.concatenate([table, np.repeat(table[:1], -len(table) % n, axis=0)])
    found = np.concatenate([at(padded[i : i + n]) for i in range(0, len(padded), n)])
    return np.unique(found, axis=0)


def _support(rv: TensorVariable) -> range | None:
    """Values of a discrete variable with a small, known support."""
    if isinstance(rv.owner.op, BernoulliRV):
        return range(2)
    if isinstance(rv.owner.op, CategoricalRV):
        k = rv.owner.op.dist_params(rv.owner)[0].type.shape[-1]
        return None if k is None else range(k)
    return None


def _greatest_distance(rows: NDArray[np.float64]) -> Sensitivity:
    distances = [np.abs(rows - row) for row in rows]
    l1 = max(float(d.sum(axis=1).max()) for d in distances)
    l2 = max(float(np.sqrt((d**2).sum(axis=1)).max()) for d in distances)
    return Sensitivity(l1, l2, exact=True)
