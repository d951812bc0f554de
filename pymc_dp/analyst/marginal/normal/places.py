"""Where the nodes of one number of a record lie, and the weights of the rule between them.

Finite variables have all their values, counts a window of them, continuous ones Gauss nodes between
quantiles and kinks. Nodes follow the parameters, gradients do not follow the nodes: an integral
does not depend on where it is evaluated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.transforms import LogTransform
from pymc.vartypes import continuous_types
from pytensor.tensor.random.basic import (
    BinomialRV,
    DirichletRV,
    NegBinomialRV,
    NormalRV,
    PoissonRV,
)

from pymc_dp.analyst.marginal.held import held
from pymc_dp.analyst.records import batch_ndim
from pymc_dp.compat import default_transform_rules
from pymc_dp.graph.rows import on_rows
from pymc_dp.graph.support import small_support
from pymc_dp.types import Matrix, Vector

__all__ = ["NoNodesError", "TooManyNodesError", "nodes_of", "parameters_on", "stick"]

#: quantiles between which a density is smooth enough, and a normal's own, in standard deviations
_LEVELS = np.array([1e-15, 1e-9, 1e-5, 1e-3, 0.02, 0.15, 0.5])
_LEVELS = np.concatenate([_LEVELS, 1 - _LEVELS[-2::-1]])
_DEVIATIONS = np.array([-8.5, -4.0, -1.3, 1.3, 4.0, 8.5])
#: the same for the parts in which a simplex is broken, which make a grid together
_STICKS = np.array([1e-13, 0.02, 0.98, 1 - 1e-13])
#: values of a count that are summed over; further apart where its spread is larger
_WINDOW = 512


class NoNodesError(ValueError):
    """A record's distribution cannot be integrated over."""


class TooManyNodesError(NoNodesError):
    """A grid would be too large."""


def nodes_of(
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
    edges = held(_edges(rv, column, values, index, parameters))
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
        law = pm.Beta.dist(*stick(rv, column, values, index, parameters))
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
    nodes = held(low + step * np.arange(_WINDOW))
    log_steps = held(pt.log(step)) * np.ones(_WINDOW)
    return pt.alloc(nodes, rows, _WINDOW), pt.alloc(log_steps, rows, _WINDOW)


def stick(rv: Any, column: int, *where: Any) -> tuple[Any, Any]:
    """Parameters of the beta law of a share, as a part of what the shares before it leave."""
    [a] = parameters_on(rv, *where)
    return a[:, column], a[:, column + 1 :].sum(axis=1)
