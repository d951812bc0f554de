"""The sweep over records where the density is not a sum over components of the statistic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

__all__ = ["make_joint_sweep"]


def make_joint_sweep(log_density: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a sweep for a density of the whole vector of totals.

    Parameters
    ----------
    log_density : callable
        Numba-compiled ``log_density(totals, released)`` of two vectors, all releases together,
        giving a tuple with one array of no dimension: a compiled PyTensor graph.

    Returns
    -------
    callable
        As of :func:`~pymc_dp.analyst.record_gibbs.sweep.make_sweep`, the last two arguments unused.
    """

    @numba.njit
    def sweep(  # type: ignore[no-untyped-def]
        contributions,
        proposed,
        log_weight,
        proposed_log_weight,
        log_uniform,
        totals,
        released,
        noise,
        kind,
    ):
        n, k = contributions.shape
        weighted = log_weight.size > 0
        accepted = np.zeros(n, dtype=np.bool_)
        trial = np.empty(k)
        current = log_density(totals, released)[0].item()
        lowest = 0.0
        for i in range(n):
            log_ratio = proposed_log_weight[i] - log_weight[i] if weighted else 0.0
            moves = False
            for j in range(k):
                trial[j] = totals[j] + proposed[i, j] - contributions[i, j]
                moves = moves or proposed[i, j] != contributions[i, j]
            moved = log_density(trial, released)[0].item() if moves else current
            log_ratio += moved - current if moves else 0.0
            # an impossible start (minus infinity) is left at the first chance
            impossible = current == -np.inf or (weighted and log_weight[i] == -np.inf)
            if log_ratio > log_uniform[i] or impossible:
                accepted[i] = True
                if weighted:
                    log_weight[i] = proposed_log_weight[i]
                for j in range(k):
                    totals[j] = trial[j]
                    contributions[i, j] = proposed[i, j]
                current = moved
            if log_ratio < lowest:
                lowest = log_ratio
        return accepted, lowest

    return sweep
