"""Arguments that are numbers: NumPy and ``float`` would read text as well."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["number", "numbers"]


def numbers(name: str, value: Any) -> NDArray[np.float64]:
    """Cast to float64 and insist that these were numbers."""
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        given = array.tolist() if array.dtype.kind in "US" else value
        raise TypeError(f"{name} must be a number or an array of numbers, got {given!r}.")
    return array.astype(np.float64)


def number(name: str, value: Any) -> float:
    """Cast to float and insist that this was one number."""
    array = numbers(name, value)
    if array.ndim:
        raise ValueError(f"{name} must be one number, got {value!r}.")
    return float(array)
