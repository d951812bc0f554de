"""Exact totals of cells: tables that agree with them, and moves between such tables.

Totals are rows of whole numbers. Cells that no total tells apart form a group, within which units
move from one to another. Where the groups' own sums are not fixed by the totals, as in a table with
both margins known, further moves run along a lattice basis of the groups' sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import lsqr

from pymc_dp.types import Vector

__all__ = ["Lattice", "lattice_of", "lattice_totals"]

#: groups whose sums totals leave open, and moves made of a basis, at the most
MOST_GROUPS, MOST_MOVES = 600, 4000


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
        Whether the moves are known to connect all tables.
    """

    totals: Any
    free: NDArray[np.bool_]
    group: NDArray[np.int64]
    moves: list[tuple[NDArray[np.int64], Vector]]
    proven: bool

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
        seen = np.flatnonzero(np.asarray(abs(reduced).sum(axis=0)).ravel() > 0)
        sums = np.round(lsqr(reduced[:, seen], target, atol=1e-14, btol=1e-14)[0])
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
    return Lattice(sparse.csr_array(totals), nothing < 0, nothing, [(nothing, np.zeros(0))], False)


def lattice_of(totals: Any, bounded: bool) -> Lattice:
    """Read groups and moves from exact totals.

    Parameters
    ----------
    totals : csr_array
        Whole numbers, one row a total, one column a cell.
    bounded : bool
        Whether cells have upper bounds of their own, or zeros by law.
    """
    by_cell = sparse.csc_array(totals)
    by_cell.sort_indices()
    known: dict[Any, int] = {}
    group = np.empty(totals.shape[1], dtype=np.int64)
    ends = by_cell.indptr
    for i in range(group.size):
        here = slice(ends[i], ends[i + 1])
        signature = (by_cell.indices[here].tobytes(), by_cell.data[here].tobytes())
        group[i] = known.setdefault(signature, len(known))
    free = np.diff(ends) == 0
    first = np.unique(group, return_index=True)[1] if group.size else np.zeros(0, dtype=int)
    reduced = by_cell[:, first].toarray() if totals.shape[0] else np.zeros((0, len(first)))
    seen = np.flatnonzero(np.abs(reduced).sum(axis=0) > 0)
    basis = [] if seen.size <= np.linalg.matrix_rank(reduced) else _basis(reduced[:, seen])
    moves = [(seen[np.flatnonzero(b)], b[b != 0].astype(float)) for b in _closed(basis)]
    proven = not moves or (not bounded and _two_margins(reduced[:, seen]))
    return Lattice(sparse.csr_array(totals), free, group, moves, proven)


def _basis(matrix: NDArray) -> list[NDArray[np.int64]]:
    """Lattice basis of the whole-number vectors that a matrix takes to zero."""
    if matrix.shape[1] > MOST_GROUPS:
        raise NotImplementedError(
            f"Exact totals tell {matrix.shape[1]} groups of cells apart and leave their sums open: "
            f"{MOST_GROUPS} at the most are handled. Release fewer overlapping totals exactly, or "
            "write small noise for some of them."
        )
    rows = [[Fraction(int(v)) for v in row] for row in matrix]
    pivots: list[int] = []
    for column in range(matrix.shape[1]):
        rank = len(pivots)
        at = next((r for r in range(rank, len(rows)) if rows[r][column] != 0), None)
        if at is None:
            continue
        rows[rank], rows[at] = rows[at], rows[rank]
        scale = rows[rank][column]
        rows[rank] = [v / scale for v in rows[rank]]
        for r, row in enumerate(rows):
            if r != rank and row[column] != 0:
                factor = row[column]
                rows[r] = [a - factor * b for a, b in zip(row, rows[rank], strict=True)]
        pivots.append(column)
    basis = []
    for column in (c for c in range(matrix.shape[1]) if c not in pivots):
        vector = np.zeros(matrix.shape[1], dtype=np.int64)
        vector[column] = 1
        for row, pivot in zip(rows, pivots, strict=False):
            if row[column].denominator != 1:
                raise NotImplementedError(
                    "Exact totals with weights other than 0 and 1 do not leave a lattice that "
                    "is read here. Release sums of cells."
                )
            vector[pivot] = -int(row[column])
        basis.append(vector)
    return basis


def _closed(basis: list[NDArray[np.int64]]) -> list[NDArray[np.int64]]:
    """Add differences of moves as long as they are as short as the shortest, up to a number."""
    found = {tuple(v): v for v in basis}
    shortest = min((int(np.abs(v).sum()) for v in basis), default=0)
    waiting = list(found.values())
    while waiting and len(found) < MOST_MOVES:
        one = waiting.pop(0)
        for other in list(found.values()):
            for new in (one - other, one + other):
                if np.abs(new).sum() == 0 or np.abs(new).sum() > shortest:
                    continue
                if tuple(new) not in found and tuple(-new) not in found:
                    found[tuple(new)] = new
                    waiting.append(new)
            if len(found) >= MOST_MOVES:
                break
    return list(found.values())


def _two_margins(matrix: NDArray) -> bool:
    """Whether totals are the two margins of a table, each cell in one row and one column."""
    matrix = matrix[~np.all(matrix == 1, axis=1)]  # the grand total follows from a margin
    if not np.all(np.isin(matrix, (0, 1))) or not np.all(matrix.sum(axis=0) == 2):
        return False
    side = np.zeros(len(matrix), dtype=int)  # 1 for rows, 2 for columns
    for start in range(len(matrix)):
        if side[start]:
            continue
        side[start] = 1
        waiting = [start]
        while waiting:
            r = waiting.pop()
            for other in np.flatnonzero((matrix[:, matrix[r] == 1]).any(axis=1)):
                if other == r:
                    continue
                if side[other] == side[r]:
                    return False
                if not side[other]:
                    side[other] = 3 - side[r]
                    waiting.append(int(other))
    rows, columns = matrix[side == 1], matrix[side == 2]
    return bool(np.all(rows @ columns.T == 1))
