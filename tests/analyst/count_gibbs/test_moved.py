"""Cells that are seen through sums, against all tables written out."""

import itertools

import numba
import numpy as np
import pymc as pm
import pytest
from scipy import sparse, stats
from scipy.special import gammaln, logsumexp

import pymc_dp as pmdp
from pymc_dp.analyst.count_gibbs.jumps import make_jump
from pymc_dp.analyst.count_gibbs.lattice import lattice_of
from pymc_dp.analyst.count_gibbs.sweep import SweepArrays, make_sweep
from tests.checks import assert_mean_and_sd, assert_same_distribution
from tests.sampling import draw, values


@numba.njit
def laplace(kind, released, statistic, noise):
    return -abs(released - statistic) / noise


def arrays_of(matrix, released, noise, totals, high):
    """What the sweep needs, for dense matrices of releases and of exact totals."""
    lattice = lattice_of(sparse.csr_array(totals), False, high == 0)
    columns, rows = sparse.csc_array(matrix), sparse.csr_array(matrix)
    size = matrix.shape[1]
    order = np.argsort(lattice.group, kind="stable")
    sizes = np.bincount(lattice.group)
    lengths = [len(groups) for groups, _ in lattice.moves]
    return SweepArrays(
        np.zeros(size), high, np.zeros(size),
        columns.indptr.astype(np.int64), columns.indices.astype(np.int64), columns.data,
        rows.indptr.astype(np.int64), rows.indices.astype(np.int64),
        released, noise, np.zeros(len(released)), np.zeros(len(released), dtype=np.int64),
        lattice.free, lattice.group, np.concatenate([[0], np.cumsum(sizes)]), order,
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        np.concatenate([np.zeros(0, dtype=np.int64), *(g for g, _ in lattice.moves)]),
        np.concatenate([np.zeros(0), *(u for _, u in lattice.moves)]),
        np.full(2 * size + len(lattice.moves), 0.7),
    )  # fmt: skip


@pytest.fixture(scope="module")
def sweep():
    return make_sweep(laplace, None, make_jump(laplace, None))


SWEEPS = {
    # name: releases, exact totals, most in a cell
    "free cells": (np.array([[1.0, 1, 0], [0, 1, 2]]), np.zeros((0, 3)), 6),
    "known sum": (np.array([[1.0, 0, 1, 0], [0, 1, 0, 0]]), np.ones((1, 4)), 5),
    "often empty": (np.array([[1.0, 1, 0], [0, 1, 2]]), np.zeros((0, 3)), 6),
    "often empty, known sum": (np.array([[1.0, 0, 1, 0], [0, 1, 0, 0]]), np.ones((1, 4)), 5),
    "two groups": (np.array([[1.0, 0, 1, 0]]), np.array([[1.0, 1, 0, 0], [0, 0, 1, 1]]), 4),
    "both margins": (
        np.eye(6)[[0, 4]],
        np.vstack([np.kron(np.eye(2), np.ones(3)), np.kron(np.ones(2), np.eye(3))]),
        4,
    ),
    "zeros on the diagonal": (
        np.eye(9)[[1]],
        np.vstack([np.kron(np.eye(3), np.ones(3)), np.kron(np.ones(3), np.eye(3))]),
        4 * (1 - np.eye(3).ravel()),
    ),
}


@pytest.mark.parametrize("name", SWEEPS)
def test_sweeps_keep_the_exact_distribution(sweep, name):
    """Tables drawn exactly follow the same law after a sweep; chi-square, false alarms 1e-5."""
    matrix, totals, most = SWEEPS[name]
    rng, size = np.random.default_rng(5), matrix.shape[1]
    laws = np.array(
        [rng.normal(size=size), np.full(size, -1.0), np.full(size, -1.0), np.zeros(size)]
    )
    if "empty" in name:
        laws[0], laws[3, :2] = 1.5, [3.0, -0.7]
    released, noise = rng.integers(0, 6, len(matrix)).astype(float), np.full(len(matrix), 1.5)
    high = np.broadcast_to(most, size).astype(float)
    tables = np.array(list(itertools.product(*(range(int(h) + 1) for h in high))), dtype=float)
    start = np.zeros(size)
    start[: min(size, 2)] = [2, 3][: min(size, 2)]
    if name == "two groups":
        start = np.array([2.0, 1, 1, 3])
    if name == "both margins":
        start = np.array([1.0, 2, 0, 0, 1, 2])
    if name == "zeros on the diagonal":
        start = np.array([0.0, 2, 2, 2, 0, 2, 2, 2, 0])
    tables = tables[np.all(tables @ totals.T == totals @ start, axis=1)]
    log_p = tables @ laws[0] - gammaln(tables + 1).sum(axis=1)
    log_p += (-np.abs(released - tables @ matrix.T) / noise).sum(axis=1)
    log_p += (tables == 0) @ laws[3]
    p = np.exp(log_p - logsumexp(log_p))
    arrays = arrays_of(matrix, released, noise, totals, high)
    number = 20_000
    first = rng.choice(len(p), size=number, p=p)
    index = {tuple(table): i for i, table in enumerate(tables)}
    after, moved = np.empty(number, dtype=int), 0
    for n, i in enumerate(first):
        counts = tables[i].copy()
        sweep(rng, arrays, laws, counts, matrix @ counts, 1, 0.0)
        after[n] = index[tuple(counts)]
        moved += after[n] != i
    assert moved > number / 4
    often = p * number > 5
    seen = np.bincount(after, minlength=len(p))
    counts, expected = np.append(seen[often], seen[~often].sum()), p * number
    expected = np.append(expected[often], expected[~often].sum())
    keep = expected > 1
    chi = ((counts - expected)[keep] ** 2 / expected[keep]).sum()
    assert stats.chi2.sf(chi, keep.sum() - 1) > 1e-5
    # chains from the corners reach everything that is not rare
    for corner in (0, len(tables) - 1):
        counts, visited = tables[corner].copy(), set()
        for _ in range(5000):
            sweep(rng, arrays, laws, counts, matrix @ counts, 1, 0.0)
            visited.add(index[tuple(counts)])
        assert visited >= set(np.flatnonzero(p > 0.01))


