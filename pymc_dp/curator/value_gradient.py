"""Clipped sums of gradients by a few values that meet the records elementwise, in one function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pymc_dp.curator.gradient_kernels import (
    ANCHOR_BITS,
    CHUNK,
    CLIPPED,
    FLAGS,
    is_usable,
    rounded,
    shrinkage,
)
from pymc_dp.numerics.compiled import join

__all__ = ["make_value_total"]


def make_value_total(
    pieces: Callable[..., Any],
    slopes_and_values: Callable[..., Any],
    n_rows: int,
    n_values: int,
    size: int,
    key: str | None,
) -> Callable[..., Any]:
    """Compile ``total(theta, directions, bound, *rows)``.

    It gives the sum of records' gradients as
    :func:`~pymc_dp.curator.gradient_kernels.clipped_gradient_total` does.

    Parameters
    ----------
    pieces : callable
        Numba-compiled ``pieces(*values, *record)``: derivatives of one record's log-likelihood by
        the values.
    slopes_and_values : callable
        Numba-compiled ``slopes_and_values(theta, directions)``: derivatives of the values by the
        coordinates, one coordinate a row, and the values.
    n_rows, n_values, size : int
        Number of arrays with one number a record, of values and of coordinates.
    key : str or None
        Names the functions, for PyTensor's cache on disk; None where that is not known.

    Notes
    -----
    Values and coordinates are written out, so that nothing but the pieces of a small chunk of
    records is stored on the way. The pieces have a loop of their own: where the compiler finds no
    vector form of a model's functions, clipping has one all the same.

    Examples
    --------
    >>> import numba
    >>> import numpy as np
    >>> from pymc_dp.curator.gradient_kernels import GRADIENT_LEVELS
    >>> from pymc_dp.curator.value_gradient import make_value_total
    >>> mean = numba.njit(lambda theta, directions: (directions, theta))
    >>> score = numba.njit(lambda mean, x: (np.float32(x - mean),))
    >>> total = make_value_total(score, mean, 1, 1, 1, key=None)
    >>> found = total(np.zeros(1), np.eye(1), 1.0, np.array([0.25, 0.5, np.nan]))
    >>> np.round(found / GRADIENT_LEVELS, 2)
    array([0.75])
    """
    source = _source(range(n_rows), range(n_values), range(size))
    names = {
        "np": np,
        "slopes_and_values": slopes_and_values,
        "pieces": pieces,
        "is_usable": is_usable,
        "shrinkage": shrinkage,
        "rounded": rounded,
        "CHUNK": CHUNK,
        "CLIPPED": CLIPPED,
        "ANCHOR_BITS": ANCHOR_BITS,
        "NONE": np.float32(0.0),
    }
    total: Callable[..., Any] = join(source, names, key, **FLAGS)
    return total


def _source(rows: range, values: range, coordinates: range) -> str:
    record = ", ".join([f"value_{m}" for m in values] + [f"part_{j}[i]" for j in rows])
    lines = [
        f"def total(theta, directions, bound, {', '.join(f'rows_{j}' for j in rows)}):",
        "    slopes, values = slopes_and_values(theta, directions)",
        "    unit = 1.0 / (CLIPPED * bound)",
        *(f"    value_{m}, piece_{m} = values[{m}], np.empty(CHUNK, np.float32)" for m in values),
        *(
            f"    slope_{k}_{m} = np.float32(unit * slopes[{k}, {m}])"
            for k in coordinates
            for m in values
        ),
        f"    total = np.zeros({len(coordinates)}, np.int64)",
        "    for start in range(0, len(rows_0), CHUNK):",
        *(f"        part_{j} = rows_{j}[start : start + CHUNK]" for j in rows),
        "        width = len(part_0)",
        "        for i in range(width):",
        f"            {', '.join(f'piece_{m}[i]' for m in values)}, = pieces({record})",
        *(f"        piece_{m}[width:] = NONE" for m in values),
        *(f"        level_{k} = np.int32(0)" for k in coordinates),
        "        for i in range(CHUNK):",
        *(
            f"            row_{k} = " + " + ".join(f"slope_{k}_{m} * piece_{m}[i]" for m in values)
            for k in coordinates
        ),
        "            square = " + " + ".join(f"row_{k} * row_{k}" for k in coordinates),
        "            factor, usable = shrinkage(square), is_usable(square)",
        *(
            f"            level_{k} = np.int32(level_{k} + "
            f"rounded(row_{k} * factor if usable else NONE))"
            for k in coordinates
        ),
        *(f"        total[{k}] += np.int32(level_{k} - CHUNK * ANCHOR_BITS)" for k in coordinates),
        "    return total",
    ]
    return "\n".join(lines)
