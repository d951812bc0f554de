"""Partitions of records, arrays or tables: how many records, and public rows like theirs."""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

__all__ = [
    "Layout",
    "as_partition",
    "layout_of",
    "made_up",
    "number_of_records",
    "taken",
    "with_rows",
]

Partition = tuple[Any, ...]
"""What ``build`` takes: arrays or tables, row i of each belonging to record i."""
_FEW = 4096  # records that are copied so that a model is not built of fewer than made-up ones


class Layout(NamedTuple):
    """What is public of an array or a table: types, and all lengths but the number of records.

    Attributes
    ----------
    columns : tuple of (name, dtype), or None
        Of a table.
    dtype, shape
        Of an array, and its lengths after the first.
    """

    columns: tuple[tuple[Any, str], ...] | None
    dtype: str
    shape: tuple[int, ...]


def as_partition(given: Any) -> Partition:
    """Arguments of ``build``, of which there may be a single one."""
    parts = tuple(given) if isinstance(given, tuple | list) else (given,)
    parts = tuple(p if isinstance(p, pd.DataFrame) else np.asarray(p) for p in parts)
    if not parts or any(np.ndim(part) == 0 for part in parts):
        raise ValueError(
            "A partition must be an array, a table or a tuple of them, as build takes them, with "
            "one record a row."
        )
    if any(isinstance(p, np.ndarray) and p.dtype.kind not in "biuf" for p in parts):
        raise ValueError("A partition's arrays must hold numbers: encode text and dates first.")
    if len({len(part) for part in parts}) > 1:
        raise ValueError("Arrays of a partition must have one row for each of the same records.")
    return parts


def number_of_records(partition: Partition) -> int:
    """Tell how many records a partition has."""
    return len(partition[0])


def layout_of(given: Any) -> tuple[Layout, ...]:
    """Tell what is public of a partition.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_dp.curator.shards.partition import layout_of
    >>> layout_of(np.zeros((5, 2)))
    (Layout(columns=None, dtype='float64', shape=(2,)),)
    """
    return tuple(
        Layout(tuple((name, str(kind)) for name, kind in part.dtypes.items()), "", ())
        if isinstance(part, pd.DataFrame)
        else Layout(None, str(part.dtype), part.shape[1:])
        for part in as_partition(given)
    )


def made_up(layout: Sequence[Layout], count: int) -> Partition:
    """Rows of noughts and ones in no order, which are nobody's.

    No two arrays are alike, as PyTensor would take them for one.

    Examples
    --------
    >>> from pymc_dp.curator.shards.partition import Layout, made_up
    >>> made_up([Layout(None, "int64", ())], 7)
    (array([1, 1, 1, 0, 0, 1, 0]),)
    """
    rng = np.random.default_rng(1234)

    def numbers(dtype: str, *shape: int) -> Any:
        return rng.integers(2, size=shape).astype(dtype)

    return tuple(
        numbers(each.dtype, count, *each.shape)
        if each.columns is None
        else pd.DataFrame({name: numbers(kind, count) for name, kind in each.columns})
        for each in layout
    )


def with_rows(partition: Partition, example: Partition, avoid: Collection[int]) -> Partition:
    """Add made-up rows after the records, where the records alone would make another model.

    Parameters
    ----------
    partition, example : tuple
        The records, and public rows.
    avoid : collection of int
        Lengths in the model that are not the number of records.

    Notes
    -----
    That is so of fewer than two records, of arrays that are all alike, which PyTensor takes for a
    number, and where there are as many records as, say, coefficients.
    """
    count = number_of_records(partition)
    alike = any(_all_alike(part) for part in partition)
    if count >= _FEW and count not in avoid and not alike:
        return partition
    while True:
        partition = tuple(
            _joined(part, more) for part, more in zip(partition, example, strict=True)
        )
        if number_of_records(partition) not in avoid:
            return partition


def taken(part: Any, order: NDArray[np.int64]) -> Any:
    """Rows of an array or a table, in an order."""
    return part.iloc[order].reset_index(drop=True) if hasattr(part, "iloc") else part[order]


def _all_alike(part: Any) -> bool:
    if isinstance(part, pd.DataFrame):
        return any(_all_alike(part[name].to_numpy()) for name in part.columns)
    return part.size == 0 or bool(part.min() == part.max())


def _joined(part: Any, more: Any) -> Any:
    if isinstance(part, pd.DataFrame):
        return pd.concat([part, more.astype(part.dtypes)], ignore_index=True)
    return np.concatenate([part, more.astype(part.dtype)])
