"""Simulation-based calibration of NormalX's iteration."""

import numpy as np
import pytest

from pymc_dp.analyst.regression.normal_x.gram_tuning import GramTuning
from pymc_dp.analyst.regression.normal_x.iteration import Priors, Releases, State, iterate
from tests.checks import rank_uniformity

TUNE, DRAWS, THIN = 200, 40, 6


def simulate(rng, holders, p, laplace, first=0):
    """Parameters from the prior, records, and releases with their noise."""
    d = p - first
    n = np.array([40.0 + 15 * j for j in range(holders)])
    factor = np.linalg.cholesky(np.eye(d) * 2 + 0.5)
    nu = d + 4.0
    A = np.tril(rng.standard_normal((d, d)), -1) + np.diag(
        np.sqrt(rng.chisquare(nu - np.arange(d)))
    )
    root = factor @ np.linalg.inv(A).T
    cov, scale = root @ root.T, factor @ factor.T
    mean = root @ rng.standard_normal(d) / np.sqrt(3) if first else np.zeros(d)
    coef, sigma2 = rng.standard_normal(p), 1 / rng.gamma(4, 1 / 2)
    S, z = np.empty((holders, p, p)), np.empty((holders, p))
    for j in range(holders):
        X = rng.standard_normal((int(n[j]), d)) @ root.T + mean
        X = np.hstack([np.ones((len(X), first)), X])
        y = X @ coef + np.sqrt(sigma2) * rng.standard_normal(len(X))
        S[j], z[j] = X.T @ X, X.T @ y
    noise = 8.0 + 4 * np.arange(holders)
    flags = np.zeros(S.shape, bool), np.zeros(z.shape, bool)
    if laplace:
        flags = ~flags[0], ~flags[1]
    kind = rng.laplace if laplace else rng.normal
    added = kind(0, 1, S.shape) * noise[:, None, None]
    added = np.triu(added) + np.swapaxes(np.triu(added, 1), 1, 2)
    S_noise = np.broadcast_to(noise[:, None, None], S.shape).copy()
    if first:
        S_noise[:, 0, 0], flags[0][:, 0, 0] = 0.0, False
    z_hat = z + kind(0, 1, z.shape) * noise[:, None]
    z_noise = np.broadcast_to(noise[:, None], z.shape).copy()
    releases = Releases(n, first, S + added, S_noise, flags[0], z_hat, z_noise, flags[1])
    matrix = np.zeros((p, p))
    matrix[first:, first:] = scale
    if first:
        matrix[0, 0] = 3.0
    priors = Priors(np.eye(p), np.zeros(p), 4.0, 2.0, matrix, nu)
    return releases, priors, (coef, sigma2, cov, S)


def summary(coef, sigma2, cov, S):
    return [coef[0], coef[-1], sigma2, np.log(cov[0, 0]), S[-1, -1, -1], np.linalg.slogdet(S[0])[1]]


def ranks(seed, holders, p, laplace, first=0):
    rng = np.random.default_rng(seed)
    releases, priors, truth = simulate(rng, holders, p, laplace, first)
    tuning = GramTuning.start(releases, priors, TUNE)
    d = p - first
    state = State(
        tuning.first_matrices(rng, releases),
        releases.z_hat.copy(),
        np.zeros(p),
        1.0,
        np.zeros(d),
        np.eye(d),
    )
    true = np.array(summary(*truth))
    below = np.zeros(true.size, int)
    for t in range(TUNE + DRAWS * THIN):
        if t == TUNE:
            tuning.freeze()
        state, accept = iterate(rng, state, releases, priors, tuning.proposal(rng))
        if tuning.active:
            tuning.learn(state, accept, True, 0.8, releases, priors)
        elif (t - TUNE) % THIN == THIN - 1:
            below += np.array(summary(state.coef, state.sigma2, state.cov, state.S)) < true
    return below


@pytest.mark.calibrate
@pytest.mark.parametrize(
    ("holders", "p", "laplace", "first"),
    [
        (1, 2, False, 0),
        (5, 2, False, 0),
        (1, 5, False, 0),
        (5, 5, False, 0),
        (2, 2, True, 0),
        (2, 3, False, 1),
    ],
    ids=["J1-d2", "J5-d2", "J1-d5", "J5-d5", "laplace", "intercept"],
)
def test_ranks_are_uniform(holders, p, laplace, first):
    """120 problems; a correct sampler fails one of the six ranks with probability below 1e-4."""
    found = np.array([ranks(seed, holders, p, laplace, first=first) for seed in range(120)])
    for column in found.T:
        report = rank_uniformity(column, DRAWS, 1.6e-5)
        assert report.passed, report


@pytest.mark.wide
def test_ranks_are_uniform_quickly():
    """40 small problems with two holders; false-alarm rate below 1e-4 over all ranks."""
    found = np.array([ranks(seed, 2, 2, seed % 2 == 0, first=seed % 4 // 2) for seed in range(40)])
    for column in found.T:
        report = rank_uniformity(column, DRAWS, 1.6e-5)
        assert report.passed, report
