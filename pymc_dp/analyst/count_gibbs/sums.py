"""Cells summed out exactly, and drawn: sums over the counts that the noise leaves possible."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

from pymc_dp.analyst.count_gibbs.block_sums import TINY, block_sums, draw_block
from pymc_dp.analyst.count_gibbs.laws import ALPHA, BETA, PHI, TERMS, ZERO
from pymc_dp.analyst.count_gibbs.windows import (
    ABOVE,
    BELOW,
    DOWN,
    HEADER,
    LANES,
    PEAK,
    REFERENCE,
    TRIALS,
    UNIMODAL,
    UP,
)
from pymc_dp.compat import compile_numba_function_src, numba_njit, register_funcify_and_cache_key
from pymc_dp.numerics.compiled import cached_jit, source_key
from pymc_dp.numerics.cycles import inner_cached

__all__ = ["draw_cells", "log_sums"]

#: weights are scaled down beyond this
_LARGE, _SMALL = 1e200, 1e-200
#: parameters beyond this make single factors of a weight overflow
_MOST_PHI = 200.0


@inner_cached
def _ratio(alpha, beta, trials, k):  # type: ignore[no-untyped-def]
    """How much likelier k + 1 is than k by the law's alpha and beta."""
    ratio = 1.0
    if alpha >= 0.0:
        ratio *= k + alpha
    if beta >= 0.0:
        ratio /= trials - k - 1.0 + beta
    return ratio


@inner_cached
def _weigh_far(phi, alpha, beta, zero, window, steps, weights):  # type: ignore[no-untyped-def]
    """Do as :func:`_weigh` by logarithms, where one factor of a weight may overflow."""
    below, above, peak = int(window[BELOW]), int(window[ABOVE]), window[PEAK]
    top, total = 0.0, 0.0
    weights[below] = 0.0
    for side in range(2):
        at, begin = 0.0, int(window[UP if side == 0 else DOWN])
        for j in range(above if side == 0 else below):
            k = peak + j if side == 0 else peak - 1.0 - j
            ratio = phi + np.log(_ratio(alpha, beta, window[TRIALS], k))
            at += np.log(steps[begin + LANES * j]) + (ratio if side == 0 else -ratio)
            weights[below + j + 1 if side == 0 else below - 1 - j] = at
            top = max(top, at)
    first = peak - below
    if first == 0.0:
        weights[0] += zero
        top = max(top, weights[0])
    for j in range(below + above + 1):
        weights[j] = np.exp(weights[j] - top)
        total += weights[j]
    return below, above, total, top


@inner_cached
def _weigh(phi, alpha, beta, zero, window, steps, weights):  # type: ignore[no-untyped-def]
    """Weights of a cell's counts, relative to the peak's but for `zero`, into `weights`.

    The lowest count comes first. Gives how many below the peak and above it were weighed (all,
    unless law and noise have one mode, and then up to the tails), the sum, and the logarithm of
    what they were scaled down by.
    """
    below, above, peak = int(window[BELOW]), int(window[ABOVE]), window[PEAK]
    concave = window[UNIMODAL] == 1.0 and zero == 0.0
    concave = concave and (alpha < 0.0 or alpha >= 1.0) and (beta < 0.0 or beta >= 1.0)
    if abs(phi) > _MOST_PHI:
        return _weigh_far(phi, alpha, beta, zero, window, steps, weights)
    rise, scale, total = np.exp(phi), 0.0, 0.0
    reached = np.zeros(2, dtype=np.int64)
    for side in range(2):
        weight, begin = np.exp(-scale), int(window[UP if side == 0 else DOWN])
        for j in range(above + 1 if side == 0 else below):
            k = peak + j if side == 0 else peak - 1.0 - j
            place = below + j if side == 0 else below - 1 - j
            before = weight
            if side == 1:
                weight *= steps[begin + LANES * j]
                weight /= rise * _ratio(alpha, beta, window[TRIALS], k)
            elif j > 0:
                weight *= steps[begin + LANES * (j - 1)] * rise
                weight *= _ratio(alpha, beta, window[TRIALS], k - 1.0)
            weights[place] = weight
            if k == 0.0 and zero != 0.0:
                weights[place] *= np.exp(zero)
            total += weights[place]
            reached[side] = j if side == 0 else j + 1
            if concave and weight < before and weight < TINY * total:
                break
            if weight > _LARGE:
                for m in range(below - reached[1], below + reached[0] + 1):
                    weights[m] *= _SMALL
                total *= _SMALL
                weight *= _SMALL
                scale -= np.log(_SMALL)
    return reached[1], reached[0], total, scale


