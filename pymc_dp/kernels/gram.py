"""Log-density, and its gradient, of Gram matrices S_j = X_j'X_j behind noisy regression releases.

What is common to every move of S_1, ..., S_J. The target is (Alparslan, Yildirim & Birbil 2023,
equation 10, with the covariance that it should have)

    prod_j |S_j|^((n_j - p - 1)/2) * (prior of the rows) * noise(S-hat_j | S_j)
           * N(z-hat_j; S_j theta, sigma^2 S_j + noise),

in which the covariance of the rows and the coefficients are either given or integrated out:

* rows with precision `precision` have exp(-tr(precision * sum_j S_j) / 2); integrated over an
  inverse Wishart with matrix `scale` and nu degrees it is |scale + sum_j S_j|^(-(nu + n)/2);
* coefficients are given, or normal with a precision and a shift (precision times mean).

A column of ones in X_j leaves all of it as it is, but for the entry n_j of S_j, which is known.

Coordinates: S_j = n_j B K_j K_j' B' with a fixed matrix B and K_j lower triangular, its diagonal as
logarithms. With B B' near the rows' second moments K_j is near the identity, and nearly linear in
S_j.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pymc_dp.kernels.cholesky import jit, lower_cholesky

__all__ = [
    "Rows",
    "coordinates",
    "gram_log_density",
    "invert_triangle",
    "matrices",
    "z_terms",
]

Array = NDArray[np.float64]


class Rows(NamedTuple):
    """What is known of the holders' rows, and what they released.

    Attributes
    ----------
    n : array (J,)
        Number of rows of each holder.
    first : int
        Number of leading columns whose square total is known: 1 with an intercept, else 0.
    S_hat, S_weight : array (J, p, p)
        Noisy Gram matrices, and one over the noise's variance, 0 where an entry was not released or
        has no noise. Only entries on and above the diagonal are read.
    z_hat, z_var : array (J, p)
        Noisy X'y and the noise's variance.
    integrated : bool
        Whether the rows' covariance is integrated out.
    matrix : array (p, p)
        The scale matrix of its prior where it is; otherwise the rows' precision.
    nu : float
        Degrees of freedom of its prior.
    """

    n: Array
    first: int
    S_hat: Array
    S_weight: Array
    z_hat: Array
    z_var: Array
    integrated: bool
    matrix: Array
    nu: float


@jit
def invert_triangle(lower: Any) -> Any:
    """Inverse of a lower triangular matrix."""
    out = np.zeros_like(lower)
    for i in range(lower.shape[0]):
        scale = 1 / lower[i, i]
        for m in range(i):  # row by row, which is how the matrix lies in memory
            factor = -scale * lower[i, m]
            for k in range(m + 1):
                out[i, k] += factor * out[m, k]
        out[i, i] = scale
    return out


@jit
def coordinates(S: Any, n: Any, B_inverse: Any) -> Any:
    """Coordinates of Gram matrices (J, p, p), a lower triangle each."""
    q = np.zeros_like(S)
    for j in range(S.shape[0]):
        rotated = B_inverse @ S[j] @ B_inverse.T / n[j]
        lower_cholesky(rotated, q[j])
        for i in range(S.shape[1]):
            q[j, i, i] = np.log(q[j, i, i])
    return q


@jit
def matrices(q: Any, n: Any, B: Any) -> Any:
    """Gram matrices from their coordinates."""
    S = np.empty_like(q)
    for j in range(q.shape[0]):
        factor = q[j].copy()
        for i in range(q.shape[1]):
            factor[i, i] = np.exp(q[j, i, i])
        factor = B @ factor
        S[j] = n[j] * (factor @ factor.T)
    return S


@jit
def z_terms(S: Any, sigma2: float, rows: Any) -> Any:
    """Compute what the coefficients' conditional (equation 12) needs of every holder.

    Returns
    -------
    ok : bool
        False where a matrix is not positive definite.
    log_det : float
        Sum of the log-determinants of V_j = sigma^2 S_j + noise.
    V_inverse, T : array (J, p, p)
        The inverse of V_j, and V_j^-1 S_j.
    precision, shift : array
        sum_j S_j V_j^-1 S_j and sum_j S_j V_j^-1 z-hat_j.
    """
    holders, p = rows.z_hat.shape
    V_inverse, T = np.empty_like(S), np.empty_like(S)
    precision, shift = np.zeros((p, p)), np.zeros(p)
    lower = np.empty((p, p))
    log_det = 0.0
    for j in range(holders):
        V = sigma2 * S[j]
        for i in range(p):
            V[i, i] += rows.z_var[j, i]
        if not lower_cholesky(V, lower):
            return False, 0.0, V_inverse, T, precision, shift
        for i in range(p):
            log_det += 2 * np.log(lower[i, i])
        inverse = invert_triangle(lower)
        V_inverse[j] = inverse.T @ inverse
        T[j] = V_inverse[j] @ S[j]
        precision += S[j] @ T[j]
        shift += T[j].T @ rows.z_hat[j]
    return True, log_det, V_inverse, T, precision, shift


@jit
def _released_z(S: Any, sigma2: float, coef: Any, prior: Any, shift: Any, rows: Any, G: Any) -> Any:
    """Log-density of all z-hat_j, and its gradient by S_j added to G.

    `prior` (precision) is read, and coefficients are integrated out, where it has any rows.
    """
    holders, p = rows.z_hat.shape
    ok, log_det, V_inverse, T, precision, total_shift = z_terms(S, sigma2, rows)
    if not ok:
        return -np.inf
    value = -0.5 * log_det
    mean = coef
    covariance = np.zeros((p, p))
    integrated = prior.shape[0] > 0
    if integrated:
        lower = np.empty((p, p))
        if not lower_cholesky(precision + prior, lower):
            return -np.inf
        inverse = invert_triangle(lower)
        covariance = inverse.T @ inverse
        half = inverse @ (total_shift + shift)
        mean = inverse.T @ half
        value += 0.5 * np.sum(half * half)
        for i in range(p):
            value -= np.log(lower[i, i])
    for j in range(holders):
        residual = rows.z_hat[j] - S[j] @ mean
        u = V_inverse[j] @ residual
        if integrated:
            value -= 0.5 * np.sum(rows.z_hat[j] * (V_inverse[j] @ rows.z_hat[j]))
        else:
            value -= 0.5 * np.sum(residual * u)
        # Fisher's identity: the gradient at given coefficients, averaged over their conditional
        G[j] += 0.5 * (np.outer(u, mean) + np.outer(mean, u) + sigma2 * np.outer(u, u))
        G[j] -= 0.5 * sigma2 * V_inverse[j]
        if integrated:
            spread = T[j] @ covariance
            G[j] += 0.5 * (sigma2 * (spread @ T[j].T) - spread - spread.T)
    return value


@jit
def _released_gram(S: Any, rows: Any, G: Any) -> float:
    """Log-density of all S-hat_j, and its gradient added to G."""
    holders, p = rows.z_hat.shape
    value = 0.0
    for j in range(holders):
        for a in range(p):
            for b in range(a, p):
                gap = rows.S_hat[j, a, b] - S[j, a, b]
                pull = rows.S_weight[j, a, b] * gap
                value -= 0.5 * pull * gap
                if a == b:
                    G[j, a, a] += pull
                else:
                    G[j, a, b] += 0.5 * pull
                    G[j, b, a] += 0.5 * pull
    return value


@jit
def _rows_prior(S: Any, rows: Any, G: Any) -> float:
    """Log-density of the Gram matrices without the determinants |S_j|, gradient added to G."""
    total = np.sum(S, axis=0)
    if not rows.integrated:
        for j in range(S.shape[0]):
            G[j] -= 0.5 * rows.matrix
        return -0.5 * np.sum(rows.matrix * total)
    total += rows.matrix
    lower = np.empty_like(total)
    if not lower_cholesky(total, lower):
        return -np.inf
    inverse = invert_triangle(lower)
    degrees = rows.nu + np.sum(rows.n)
    gradient = 0.5 * degrees * (inverse.T @ inverse)
    value = 0.0
    for i in range(lower.shape[0]):
        value -= degrees * np.log(lower[i, i])
    for j in range(S.shape[0]):
        G[j] -= gradient
    return value


@jit
def gram_log_density(
    q: Any, B: Any, sigma2: float, coef: Any, prior: Any, shift: Any, rows: Any
) -> Any:
    """Log-density of the coordinates, up to a constant, and its gradient (J, p, p, lower).

    Parameters
    ----------
    q : array (J, p, p)
        Coordinates.
    B : array (p, p)
        Their fixed matrix.
    sigma2 : float
        Error variance.
    coef : array (p,)
        Coefficients, read where `prior` is empty.
    prior, shift : array
        Precision of the coefficients' normal prior, and precision times mean; ``(0, 0)`` and
        ``(0,)`` where coefficients are given.
    rows : Rows
        The holders.
    """
    holders, p = rows.z_hat.shape
    S, factors, gradient = np.empty_like(q), np.empty_like(q), np.zeros_like(q)
    for j in range(holders):
        K = q[j].copy()
        for i in range(p):
            K[i, i] = np.exp(q[j, i, i])
        factors[j] = B @ K
        S[j] = rows.n[j] * (factors[j] @ factors[j].T)
    G = np.zeros_like(q)
    value = _rows_prior(S, rows, G) + _released_gram(S, rows, G)
    value += _released_z(S, sigma2, coef, prior, shift, rows, G)
    if not np.isfinite(value):
        return -np.inf, gradient
    for j in range(holders):
        by_factor = 2 * rows.n[j] * (B.T @ (G[j] @ factors[j]))
        for i in range(p):
            for k in range(i):
                gradient[j, i, k] = by_factor[i, k]
            if i >= rows.first:
                # |S_j|^((n - p - 1)/2) and the Jacobian of S_j: Bartlett's powers
                value += (rows.n[j] - i) * q[j, i, i]
                gradient[j, i, i] = rows.n[j] - i + np.exp(q[j, i, i]) * by_factor[i, i]
    return value, gradient
