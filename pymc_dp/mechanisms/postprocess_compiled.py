"""Densities of changed noisy values for the inner loops of samplers.

Each function is compiled once for a set of bounds; :mod:`pymc_dp.mechanisms.postprocess` has the
same as graphs, and says what they mean.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numba
import numpy as np


@lru_cache(maxsize=256)  # not all that were ever made
def compiled_edge(step: float, above: float, how: str) -> Callable[[float], float]:
    """Least noisy value that is moved to ``k * step`` or higher.

    The names matter: with what a function closes over, its name is its key in the cache on disk.
    """

    @numba.njit
    def nearest(k: float) -> float:
        return step * (k - 0.5)

    @numba.njit
    def floor(k: float) -> float:
        return step * k

    @numba.njit
    def ceil(k: float) -> float:
        return step * (k - 1) + above

    @numba.njit
    def trunc(k: float) -> float:
        return step * k if k > 0 else step * (k - 1) + above

    return {"nearest": nearest, "floor": floor, "ceil": ceil, "trunc": trunc}[how]


@lru_cache(maxsize=256)  # not all that were ever made
def clamped_first_density(density: Any, lower: float, upper: float) -> Callable[..., float]:
    """Density where the statistic was clamped before the noise."""

    @numba.njit
    def log_density(released: float, statistic: float, noise: float) -> float:
        return density(released, min(max(statistic, lower), upper), noise)

    return log_density


@lru_cache(maxsize=256)  # not all that were ever made
def clamped_first_interval(interval: Any, lower: float, upper: float) -> Callable[..., float]:
    """Probability of an interval where the statistic was clamped before the noise."""

    @numba.njit
    def log_interval(low: float, high: float, statistic: float, noise: float) -> float:
        return interval(low, high, min(max(statistic, lower), upper), noise)

    return log_interval


@lru_cache(maxsize=256)  # not all that were ever made
def clamped_density(
    density: Any, interval: Any, lower: float, upper: float, half: float
) -> Callable[..., float]:
    """Density inside the bounds, probability at them."""

    @numba.njit
    def log_density(released: float, statistic: float, noise: float) -> float:
        if released == lower:
            return interval(-np.inf, lower + half, statistic, noise)
        if released == upper:
            return interval(upper, np.inf, statistic, noise)
        return density(released, statistic, noise)

    return log_density


@lru_cache(maxsize=256)  # not all that were ever made
def clamped_interval(interval: Any, lower: float, upper: float) -> Callable[..., float]:
    """Probability of an interval; a bound outside the clamp is none."""

    @numba.njit
    def log_interval(low: float, high: float, statistic: float, noise: float) -> float:
        if low > upper or high <= lower:
            return -np.inf
        low = -np.inf if low <= lower else low
        high = np.inf if high > upper else high
        return interval(low, high, statistic, noise)

    return log_interval


@lru_cache(maxsize=256)  # not all that were ever made
def rounded_density(interval: Any, edge: Any, step: float) -> Callable[..., float]:
    """Probability of the noisy values that a multiple of the step stands for."""

    @numba.njit
    def log_density(released: float, statistic: float, noise: float) -> float:
        k = np.round(released / step)
        return interval(edge(k), edge(k + 1), statistic, noise)

    return log_density


@lru_cache(maxsize=256)  # not all that were ever made
def rounded_interval(interval: Any, edge: Any, step: float) -> Callable[..., float]:
    """Probability that the rounded value lies in an interval."""

    @numba.njit
    def log_interval(low: float, high: float, statistic: float, noise: float) -> float:
        return interval(edge(np.ceil(low / step)), edge(np.ceil(high / step)), statistic, noise)

    return log_interval


@lru_cache(maxsize=256)  # not all that were ever made
def thresholded_density(density: Any, interval: Any, threshold: float) -> Callable[..., float]:
    """Density of a kept value, probability of a dropped one."""

    @numba.njit
    def log_density(released: float, statistic: float, noise: float) -> float:
        if not released >= threshold:
            return interval(-np.inf, threshold, statistic, noise)
        return density(released, statistic, noise)

    return log_density
