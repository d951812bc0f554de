"""Exponential, K-norm gradient and custom mechanisms: densities, draws, bad input."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import special, stats

import pymc_dp as pmdp
from pymc_dp.analyst.records import record_blocks, record_variables
from pymc_dp.graph.additivity import NotAdditiveError
from pymc_dp.graph.intervals import ONCE
from tests.mechanisms.chi_square import assert_follows, evaluate

X = np.array([0.0, 0.3, 1.0, 2.5, 2.6, 4.0, 7.0])
GRID = np.linspace(0, 8, 17)


def close(x, candidate):
    return -pt.abs(x - candidate).sum()


def left_minus_right(x, candidate):
    return pt.sign(candidate - x).sum()


def test_exponential_mechanism():
    mechanism = pmdp.ExponentialMechanism(close, 0.8, 4, candidates=GRID)
    utility = -np.abs(X[:, None] - GRID).sum(axis=0)
    expected = special.log_softmax(0.8 * utility / (2 * 4))
    found = [evaluate(mechanism.logp(r, X)) for r in GRID[[0, 5, 16]]]
    np.testing.assert_allclose(found, expected[[0, 5, 16]])
    assert np.isneginf(evaluate(mechanism.logp(0.1, X)))
    with pytest.warns(pmdp.PrivacyWarning):
        draws = [mechanism.release(X) for _ in range(400)]
    assert_follows(draws, GRID, expected)


def test_private_median():
    mechanism = pmdp.KNormGradient(left_minus_right, 1.5, 2, candidates=GRID)
    ranks = np.abs(np.sign(GRID - X[:, None]).sum(axis=0))
    expected = special.log_softmax(-1.5 * ranks / (2 * 2))
    np.testing.assert_allclose([evaluate(mechanism.logp(r, X)) for r in GRID[:3]], expected[:3])


@pytest.mark.parametrize(("order", "norm"), [(1, 1), (2, 2), (np.inf, np.inf)])
def test_vector_gradient(order, norm):
    candidates = np.array([[0.0, 0.0], [1.0, -1.0], [2.0, 3.0]])
    x = np.array([[0.5, 1.0], [1.5, -2.0]])
    mechanism = pmdp.KNormGradient(
        lambda x, r: (r - x).sum(axis=0), 1.0, 1.0, candidates=candidates, order=order
    )
    gradients = [np.linalg.norm((r - x).sum(axis=0), norm) for r in candidates]
    expected = special.log_softmax(-0.5 * np.array(gradients))
    found = [evaluate(mechanism.logp(r, x)) for r in candidates]
    np.testing.assert_allclose(found, expected)


def test_symbolic_draws():
    winner = pmdp.ExponentialMechanism(
        lambda x, r: pt.eq(x, r).sum(), epsilon=2, sensitivity=1, candidates=range(3)
    )
    with pm.Model() as model:
        x = pm.Bernoulli("x", [1.0, 1.0, 0.0])
        pmdp.Privatized("r", x, winner)
    expected = special.log_softmax([1.0, 2.0, 0.0])
    assert_follows(pm.draw(model["r"], 2000, random_seed=5, mode=ONCE), np.arange(3), expected)


def test_guarantee():
    mechanism = pmdp.ExponentialMechanism(close, 0.8, 4, candidates=GRID)
    assert mechanism.guarantee().epsilon == 0.8
    assert mechanism.guarantee(2).epsilon == 0.4
    assert mechanism.guarantee().rho == pytest.approx(0.08)


def test_continuous_choice():
    mechanism = pmdp.ExponentialMechanism(
        lambda total, r: -pt.abs(total - r), 1, 3, log_normaliser=lambda total: np.log(2 * 6.0)
    )
    assert evaluate(mechanism.logp(1.5, 4.0)) == pytest.approx(stats.laplace(4, 6).logpdf(1.5))


def test_custom_density_is_summed():
    mechanism = pmdp.CustomMechanism(logp=lambda r, s: -((r - s) ** 2))
    assert evaluate(mechanism.logp(np.array([1.0, 2.0]), np.array([0.0, 4.0]))) == -5


def test_what_cannot_be_drawn():
    with pm.Model() as model:
        x = pm.Bernoulli("x", 0.5, shape=4)
        pmdp.Privatized("r", x.sum(), pmdp.CustomMechanism(logp=lambda r, s: -((r - s) ** 2)))
    with pytest.raises(AssertionError, match="give observed="):
        pm.draw(model["r"], mode=ONCE)
    with pytest.raises(NotImplementedError):
        pmdp.CustomMechanism(logp=lambda r, s: r).release(1)


def test_statistic_must_be_a_sum():
    with pm.Model():
        x = pm.Normal("x", 0, 1, shape=5)
        pmdp.Privatized(
            "r", x, pmdp.CustomMechanism(logp=lambda r, s: -((r - s) ** 2)), observed=X[:5]
        )
        with pytest.raises(ValueError, match="'r' keeps the records apart"):
            pmdp.RecordGibbs([x])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pmdp.ExponentialMechanism(close, 1, 1), "needs its normaliser"),
        (lambda: pmdp.ExponentialMechanism(close, 0, 1, candidates=GRID), "epsilon must be"),
        (lambda: pmdp.ExponentialMechanism(close, 1, 0, candidates=GRID), "sensitivity must be"),
        (lambda: pmdp.ExponentialMechanism(close, 1, 1, candidates=[1.0]), "two or more"),
        (lambda: pmdp.ExponentialMechanism(close, 1, 1, candidates=[1.0, 1.0]), "twice"),
        (lambda: pmdp.KNormGradient(close, 1, 1, candidates=GRID, order=3), "order"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_release_that_is_no_candidate():
    with pm.Model():
        x = pm.Normal("x", 0, 1, shape=5)
        mechanism = pmdp.ExponentialMechanism(close, 1, 1, candidates=GRID)
        with pytest.raises(ValueError, match="none of the candidates"):
            pmdp.Privatized("r", x, mechanism, observed=0.1)
    with pytest.raises(TypeError, match="function"):
        pmdp.CustomMechanism(logp=3)


def test_the_quantile_utility_is_told_how_to_be_written():
    candidates = np.linspace(-3, 3, 13)

    def near_the_middle(x, candidate):
        return -pt.abs((x < candidate).sum() - 10)

    median = pmdp.ExponentialMechanism(
        near_the_middle, epsilon=1, sensitivity=1, candidates=candidates
    )
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1, shape=20)
        pmdp.Privatized("q", x, median, observed=0.5)
    with pytest.raises(NotAdditiveError, match="counts of records below each candidate"):
        record_blocks(model, record_variables(model))


def test_the_quantile_utility_from_counts():
    candidates, n = np.linspace(-3, 3, 13), 20

    def near_the_middle(below, candidate):
        return -pt.abs((below * pt.eq(candidates, candidate)).sum() - n / 2)

    median = pmdp.ExponentialMechanism(
        near_the_middle, epsilon=1.5, sensitivity=1, candidates=candidates
    )
    below = np.array([0, 0, 1, 2, 4, 6, 9, 13, 16, 18, 19, 20, 20])
    found = [evaluate(median.logp(c, below)) for c in candidates]
    score = 0.75 * -np.abs(below - 10)
    np.testing.assert_allclose(found, score - np.log(np.exp(score).sum()))


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: pmdp.CustomMechanism(lambda r, s: -(s**2)), "released"),
        (lambda: pmdp.CustomMechanism(lambda r, s: -(r**2)), "statistic"),
        (
            lambda: pmdp.ExponentialMechanism(
                lambda s, c: s.sum(), epsilon=1, sensitivity=1, candidates=[0, 1]
            ),
            "candidate",
        ),
    ],
)
def test_functions_must_use_their_arguments(make, argument):
    with pm.Model():
        x = pm.Bernoulli("x", 0.5, shape=20)
        with pytest.raises(ValueError, match=f"does not use its argument '{argument}'"):
            pmdp.Privatized("q", x.sum(), make(), observed=1)


def test_what_is_no_number_does_not_choose():
    def near(x, candidate):
        return -pt.abs(pt.log(x) - candidate).sum()

    choice = pmdp.ExponentialMechanism(near, epsilon=1, sensitivity=1, candidates=[0.0, 1.0])
    budget = pmdp.PrivacyBudget(epsilon=4, delta=1e-6)
    for record in (np.nan, np.inf):
        with pytest.raises(ValueError, match="NaN or infinite"):
            choice.release(np.array([1.0, record]), budget=budget)
    assert budget.claims() == []
    for record in (0.0, -1.0):  # minus infinity, and no number
        with (
            pytest.warns(pmdp.PrivacyWarning, match="floating-point"),
            pytest.raises(pmdp.PrivacyError, match="utility of some candidate"),
        ):
            choice.release(np.array([1.0, record]), budget=budget)
    assert len(budget.claims()) == 2
