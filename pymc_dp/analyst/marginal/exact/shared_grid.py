r"""One grid for all records: quadrature where records have one law and releases are known.

The density of a release is :math:`\int f(x; \theta)\, \eta_i(x)\, dx` with a noise density
:math:`\eta_i` that no parameter enters. On pieces of the line on which f is a polynomial of low
degree, whatever the parameters, that is a sum over nodes of f times integrals of :math:`\eta_i`
times Lagrange polynomials, which are computed once: noise may have any width, jumps and corners. An
evaluation then costs the record's density at some hundred nodes and one product of matrices.

Pieces are halved until the densities at draws of the prior are such polynomials. Parameters at
which the grid's total mass is not one are impossible: there the law is narrower than the prior's
draws let expect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Constant
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import random_generator_type
from pytensor.tensor.variable import TensorVariable

from pymc_dp.graph.intervals import ONCE
from pymc_dp.types import Matrix, Vector

__all__ = ["SharedGrid", "grid_log_density", "shared_grid"]

#: nodes a piece, and of what integrates noise between any two corners
ORDER, NOISE_ORDER = 16, 24
#: error of a piece's mass that is small enough
TOLERANCE = 1e-8
#: pieces, and nodes times records, at the most
MOST_PIECES, LARGEST = 60, 4_000_000
#: how far the mass of a law may be from one
OFF_MASS = 1e-5
#: probability beyond the grid, at either end
TAIL = 1e-15


@dataclass(frozen=True)
class SharedGrid:
    """Pieces of a record's line, in a coordinate without ends.

    Attributes
    ----------
    lower, upper : float
        Ends of the support, maybe infinite.
    centre, scale : float
        Of a support without ends.
    edges : tuple of float
        Where pieces meet, as coordinates.
    """

    lower: float
    upper: float
    centre: float
    scale: float
    edges: tuple[float, ...]

    def coordinate(self, x: Any) -> Any:
        """Where a value is."""
        with np.errstate(divide="ignore", invalid="ignore"):
            if np.isfinite(self.lower) and np.isfinite(self.upper):
                return np.log((x - self.lower) / (self.upper - x))
            if np.isfinite(self.lower):
                return np.log(x - self.lower)
            if np.isfinite(self.upper):
                return -np.log(self.upper - x)
            return np.arcsinh((x - self.centre) / self.scale)

    def value(self, u: Any) -> tuple[Any, Any]:
        """Value at a coordinate, and the logarithm of how fast it changes."""
        if np.isfinite(self.lower) and np.isfinite(self.upper):
            width = self.upper - self.lower
            x = self.lower + width / (1 + np.exp(-u))
            slope = np.log(width) - np.abs(u) - 2 * np.log1p(np.exp(-np.abs(u)))
        elif np.isfinite(self.lower):
            x, slope = self.lower + np.exp(u), u
        elif np.isfinite(self.upper):
            x, slope = self.upper - np.exp(-u), -u
        else:
            x, slope = self.centre + self.scale * np.sinh(u), np.log(self.scale * np.cosh(u))
        # rounded to an end, a value's density may be infinite
        return np.clip(
            x, np.nextafter(self.lower, np.inf), np.nextafter(self.upper, -np.inf)
        ), slope

    def nodes(self) -> tuple[Vector, Vector, Vector]:
        """Values at all nodes, logarithms of their slopes, and weights of a plain integral."""
        places, weights = np.polynomial.legendre.leggauss(ORDER)
        start, end = np.array(self.edges[:-1]), np.array(self.edges[1:])
        half = ((end - start) / 2)[:, None]
        x, log_slope = self.value((start[:, None] + half * (1 + places)).ravel())
        return x, log_slope, (half * weights).ravel()


def shared_grid(
    record: Any, params: Sequence[Any], draws: Sequence[tuple[Any, ...]]
) -> SharedGrid | None:
    """Grid on which the law of a record is resolved at all draws of its parameters.

    Returns
    -------
    SharedGrid or None
        None where records differ in law, or the laws in support, or too many pieces were needed.
    """
    op = record.owner.op
    if not isinstance(op, RandomVariable):
        return None
    if any(not all(p.type.broadcastable) for p in op.dist_params(record.owner)):
        return None
    levels = np.array([0.0, TAIL, 0.5, 0.8, 1 - TAIL, 1.0])
    quantiles = [pm.icdf(record, level, warn_rvs=False).ravel()[0] for level in levels]
    at = pytensor.function(list(params), quantiles, mode=ONCE, on_unused_input="ignore")
    found = np.array([at(*draw) for draw in draws], dtype=np.float64)
    found = found[np.isfinite(found[:, 1:-1]).all(axis=1)]
    if not len(found) or not all((found[:, end] == found[0, end]).all() for end in (0, -1)):
        return None
    middle = float(np.median(found[:, 2]))
    scale = float(np.median(found[:, 3] - found[:, 2]))
    whole = SharedGrid(float(found[0, 0]), float(found[0, -1]), middle, scale, ())
    ends = whole.coordinate(found[:, [1, -2]])
    ends = ends[np.isfinite(ends).all(axis=1)]
    if not len(ends) or scale <= 0:
        return None
    low, high = ends[:, 0].min(), ends[:, 1].max()
    margin = 0.1 * (high - low)
    values = pt.dvector("values")
    density = _log_law(record, values)
    evaluate = pytensor.function([values, *params], density, mode=ONCE, on_unused_input="ignore")

    def densities(u: Any) -> Any:
        x, log_slope = whole.value(u.ravel())
        rows = [np.exp(evaluate(x, *draw) + log_slope) for draw in draws]
        return np.nan_to_num(np.reshape(rows, (len(draws), *u.shape)))

    edges = _pieces(densities, low - margin, high + margin)
    return None if edges is None else SharedGrid(*_ends(whole), edges)


def _ends(grid: SharedGrid) -> tuple[float, float, float, float]:
    return grid.lower, grid.upper, grid.centre, grid.scale


def _log_law(record: Any, values: Any) -> Any:
    """Log-density of a record at some values, the same for all records."""
    op, given = record.owner.op, record.owner.op.dist_params(record.owner)
    as_many = op.make_node(random_generator_type(), pt.stack([values.shape[0]]), *given).outputs[1]
    return pm.logp(as_many, values, warn_rvs=False)


def _pieces(densities: Callable[[Any], Any], low: float, high: float) -> tuple[float, ...] | None:
    """Halve pieces until polynomials through their nodes are the densities between these."""
    places, _ = np.polynomial.legendre.leggauss(ORDER)
    between = np.concatenate([(places - 1) / 2, (places + 1) / 2])
    through = _lagrange(between)
    ends = np.linspace(low, high, 9)
    active, done = np.stack([ends[:-1], ends[1:]], axis=1), [low, high]
    while len(active):
        if len(done) + len(active) > MOST_PIECES:
            return None
        middle = active.mean(axis=1, keepdims=True)
        half = (active[:, 1:] - active[:, :1]) / 2
        at_nodes, truth = (densities(middle + half * part) for part in (places, between))
        off = np.abs(at_nodes @ through.T - truth).max(axis=(0, 2)) * 2 * half[:, 0]
        coarse = off > TOLERANCE
        done += active[~coarse, 0].tolist()
        halves = np.concatenate([active[coarse, :1], middle[coarse], active[coarse, 1:]], axis=1)
        active = np.concatenate([halves[:, :2], halves[:, 1:]])
    return tuple(sorted(set(done)))


def _lagrange(at: Vector) -> Matrix:
    """Values of the polynomials that are one at one node and zero at the others."""
    places, _ = np.polynomial.legendre.leggauss(ORDER)
    apart = places[:, None] - places + np.eye(ORDER)
    scaled = 1 / apart.prod(axis=1)
    distance = at[:, None] - places
    hit = distance == 0
    terms = scaled / np.where(hit, 1.0, distance)
    found = terms / terms.sum(axis=1, keepdims=True)
    return np.where(hit.any(axis=1, keepdims=True), hit.astype(float), found)


def grid_log_density(
    record: Any, noise: Any, corners: Sequence[Any], grid: SharedGrid
) -> TensorVariable | None:
    """Log-density of each record's releases, or None where these are not known numbers.

    Parameters
    ----------
    record : TensorVariable
        The record variable.
    noise : TensorVariable of shape (n,)
        Log-density of all releases of each record, given it.
    corners : sequence of TensorVariable
        Values of the record at which the noise's density has corners, or changes much.
    grid : SharedGrid
        Where to evaluate the law.
    """
    inputs = [var for var in graph_inputs([noise, *corners], [record]) if var is not record]
    if not all(isinstance(var, Constant) for var in inputs):
        return None
    x, log_slope, weights = grid.nodes()
    n = record.type.shape[0]
    if n is None or n * len(x) > LARGEST:
        return None
    cuts = [np.broadcast_to(pt.as_tensor(at).eval(mode=ONCE), (n,)) for at in corners]
    places = pt.dmatrix("places")
    evaluate = pytensor.function([places], vectorize_graph(noise, {record: places}), mode=ONCE)
    scaled, largest = _integrals(evaluate, np.reshape(cuts, (len(cuts), n)), grid)
    masses = pt.exp(_log_law(record, pt.constant(x)) + log_slope)
    density = pt.constant(scaled) @ masses
    log_density = pt.log(pt.maximum(density, np.finfo(float).tiny)) + largest
    resolved = pt.abs(pt.dot(weights, masses) - 1) < OFF_MASS
    return log_density + pt.switch(resolved, 0.0, -np.inf)


def _integrals(
    evaluate: Callable[[Any], Any], cuts: Matrix, grid: SharedGrid
) -> tuple[Matrix, Vector]:
    """Integrals of every record's noise times every node's polynomial, scaled, and their scales."""
    edges = np.array(grid.edges)
    where = np.nan_to_num(grid.coordinate(cuts), nan=edges[0])
    where = np.clip(where, edges[0], edges[-1])
    everywhere = np.broadcast_to(edges[:, None], (len(edges), cuts.shape[1]))
    ends = np.sort(np.vstack([everywhere, where]), axis=0)
    places, weights = np.polynomial.legendre.leggauss(NOISE_ORDER)
    half = (ends[1:] - ends[:-1]) / 2
    middle = (ends[1:] + ends[:-1]) / 2
    u = middle[:, None] + half[:, None] * places[:, None]  # (pieces, nodes, records)
    log_noise = evaluate(grid.value(u.reshape(-1, cuts.shape[1]))[0]).reshape(u.shape)
    largest = log_noise.max(axis=(0, 1))
    steps = np.exp(log_noise - largest) * half[:, None] * weights[:, None]
    piece = np.clip(np.searchsorted(edges, middle, side="right") - 1, 0, len(edges) - 2)
    start, end = edges[piece], edges[piece + 1]
    inside = (2 * u - (start + end)[:, None]) / (end - start)[:, None]
    found = np.zeros((cuts.shape[1], len(edges) - 1, ORDER))
    for i in range(cuts.shape[1]):
        basis = _lagrange(inside[..., i].ravel()).reshape(*inside.shape[:2], ORDER)
        np.add.at(found[i], piece[:, i], np.einsum("pq,pqj->pj", steps[..., i], basis))
    return found.reshape(cuts.shape[1], -1), largest
