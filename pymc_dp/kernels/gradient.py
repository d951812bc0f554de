"""Clipped sums of per-record gradients in whole numbers: arrays in, numbers out."""

import numba
import numpy as np
from numpy.typing import NDArray

from pymc_dp.noise import LEVELS

# as in kernels.penalty: sums of whole numbers are exact in any order
_jit = numba.njit(cache=True, error_model="numpy", fastmath={"reassoc", "nsz", "contract"})
_BLOCK = 1024  # records whose gradients stay in the fastest cache
_TOP = 2.0 * _BLOCK * LEVELS  # beyond any sum of a block

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]
Single = NDArray[np.float32]
"""Precision of a record's gradient: enough for a proposal, at half the memory and time."""


@_jit
def _levels(row: Single, factor: Vector, width: int) -> np.int64:
    """Sum of rounded products."""
    part = 0.0
    for i in range(width):
        part += np.rint(row[i] * factor[i])
    if not abs(part) < _TOP:  # rare: some value was not finite; its record has factor 0
        part = 0.0
        for i in range(width):
            level = np.rint(row[i] * factor[i])
            part += level if abs(level) < _TOP else 0.0
    return np.int64(part)


@_jit
def _add_block(block: Single, top: float, factor: Vector, total: NDArray[np.int64]) -> None:
    """Add columns, clipped to length 1, in whole numbers."""
    size, width = block.shape
    square, one = np.zeros(width, dtype=np.float32), np.float32(1.0)
    for k in range(size):
        row = block[k]
        for i in range(width):
            square[i] += row[i] * row[i]
    for i in range(width):
        length = np.sqrt(square[i] if square[i] > one else one)
        # a length that is not a number or beyond all measure: its record counts as zero
        factor[i] = top * np.float64(one / length) if square[i] < np.float32(1e38) else 0.0
    for k in range(size):
        total[k] += _levels(block[k], factor, width)


def _top(size: int) -> float:
    """Levels of the bound, less what single precision and rounding may add to a length."""
    return LEVELS * (1 - 1e-6 - 1e-7 * size) - size


@_jit
def _clipped_total(jacobian: Matrix, unit: float, top: float) -> NDArray[np.int64]:
    size, n = jacobian.shape
    total, factor = np.zeros(size, dtype=np.int64), np.empty(_BLOCK)
    for start in range(0, n, _BLOCK):
        width = min(_BLOCK, n - start)
        block = np.empty((size, width), dtype=np.float32)
        for k in range(size):
            row, given = block[k], jacobian[k, start : start + width]
            for i in range(width):
                row[i] = unit * given[i]
        _add_block(block, top, factor, total)
    return total


@_jit
def _clipped_values(slopes: Single, pieces: tuple[Single, ...], top: float) -> NDArray[np.int64]:
    size, n = len(slopes), len(pieces[0])
    total, factor = np.zeros(size, dtype=np.int64), np.empty(_BLOCK)
    for start in range(0, n, _BLOCK):
        width = min(_BLOCK, n - start)
        block = np.zeros((size, width), dtype=np.float32)
        for k in range(size):
            row = block[k]
            for m in range(len(pieces)):
                slope, piece = slopes[k, m], pieces[m][start : start + width]
                for i in range(width):
                    row[i] += slope * piece[i]
        _add_block(block, top, factor, total)
    return total


@_jit
def _clipped_entries(
    slopes: Single, pieces: Single, scores: Matrix, columns: Single, unit: float, top: float
) -> NDArray[np.int64]:
    size, n = len(slopes), len(pieces)
    total, factor = np.zeros(size, dtype=np.int64), np.empty(_BLOCK)
    for start in range(0, n, _BLOCK):
        width = min(_BLOCK, n - start)
        block = np.empty((size, width), dtype=np.float32)
        if pieces.shape[1]:
            np.dot(slopes, pieces[start : start + width].T, block)
        else:
            block[:] = 0.0
        for p in range(len(scores)):
            score = scores[p, start : start + width]
            for k in range(size):
                row, column = block[k], columns[p, k, start : start + width]
                for i in range(width):
                    row[i] += np.float32(unit * score[i]) * column[i]
        _add_block(block, top, factor, total)
    return total


