"""Offer every record a proposal and keep those that are accepted: a part of a cycle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pymc_dp.numerics.cycles import Part, Place, inner

__all__ = ["make_record_move"]


def make_record_move(
    propose: Callable[..., Any],
    evaluate: Callable[..., Any],
    sweep: Callable[..., Any],
    place: Place,
) -> Part:
    """Compile Algorithm 1, step 2, of Ju et al. (2022).

    Parameters
    ----------
    propose : callable
        ``propose(rng, theta, given)`` gives a table of proposals, their contributions (n, k) and
        their log-weights (n,), empty where there are none.
    evaluate : callable
        ``evaluate(theta, given, table)`` gives contributions and log-weights of the current
        records, and the statistic (k,).
    sweep : callable
        As of :func:`~pymc_dp.analyst.record_gibbs.sweep.make_sweep`.
    place : Place
        Where the records are.
    """
    (first, last), n, (start, stop), report = place

    @inner
    def move(rng, arrays, tune):  # type: ignore[no-untyped-def]
        table = arrays.table
        drawn, proposed, proposed_log_weight = propose(rng, arrays.theta, arrays.given)
        contributions, log_weight, statistic = evaluate(arrays.theta, arrays.given, table)
        log_uniform = np.empty(n)
        for i in range(n):
            log_uniform[i] = -rng.standard_exponential()
        accepted, lowest = sweep(
            contributions,
            proposed,
            log_weight,
            proposed_log_weight,
            log_uniform,
            statistic,
            arrays.released[start:stop],
            arrays.noise[start:stop],
            arrays.kind[start:stop],
        )
        total = 0
        for i in range(n):
            total += accepted[i]
        for j in range(first, last):
            for i in range(n):
                if accepted[i]:
                    table[j, i] = drawn[j - first, i]
        arrays.report[report], arrays.report[report + 1] = total / n, lowest

    return move