@pytest.mark.wide
def test_cells_that_are_empty_or_far_from_it():
    """Zero-inflated cells behind noisy cells and their noisy sum, by convolution on a grid."""
    y, total, rate = np.array([2.0, 14.0, 27.0, 16.0]), 60.0, 30
    with pm.Model() as model:
        psi = pm.Beta("psi", 2, 2)
        counts = pm.ZeroInflatedPoisson("counts", psi, rate, shape=4)
        pmdp.Privatized("cells", counts, pmdp.Laplace(scale=12), observed=y)
        pmdp.Privatized("total", counts.sum(), pmdp.Laplace(scale=40), observed=total)
    grid, k = (np.arange(400) + 0.5) / 400, np.arange(81)
    poisson = stats.poisson.pmf(k, rate)
    law = grid[:, None] * poisson + (1 - grid[:, None]) * (k == 0)
    cells = law[:, None] * np.exp(-np.abs(y[:, None] - k) / 12)
    spectrum = np.fft.rfft(cells, 512)
    noise = np.exp(-np.abs(total - np.arange(512)) / 40)
    weight = stats.beta.pdf(grid, 2, 2) * (np.fft.irfft(spectrum.prod(1), 512) @ noise)
    weight /= weight.sum()
    posterior = draw(model, draws=4000)
    mean = weight @ grid
    assert_mean_and_sd(values(posterior, "psi"), mean, (weight @ (grid - mean) ** 2) ** 0.5)
    for i in range(4):
        empty = cells.copy()
        empty[:, i, 1:] = 0.0
        joint = np.fft.irfft(np.fft.rfft(empty, 512).prod(1), 512) @ noise
        whole = np.fft.irfft(spectrum.prod(1), 512) @ noise
        share = weight @ (joint / whole)
        found = (values(posterior, "counts")[..., i] == 0).astype(float)
        assert_mean_and_sd(found, share, (share * (1 - share)) ** 0.5)


def dirichlet_tables(n, size, log_noise, prior):
    """All tables, and their weights with a Dirichlet prior integrated out."""
    tables = np.array([t for t in itertools.product(range(n + 1), repeat=size) if sum(t) == n])
    log_p = (gammaln(tables + prior) - gammaln(tables + 1)).sum(axis=1) + log_noise(tables)
    return tables, np.exp(log_p - logsumexp(log_p))


@pytest.mark.wide
def test_multinomial_with_sums():
    """Few counts: parameters and cells by enumeration."""
    n, prior, y, total = 12, np.array([1.0, 2.0, 0.5]), [4.3, -1.0, 6.2], 5
    with pm.Model() as model:
        p = pm.Dirichlet("p", prior)
        counts = pm.Multinomial("counts", n, p)
        pmdp.Privatized("cells", counts, pmdp.Laplace(scale=2), observed=y)
        pmdp.Privatized("sum", counts[:2].sum(), pmdp.DiscreteGaussian(sigma=2), observed=total)
    tables, weights = dirichlet_tables(
        n,
        3,
        lambda t: -np.abs(t - y).sum(axis=1) / 2 - (t[:, :2].sum(axis=1) - total) ** 2 / 8,
        prior,
    )
    posterior = draw(model)
    for i in range(3):
        a, b = tables[:, i] + prior[i], n - tables[:, i] + prior.sum() - prior[i]
        assert_same_distribution(
            values(posterior, "p")[..., i],
            lambda x, a=a, b=b: stats.beta.cdf(x[..., None], a, b) @ weights,
        )
        mean = weights @ tables[:, i]
        sd = (weights @ (tables[:, i] - mean) ** 2) ** 0.5
        assert_mean_and_sd(values(posterior, "counts")[..., i], mean, sd)


