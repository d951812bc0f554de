"""Cells moved by a few units at a time, alone, in pairs or along a lattice, in compiled loops."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pymc_dp.analyst.count_gibbs.laws import ALPHA, BETA, PHI, ZERO
from pymc_dp.numerics.compiled import join
from pymc_dp.numerics.cycles import inner_cached
from pymc_dp.types import Vector

__all__ = ["Coordinates", "SweepArrays", "law_term", "make_sweep"]

Indices = NDArray[np.int64]

#: acceptance that scales of moves are tuned to
_TARGET = 0.44
#: kinds of components from here on have no density: totals that moves keep
EXACT = -1


class SweepArrays(NamedTuple):
    """What moves of cells need.

    Attributes
    ----------
    low, high, trials : ndarray
        Bounds of every cell, and m of its law or zero.
    starts, rows, factors : ndarray
        The releases' matrix by columns: what one unit in a cell adds to which components.
    row_starts, row_cells : ndarray
        The same by rows: which cells a component sees.
    released, noise, constant, kind : ndarray
        The components; kind is `EXACT` where there is no noise.
    free : ndarray
        Cells that may move alone.
    group, group_starts, members : ndarray
        Cells that exact totals do not tell apart: the group of every cell, and its members.
    move_starts, move_groups, move_units : ndarray
        Further moves that keep exact totals: units added to one cell of a group each.
    scales : ndarray
        Typical units of moves: of cells alone, of pairs, of further moves, side by side.
    """

    low: Vector
    high: Vector
    trials: Vector
    starts: Indices
    rows: Indices
    factors: Vector
    row_starts: Indices
    row_cells: Indices
    released: Vector
    noise: Vector
    constant: Vector
    kind: Indices
    free: NDArray[np.bool_]
    group: Indices
    group_starts: Indices
    members: Indices
    move_starts: Indices
    move_groups: Indices
    move_units: Vector
    scales: Vector


class Coordinates(NamedTuple):
    """Cells that move with the parameters: counts less a share of what their law expects.

    Attributes
    ----------
    cells, others : ndarray
        Cells whose counts are coordinates, and the cells that take what they lose; -1 for none.
    shares : ndarray
        How much of a change of its mean each cell follows.
    base : ndarray
        Counts at the start of a move.
    """

    cells: Indices
    others: Indices
    shares: Vector
    base: Vector


@inner_cached
def _log_rising(x, k):  # type: ignore[no-untyped-def]
    """Log of gamma(x + k) / gamma(x), for whole k."""
    if abs(k) > 6.0:
        return math.lgamma(x + k) - math.lgamma(x)
    product = 1.0
    for j in range(int(abs(k))):
        product *= x + j if k > 0 else x - 1.0 - j
    return math.log(product) if k > 0 else -math.log(product)


@inner_cached
def law_term(phi, alpha, beta, zero, trials, count, k):  # type: ignore[no-untyped-def]
    """How much a cell's log-probability changes by k more units."""
    change = k * phi - _log_rising(count + 1.0, k)
    if alpha >= 0.0:
        change += _log_rising(count + alpha, k)
    if trials > 0.0:
        change -= _log_rising(trials - count + 1.0, -k)
    if beta >= 0.0:
        change += _log_rising(trials - count + beta, -k)
    if zero != 0.0:
        change += (zero if count + k == 0.0 else 0.0) - (zero if count == 0.0 else 0.0)
    return change


def log_noise(kind, released, statistic, noise):  # type: ignore[no-untyped-def]
    """Log-density of one component: a place to be taken."""
    raise NotImplementedError


