"""Exact totals of categorical records: which can be honoured, and records that agree with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.blocking import PointType
from pytensor.graph.replace import graph_replace
from pytensor.tensor.variable import TensorVariable

from pymc_dp.analyst.records import RecordBlock, length_of
from pymc_dp.graph.additivity import direct_inputs
from pymc_dp.graph.intervals import ONCE, unknowns
from pymc_dp.graph.support import small_support
from pymc_dp.mechanisms import Exact

__all__ = ["ExactTotals", "check_totals"]

_CAN = (
    "RecordGibbs can honour exact totals that count the records in one or more groups of "
    "categories of one categorical or Bernoulli variable of shape (n,), no record in two groups"
)


def check_totals(
    name: str,
    records: list[TensorVariable],
    contributions: TensorVariable | None,
    released: NDArray,
) -> None:
    """Refuse exact totals that RecordGibbs cannot honour, or that no records can have."""
    if contributions is None or len(records) != 1 or small_support(records[0]) is None:
        raise ValueError(f"The statistic of {name!r} was released exactly. {_CAN}.")
    [record] = records
    groups = _groups(name, record, contributions)
    ExactTotals(name, str(record.name), groups).agreeing(length_of(record), released)


@dataclass(frozen=True)
class ExactTotals:
    """Totals of one record variable that were released without noise.

    Attributes
    ----------
    name : str
        The release.
    record : str
        The record variable's value in a point.
    groups : array, shape (categories, totals)
        Which total each category counts towards: rows of zeros and at most a one.
    """

    name: str
    record: str
    groups: NDArray[np.float64]

    @classmethod
    def of(cls, model: pm.Model, block: RecordBlock) -> ExactTotals | None:
        """Find those of a block; None where every release has noise."""
        for release, contributions in zip(block.releases, block.contributions, strict=True):
            if isinstance(release.mechanism, Exact) and release.rv in model.observed_RVs:
                [record] = direct_inputs([release.statistic], block.records)
                groups = _groups(release.name, record, contributions)
                return cls(release.name, str(model.rvs_to_values[record].name), groups)
        return None

    def start(self, point: PointType, released: NDArray) -> PointType:
        """Return a point whose records agree: the same one where they do already."""
        records = point[self.record]
        if np.array_equal(self.groups[records].sum(axis=0), np.ravel(released)):
            return point
        found = self.agreeing(len(records), released)
        return {**point, self.record: found.astype(records.dtype)}

    def agreeing(self, n: int, released: NDArray) -> NDArray[np.int64]:
        """Find categories of n records with the released totals."""
        totals = np.ravel(released).astype(int)
        outside = np.flatnonzero(self.groups.sum(axis=1) == 0)
        rest = n - totals.sum()
        if np.any(totals < 0) or rest < 0 or (rest > 0 and outside.size == 0):
            raise ValueError(
                f"The exact totals {totals} of {self.name!r} cannot be those of {n} records of "
                f"{self.record!r}."
            )
        values = np.repeat(np.argmax(self.groups == 1, axis=0), totals)
        return np.concatenate([values, np.repeat(outside[:1], rest)])


def _groups(name: str, record: Any, contributions: Any) -> NDArray[np.float64]:
    """Which total each category counts towards, where each counts towards one at the most."""
    support = small_support(record)
    refused = ValueError(f"The statistic of {name!r} was released exactly. {_CAN}.")
    if support is None or unknowns(contributions, [record]):
        raise refused
    flat = contributions.reshape((contributions.shape[0], -1)).astype("float64")
    rows = []
    for value in support:
        everywhere = pt.full((length_of(record),), value, dtype=record.dtype)
        [graph] = graph_replace([flat], {record: everywhere}, strict=False)
        added = pytensor.function([], graph, mode=ONCE)()
        same = bool(np.all(added == added[0]))
        if not same or not np.all(np.isin(added[0], (0, 1))) or added[0].sum() > 1:
            raise refused
        rows.append(added[0])
    return np.array(rows)
