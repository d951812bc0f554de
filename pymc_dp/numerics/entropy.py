"""Random numbers from the operating system, for noise that protects real data."""

from __future__ import annotations

import os
import struct
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

__all__ = ["system_generator", "system_normal", "system_uniform"]

_inverse_cdf = NormalDist().inv_cdf  # of a few numbers: cheaper than SciPy's


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


def system_generator() -> np.random.Generator:
    """Make a random generator with a fresh seed."""
    seed = int.from_bytes(os.urandom(32), "little")
    return np.random.Generator(np.random.PCG64DXSM(seed))