@pytest.mark.wide
def test_many_counts_and_gaussian_noise_are_generalised_least_squares():
    """Flat prior, counts of thousands: the posterior is normal, by the same linear algebra."""
    rng = np.random.default_rng(8)
    sigmas = (30.0, 20.0, 25.0)
    true = np.array([[4000, 9000, 2500], [7000, 3000, 6000]])
    maps = [np.eye(6), np.kron(np.eye(2), np.ones(3)), np.kron(np.ones(2), np.eye(3))]
    y = [m @ true.ravel() + rng.normal(0, s, len(m)) for m, s in zip(maps, sigmas, strict=True)]
    with pm.Model() as model:
        c = pm.DiscreteUniform("c", 0, 10**6, shape=(2, 3))
        for name, statistic, sigma, value in zip(
            "abd", (c.ravel(), c.sum(axis=1), c.sum(axis=0)), sigmas, y, strict=True
        ):
            pmdp.Privatized(name, statistic, pmdp.Gaussian(sigma=sigma), observed=value)
    precision = sum(m.T @ m / s**2 for m, s in zip(maps, sigmas, strict=True))
    cov = np.linalg.inv(precision)
    mean = cov @ sum(m.T @ v / s**2 for m, s, v in zip(maps, sigmas, y, strict=True))
    found = values(draw(model), "c").reshape(2, -1, 6)
    for i in range(6):
        assert_mean_and_sd(found[..., i], mean[i], np.sqrt(cov[i, i] + 1 / 12))


@pytest.mark.wide
def test_poisson_cells_with_an_exact_total():
    """A known total makes Poisson cells multinomial."""
    rate, y = np.array([2.0, 5.0, 3.0, 1.0]), np.array([4.0, 3.0, 3.5, -1.0])
    with pm.Model() as model:
        scale = pm.Gamma("scale", 3, 3)
        c = pm.Poisson("c", scale * rate)
        pmdp.Privatized("cells", c, pmdp.Laplace(scale=3), observed=y)
        pmdp.Privatized("total", c.sum(), pmdp.Exact(), observed=9)
    tables = np.array([t for t in itertools.product(range(10), repeat=4) if sum(t) == 9])
    log_p = tables @ np.log(rate) - gammaln(tables + 1).sum(axis=1)
    log_p -= np.abs(tables - y).sum(axis=1) / 3
    weights = np.exp(log_p - logsumexp(log_p))
    posterior = draw(model)
    assert np.all(values(posterior, "c").sum(axis=-1) == 9)
    for i in range(4):
        mean = weights @ tables[:, i]
        sd = (weights @ (tables[:, i] - mean) ** 2) ** 0.5
        assert_mean_and_sd(values(posterior, "c")[..., i], mean, sd)
    exact = stats.gamma(3 + 9, scale=1 / (3 + rate.sum()))
    assert_same_distribution(values(posterior, "scale"), exact.cdf)


@pytest.mark.wide
def test_both_margins_exact():
    """Overlapping invariants of a 2 x 3 table, noise on its cells; no parameters."""
    table = np.array([[3, 1, 4], [2, 6, 0]])
    y = table + np.array([[2.0, -1, 1], [0, -3, 2]])
    with pm.Model() as model:
        c = pm.Poisson("c", np.array([[2.0, 3, 4], [3, 4, 1]]), shape=(2, 3))
        pmdp.Privatized("rows", c.sum(axis=1), pmdp.Exact(), observed=table.sum(axis=1))
        pmdp.Privatized("columns", c.sum(axis=0), pmdp.Exact(), observed=table.sum(axis=0))
        pmdp.Privatized("cells", c, pmdp.Laplace(scale=2), observed=y)
    found = []
    for a, b in itertools.product(range(9), repeat=2):
        top = np.array([a, b, 8 - a - b])
        whole = np.array([top, table.sum(axis=0) - top])
        if np.all(whole >= 0):
            found.append(whole)
    tables = np.array(found)
    log_p = stats.poisson.logpmf(tables, [[2.0, 3, 4], [3, 4, 1]]).sum(axis=(1, 2))
    log_p -= np.abs(tables - y).sum(axis=(1, 2)) / 2
    weights = np.exp(log_p - logsumexp(log_p))
    draws = values(draw(model), "c")
    assert np.all(draws.sum(axis=-1) == table.sum(axis=1))
    for i, j in itertools.product(range(2), range(3)):
        mean = weights @ tables[:, i, j]
        sd = (weights @ (tables[:, i, j] - mean) ** 2) ** 0.5
        assert_mean_and_sd(draws[..., i, j], mean, sd)
