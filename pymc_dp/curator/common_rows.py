"""Whether two models' arrays hold the same records: equal arrays, or rows in common."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["as_rows", "row_marks", "shared_records"]

_SAMPLE = 200  # rows of one array that are looked for in another
_MARKED = 2**16  # rows that are marked at a time


def shared_records(
    own: Sequence[NDArray[Any]],
    axes: Sequence[int],
    others: Sequence[NDArray[Any]],
    other_axes: Sequence[int],
) -> bool:
    """Whether arrays of two models are the same, or have rows in common that tell of records.

    Parameters
    ----------
    own, others : sequence of ndarray
        Arrays of either model that hold records.
    axes, other_axes : sequence of int
        Which of their axes the records are.

    Notes
    -----
    Arrays are the same if they share memory, or are equal and not of one value alone. Of arrays
    most of whose rows are different, a sample of rows is looked for in the other array. Numbers
    that were changed on the way (rounded, standardised) are not recognised.
    """
    for a, axis in zip(own, axes, strict=True):
        for b, other in zip(others, other_axes, strict=True):
            if np.may_share_memory(a, b) and np.shares_memory(a, b):
                return True
            rows, other_rows = as_rows(a, axis), as_rows(b, other)
            if rows.shape[1] == other_rows.shape[1] and _have_common(rows, other_rows):
                return True
    return False


def as_rows(array: NDArray[Any], axis: int) -> NDArray[np.float64]:
    """Lay an array out with all that belongs to a record in one row."""
    rows = np.moveaxis(array, axis, 0)
    return np.ascontiguousarray(rows.reshape(len(rows), -1), dtype=np.float64)


def row_marks(array: NDArray[Any], axis: int, salt: int = 0) -> NDArray[np.float64]:
    """Tell rows apart by a number each, the same for rows of the same numbers."""
    turned = np.moveaxis(array, axis, 0)
    marks = np.empty(len(turned))
    weights = np.random.default_rng(salt).normal(size=turned.size // max(1, len(turned)))
    for start in range(0, len(turned), _MARKED):
        rows = as_rows(turned[start : start + _MARKED], 0)
        with np.errstate(all="ignore"):
            marks[start : start + _MARKED] = (rows * weights).sum(axis=1)
    return marks


def _have_common(a: NDArray[np.float64], b: NDArray[np.float64]) -> bool:
    if np.array_equal(a, b, equal_nan=True):
        return not np.all((a == a.flat[0]) | np.isnan(a))
    marks, other_marks = row_marks(a, 0), row_marks(b, 0)
    if any(len(np.unique(each)) < 0.9 * len(each) for each in (marks, other_marks)):
        return False  # few different values, which anyone's records have
    few, many = sorted((marks, other_marks), key=len)
    sample = few[:: max(1, len(few) // _SAMPLE)]
    return bool(np.isin(sample, many).mean() > 0.5)
