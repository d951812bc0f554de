"""Neighbouring cells summed out at once, where their laws have phi alone and noise has one mode.

The loop is written out for each of the cells (lanes), so that all sums stay in registers and
processors add several of them in one instruction: half the time of a loop over arrays.
"""

from __future__ import annotations

import numpy as np

from pymc_dp.analyst.count_gibbs.windows import ABOVE, BELOW, DOWN, LANES, PEAK, UP
from pymc_dp.numerics.compiled import join, source_key
from pymc_dp.numerics.cycles import inner_cached

__all__ = ["TINY", "block_sums", "draw_block"]

#: weights below this share of their sum change no digit of it
TINY = 1e-17
#: steps between looks whether the tails are reached
_EVERY = 4


def _lanes(line: str, between: str = "\n    ") -> str:
    """Write a line out for every lane, whose number takes the place of @."""
    return between.join(line.replace("@", str(lane)) for lane in range(LANES))


_IN_SIDE, _IN_STEP = "\n        ", "\n                "
_BLOCK_SUMS = f"""
def block_sums(phi, first, header, steps, totals, moments):
    last = len(header) - 1
    above, below = 0.0, 0.0
    for i in range(first, min(first + {LANES}, last + 1)):
        above, below = max(above, header[i, {ABOVE}]), max(below, header[i, {BELOW}])
    {_lanes("r@ = np.exp(phi[min(first + @, last)])")}
    {_lanes("t@, m@ = 1.0, 0.0")}
    at, number, far, way = int(header[first, {UP}]), int(above), 0.0, 1.0
    for side in range(2):
        {_lanes("w@ = 1.0", _IN_SIDE)}
        j = 0
        while j < number:
            stop = min(j + {_EVERY}, number)
            while j < stop:
                far += way
                {_lanes("w@ *= steps[at + @] * r@", _IN_STEP)}
                {_lanes("t@ += w@", _IN_STEP)}
                {_lanes("m@ += far * w@", _IN_STEP)}
                at += {LANES}
                j += 1
            if {_lanes(f"w@ < {TINY} * t@", " and ")}:
                break
        at, number, far, way = int(header[first, {DOWN}]), int(below), 0.0, -1.0
        {_lanes("r@ = 1.0 / r@", _IN_SIDE)}
    {_lanes("totals[@], moments[@] = t@, m@")}
    if {_lanes("t@ < 1e38", " and ")}:
        return np.log({_lanes("t@", " * ")})
    return {_lanes("np.log(t@)", " + ")}
"""

#: ``block_sums(phi, first, header, steps, totals, moments)``: sums over the counts of the cells
#: from `first` on, relative to the peak's weight, and moments of counts less the peak's. Gives the
#: sum of their logarithms, which may not be finite. Walks away from the peak end in the tails.
block_sums = join(
    _BLOCK_SUMS,
    {"np": np},
    source_key(__name__),
    error_model="numpy",
    fastmath={"contract"},
    no_cpython_wrapper=True,
    no_cfunc_wrapper=True,
)


@inner_cached
def draw_block(rng, phi, first, header, steps, totals, out):  # type: ignore[no-untyped-def]
    """Draw the same cells, given their sums: from the peak to both sides until a level is met."""
    for i in range(first, min(first + LANES, len(header))):
        rise, level = np.exp(phi[i]), rng.random() * totals[i - first] - 1.0
        fall = np.exp(-phi[i])  # not 1 / rise, which may be 0
        up, down, j, k = 1.0, 1.0, 0, 0
        above, below = int(header[i, ABOVE]), int(header[i, BELOW])
        begin_up, begin_down = int(header[i, UP]), int(header[i, DOWN])
        count = header[i, PEAK]
        going = level > 0.0
        while going:
            if j < above:
                up *= steps[begin_up + LANES * j] * rise
                level -= up
                j += 1
                if level <= 0.0:
                    count += j
                    break
            if k < below:
                down *= steps[begin_down + LANES * k] * fall
                level -= down
                k += 1
                if level <= 0.0:
                    count -= k
                    break
            going = j < above or k < below  # else rounding alone is left of the level: the peak
        out[i] = count
