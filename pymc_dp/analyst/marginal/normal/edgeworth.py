r"""How far a sum of records is from its normal law: the next terms of the Edgeworth series.

With y the standardised sums and :math:`\kappa` their cumulants of third and fourth order, the
density is that of the normal law times (Barndorff-Nielsen & Cox 1989, section 6.3)

.. math:: 1 + \tfrac16 \kappa_{ijk} H_{ijk}(y) + \tfrac1{24} \kappa_{ijkl} H_{ijkl}(y)
          + \tfrac1{72} \kappa_{ijk}\kappa_{lmn} H_{ijklmn}(y),

summed over repeated indices, H the Hermite tensors of the standard normal.
"""

from __future__ import annotations

import numpy as np

from pymc_dp.types import Array, Matrix, Vector

__all__ = ["edgeworth_terms", "standard_cumulants"]


def standard_cumulants(
    covariance: Matrix, columns: Matrix, weights: Vector, counts: Vector
) -> tuple[Array, Array, Matrix]:
    """Third and fourth cumulants of standardised sums.

    Parameters
    ----------
    covariance : array, shape (d, d)
        Of the sums with their noise, by which they are standardised. Noise is taken for normal.
    columns : array, shape (rows, d)
        What records add, on rows that stand for them.
    weights : array, shape (rows,)
        Weights of the rows.
    counts : array, shape (kinds,)
        Number of records of every kind; rows of a kind stand together.

    Returns
    -------
    third, fourth : arrays, shapes (d, d, d) and (d, d, d, d)
    factor : array, shape (d, d)
        Cholesky factor of the covariance.
    """
    factor = np.linalg.cholesky(covariance)
    d, kinds = columns.shape[1], len(counts)
    z = np.linalg.solve(factor, columns.T).T.reshape(kinds, -1, d)
    w = weights.reshape(kinds, -1)
    z = z - np.einsum("gr,gri->gi", w, z)[:, None]
    weighted = counts[:, None] * w
    third = np.einsum("gr,gri,grj,grk->ijk", weighted, z, z, z, optimize=True)
    second = np.einsum("gr,gri,grj->gij", w, z, z, optimize=True)
    pairs = np.einsum("g,gij,gkl->ijkl", counts, second, second, optimize=True)
    fourth = np.einsum("gr,gri,grj,grk,grl->ijkl", weighted, z, z, z, z, optimize=True)
    fourth = fourth - pairs - pairs.transpose(0, 2, 1, 3) - pairs.transpose(0, 3, 2, 1)
    return third, fourth, factor


def edgeworth_terms(y: Vector, third: Array, fourth: Array) -> tuple[float, float]:
    """Terms of first and second order of the series at a standardised value.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_dp.analyst.marginal.normal.edgeworth import edgeworth_terms
    >>> first, second = edgeworth_terms(np.array([2.0]), np.full((1,) * 3, 0.6), np.zeros((1,) * 4))
    >>> round(first, 6)  # 0.6 / 6 * (2^3 - 3 * 2)
    0.2
    """
    d = range(y.size)
    trace = np.array([sum(third[i, j, j] for j in d) for i in d])
    by_one = third @ y  # matrix
    by_two = by_one @ y  # vector
    h3 = by_two @ y - 3 * trace @ y
    traced = np.einsum("iijk->jk", fourth)
    h4 = np.einsum("ijkl,i,j,k,l->", fourth, y, y, y, y, optimize=True)
    h4 += -6 * y @ traced @ y + 3 * np.trace(traced)
    cubed, linear = by_two @ y, trace @ y
    # all pairings of six indices, three of each cumulant: 1, 15, 45 and 15 of them
    h6 = cubed**2
    h6 -= 6 * cubed * linear + 9 * by_two @ by_two
    h6 += 9 * linear**2 + 18 * trace @ by_two + 18 * np.sum(by_one**2)
    h6 -= 9 * trace @ trace + 6 * np.sum(third**2)
    return float(h3 / 6), float(h4 / 24 + h6 / 72)
