"""One iteration of NormalX, without PyMC, against quadrature."""

import numpy as np
import pytest
from scipy import stats

from pymc_dp.analyst.regression.normal_x.gram_tuning import GramTuning
from pymc_dp.analyst.regression.normal_x.iteration import (
    Priors,
    Releases,
    State,
    iterate,
    slice_error_variance,
)
from tests.checks import assert_same_distribution
from tests.oracles import gram

RATE = 1e-5
#: records, releases and noise; few records for Wishart proposals, whose powers show there
PROBLEM = {True: (60.0, 40.0, 30.0, 9.0), False: (5.0, 10.0, 8.0, 4.0)}


def problem(laplace, hamiltonian, rng, tune):
    n, S_0, z_0, noise = PROBLEM[hamiltonian]
    S_hat, z_hat = np.full((1, 1, 1), S_0), np.full((1, 1), z_0)
    releases = Releases(
        np.array([n]),
        0,
        S_hat,
        np.full((1, 1, 1), noise),
        np.full((1, 1, 1), laplace),
        z_hat,
        np.full((1, 1), noise),
        np.full((1, 1), laplace),
    )
    priors = Priors(np.eye(1) / 1.5**2, np.zeros(1), 3.0, 1.0, np.eye(1) * 2, 4.0)
    tuning = GramTuning.start(releases, priors, tune)
    S = tuning.first_matrices(rng, releases)
    return releases, priors, tuning, State(S, z_hat, np.zeros(1), 1.0, np.zeros(1), np.eye(1))


def chain(seed, laplace, hamiltonian, tune, draws):
    rng = np.random.default_rng(seed)
    releases, priors, tuning, state = problem(laplace, hamiltonian, rng, tune)
    out = np.empty((draws, 4))
    for t in range(tune + draws):
        if t == tune:
            tuning.freeze()
        proposal = tuning.proposal(rng, hamiltonian)
        state, accept = iterate(rng, state, releases, priors, proposal)
        if tuning.active:
            target = 0.8 if hamiltonian else 0.3
            tuning.learn(state, accept, hamiltonian, target, releases, priors)
        else:
            values = state.S[0, 0, 0], state.coef[0], state.sigma2, state.cov[0, 0]
            out[t - tune] = values
    return out


@pytest.mark.parametrize("laplace", [False, True])
@pytest.mark.parametrize("hamiltonian", [True, False])
def test_iteration_is_exact(laplace, hamiltonian):
    draws = 4000 if hamiltonian else 12000
    found = np.array([chain(seed, laplace, hamiltonian, 300, draws) for seed in (1, 2)])
    n, *release = PROBLEM[hamiltonian]
    exact = gram.one_feature(n, 4, 2, 1.5, 3, 1, *release, laplace)
    for k, key in enumerate(("S", "theta", "sigma2")):
        assert_same_distribution(found[..., k], gram.cdf(*exact[key]), RATE)
    # given S the rows' variance is inverse gamma: (psi + S) / v is chi-square with nu + n degrees
    ratio = (2 + found[..., 0]) / found[..., 3]
    assert_same_distribution(ratio, stats.chi2(n + 4).cdf, RATE)


def test_a_singular_law_is_left_again():
    """The Gram matrices stay for one iteration, and tuning does not learn from it."""
    rng = np.random.default_rng(1)
    releases, priors, tuning, state = problem(False, True, rng, 100)
    for cov, moves in ((0.0, False), (1.0, True)):
        before = state._replace(cov=np.full((1, 1), cov))
        state, accept = iterate(rng, before, releases, priors, tuning.proposal(rng))
        assert (accept[0] > 0) == moves
        assert np.array_equal(state.S, before.S) != moves
        assert state.cov[0, 0] > 0
    tuning.learn(before._replace(cov=np.zeros((1, 1))), accept, True, 0.8, releases, priors)
    tuning._learn_scales(releases, priors)
    assert np.all(np.isfinite(tuning.W))


class TestSliceOfTheErrorVariance:
    """Updates by plain arrays: one direction, S = `value` and a squared residual there."""

    @pytest.mark.parametrize("square", [1e25, np.nan])
    def test_stays_where_the_bracket_collapses(self, square):
        """The density is flat to rounding, or not a number: only the start is on the slice."""
        rng = np.random.default_rng(1)
        for _ in range(20):
            new = slice_error_variance(rng, 1.3, np.zeros((1, 1)), np.array([[square]]), 3.0, 1.0)
            assert new == 1.3

    def test_slices_longer_than_all_steps(self):
        """A vague prior alone: 1 / sigma^2 is gamma, and its log has a spread of 50."""
        shape, none = 0.02, np.zeros((1, 1))
        rng = np.random.default_rng(2)
        found = np.empty((4, 15000))
        for chain in found:
            sigma2 = 1.0
            for t in range(-200, chain.size):
                sigma2 = slice_error_variance(rng, sigma2, none, none, shape, 1.0)
                if t >= 0:
                    chain[t] = -np.log(sigma2)
        assert_same_distribution(found, lambda x: stats.gamma(shape).cdf(np.exp(x)), RATE)
