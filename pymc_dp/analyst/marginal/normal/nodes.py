"""Values and weights that stand for the distribution of one record.

A table of rows: for each kind of record (see :func:`~pymc_dp.graph.rows.distinct_rows`) as many as
the rule has nodes, one record variable after the other, children given their parents. Finite
variables have all their values, counts a window of them, continuous ones Gauss nodes between
quantiles and kinks. Nodes follow the parameters, gradients do not follow the nodes: an integral
does not depend on where it is evaluated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.censored import CensoredRV
from pymc.distributions.transforms import LogTransform
from pymc.vartypes import continuous_types
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.replace import graph_replace
from pytensor.tensor.random.basic import (
    BinomialRV,
    DirichletRV,
    NegBinomialRV,
    NormalRV,
    PoissonRV,
)

from pymc_dp.analyst.factors import per_record_factor
from pymc_dp.analyst.marginal.normal.kinks import kinks_of
from pymc_dp.analyst.records import RecordBlock, batch_ndim
from pymc_dp.compat import default_transform_rules
from pymc_dp.graph.additivity import direct_inputs
from pymc_dp.graph.intervals import ONCE
from pymc_dp.graph.rows import on_rows
from pymc_dp.graph.support import small_support
from pymc_dp.types import Matrix, Variable, Vector

__all__ = [
    "LARGEST",
    "NoNodesError",
    "Table",
    "TooManyNodesError",
    "aligned_bounds",
    "held",
    "node_table",
    "parameters_on",
    "uncensored",
]

#: quantiles between which a density is smooth enough, and a normal's own, in standard deviations
_LEVELS = np.array([1e-15, 1e-9, 1e-5, 1e-3, 0.02, 0.15, 0.5])
_LEVELS = np.concatenate([_LEVELS, 1 - _LEVELS[-2::-1]])
_DEVIATIONS = np.array([-8.5, -4.0, -1.3, 1.3, 4.0, 8.5])
#: the same for the parts in which a simplex is broken, which make a grid together
_STICKS = np.array([1e-13, 0.02, 0.98, 1 - 1e-13])
#: rows of a table at most; more are not worth a grid
LARGEST = 60_000
#: values of a count that are summed over; further apart where its spread is larger
_WINDOW = 512


class NoNodesError(ValueError):
    """A record's distribution cannot be integrated over."""