def clipped_gradient_total(jacobian: Matrix, bound: float) -> NDArray[np.int64]:
    """Sum of records' gradients, each clipped to length ``bound``, in units of ``bound / LEVELS``.

    Parameters
    ----------
    jacobian : ndarray
        One record a column, one coordinate a row.
    bound : float
        Largest Euclidean length of a record's gradient that is let through.

    Notes
    -----
    A gradient that is not finite, or longer than 1e19 bounds, counts as zero. Gradients are shrunk
    by one part in a million, so that they are no longer than the bound after they are rounded.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_dp.kernels.gradient import clipped_gradient_total
    >>> from pymc_dp.noise import LEVELS
    >>> gradients = np.array([[3.0, 4.0], [0.1, 0.0], [np.nan, 1.0]])
    >>> np.round(clipped_gradient_total(gradients.T, bound=1.0) / LEVELS, 5)
    array([0.7, 0.8])
    """
    return _clipped_total(jacobian, 1.0 / bound, _top(len(jacobian)))


def _in_bounds(slopes: Matrix, bound: float) -> Single:
    with np.errstate(all="ignore"):
        return np.ascontiguousarray(slopes / bound, dtype=np.float32)


def clipped_value_total(
    slopes: Matrix, pieces: tuple[Single, ...], bound: float
) -> NDArray[np.int64]:
    """Sum of clipped gradients by a few values' derivatives, without making them.

    Parameters
    ----------
    slopes : ndarray
        Derivative of some values by the coordinates, one coordinate a row.
    pieces : tuple of ndarray
        Derivative of every record's log-likelihood by each of these values.
    bound : float
        Largest length of a record's gradient that is let through.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_dp.kernels.gradient import clipped_gradient_total, clipped_value_total
    >>> rng = np.random.default_rng(0)
    >>> slopes, pieces = rng.normal(size=(3, 2)), rng.normal(size=(2, 50)).astype("float32")
    >>> apart = clipped_gradient_total(slopes @ pieces, 1.0)
    >>> bool(np.abs(clipped_value_total(slopes, tuple(pieces), 1.0) - apart).max() < 1e5)
    True
    """
    return _clipped_values(_in_bounds(slopes, bound), pieces, _top(len(slopes)))


def clipped_entry_total(
    slopes: Matrix, pieces: Single, scores: Matrix, columns: Single, bound: float
) -> NDArray[np.int64]:
    """Sum of clipped gradients by values' derivatives and scores of predictors together.

    Parameters
    ----------
    slopes : ndarray
        Derivative of some values by the coordinates, one coordinate a row.
    pieces : ndarray
        Derivative of every record's log-likelihood by these values, one record a row.
    scores : ndarray
        Derivative of every record's log-likelihood by linear predictors, one predictor a row.
    columns : ndarray
        Derivative of each of these predictors by the coordinates, one record a column.
    bound : float
        Largest length of a record's gradient that is let through.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_dp.kernels.gradient import clipped_entry_total, clipped_gradient_total
    >>> rng = np.random.default_rng(0)
    >>> slopes, scores = rng.normal(size=(3, 2)), np.ones((1, 50))
    >>> pieces = rng.normal(size=(50, 2)).astype("float32")
    >>> columns = rng.normal(size=(1, 3, 50)).astype("float32")
    >>> apart = clipped_gradient_total(slopes @ pieces.T + columns[0], 1.0)
    >>> together = clipped_entry_total(slopes, pieces, scores, columns, 1.0)
    >>> bool(np.abs(together - apart).max() < 1e5)
    True
    """
    return _clipped_entries(
        _in_bounds(slopes, bound), pieces, scores, columns, 1.0 / bound, _top(len(slopes))
    )


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
    scores: Vector, columns: Single, lengths: Vector, bound: float, top: float
) -> NDArray[np.int64]:
    size, n = columns.shape
    total, factor = np.zeros(size, dtype=np.int64), np.empty(_BLOCK)
    unit = 1.0 / bound
    for start in range(0, n, _BLOCK):
        width = min(_BLOCK, n - start)
        for i in range(width):
            score = scores[start + i] * unit
            length = abs(score) * lengths[start + i]
            shrunk = top * score / (length if length > 1.0 else 1.0)
            # a length that is not a number or beyond all measure: its record counts as zero
            factor[i] = shrunk if length < 1e19 else 0.0
        for k in range(size):
            total[k] += _levels(columns[k, start : start + width], factor, width)
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
    >>> from pymc_dp.kernels.gradient import clipped_score_total, column_lengths
    >>> from pymc_dp.noise import LEVELS
    >>> columns = np.array([[3.0, 0.1], [4.0, 0.0]], dtype="float32")
    >>> total = clipped_score_total(np.array([-2.0, 1.0]), columns, column_lengths(columns), 1.0)
    >>> np.round(total / LEVELS, 5)
    array([-0.5, -0.8])
    """
    return _clipped_scores(scores, columns, lengths, bound, _top(len(columns)))
