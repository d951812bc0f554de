"""Records in whole blocks: what is computed of one does not depend on how many others there are.

Compiled loops and BLAS treat the last few rows of an array in another way than those before, and
the last bits of their results differ. Rows are therefore computed in multiples of a block, filled
up with copies of the first record, whose results are left out.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["BLOCK", "Rows", "cut", "filled_up", "in_blocks", "missing_rows"]

BLOCK = 64
"""Records of a block: a multiple of what processors and BLAS treat at a time."""
_FEW = 2**14  # records that are copied rather than computed in two calls


class Rows(NamedTuple):
    """Arrays of some records, filled up, and how many of them count."""

    arrays: list[NDArray[Any]]
    number: int


def missing_rows(count: int) -> int:
    """How many rows are missing to a whole number of blocks.

    Examples
    --------
    >>> from pymc_dp.curator.blocks import missing_rows
    >>> missing_rows(64), missing_rows(65)
    (0, 63)
    """
    return -count % BLOCK


def cut(arrays: Sequence[NDArray[Any]], axes: Sequence[int], records: slice) -> list[NDArray[Any]]:
    """Arrays of consecutive records."""
    return [
        np.ascontiguousarray(rows[(slice(None),) * axis + (records,)])
        for rows, axis in zip(arrays, axes, strict=True)
    ]


def filled_up(arrays: Sequence[NDArray[Any]], axes: Sequence[int]) -> Rows:
    """Fill arrays up to whole blocks by copies of their first record."""
    count = arrays[0].shape[axes[0]]
    missing = missing_rows(count)
    if not missing:
        return Rows(list(arrays), count)
    filled = []
    for rows, axis in zip(arrays, axes, strict=True):
        first = rows[(slice(None),) * axis + (slice(0, 1),)]
        filled.append(np.concatenate([rows, np.repeat(first, missing, axis)], axis))
    return Rows(filled, count)


def in_blocks(arrays: Sequence[NDArray[Any]], axes: Sequence[int]) -> list[Rows]:
    """Lay records out in whole blocks; of many, only the last ones are copied.

    Parameters
    ----------
    arrays : sequence of ndarray
        At least one record.
    axes : sequence of int
        Which of their axes the records are.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_dp.curator.blocks import in_blocks
    >>> [(rows.arrays[0].size, rows.number) for rows in in_blocks([np.arange(100_000)], [0])]
    [(99968, 99968), (64, 32)]
    """
    count = arrays[0].shape[axes[0]]
    whole = count - count % BLOCK
    if count < _FEW or whole == count:
        return [filled_up(arrays, axes)]
    body = Rows(cut(arrays, axes, slice(0, whole)), whole)
    return [body, filled_up(cut(arrays, axes, slice(whole, count)), axes)]
