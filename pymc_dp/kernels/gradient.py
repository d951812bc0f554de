"""Clipped sums of per-record gradients in whole numbers: arrays in, numbers out."""

import numba
import numpy as np
from numpy.typing import NDArray

from pymc_dp.noise import LEVELS

# as in kernels.penalty: sums of whole numbers are exact in any order
_jit = numba.njit(cache=True, error_model="numpy", fastmath={"reassoc", "nsz", "contract"})
_BLOCK = 1024
_TOP = 2.0 * _BLOCK * LEVELS  # beyond any sum of a block

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]


@_jit
def _levels(row: Vector, factor: Vector, width: int) -> np.int64:
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
def _add_block(
    block: Matrix, width: int, unit: float, top: float, factor: Vector, total: NDArray[np.int64]
) -> None:
    """Add the first `width` columns, clipped to length ``1 / unit``, in whole numbers."""
    size = len(block)
    factor[:width] = 0.0
    for k in range(size):
        row = block[k]
        for i in range(width):
            # lengths are measured in bounds, where squares that underflow are nothing
            factor[i] += (row[i] * unit) * (row[i] * unit)
    for i in range(width):
        square = factor[i]
        # not-a-number is neither long nor short, and its record counts as zero
        factor[i] = top * unit / np.sqrt(square) if square > 1.0 else 0.0
        factor[i] = top * unit if square <= 1.0 else factor[i]
    for k in range(size):
        total[k] += _levels(block[k], factor, width)


@_jit
def _clipped_total(jacobian: Matrix, bound: float, top: float) -> NDArray[np.int64]:
    size, n = jacobian.shape
    total, factor = np.zeros(size, dtype=np.int64), np.empty(_BLOCK)
    for start in range(0, n, _BLOCK):
        width = min(_BLOCK, n - start)
        block = jacobian[:, start : start + width]
        _add_block(block, width, 1.0 / bound, top, factor, total)
    return total


@_jit
def _clipped_products(
    slopes: Matrix, pieces: Matrix, bound: float, top: float
) -> NDArray[np.int64]:
    size, n = len(slopes), pieces.shape[1]
    total, factor = np.zeros(size, dtype=np.int64), np.empty(_BLOCK)
    block = np.empty((size, _BLOCK))
    for start in range(0, n, _BLOCK):
        width = min(_BLOCK, n - start)
        for k in range(size):
            row = block[k]
            row[:width] = 0.0
            for m in range(len(pieces)):
                slope, piece = slopes[k, m], pieces[m, start : start + width]
                for i in range(width):
                    row[i] += slope * piece[i]
        _add_block(block, width, 1.0 / bound, top, factor, total)
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
    A gradient that is not finite counts as zero. Gradients are shrunk by a further
    ``size / LEVELS`` so that they are no longer than the bound after they are rounded.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_dp.kernels.gradient import clipped_gradient_total
    >>> from pymc_dp.noise import LEVELS
    >>> gradients = np.array([[3.0, 4.0], [0.1, 0.0], [np.nan, 1.0]])
    >>> np.round(clipped_gradient_total(gradients.T, bound=1.0) / LEVELS, 6)
    array([0.7, 0.8])
    """
    return _clipped_total(jacobian, bound, float(LEVELS - len(jacobian)))


def clipped_product_total(slopes: Matrix, pieces: Matrix, bound: float) -> NDArray[np.int64]:
    """Sum of clipped gradients ``slopes @ pieces``, without making them.

    Parameters
    ----------
    slopes : ndarray
        Derivative of some values by the coordinates, one coordinate a row.
    pieces : ndarray
        Derivative of every record's log-likelihood by these values, one record a column.
    bound : float
        Largest length of a record's gradient that is let through.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_dp.kernels.gradient import clipped_gradient_total, clipped_product_total
    >>> rng = np.random.default_rng(0)
    >>> slopes, pieces = rng.normal(size=(3, 2)), rng.normal(size=(2, 50))
    >>> apart = clipped_gradient_total(slopes @ pieces, 1.0)
    >>> bool(np.abs(clipped_product_total(slopes, pieces, 1.0) - apart).max() < 100)
    True
    """
    return _clipped_products(slopes, pieces, bound, float(LEVELS - len(slopes)))


@_jit
def column_lengths(columns: Matrix) -> Vector:
    """Euclidean length of every column, right also where its square would underflow.

    It is not a number where the column is not finite.
    """
    size, n = columns.shape
    largest, lengths = np.zeros(n), np.zeros(n)
    for k in range(size):
        for i in range(n):
            value = abs(columns[k, i])
            largest[i] = value if value > largest[i] else largest[i]
    for i in range(n):
        largest[i] = largest[i] if largest[i] > 0 else 1.0
    for k in range(size):
        for i in range(n):
            lengths[i] += (columns[k, i] / largest[i]) ** 2
    for i in range(n):
        lengths[i] = largest[i] * np.sqrt(lengths[i])
    return lengths


@_jit
def _clipped_scores(
    scores: Vector, columns: Matrix, lengths: Vector, bound: float, top: float
) -> NDArray[np.int64]:
    size, n = columns.shape
    total, factor = np.zeros(size, dtype=np.int64), np.empty(_BLOCK)
    unit = 1.0 / bound
    for start in range(0, n, _BLOCK):
        width = min(_BLOCK, n - start)
        for i in range(width):
            score = scores[start + i] * unit
            length = abs(score) * lengths[start + i]
            # not-a-number is neither long nor short, and its record counts as zero
            shrunk = score / length if length < np.inf else 0.0
            factor[i] = top * (score if length <= 1.0 else shrunk)
        for k in range(size):
            total[k] += _levels(columns[k, start : start + width], factor, width)
    return total


def clipped_score_total(
    scores: Vector, columns: Matrix, lengths: Vector, bound: float
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
    >>> columns = np.array([[3.0, 0.1], [4.0, 0.0]])
    >>> total = clipped_score_total(np.array([-2.0, 1.0]), columns, column_lengths(columns), 1.0)
    >>> np.round(total / LEVELS, 6)
    array([-0.5, -0.8])
    """
    return _clipped_scores(scores, columns, lengths, bound, float(LEVELS - len(columns)))
