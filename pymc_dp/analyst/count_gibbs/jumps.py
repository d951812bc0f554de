"""Cells that are empty more often than their law's other counts tell: jumps to zero and back.

Between zero and the counts of a cell that is not empty there may be nothing likely, and moves of
some units do not cross it. A jump offers an empty cell a count near the most likely one given all
others, and any other cell to be empty. What is offered depends on the other cells alone, so that
a jump and its way back are accepted by the ratio of the densities and of what is offered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pymc_dp.analyst.count_gibbs.laws import ALPHA, BETA, PHI, ZERO
from pymc_dp.analyst.count_gibbs.sweep import law_term
from pymc_dp.numerics.compiled import join

__all__ = ["make_jump"]

_LEAST = 1e-9  # that a density must rise by: rounding is not the same on the way back


def log_noise(kind, released, statistic, noise):  # type: ignore[no-untyped-def]
    """Log-density of one component: a place to be taken."""
    raise NotImplementedError


def _gain(arrays, laws, counts, statistic, change, cells, units, number, k):  # type: ignore[no-untyped-def]
    """Log-density of cells with k times some units more, less that of the cells as they are."""
    gain = 0.0
    for n in range(number):
        i, more = cells[n], k * units[n]
        if not arrays.low[i] <= counts[i] + more <= arrays.high[i]:
            return -np.inf
        gain += law_term(
            laws[PHI, i], laws[ALPHA, i], laws[BETA, i], laws[ZERO, i], arrays.trials[i],
            counts[i], more,
        )  # fmt: skip
    for n in range(number):
        for at in range(arrays.starts[cells[n]], arrays.starts[cells[n] + 1]):
            change[arrays.rows[at]] += k * units[n] * arrays.factors[at]
    for n in range(number):
        for at in range(arrays.starts[cells[n]], arrays.starts[cells[n] + 1]):
            r = arrays.rows[at]
            if change[r] != 0.0 and arrays.kind[r] >= 0:
                kind, released, noise = arrays.kind[r], arrays.released[r], arrays.noise[r]
                gain += log_noise(kind, released, statistic[r] + change[r], noise)
                gain -= log_noise(kind, released, statistic[r], noise)
            change[r] = 0.0
    return gain


def gain(arrays, laws, counts, statistic, change, cells, units, number, k):  # type: ignore[no-untyped-def]
    """See :func:`_gain`: a place to be taken."""
    raise NotImplementedError


def _jump(rng, arrays, laws, counts, statistic, change, cells, units, number):  # type: ignore[no-untyped-def]
    """Offer the first of some cells, whose units others may take, to be empty or not to be."""
    i = cells[0]
    here, most = counts[i], arrays.high[i]
    if number > 1:
        most = min(most, here + counts[cells[1]] - arrays.low[cells[1]])
    if arrays.low[i] > 0.0 or most < 1.0:
        return False
    below, mode = 0.0, 1.0  # the density rises up to `below`
    while mode < most:
        up = gain(arrays, laws, counts, statistic, change, cells, units, number, mode + 1.0 - here)
        up -= gain(arrays, laws, counts, statistic, change, cells, units, number, mode - here)
        if not up > _LEAST:
            break
        below, mode = mode, min(2.0 * mode, most)
    while mode - below > 1.0:
        middle = np.floor(0.5 * (below + mode))
        up = gain(arrays, laws, counts, statistic, change, cells, units, number, middle + 1 - here)
        up -= gain(arrays, laws, counts, statistic, change, cells, units, number, middle - here)
        if up > _LEAST:
            below = middle
        else:
            mode = middle
    top = gain(arrays, laws, counts, statistic, change, cells, units, number, mode - here)
    width, wide = 1.0, True
    while wide and width < most:
        wide = False
        for there in (mode - width, mode + width):
            if 1.0 <= there <= most:
                down = top - gain(
                    arrays, laws, counts, statistic, change, cells, units, number, there - here
                )
                wide = wide or down < 1.0 - _LEAST
        width = 2.0 * width if wide else width
    there = 0.0
    if here == 0.0:  # two-sided geometric around the mode
        there = mode + np.floor(width * rng.standard_exponential())
        there -= np.floor(width * rng.standard_exponential())
        if there < 1.0 or there > most:
            return False
    offered = np.log(np.tanh(0.5 / width)) - abs(max(here, there) - mode) / width
    k = there - here
    ratio = gain(arrays, laws, counts, statistic, change, cells, units, number, k)
    ratio += offered if there == 0.0 else -offered
    if -rng.standard_exponential() >= ratio:
        return False
    for n in range(number):
        counts[cells[n]] += k * units[n]
        for at in range(arrays.starts[cells[n]], arrays.starts[cells[n] + 1]):
            statistic[arrays.rows[at]] += k * units[n] * arrays.factors[at]
    return True


def make_jump(log_noise: Any, key: str | None) -> Callable[..., bool]:
    """Compile ``jump(rng, arrays, laws, counts, statistic, change, cells, units, number)``.

    Parameters
    ----------
    log_noise, key
        As of :func:`~pymc_dp.analyst.count_gibbs.sweep.make_sweep`.
    """
    gain = join(_gain, {"log_noise": log_noise}, None if key is None else f"{key} gain")
    made: Callable[..., bool] = join(_jump, {"gain": gain}, key)
    return made
