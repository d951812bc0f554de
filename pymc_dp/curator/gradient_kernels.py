"""Clipped sums of per-record gradients in whole numbers: arrays in, numbers out.

A record's gradient is held in units of ``bound / GRADIENT_LEVELS`` and no longer than the bound,
exactly. It is clipped in single precision to a length of 2**20 units, and then rounded:

- its square is a sum of ``size`` squares: off by ``size / 32`` units at the most (2**-25 each);
- one over its root is approximate: 2**-21 is what processors with the coarsest first guess (12
  bits, and one step of Newton's) leave, 2**-14 or 64 units are allowed for;
- rounding adds up to 1/2 to every component, ``sqrt(size) / 2`` in all.

For up to 2**14 coordinates that is less than the 2**10 units between 2**20 and the bound. What
squares too small for single precision leave out is rounded to zero.

A record's part must not depend on its place either, or one record more would change the parts of
others: what is approximate works on whole chunks, the last one filled up with zeros, and so has no
loop of its own for what is left over.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pymc_dp.accounting.levels import CHUNK, CLIPPED, GRADIENT_LEVELS, MOST_COORDINATES
from pymc_dp.numerics.compiled import cached_jit
from pymc_dp.types import Matrix, Vector

__all__ = [
    "ANCHOR_BITS",
    "CHUNK",
    "CLIPPED",
    "FLAGS",
    "GRADIENT_LEVELS",
    "MOST_COORDINATES",
    "Single",
    "clipped_gradient_total",
    "clipped_piece_total",
    "clipped_score_total",
    "column_lengths",
    "is_usable",
    "rounded",
    "shrinkage",
]

# sums of whole numbers are exact in any order; approximate reciprocals and roots are allowed for
FLAGS: dict[str, Any] = {
    "error_model": "numpy",
    "fastmath": {"reassoc", "nsz", "contract", "arcp", "afn"},
}
_jit = cached_jit(**FLAGS)
_ONE, _NONE, _LARGE = np.float32(1.0), np.float32(0.0), np.float32(1e38)
_TOP = np.float32(1.001)  # no component is larger after clipping
_ANCHOR = np.float32(12.0)  # floats next to it are 2**-20 apart
ANCHOR_BITS = int(_ANCHOR.view(np.int32))

Single = NDArray[np.float32]
"""Precision of a record's gradient: enough for a proposal, at half the memory and time."""


@_jit
def shrinkage(square: np.float32) -> np.float32:
    """One over a length or over 1, whichever is longer."""
    return _ONE / np.sqrt(square if square > _ONE else _ONE)


@_jit
def is_usable(square: np.float32) -> np.bool:
    """Whether a length is a number, and not beyond all measure."""
    return square < _LARGE


@_jit
def rounded(component: np.float32) -> np.int32:
    """Whole number of 2**-20 in a component from [-2, 2], with ANCHOR_BITS on top of it.

    An addition rounds to nearest and the bits are the number: cheaper than a conversion.
    """
    return np.float32(component + _ANCHOR).view(np.int32)


@_jit
def _padded(row: Single, start: int, buffer: Single) -> Single:
    """Copy a chunk of a row, with zeros where it ends."""
    part = row[start : start + CHUNK]
    for i in range(part.size):  # faster than an assignment to a slice, in numba
        buffer[i] = part[i]
    for i in range(part.size, CHUNK):
        buffer[i] = _NONE
    return buffer


@_jit
def _levels(row: Single, factor: Single) -> np.int64:
    """Sum of rounded products over a chunk."""
    part = np.int32(0)
    for i in range(CHUNK):
        level = row[i] * factor[i]
        # a value that is not finite: its record has factor 0
        part = np.int32(part + rounded(level if abs(level) < _TOP else _NONE))
    return np.int64(np.int32(part - CHUNK * ANCHOR_BITS))


@_jit
def _add_block(chunk: Single, factor: Single, total: NDArray[np.int64]) -> None:
    """Add a chunk of columns, clipped, in whole numbers."""
    for i in range(CHUNK):
        factor[i] = _NONE
    for k in range(len(chunk)):
        row = chunk[k]
        for i in range(CHUNK):
            factor[i] += row[i] * row[i]
    for i in range(CHUNK):
        factor[i] = shrinkage(factor[i]) if is_usable(factor[i]) else _NONE
    for k in range(len(chunk)):
        total[k] += _levels(chunk[k], factor)


@_jit
def _clipped_total(jacobian: Single) -> NDArray[np.int64]:
    size, n = jacobian.shape
    total, factor = np.zeros(size, dtype=np.int64), np.empty(CHUNK, dtype=np.float32)
    chunk = np.empty((size, CHUNK), dtype=np.float32)
    for start in range(0, n, CHUNK):
        for k in range(size):
            _padded(jacobian[k], start, chunk[k])
        _add_block(chunk, factor, total)
    return total


@_jit
def _clipped_pieces(
    slopes: Single, pieces: Single, scores: Matrix, columns: Single, unit: float
) -> NDArray[np.int64]:
    size, n = len(slopes), pieces.shape[1]
    total, factor = np.zeros(size, dtype=np.int64), np.empty(CHUNK, dtype=np.float32)
    chunk = np.zeros((size, CHUNK), dtype=np.float32)
    some = np.empty((len(pieces), CHUNK), dtype=np.float32)
    for start in range(0, n, CHUNK):
        for m in range(len(pieces)):
            _padded(pieces[m], start, some[m])
        if len(pieces):
            np.dot(slopes, some, chunk)
        else:
            chunk[:] = _NONE
        for p in range(len(scores)):
            score = scores[p, start : start + CHUNK]
            for k in range(size):
                row, column = chunk[k], columns[p, k, start : start + CHUNK]
                for i in range(score.size):
                    row[i] += np.float32(unit * score[i]) * column[i]
        _add_block(chunk, factor, total)
    return total


