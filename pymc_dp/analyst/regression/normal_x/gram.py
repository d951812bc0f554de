"""Log-density, and its gradient, of Gram matrices S_j = X_j'X_j behind noisy regression releases.

The target of the moves of S_1, ..., S_J and of the rows' law is (Alparslan, Yildirim & Birbil 2023,
equation 10, with the covariance that it should have)

    p(Sigma_x) * prod_j Wishart(S_j; Sigma_x, n_j) * noise(S-hat_j | S_j)
               * N(z-hat_j; S_j theta, sigma^2 S_j + noise),

with the coefficients theta given, or normal and integrated out.

Coordinates: the second moments of a row are B C C' B' with a fixed matrix B and C lower triangular,
and S_j = n_j B C K_j K_j' C' B' with K_j lower triangular; the diagonals as logarithms. A priori
the K_j are Bartlett's standard variables whatever C is. Under strong noise, where the data say
little of each S_j by itself, they stay so; under weak noise all is near the identity, where the
coordinates are nearly linear and what ties C to the K_j can be whitened.

A column of ones in X_j has the first place, and the known entry n_j of S_j is that of B, C and K_j.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pymc_dp.numerics.cholesky import lower_cholesky
from pymc_dp.numerics.compiled import jit
from pymc_dp.types import Array

__all__ = [
    "Given",
    "Rows",
    "coordinates",
    "gram_log_density",
    "invert_triangle",
    "matrices",
    "z_terms",
]


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
    """

    n: Array
    first: int
    S_hat: Array
    S_weight: Array
    z_hat: Array
    z_var: Array


class Given(NamedTuple):
    """Parameters and priors that stay as they are while the Gram matrices move.

    Attributes
    ----------
    sigma2 : float
        Error variance.
    coef : array (p,)
        Coefficients, read where `precision` is empty.
    precision, shift : array
        Precision of the coefficients' normal prior, and precision times mean; ``(0, 0)`` and
        ``(0,)`` where coefficients are given.
    scale : array (p, p)
        Matrix of the inverse-Wishart prior of the rows' law, B^-1 scale B^-T.
    nu : float
        Its degrees of freedom; 0 where the rows' law is given.
    """

    sigma2: float
    coef: Array
    precision: Array
    shift: Array
    scale: Array
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
def coordinates(S: Any, moments: Any, n: Any, B_inverse: Any) -> Any:
    """Coordinates (J + 1, p, p), lower triangles: of the Gram matrices, and of the rows' law.

    `moments` are the second moments of a row. All are NaN where a matrix is singular to rounding.
    """
    holders, p = S.shape[0], S.shape[1]
    q = np.zeros((holders + 1, p, p))
    ok = lower_cholesky(B_inverse @ moments @ B_inverse.T, q[holders])
    for j in range(holders):
        ok = ok and lower_cholesky(B_inverse @ S[j] @ B_inverse.T / n[j], q[j])
    if not ok:
        return np.full_like(q, np.nan)
    C_inverse = invert_triangle(q[holders])
    for j in range(holders):
        q[j] = C_inverse @ q[j]
    for j in range(holders + 1):
        for i in range(p):
            q[j, i, i] = np.log(q[j, i, i])
    return q


@jit
def _factor(triangle: Any) -> Any:
    """Lower triangular matrix of coordinates."""
    factor = triangle.copy()
    for i in range(len(factor)):
        factor[i, i] = np.exp(triangle[i, i])
    return factor


@jit
def matrices(q: Any, n: Any, B: Any) -> Any:
    """Gram matrices from their coordinates."""
    S = np.empty((n.size, *B.shape))
    root = B @ _factor(q[n.size])
    for j in range(n.size):
        factor = root @ _factor(q[j])
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
def _released_z(S: Any, given: Any, rows: Any, G: Any) -> float:
    """Log-density of all z-hat_j, and its gradient by S_j added to G."""
    sigma2, mean = given.sigma2, given.coef
    holders, p = rows.z_hat.shape
    ok, log_det, V_inverse, T, precision, total_shift = z_terms(S, sigma2, rows)
    if not ok:
        return -np.inf
    value = -0.5 * log_det
    covariance = np.zeros((p, p))
    integrated = given.precision.shape[0] > 0
    if integrated:
        lower = np.empty((p, p))
        if not lower_cholesky(precision + given.precision, lower):
            return -np.inf
        inverse = invert_triangle(lower)
        covariance = inverse.T @ inverse
        half = inverse @ (total_shift + given.shift)
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
def _rows_prior(C: Any, given: Any, first: int, gradient: Any) -> float:
    """Log-density of the rows' law by C, and its gradient added to that of C's coordinates."""
    inverse = invert_triangle(C)
    spread = inverse @ given.scale @ inverse.T
    value = 0.0
    for i in range(first):
        spread[i] = 0.0
    slope = inverse.T @ spread
    for i in range(first, len(C)):
        # |Sigma|^-((nu + d + 1)/2), with an intercept the mean's |Sigma|^-1/2, and the Jacobian
        value -= 0.5 * spread[i, i] + (given.nu + i) * np.log(C[i, i])
        gradient[i, :i] += slope[i, :i]
        gradient[i, i] += C[i, i] * slope[i, i] - (given.nu + i)
    return value


@jit
def gram_log_density(q: Any, B: Any, given: Any, rows: Any) -> Any:
    """Log-density of the coordinates, up to a constant, and its gradient (J + 1, p, p, lower).

    Parameters
    ----------
    q : array (J + 1, p, p)
        Coordinates; the last are those of the rows' law.
    B : array (p, p)
        Their fixed matrix.
    given : Given
        What does not move.
    rows : Rows
        The holders.
    """
    holders, p = rows.z_hat.shape
    gradient = np.zeros_like(q)
    C = _factor(q[holders])
    root = B @ C
    S, G = np.empty((holders, p, p)), np.zeros((holders, p, p))
    K, F = np.empty_like(S), np.empty_like(S)
    for j in range(holders):
        K[j] = _factor(q[j])
        F[j] = root @ K[j]
        S[j] = rows.n[j] * (F[j] @ F[j].T)
    value = _released_gram(S, rows, G) + _released_z(S, given, rows, G)
    if not np.isfinite(value):
        return -np.inf, gradient
    by_root = np.zeros((p, p))
    for j in range(holders):
        n, by_factor = rows.n[j], 2 * rows.n[j] * (G[j] @ F[j])
        by_root += by_factor @ K[j].T
        by_K = root.T @ by_factor
        for i in range(rows.first, p):
            for k in range(i):
                value -= 0.5 * n * K[j, i, k] ** 2
                gradient[j, i, k] = by_K[i, k] - n * K[j, i, k]
            # Bartlett's powers, one higher for the logarithm
            value += (n - i) * q[j, i, i] - 0.5 * n * K[j, i, i] ** 2
            gradient[j, i, i] = n - i + K[j, i, i] * (by_K[i, i] - n * K[j, i, i])
    if given.nu > 0:
        by_C = B.T @ by_root
        for i in range(rows.first, p):
            gradient[holders, i, :i] = by_C[i, :i]
            gradient[holders, i, i] = C[i, i] * by_C[i, i]
        value += _rows_prior(C, given, rows.first, gradient[holders])
    return value, gradient
