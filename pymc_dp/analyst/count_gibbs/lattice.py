"""Exact totals of cells: tables that agree with them, and moves between such tables.

Totals are rows of whole numbers. Cells that no total tells apart form a group, within which units
move from one to another. Where the groups' own sums are not fixed by the totals, as in a table with
both margins known, further moves run along the lattice of the groups' sums. Cells that cannot vary
are in no move and in no group with others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import lsqr

from pymc_dp.analyst.count_gibbs.connected import connecting_moves
from pymc_dp.types import Vector

__all__ = ["Lattice", "lattice_of", "lattice_totals"]


@dataclass(frozen=True)
class Lattice:
    """Exact totals, and moves that keep them.

    Attributes
    ----------
    totals : csr_array
        One row a total, one column a cell.
    free : ndarray
        Cells that no total sees.
    group : ndarray
        Which cells the totals do not tell apart.
    moves : list of tuple
        Further moves: groups, and units for one cell of each.
    proven : bool
        Whether the moves are known to connect all tables with these totals, cells within their
        bounds: where totals leave only groups open, units move within these, and elsewhere as
        :mod:`~pymc_dp.analyst.count_gibbs.connected` says.
    fixed : ndarray
        Cells that cannot vary.
    """

    totals: Any
    free: NDArray[np.bool_]
    group: NDArray[np.int64]
    moves: list[tuple[NDArray[np.int64], Vector]]
    proven: bool
    fixed: NDArray[np.bool_]

    def agreeing(self, near: Vector, target: Vector, low: Vector, high: Vector) -> Vector | None:
        """Find counts with these totals, close to others; None where there are none."""
        counts = np.clip(np.round(near), low, high)
        if not self.totals.shape[0]:
            return counts
        found = None if self.moves else self._shared_out(counts.copy(), target, low, high)
        return self._solved(counts, target, low, high) if found is None else found

    def _shared_out(
        self, counts: Vector, target: Vector, low: Vector, high: Vector
    ) -> Vector | None:
        """Give each group the sum that the totals leave it; None where that does not work."""
        first = np.unique(self.group, return_index=True)[1]
        reduced = self.totals[:, first]
        some = np.asarray(abs(reduced).sum(axis=0)).ravel() > 0
        seen = np.flatnonzero(some & ~self.fixed[first])
        rest = target - self.totals @ np.where(self.fixed, low, 0.0)
        sums = np.round(lsqr(reduced[:, seen], rest, atol=1e-14, btol=1e-14)[0])
        order = np.argsort(self.group, kind="stable")
        ends = np.cumsum(np.bincount(self.group))
        for g, total in zip(seen, sums, strict=True):
            inside = order[ends[g - 1] if g else 0 : ends[g]]
            excess = total - counts[inside].sum()
            for i in inside[np.argsort(-counts[inside])]:
                new = min(max(counts[i] + excess, low[i]), high[i])
                excess -= new - counts[i]
                counts[i] = new
                if excess == 0:
                    break
        return counts if np.array_equal(self.totals @ counts, target) else None

    def _solved(self, near: Vector, target: Vector, low: Vector, high: Vector) -> Vector | None:
        """Solve for whole numbers, as close as the sum of differences can be."""
        size = near.size
        eye, linear = sparse.eye_array(size), scipy.optimize.LinearConstraint
        constraints = [
            linear(sparse.hstack([self.totals, 0 * self.totals]), target, target),
            linear(sparse.hstack([eye, -eye]), -np.inf, near),
            linear(sparse.hstack([eye, eye]), near, np.inf),
        ]
        top = np.minimum(high, near.max() + np.abs(target).sum() + 1)
        found = scipy.optimize.milp(
            np.repeat([0.0, 1.0], size),
            constraints=constraints,
            integrality=np.repeat([1, 0], size),
            bounds=scipy.optimize.Bounds(
                np.concatenate([low, np.zeros(size)]), np.concatenate([top, np.full(size, np.inf)])
            ),
        )
        return None if found.x is None else np.round(found.x[:size])


def lattice_totals(totals: Any) -> Lattice:
    """Totals without moves, to look for tables that agree with them."""
    nothing = np.arange(totals.shape[1])
    moves = [(nothing, np.zeros(0))]
    return Lattice(sparse.csr_array(totals), nothing < 0, nothing, moves, False, nothing < 0)


def lattice_of(totals: Any, bounded: bool, fixed: NDArray[np.bool_] | None = None) -> Lattice:
    """Read groups and moves from exact totals.

    Parameters
    ----------
    totals : csr_array
        Whole numbers, one row a total, one column a cell.
    bounded : bool
        Whether cells that can vary have upper bounds besides what the totals tell.
    fixed : ndarray of bool, optional
        Cells that cannot vary.
    """
    fixed = np.zeros(totals.shape[1], dtype=bool) if fixed is None else fixed
    by_cell = sparse.csc_array(totals)
    by_cell.sort_indices()
    known: dict[Any, int] = {}
    group = np.empty(totals.shape[1], dtype=np.int64)
    ends = by_cell.indptr
    for i in range(group.size):
        here = slice(ends[i], ends[i + 1])
        signature: Any = (by_cell.indices[here].tobytes(), by_cell.data[here].tobytes())
        group[i] = known.setdefault(i if fixed[i] else signature, len(known))
    free = (np.diff(ends) == 0) & ~fixed
    first = np.unique(group, return_index=True)[1] if group.size else np.zeros(0, dtype=int)
    reduced = by_cell[:, first].toarray() if totals.shape[0] else np.zeros((0, len(first)))
    seen = np.flatnonzero((np.abs(reduced).sum(axis=0) > 0) & ~fixed[first])
    reduced, proven = reduced[:, seen], True
    found: list[NDArray[np.int64]] = []
    if seen.size > np.linalg.matrix_rank(reduced):
        found, proven = connecting_moves(reduced, bounded)
    moves = [(seen[np.flatnonzero(b)], b[b != 0].astype(float)) for b in found]
    return Lattice(sparse.csr_array(totals), free, group, moves, proven, fixed)
