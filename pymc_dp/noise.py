"""The door through which numbers computed from confidential data leave: Gaussian noise on integers.

Sums of clipped values are held as whole numbers of a public unit, so they are exact, one record's
influence on them is exact too, and the set of values that can come out does not depend on the data.
What is not covered: the noise is a rounded float Gaussian with about 50 exact bits and no mass
beyond 16 standard deviations, not an exact discrete Gaussian.
"""

import os
import struct
from statistics import NormalDist

import numpy as np

_inverse_cdf = NormalDist().inv_cdf
LEVELS = 2**32
"""Whole numbers between zero and a clip bound; public, the same for every data set."""


def secret_generator() -> np.random.Generator:
    """Make a random generator with a fresh seed from the operating system."""
    seed = int.from_bytes(os.urandom(32), "little")
    return np.random.Generator(np.random.PCG64DXSM(seed))


def secret_normal() -> float:
    """Draw a standard normal, every bit of it from the operating system.

    It is the sum of four inverse-CDF draws over two, so that the grid of the uniform draws cannot
    be read off the result (Holohan and Braghin, 2021).
    """
    words = struct.unpack("<4Q", os.urandom(32))
    return sum(_inverse_cdf(((word >> 12) + 0.5) * 2.0**-52) for word in words) / 2


def release(total: int, sd: float, simulation: np.random.Generator | None = None) -> int:
    """Add Gaussian noise to a whole number.

    Parameters
    ----------
    total : int
        Computed from confidential data.
    sd : float
        Standard deviation of the noise, in the same unit.
    simulation : numpy.random.Generator, optional
        Source of reproducible noise for research. Without it noise comes from the operating system.

    Returns
    -------
    int
        The noised number, which may be published at the price of ``sd``.

    Examples
    --------
    >>> from pymc_dp.noise import LEVELS, release
    >>> noisy = release(5 * LEVELS, sd=100.0 * LEVELS)
    >>> isinstance(noisy, int)
    True
    """
    draw = secret_normal() if simulation is None else float(simulation.normal())
    return int(total) + round(sd * draw)
