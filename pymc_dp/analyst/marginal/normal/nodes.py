"""Values and weights that stand for the distribution of one record.

A table of rows: for each kind of record (see :func:`~pymc_dp.graph.rows.distinct_rows`) as many as
the rule has nodes, one record variable after the other, children given their parents. A density is
evaluated on the nodes of its own variable alone, and again for every value of others only where it
depends on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.censored import CensoredRV
from pymc.vartypes import continuous_types
from pytensor.tensor.random.basic import DirichletRV
from pytensor.tensor.special import softmax

from pymc_dp.analyst.factors import per_record_factor
from pymc_dp.analyst.marginal.normal.kinks import kinks_of
from pymc_dp.analyst.marginal.normal.places import (
    NoNodesError,
    TooManyNodesError,
    nodes_of,
    stick,
)
from pymc_dp.analyst.records import RecordBlock, batch_ndim
from pymc_dp.graph.additivity import direct_inputs
from pymc_dp.graph.intervals import ONCE
from pymc_dp.graph.rows import on_rows
from pymc_dp.graph.support import small_support
from pymc_dp.types import Matrix, Variable

__all__ = ["LARGEST", "Table", "aligned_bounds", "node_table", "uncensored"]

#: rows of a table at most; more are not worth a grid
LARGEST = 60_000


@dataclass(frozen=True)
class Table:
    """Rows that stand for records.

    Attributes
    ----------
    index : array of int, shape (rows,)
        The record whose public values each row has.
    values : dict
        Value of every record variable in each row.
    weights : TensorVariable, shape (rows,)
        Weights of the rows, which sum to one over those of one kind of record.
    kinds : int
        Kinds of records; rows of a kind stand together.
    how : str
        For people: what kind of rows these are.
    """

    index: NDArray[np.int64]
    values: dict[Any, Any]
    weights: Variable
    kinds: int
    how: str

    def mean(self, quantity: Variable) -> Variable:
        """Average over the rows of each kind."""
        rest = [quantity.shape[axis] for axis in range(1, quantity.type.ndim)]
        apart = quantity.reshape((self.kinds, -1, *rest))
        weights = self.weights.reshape((self.kinds, -1))
        return (apart * weights.reshape((*weights.shape, *[1] * len(rest)))).sum(axis=1)


def node_table(model: pm.Model, block: RecordBlock, index: NDArray[np.int64], order: int) -> Table:
    """Lay out nodes for a block's records, `order` between any two quantiles or kinks."""
    parameters = [rv for rv in model.basic_RVs if rv not in block.records]
    kinds = len(index)
    table = nobody = Table(index, {}, pt.ones(kinds), kinds, "")
    for rv in block.records:
        law = uncensored(rv)
        kinks = np.zeros((kinds, 0))
        if not isinstance(rv.owner.op, DirichletRV):  # whose kinks are not those of its parts
            kinks = kinks_of(block.contributions, block.records, rv, parameters, index)
        if law is not rv:
            kinks = np.hstack([kinks, _bounds(rv, table.values, index, parameters)])
        base = table if _depends(law, list(table.values), model) else nobody
        kinks = np.repeat(kinks, len(base.index) // kinds, axis=0)
        for column in range(_columns(rv)):
            given = base.values, base.index, parameters
            nodes, log_steps = nodes_of(law, column, *given, kinks, order)
            if nodes.type.shape[1] * len(table.index) > LARGEST * kinds:
                raise TooManyNodesError(f"a grid over {block.names} is too large.")
            log_density = _log_density(law, column, *given, nodes, block)
            table = _crossed(table, law, nodes, softmax(log_steps + log_density, axis=1))
        values = dict(table.values)
        if isinstance(rv.owner.op, DirichletRV):
            values[rv] = _simplex(values[rv])
        if law is not rv:
            ends = on_rows(aligned_bounds(rv), values, table.index, parameters)
            values[rv] = pt.clip(values[law], *ends).astype(rv.dtype)
        table = replace(table, values=values)
    finite = all(small_support(rv) is not None for rv in block.records)
    how = "summed over all values" if finite else f"by quadrature, {order} nodes between quantiles"
    return replace(table, how=how)


def _depends(law: Any, before: Sequence[Any], model: pm.Model) -> bool:
    """Whether a variable's distribution depends on record variables before it."""
    density = pm.logp(law, law, warn_rvs=False)
    return bool(set(direct_inputs([density], [*model.basic_RVs, law, *before])) & set(before))


def _log_density(
    law: Any,
    column: int,
    values: dict[Any, Any],
    index: NDArray[np.int64],
    parameters: Sequence[Any],
    nodes: Any,
    block: RecordBlock,
) -> Any:
    """Log-density of one number of a record at its nodes, up to a constant for each row."""
    if isinstance(law.owner.op, DirichletRV):
        a, b = (part[:, None] for part in stick(law, column, values, index, parameters))
        return (a - 1) * pt.log(nodes) + (b - 1) * pt.log1p(-nodes)
    rows, many = len(index), nodes.type.shape[1]
    own = nodes.ravel().astype(law.dtype)
    if law.type.ndim == 2:
        own = pt.alloc(own[:, None], rows * many, law.type.shape[1])
    given = {var: pt.repeat(value, many, axis=0) for var, value in values.items()} | {law: own}
    logp: Any = pm.logp(law, law, warn_rvs=False)
    logp = logp[:, column] if law.type.ndim == 2 else logp
    density = per_record_factor(str(law.name), logp, [*block.records, law], parameters)
    [found] = on_rows([(density, 0)], given, np.repeat(index, many), parameters)
    whole: Any = pt.alloc(found, rows * many)
    return whole.reshape((rows, many))


def _crossed(table: Table, law: Any, nodes: Any, weights: Any) -> Table:
    """Combine every row with the nodes of another number, laid out for the same or fewer rows."""
    rows, many = nodes.type.shape
    old = table.weights.reshape((rows, -1, 1))
    shape = rows, len(table.index) // rows, many
    new = (old * weights[:, None, :]).ravel()
    values = {var: pt.repeat(value, many, axis=0) for var, value in table.values.items()}
    entry: Any = pt.alloc(nodes[:, None, :], *shape)
    entry = entry.ravel().astype(law.dtype)
    values[law] = _with_column(values.get(law), entry, law)
    return replace(table, index=np.repeat(table.index, many), values=values, weights=new)


def uncensored(rv: Any) -> Any:
    """Variable that a censored one is cut off from; others are their own."""
    if not isinstance(rv.owner.op, CensoredRV):
        return rv
    law = rv.owner.inputs[0]
    if rv.type.ndim != 1 or law.dtype not in continuous_types or law.type.ndim != 1:
        raise NoNodesError(f"{rv.name!r} is censored, and not one real number a record.")
    return law


def aligned_bounds(rv: Any) -> list[tuple[Any, int]]:
    """Where a censored variable is cut off, with the records' axis; none of others."""
    if not isinstance(rv.owner.op, CensoredRV):
        return []
    return [(pt.atleast_1d(bound), 0) for bound in rv.owner.inputs[1:3]]


def _bounds(
    rv: Any, values: dict[Any, Any], index: NDArray[np.int64], parameters: Sequence[Any]
) -> Matrix:
    """Where a censored variable is cut off, a row for each record in `index`."""
    bounds = [bound for bound, _ in aligned_bounds(rv)]
    if direct_inputs(bounds, [*parameters, *values]):
        raise NoNodesError(f"{rv.name!r} is censored at places that are not public.")
    found = [on.eval(mode=ONCE) for on in on_rows(aligned_bounds(rv), {}, index)]
    return np.stack([np.broadcast_to(each, index.shape) for each in found], axis=1)


def _columns(rv: Variable) -> int:
    """Count the numbers that one record has in a variable."""
    number = int(np.prod(rv.type.shape[1:]))
    simplex = isinstance(rv.owner.op, DirichletRV)
    apart = batch_ndim(rv) == rv.type.ndim or simplex
    if not apart or rv.type.ndim > 2 or number - simplex > 2:
        raise TooManyNodesError(f"{rv.name!r} has {number} numbers a record.")
    return number - simplex


def _simplex(parts: Any) -> Any:
    """Shares of which each is a part of what the earlier ones leave."""
    left, shares = pt.ones(parts.shape[:1]), []
    for column in range(parts.type.shape[1]):
        shares.append(left * parts[:, column])
        left = left * (1 - parts[:, column])
    return pt.stack([*shares, left], axis=1)


def _with_column(before: Any, entry: Any, rv: Variable) -> Any:
    if rv.type.ndim == 1:
        return entry
    return entry[:, None] if before is None else pt.concatenate([before, entry[:, None]], axis=1)
