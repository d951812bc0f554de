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

__all__ = ["Coordinates", "SweepArrays", "law_term", "make_sweep", "no_jump"]

Indices = NDArray[np.int64]

#: acceptance that scales of moves are tuned to
_TARGET = 0.44
#: further moves that one sweep offers, at the most
MOST_OFFERED = 4000
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
    k = 1.0 + np.floor(arrays.scales[scale_at] * rng.standard_exponential())
    k = k if rng.random() < 0.5 else -k
    gain, possible = 0.0, True
    for n in range(number):
        i, more = cells[n], k * units[n]
        if not arrays.low[i] <= counts[i] + more <= arrays.high[i]:
            possible = False
            break
        gain += law_term(
            laws[PHI, i], laws[ALPHA, i], laws[BETA, i], laws[ZERO, i], arrays.trials[i],
            counts[i], more,
        )  # fmt: skip
    if possible:
        for n in range(number):
            for at in range(arrays.starts[cells[n]], arrays.starts[cells[n] + 1]):
                change[arrays.rows[at]] += k * units[n] * arrays.factors[at]
        for n in range(number):
            for at in range(arrays.starts[cells[n]], arrays.starts[cells[n] + 1]):
                r = arrays.rows[at]
                if change[r] != 0.0 and arrays.kind[r] >= 0:
                    here, there = statistic[r], statistic[r] + change[r]
                    kind, released, noise = arrays.kind[r], arrays.released[r], arrays.noise[r]
                    gain += log_noise(kind, released, there, noise)
                    gain -= log_noise(kind, released, here, noise)
                    statistic[r], change[r] = there, 0.0
    accepted = possible and -rng.standard_exponential() < gain
    if accepted:
        for n in range(number):
            counts[cells[n]] += k * units[n]
    if possible:
        for n in range(number):
            for at in range(arrays.starts[cells[n]], arrays.starts[cells[n] + 1]):
                r = arrays.rows[at]
                if not accepted:
                    statistic[r] -= k * units[n] * arrays.factors[at]
                change[r] = 0.0
    if rate > 0.0:
        chance = min(1.0, np.exp(gain)) if possible else 0.0
        step = np.exp(rate * (chance - _TARGET))
        arrays.scales[scale_at] = min(max(arrays.scales[scale_at] * step, 1e-2), 1e15)
    return accepted


attempt = _attempt  # a place to be taken


@inner_cached
def no_jump(rng, arrays, laws, counts, statistic, change, cells, units, number):  # type: ignore[no-untyped-def]
    """Stand in for jumps, where no cell is empty by a term of its own."""
    return False


jump = no_jump  # a place to be taken


def _sweep(rng, arrays, laws, counts, statistic, times, rate):  # type: ignore[no-untyped-def]
    """Offer moves to all cells; gives the share that was accepted."""
    size, accepted, offered = counts.size, 0, 0
    change, longest = np.zeros(statistic.size), 2
    for m in range(arrays.move_starts.size - 1):
        longest = max(longest, arrays.move_starts[m + 1] - arrays.move_starts[m])
    cells, units = np.zeros(longest, dtype=np.int64), np.zeros(longest)
    for _ in range(times):
        for i in range(size):
            cells[0], units[0] = i, 1.0
            if arrays.free[i]:
                offered += 1
                accepted += attempt(
                    rng, arrays, laws, counts, statistic, change, cells, units, 1, i, rate
                )
                if laws[ZERO, i] != 0.0:
                    jump(rng, arrays, laws, counts, statistic, change, cells, units, 1)
            first, stop = (
                arrays.group_starts[arrays.group[i]],
                arrays.group_starts[arrays.group[i] + 1],
            )
            j = i
            if rng.random() < 0.5:  # any cell that exact totals do not tell from this one
                j = arrays.members[first + int(rng.random() * (stop - first))]
            elif arrays.starts[i + 1] > arrays.starts[i]:  # one that a component sees with it
                number = arrays.starts[i + 1] - arrays.starts[i]
                r = arrays.rows[arrays.starts[i] + int(rng.random() * number)]
                number = arrays.row_starts[r + 1] - arrays.row_starts[r]
                j = arrays.row_cells[arrays.row_starts[r] + int(rng.random() * number)]
            if j != i and arrays.group[j] == arrays.group[i]:
                cells[1], units[1] = j, -1.0
                offered += 1
                accepted += attempt(
                    rng, arrays, laws, counts, statistic, change, cells, units, 2, size + i, rate
                )
                if laws[ZERO, i] != 0.0:
                    jump(rng, arrays, laws, counts, statistic, change, cells, units, 2)
        further = arrays.move_starts.size - 1
        for turn in range(min(further, MOST_OFFERED)):
            m = turn if further <= MOST_OFFERED else int(rng.random() * further)
            number = arrays.move_starts[m + 1] - arrays.move_starts[m]
            for n in range(number):
                g = arrays.move_groups[arrays.move_starts[m] + n]
                first, stop = arrays.group_starts[g], arrays.group_starts[g + 1]
                cells[n] = arrays.members[first + int(rng.random() * (stop - first))]
                units[n] = arrays.move_units[arrays.move_starts[m] + n]
            offered += 1
            accepted += attempt(
                rng, arrays, laws, counts, statistic, change, cells, units, number,
                2 * size + m, rate,
            )  # fmt: skip
    return accepted / max(offered, 1)


def make_sweep(log_noise: Any, key: str | None, jump: Any = no_jump) -> Callable[..., float]:
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
    jump : callable
        How cells with a zero term leave zero and come back
        (:func:`~pymc_dp.analyst.count_gibbs.jumps.make_jump`).
    """
    named = None if key is None else f"{key} attempt"
    attempt = join(_attempt, {"log_noise": log_noise}, named)
    compiled: Callable[..., float] = join(_sweep, {"attempt": attempt, "jump": jump}, key)
    return compiled
