"""Counts that the noise on a cell leaves possible, and how likely it makes each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pymc_dp.types import Matrix, Vector

__all__ = [
    "ABOVE",
    "BELOW",
    "DOWN",
    "HEADER",
    "LANES",
    "PEAK",
    "REFERENCE",
    "TRIALS",
    "UNIMODAL",
    "UP",
    "Components",
    "Windows",
    "windows_of",
]

#: counts that the noise makes this much less likely (log) than the likeliest are left out: the
#: release and the parameters may contradict each other as much (24 sigmas of Gaussian noise)
NEGLIGIBLE = 300.0
#: counts of one cell, and of all, at the most: where noise leaves more, cells are moved instead
MOST_COUNTS, MOST_IN_ALL = 2**17, 2**22
#: columns of `Windows.header`, and their number
PEAK, UP, ABOVE, DOWN, BELOW, UNIMODAL, TRIALS, REFERENCE = range(8)
HEADER = 8
#: cells whose steps lie side by side, so that they are summed at once
LANES = 8

#: ``log_noise(components, which, statistic)``: log-density of some components
LogNoise = Callable[[NDArray[np.int64], Vector], Vector]


class Components(NamedTuple):
    """Released numbers, each of one linear combination of cells.

    Attributes
    ----------
    released, noise, constant : ndarray
        Value, noise parameter, and what the combination is where all cells are zero.
    kind : ndarray
        Position of the log-density among those that there are.
    """

    released: Vector
    noise: Vector
    constant: Vector
    kind: NDArray[np.int64]


class Windows(NamedTuple):
    """For every cell the counts that are possible.

    Attributes
    ----------
    header : ndarray, shape (cells, 8)
        The count that the noise makes likeliest (the peak); where the steps up from it begin and
        how many there are, and the same for steps down; whether the noise's log-density is concave;
        m, or zero; and a count at which PyMC's density is taken.
    steps : ndarray
        How much likelier the next count is than the one before, away from the peak, by the noise
        and by what the law has besides its parameters, 1 / (k + 1) and m - k. A cell's steps are
        `LANES` apart, those of its neighbours between them, followed by zeros up to the longest.
    """

    header: Matrix
    steps: Vector


def windows_of(
    matrix: Any,
    components: Components,
    log_noise: LogNoise,
    bounds: tuple[NDArray[np.int64], NDArray[np.int64]],
    trials: Vector,
    reference: Vector,
) -> Windows | None:
    """Find the windows of cells that are released one by one; None where they are too wide.

    Parameters
    ----------
    matrix : csr_array
        One row a component, with one entry at the most.
    components : Components
        What was released.
    log_noise : callable
        ``log_noise(which, statistic)``, the log-density of components at statistics.
    bounds : tuple of ndarray
        Lowest and highest count of every cell.
    trials : ndarray
        m of every cell's law, zero for none.
    reference : ndarray
        Counts at which PyMC's density is taken.
    """
    seen = matrix.tocoo()
    rows, cells, factors = seen.row.astype(np.int64), seen.col, seen.data
    low, high = (bound.astype(float) for bound in bounds)

    def density(k: Vector) -> Vector:
        return log_noise(rows, components.constant[rows] + factors * k)

    centre = (components.released[rows] - components.constant[rows]) / factors
    centre = np.clip(centre, low[cells], high[cells])
    up, down = density(np.ceil(centre)), density(np.floor(centre))
    peak = np.where(up > down, np.ceil(centre), np.floor(centre))
    least = np.maximum(up, down) - NEGLIGIBLE
    left = peak - _reach(lambda d: density(peak - d) > least, peak - low[cells])
    right = peak + _reach(lambda d: density(peak + d) > least, high[cells] - peak)

    first, last = np.full(low.size, np.inf), np.full(low.size, -np.inf)
    np.minimum.at(first, cells, left)
    np.maximum.at(last, cells, right)
    sizes = last - first + 1
    if not np.all(sizes <= MOST_COUNTS) or sizes.sum() > MOST_IN_ALL or low.size != len({*cells}):
        return None
    seen_by = (rows, cells.astype(np.int64), factors)
    log_p, k = _evaluated(first, sizes.astype(np.int64), seen_by, components, log_noise)
    return _arranged(log_p, k, sizes.astype(np.int64), trials, reference)


def _reach(possible: Callable[[Vector], NDArray[np.bool_]], most: Vector) -> Vector:
    """Largest distance, `most` at the most, up to which counts are possible."""
    inside, outside = np.zeros(most.size), np.minimum(1.0, most)
    growing = outside > 0
    while np.any(growing):
        found = possible(outside) & growing
        inside = np.where(found, outside, inside)
        growing = found & (outside < most) & (outside <= MOST_COUNTS)
        outside = np.where(growing, np.minimum(2 * outside, most), outside)
    while np.any(outside - inside > 1):
        middle = np.floor((inside + outside) / 2)
        found = possible(middle)
        inside = np.where(found, np.maximum(middle, inside), inside)
        outside = np.where(found, outside, np.minimum(middle, outside))
        outside = np.maximum(outside, inside)
    return inside


def _evaluated(
    first: Vector,
    sizes: NDArray[np.int64],
    seen_by: tuple[NDArray[np.int64], NDArray[np.int64], Vector],
    components: Components,
    log_noise: LogNoise,
) -> tuple[Vector, Vector]:
    """Log-density of the noise at every possible count, and the counts, cell after cell."""
    offsets = np.cumsum(sizes) - sizes
    k = _ranges(first.astype(np.int64), sizes).astype(float)
    log_p = np.zeros(k.size)
    for row, cell, factor in _one_a_cell(*seen_by):
        spread = np.repeat(row, sizes[cell])
        places = _ranges(offsets[cell], sizes[cell])
        statistic = components.constant[spread] + np.repeat(factor, sizes[cell]) * k[places]
        log_p[places] += log_noise(spread, statistic)
    return log_p, k


def _arranged(
    log_p: Vector, k: Vector, sizes: NDArray[np.int64], trials: Vector, reference: Vector
) -> Windows:
    """Lay the steps out for the sums."""
    header, blocks, end = np.zeros((sizes.size, HEADER)), [np.zeros(0)], 0
    header[:, TRIALS], header[:, REFERENCE] = trials, reference
    offsets = np.cumsum(sizes) - sizes
    for first in range(0, sizes.size, LANES):
        lanes = range(first, min(first + LANES, sizes.size))
        sides: list[list[Vector]] = [[], []]
        for i in lanes:
            here = slice(offsets[i], offsets[i] + sizes[i])
            change, count = np.diff(log_p[here]), k[here]
            with np.errstate(over="ignore"):
                steps = np.exp(change) / (count[:-1] + 1)
            steps *= trials[i] - count[:-1] if trials[i] > 0 else 1.0
            peak = int(np.argmax(log_p[here]))
            header[i, PEAK], header[i, ABOVE], header[i, BELOW] = (
                count[peak],
                sizes[i] - 1 - peak,
                peak,
            )
            header[i, UNIMODAL] = np.all(np.isfinite(change)) and np.all(np.diff(change) < 1e-9)
            sides[0].append(steps[peak:])
            sides[1].append(1 / steps[:peak][::-1])
        for column, side in zip((UP, DOWN), sides, strict=True):
            block = np.zeros((max(len(steps) for steps in side), LANES))
            for lane, steps in enumerate(side):
                block[: len(steps), lane] = steps
                header[first + lane, column] = end + lane
            blocks.append(block.ravel())
            end += block.size
    return Windows(header, np.concatenate(blocks))


def _one_a_cell(rows: Any, cells: Any, factors: Any) -> Any:
    """Share components out to groups in which no cell is seen twice."""
    order = np.argsort(cells, kind="stable")
    rank = np.arange(cells.size) - np.searchsorted(cells[order], cells[order])
    for turn in range(int(rank.max(initial=-1)) + 1):
        chosen = order[rank == turn]
        yield rows[chosen], cells[chosen], factors[chosen]


def _ranges(starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Places from each start on, side by side."""
    ends = np.cumsum(sizes)
    return np.arange(ends[-1]) - np.repeat(ends - sizes, sizes) + np.repeat(starts, sizes)
