"""Categories behind known noise: the density of a record's releases as a weighted mean.

Where every record variable is a category (or a yes or no) and the releases are known numbers, the
noise gives each combination of categories a weight that no parameter enters, and the density is a
sum of probabilities times weights: one product of matrices, without exponentials. It is used where
the weights of no record differ by more than exp(30), so that the sum cannot underflow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.graph.basic import Constant
from pytensor.graph.replace import clone_replace, graph_replace
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.random.basic import BernoulliRV, CategoricalRV
from pytensor.tensor.variable import TensorVariable

from pymc_dp.analyst.marginal.values import combinations
from pymc_dp.graph.intervals import ONCE

__all__ = ["weighted_shares"]

#: largest difference of a record's weights, as logarithms
MOST_DIFFERENT = 30.0


def weighted_shares(records: Sequence[Any], noise: Sequence[Any]) -> TensorVariable | None:
    """Log-density of each record's releases, or None where it has not this form.

    Parameters
    ----------
    records : sequence of TensorVariable
        Record variables.
    noise : sequence of TensorVariable
        Log-densities of the releases given the records, of shape (n,) each.
    """
    if not all(isinstance(rv.owner.op, BernoulliRV | CategoricalRV) for rv in records):
        return None
    if any(rv.type.ndim != 1 for rv in records):
        return None
    tables = combinations(records)
    weights = _log_weights(records, noise, tables)
    if weights is None:
        return None
    largest = weights.max(axis=1)
    if np.min(weights - largest[:, None]) < -MOST_DIFFERENT:
        return None
    scaled = pt.constant(np.exp(weights - largest[:, None]))
    return pt.log(_weighted_sum(records, tables, scaled)) + pt.constant(largest)


def _log_weights(
    records: Sequence[Any], noise: Sequence[Any], tables: Sequence[tuple[Any, ...]]
) -> NDArray[np.float64] | None:
    """Noise's log-density for every combination, of shape (n, combinations), if it is known."""
    total: Any = sum(noise)
    columns = [
        graph_replace([total], dict(zip(records, table, strict=True)), strict=False)[0]
        for table in tables
    ]
    if not all(isinstance(var, Constant) for var in graph_inputs(columns)):
        return None
    return np.asarray(pt.stack(columns, axis=1).eval(mode=ONCE), dtype=np.float64)


def _weighted_sum(
    records: Sequence[Any], tables: Sequence[tuple[Any, ...]], weights: TensorVariable
) -> TensorVariable:
    """Sum over combinations of their probability times their weight, one number a record."""
    if len(records) == 1 and isinstance(records[0].owner.op, CategoricalRV):
        [shares] = records[0].owner.op.dist_params(records[0].owner)
        return weights @ shares if shares.type.ndim == 1 else (weights * shares).sum(axis=1)
    values = [[int(part.data[0]) for part in table] for table in tables]
    alike = [_probability(records, row, 1) for row in values]
    if all(share is not None and share.type.shape in ((), (1,)) for share in alike):
        # the same for every record, so that the weights of those that are alike are counted once
        return weights @ pt.stack([share.reshape(()) for share in alike])
    total: Any = 0.0
    for column, row in enumerate(values):
        total = total + _probability(records, row, len(tables[0][0].data)) * weights[:, column]
    return total


def _probability(records: Sequence[Any], values: Sequence[int], n: int) -> Any:
    """Probability of some values in each of `n` records; None where so many cannot be had."""
    shares = [_share(rv, value) for rv, value in zip(records, values, strict=True)]
    known: dict[Any, Any] = {
        rv: pt.constant(np.full(n, value, rv.dtype))
        for rv, value in zip(records, values, strict=True)
    }
    try:
        parts = clone_replace(shares, known, rebuild_strict=False)
    except (TypeError, ValueError):
        return None
    product: Any = parts[0]
    for part in parts[1:]:
        product = product * part
    return product


def _share(rv: Any, value: int) -> TensorVariable:
    """Probability of one value of a variable."""
    [p] = rv.owner.op.dist_params(rv.owner)
    if isinstance(rv.owner.op, CategoricalRV):
        return p[..., value]
    return p if value else 1 - p
