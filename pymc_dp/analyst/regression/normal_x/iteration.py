"""One iteration of normalX: Gram matrices, coefficients, error variance, the rows' law, X'y.

Alparslan, Yildirim & Birbil (2023), Algorithm 1, with coefficients integrated out, and the rows'
covariance moving along, while the Gram matrices move.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pymc_dp.analyst.regression.normal_x.gram import (
    Given,
    Rows,
    coordinates,
    invert_triangle,
    matrices,
    z_terms,
)
from pymc_dp.analyst.regression.normal_x.gram_moves import (
    hamiltonian_move,
    whitened,
    wishart_move,
)
from pymc_dp.numerics.cholesky import lower_cholesky
from pymc_dp.numerics.compiled import jit
from pymc_dp.numerics.normal_mixture import laplace_variances
from pymc_dp.numerics.slice import make_line_slice
from pymc_dp.numerics.wishart import bartlett
from pymc_dp.types import Array

__all__ = [
    "Priors",
    "Proposal",
    "Releases",
    "State",
    "fixed_gram_chain",
    "iterate",
    "noise_variances",
    "row_moments",
    "whitened_place",
]


class State(NamedTuple):
    """Where a chain is; an intercept has the first place everywhere."""

    S: Array  # (J, p, p)
    z: Array  # (J, p)
    coef: Array  # (p,)
    sigma2: float
    mean: Array  # (d,)
    cov: Array  # (d, d)


class Priors(NamedTuple):
    """Conjugate priors; an empty array or zero where a parameter is not moved here."""

    coef_precision: Array  # (p, p)
    coef_shift: Array  # (p,), precision times mean
    sigma2_shape: float
    sigma2_scale: float
    rows_scale: Array  # (p, p)
    rows_nu: float


class Releases(NamedTuple):
    """What the holders released: values, and the noise's sigma or scale (0 for no release)."""

    n: Array
    first: int
    S_hat: Array
    S_noise: Array
    S_laplace: NDArray[np.bool_]
    z_hat: Array
    z_noise: Array
    z_laplace: NDArray[np.bool_]


class Proposal(NamedTuple):
    """How the Gram matrices move: by Hamiltonian dynamics, or by Wishart proposals."""

    B: Array  # (p, p)
    B_inverse: Array  # (p, p)
    W: Array  # (p, p, J + 1, J + 1)
    step_size: float
    n_leapfrog: int
    degrees: Array | None  # (J,) of Wishart proposals


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
def _log_error_variance(distance: float, line: Any) -> float:
    """Log-density of log(sigma^2), at a distance, under an inverse-gamma(a, b) prior."""
    start, values, squares, a, b = line
    log_sigma2 = start + distance
    sigma2 = np.exp(log_sigma2)
    total = -a * log_sigma2 - b / sigma2
    for j in range(values.shape[0]):
        for i in range(values.shape[1]):
            variance = 1 + sigma2 * max(values[j, i], 0.0)
            total -= 0.5 * (np.log(variance) + squares[j, i] / variance)
    return total


_slice_error_variance = make_line_slice(_log_error_variance)


@jit
def slice_error_variance(rng: Any, sigma2: float, values: Any, squares: Any, a: float, b: float):  # type: ignore[no-untyped-def]
    """One slice update of log(sigma^2)."""
    line = (np.log(sigma2), values, squares, a, b)
    distance, _ = _slice_error_variance(rng, line, 1.0, _log_error_variance(0.0, line))
    return sigma2 * np.exp(distance)


@jit
def draw_rows_law(rng: Any, S: Any, first: int, scale: Any, degrees: float) -> Any:
    """Mean and covariance of the rows given their Gram matrices: equation 11.

    With a column of ones (`first` = 1) the posterior is normal-inverse-Wishart, and both follow
    from the blocks of scale + sum_j S_j; without it the mean is zero.
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


@jit
def noise_variances(rng: Any, hat: Any, value: Any, noise: Any, laplace: Any) -> Any:
    """Variance of every entry's noise: known, or drawn given the noise where that is Laplace."""
    flat = noise.ravel() ** 2
    which = np.flatnonzero(laplace)
    if which.size:
        residual = hat.ravel()[which] - value.ravel()[which]
        flat[which] = laplace_variances(rng, residual, noise.ravel()[which])
    return flat.reshape(noise.shape)


@jit
def row_moments(mean: Any, cov: Any, first: int) -> Any:
    """Second moments of a row: x, or 1 and x where `first` is 1."""
    d = len(cov)
    moments = np.ones((d + first, d + first))
    moments[first:, first:] = cov
    if first:
        moments[0, 1:] = moments[1:, 0] = mean
        moments[1:, 1:] += np.outer(mean, mean)
    return moments


