"""Random numbers from the operating system, for noise that protects real data."""

from __future__ import annotations

import os
import struct
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from pymc_dp.numerics.exact_noise import LARGEST_GAUSSIAN, LARGEST_LAPLACE, fill

__all__ = [
    "random_words",
    "system_discrete_gaussian",
    "system_discrete_laplace",
    "system_generator",
    "system_normal",
    "system_uniform",
]

_inverse_cdf = NormalDist().inv_cdf  # of a few numbers: cheaper than SciPy's
_WORDS_A_NUMBER = 24  # most numbers take fewer


def system_uniform(shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Draw uniforms strictly inside (0, 1), the midpoints of a grid of step 2^-52."""
    bits = np.frombuffer(os.urandom(8 * int(np.prod(shape))), dtype=np.uint64) >> np.uint64(12)
    return ((bits.astype(np.float64) + 0.5) * 2.0**-52).reshape(shape)


def system_normal(size: int) -> list[float]:
    """Draw standard normals, every bit of them from the operating system.

    Each is the sum of four inverse-CDF draws over two, so that the grid of the uniform draws cannot
    be read off the result (Holohan & Braghin 2021).
    """
    words = struct.unpack(f"<{4 * size}Q", os.urandom(32 * size))
    draws = [_inverse_cdf(((word >> 12) + 0.5) * 2.0**-52) for word in words]
    return [sum(draws[i : i + 4]) / 2 for i in range(0, 4 * size, 4)]


def system_discrete_gaussian(scale: int, size: int) -> NDArray[np.int64]:
    """Draw k with probability proportional to exp(-k^2 / (2 scale^2)), exactly.

    Parameters
    ----------
    scale : int
        From 1 to 2**56.
    size : int
        How many to draw.

    Examples
    --------
    >>> from pymc_dp.numerics.entropy import system_discrete_gaussian
    >>> system_discrete_gaussian(2**40, 3).dtype
    dtype('int64')
    """
    return _system_noise(scale, size, LARGEST_GAUSSIAN, gaussian=True)


def system_discrete_laplace(scale: int, size: int) -> NDArray[np.int64]:
    """Draw k with probability proportional to exp(-|k| / scale), exactly.

    Parameters
    ----------
    scale : int
        From 1 to 2**40.
    size : int
        How many to draw.
    """
    return _system_noise(scale, size, LARGEST_LAPLACE, gaussian=False)


def _system_noise(scale: int, size: int, largest: int, gaussian: bool) -> NDArray[np.int64]:
    if not 1 <= scale <= largest:
        raise ValueError(f"scale must be a whole number from 1 to {largest}, not {scale!r}.")
    out, place = np.empty(size, np.int64), np.zeros(3, np.int64)
    # words that are left over are thrown away: a forked process would use them again
    words = _system_words(_WORDS_A_NUMBER * size + 40)
    while True:
        try:
            fill(out, np.uint64(scale), gaussian, words, place)
            return out
        except IndexError:
            words = np.concatenate([words[place[1] :], _system_words(words.size)])
            place[:2] = 0


def random_words(number: int, simulation: np.random.Generator | None = None) -> NDArray[np.uint64]:
    """Draw 64-bit words from the operating system, or from a generator in a simulation."""
    if simulation is None:
        return _system_words(number)
    return simulation.integers(0, 2**64, size=number, dtype=np.uint64)


def _system_words(number: int) -> NDArray[np.uint64]:
    return np.frombuffer(bytearray(os.urandom(8 * number)), dtype=np.uint64)


def system_generator() -> np.random.Generator:
    """Make a random generator with a fresh seed."""
    seed = int.from_bytes(os.urandom(32), "little")
    return np.random.Generator(np.random.PCG64DXSM(seed))
