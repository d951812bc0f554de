"""The door through which numbers computed from confidential data leave: Gaussian noise on integers.

Sums of clipped values are held as whole numbers of a public unit, so they are exact, one record's
influence on them is exact too, and the set of values that can come out does not depend on the data.
What is not covered: the noise is a rounded float Gaussian with about 50 exact bits and no mass
beyond 16 standard deviations, not an exact discrete Gaussian.
"""

from collections.abc import Sequence

import numpy as np

from pymc_dp.numerics.entropy import system_normal

LEVELS = 2**32
"""Whole numbers between zero and a clip bound; public, the same for every data set."""


def release(
    totals: Sequence[int], sd: float, simulation: np.random.Generator | None = None
) -> list[int]:
    """Add Gaussian noise to whole numbers, to each its own.

    Parameters
    ----------
    totals : sequence of int
        Computed from confidential data.
    sd : float
        Standard deviation of the noise, in the same unit.
    simulation : numpy.random.Generator, optional
        Source of reproducible noise for research. Without it noise comes from the operating system.

    Returns
    -------
    list of int
        The noised numbers, which may be published at the price of ``sd``.

    Examples
    --------
    >>> from pymc_dp.accounting.noise import LEVELS, release
    >>> noisy = release([5 * LEVELS, 0], sd=100.0 * LEVELS)
    >>> [isinstance(level, int) for level in noisy]
    [True, True]
    """
    size = len(totals)
    draws = system_normal(size) if simulation is None else simulation.normal(size=size).tolist()
    return [int(total) + round(sd * draw) for total, draw in zip(totals, draws, strict=True)]
