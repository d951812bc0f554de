"""Uniform numbers from the operating system, for noise that protects real data."""

from __future__ import annotations

import os
import warnings

import numpy as np
from numpy.typing import NDArray

from pymc_dp.mechanisms.base import Mechanism, PrivacyWarning


def system_uniform(shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Draw uniforms strictly inside (0, 1), on a grid of step 2^-53, from the system's entropy."""
    size = int(np.prod(shape))
    bits = np.frombuffer(os.urandom(8 * size), dtype=np.uint64) >> np.uint64(11)
    return ((bits.astype(np.float64) + 0.5) * 2.0**-53).reshape(shape)


def warn_floating_point(mechanism: Mechanism) -> None:
    """Say what floating-point noise does not cover."""
    warnings.warn(
        f"{mechanism!r} draws floating-point noise: the low-order bits of a released float can "
        "reveal the statistic (Mironov 2012). Round the release to a coarse grid, or use a library "
        "with a hardened sampler, before you publish it.",
        PrivacyWarning,
        stacklevel=3,
    )
