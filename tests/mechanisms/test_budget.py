"""Releases that are charged to a budget: before the noise is drawn, for what they cost, or not."""

import numpy as np
import pytensor.tensor as pt
import pytest
from scipy import stats

import pymc_dp as pmdp
from pymc_dp.accounting import (
    composed_epsilon,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    pure_queries,
)
from pymc_dp.accounting.composition import GaussianQueries

LAPLACE = pmdp.Laplace(epsilon=0.5, sensitivity=2)
VOTES = {"epsilon": 0.5, "sensitivity": 1, "candidates": range(3)}


def votes(x, candidate):
    return pt.eq(x, candidate).sum()


@pytest.fixture
def budget():
    return pmdp.PrivacyBudget(epsilon=2, delta=1e-6)


@pytest.mark.parametrize("epsilon", [0.0, 1e-7, 1e-4, 0.1, 1.0, 5.0, 36.0, 60.0])
def test_pure_guarantees_lie_above_the_gaussian_that_counts_them(epsilon):
    # trade-off curves, on either side of the point where they touch
    m = 1 / pure_queries(epsilon).noise_multiplier
    alpha = np.unique(np.concatenate([np.geomspace(1e-40, 0.5, 3000), np.linspace(0.5, 1, 3000)]))
    gaussian = stats.norm.sf(m - stats.norm.isf(alpha))
    pure = np.maximum(1 - np.exp(epsilon) * alpha, np.exp(-epsilon) * (1 - alpha))
    assert np.all(gaussian <= pure + 1e-15)
    touches = 1 / (1 + np.exp(epsilon))
    assert stats.norm.sf(m * (1 - 1e-6) - stats.norm.isf(touches)) >= touches - 1e-9


@pytest.mark.parametrize(
    "noise",
    [
        LAPLACE,
        LAPLACE.clamped(0).rounded(5),
        pmdp.DiscreteLaplace(epsilon=0.5, sensitivity=1),
        pmdp.ExponentialMechanism(votes, **VOTES),
        pmdp.RandomizedResponse(2, epsilon=0.5),
    ],
    ids=repr,
)
def test_a_pure_release_costs_its_epsilon(noise, budget, recwarn):
    noise.release(np.array(1), budget=budget)
    assert budget.spent == pytest.approx(0.5, rel=1e-12)
    assert budget.unspent == pytest.approx(gaussian_mu(1.5, 1e-6) / budget.mu, rel=1e-6)


@pytest.mark.parametrize(
    "noise",
    [
        pmdp.Gaussian(epsilon=1, delta=1e-6, sensitivity=3),
        pmdp.Gaussian(epsilon=1, delta=1e-6, sensitivity=3).rounded(),
        pmdp.Gaussian(epsilon=1, delta=1e-6, sensitivity=np.array([3.0])),
    ],
    ids=repr,
)
def test_a_gaussian_release_costs_its_mu(noise, budget, recwarn):
    noise.release(np.full(noise.noise.shape, 7.0), budget=budget)
    assert budget.spent == pytest.approx(1, rel=1e-6)


def test_noise_given_directly_needs_the_sensitivity(budget, recwarn):
    noise = pmdp.Gaussian(sigma=[30.0, 40.0])
    with pytest.raises(ValueError, match=r"release\(statistic, budget=..., sensitivity="):
        noise.release([1, 2], budget=budget)
    assert budget.spent == 0
    noise.release([1, 2], budget=budget, sensitivity=3)
    assert budget.claims()[0].noise_multiplier == pytest.approx(10)
    noise.release([1, 2], budget=budget, sensitivity=[3.0, 4.0])
    assert budget.claims()[1].mu == pytest.approx(2 * 0.1**2 / 2)
    with pytest.raises(ValueError, match="write budget="):
        noise.release([1, 2], sensitivity=3)


