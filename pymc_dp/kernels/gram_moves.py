"""Moves of the Gram matrices S_1, ..., S_J: Hamiltonian, and the paper's Wishart proposal."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pymc_dp.kernels.cholesky import jit, lower_cholesky
from pymc_dp.kernels.gram import (
    coordinates,
    gram_log_density,
    invert_triangle,
    matrices,
)

__all__ = ["bartlett", "hamiltonian_move", "whitened", "whitening", "wishart_move"]

Array = NDArray[np.float64]


@jit
def whitening(B: Any, rows: Any) -> Any:
    """Factor W (p, p, J, J) such that coordinates q[:, i, k] = W[i, k] @ xi have about unit spread.

    From the curvature at K_j = identity: the rows' law gives diag(n_j) less n n'/(nu + n) where the
    covariance is integrated out (twice that on the diagonal), the noise of S-hat_j what is computed
    here. Columns of W[i, k] are orthogonal, the holders' common direction among them.
    """
    holders, p = rows.z_hat.shape
    W = np.zeros((p, p, holders, holders))
    total = rows.nu + np.sum(rows.n)
    for i in range(p):
        for k in range(i + 1):
            curvature = np.zeros((holders, holders))
            twice = 2.0 if i == k else 1.0
            for j in range(holders):
                noise = 0.0
                for a in range(p):
                    for b in range(a, p):
                        change = rows.n[j] * (B[a, i] * B[b, k] + B[a, k] * B[b, i])
                        noise += rows.S_weight[j, a, b] * change * change
                # one row's worth keeps the matrix positive where nothing was released
                curvature[j, j] = twice * (rows.n[j] + 1) + noise
                if rows.integrated:
                    for m in range(holders):
                        curvature[j, m] -= twice * rows.n[j] * rows.n[m] / total
            values, vectors = np.linalg.eigh(curvature)
            W[i, k] = vectors / np.sqrt(values)
    return W


@jit
def whitened(W: Any, q: Any) -> Any:
    """Coordinates in units of the whitening: the xi with q[:, i, k] = W[i, k] @ xi[:, i, k]."""
    xi = np.zeros_like(q)
    for i in range(q.shape[1]):
        for k in range(i + 1):
            for m in range(q.shape[0]):
                column = W[i, k, :, m]
                xi[m, i, k] = np.sum(column * q[:, i, k]) / np.sum(column * column)
    return xi


@jit
def _spread(W: Any, xi: Any, q: Any) -> Any:
    """Add to coordinates q a step xi in whitened space."""
    out = q.copy()
    holders, p = q.shape[0], q.shape[1]
    for i in range(p):
        for k in range(i + 1):
            for j in range(holders):
                for m in range(holders):
                    out[j, i, k] += W[i, k, j, m] * xi[m, i, k]
    return out


@jit
def _pull_back(W: Any, gradient: Any) -> Any:
    """Gradient by whitened coordinates."""
    out = np.zeros_like(gradient)
    holders, p = gradient.shape[0], gradient.shape[1]
    for i in range(p):
        for k in range(i + 1):
            for m in range(holders):
                for j in range(holders):
                    out[m, i, k] += W[i, k, j, m] * gradient[j, i, k]
    return out


@jit
def hamiltonian_move(
    rng: Any,
    S: Any,
    B: Any,
    B_inverse: Any,
    W: Any,
    step_size: float,
    n_leapfrog: int,
    sigma2: float,
    coef: Any,
    prior: Any,
    shift: Any,
    rows: Any,
) -> Any:
    """Move all S_j together by one leapfrog trajectory in whitened coordinates.

    Returns
    -------
    S : array (J, p, p)
        The new matrices, or the old ones.
    accept : float
        Acceptance probability.
    """
    holders, p = rows.z_hat.shape
    q = coordinates(S, rows.n, B_inverse)
    momentum = np.zeros_like(q)
    for j in range(holders):
        for i in range(rows.first, p):
            for k in range(i + 1):
                momentum[j, i, k] = rng.standard_normal()
    before, gradient = gram_log_density(q, B, sigma2, coef, prior, shift, rows)
    energy = before - 0.5 * np.sum(momentum * momentum)
    after = before
    for _ in range(n_leapfrog):
        momentum += 0.5 * step_size * _pull_back(W, gradient)
        q = _spread(W, step_size * momentum, q)
        after, gradient = gram_log_density(q, B, sigma2, coef, prior, shift, rows)
        if not after > before - 1000:
            return S, 0.0
        momentum += 0.5 * step_size * _pull_back(W, gradient)
    accept = np.exp(min(0.0, after - 0.5 * np.sum(momentum * momentum) - energy))
    if rng.random() < accept:
        return matrices(q, rows.n, B), accept
    return S, accept


@jit
def bartlett(rng: Any, size: int, degrees: float) -> Any:
    """Lower factor A of a standard Wishart draw A A' (Bartlett 1933)."""
    A = np.zeros((size, size))
    for i in range(size):
        A[i, i] = np.sqrt(rng.chisquare(degrees - i))
        for k in range(i):
            A[i, k] = rng.standard_normal()
    return A


