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
from pytensor.tensor.variable import TensorVariable

from pymc_dp.analyst.marginal.values import finite_values
from pymc_dp.analyst.records import RecordBlock, length_of
from pymc_dp.graph.additivity import NotAdditiveError, direct_inputs
from pymc_dp.graph.intervals import ONCE, unknowns
from pymc_dp.graph.rows import distinct_rows, on_rows
from pymc_dp.graph.support import small_support
from pymc_dp.mechanisms import Exact

__all__ = ["ExactTotals", "check_totals", "sampled_with_records"]

_CAN = (
    "RecordGibbs can honour exact totals that count the records in one or more groups of "
    "categories of one categorical or Bernoulli variable of shape (n,), no record in two groups"
)
_COUNTED = (
    "others of records with finitely many values (pm.Categorical, pm.Bernoulli, pm.Binomial, "
    'pm.DiscreteUniform) by pmdp.marginalize(model, method="counts")'
)


def check_totals(
    name: str,
    records: list[TensorVariable],
    contributions: TensorVariable | None,
    released: NDArray,
) -> None:
    """Refuse exact totals that cannot be honoured, or that no records can have."""
    endless = [rv for rv in records if finite_values(rv) is None]
    if contributions is None or not records or endless:
        raise ValueError(f"The statistic of {name!r} was released exactly. {_CAN}; {_COUNTED}.")
    if len(records) > 1:
        return
    [record] = records
    groups = _groups(record, contributions)
    if groups is not None:
        ExactTotals(name, str(record.name), groups).shared_out(length_of(record), released)


def sampled_with_records(model: pm.Model, block: RecordBlock) -> bool:
    """Whether RecordGibbs can honour the exact totals of a block, if there are any."""
    exact = [
        (release, contributions)
        for release, contributions in zip(block.releases, block.contributions, strict=True)
        if isinstance(release.mechanism, Exact) and release.rv in model.observed_RVs
    ]
    if len(exact) > 1:
        return False
    for release, contributions in exact:
        used = direct_inputs([release.statistic], block.records)
        if len(used) > 1 or _groups(used[0], contributions) is None:
            return False
    return True


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
                used = direct_inputs([release.statistic], block.records)
                groups = _groups(used[0], contributions)
                if groups is None or not sampled_with_records(model, block):
                    raise ValueError(
                        f"The statistic of {release.name!r} was released exactly. {_CAN}; "
                        f"{_COUNTED}."
                    )
                record = used[0]
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
        categories, numbers = self.shared_out(n, released)
        return np.repeat(categories, numbers)

    def shared_out(self, n: int, released: NDArray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Find categories, and how many of n records each has, with the released totals."""
        totals = np.ravel(released).astype(int)
        outside = np.flatnonzero(self.groups.sum(axis=1) == 0)
        rest = n - totals.sum()
        if np.any(totals < 0) or rest < 0 or (rest > 0 and outside.size == 0):
            raise ValueError(
                f"The exact totals {totals} of {self.name!r} cannot be those of {n} records of "
                f"{self.record!r}."
            )
        categories = np.concatenate([np.argmax(self.groups == 1, axis=0), outside[:1]])
        return categories, np.concatenate([totals, [rest]])[: len(categories)]


def _groups(record: Any, contributions: Any) -> NDArray[np.float64] | None:
    """Which total each category counts towards; None where one counts towards several.

    Looked at for records that stand for all others: what each adds does not depend on covariates.
    """
    support = small_support(record)
    if support is None or record.type.ndim != 1 or unknowns(contributions, [record]):
        return None
    try:
        index, _ = distinct_rows([(contributions, 0)], [record], length_of(record))
        values = pt.constant(np.tile(np.array(support, dtype=record.dtype), len(index)))
        rows = np.repeat(index, len(support))
        [graph] = on_rows([(contributions, 0)], {record: values}, rows)
    except NotAdditiveError:
        return None
    added = pytensor.function([], graph.astype("float64"), mode=ONCE)()
    added = np.broadcast_to(added, (len(rows), *added.shape[1:]))
    added = added.reshape(len(index), len(support), -1)
    same = bool(np.all(added == added[0]))
    if not same or not np.all(np.isin(added, (0, 1))) or np.any(added[0].sum(axis=1) > 1):
        return None
    return added[0]
