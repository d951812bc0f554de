"""One iteration of normalX: Gram matrices, coefficients, error variance, the rows' law, X'y.

Alparslan, Yildirim & Birbil (2023), Algorithm 1, with coefficients and the rows' covariance
integrated out while the Gram matrices move.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pymc_dp.kernels.gram import invert_triangle, jit, lower_cholesky, z_terms
from pymc_dp.kernels.gram_moves import bartlett

__all__ = [
    "draw_coefficients",
    "draw_cross_products",
    "draw_rows_law",
    "error_variance_terms",
    "slice_error_variance",
]


@jit
def draw_coefficients(rng: Any, S: Any, sigma2: float, prior: Any, shift: Any, rows: Any) -> Any:
    """Coefficients given everything but X'y: equation 12."""
    p = prior.shape[0]
    _, _, _, _, precision, total_shift = z_terms(S, sigma2, rows)
    lower = np.empty((p, p))
    lower_cholesky(precision + prior, lower)
    inverse = invert_triangle(lower)
    return inverse.T @ (inverse @ (total_shift + shift) + rng.standard_normal(p))


@jit
def error_variance_terms(S: Any, coef: Any, rows: Any) -> Any:
    """Eigenvalues of S_j in units of the noise, and squared residuals along their directions."""
    holders, p = rows.z_hat.shape
    values, squares = np.empty((holders, p)), np.empty((holders, p))
    for j in range(holders):
        root = np.sqrt(rows.z_var[j])
        values[j], vectors = np.linalg.eigh(S[j] / np.outer(root, root))
        squares[j] = (vectors.T @ ((rows.z_hat[j] - S[j] @ coef) / root)) ** 2
    return values, squares


@jit
def _log_error_variance(log_sigma2: float, values: Any, squares: Any, a: float, b: float) -> float:
    """Log-density of log(sigma^2) under an inverse-gamma(a, b) prior."""
    sigma2 = np.exp(log_sigma2)
    total = -a * log_sigma2 - b / sigma2
    for j in range(values.shape[0]):
        for i in range(values.shape[1]):
            variance = 1 + sigma2 * max(values[j, i], 0.0)
            total -= 0.5 * (np.log(variance) + squares[j, i] / variance)
    return total


@jit
def slice_error_variance(rng: Any, sigma2: float, values: Any, squares: Any, a: float, b: float):  # type: ignore[no-untyped-def]
    """One slice update of log(sigma^2) with stepping out (Neal 2003)."""
    x = np.log(sigma2)
    level = _log_error_variance(x, values, squares, a, b) + np.log(rng.random())
    left = x - rng.random()
    right = left + 1.0
    for _ in range(50):
        if _log_error_variance(left, values, squares, a, b) <= level:
            break
        left -= 1.0
    for _ in range(50):
        if _log_error_variance(right, values, squares, a, b) <= level:
            break
        right += 1.0
    while True:
        new = left + (right - left) * rng.random()
        if _log_error_variance(new, values, squares, a, b) > level or right - left < 1e-12:
            return np.exp(new)
        if new < x:
            left = new
        else:
            right = new


@jit
def draw_rows_law(rng: Any, S: Any, first: int, scale: Any, degrees: float) -> Any:
    """Mean and covariance of the rows given their Gram matrices: equation 11.

    With a column of ones (`first` = 1) the posterior is normal-inverse-Wishart, and both follow from
    the blocks of scale + sum_j S_j; without it the mean is empty.
    """
    total = scale + np.sum(S, axis=0)
    size = total.shape[0] - first
    mean = np.zeros(size)
    inner = total[first:, first:].copy()
    if first:
        mean = total[1:, 0] / total[0, 0]
        inner -= np.outer(total[1:, 0], mean)
    lower = np.empty((size, size))
    lower_cholesky(inner, lower)
    # Sigma^-1 ~ Wishart(inner^-1, degrees), so that Sigma = L (A A')^-1 L' with L L' = inner
    root = lower @ invert_triangle(bartlett(rng, size, degrees)).T
    if first:
        mean = mean + root @ rng.standard_normal(size) / np.sqrt(total[0, 0])
    return mean, root @ root.T


@jit
def draw_cross_products(rng: Any, S: Any, sigma2: float, coef: Any, rows: Any) -> Any:
    """X_j'y_j given everything else: Proposition 3.1 combined with the noise."""
    holders, p = rows.z_hat.shape
    z = np.empty((holders, p))
    lower, outer = np.empty((p, p)), np.empty((p, p))
    for j in range(holders):
        # a draw from the law before noise, corrected by the noisy residual (Matheron's rule)
        V = sigma2 * S[j]
        lower_cholesky(V, lower)
        fresh = S[j] @ coef + lower @ rng.standard_normal(p)
        noise = np.sqrt(rows.z_var[j]) * rng.standard_normal(p)
        total = V + np.diag(rows.z_var[j])
        lower_cholesky(total, outer)
        inverse = invert_triangle(outer)
        z[j] = fresh + V @ (inverse.T @ (inverse @ (rows.z_hat[j] - fresh - noise)))
    return z
