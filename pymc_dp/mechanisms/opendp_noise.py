"""Noise for real data from OpenDP's hardened samplers, where it is installed."""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["add_noise", "is_installed"]


def is_installed() -> bool:
    """Whether the optional extra `opendp` is there."""
    return find_spec("opendp") is not None


def add_noise(maker: str, value: NDArray, noise: NDArray[np.float64]) -> NDArray:
    """Add noise to every component with an OpenDP constructor, ``"make_laplace"`` for one.

    The value's type, float64 or int64, chooses between continuous and integer noise.
    """
    kind = "int" if value.dtype.kind == "i" else "float"
    noisy = [
        _measurement(maker, kind, float(parameter))(item.item())
        for item, parameter in zip(np.ravel(value), np.ravel(noise), strict=True)
    ]
    return np.array(noisy, dtype=value.dtype).reshape(value.shape)


@lru_cache(maxsize=256)  # not all that were ever made
def _measurement(maker: str, kind: str, parameter: float) -> Any:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain = dp.atom_domain(T="i64") if kind == "int" else dp.atom_domain(T="f64", nan=False)
    distance = dp.absolute_distance(T="i64" if kind == "int" else "f64")
    return getattr(dp.m, maker)(domain, distance, parameter)