@jit
def _log_conditional(S: Any, log_det: float, j: int, sigma2: float, coef: Any, rows: Any) -> float:
    """Log-density of one S_j given the coefficients and the rows' precision (equation 10)."""
    p = S.shape[0]
    value = 0.5 * (rows.n[j] - p - 1) * log_det - 0.5 * np.sum(rows.matrix * S)
    for a in range(p):
        for b in range(a, p):
            value -= 0.5 * rows.S_weight[j, a, b] * (rows.S_hat[j, a, b] - S[a, b]) ** 2
    V, lower = sigma2 * S, np.empty_like(S)
    for i in range(p):
        V[i, i] += rows.z_var[j, i]
    if not lower_cholesky(V, lower):
        return -np.inf
    half = invert_triangle(lower) @ (rows.z_hat[j] - S @ coef)
    for i in range(p):
        value -= np.log(lower[i, i]) + 0.5 * half[i] ** 2
    return value


@jit
def wishart_move(rng: Any, S: Any, degrees: Any, sigma2: float, coef: Any, rows: Any) -> Any:
    """Offer every S_j a draw from Wishart(S_j / alpha_j, alpha_j): the paper's move (A.3).

    Returns
    -------
    S : array (J, p, p)
        The matrices afterwards.
    accept : array (J,)
        Acceptance probabilities.
    """
    holders, p = rows.z_hat.shape
    S = S.copy()
    accept = np.zeros(holders)
    old_lower, new_lower = np.empty((p, p)), np.empty((p, p))
    for j in range(holders):
        alpha = degrees[j]
        lower_cholesky(S[j], old_lower)
        root = old_lower @ bartlett(rng, p, alpha) / np.sqrt(alpha)
        proposal = root @ root.T
        if not lower_cholesky(proposal, new_lower):
            continue
        old_det, new_det = 0.0, 0.0
        for i in range(p):
            old_det += 2 * np.log(old_lower[i, i])
            new_det += 2 * np.log(new_lower[i, i])
        forth = invert_triangle(old_lower) @ new_lower
        back = invert_triangle(new_lower) @ old_lower
        log_ratio = (alpha - 0.5 * (p + 1)) * (old_det - new_det)
        log_ratio += 0.5 * alpha * (np.sum(forth * forth) - np.sum(back * back))
        log_ratio += _log_conditional(proposal, new_det, j, sigma2, coef, rows)
        log_ratio -= _log_conditional(S[j], old_det, j, sigma2, coef, rows)
        accept[j] = np.exp(min(0.0, log_ratio)) if log_ratio == log_ratio else 0.0
        if rng.random() < accept[j]:
            S[j] = proposal
    return S, accept
