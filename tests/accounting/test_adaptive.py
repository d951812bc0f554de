"""Kinds of looks that answers choose: what is refused, and what a filter at one order pays for."""

import math
import sqlite3
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import brentq
from scipy.special import ndtr

import pymc_dp as pmdp
from pymc_dp.accounting import (
    GaussianQueries,
    batch_noise_multiplier,
    composed_epsilon,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    ledger,
    pure_queries,
    rdp_epsilon,
)
from pymc_dp.accounting.budget import spent_together
from pymc_dp.accounting.composition import counted_in_turn, renyi_divergence
from pymc_dp.accounting.renyi import ORDERS, filter_order

BATCHES = [("fixed", "substitute"), ("poisson", "substitute"), ("poisson", "add_remove")]
LOOK, PURE, SMALL = GaussianQueries(30.0, 1), pure_queries(0.5), pure_queries(1e-3)
BATCH = GaussianQueries(3.0, 10, 0.01)


def adaptive(epsilon=4.0, delta=1e-6, **kwargs):
    return pmdp.PrivacyBudget(epsilon, delta, accountant="rdp", **kwargs)


# --- the attack: a look at all records, and then what suits its answer ----------------------------


def hockey_stick(epsilon, shift):
    """Of a normal law against one that is not shifted, at any epsilon."""
    return ndtr(shift / 2 - epsilon / shift) - np.exp(epsilon) * ndtr(-shift / 2 - epsilon / shift)


def batch_hockey_stick(epsilon, shift, fraction):
    """Of a look at a Poisson batch with a record against one without it."""
    ratio = 1 + np.expm1(epsilon) / fraction
    inside = fraction * hockey_stick(np.log(np.where(ratio > 0, ratio, 1)), shift)
    return np.where(ratio > 0, inside, -np.expm1(epsilon))


def attack(epsilon, first, more, batch):
    """Deltas of a look and then more of it, or a batch, or what suits the first answer's loss."""
    sd = math.sqrt(2 * first.mu)
    loss, step = np.linspace(first.mu - 12 * sd, first.mu + 12 * sd, 100_001, retstep=True)
    mass = step * stats.norm.pdf(loss, first.mu, sd)
    all_records = hockey_stick(epsilon - loss, math.sqrt(2 * more.mu))
    batches = batch_hockey_stick(epsilon - loss, 1 / batch.noise_multiplier, batch.fraction)
    return mass @ all_records, mass @ batches, mass @ np.maximum(all_records, batches)


@pytest.mark.parametrize(("epsilon", "delta"), [(4, 1e-6), (1, 1e-3)])
def test_what_a_look_told_does_not_choose_between_more_of_it_and_batches(epsilon, delta):
    budget = pmdp.PrivacyBudget(epsilon, delta, neighbours="add_remove")
    first, more = (budget.gaussian_queries(1, 0.5) for _ in range(2))
    batch = GaussianQueries(1.0, 1, 0.01, sampling="poisson")

    def batch_noise(log_noise):
        return replace(batch, noise_multiplier=math.exp(log_noise))

    log_noise = brentq(
        lambda at: attack(epsilon, first, more, batch_noise(at))[1] - 0.998 * delta, -2, 1
    )
    batch = batch_noise(log_noise)
    # either end alone is within the guarantee, by privacy loss distributions too
    for end in (more, batch):
        assert composed_epsilon([first, end], delta, "pld", "add_remove") <= epsilon
    *ends, chosen = attack(epsilon, first, more, batch)
    assert max(ends) <= delta
    assert chosen > 1.6 * delta
    budget.claim(first, "a look")
    with pytest.raises(pmdp.PrivacyError, match='accountant="rdp"'):
        budget.claim(batch, "batches")
    budget.claim(more, "more of it")

    # the filter: everything that is left, either way
    budget = adaptive(epsilon, delta, neighbours="add_remove")
    first, more = (budget.gaussian_queries(1, 0.5) for _ in range(2))
    batch = budget.gaussian_queries(1, 0.5, 0.01, "poisson")
    assert attack(epsilon, first, more, batch)[2] <= delta
    budget.claim(first, "a look")
    with pytest.raises(pmdp.PrivacyError, match="does not cover"):
        budget.claim(replace(batch, noise_multiplier=0.999 * batch.noise_multiplier), "too much")
    budget.claim(batch, "batches")
    with pytest.raises(pmdp.PrivacyError, match="does not cover"):
        budget.claim(more, "more of it")


