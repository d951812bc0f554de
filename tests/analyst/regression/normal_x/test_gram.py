"""Kernels of NormalX against finite differences, SciPy and algebra."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import linalg, stats

from pymc_dp.analyst.regression.normal_x import gram_moves
from pymc_dp.analyst.regression.normal_x.gram import (
    Given,
    Rows,
    coordinates,
    gram_log_density,
    matrices,
)
from pymc_dp.analyst.regression.normal_x.gram_moves import whitened, whitening
from pymc_dp.analyst.regression.normal_x.iteration import draw_cross_products, draw_rows_law

HOLDERS, P = 2, 3


def problem(first):
    rng = np.random.default_rng(3)
    n = np.array([30.0, 50.0])
    tables = [rng.standard_normal((int(m), P)) for m in n]
    if first:
        for table in tables:
            table[:, 0] = 1
    S = np.array([table.T @ table for table in tables])
    noisy = S + rng.standard_normal(S.shape)
    weight = rng.uniform(0.1, 1, S.shape)
    z_hat, z_var = 5 * rng.standard_normal((HOLDERS, P)), rng.uniform(1, 4, (HOLDERS, P))
    rows = Rows(n, first, noisy, weight, z_hat, z_var)
    B = np.linalg.cholesky(S.sum(0) / n.sum())
    return S, rows, B


SCALE, NU = np.eye(P) + 0.2, 6.0


def law(moments, first):
    """Mean and covariance of rows with these second moments, 1 in front where `first` is."""
    mean = moments[first:, 0] * first
    return mean, moments[first:, first:] - np.outer(mean, mean)


def density(S, moments, rows, sigma2, coef, prior, shift, law_moves):
    """Log-density of Gram matrices and of the rows' law, written down anew."""
    first = rows.first
    mean, cov = law(moments, first)
    d = len(cov)
    total = 0.0
    for n, matrix, hat, weight in zip(rows.n, S, rows.S_hat, rows.S_weight, strict=True):
        # X'X of centred rows has n - 1 degrees; their mean is normal; n^d is the Jacobian
        centre = matrix[first:, 0] / n * first
        scatter = matrix[first:, first:] - n * np.outer(centre, centre)
        total += stats.wishart(n - first, cov).logpdf(scatter)
        if first:
            total += stats.multivariate_normal(mean, cov / n).logpdf(centre) - d * np.log(n)
        total -= np.triu(weight * (hat - matrix) ** 2).sum() / 2
    if law_moves:
        centre = SCALE[first:, 0] / SCALE[0, 0] * first
        inner = SCALE[first:, first:] - SCALE[0, 0] * np.outer(centre, centre)
        total += stats.invwishart(NU, inner).logpdf(cov)
        if first:
            total += stats.multivariate_normal(centre, cov / SCALE[0, 0]).logpdf(mean)
    noise = [sigma2 * matrix + np.diag(var) for matrix, var in zip(S, rows.z_var, strict=True)]
    tall = np.vstack(S)
    expected, spread = tall @ coef, linalg.block_diag(*noise)
    if prior.size:
        expected = tall @ np.linalg.solve(prior, shift)
        spread = spread + tall @ np.linalg.inv(prior) @ tall.T
    return total + stats.multivariate_normal(expected, spread).logpdf(rows.z_hat.ravel())


def free(first):
    """Places of the coordinates that move in a triangle."""
    i, k = np.tril_indices(P)
    return i[i >= first], k[i >= first]


def log_jacobian(q, rows, B, law_moves):
    """Log-determinant of (S, moments of the rows) by the coordinates, by finite differences."""
    where = free(rows.first)
    blocks = HOLDERS + law_moves

    def entries(x):
        moved = q.copy()
        for j in range(blocks):
            moved[j][where] = x.reshape(blocks, -1)[j]
        found = [*matrices(moved, rows.n, B), moments_of(moved, B)][:blocks]
        return np.concatenate([matrix[where] for matrix in found])

    start = np.concatenate([q[j][where] for j in range(blocks)])
    steps = 1e-5 * np.eye(start.size)
    columns = [(entries(start + s) - entries(start - s)) / 2e-5 for s in steps]
    return np.linalg.slogdet(np.array(columns))[1]


