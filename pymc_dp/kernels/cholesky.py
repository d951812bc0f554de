"""Cholesky factors of small matrices, without the fixed cost of a library call."""

from __future__ import annotations

import numpy as np

from pymc_dp.kernels.arrays import inner_cached

__all__ = ["cholesky", "normal_from_precision"]


@inner_cached
def cholesky(matrix):  # type: ignore[no-untyped-def]
    """Replace a symmetric matrix by its lower factor; False where it is not positive definite."""
    size = len(matrix)
    for i in range(size):
        for j in range(i + 1):
            total = matrix[i, j]
            for k in range(j):
                total -= matrix[i, k] * matrix[j, k]
            if i != j:
                matrix[i, j] = total / matrix[j, j]
            elif total > 0.0:
                matrix[i, i] = np.sqrt(total)
            else:
                return False
        for j in range(i + 1, size):
            matrix[i, j] = 0.0
    return True


@inner_cached
def normal_from_precision(rng, precision, shift):  # type: ignore[no-untyped-def]
    """Draw from N(precision^-1 shift, precision^-1); overwrites both, gives the draw in `shift`.

    False, and no draw, where the precision is not positive definite.
    """
    if not cholesky(precision):
        return False
    size = len(shift)
    for i in range(size):  # L a = shift
        for j in range(i):
            shift[i] -= precision[i, j] * shift[j]
        shift[i] /= precision[i, i]
    for i in range(size - 1, -1, -1):  # L' draw = a + noise
        shift[i] += rng.standard_normal()
        for j in range(i + 1, size):
            shift[i] -= precision[j, i] * shift[j]
        shift[i] /= precision[i, i]
    return True