def clipped_gradient_total(jacobian: Matrix, bound: float) -> NDArray[np.int64]:
    """Sum of records' gradients, each clipped, in units of ``bound / GRADIENT_LEVELS``.

    Parameters
    ----------
    jacobian : ndarray
        One record a column, one coordinate a row.
    bound : float
        Largest Euclidean length of a record's gradient that is let through.

    Notes
    -----
    A gradient that is not finite, or longer than 1e19 bounds, counts as zero. Gradients are clipped
    one part in a thousand below the bound, so that none exceeds it after it is rounded.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_dp.curator.gradient_kernels import GRADIENT_LEVELS, clipped_gradient_total
    >>> gradients = np.array([[3.0, 4.0], [0.1, 0.0], [np.nan, 1.0]])
    >>> np.round(clipped_gradient_total(gradients.T, bound=1.0) / GRADIENT_LEVELS, 2)
    array([0.7, 0.8])
    """
    with np.errstate(all="ignore"):
        return _clipped_total((jacobian / (CLIPPED * bound)).astype(np.float32))


def clipped_piece_total(
    slopes: Matrix, pieces: Single, scores: Matrix, columns: Single, bound: float
) -> NDArray[np.int64]:
    """Sum of clipped gradients by values' derivatives and scores of predictors together.

    Parameters
    ----------
    slopes : ndarray
        Derivative of some values by the coordinates, one coordinate a row.
    pieces : ndarray
        Derivative of every record's log-likelihood by these values, one record a column.
    scores : ndarray
        Derivative of every record's log-likelihood by linear predictors, one predictor a row.
    columns : ndarray
        Derivative of each of these predictors by the coordinates, one record a column.
    bound : float
        Largest length of a record's gradient that is let through.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_dp.curator.gradient_kernels import clipped_piece_total, clipped_gradient_total
    >>> rng = np.random.default_rng(0)
    >>> slopes, scores = rng.normal(size=(3, 2)), np.ones((1, 50))
    >>> pieces = rng.normal(size=(2, 50)).astype("float32")
    >>> columns = rng.normal(size=(1, 3, 50)).astype("float32")
    >>> apart = clipped_gradient_total(slopes @ pieces + columns[0], 1.0)
    >>> together = clipped_piece_total(slopes, pieces, scores, columns, 1.0)
    >>> bool(np.abs(together - apart).max() < 100)
    True
    """
    unit = 1.0 / (CLIPPED * bound)
    return _clipped_pieces((unit * slopes).astype(np.float32), pieces, scores, columns, unit)


@_jit
def column_lengths(columns: Single) -> Vector:
    """Euclidean length of every column; squares of single-precision numbers do not underflow."""
    size, n = columns.shape
    lengths = np.zeros(n)
    for k in range(size):
        for i in range(n):
            lengths[i] += np.float64(columns[k, i]) ** 2
    return np.sqrt(lengths)


@_jit
def _clipped_scores(
    scores: Vector, columns: Single, lengths: Vector, unit: float
) -> NDArray[np.int64]:
    size, n = columns.shape
    total, factor = np.zeros(size, dtype=np.int64), np.zeros(CHUNK, dtype=np.float32)
    buffer = np.empty(CHUNK, dtype=np.float32)
    for start in range(0, n, CHUNK):
        score, given = scores[start : start + CHUNK], lengths[start : start + CHUNK]
        for i in range(score.size):
            length = abs(unit * score[i]) * given[i]
            shrunk = unit * score[i] / (length if length > 1.0 else 1.0)
            # a length that is not a number or beyond all measure: its record counts as zero
            factor[i] = np.float32(shrunk if length < 1e19 else 0.0)
        for k in range(size):
            row = columns[k, start : start + CHUNK]
            whole = row if row.size == CHUNK else _padded(columns[k], start, buffer)
            total[k] += _levels(whole, factor)
    return total


def clipped_score_total(
    scores: Vector, columns: Single, lengths: Vector, bound: float
) -> NDArray[np.int64]:
    """Sum of clipped gradients that are a number times a column each, without making them.

    Parameters
    ----------
    scores : ndarray
        Derivative of every record's log-likelihood by its linear predictor.
    columns : ndarray
        Derivative of the predictors, one record a column.
    lengths : ndarray
        Of every column, by :func:`column_lengths`.
    bound : float
        Largest length of a record's gradient that is let through.

    Notes
    -----
    The same number, but for rounding, as :func:`clipped_gradient_total` of ``scores * columns``.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_dp.accounting.levels import GRADIENT_LEVELS
    >>> from pymc_dp.curator.gradient_kernels import clipped_score_total, column_lengths
    >>> columns = np.array([[3.0, 0.1], [4.0, 0.0]], dtype="float32")
    >>> total = clipped_score_total(np.array([-2.0, 1.0]), columns, column_lengths(columns), 1.0)
    >>> np.round(total / GRADIENT_LEVELS, 2)
    array([-0.5, -0.8])
    """
    return _clipped_scores(scores, columns, lengths, 1.0 / (CLIPPED * bound))
