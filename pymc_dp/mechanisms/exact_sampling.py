"""Exact draws of integer noise: rational arithmetic on the operating system's entropy.

Canonne, Kamath & Steinke (2020), The discrete Gaussian for differential privacy, Algorithms 1 to 3.
No floating-point number is formed, so that nothing of the statistic shows in low-order bits; a
float parameter is taken as the rational number it is. Whole parameters, and with them the proposals
for others, are drawn by the compiled sampler of the curators' steps; ratios of numbers near 2**53,
as most floats are, do not fit into its 64-bit integers.
"""

from __future__ import annotations

from fractions import Fraction
from secrets import randbelow

import numpy as np
from numpy.typing import NDArray

from pymc_dp.numerics.entropy import system_discrete_gaussian, system_discrete_laplace
from pymc_dp.numerics.exact_noise import LARGEST_GAUSSIAN, LARGEST_LAPLACE

__all__ = ["discrete_gaussian", "discrete_laplace", "weighted_choice"]


def _bernoulli(p: Fraction) -> bool:
    return randbelow(p.denominator) < p.numerator


def _bernoulli_exp(gamma: Fraction) -> bool:
    """Draw true with probability exp(-gamma), gamma >= 0 (Algorithm 1)."""
    while gamma > 1:
        if not _bernoulli_exp_below_one(Fraction(1)):
            return False
        gamma -= 1
    return _bernoulli_exp_below_one(gamma)


def _bernoulli_exp_below_one(gamma: Fraction) -> bool:
    k = 1
    while _bernoulli(gamma / k):
        k += 1
    return k % 2 == 1


def discrete_laplace(scale: float | Fraction) -> int:
    """Draw k with probability proportional to exp(-|k| / scale) (Algorithm 2).

    Examples
    --------
    >>> from pymc_dp.mechanisms.exact_sampling import discrete_laplace
    >>> isinstance(discrete_laplace(2.5), int)
    True
    """
    ratio = Fraction(scale)  # = t / s: Algorithm 2 draws exp(-|k| s / t)
    t, s = ratio.numerator, ratio.denominator
    if s == 1 and t <= LARGEST_LAPLACE:
        return int(system_discrete_laplace(t, 1)[0])
    while True:
        u = randbelow(t)
        if not _bernoulli_exp(Fraction(u, t)):
            continue
        v = 0
        while _bernoulli_exp_below_one(Fraction(1)):
            v += 1
        magnitude = (u + t * v) // s
        negative = randbelow(2) == 1
        if not (negative and magnitude == 0):
            return -magnitude if negative else magnitude


def discrete_gaussian(sigma: float | Fraction) -> int:
    """Draw k with probability proportional to exp(-k^2 / (2 sigma^2)) (Algorithm 3).

    Examples
    --------
    >>> from pymc_dp.mechanisms.exact_sampling import discrete_gaussian
    >>> isinstance(discrete_gaussian(2.5), int)
    True
    """
    ratio = Fraction(sigma)
    if ratio.denominator == 1 and ratio <= LARGEST_GAUSSIAN:
        return int(system_discrete_gaussian(int(ratio), 1)[0])
    variance = ratio**2
    t = int(ratio) + 1
    while True:
        k = discrete_laplace(Fraction(t))
        excess = abs(k) - variance / t
        if _bernoulli_exp(excess**2 / (2 * variance)):
            return k


def weighted_choice(weights: NDArray[np.float64]) -> int:
    """Draw a position with probability proportional to its weight.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_dp.mechanisms.exact_sampling import weighted_choice
    >>> weighted_choice(np.array([0.0, 1.0]))
    1
    """
    shares = [Fraction(float(weight)) for weight in weights]
    common = max(share.denominator for share in shares)  # all are powers of two
    parts = [int(share * common) for share in shares]
    left = randbelow(sum(parts))
    for position, part in enumerate(parts):
        left -= part
        if left < 0:
            return position
    raise AssertionError("unreachable")