def moments_of(q, B):
    """Second moments of a row: as the Gram matrix of one row whose own factor is the identity."""
    alone = np.stack([np.zeros((P, P)), q[-1]])
    return matrices(alone, np.ones(1), B)[0]


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("law_moves", [False, True])
@pytest.mark.parametrize("with_prior", [False, True])
def test_log_density_and_gradient(first, law_moves, with_prior):
    S, rows, B = problem(first)
    prior, shift = np.zeros((0, 0)), np.zeros(0)
    if with_prior:
        prior, shift = np.eye(P) * 0.5 + 0.1, np.array([0.2, -0.1, 0.4])
    coef, B_inverse = np.array([0.1, 0.3, -0.5]), np.linalg.inv(B)
    scale = B_inverse @ SCALE @ B_inverse.T
    given = Given(0.7, coef, prior, shift, scale, NU if law_moves else 0.0)

    def at(q):
        return gram_log_density(q, B, given, rows)

    rng = np.random.default_rng(1)
    away = np.tril(0.2 * rng.standard_normal((P, P))) + np.eye(P)
    away[:first] = np.eye(P)[:first]
    moments = B @ away @ away.T @ B.T
    q = coordinates(S, moments, rows.n, B_inverse)
    np.testing.assert_allclose(matrices(q, rows.n, B), S, rtol=1e-10)
    np.testing.assert_allclose(moments_of(q, B), moments, rtol=1e-10)
    other = q + 0.02 * np.tril(rng.standard_normal(q.shape))
    other[:, :first] = q[:, :first]
    if not law_moves:
        other[-1] = q[-1]

    def expected(q):
        known = 0.7, coef, prior, shift, law_moves
        value = density(matrices(q, rows.n, B), moments_of(q, B), rows, *known)
        return value + log_jacobian(q, rows, B, law_moves)

    assert at(other)[0] - at(q)[0] == pytest.approx(expected(other) - expected(q), rel=1e-7)
    gradient = at(q)[1]
    assert not law_moves or np.all(gradient[-1][free(first)] != 0)
    for j in range(HOLDERS + law_moves):
        for i, k in zip(*free(first), strict=True):
            step = np.zeros_like(q)
            step[j, i, k] = 1e-5
            slope = (at(q + step)[0] - at(q - step)[0]) / 2e-5
            assert gradient[j, i, k] == pytest.approx(slope, rel=1e-5, abs=1e-4)


@pytest.mark.parametrize("nu", [0.0, NU])
def test_whitening_has_the_curvature(nu):
    """Where everything is near the identity and noise is what counts."""
    _, rows, B = problem(0)
    n = np.array([4e6, 1e6])
    S = n[:, None, None] * (B @ B.T)
    rows = rows._replace(n=n, S_hat=S, S_weight=np.full(S.shape, 1e-6), z_var=np.full((2, P), 1e30))
    scale = np.eye(P) * NU
    given = Given(1.0, np.zeros(P), np.eye(P), np.zeros(P), scale, nu)
    W = whitening(B, scale, nu, rows)
    xi = np.tril(np.random.default_rng(0).standard_normal((HOLDERS + 1, P, P)))
    if not nu:
        xi[-1] = 0
    q = np.einsum("ikjm,mik->jik", W, xi)
    np.testing.assert_allclose(whitened(W, q), xi, atol=1e-12)
    origin = np.zeros_like(q)
    for i, k in zip(*np.tril_indices(P), strict=True):
        for m in range(HOLDERS + (nu > 0)):
            step = origin.copy()
            step[:, i, k] = 0.1 * W[i, k, :, m]
            slope = (
                gram_log_density(step, B, given, rows)[1]
                - gram_log_density(-step, B, given, rows)[1]
            ) / 0.2
            assert -W[i, k, :, m] @ slope[:, i, k] == pytest.approx(1, rel=0.02)


def test_rows_law_is_normal_inverse_wishart():
    """False-alarm rate below 1e-4: eight averages at 4.5 standard errors."""
    S, _, _ = problem(1)
    scale = np.diag([2.0, 1.0, 1.5])
    rng = np.random.default_rng(5)
    draws = [draw_rows_law(rng, S, 1, scale, 90.0) for _ in range(4000)]
    total = scale + S.sum(0)
    mean = total[1:, 0] / total[0, 0]
    inner = total[1:, 1:] - np.outer(mean, total[1:, 0])
    means, covs = (np.array([d[k] for d in draws]) for k in (0, 1))
    for found, exact in ((means, mean), (covs, inner / (90 - 2 - 1))):
        error = found.std(0) / np.sqrt(len(draws))
        assert np.all(np.abs(found.mean(0) - exact) < 4.5 * error)
    np.testing.assert_allclose(
        np.cov(means.T) * total[0, 0], inner / (90 - 3), rtol=0.15, atol=0.02
    )


def test_cross_products_have_their_conditional_law():
    """False-alarm rate below 1e-4: six means at 4.8 standard errors."""
    S, rows, _ = problem(0)
    coef, sigma2, rng = np.array([0.1, 0.3, -0.5]), 0.7, np.random.default_rng(6)
    draws = np.array([draw_cross_products(rng, S, sigma2, coef, rows) for _ in range(4000)])
    for j in range(HOLDERS):
        precision = np.linalg.inv(sigma2 * S[j]) + np.diag(1 / rows.z_var[j])
        cov = np.linalg.inv(precision)
        mean = cov @ (coef / sigma2 + rows.z_hat[j] / rows.z_var[j])
        error = np.sqrt(np.diag(cov) / len(draws))
        assert np.all(np.abs(draws[:, j].mean(0) - mean) < 4.8 * error)
        np.testing.assert_allclose(np.cov(draws[:, j].T), cov, rtol=0.2, atol=0.1)


def test_a_gradient_that_is_not_a_number_is_refused(monkeypatch):
    """With a finite density, at the end of a trajectory."""
    gradients = iter([np.zeros((2, 1, 1)), np.full((2, 1, 1), np.nan)])
    monkeypatch.setattr(gram_moves, "gram_log_density", lambda *_: (0.0, next(gradients)))
    q, W = np.zeros((2, 1, 1)), np.eye(2)[None, None]
    rows = SimpleNamespace(first=0)
    move = gram_moves.hamiltonian_move.py_func
    _, accept = move(np.random.default_rng(1), q, np.eye(1), W, 0.1, 1, None, rows)
    assert accept == 0