def test_what_does_not_fit_is_refused_before_noise_is_drawn(monkeypatch):
    budget = pmdp.PrivacyBudget(epsilon=1, delta=1e-6)
    monkeypatch.setattr(pmdp.Laplace, "noised", lambda self, value: value)
    for _ in range(2):
        LAPLACE.release(3.0, budget=budget)

    def drawn(self, value):
        raise AssertionError("noise was drawn")

    monkeypatch.setattr(pmdp.Laplace, "noised", drawn)
    with pytest.raises(pmdp.PrivacyError, match=r"Laplace\(scale=4.\)"):
        LAPLACE.release(3.0, budget=budget)
    assert budget.spent <= 1 + 1e-15
    assert budget.unspent < 1e-9  # delta alone is left


def test_pure_and_gaussian_claims_add_up_as_they_may():
    # a few large epsilons are added, many small ones compose as Gaussian noise does
    few = [pure_queries(0.5), GaussianQueries(10.0, 1)]
    assert composed_epsilon(few, 1e-6) == pytest.approx(
        0.5 + composed_epsilon(few[1:], 1e-6), rel=1e-12
    )
    many = [pure_queries(0.01)] * 10_000
    found = composed_epsilon(many, 1e-6)
    assert found < 10
    assert gaussian_delta(found, sum(one.mu for one in many)) <= 1e-6


@pytest.mark.parametrize(("epsilon", "delta"), [(4, 1e-6), (1, 1e-3)])
def test_what_a_gaussian_look_told_does_not_choose_how_the_next_is_counted(epsilon, delta):
    # a look at a tenth of the budget; then, as it suits its loss, Gaussian noise or a pure epsilon
    budget = pmdp.PrivacyBudget(epsilon, delta)
    first, rest = budget.gaussian_queries(1, 0.1), budget.gaussian_queries(1, 0.9)
    sd = np.sqrt(2 * first.mu)
    loss, step = np.linspace(first.mu - 9 * sd, first.mu + 9 * sd, 200_001, retstep=True)
    mass = step * stats.norm.pdf(loss, first.mu, sd)
    excess, shift = epsilon - loss, np.sqrt(2 * rest.mu)
    gaussian = stats.norm.sf(excess / shift - shift / 2)
    gaussian -= np.exp(excess) * stats.norm.sf(excess / shift + shift / 2)
    pure = (1 - 1e-9) * (epsilon - gaussian_epsilon(delta, first.mu))
    truth = 1 / (1 + np.exp(-pure))
    flipped = np.maximum(truth - np.exp(excess) * (1 - truth), -np.expm1(excess))
    flipped = np.maximum(flipped, 0)
    assert mass @ gaussian <= delta
    assert mass @ flipped <= delta
    assert mass @ np.maximum(gaussian, flipped) > 1.5 * delta
    budget.claim(first, "a look")
    with pytest.raises(pmdp.PrivacyError, match="release with it first"):
        budget.claim(pure_queries(pure), "a pure epsilon")
    budget.claim(rest, "another look")


def test_the_first_claim_decides_how_pure_ones_are_counted():
    large, small, noise = pure_queries(0.5), pure_queries(0.01), GaussianQueries(10.0, 1)
    budget = pmdp.PrivacyBudget(2, 1e-6)
    budget.claim([large, small, noise, small], "added up before the noise")
    left = gaussian_mu(2 - 0.51, 1e-6) - noise.mu - small.mu
    assert budget.unspent == pytest.approx(left / budget.mu, rel=1e-9)
    assert budget.spent == pytest.approx(0.51 + gaussian_epsilon(1e-6, noise.mu + small.mu))
    budget = pmdp.PrivacyBudget(2, 1e-6)
    budget.claim([small] * 500, "as Gaussian noise")
    assert budget.unspent == pytest.approx(1 - 500 * small.mu / budget.mu, rel=1e-9)
    assert budget.spent == pytest.approx(gaussian_epsilon(1e-6, 500 * small.mu))
    with pytest.raises(pmdp.PrivacyError):
        budget.claim(large, "a large one")
    budget = pmdp.PrivacyBudget(2, 1e-6)
    budget.claim([small, large, large, large], "all of them pure")
    assert budget.spent == pytest.approx(1.51)
    assert budget.unspent == 0
    with pytest.raises(pmdp.PrivacyError):
        budget.claim(noise, "Gaussian noise after them")


