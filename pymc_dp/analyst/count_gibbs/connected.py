"""Moves between tables with the same exact totals, and whether they reach all of them.

Moves are known to connect all tables with some totals, each cell within its bounds, where they are

- all cycles of a graph whose edges are cells and whose vertices are totals, each total on one of
  two sides: both margins of a table, whichever of its cells are left out, or one margin and part of
  the other. Where cells have no upper bounds cycles without chords are enough (Aoki & Takemura
  2005): squares, and what goes round the missing cells;
- all primitive moves of a small lattice (its Graver basis, found by completion: Pottier 1996).

The difference of two tables is a sum of primitive moves that have its signs, so that tables on the
way are between the two. Elsewhere moves are differences of a lattice basis, and nothing is proven.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

__all__ = ["connecting_moves"]

Whole = NDArray[np.int64]

#: groups whose sums totals leave open, and moves made of a basis, at the most
MOST_GROUPS, MOST_MOVES = 600, 4000
#: cycles up to which all are moves
FEW_CYCLES = 300
#: cycles, and paths that are followed to find them, at the most
MOST_CYCLES, MOST_PATHS = 100_000, 500_000
#: pairs of moves that are looked at for primitive ones, at the most
MOST_PAIRS = 6_000


def connecting_moves(matrix: NDArray, bounded: bool) -> tuple[list[Whole], bool]:
    """Find moves that keep totals, and tell whether they are proven to connect all tables.

    Parameters
    ----------
    matrix : ndarray
        Whole numbers, one row a total, one column a group of cells; no two columns are equal.
    bounded : bool
        Whether cells have upper bounds besides what totals tell.
    """
    size = matrix.shape[1]
    if size > MOST_GROUPS:
        raise NotImplementedError(
            f"Exact totals tell {size} groups of cells apart and leave their sums open: "
            f"{MOST_GROUPS} at the most are handled. Release fewer overlapping totals exactly, or "
            "write small noise for some of them."
        )
    ends = _two_sides(matrix)
    cycles = None
    if ends is not None:  # all cycles where they are few: rare cells then block none
        cycles = _cycles(ends, chordless=False, most=FEW_CYCLES)
        if cycles is None:
            cycles = _cycles(ends, chordless=not bounded, most=MOST_CYCLES)
    if cycles is not None:
        return cycles, True
    basis = _basis(matrix)
    primitive = _primitive(basis)
    return (_closed(basis), False) if primitive is None else (primitive, True)


def _two_sides(matrix: NDArray) -> Whole | None:
    """Two totals that each group counts towards, where totals have two sides; else None.

    Groups of one total alone have another end in common, whose total follows from the others.
    """
    size = matrix.shape[1]
    if not np.all(np.isin(matrix, (0, 1))):
        return None
    matrix = np.unique(matrix[~np.all(matrix == 1, axis=1)], axis=0)  # the grand total follows
    matrix = matrix[np.any(matrix, axis=1)]
    seen = matrix.sum(axis=0)
    if not len(matrix) or np.any(seen < 1) or np.any(seen > 2):
        return None
    if np.any(seen == 1):
        matrix = np.vstack([matrix, seen == 1])
    ends = np.nonzero(matrix.T)[1].reshape(size, 2)
    side = np.zeros(len(matrix), dtype=int)
    for start in range(len(matrix)):
        if side[start]:
            continue
        side[start], waiting = 1, [start]
        while waiting:
            at = waiting.pop()
            for a, b in ends[np.any(ends == at, axis=1)]:
                other = b if a == at else a
                if side[other] == side[at]:
                    return None
                if not side[other]:
                    side[other] = -side[at]
                    waiting.append(other)
    return ends


def _cycles(ends: Whole, chordless: bool, most: int) -> list[Whole] | None:
    """Cycles of a graph as moves, one more along every other edge; None where there are too many.

    Each is found once, from its first vertex on to the smaller of that one's two neighbours.
    """
    near: dict[int, dict[int, int]] = {int(v): {} for v in np.unique(ends)}
    for edge, (a, b) in enumerate(ends):
        near[int(a)][int(b)] = near[int(b)][int(a)] = edge
    found: list[Whole] = []
    paths = 0
    for start in near:
        waiting = [[start, first] for first in near[start] if first > start]
        while waiting:
            path = waiting.pop()
            paths += 1
            if paths > MOST_PATHS or len(found) > most:
                return None
            for at in near[path[-1]]:
                if at <= start or at in path:
                    continue
                if chordless and any(inner in near[at] for inner in path[1:-1]):
                    continue
                closes = len(path) > 2 and start in near[at]
                if closes and path[1] < at:
                    found.append(_around([*path, at], near, len(ends)))
                if not (closes and chordless):
                    waiting.append([*path, at])
    return found


def _around(cycle: list[int], near: dict[int, dict[int, int]], size: int) -> Whole:
    move = np.zeros(size, dtype=np.int64)
    for n, (a, b) in enumerate(zip(cycle, [*cycle[1:], cycle[0]], strict=True)):
        move[near[a][b]] = 1 if n % 2 == 0 else -1
    return move


def _primitive(basis: list[Whole]) -> list[Whole] | None:
    """All primitive moves of the lattice of a basis; None where that is too much work."""
    found = np.array([sign * v for v in basis for sign in (1, -1)])
    first, pairs = 1, 0
    while first < len(found):
        for second in range(first):
            pairs += 1
            if pairs > MOST_PAIRS:
                return None
            left = _reduced(found[first] + found[second], found)
            if np.any(left):
                found = np.vstack([found, left, -left])
        first += 1
    own = np.eye(len(found), dtype=bool)
    least = [not np.any(_inside(v, found) & ~own[n]) for n, v in enumerate(found)]
    return [v for v in found[least] if v[np.flatnonzero(v)[0]] > 0]


def _inside(move: Whole, others: Whole) -> NDArray[np.bool_]:
    """Which others go the same ways and nowhere farther."""
    return np.all((others * move >= 0) & (np.abs(others) <= np.abs(move)), axis=1)


def _reduced(move: Whole, others: Whole) -> Whole:
    """Take others off while they go the same ways and nowhere farther."""
    while np.any(move):
        inside = np.flatnonzero(_inside(move, others))
        if not inside.size:
            return move
        move = move - others[inside[0]]
    return move


def _basis(matrix: NDArray) -> list[NDArray[np.int64]]:
    """Lattice basis of the whole-number vectors that a matrix takes to zero."""
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
