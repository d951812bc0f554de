"""Symmetric matrices made positive: noise, and rounding, take eigenvalues below zero."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pymc_dp.types import Array, Matrix

__all__ = ["nearest_positive", "positive_root"]

#: lowest eigenvalue to leave, from all eigenvalues in ascending order
Floor = Callable[[Array], float]


def _zero(values: Array) -> float:
    return 0.0


def nearest_positive(matrix: Matrix, floor: Floor = _zero) -> tuple[Matrix, bool]:
    """Raise the eigenvalues of a symmetric matrix to a floor.

    Parameters
    ----------
    matrix : ndarray
        Symmetric.
    floor : callable, optional
        Gives the lowest eigenvalue to leave from all of them. With the default, zero, the result is
        the nearest positive semidefinite matrix in the Frobenius norm (Higham 1988).

    Returns
    -------
    raised : ndarray
        The matrix with raised eigenvalues.
    negative : bool
        Whether `matrix` had a negative eigenvalue.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_dp.numerics.positive import nearest_positive
    >>> nearest_positive(np.diag([2.0, -1.0]))
    (array([[2., 0.],
           [0., 0.]]), True)
    """
    values, vectors = np.linalg.eigh(matrix)
    raised = (vectors * np.maximum(values, floor(values))) @ vectors.T
    return raised, bool(values[0] < 0)


def positive_root(matrix: Matrix, floor: Floor = _zero) -> Matrix:
    """Root R with R R' as of :func:`nearest_positive`; its columns, by ascending length, are axes.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_dp.numerics.positive import positive_root
    >>> np.abs(positive_root(np.diag([-1.0, 4.0])))
    array([[0., 0.],
           [0., 2.]])
    """
    values, vectors = np.linalg.eigh(matrix)
    return vectors * np.sqrt(np.maximum(values, floor(values)))
