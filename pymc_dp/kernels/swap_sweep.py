"""Pairs of records that exchange a value, which keeps every total of that value."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import numpy as np

from pymc_dp.kernels.sweep import switch

__all__ = ["make_swap_sweep"]


@cache
def make_swap_sweep(densities: tuple[Callable[..., float], ...]) -> Callable[..., Any]:
    """Compile a sweep over pairs for releases with the given noise densities.

    Returns
    -------
    callable
        ``sweep(first, second, contributions, swapped, log_p, swapped_log_p, log_uniform, statistic,
        released, noise, kind)``. Pair j is the records ``first[j]`` and ``second[j]``, no record in
        two pairs. `contributions` (n, k) and `log_p` (n,), each record's own log-density, are those
        before the exchange, `swapped` and `swapped_log_p` those after it; the rest is as in
        :func:`~pymc_dp.kernels.sweep.make_sweep`. Gives back which pairs were exchanged.
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
