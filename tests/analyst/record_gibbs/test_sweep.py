"""The sweep on a state space small enough to write down."""

import itertools

import numpy as np
import pytest
from scipy import stats

import pymc_dp as pmdp
from pymc_dp.analyst.record_gibbs.sweep import make_sweep

DENSITIES = (pmdp.Laplace.log_density, pmdp.Gaussian.log_density)


def run(contributions, proposed, log_uniform, released, noise, kind, weights=None, offset=0.0):
    """Call the kernel as a step does; gives new contributions, acceptance and the lowest ratio."""
    contributions = np.array(contributions, dtype=float)
    current, new = (np.zeros(0), np.zeros(0)) if weights is None else map(np.array, weights)
    statistic = contributions.sum(axis=0) + offset
    accepted, lowest = make_sweep(DENSITIES)(
        contributions,
        np.array(proposed, dtype=float),
        current,
        new,
        np.array(log_uniform, dtype=float),
        statistic,
        np.array(released, dtype=float),
        np.array(noise, dtype=float),
        np.array(kind),
    )
    np.testing.assert_allclose(statistic, contributions.sum(axis=0) + offset)
    return contributions, accepted, lowest


def test_acceptance_by_hand():
    # one record, two components with different noise: the ratio of equation (5)
    released, noise = np.array([1.0, 2.0]), np.array([0.5, 3.0])
    old, new = np.array([0.2, 1.0]), np.array([0.9, -1.0])

    def log_density(t):
        return stats.laplace.logpdf(released[0], t[0], 0.5) + stats.norm.logpdf(
            released[1], t[1], 3
        )

    ratio = log_density(new) - log_density(old)
    for log_uniform, expected in ((ratio - 1e-9, True), (ratio + 1e-9, False)):
        after, accepted, lowest = run([old], [new], [log_uniform], released, noise, [0, 1])
        assert accepted.tolist() == [expected]
        np.testing.assert_allclose(after[0], new if expected else old)
        assert lowest == pytest.approx(min(ratio, 0))


def test_records_see_the_moves_before_them():
    # the first move takes the total to the release, so that the same move of the second is refused
    after, accepted, _ = run([[0], [0]], [[1], [1]], [-0.5, -0.5], [1.0], [0.1], [0])
    assert accepted.tolist() == [True, False]
    assert after.ravel().tolist() == [1, 0]


def test_other_terms_weigh_in():
    for weight, expected in ((-1.0, False), (0.0, True)):
        _, accepted, _ = run([[0]], [[0]], [-0.5], [0], [1], [0], weights=([0.0], [weight]))
        assert accepted.tolist() == [expected]
    # from an impossible start any proposal is taken; to an impossible one none
    _, accepted, _ = run([[0]], [[9]], [0.0], [0], [1], [0], weights=([-np.inf], [-np.inf]))
    assert accepted.tolist() == [True]
    _, accepted, _ = run([[9]], [[0]], [-99.0], [0], [1], [0], weights=([0.0], [-np.inf]))
    assert accepted.tolist() == [False]


@pytest.mark.parametrize("kind", [0, 1])
def test_sweep_keeps_the_exact_distribution(kind):
    """Invariance of pi(x) = prod f(x_i) eta(s | sum x) under one sweep, computed exactly.

    Three records with values 0, 1, 2: for every state, proposal and pattern of accepting the
    kernel is called with thresholds that force each branch, and the transition matrix is built from
    its answers. No randomness.
    """
    f, released, noise = np.array([0.5, 0.3, 0.2]), [3.3], [0.8]
    states = list(itertools.product(range(3), repeat=3))
    density = stats.laplace if kind == 0 else stats.norm
    pi = np.array([f[list(s)].prod() * density.pdf(released[0], sum(s), noise[0]) for s in states])
    pi /= pi.sum()
    transition = np.zeros((len(states), len(states)))
    for a, state in enumerate(states):
        for proposal in states:
            paths = [(1.0, list(state))]
            for i in range(3):
                extended = []
                for weight, at in paths:
                    column = [[v] for v in at]
                    # only record i is offered something new
                    offer = [[v] for v in (*at[:i], proposal[i], *at[i + 1 :])]
                    _, _, lowest = run(column, offer, [0.0] * 3, released, noise, [kind])
                    accept = np.exp(lowest)
                    extended.append((weight * accept, [*at[:i], proposal[i], *at[i + 1 :]]))
                    extended.append((weight * (1 - accept), at))
                paths = extended
            for weight, at in paths:
                transition[a, states.index(tuple(at))] += f[list(proposal)].prod() * weight
    np.testing.assert_allclose(transition.sum(axis=1), 1)
    np.testing.assert_allclose(pi @ transition, pi, atol=1e-12)