@jit
def whitened_place(S: Any, mean: Any, cov: Any, n: Any, first: int, B_inverse: Any, W: Any) -> Any:
    """Whitened coordinates of where a chain is, in one call from Python; see `coordinates`."""
    return whitened(W, coordinates(S, row_moments(mean, cov, first), n, B_inverse))


@jit
def _weights(variance: Any) -> Any:
    """One over the variance, 0 where that is 0."""
    weight = np.zeros_like(variance)
    for index in np.ndindex(variance.shape):
        if variance[index] > 0:
            weight[index] = 1 / variance[index]
    return weight


@jit
def _move_gram(rng: Any, state: Any, rows: Any, priors: Any, proposal: Any, degrees: Any) -> Any:
    """Move the Gram matrices; numba compiles only the kind of move that `degrees` asks for."""
    if degrees is not None:
        lower = np.empty_like(state.cov)
        lower_cholesky(state.cov, lower)
        inverse = invert_triangle(lower)
        precision = inverse.T @ inverse
        return wishart_move(rng, state.S, degrees, state.sigma2, state.coef, precision, rows)
    B_inverse = proposal.B_inverse
    scale = B_inverse @ priors.rows_scale @ B_inverse.T
    given = Given(
        state.sigma2, state.coef, priors.coef_precision, priors.coef_shift, scale, priors.rows_nu
    )
    moments = row_moments(state.mean, state.cov, rows.first)
    q = coordinates(state.S, moments, rows.n, B_inverse)
    if np.isnan(q[0, 0, 0]):  # the law, drawn anew below, was singular to rounding
        return state.S, np.zeros(rows.n.size)
    step = proposal.step_size, proposal.n_leapfrog
    q, rate = hamiltonian_move(rng, q, proposal.B, proposal.W, *step, given, rows)
    S = state.S
    if rng.random() < rate:
        new = matrices(q, rows.n, proposal.B)
        # a matrix that is singular to rounding could not be left again: not a possible value
        if not np.isnan(coordinates(new, proposal.B @ proposal.B.T, rows.n, B_inverse)[0, 0, 0]):
            S = new
    return S, np.full(rows.n.size, rate)


@jit
def iterate(rng: Any, state: Any, releases: Any, priors: Any, proposal: Any) -> Any:
    """One iteration: the new state, and the acceptance probability of each holder's move.

    While the Gram matrices move, X'y is integrated out; by the Hamiltonian move also the
    coefficients, and the rows' law moves along, where their priors are conjugate. All of these are
    then drawn from their conditionals, in an order that leaves the joint posterior as it is: what
    was integrated out is drawn before anything else is conditioned on it.
    """
    n, first = releases.n, releases.first
    S_var = noise_variances(rng, releases.S_hat, state.S, releases.S_noise, releases.S_laplace)
    z_var = noise_variances(rng, releases.z_hat, state.z, releases.z_noise, releases.z_laplace)
    rows = Rows(n, first, releases.S_hat, _weights(S_var), releases.z_hat, z_var)
    S, accept = _move_gram(rng, state, rows, priors, proposal, proposal.degrees)
    coef, sigma2, mean, cov = state.coef, state.sigma2, state.mean, state.cov
    if priors.rows_nu > 0:
        degrees = priors.rows_nu + np.sum(n)
        mean, cov = draw_rows_law(rng, S, first, priors.rows_scale, degrees)
    if priors.coef_precision.shape[0] > 0:
        coef = draw_coefficients(rng, S, sigma2, priors.coef_precision, priors.coef_shift, rows)
    if priors.sigma2_shape > 0:
        values, squares = error_variance_terms(S, coef, rows)
        sigma2 = slice_error_variance(
            rng, sigma2, values, squares, priors.sigma2_shape, priors.sigma2_scale
        )
    z = draw_cross_products(rng, S, sigma2, coef, rows)
    return State(S, z, coef, sigma2, mean, cov), accept


@jit
def fixed_gram_chain(
    rng: Any, S: Any, rows: Any, prior: Any, shift: Any, a: float, b: float, tune: int, draws: int
) -> Any:
    """One chain with the Gram matrices held fixed: the paper's Algorithm 2, with a slice update."""
    p = prior.shape[0]
    coefs, variances = np.empty((draws, p)), np.empty(draws)
    sigma2 = b / rng.standard_gamma(a)
    for t in range(-tune, draws):
        coef = draw_coefficients(rng, S, sigma2, prior, shift, rows)
        values, squares = error_variance_terms(S, coef, rows)
        sigma2 = slice_error_variance(rng, sigma2, values, squares, a, b)
        if t >= 0:
            coefs[t], variances[t] = coef, sigma2
    return coefs, variances
