"""Kernels of NormalX against finite differences, SciPy and algebra."""

import numpy as np
import pytest
from scipy import stats

from pymc_dp.kernels.gram import Rows, coordinates, gram_log_density, matrices
from pymc_dp.kernels.gram_moves import whitened, whitening
from pymc_dp.kernels.normal_x import draw_cross_products, draw_rows_law

HOLDERS, P = 2, 3


def problem(first, integrated):
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
    matrix = np.eye(P) + 0.2
    rows = Rows(n, first, noisy, weight, z_hat, z_var, integrated, matrix, 6.0)
    B = np.linalg.cholesky(S.sum(0) / n.sum())
    return S, rows, B


def direct(S, rows, B, sigma2, coef, prior, shift):
    """The same log-density of the coordinates, written down anew."""
    p, n = S.shape[1], rows.n
    total = 0.0
    for j, matrix in enumerate(S):
        total += (n[j] - p - 1) / 2 * np.linalg.slogdet(matrix)[1]
        gap = np.triu(rows.S_weight[j] * (rows.S_hat[j] - matrix) ** 2)
        total -= gap.sum() / 2
    if rows.integrated:
        inner = rows.matrix + S.sum(0)
        total -= (rows.nu + n.sum()) / 2 * np.linalg.slogdet(inner)[1]
    else:
        total -= np.trace(rows.matrix @ S.sum(0)) / 2
    cov = np.zeros((2 * p, 2 * p))
    for j in range(HOLDERS):
        block = slice(j * p, (j + 1) * p)
        cov[block, block] = sigma2 * S[j] + np.diag(rows.z_var[j])
    tall = np.vstack(S)
    mean = tall @ coef
    if prior.size:
        mean = tall @ np.linalg.solve(prior, shift)
        cov = cov + tall @ np.linalg.inv(prior) @ tall.T
    total += stats.multivariate_normal(mean, cov).logpdf(rows.z_hat.ravel())
    q = coordinates(S, n, np.linalg.inv(B))
    powers = p - np.arange(p) + 1  # |dS/dq|: 2^p prod K_ii^(p - i) times K_ii, i from 0
    return total + sum(powers[rows.first :] @ np.diag(one)[rows.first :] for one in q)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("integrated", [False, True])
@pytest.mark.parametrize("with_prior", [False, True])
def test_log_density_and_gradient(first, integrated, with_prior):
    S, rows, B = problem(first, integrated)
    prior, shift = np.zeros((0, 0)), np.zeros(0)
    if with_prior:
        prior, shift = np.eye(P) * 0.5 + 0.1, np.array([0.2, -0.1, 0.4])
    coef = np.array([0.1, 0.3, -0.5])

    def at(q):
        return gram_log_density(q, B, 0.7, coef, prior, shift, rows)

    q = coordinates(S, rows.n, np.linalg.inv(B))
    np.testing.assert_allclose(matrices(q, rows.n, B), S, rtol=1e-10)
    other = q + 0.02 * np.tril(np.random.default_rng(1).standard_normal(q.shape))
    other[:, :first, :first] = q[:, :first, :first]
    change = at(other)[0] - at(q)[0]
    moved = matrices(other, rows.n, B)
    expected = [direct(m, rows, B, 0.7, coef, prior, shift) for m in (moved, S)]
    assert change == pytest.approx(expected[0] - expected[1], rel=1e-8)
    gradient = at(q)[1]
    for index in [(0, 1, 0), (1, 1, 1), (0, 2, 2), (1, 2, 0), (1, 2, 1)]:
        step = np.zeros_like(q)
        step[index] = 1e-5
        slope = (at(q + step)[0] - at(q - step)[0]) / 2e-5
        assert gradient[index] == pytest.approx(slope, rel=1e-5, abs=1e-4)


def test_whitening_has_the_curvature():
    _, rows, B = problem(0, True)
    W = whitening(B, rows)
    xi = np.tril(np.random.default_rng(0).standard_normal((HOLDERS, P, P)))
    q = np.einsum("ikjm,mik->jik", W, xi)
    np.testing.assert_allclose(whitened(W, q), xi, atol=1e-12)


def test_rows_law_is_normal_inverse_wishart():
    """False-alarm rate below 1e-4: eight averages at 4.5 standard errors."""
    S, _, _ = problem(1, True)
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
    S, rows, _ = problem(0, True)
    coef, sigma2, rng = np.array([0.1, 0.3, -0.5]), 0.7, np.random.default_rng(6)
    draws = np.array([draw_cross_products(rng, S, sigma2, coef, rows) for _ in range(4000)])
    for j in range(HOLDERS):
        precision = np.linalg.inv(sigma2 * S[j]) + np.diag(1 / rows.z_var[j])
        cov = np.linalg.inv(precision)
        mean = cov @ (coef / sigma2 + rows.z_hat[j] / rows.z_var[j])
        error = np.sqrt(np.diag(cov) / len(draws))
        assert np.all(np.abs(draws[:, j].mean(0) - mean) < 4.8 * error)
        np.testing.assert_allclose(np.cov(draws[:, j].T), cov, rtol=0.2, atol=0.1)