def _attempt(rng, arrays, laws, counts, statistic, change, cells, units, number, scale_at, rate):  # type: ignore[no-untyped-def]
    """Offer some cells k times some units, k drawn; learn its scale at a rate."""
    # taken out once: what is compiled grows with every look into a tuple
    low, high, trials, scales = arrays.low, arrays.high, arrays.trials, arrays.scales
    starts, rows, factors, kinds = arrays.starts, arrays.rows, arrays.factors, arrays.kind
    k = 1.0 + np.floor(scales[scale_at] * rng.standard_exponential())
    k = k if rng.random() < 0.5 else -k
    gain, possible = 0.0, True
    for n in range(number):
        i, more = cells[n], k * units[n]
        if not low[i] <= counts[i] + more <= high[i]:
            possible = False
            break
        gain += law_term(
            laws[PHI, i], laws[ALPHA, i], laws[BETA, i], laws[ZERO, i], trials[i], counts[i], more
        )
    if possible:
        for n in range(number):
            for at in range(starts[cells[n]], starts[cells[n] + 1]):
                change[rows[at]] += k * units[n] * factors[at]
        for n in range(number):
            for at in range(starts[cells[n]], starts[cells[n] + 1]):
                r = rows[at]
                if change[r] != 0.0 and kinds[r] >= 0:
                    here, there = statistic[r], statistic[r] + change[r]
                    kind, released, noise = kinds[r], arrays.released[r], arrays.noise[r]
                    gain += log_noise(kind, released, there, noise)
                    gain -= log_noise(kind, released, here, noise)
                    statistic[r], change[r] = there, 0.0
    accepted = possible and -rng.standard_exponential() < gain
    if accepted:
        for n in range(number):
            counts[cells[n]] += k * units[n]
    if possible:
        for n in range(number):
            for at in range(starts[cells[n]], starts[cells[n] + 1]):
                r = rows[at]
                if not accepted:
                    statistic[r] -= k * units[n] * factors[at]
                change[r] = 0.0
    if rate > 0.0:
        chance = min(1.0, np.exp(gain)) if possible else 0.0
        step = np.exp(rate * (chance - _TARGET))
        scales[scale_at] = min(max(scales[scale_at] * step, 1e-2), 1e15)
    return accepted


attempt = _attempt  # a place to be taken


def _sweep(rng, arrays, laws, counts, statistic, times, rate):  # type: ignore[no-untyped-def]
    """Offer moves to all cells; gives the share that was accepted."""
    starts, group, members = arrays.starts, arrays.group, arrays.members
    group_starts, move_starts = arrays.group_starts, arrays.move_starts
    size, moves, accepted, offered = counts.size, move_starts.size - 1, 0, 0
    change, longest = np.zeros(statistic.size), 2
    for m in range(moves):
        longest = max(longest, move_starts[m + 1] - move_starts[m])
    cells, units = np.zeros(longest, dtype=np.int64), np.zeros(longest)
    # cells alone and in pairs, in turns; then the further moves
    for turn in range(times * (2 * size + moves)):
        at = turn % (2 * size + moves)
        number = 0
        if at >= 2 * size:
            m = at - 2 * size
            number = move_starts[m + 1] - move_starts[m]
            for n in range(number):
                g = arrays.move_groups[move_starts[m] + n]
                first, stop = group_starts[g], group_starts[g + 1]
                cells[n] = members[first + int(rng.random() * (stop - first))]
                units[n] = arrays.move_units[move_starts[m] + n]
            scale_at = at
        elif at % 2 == 0:
            i = scale_at = at // 2
            if arrays.free[i]:
                cells[0], units[0], number = i, 1.0, 1
        else:
            i = at // 2
            scale_at, j = size + i, i
            first, stop = group_starts[group[i]], group_starts[group[i] + 1]
            if rng.random() < 0.5:  # any cell that exact totals do not tell from this one
                j = members[first + int(rng.random() * (stop - first))]
            elif starts[i + 1] > starts[i]:  # one that a component sees with it
                seen = starts[i] + int(rng.random() * (starts[i + 1] - starts[i]))
                first = arrays.row_starts[arrays.rows[seen]]
                stop = arrays.row_starts[arrays.rows[seen] + 1]
                j = arrays.row_cells[first + int(rng.random() * (stop - first))]
            if j != i and group[j] == group[i]:
                cells[0], units[0], cells[1], units[1], number = i, 1.0, j, -1.0, 2
        if number > 0:
            offered += 1
            accepted += attempt(
                rng, arrays, laws, counts, statistic, change, cells, units, number, scale_at, rate
            )
    return accepted / max(offered, 1)


def make_sweep(log_noise: Any, key: str | None) -> Callable[..., float]:
    """Compile ``sweep(rng, arrays, laws, counts, statistic, times, rate)``.

    `counts` and `statistic` change, and the scales of moves where `rate` is positive. Which cells
    are offered what does not depend on the counts, and units are as likely added as taken away, so
    that each move is accepted by the ratio of the densities.

    Parameters
    ----------
    log_noise : callable
        Numba-compiled ``log_noise(kind, released, statistic, noise)``.
    key : str or None
        Names it, for the cache on disk; None for none.
    """
    named = None if key is None else f"{key} attempt"
    attempt = join(_attempt, {"log_noise": log_noise}, named)
    compiled: Callable[..., float] = join(_sweep, {"attempt": attempt}, key)
    return compiled
