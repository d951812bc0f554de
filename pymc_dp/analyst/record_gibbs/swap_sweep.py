"""Pairs of records that exchange a value, which keeps every total of that value."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numba
import numpy as np

from pymc_dp.analyst.record_gibbs.sweep import switch
from pymc_dp.numerics.cycles import Part, Place

__all__ = ["make_swap_move", "make_swap_sweep"]


@lru_cache(maxsize=256)  # not all that were ever made
def make_swap_sweep(densities: tuple[Callable[..., float], ...]) -> Callable[..., Any]:
    """Compile a sweep over pairs for releases with the given noise densities.

    Returns
    -------
    callable
        ``sweep(first, second, contributions, swapped, log_p, swapped_log_p, log_uniform, statistic,
        released, noise, kind)``. Pair j is the records ``first[j]`` and ``second[j]``, no record in
        two pairs. `contributions` (n, k) and `log_p` (n,), each record's own log-density, are those
        before the exchange, `swapped` and `swapped_log_p` those after it; the rest is as in
        :func:`~pymc_dp.analyst.record_gibbs.sweep.make_sweep`. Gives back which pairs were
        exchanged.
    """
    log_density = switch(densities)

    @numba.njit
    def sweep(  # type: ignore[no-untyped-def]
        first,
        second,
        contributions,
        swapped,
        log_p,
        swapped_log_p,
        log_uniform,
        statistic,
        released,
        noise,
        kind,
    ):
        k = contributions.shape[1]
        accepted = np.zeros(first.size, dtype=np.bool_)
        change = np.empty(k)
        for pair in range(first.size):
            a, b = first[pair], second[pair]
            log_ratio = swapped_log_p[a] + swapped_log_p[b] - log_p[a] - log_p[b]
            for j in range(k):
                change[j] = (
                    swapped[a, j] + swapped[b, j] - contributions[a, j] - contributions[b, j]
                )
                if change[j] != 0.0:
                    moved = log_density(kind[j], released[j], statistic[j] + change[j], noise[j])
                    log_ratio += moved - log_density(kind[j], released[j], statistic[j], noise[j])
            if log_ratio > log_uniform[pair]:
                accepted[pair] = True
                for j in range(k):
                    statistic[j] += change[j]
        return accepted

    return sweep


def make_swap_move(
    evaluate: Callable[..., Any],
    statistic_of: Callable[..., Any],
    densities: tuple[Callable[..., float], ...],
    place: Place,
) -> Part:
    """Compile a part of a cycle that offers every record an exchange with a random partner.

    Parameters
    ----------
    evaluate : callable
        ``evaluate(theta, given, table)`` gives contributions (n, k) and the records' own
        log-densities (n,).
    statistic_of : callable
        ``statistic_of(theta, given, table)`` gives the statistic (k,) as its third result.
    densities : tuple of callable
        As for :func:`make_swap_sweep`.
    place : Place
        Where the records are; its rows are those that are exchanged.
    """
    sweep = make_swap_sweep(densities)
    (first_row, last_row), n, (start, stop), _ = place

    @numba.njit
    def move(rng, arrays, tune):  # type: ignore[no-untyped-def]
        theta, given, table = arrays.theta, arrays.given, arrays.table
        order = rng.permutation(n)
        half = n // 2
        first, second = order[:half], order[half : 2 * half]
        trial = table.copy()
        for row in range(first_row, last_row):
            for a, b in zip(first, second):  # noqa: B905 - numba knows no strict=
                trial[row, a], trial[row, b] = table[row, b], table[row, a]
        contributions, log_p = evaluate(theta, given, table)
        swapped, swapped_log_p = evaluate(theta, given, trial)
        statistic = statistic_of(theta, given, table)[2].copy()
        log_uniform = np.empty(half)
        for pair in range(half):
            log_uniform[pair] = -rng.standard_exponential()
        accepted = sweep(
            first,
            second,
            contributions,
            swapped,
            log_p,
            swapped_log_p,
            log_uniform,
            statistic,
            arrays.released[start:stop],
            arrays.noise[start:stop],
            arrays.kind[start:stop],
        )
        for pair in range(half):
            if accepted[pair]:
                for row in range(first_row, last_row):
                    for record in (first[pair], second[pair]):
                        table[row, record] = trial[row, record]

    return move
