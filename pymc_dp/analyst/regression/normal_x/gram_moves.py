"""Moves of the Gram matrices S_1, ..., S_J: Hamiltonian, and the paper's Wishart proposal."""

from __future__ import annotations

from typing import Any

import numpy as np

from pymc_dp.analyst.regression.normal_x.gram import gram_log_density, invert_triangle
from pymc_dp.numerics.cholesky import lower_cholesky
from pymc_dp.numerics.compiled import jit

__all__ = ["bartlett", "hamiltonian_move", "whitened", "whitening", "wishart_move"]


@jit
def whitening(B: Any, scale: Any, nu: float, rows: Any) -> Any:
    """Factor W (p, p, J + 1, J + 1) such that q[:, i, k] = W[i, k] @ xi has about unit spread.

    From the curvature at the identity: Bartlett's variables have n_j (twice that on the diagonal),
    the rows' law what its prior gives, and the noise of S-hat_j ties both, since it sees their sum.
    Columns of W[i, k] are orthogonal. `scale` is B^-1 scale B^-T; with nu = 0 the law is given, and
    its coordinates do not move.
    """
    holders, p = rows.z_hat.shape
    W = np.zeros((p, p, holders + 1, holders + 1))
    for i in range(p):
        for k in range(i + 1):
            curvature = np.zeros((holders + 1, holders + 1))
            twice = 2.0 if i == k else 1.0
            curvature[holders, holders] = twice * (scale[k, k] + 1)
            for j in range(holders):
                noise = 0.0
                for a in range(p):
                    for b in range(a, p):
                        change = rows.n[j] * (B[a, i] * B[b, k] + B[a, k] * B[b, i])
                        noise += rows.S_weight[j, a, b] * change * change
                # one row's worth keeps the matrix positive where nothing was released
                curvature[j, j] = twice * (rows.n[j] + 1) + noise
                curvature[j, holders] = curvature[holders, j] = noise
                curvature[holders, holders] += noise
            moving = holders + 1 if nu > 0 else holders
            values, vectors = np.linalg.eigh(curvature[:moving, :moving])
            W[i, k, :moving, :moving] = vectors / np.sqrt(values)
    return W


@jit
def whitened(W: Any, q: Any) -> Any:
    """Coordinates in units of the whitening: the xi with q[:, i, k] = W[i, k] @ xi[:, i, k]."""
    xi = np.zeros_like(q)
    for i in range(q.shape[1]):
        for k in range(i + 1):
            for m in range(q.shape[0]):
                column = W[i, k, :, m]
                length = np.sum(column * column)
                if length > 0:
                    xi[m, i, k] = np.sum(column * q[:, i, k]) / length
    return xi


@jit
def _spread(W: Any, xi: Any, q: Any) -> Any:
    """Add to coordinates q a step xi in whitened space."""
    out = q.copy()
    size, p = q.shape[0], q.shape[1]
    for i in range(p):
        for k in range(i + 1):
            for j in range(size):
                for m in range(size):
                    out[j, i, k] += W[i, k, j, m] * xi[m, i, k]
    return out


@jit
def _pull_back(W: Any, gradient: Any) -> Any:
    """Gradient by whitened coordinates."""
    out = np.zeros_like(gradient)
    size, p = gradient.shape[0], gradient.shape[1]
    for i in range(p):
        for k in range(i + 1):
            for m in range(size):
                for j in range(size):
                    out[m, i, k] += W[i, k, j, m] * gradient[j, i, k]
    return out


@jit
def hamiltonian_move(
    rng: Any, q: Any, B: Any, W: Any, step_size: float, n_leapfrog: int, given: Any, rows: Any
) -> Any:
    """Propose coordinates by one leapfrog trajectory in whitened space.

    Returns
    -------
    q : array (J + 1, p, p)
        The proposed coordinates.
    accept : float
        Their acceptance probability.
    """
    size, p = q.shape[0], q.shape[1]
    momentum = np.zeros_like(q)
    for j in range(size):
        for i in range(rows.first, p):
            for k in range(i + 1):
                momentum[j, i, k] = rng.standard_normal()
    before, gradient = gram_log_density(q, B, given, rows)
    energy = before - 0.5 * np.sum(momentum * momentum)
    after, half_kick = before, 0.5 * step_size * _pull_back(W, gradient)
    for _ in range(n_leapfrog):
        momentum += half_kick
        q = _spread(W, step_size * momentum, q)
        after, gradient = gram_log_density(q, B, given, rows)
        if not after > before - 1000:
            return q, 0.0
        half_kick = 0.5 * step_size * _pull_back(W, gradient)
        momentum += half_kick
    gain = after - 0.5 * np.sum(momentum * momentum) - energy
    # the smaller of 0 and nan is 0: a gradient that is not a number would always be accepted
    return q, np.exp(min(0.0, gain)) if gain == gain else 0.0


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
def _log_conditional(
    S: Any, log_det: float, j: int, sigma2: float, coef: Any, precision: Any, rows: Any
) -> float:
    """Log-density of one S_j given the coefficients and the rows' precision (equation 10)."""
    p = S.shape[0]
    value = 0.5 * (rows.n[j] - p - 1) * log_det - 0.5 * np.sum(precision * S)
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
def wishart_move(
    rng: Any, S: Any, degrees: Any, sigma2: float, coef: Any, precision: Any, rows: Any
) -> Any:
    """Offer every S_j a draw from Wishart(S_j / alpha_j, alpha_j): the paper's move (A.3).

    `precision` is the inverse of the rows' covariance.

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
        log_ratio += _log_conditional(proposal, new_det, j, sigma2, coef, precision, rows)
        log_ratio -= _log_conditional(S[j], old_det, j, sigma2, coef, precision, rows)
        accept[j] = np.exp(min(0.0, log_ratio)) if log_ratio == log_ratio else 0.0
        if rng.random() < accept[j]:
            S[j] = proposal
    return S, accept