# --- privacy loss distributions: settled kinds alone ----------------------------------------------

OTHERS = {
    "all records": LOOK,
    "other noise": replace(BATCH, noise_multiplier=4.0),
    "other batches": replace(BATCH, fraction=0.02),
    "other sampling": replace(BATCH, sampling="poisson"),
    "a pure epsilon": PURE,
    "several kinds": [BATCH, LOOK],
}


@pytest.mark.parametrize("other", OTHERS)
def test_kinds_that_were_not_settled_are_refused_beside_batches(other):
    budget = pmdp.PrivacyBudget(4, 1e-6)
    budget.claim(BATCH, "batches")
    with pytest.raises(pmdp.PrivacyError, match=r"Write PrivacyBudget\(..., accountant="):
        budget.claim(OTHERS[other], "others")
    budget.claim(BATCH, "more of them")
    assert budget.claims() == [BATCH, BATCH]
    both = adaptive()
    both.claim(BATCH, "batches")
    both.claim(OTHERS[other], "others")


@pytest.mark.parametrize("before", [LOOK, SMALL, [PURE, LOOK]], ids=["look", "small", "pure, look"])
def test_batches_are_refused_after_other_looks(before):
    budget = pmdp.PrivacyBudget(4, 1e-6)
    budget.claim(before, "a look, or a pure epsilon that counts as one")
    for claim in (BATCH, [BATCH], [BATCH, LOOK]):
        with pytest.raises(pmdp.PrivacyError, match="a budget of their own"):
            budget.claim(claim, "batches")


@pytest.mark.parametrize("before", [[], [PURE], [PURE, PURE]])
def test_one_claim_may_settle_several_kinds(before):
    budget = pmdp.PrivacyBudget(4, 1e-6)
    for pure in before:
        budget.claim(pure, "pure epsilons")
    budget.claim([BATCH, LOOK, replace(BATCH, fraction=0.02)], "all kinds")
    for claim in (BATCH, LOOK, [BATCH, LOOK, replace(BATCH, fraction=0.02)]):
        with pytest.raises(pmdp.PrivacyError, match="first claim lists"):
            budget.claim(claim, "one of them")


def test_batches_of_one_kind_follow_pure_epsilons_and_take_what_these_left():
    budget = pmdp.PrivacyBudget(2, 1e-6)
    budget.claim(PURE, "a table")
    budget.claim(PURE, "another one")
    part = budget.unspent / 3
    for _ in range(3):
        budget.claim(budget.gaussian_queries(500, part, 0.01, "poisson"), "a chain")
    assert 1.95 < budget.spent <= 2
    with pytest.raises(pmdp.PrivacyError, match="does not cover"):
        budget.claim(budget.gaussian_queries(500, part, 0.01, "poisson"), "a chain")


# --- ledgers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ours", "theirs"), [("pld", "rdp"), ("rdp", "pld")])
def test_a_ledger_has_one_accountant(tmp_path, ours, theirs):
    path = tmp_path / "study.ledger"
    pmdp.PrivacyBudget(4, 1e-6, path, accountant=ours)
    with pytest.raises(pmdp.PrivacyError, match=f"accountant='{ours}': write those, or name ano"):
        pmdp.PrivacyBudget(4, 1e-6, path, accountant=theirs)
    assert pmdp.PrivacyBudget(4, 1e-6, path, accountant=ours).spent == 0


def ledger_of_an_earlier_version(path, claims):
    budget = adaptive(ledger=path)
    for claim in claims:
        budget.claim(claim, "kinds")
    with sqlite3.connect(path) as db:
        db.execute("ALTER TABLE guarantee DROP COLUMN accountant")
    ledger._seen.clear()


def test_a_ledger_from_before_accountants_were_kept_goes_on_strictly(tmp_path):
    path = tmp_path / "old.ledger"
    ledger_of_an_earlier_version(path, [BATCH, BATCH])
    with pytest.raises(pmdp.PrivacyError, match="accountant='pld'"):
        adaptive(ledger=path)
    budget = pmdp.PrivacyBudget(4, 1e-6, path)
    assert budget.claims() == [BATCH, BATCH]
    assert 0 < budget.spent < 4
    with pytest.raises(pmdp.PrivacyError, match="first claim lists"):
        budget.claim(LOOK, "more")


