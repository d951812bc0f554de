"""Clipped sums of per-record gradients in whole numbers: arrays in, numbers out."""

import numba
import numpy as np
from numpy.typing import NDArray

from pymc_dp.noise import LEVELS

# as in kernels.penalty: sums of whole numbers are exact in any order
_jit = numba.njit(cache=True, error_model="numpy", fastmath={"reassoc", "nsz", "contract"})
_BLOCK = 1024

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]


@_jit
def _clipped_total(jacobian: Matrix, bound: float, top: float) -> NDArray[np.int64]:
    size, n = jacobian.shape
    total = np.zeros(size, dtype=np.int64)
    part = np.empty(size)
    factor = np.empty(_BLOCK)
    unit = 1.0 / bound  # lengths are measured in bounds, where squares that underflow are nothing
    for start in range(0, n, _BLOCK):
        width = min(_BLOCK, n - start)
        factor[:] = 0.0
        for k in range(size):
            row = jacobian[k, start : start + width]
            for i in range(width):
                factor[i] += (row[i] * unit) * (row[i] * unit)
        for i in range(width):
            shrink = 1.0 / np.sqrt(factor[i])
            factor[i] = top * (shrink if shrink < 1.0 else 1.0)
        finite = True
        for k in range(size):
            row = jacobian[k, start : start + width]
            part[k] = 0.0
            for i in range(width):
                part[k] += np.rint((row[i] * unit) * factor[i])
            finite &= np.isfinite(part[k])
        if not finite:  # rare: leave records out that are not finite
            part[:] = 0.0
            for i in range(width):
                column = jacobian[:, start + i]
                if np.all(np.isfinite(column)):
                    part += np.rint((column * unit) * factor[i])
        for k in range(size):
            total[k] += np.int64(part[k])
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


@_jit
def row_lengths(rows: Matrix) -> Vector:
    """Euclidean length of every row, exact to rounding also where its square would underflow."""
    lengths = np.empty(len(rows))
    for i in range(len(rows)):
        largest = np.max(np.abs(rows[i]))
        if largest > 0 and largest < np.inf:
            lengths[i] = largest * np.sqrt(np.sum((rows[i] / largest) ** 2))
        else:
            lengths[i] = largest
    return lengths


@_jit
def _clipped_rows(
    scores: Vector, rows: Matrix, lengths: Vector, bound: float, top: float
) -> NDArray[np.int64]:
    n, size = rows.shape
    total = np.zeros(size, dtype=np.int64)
    part = np.empty(size)
    unit = 1.0 / bound
    for start in range(0, n, _BLOCK):
        part[:] = 0.0
        for i in range(start, min(start + _BLOCK, n)):
            score = scores[i] * unit
            length = abs(score) * lengths[i]
            if length > 0 and length < np.inf:
                factor = top * (score / length if length > 1.0 else score)
                for k in range(size):
                    part[k] += np.rint(rows[i, k] * factor)
        for k in range(size):
            total[k] += np.int64(part[k])
    return total


def clipped_row_total(
    scores: Vector, rows: Matrix, lengths: Vector, bound: float
) -> NDArray[np.int64]:
    """Sum of clipped gradients that are a number times a row each, without making them.

    Parameters
    ----------
    scores : ndarray
        Derivative of every record's log-likelihood by its linear predictor.
    rows : ndarray
        Derivative of the predictors, one record a row.
    lengths : ndarray
        Of every row, by :func:`row_lengths`.
    bound : float
        Largest length of a record's gradient that is let through.

    Notes
    -----
    The same number, but for rounding, as :func:`clipped_gradient_total` of ``(scores * rows.T)``.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_dp.kernels.gradient import clipped_row_total, row_lengths
    >>> from pymc_dp.noise import LEVELS
    >>> rows = np.array([[3.0, 4.0], [0.1, 0.0]])
    >>> lengths = row_lengths(rows)
    >>> np.round(clipped_row_total(np.array([-2.0, 1.0]), rows, lengths, 1.0) / LEVELS, 6)
    array([-0.5, -0.8])
    """
    return _clipped_rows(scores, rows, lengths, bound, float(LEVELS - rows.shape[1]))
