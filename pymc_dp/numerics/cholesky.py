"""Cholesky factors of small matrices, without the fixed cost of a library call."""

from __future__ import annotations

from typing import Any

import numpy as np

from pymc_dp.numerics.compiled import jit

__all__ = ["lower_cholesky", "normal_from_precision"]


@jit
def lower_cholesky(a: Any, out: Any) -> bool:
    """Write the lower Cholesky factor of `a` into `out`; false where `a` is not positive.

    Both may be the same matrix.
    """
    size = a.shape[0]
    for i in range(size):
        for k in range(i + 1):
            total = a[i, k]
            for m in range(k):
                total -= out[i, m] * out[k, m]
            if i > k:
                out[i, k] = total / out[k, k]
            elif total > 0 and total < np.inf:
                out[i, i] = np.sqrt(total)
            else:
                return False
        out[i, i + 1 :] = 0.0
    return True


@jit
def normal_from_precision(rng, precision, shift):  # type: ignore[no-untyped-def]
    """Draw from N(precision^-1 shift, precision^-1); overwrites both, gives the draw in `shift`.

    False, and no draw, where the precision is not positive definite.
    """
    if not lower_cholesky(precision, precision):
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