def test_a_ledger_from_before_mixing_was_refused_tells_no_epsilon(tmp_path):
    """Who chose between these claims learned more than their sum says."""
    path = tmp_path / "old.ledger"
    ledger_of_an_earlier_version(path, [LOOK, BATCH])
    for _ in range(2):
        with pytest.raises(pmdp.PrivacyError, match="let looks at random batches mix"):
            pmdp.PrivacyBudget(4, 1e-6, path)


def test_accountants_have_names():
    with pytest.raises(ValueError, match="accountant must be one of"):
        pmdp.PrivacyBudget(4, 1e-6, accountant="renyi")


# --- the filter -----------------------------------------------------------------------------------


def test_the_order_follows_from_the_guarantee_and_pays_for_most_looks_at_all_records():
    for epsilon in (0.5, 1, 4, 8, 20):
        order, divergence = filter_order(epsilon, 1e-6)
        assert rdp_epsilon([order], [divergence], 1e-6) == pytest.approx(epsilon, rel=1e-8)
        budget = adaptive(epsilon)
        mu = budget.mu
        assert mu == divergence / order
        assert all(rdp_epsilon([a], [a * mu], 1e-6) >= epsilon * (1 - 1e-8) for a in ORDERS)
        assert 0.86 < mu / gaussian_mu(epsilon, 1e-6) < 0.9  # as documented
        budget.claim(GaussianQueries(math.sqrt(1 / (2 * mu)), 1), "all of it")
        assert budget.spent == pytest.approx(epsilon, rel=1e-9)
    with pytest.raises(ValueError, match="larger epsilon"):
        adaptive(1e-3)


def test_another_order_is_not_taken_because_it_suits_what_was_claimed():
    # either of these fits at the order that suits it, and not at the filter's own
    cheap = batch_noise_multiplier(1.0, 1e-6, 2000, 0.01, "pld")
    batches = GaussianQueries(cheap, 2000, 0.01)
    while composed_epsilon([batches], 1e-6, "rdp") > 1:
        batches = replace(batches, noise_multiplier=1.01 * batches.noise_multiplier)
    looks = GaussianQueries(math.sqrt(1 / (2 * gaussian_mu(1, 1e-6))) * 1.01, 1)
    assert composed_epsilon([looks], 1e-6) <= 1
    for claim in (batches, looks):
        budget = adaptive(1.0)
        with pytest.raises(pmdp.PrivacyError, match="does not cover"):
            budget.claim(claim, "at another order")


@pytest.mark.parametrize(("sampling", "neighbours"), BATCHES)
@pytest.mark.parametrize("epsilon", [1.0, 8.0])
@pytest.mark.parametrize("before", [[], [PURE]])
def test_shares_spend_all_and_not_more(sampling, neighbours, epsilon, before):
    budget = adaptive(epsilon, neighbours=neighbours)
    budget.claim(before, "pure epsilons")
    left, rng = budget.unspent, np.random.default_rng(1)
    assert left < 1 if before else left == 1
    parts = rng.dirichlet(np.ones(9))
    for i, part in enumerate(parts / parts.sum() * left):
        fraction = [1.0, 0.01, 0.1][i % 3]
        queries = budget.gaussian_queries(100 + i, min(part, 1.0), fraction, sampling)
        unspent = budget.unspent
        budget.claim(queries, "a share")
        assert budget.unspent == pytest.approx(unspent - part, abs=1e-9)
    assert budget.unspent < 1e-9  # what a step takes for nothing
    assert epsilon * (1 - 1e-8) < budget.spent <= epsilon
    assert budget.remaining[0] < 1e-3
    with pytest.raises(pmdp.PrivacyError, match="does not cover"):
        budget.claim(GaussianQueries(1e3, 1), "one more")


def test_a_pilot_and_then_chains_on_batches_fit_by_shares():
    budget = adaptive(8.0)
    parts = 1.5 ** np.arange(10)
    pilot = [budget.gaussian_queries(1, float(0.1 * part / parts.sum())) for part in parts]
    budget.claim(pilot, "pilot")
    assert budget.unspent == pytest.approx(0.9)
    # what is left pays for so many looks at all records, by the exact count of a plan
    assert gaussian_mu(*budget.remaining) == pytest.approx(0.9 * budget.mu)
    chains, share = 4, budget.unspent
    for _ in range(chains):
        budget.claim(budget.gaussian_queries(1000, share / chains, 0.01, "poisson"), "a chain")
    assert budget.spent == pytest.approx(8, rel=1e-8)
    assert budget.spent <= 8


