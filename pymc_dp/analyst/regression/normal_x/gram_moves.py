"""Moves of the Gram matrices S_1, ..., S_J: Hamiltonian, and the paper's Wishart proposal."""

from __future__ import annotations

from typing import Any

import numpy as np

from pymc_dp.analyst.regression.normal_x.gram import gram_log_density, invert_triangle
from pymc_dp.numerics.cholesky import lower_cholesky
from pymc_dp.numerics.compiled import jit
from pymc_dp.numerics.leapfrog import drift, kick, pull_back
from pymc_dp.numerics.wishart import bartlett

__all__ = ["hamiltonian_move", "whitened", "whitening", "wishart_move"]


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
    q, momentum, slope = q.copy(), np.zeros_like(q), np.empty(q.size)
    for j in range(size):
        for i in range(rows.first, p):
            for k in range(i + 1):
                momentum[j, i, k] = rng.standard_normal()
    # the leapfrog's view: vectors, and a metric of one block for each entry (i, k)
    place, speed, metric = q.reshape(q.size), momentum.reshape(q.size), W.reshape(-1, size, size)
    before, gradient = gram_log_density(q, B, given, rows)
    energy, after = before - 0.5 * np.sum(momentum * momentum), before
    pull_back(metric, gradient.reshape(q.size), slope)
    for _ in range(n_leapfrog):
        kick(speed, slope, 0.5 * step_size)
        drift(place, metric, speed, step_size)
        after, gradient = gram_log_density(q, B, given, rows)
        if not after > before - 1000:
            return q, 0.0
        pull_back(metric, gradient.reshape(q.size), slope)
        kick(speed, slope, 0.5 * step_size)
    gain = after - 0.5 * np.sum(momentum * momentum) - energy
    # the smaller of 0 and nan is 0: a gradient that is not a number would always be accepted
    return q, np.exp(min(0.0, gain)) if gain == gain else 0.0


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