@inner_cached
def _slope(term, value, window, weights, fewer, more):  # type: ignore[no-untyped-def]
    """Mean of the logarithmic slope by alpha or beta, relative to the peak's; times the sum."""
    below, peak = int(window[BELOW]), window[PEAK]
    moment = 0.0
    for side in range(2):
        slope = 0.0
        for j in range(more if side == 0 else fewer):
            k = peak + j if side == 0 else peak - 1.0 - j
            part = 1.0 / (k + value if term == ALPHA else k + 1.0 - window[TRIALS] - value)
            slope += part if side == 0 else -part
            moment += weights[below + j + 1 if side == 0 else below - j - 1] * slope
    return moment


@inner_cached
def _cell_sum(phi, alpha, beta, zero, window, steps, weights, slopes):  # type: ignore[no-untyped-def]
    """Logarithm of a cell's sum, relative to the peak's weight, and its slopes."""
    fewer, more, total, scale = _weigh(phi, alpha, beta, zero, window, steps, weights)
    below, rest = int(window[BELOW]), (window, weights, fewer, more)
    moment = 0.0
    for j in range(below - fewer, below + more + 1):
        moment += weights[j] * (j - below)
    slopes[PHI] = moment / total
    slopes[ALPHA] = _slope(ALPHA, alpha, *rest) / total if alpha >= 0.0 else 0.0
    slopes[BETA] = _slope(BETA, beta, *rest) / total if beta >= 0.0 else 0.0
    slopes[ZERO] = weights[0] / total if window[PEAK] == below and fewer == below else 0.0
    return np.log(total) + scale


@inner_cached
def _widest(windows):  # type: ignore[no-untyped-def]
    most = 0.0
    for i in range(len(windows)):
        most = max(most, windows[i, ABOVE] + windows[i, BELOW])
    return int(most) + 1


@inner_cached
def _is_plain(windows, first, stop):  # type: ignore[no-untyped-def]
    """Whether the noise on neighbouring cells has one mode each."""
    plain = True
    for i in range(first, stop):
        plain = plain and windows[i, UNIMODAL] == 1.0
    return plain


@inner_cached
def _phi_alone(laws, first, stop):  # type: ignore[no-untyped-def]
    """Whether the laws of neighbouring cells have no other terms."""
    alone = True
    for i in range(first, stop):
        alone = alone and laws[ALPHA, i] < 0.0 and laws[BETA, i] < 0.0 and laws[ZERO, i] == 0.0
    return alone


@cached_jit()
def draw_cells(rng, laws, windows, steps, out):  # type: ignore[no-untyped-def]
    """Draw every cell from its law times the noise's density.

    Parameters
    ----------
    rng : Generator
        Source of randomness.
    laws : ndarray, shape (4, cells)
        The rows phi, alpha, beta and zero.
    windows, steps : ndarray
        See :class:`~pymc_dp.analyst.count_gibbs.windows.Windows`.
    out : ndarray
        Takes the counts.
    """
    weights, totals, moments = np.empty(_widest(windows)), np.empty(LANES), np.empty(LANES)
    for i in range(len(windows)):
        first = i - i % LANES
        if i == first:
            stop = min(first + LANES, len(windows))
            block = _is_plain(windows, first, stop) and _phi_alone(laws, first, stop)
            if block:
                found = block_sums(laws[PHI], first, windows, steps, totals, moments)
                block = found < np.inf
            if block:
                draw_block(rng, laws[PHI], first, windows, steps, totals, out)
        if block:
            continue
        window = windows[i]
        phi, alpha, beta, zero = laws[PHI, i], laws[ALPHA, i], laws[BETA, i], laws[ZERO, i]
        fewer, more, total, _ = _weigh(phi, alpha, beta, zero, window, steps, weights)
        below = int(window[BELOW])
        j, last = below - fewer, below + more
        level = rng.random() * total - weights[j]
        while level > 0.0 and j < last:
            j += 1
            level -= weights[j]
        out[i] = window[PEAK] + (j - below)