@pytest.mark.parametrize(("sampling", "neighbours"), BATCHES)
def test_noise_for_batches_is_that_of_a_whole_budget(sampling, neighbours):
    noise = batch_noise_multiplier(4.0, 1e-6, 2000, 0.01, "rdp", sampling, neighbours)
    budget = adaptive(neighbours=neighbours)
    queries = budget.gaussian_queries(2000, 1.0, 0.01, sampling)
    assert noise == pytest.approx(queries.noise_multiplier, rel=1e-9)
    assert composed_epsilon([queries], 1e-6, "pld", neighbours) < 4
    budget.claim(replace(queries, noise_multiplier=noise), "all of it")


CLAIMS = st.lists(
    st.sampled_from(
        [
            GaussianQueries(8.0, 1),
            pure_queries(0.3),
            pure_queries(0.02),
            GaussianQueries(1.5, 50, 0.02),
            GaussianQueries(1.0, 40, 0.02, sampling="poisson"),
            GaussianQueries(6.0, 30, 0.5),
        ]
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=25, deadline=None)
@given(CLAIMS, st.sampled_from([1.0, 3.0]))
def test_what_is_spent_is_the_guarantee_of_a_filter_that_covers_it(claims, epsilon):
    budget = adaptive(epsilon, 1e-5)
    spent = 0.0
    for claim in claims:
        try:
            budget.claim(claim, "one")
        except pmdp.PrivacyError:
            assert budget.spent == spent
        else:
            assert spent <= budget.spent <= epsilon
            spent = budget.spent
    claimed = budget.claims()
    if all(one.epsilon is not None for one in claimed):
        return  # whose sum may be less
    # epsilons that are added up; the rest has a filter of its own
    pure, rest = counted_in_turn(claimed, epsilon, 1e-5)
    left = spent - sum(one.epsilon for one in pure)
    for at, covered in ((left * (1 + 1e-9) + 1e-12, True), (left * (1 - 1e-6), False)):
        order, divergence = filter_order(at, 1e-5)
        assert (renyi_divergence(rest, order, "substitute") <= divergence) == covered


def test_looks_that_tell_next_to_nothing_are_not_free():
    for fraction in np.geomspace(1e-9, 1e-7, 9):
        for order in (2, 7, 30):
            look = GaussianQueries(1.0, 2**40, float(fraction), sampling="poisson")
            least = 2**40 * order / 2 * fraction**2 * math.expm1(1.0)
            assert renyi_divergence([look], order, "add_remove") > least
    with pytest.raises(ValueError, match="too small for floats"):
        adaptive().gaussian_queries(2**52, 1.0, 1e-12, "poisson")


# --- several budgets ------------------------------------------------------------------------------


def test_budgets_compose_as_one_where_no_kinds_were_chosen_and_add_up_elsewhere():
    def claimed(*claims, **kwargs):
        budget = pmdp.PrivacyBudget(4, 1e-6, **kwargs)
        for claim in claims:
            budget.claim(claim, "spent")
        return budget

    look, batch, idle = claimed(LOOK), claimed(BATCH), claimed()
    assert spent_together([look, claimed(LOOK)]) == (gaussian_epsilon(1e-6, 2 * LOOK.mu), 1e-6)
    assert spent_together([batch, claimed(BATCH), idle]) == (claimed(BATCH, BATCH).spent, 1e-6)
    assert spent_together([look, batch, idle]) == (look.spent + batch.spent, 2e-6)
    mixed, table = claimed([BATCH, LOOK]), claimed(PURE)
    assert spent_together([mixed]) == (mixed.spent, 1e-6)
    assert spent_together([look, table]) == (look.spent + table.spent, 2e-6)
    filtered = claimed(LOOK, accountant="rdp")
    assert spent_together([filtered]) == (filtered.spent, 1e-6)
    assert spent_together([filtered, look, idle]) == (filtered.spent + look.spent, 2e-6)
    assert gaussian_delta(filtered.spent, LOOK.mu) <= 1e-6
