"""One sweep of propose-and-accept over records: Ju et al. (2022), Algorithm 1, step 2."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numba
import numpy as np

__all__ = ["make_sweep"]


@numba.njit
def _no_density(released: float, statistic: float, noise: float) -> float:
    return 0.0


def switch(densities: tuple[Callable[..., float], ...]) -> Callable[..., float]:
    """Make one function of several densities, chosen by number."""
    first, *rest = densities
    if not rest:

        @numba.njit
        def log_density(kind: int, released: float, statistic: float, noise: float) -> float:
            return first(released, statistic, noise)
    else:
        others = switch(tuple(rest))

        @numba.njit
        def log_density(kind: int, released: float, statistic: float, noise: float) -> float:
            if kind == 0:
                return first(released, statistic, noise)
            return others(kind - 1, released, statistic, noise)

    return log_density


@lru_cache(maxsize=256)  # not all that were ever made
def make_sweep(densities: tuple[Callable[..., float], ...]) -> Callable[..., Any]:
    """Compile a sweep for releases with the given noise densities.

    Returns
    -------
    callable
        ``sweep(contributions, proposed, log_weight, proposed_log_weight, log_uniform, statistic,
        released, noise, kind)``. `contributions` (n, k) are the current records' and are updated in
        place, as is `statistic` (k,), their sum with what is constant; `proposed` (n, k) are those
        of the proposals. `log_weight` (n,) is the log-density of other terms, updated in place too,
        or empty where there are none. A proposal is accepted when its log-ratio exceeds
        `log_uniform` (n,), logarithms of uniform numbers. `released`, `noise` and `kind` (k,)
        describe the components, `kind` being a position in `densities`. Gives back which records
        were accepted (n,) and the lowest log-ratio.
    """
    log_density = switch(densities or (_no_density,))

    @numba.njit
    def sweep(  # type: ignore[no-untyped-def]
        contributions,
        proposed,
        log_weight,
        proposed_log_weight,
        log_uniform,
        statistic,
        released,
        noise,
        kind,
    ):
        n, k = contributions.shape
        weighted = log_weight.size > 0
        accepted = np.zeros(n, dtype=np.bool_)
        current = np.empty(k)
        moved = np.empty(k)
        for j in range(k):
            current[j] = log_density(kind[j], released[j], statistic[j], noise[j])
        lowest = 0.0
        for i in range(n):
            log_ratio = proposed_log_weight[i] - log_weight[i] if weighted else 0.0
            for j in range(k):
                moved[j] = current[j]
                change = proposed[i, j] - contributions[i, j]
                if change != 0.0:
                    moved[j] = log_density(kind[j], released[j], statistic[j] + change, noise[j])
                    log_ratio += moved[j] - current[j]
            # an impossible start (minus infinity) is left at the first chance
            if log_ratio > log_uniform[i] or (weighted and log_weight[i] == -np.inf):
                accepted[i] = True
                if weighted:
                    log_weight[i] = proposed_log_weight[i]
                for j in range(k):
                    statistic[j] += proposed[i, j] - contributions[i, j]
                    contributions[i, j] = proposed[i, j]
                    current[j] = moved[j]
            lowest = min(lowest, log_ratio)
        return accepted, lowest

    return sweep
