"""Where cells begin that are seen through sums, and how they may move."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy
from scipy import sparse
from scipy.sparse.linalg import lsqr

from pymc_dp.analyst.count_gibbs.cells import CountTable
from pymc_dp.analyst.count_gibbs.graphs import cells_with
from pymc_dp.analyst.count_gibbs.lattice import Lattice, lattice_of, lattice_totals
from pymc_dp.analyst.count_gibbs.laws import UNBOUNDED
from pymc_dp.analyst.count_gibbs.sweep import EXACT, Coordinates, SweepArrays
from pymc_dp.analyst.count_gibbs.windows import Components
from pymc_dp.types import Matrix, Vector

__all__ = [
    "Totals",
    "agreeing",
    "check_start",
    "climbed",
    "curvature",
    "estimate",
    "joint_coordinates",
    "known_totals",
    "learned_factor",
    "started",
    "sweep_arrays",
    "table_lattice",
    "tell_of_tables",
]

_log = logging.getLogger(__name__)

#: parameters whose curvature is looked at, and coordinates of NUTS with cells among them
MOST_CURVED, MOST_JOINT = 1000, 300
#: variance of the log-density that rounding of cells may cause; share of cells that must move
MOST_ROUGHNESS, MOST_LEFT_OUT = 0.3, 0.5
#: released numbers beyond this are markers of dropped cells
_MARKER = 2.0**59


class Totals(NamedTuple):
    """Sums that are known exactly, by the cells' laws or by a release.

    Attributes
    ----------
    matrix : csr_array
        One row a total, one column a cell.
    values : ndarray
        The sums.
    names : list of str
        What each is a part of.
    """

    matrix: Any
    values: Vector
    names: list[str]


def known_totals(table: CountTable, components: Components) -> Totals:
    """Find all sums that are known exactly."""
    rows, names, values, start = [sparse.csr_array((0, table.size))], [], [np.zeros(0)], 0
    for rv, law, shape in zip(table.cells, table.laws, table.shapes, strict=True):
        stop = start + int(np.prod(shape))
        if law.known_sum:
            number = int(np.prod(shape[:-1]))
            inside = sparse.kron(sparse.eye_array(number), np.ones((1, shape[-1])))
            before, after = ((number, start), (number, table.size - stop))
            parts = [sparse.csr_array(before), inside, sparse.csr_array(after)]
            rows.append(sparse.hstack(parts, format="csr"))
            values.append(np.broadcast_to(law.totals, shape[:-1]).ravel().astype(float))
            names += [f"n of {rv.name!r}"] * number
        start = stop
    first = 0
    for release, found, exact in zip(table.releases, table.maps, table.exact_releases, strict=True):
        size = found.constant.size
        if exact:
            rows.append(found.matrix)
            values.append(components.released[first : first + size] - found.constant)
            names += [repr(release.name)] * size
        first += size
    matrix = sparse.csr_array(sparse.vstack(rows, format="csr"))
    return Totals(matrix, np.concatenate(values).astype(float), names)


def table_lattice(table: CountTable, totals: Totals) -> Lattice:
    """Find moves that keep the exact totals, or say why they cannot be honoured."""
    if np.any(totals.matrix.data != np.round(totals.matrix.data)):
        raise ValueError(
            f"Exact totals of {table.names} have weights that are not whole numbers. Write small "
            "noise for amounts; release sums of counts exactly."
        )
    # a known sum is a bound that the totals tell of
    bounded = [
        np.full(int(np.prod(shape)), not law.known_sum)
        for law, shape in zip(table.laws, table.shapes, strict=True)
    ]
    above = np.concatenate(bounded) & (table.bounds[1] < UNBOUNDED)
    seen = np.asarray(abs(totals.matrix).sum(axis=0)).ravel() > 0
    return lattice_of(totals.matrix, bool(np.any(above & seen & ~table.fixed)), table.fixed)


def tell_of_tables(table: CountTable, lattice: Lattice) -> None:
    """Tell where moves between tables may not reach all of them."""
    if not lattice.proven:
        _log.warning(
            "Exact totals of %s overlap so that moves between tables are not proven to reach all "
            "of them. Chains start from different tables: run several, and trust none of the "
            "counts whose R-hat is above 1.01.",
            table.names,
        )


def agreeing(table: CountTable, lattice: Lattice, totals: Totals, near: Vector) -> Vector:
    """Find counts with the exact totals, or say which of these contradict each other."""
    low, high = (bound.astype(float) for bound in table.bounds)
    found = lattice.agreeing(near, totals.values, low, high)
    if found is not None:
        return found
    names = list(dict.fromkeys(totals.names))
    for name in list(names):  # leave out what is not needed for the contradiction
        kept = [i for i, own in enumerate(totals.names) if own in names and own != name]
        fewer = lattice_totals(totals.matrix[kept])
        if fewer.agreeing(near, totals.values[kept], low, high) is None:
            names.remove(name)
    raise ValueError(
        f"No counts of {table.names} have the exact totals that were released: "
        f"{' and '.join(names)} contradict each other, or the least and most that a cell may be. "
        "Check these values."
    )


def estimate(table: CountTable, components: Components, totals: Totals, expected: Vector) -> Vector:
    """Find counts that agree with releases and exact totals, by weighted least squares.

    `expected` are the counts that the model expects at the start; they count as one more
    observation of each cell, with the variance of a Poisson count, but a weak one.
    """
    known = (np.abs(components.released) < _MARKER) & ~table.exact
    weights = 1 / np.maximum(components.noise[known], 1e-3)
    matrix = sparse.diags_array(weights) @ table.matrix[np.flatnonzero(known)]
    wanted = weights * (components.released - components.constant)[known]
    weak = 0.1 / np.sqrt(np.abs(expected) + 1)
    sure = weights.max(initial=1.0)
    whole = sparse.vstack([matrix, sure * totals.matrix, sparse.diags_array(weak)], format="csr")
    given = np.concatenate([wanted, sure * totals.values, weak * expected])
    found = lsqr(whole, given, atol=1e-14, btol=1e-14, iter_lim=300)[0]
    return np.asarray(found)


def started(
    rng: np.random.Generator,
    table: CountTable,
    lattice: Lattice,
    totals: Totals,
    components: Components,
    expected: Vector,
) -> Vector:
    """Find counts that a chain starts from; far apart where moves may not connect all tables."""
    near = estimate(table, components, totals, expected)
    if not lattice.proven:  # else chains in one part of the tables would agree with each other
        near = near + 3 * np.sqrt(np.abs(near) + 1) * rng.normal(size=near.size)
    return agreeing(table, lattice, totals, near)


def sweep_arrays(table: CountTable, components: Components, lattice: Lattice) -> SweepArrays:
    """Lay out what the moves of cells need."""
    columns, rows = sparse.csc_array(table.matrix), sparse.csr_array(table.matrix)
    columns.sort_indices()
    low, high = table.bounds
    order = np.argsort(lattice.group, kind="stable")
    sizes = np.bincount(lattice.group) if lattice.group.size else np.zeros(0, dtype=np.int64)
    lengths = [len(groups) for groups, _ in lattice.moves]
    return SweepArrays(
        low=low.astype(float),
        high=high.astype(float),
        trials=table.trials,
        starts=columns.indptr.astype(np.int64),
        rows=columns.indices.astype(np.int64),
        factors=columns.data.astype(float),
        row_starts=rows.indptr.astype(np.int64),
        row_cells=rows.indices.astype(np.int64),
        released=components.released,
        noise=components.noise,
        constant=components.constant,
        kind=np.where(table.exact, EXACT, components.kind),
        free=lattice.free,
        group=lattice.group,
        group_starts=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        members=order.astype(np.int64),
        move_starts=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        move_groups=np.concatenate(
            [np.zeros(0, dtype=np.int64), *(groups for groups, _ in lattice.moves)]
        ).astype(np.int64),
        move_units=np.concatenate([np.zeros(0), *(units for _, units in lattice.moves)]),
        scales=np.ones(2 * table.size + len(lattice.moves)),
    )


def check_start(table: CountTable, found: tuple[Any, Any]) -> None:
    """Refuse to start where log-density or gradient is no number: a chain would stay there."""
    value, slope = (np.asarray(part) for part in found)
    if np.isfinite(value) and np.all(np.isfinite(slope)):
        return
    what = "gradient of the log-density" if np.isfinite(value) else "log-density"
    raise ValueError(
        f"The {what} of the counts {table.names} and of their parameters is not finite where the "
        "chain starts: a chain would stay there. Look for parameters whose initial values make a "
        "rate or probability zero, infinite or no number, and give others with initvals=; write "
        "the rate or probability of cells that are always empty with zeros that are public, as in "
        'pm.Poisson("c", exposure * rate) with zeros in the array exposure.'
    )


def climbed(density: Any, theta: Vector, given: Vector) -> Vector:
    """Parameters from which NUTS can start: where a climb gains little more.

    Large counts make the density so steep that a chain from the prior hardly arrives. The climb
    ends early: a mode of the density need not be near the bulk of its mass.
    """
    last = np.inf

    def cost(place: Vector) -> tuple[float, Vector]:
        value, slope = density(place, given)[:2]
        finite = np.isfinite(value) and bool(np.all(np.isfinite(slope)))
        return (-float(value), -slope) if finite else (1e300, np.zeros_like(place))

    def enough(intermediate_result: Any) -> None:
        nonlocal last
        gained, last = last - intermediate_result.fun, intermediate_result.fun
        if gained < 0.2 * theta.size:
            raise StopIteration

    if not theta.size or not np.isfinite(density(theta, given)[0]):
        return theta
    found = scipy.optimize.minimize(
        cost, theta, jac=True, method="L-BFGS-B", callback=enough, options=_CLIMB
    )
    return np.asarray(found.x) if found.fun < 1e299 else theta


_CLIMB = {"maxiter": 500, "maxcor": 20}


def curvature(density: Any, theta: Vector, given: Vector) -> Vector:
    """Second derivatives by each parameter, for first scales of NUTS."""
    found = np.ones(theta.size)
    if theta.size > MOST_CURVED:
        return found
    for i in range(theta.size):
        step = np.zeros(theta.size)
        step[i] = 1e-6 * max(1.0, abs(theta[i]))
        up, down = (density(theta + sign * step, given)[1][i] for sign in (1, -1))
        second = (down - up) / (2 * step[i])
        if np.isfinite(second) and second > 1e-2:
            found[i] = second
    return found


def learned_factor(slope: Callable[[Vector], Vector], place: Vector, scales: Vector) -> Matrix:
    """Factor of the covariance that slopes half a scale away from a place tell of.

    `scales` are the standard deviations of single coordinates, the others held.
    """
    size = place.size
    hessian = np.empty((size, size))
    for i in range(size):
        step = np.zeros(size)
        step[i] = 0.5 * scales[i]
        change = slope(place - step) - slope(place + step)
        hessian[i] = scales * change  # in units of the scales
    hessian = np.where(np.isfinite(hessian), hessian, 0.0)
    values, vectors = np.linalg.eigh((hessian + hessian.T) / 2)
    cov = (vectors / np.clip(values, 0.01, 100.0)) @ vectors.T
    found: Matrix = np.linalg.cholesky(np.outer(scales, scales) * cov)
    return found


def joint_coordinates(
    table: CountTable, arrays: SweepArrays, counts: Vector, parameters: int
) -> tuple[Coordinates, Vector]:
    """Choose cells to move with the parameters, and tell how tightly each is known.

    Counts are coordinates rounded to whole numbers. That costs acceptance where a unit matters
    much, so that cells are chosen whose posterior is wide against it, and only where they make up
    the table: elsewhere moves of some units are better. A cell follows its mean as far as its law
    knows it better than the release does, so that it hardly depends on the parameters otherwise.
    """
    size = counts.size
    pivot = np.arange(size)
    smooth = np.ones(size, dtype=bool)  # no cliff at zero
    smooth[cells_with(table, "zero")] = False
    smooth[table.fixed] = False
    for g in range(arrays.group_starts.size - 1):
        inside = arrays.members[arrays.group_starts[g] : arrays.group_starts[g + 1]]
        pivot[inside] = inside[np.argmax(np.where(smooth[inside], counts[inside], -1.0))]
    alone = arrays.free
    movable = alone | ((pivot != np.arange(size)) & smooth[pivot])
    chosen = np.flatnonzero(movable & smooth)
    none = np.zeros(0, dtype=np.int64)
    nothing = Coordinates(none, none, np.zeros(0), np.empty(size)), np.zeros(0)
    if not chosen.size or chosen.size + parameters > MOST_JOINT:
        return nothing
    others = np.where(alone[chosen], -1, pivot[chosen])
    width = np.where(arrays.trials > 0, arrays.trials - counts, np.inf)
    law = 1 / (counts + 0.5) + 1 / (width + 0.5)
    moves = sparse.lil_array((size, chosen.size))
    for j, (i, other) in enumerate(zip(chosen, others, strict=True)):
        moves[i, j] = 1.0
        if other >= 0:
            moves[other, j] = -1.0
    seen = sparse.csr_array(table.matrix @ sparse.csc_array(moves))
    weight = np.where(arrays.kind >= 0, 1 / arrays.noise.clip(1e-9) ** 2, 0.0)
    by_law = law[chosen] + np.where(others >= 0, law[others], 0.0)
    precision = by_law + np.asarray(seen.multiply(seen).T @ weight).ravel()
    order = np.argsort(precision, kind="stable")
    kept = np.sort(order[np.cumsum(precision[order]) / 12 < MOST_ROUGHNESS])
    if kept.size < MOST_LEFT_OUT * chosen.size:
        return nothing
    shares = (by_law / precision)[kept]
    return Coordinates(chosen[kept], others[kept], shares, np.empty(size)), precision[kept]
