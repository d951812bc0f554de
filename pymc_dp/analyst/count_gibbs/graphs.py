"""Graphs that the moves of cells and of their parameters are compiled from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.dist_math import check_parameters
from pytensor.graph.traversal import ancestors
from pytensor.tensor.variable import TensorVariable

from pymc_dp.analyst.count_gibbs.cells import CountTable
from pymc_dp.analyst.count_gibbs.laws import TERMS, CellLaw
from pymc_dp.analyst.release import by_name
from pymc_dp.types import Vector

__all__ = [
    "cells_with",
    "gamma_terms",
    "law_means",
    "law_terms",
    "log_density_at",
    "own_terms",
    "references",
]


def law_terms(table: CountTable) -> dict[str, TensorVariable]:
    """Terms of the laws that there are, one number a cell: graphs of random variables."""
    found = {}
    for name, nothing in TERMS.items():
        if name != "phi" and all(getattr(law, name) is None for law in table.laws):
            continue
        parts = []
        for law, shape in zip(table.laws, table.shapes, strict=True):
            term = getattr(law, name)
            graph = pt.as_tensor(nothing if term is None else term).astype("float64")
            parts.append(pt.broadcast_to(graph, shape).ravel())
        found[name] = pt.concatenate(parts) if len(parts) > 1 else parts[0]
    return found


def law_means(table: CountTable) -> TensorVariable:
    """About what is expected of every cell: a graph of random variables."""
    parts = [
        pt.broadcast_to(pt.as_tensor(law.mean).astype("float64"), shape).ravel()
        for law, shape in zip(table.laws, table.shapes, strict=True)
    ]
    return pt.concatenate(parts) if len(parts) > 1 else parts[0]


def cells_with(table: CountTable, term: str) -> NDArray[np.int64]:
    """Places of the cells whose laws have a term."""
    has = [
        np.full(int(np.prod(shape)), getattr(law, term) is not None)
        for law, shape in zip(table.laws, table.shapes, strict=True)
    ]
    return np.flatnonzero(np.concatenate(has))


def references(table: CountTable) -> Vector:
    """Choose counts at which PyMC's density is taken: the laws' zero terms are silent there."""
    counts = table.bounds[0].copy()
    counts[cells_with(table, "zero")] = 1
    counts[table.settled] = table.bounds[0][table.settled]
    start = 0
    high = table.bounds[1]
    for law, shape in zip(table.laws, table.shapes, strict=True):
        stop = start + int(np.prod(shape))
        if law.known_sum:  # all in one cell that may have them
            first = np.argmax(high[start:stop].reshape(shape) > 0, axis=-1)[..., np.newaxis]
            totals = np.broadcast_to(law.totals, shape[:-1])[..., np.newaxis]
            np.put_along_axis(counts[start:stop].reshape(shape), first, totals, axis=-1)
        start = stop
    return counts.astype(float)


def log_density_at(table: CountTable) -> TensorVariable:
    """PyMC's log-density of cells at their references, flat."""
    counts, start, parts = references(table), 0, []
    for rv, law, shape in zip(table.cells, table.laws, table.shapes, strict=True):
        stop = start + int(np.prod(shape))
        value = pt.constant(counts[start:stop].reshape(shape), dtype=rv.dtype)
        batch = shape[:-1] if law.known_sum else shape
        density = pm.logp(law.guarded(rv), value, warn_rvs=False)
        if law.known_sum and law.alpha is None and law.replaced:
            density = _multinomial_at(law, value)
        part = pt.broadcast_to(density, batch).ravel()
        kept = ~table.settled[start:stop]
        parts.append(part if law.known_sum or np.all(kept) else part[np.flatnonzero(kept)])
        start = stop
    whole = pt.concatenate(parts) if len(parts) > 1 else parts[0]
    return whole.astype("float64")


def _multinomial_at(law: CellLaw, counts: Any) -> TensorVariable:
    """Log-density of multinomial counts that are all in one cell, whose probability may be zero."""
    [p] = law.replaced.values()
    density = (counts * law.phi).sum(axis=-1)
    whole = pt.isclose(p.sum(axis=-1), 1)
    return check_parameters(density, p >= 0, p <= 1, whole, msg="0 <= p <= 1, sum(p) = 1")


def gamma_terms(table: CountTable, terms: dict[str, TensorVariable], counts: Any) -> Any:
    """Add what alpha and beta say of counts, less what they say of references."""
    total: Any = 0.0
    for name in ("alpha", "beta"):
        at = cells_with(table, name)
        if at.size:
            both = [counts[at], references(table)[at]]
            both = [table.trials[at] - k for k in both] if name == "beta" else both
            there, here = (pt.gammaln(k + terms[name][at]) for k in both)
            total += (there - here).sum()
    return total


def own_terms(
    model: pm.Model, parameters: Sequence[TensorVariable], table: CountTable
) -> list[Any]:
    """Variables and potentials that move with the parameters, but for cells and their releases."""
    skipped = {*table.cells, *(release.rv for release in table.releases)}
    return [
        var
        for var in by_name([*model.basic_RVs, *model.potentials])
        if var not in skipped and (var in parameters or set(ancestors([var])) & set(parameters))
    ]