def test_many_small_releases_against_their_exact_composition():
    # randomised response is the worst pure mechanism: its privacy loss is a binomial walk
    epsilon, k = 0.05, 400
    p = np.exp(epsilon) / (1 + np.exp(epsilon))
    steps = np.arange(k + 1)
    loss, mass = epsilon * (2 * steps - k), stats.binom.pmf(steps, k, p)
    for delta in (1e-3, 1e-6):
        claimed = composed_epsilon([pure_queries(epsilon)] * k, delta)
        exact = mass @ np.maximum(-np.expm1(np.minimum(claimed - loss, 0)), 0)
        assert 0 < exact <= delta


def test_discrete_gaussian_is_charged_a_little_more_than_its_rho(budget):
    pmdp.DiscreteGaussian(sigma=20).release(3, budget=budget, sensitivity=1)
    assert budget.claims()[0].mu == pytest.approx(1 / (2 * (400 - 4)))
    with pytest.raises(pmdp.PrivacyError, match=r"Gaussian\(...\).rounded\(\)"):
        pmdp.DiscreteGaussian(sigma=2).release(3, budget=budget, sensitivity=1)


def test_what_cannot_be_charged_is_refused(budget):
    with pytest.raises(pmdp.PrivacyError, match=r"Exact\(\)"):
        pmdp.Exact().release(3, budget=budget)
    with pytest.raises(pmdp.PrivacyError, match="no pure epsilon"):
        pmdp.RandomizedResponse(2, keep=1).release([0, 1], budget=budget)
    with pytest.raises(NotImplementedError):
        pmdp.CustomMechanism(lambda r, s: -abs(r - s)).release(3, budget=budget)
    removed = pmdp.PrivacyBudget(epsilon=2, delta=1e-6, neighbours="add_remove")
    with pytest.raises(pmdp.PrivacyError, match="number of records"):
        pmdp.RandomizedResponse(2, keep=0.6).release([0, 1], budget=removed)
    assert budget.spent == removed.spent == 0


def test_negative_guarantees_are_none(budget):
    with pytest.raises(ValueError, match="epsilon must be a finite number >= 0"):
        GaussianQueries(1.0, 1, epsilon=-1.0)


def test_bad_input_costs_nothing(budget):
    with pytest.raises(ValueError, match="NaN"):
        LAPLACE.release(np.nan, budget=budget)
    with pytest.raises(ValueError, match="whole numbers"):
        pmdp.DiscreteLaplace(epsilon=0.5, sensitivity=1).release(0.5, budget=budget)
    assert budget.claims() == []


def test_ledgers_keep_pure_claims(tmp_path, recwarn):
    path = tmp_path / "study.ledger"
    first = pmdp.PrivacyBudget(epsilon=2, delta=1e-6, ledger=path)
    LAPLACE.release(3.0, budget=first)
    again = pmdp.PrivacyBudget(epsilon=2, delta=1e-6, ledger=path)
    again.claim(again.gaussian_queries(1, 0.1), "a run")
    epsilons = [one.epsilon for one in pmdp.PrivacyBudget(2, 1e-6, ledger=path).claims()]
    assert epsilons == [pytest.approx(0.5), None]


@pytest.mark.parametrize("shape", [(2,), (1,), (3, 1)])
def test_every_number_is_paid_for(budget, shape):
    with pytest.raises(ValueError, match="without being paid for"):
        pmdp.Gaussian(sigma=20).release(np.zeros(3), budget=budget, sensitivity=np.ones(shape))
    assert budget.claims() == []


def test_a_record_has_one_report(budget):
    answers = np.zeros((10, 3), dtype=int)
    with pytest.raises(ValueError, match="several reports"):
        pmdp.RandomizedResponse(2, epsilon=0.5).release(answers, budget=budget)
    assert budget.claims() == []
    assert pmdp.RandomizedResponse(2, epsilon=0.5).release(answers).shape == (10, 3)