class LogSums(Op):
    """Sum over cells of the logarithms of their sums, and its slopes by the laws' terms.

    ``LogSums(terms)(windows, *values)``: `terms` names the terms that the laws have, phi first;
    `windows` is a vector, the flat header followed by the steps.
    """

    __props__ = ("terms", "cells")

    def __init__(self, terms: tuple[str, ...], cells: int) -> None:
        self.terms, self.cells = terms, cells

    def make_node(self, *inputs: Any) -> Apply:
        """Give a number, and a vector a term."""
        tensors = [pt.as_tensor(var) for var in inputs]
        vectors = [pt.tensor(dtype="float64", shape=(self.cells,)) for _ in self.terms]
        return Apply(self, tensors, [pt.dscalar(), *vectors])

    def perform(self, node: Any, inputs: Any, outputs: Any) -> None:
        """Compute outside of numba's mode."""
        for out, value in zip(outputs, self.compiled(python=True)(*inputs), strict=True):
            out[0] = np.asarray(value)

    def connection_pattern(self, node: Any) -> list[list[bool]]:
        """Tell that sums follow the laws; slopes are not differentiated again."""
        nothing = [False] * len(self.terms)
        return [[False, *nothing], *([True, *nothing] for _ in self.terms)]

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Any]:
        """Give the slopes of the sum."""
        return [DisconnectedType()(), *(cotangents[0] * slope for slope in outputs[1:])]

    def compiled(self, python: bool = False) -> Any:
        """Write the loop over cells out for the terms that there are."""
        source = _LOG_SUMS.format(
            inputs=", ".join(f"term_{term}" for term in self.terms),
            outputs=", ".join(f"slope_{term}" for term in self.terms),
            new="\n    ".join(f"slope_{t} = np.empty({self.cells})" for t in self.terms),
            values=", ".join(
                f"term_{term}[i]" if term in self.terms else repr(nothing)
                for term, nothing in TERMS.items()
            ),
            keep="\n            ".join(
                f"slope_{t}[i] = slopes[{list(TERMS).index(t)}]" for t in self.terms
            ),
            block=_BLOCK if self.terms == ("phi",) else "",
            cells=self.cells,
            header=HEADER,
            lanes=LANES,
        )
        parts = {"np": np, "cell_sum": _cell_sum, "widest": _widest, "is_plain": _is_plain}
        parts |= {"block_sums": block_sums, "PEAK": PEAK, "REFERENCE": REFERENCE}
        made = compile_numba_function_src(source, "log_sums", {"__name__": __name__, **parts})
        return numba_njit(made, final_function=python)


_LOG_SUMS = """
def log_sums(whole, {inputs}):
    windows = whole[: {header} * {cells}].reshape(({cells}, {header}))
    steps = whole[{header} * {cells} :]
    {new}
    slopes, weights = np.zeros(4), np.empty(widest(windows))
    totals, moments = np.empty({lanes}), np.empty({lanes})
    total = 0.0
    for first in range(0, {cells}, {lanes}):
        stop = min(first + {lanes}, {cells})
{block}
        for i in range(first, stop):
            total += cell_sum({values}, windows[i], steps, weights, slopes)
            {keep}
    for i in range({cells}):
        beyond = windows[i, PEAK] - windows[i, REFERENCE]
        total += beyond * term_phi[i]
        slope_phi[i] += beyond
    return np.asarray(total), {outputs}
"""
_BLOCK = """
        if is_plain(windows, first, stop):
            found = block_sums(term_phi, first, windows, steps, totals, moments)
            if found < np.inf:
                total += found
                for i in range(first, stop):
                    slope_phi[i] = moments[i - first] / totals[i - first]
                continue
"""


@register_funcify_and_cache_key(LogSums)
def _funcify(op: LogSums, **kwargs: Any) -> tuple[Any, str]:
    return op.compiled(), f"{source_key(__name__)} {op.terms} {op.cells}"


def log_sums(windows: Any, terms: dict[str, Any], cells: int) -> Any:
    """Sum of the logarithms of cells' sums over counts, a graph; see :class:`LogSums`."""
    made: Any = LogSums(tuple(terms), cells)(windows, *terms.values())
    return made[0]