class TooManyNodesError(NoNodesError):
    """A grid would be too large."""


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
    values: dict[Any, Any] = {}
    log_weights: Any = pt.zeros(kinds)
    for rv in block.records:
        columns, one_each = _columns(rv), index_of(index, kinds)
        kinks = np.zeros((kinds, 0))
        if not isinstance(rv.owner.op, DirichletRV):  # whose kinks are not those of its parts
            kinks = kinks_of(block.contributions, block.records, rv, parameters, one_each)
        law = uncensored(rv)
        if law is not rv:
            kinks = np.hstack([kinks, _bounds(rv, values, one_each, parameters)])
        kinks = np.repeat(kinks, len(index) // kinds, axis=0)
        for column in range(columns):
            nodes, log_steps = _nodes(law, column, values, index, parameters, kinks, order)
            many = nodes.type.shape[1]
            if many * len(index) > LARGEST * kinds:
                raise TooManyNodesError(f"a grid over {block.names} is too large.")
            values = {var: pt.repeat(value, many, axis=0) for var, value in values.items()}
            index = np.repeat(index, many)
            log_weights = (log_weights[:, None] + log_steps).ravel()
            entry = nodes.ravel().astype(rv.dtype)
            values[law] = _with_column(values.get(law), entry, law)
        if isinstance(rv.owner.op, DirichletRV):
            values[rv], log_volume = _simplex(values[rv])
            log_weights = log_weights + log_volume
        others = [other for other in model.basic_RVs if other not in block.records]
        if law is not rv:
            ends = on_rows(aligned_bounds(rv), values, index, parameters)
            values[rv] = pt.clip(values[law], *ends).astype(rv.dtype)
        density = per_record_factor(
            str(rv.name), pm.logp(law, law, warn_rvs=False), [*block.records, law], others
        )
        [log_density] = on_rows([(density, 0)], values, index, parameters)
        log_weights = log_weights + log_density
    weights = pt.exp(log_weights).reshape((kinds, -1))
    weights = weights / weights.sum(axis=1, keepdims=True)
    finite = all(small_support(rv) is not None for rv in block.records)
    how = "summed over all values" if finite else f"by quadrature, {order} nodes between quantiles"
    return Table(index, values, weights.ravel(), kinds, how)


def index_of(index: NDArray[np.int64], kinds: int) -> NDArray[np.int64]:
    """One record of each kind."""
    return index[:: len(index) // kinds]


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


def _simplex(parts: Any) -> tuple[Any, Any]:
    """Shares of which each is a part of what the earlier ones leave; log-volume of the change."""
    left, shares, log_volume = pt.ones(parts.shape[:1]), [], pt.zeros(parts.shape[:1])
    for column in range(parts.type.shape[1]):
        log_volume = log_volume + pt.log(left)
        shares.append(left * parts[:, column])
        left = left * (1 - parts[:, column])
    return pt.stack([*shares, left], axis=1), log_volume


def _with_column(before: Any, entry: Any, rv: Variable) -> Any:
    if rv.type.ndim == 1:
        return entry
    return entry[:, None] if before is None else pt.concatenate([before, entry[:, None]], axis=1)


def _nodes(
    rv: Any,
    column: int,
    values: dict[Any, Any],
    index: NDArray[np.int64],
    parameters: Sequence[Any],
    kinks: Matrix,
    order: int,
) -> tuple[Any, Any]:
    """Nodes of one number of a record and log-weights of the rule, of shape (rows, nodes)."""
    rows = len(index)
    support = small_support(rv)
    if support is not None:
        whole = np.tile(np.array(support, dtype=np.float64), (rows, 1))
        return pt.constant(whole), pt.zeros_like(whole)
    if rv.dtype not in continuous_types:
        return _window(rv, _parameters(rv, column, values, index, parameters), rows)
    edges = held(_edges(rv, column, values, index, parameters), [*parameters, *values.values()])
    pieces = len(_levels(rv)) - 1 + kinks.shape[1]
    outer = edges[:, :1], edges[:, -1:]
    if kinks.shape[1]:
        inner = pt.clip(pt.constant(np.clip(kinks, -1e300, 1e300)), *outer)
        apart = [pt.alloc(part, rows, part.shape[1]) for part in (edges, inner)]
        edges = pt.sort(pt.concatenate(apart, axis=1), axis=1)
    points, weights = np.polynomial.legendre.leggauss(order)
    low, high = edges[:, :-1, None], edges[:, 1:, None]
    nodes, steps = _between(low, high, points, weights)
    if isinstance(default_transform_rules(rv.owner.op, rv), LogTransform):
        wide = high > 3 * low  # densities are powers near zero: even steps of the logarithm
        logs = pt.log(pt.maximum(low, 1e-300)), pt.log(pt.maximum(high, 1e-300))
        log_nodes, log_steps = _between(*logs, points, weights)
        nodes = pt.switch(wide, pt.exp(log_nodes), nodes)
        steps = pt.switch(wide, log_steps * nodes, steps)
    many = order * pieces
    # a piece of no width has no weight, and the logarithm of that must not hurt
    log_steps = pt.log(pt.maximum(steps, 1e-300)).reshape((-1, many))
    return pt.alloc(nodes.reshape((-1, many)), rows, many), pt.alloc(log_steps, rows, many)


def _levels(rv: Any) -> Vector:
    """Quantiles, or places in standard deviations, between which a density is smooth enough."""
    match rv.owner.op:
        case NormalRV():
            return _DEVIATIONS
        case DirichletRV():
            return _STICKS
    return _LEVELS


def _between(low: Any, high: Any, points: Vector, weights: Vector) -> tuple[Any, Any]:
    """Gauss nodes and weights between two ends."""
    half = 0.5 * (high - low)
    return 0.5 * (low + high) + half * points, half * weights


def parameters_on(
    rv: Any, values: dict[Any, Any], index: NDArray[np.int64], parameters: Sequence[Any]
) -> list[Any]:
    """Parameters of a record variable's distribution on the rows, which are their first axis."""
    aligned = []
    op = rv.owner.op
    for parameter, core in zip(op.dist_params(rv.owner), op.ndims_params, strict=True):
        missing = batch_ndim(rv) - (parameter.type.ndim - core)
        wide = pt.expand_dims(parameter, tuple(range(missing))) if missing else parameter
        aligned.append((wide, 0))
    return on_rows(aligned, values, index, parameters)


def _parameters(rv: Any, column: int, *where: Any) -> list[Any]:
    """Parameters of one number of a record on the rows, of shape (rows or 1, 1)."""
    found = parameters_on(rv, *where)
    if rv.type.ndim == 2:
        found = [on[:, 0] if on.type.shape[1] == 1 else on[:, column] for on in found]
    return [on[:, None] for on in found]


def _edges(
    rv: Any,
    column: int,
    values: dict[Any, Any],
    index: NDArray[np.int64],
    parameters: Sequence[Any],
) -> Any:
    """Places between which a density is smooth, of shape (rows or 1, places)."""
    if isinstance(rv.owner.op, NormalRV):
        mu, sigma = _parameters(rv, column, values, index, parameters)
        return mu + sigma * _DEVIATIONS
    if isinstance(rv.owner.op, DirichletRV):
        [a] = parameters_on(rv, values, index, parameters)
        law = pm.Beta.dist(a[:, column], a[:, column + 1 :].sum(axis=1))
        return pt.stack([pm.icdf(law, pt.constant(level)) for level in _STICKS], axis=1)
    try:
        places = [pm.icdf(rv, pt.constant(level), warn_rvs=False) for level in _LEVELS]
    except NotImplementedError:
        name = getattr(rv.owner.op, "name", None) or type(rv.owner.op).__name__
        raise NoNodesError(
            f"{rv.name!r} has a distribution without known quantiles ({name})."
        ) from None
    missing = rv.type.ndim - places[0].type.ndim
    aligned = [pt.expand_dims(place, tuple(range(missing))) for place in places]
    found = on_rows([(place, 0) for place in aligned], values, index, parameters)
    if rv.type.ndim == 2:
        found = [on[:, 0] if on.type.shape[1] == 1 else on[:, column] for on in found]
    return pt.stack(found, axis=1)


def held(output: Any, given: Sequence[Any]) -> Any:
    """Leave the gradient of something out; a copy of the model leaves it out too."""
    inputs = direct_inputs([output], given)
    inner = [inp.type() for inp in inputs]
    [graph] = graph_replace([output], dict(zip(inputs, inner, strict=True)), strict=False)

    def no_gradient(inputs: Any, outputs: Any, gradients: Any) -> list[Any]:
        return [inp.zeros_like() for inp in inputs]

    op: Any = OpFromGraph(inner, [graph], pullback=no_gradient)
    return op(*inputs) if inputs else output


def _window(rv: Any, parameters: Sequence[Any], rows: int) -> tuple[Any, Any]:
    """Values of a count around its mean; every second, third, ... where it is spread widely."""
    match rv.owner.op:
        case PoissonRV():
            [rate] = parameters
            mean, variance = rate, rate
        case BinomialRV():
            number, p = parameters
            mean, variance = number * p, number * p * (1 - p)
        case NegBinomialRV():
            number, p = parameters
            mean, variance = number * (1 - p) / p, number * (1 - p) / p**2
        case op:
            raise NoNodesError(f"{rv.name!r} is a count without a rule ({type(op).__name__}).")
    spread = pt.sqrt(variance)
    low = pt.maximum(pt.floor(mean - 10 * spread - 10), 0.0)
    step = pt.ceil(pt.maximum((mean + 12 * spread + 30 - low) / _WINDOW, 1.0))
    nodes = low + step * np.arange(_WINDOW)  # which jump: their gradient is zero
    log_steps = pt.log(step) * np.ones(_WINDOW)
    return pt.alloc(nodes, rows, _WINDOW), pt.alloc(log_steps, rows, _WINDOW)
