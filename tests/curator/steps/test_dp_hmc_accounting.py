"""What a run of DPHMC costs: Theorem 3.5, exactly the budget, and no look more than claimed."""

import numpy as np
import pymc as pm
import pytest

import pymc_dp as pmdp
from pymc_dp.accounting import gaussian_epsilon

Y = np.random.default_rng(0).normal(size=40)
QUIET = {"cores": 1, "progressbar": False, "quiet": True}
SETTINGS = {"clip_logp": 3.0, "clip_grad": 2.0, "step_size": 0.05, "n_leapfrog": 3}


def made(**kwargs):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        pm.Normal("y", mu, 1, observed=Y)
        step = pmdp.DPHMC(**SETTINGS | {"epsilon": 2.0, "delta": 1e-6, "chains": 2} | kwargs)
    return model, step


@pytest.mark.wide_except("0.2", "0.9")
@pytest.mark.parametrize("grad_share", [0.2, 0.5, 0.9])
def test_theorem_3_5(grad_share):
    model, step = made(grad_share=grad_share)
    with model:
        tree = pmdp.sample(15, tune=5, step=step, **QUIET)
    spent = pmdp.privacy_spent(step)
    told = spent.details
    k, gradients = 2 * 20, 2 * 20 * 4
    assert (told["iterations"], told["gradients"], told["chains"]) == (k, gradients, 2)
    ratios = k / (2 * told["noise_multiplier"] ** 2)
    mu = ratios + gradients / (2 * told["grad_noise_multiplier"] ** 2)
    assert told["mu"] == pytest.approx(mu, rel=1e-12)
    assert ratios / mu == pytest.approx(1 - grad_share)
    assert spent.epsilon == pytest.approx(gaussian_epsilon(1e-6, mu), rel=1e-9)
    assert 2.0 - 1e-6 < spent.epsilon <= 2.0
    assert tree.attrs["privacy_clip_grad"] == 2.0
    assert tree.attrs["privacy_grad_noise_multiplier"] == told["grad_noise_multiplier"]
    # the noise that was added is the noise that was paid for: 2 tau b
    sd = np.unique(tree.sample_stats["grad_noise_sd"])
    np.testing.assert_allclose(sd, 2 * told["grad_noise_multiplier"] * 2.0)


def test_the_published_runs_cost_what_their_paper_says():
    # Räisä et al. (2021), Gaussian model, epsilon = 8: 761 iterations of 12 steps, tau .1 and .25
    # times sqrt(1e5)
    _, step = made(
        epsilon=None,
        delta=None,
        chains=1,
        simulation=True,
        noise_multiplier=0.1 * 1e5**0.5,
        grad_noise_multiplier=0.25 * 1e5**0.5,
        n_leapfrog=12,
    )
    step.setup_chain(np.random.default_rng(0), 0, 761)
    mu = pmdp.privacy_spent(step).details["mu"]
    assert gaussian_epsilon(1e-6, mu) == pytest.approx(8, abs=0.01)


def test_added_and_removed_records_weigh_half():
    model, step = made(neighbours="add_remove")
    with model:
        tree = pmdp.sample(10, step=step, **QUIET)
    told = pmdp.privacy_spent(step).details
    sd = np.unique(tree.sample_stats["grad_noise_sd"])
    np.testing.assert_allclose(sd, told["grad_noise_multiplier"] * 2.0)


def test_more_looks_than_claimed_are_refused():
    model, step = made(chains=1)
    step.setup_chain(np.random.default_rng(0), 0, 2)
    point = model.initial_point()
    for _ in range(2):
        point, _ = step.step(point)
    with pytest.raises(pmdp.PrivacyError, match="No budget was claimed"):
        step.step(point)
    with pytest.raises(pmdp.PrivacyError, match="No budget was claimed"):
        step._noisy_gradient(np.zeros(1))


def test_chains_are_counted_and_claims_are_whole():
    model, step = made()
    with model:
        pmdp.sample(5, chains=1, step=step, **QUIET)
        with pytest.raises(pmdp.PrivacyError, match="2 chains asked for, 1 left"):
            pmdp.sample(5, chains=2, step=step, **QUIET)
        pmdp.sample(5, chains=1, step=step, **QUIET)
    assert pmdp.privacy_spent(step).details["chains"] == 2
    budget = step.allowance.budget
    before = budget.claims()
    part = budget.gaussian_queries(10, 1e-9)
    with pytest.raises(pmdp.PrivacyError):
        budget.claim([part, budget.gaussian_queries(10, 0.5)], "half of it fits")
    assert budget.claims() == before


def test_statistics_are_public_or_noised():
    model, step = made()
    with model:
        tree = pmdp.sample(5, step=step, **QUIET)
    assert set(tree.sample_stats.data_vars) == {
        "accepted",
        "diverging",
        "step_size",
        "noisy_log_ratio",
        "noise_sd",
        "grad_noise_sd",
    }
    assert "observed_data" not in tree.children


def test_several_steps_share_the_variables():
    with pm.Model() as model:
        a, b = pm.Normal("a"), pm.Normal("b")
        pm.Normal("y", a + 2 * b, 1, observed=Y)
        budget = pmdp.PrivacyBudget(1.0, 1e-6)
        half = {"budget": budget, "share": 0.5, "chains": 2}
        steps = [
            pmdp.DPHMC([a], **SETTINGS, **half),
            pmdp.DPPenalty([b], clip_logp=3.0, step_size=0.05, **half),
        ]
        tree = pmdp.sample(5, step=steps, chains=2, **QUIET)
    assert budget.spent == pytest.approx(1.0)
    assert set(tree.posterior.data_vars) == {"a", "b"}
    assert model.named_vars
