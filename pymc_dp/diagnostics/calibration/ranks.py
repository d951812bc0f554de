"""Where a parameter lies among posterior draws, and whether that many are worth as many."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["covered", "deviation", "effective_size", "interval_width", "pit", "thinned"]

Array = NDArray[np.float64]


def pit(truth: Array, draws: Array, rng: np.random.Generator) -> Array:
    """Place of a truth among draws, between 0 and 1.

    The rank among `n` independent draws of the same distribution is uniform on 0, ..., n, ties
    ordered at random (Talts et al. 2018). Spread over ``(rank + u) / (n + 1)``, `u` uniform, it
    is uniform on (0, 1), as tests and plots of ArviZ take it to be.

    Parameters
    ----------
    truth : array
        Values that made the data.
    draws : array
        Posterior draws of them, along the first axis.
    rng : numpy.random.Generator
        Breaks ties and spreads.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_dp.diagnostics.calibration.ranks import pit
    >>> below = pit(np.array([-5.0]), np.arange(99.0)[:, None], np.random.default_rng(0))
    >>> bool(below[0] < 0.01)
    True
    """
    below = (draws < truth).sum(axis=0)
    equal = (draws == truth).sum(axis=0)
    return (below + rng.random(np.shape(truth)) * (equal + 1)) / (len(draws) + 1)


def covered(places: Array, levels: Array) -> Array:
    """Share of replicates whose central interval has the truth in it, level by level.

    Parameters
    ----------
    places : array
        Of :func:`pit`, replicates along the first axis.
    levels : array
        Probabilities of the intervals.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_dp.diagnostics.calibration.ranks import covered
    >>> covered(np.linspace(0.005, 0.995, 100), np.array([0.5, 0.9]))
    array([0.5, 0.9])
    """
    outside = 2 * np.abs(places - 0.5)
    return np.array([(outside <= level).mean(axis=0) for level in levels])


def deviation(draws: Array) -> Array:
    """Estimate the standard deviation of draws along the first axis, without bias if normal."""
    n = len(draws)
    return draws.std(axis=0, dtype=np.float64) * np.sqrt(n / max(n - 1.5, 0.5))


def interval_width(draws: Array, prob: float) -> Array:
    """Width of the central interval of draws, along the first axis.

    Quantiles are those without bias, nearly, for normal draws: order statistics by the usual rules
    are up to 2% too far out in 99 of them.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.stats import norm
    >>> from pymc_dp.diagnostics.calibration.ranks import interval_width
    >>> expected_order_statistics = norm.ppf((np.arange(1, 100) - 3 / 8) / (99 + 1 / 4))
    >>> bool(abs(interval_width(expected_order_statistics, 0.9) - 2 * norm.ppf(0.95)) < 0.01)
    True
    """
    ends = [0.5 - prob / 2, 0.5 + prob / 2]
    real = draws.astype(np.float64)
    lower, upper = np.quantile(real, ends, axis=0, method="normal_unbiased")
    return upper - lower


def effective_size(draws: Array) -> float:
    """Smallest number of independent draws that columns of a chain are worth.

    Columns that never change are left out: a discrete parameter may be known.
    """
    from arviz_stats.base import array_stats  # half a second that others need not wait

    moving = draws[:, np.ptp(draws, axis=0) > 0]
    if moving.shape[1] == 0:
        return float(len(draws))
    sizes = array_stats.ess(moving.T[:, None, :], method="bulk")  # parameter, chain, draw
    return float(np.min(np.minimum(sizes, len(draws))))


def thinned(length: int, number: int) -> NDArray[np.int64]:
    """Choose so many of a chain's draws, evenly spread, the last one among them.

    Examples
    --------
    >>> from pymc_dp.diagnostics.calibration.ranks import thinned
    >>> thinned(10, 5)
    array([1, 3, 5, 7, 9])
    """
    return np.linspace(0, length, number + 1).astype(np.int64)[1:] - 1
