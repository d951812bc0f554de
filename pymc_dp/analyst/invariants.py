"""Exact totals of categorical records: which can be honoured, and records that agree with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.graph.replace import graph_replace
from pytensor.tensor.variable import TensorVariable

from pymc_dp.analyst.records import length_of, small_support
from pymc_dp.graph.intervals import ONCE

__all__ = ["agreeing_records", "start_from_agreeing_records"]

_CAN = (
    "RecordGibbs can honour exact totals that count the records in one or more groups of "
    "categories of one categorical or Bernoulli variable of shape (n,), no record in two groups"
)


def start_from_agreeing_records(
    name: str,
    model: pm.Model,
    records: list[TensorVariable],
    contributions: TensorVariable | None,
    released: NDArray,
) -> None:
    """Give the records an initial value that agrees with exact totals."""
    if contributions is None or len(records) != 1 or small_support(records[0]) is None:
        raise ValueError(f"The statistic of {name!r} was released exactly. {_CAN}.")
    model.set_initval(records[0], agreeing_records(name, records[0], contributions, released))


def agreeing_records(
    name: str, record: TensorVariable, contributions: TensorVariable, released: NDArray
) -> NDArray:
    """Find categories for the records with the released totals."""
    table = _groups(name, record, contributions)
    n, totals = length_of(record), np.ravel(released).astype(int)
    outside = np.flatnonzero(table.sum(axis=1) == 0)
    rest = n - totals.sum()
    if np.any(totals < 0) or rest < 0 or (rest > 0 and outside.size == 0):
        raise ValueError(
            f"The exact totals {totals} of {name!r} cannot be those of {n} records of "
            f"{record.name!r}."
        )
    representative = np.argmax(table == 1, axis=0)
    values = np.repeat(representative, totals)
    if rest:
        values = np.concatenate([values, np.repeat(outside[0], rest)])
    return values.astype(record.dtype)


def _groups(name: str, record: Any, contributions: Any) -> NDArray[np.float64]:
    """Which total each category counts towards: one row of zeros and at most a one a category."""
    support = small_support(record)
    assert support is not None
    flat = contributions.reshape((contributions.shape[0], -1)).astype("float64")
    rows = []
    for value in support:
        everywhere = pt.full((length_of(record),), value, dtype=record.dtype)
        [graph] = graph_replace([flat], {record: everywhere}, strict=False)
        try:
            added = pytensor.function([], graph, mode=ONCE)()
        except Exception:  # a parameter of the model is part of the statistic
            added = np.array([[np.nan]])
        same = bool(np.all(added == added[0]))
        if not same or not np.all(np.isin(added[0], (0, 1))) or added[0].sum() > 1:
            raise ValueError(f"The statistic of {name!r} was released exactly. {_CAN}.")
        rows.append(added[0])
    return np.array(rows)
