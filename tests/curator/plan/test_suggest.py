"""Suggested settings behave as forecast; the clip fraction is paid for."""

import sys

import arviz as az
import numpy as np
import pymc as pm
import pytest

import pymc_dp as pmdp
from pymc_dp.curator.plan.suggest_hmc import _Trial
from pymc_dp.curator.plan.synthetic import SyntheticPosterior, synthetic_models
from pymc_dp.curator.steps.hmc_settings import HMCSettings


def logistic(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    y = rng.random(n) < 1 / (1 + np.exp(-X @ [1.0, -1.0]))
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        pm.Bernoulli("y", logit_p=X @ beta, observed=y.astype(int))
    return model


def test_forecast_from_synthetic_data_comes_true():
    found = pmdp.suggest(4.0, 1e-6, n=4000, dim=2, chains=1, synthetic=logistic(400, seed=5))
    model = logistic(4000, seed=0)
    with model:
        step = pmdp.DPPenalty(
            epsilon=4.0,
            delta=1e-6,
            chains=1,
            simulation=True,
            clip_logp=found.clip_logp,
            step_size=found.step_size,
        )
        tree = pmdp.sample(
            found.draws,
            step=step,
            cores=1,
            random_seed=1,
            initvals={"beta": np.array([1.0, -1.0])},
            progressbar=False,
            quiet=True,
        )
    stats = tree.sample_stats
    assert 0.5 < float(stats["noise_sd"].mean()) / found.noise_sd < 1.5
    # forecast .23; a wide band, as the forecast is for a round posterior
    assert 0.12 < float(stats["accepted"].mean()) < 0.45


def test_effective_draws_are_those_forecast():
    found = pmdp.suggest(4.0, 1e-6, n=50_000, dim=1, chains=4)
    with pm.Model():
        mu = pm.Normal("mu", 0, 1)
        pm.Normal("y", mu, 1, observed=np.random.default_rng(0).normal(size=50_000))
        step = pmdp.DPPenalty(
            epsilon=4.0,
            delta=1e-6,
            simulation=True,
            clip_logp=found.clip_logp,
            step_size=found.step_size,
        )
        tree = pmdp.sample(
            found.draws, step=step, cores=1, random_seed=1, progressbar=False, quiet=True
        )
    # some two hundred, estimated to within a fifth or so
    assert 0.6 < float(az.ess(tree)["mu"]) / found.effective_draws < 1.6


@pytest.mark.parametrize("n", [20_000, 1_000_000])
def test_the_clip_hardly_moves_a_logistic_posterior(n):
    """Scores of a million other records tell by how much; at the 99% point it is 1 and 8."""
    found = pmdp.suggest(4.0, 1e-6, n=n, dim=2, synthetic=logistic(20_000, seed=5))
    rng = np.random.default_rng(8)
    along = rng.normal(size=1_000_000)  # the covariate in the coefficients' direction
    p = 1 / (1 + np.exp(-np.sqrt(2) * along))
    scores = ((rng.random(p.size) < p) - p) * along
    shifts = [
        np.sqrt(n) * np.mean(np.clip(scores, -bound, bound) - scores) / scores.std()
        for bound in (found.clip_logp, np.quantile(np.abs(scores), 0.99))
    ]
    assert abs(shifts[0]) < 0.5
    assert abs(shifts[1]) > 1
    assert found.clip_logp < 0.9 * np.abs(scores).max()


def test_more_budget_and_more_records_give_more_draws():
    few = pmdp.suggest(1.0, 1e-6, n=1000, dim=3)
    assert pmdp.suggest(4.0, 1e-6, n=1000, dim=3).draws > few.draws
    assert pmdp.suggest(1.0, 1e-6, n=10_000, dim=3).effective_draws > 5 * few.effective_draws
    assert pmdp.suggest(1.0, 1e-6, n=1000, dim=3, prior_sd=10).step_size > few.step_size


def test_clip_fraction_is_near_the_truth_and_costs_its_share():
    budget = pmdp.PrivacyBudget(8.0, 1e-6)
    y = np.concatenate([np.zeros(6000), np.full(2000, 50.0)])
    with pm.Model():
        mu = pm.Normal("mu", 0, 1)
        pm.Normal("y", mu, 1, observed=y)
        step = pmdp.DPPenalty(budget=budget, share=0.5, clip_logp=5, step_size=0.01)
    found = pmdp.clip_fraction(step, budget, share=0.25, random_seed=1)
    # six standard deviations of the noise: false alarm below 1e-8
    assert found.fraction == pytest.approx(0.25, abs=6 * found.sd)
    assert found.sd < 0.01
    assert budget.unspent == pytest.approx(0.75)
    with pytest.raises(pmdp.PrivacyError):
        pmdp.clip_fraction(step, budget, share=0.9)


def test_clip_fraction_under_add_remove_is_refused():
    with pytest.raises(ValueError, match="substitute"):
        pmdp.clip_fraction(None, pmdp.PrivacyBudget(1.0, 1e-6, neighbours="add_remove"))
    budget = pmdp.PrivacyBudget(1.0, 1e-6)
    with logistic(40, seed=0):
        step = pmdp.DPPenalty(
            epsilon=1, delta=1e-6, clip_logp=3, step_size=0.1, neighbours="add_remove"
        )
    with pytest.raises(ValueError, match="substitute"):
        pmdp.clip_fraction(step, budget)
    assert budget.claims() == []


@pytest.mark.wide
def test_hmc_settings_from_synthetic_data_do_what_is_forecast():
    synthetic = [logistic(500, seed=5), logistic(500, seed=6)]
    found = pmdp.suggest_hmc(8.0, 1e-6, n=40_000, synthetic=synthetic)
    model = logistic(40_000, seed=0)
    with model:
        step = pmdp.DPHMC(epsilon=8.0, delta=1e-6, simulation=True, **found.settings)
    accepted = []
    for chain in range(4):
        step.setup_chain(np.random.default_rng(chain), 0, found.draws)
        point = {"beta": np.array([1.0, -1.0])}
        for _ in range(40):
            point, (stats,) = step.step(point)
            accepted.append(stats["accepted"])
    # a wide band: few iterations, and the synthetic posterior is another one
    assert 0.5 < np.mean(accepted) / found.acceptance < 1.6
    assert found.effective_draws > 15  # 18 to 25, by how the synthetic posterior was explored
    assert found.draws > 40


def test_a_trial_that_leaves_the_numbers_is_rejected():
    """Far out no record has a finite log-likelihood whose change could measure a move."""
    [model] = synthetic_models(None, 1, 1.0)
    rng = np.random.default_rng(1)
    with np.errstate(all="ignore"):
        target = SyntheticPosterior(model, 200, None, rng)
        trial = _Trial([target], model, 1.0, "substitute")
        chance, moved = trial._iterate(target, np.array([1e160]), 1, 1e-3, 1.0, 1.0, rng)
    assert chance == 0
    assert not moved.any()


@pytest.fixture(scope="module")
def in_context():
    """A model, and settings that were asked for in its context; each is judged by few trials."""
    with pm.Model() as model, pytest.MonkeyPatch.context() as patch:
        pm.Normal("mu", 0, 1)
        patch.setattr(sys.modules[_Trial.__module__], "_TRIALS", 8)
        return model, pmdp.suggest_hmc(4.0, 1e-6, n=100_000, dim=1).settings


def test_settings_for_the_model_in_context_leave_it_alone(in_context):
    assert [rv.name for rv in in_context[0].basic_RVs] == ["mu"]


def test_suggestions_are_settings_that_a_step_takes(in_context):
    settings = in_context[1]
    assert isinstance(settings, HMCSettings)
    with pm.Model():
        pm.Normal("y", pm.Normal("m", 0, 1), 1, observed=np.linspace(-1, 1, 20))
        step = pmdp.DPHMC(epsilon=1, delta=1e-6, **settings)
    assert step.n_leapfrog == settings.n_leapfrog


def test_hmc_settings_need_synthetic_data_or_a_dimension():
    with pytest.raises(ValueError, match=r"synthetic=.*dim="):
        pmdp.suggest_hmc(1.0, 1e-6, n=1000)
    with pytest.raises(ValueError, match="thousands"):
        pmdp.suggest_hmc(1.0, 1e-6, n=1000, synthetic=logistic(50, seed=1))


def test_clip_fraction_of_hmc():
    budget = pmdp.PrivacyBudget(8.0, 1e-6)
    with pm.Model():
        mu = pm.Normal("mu", 0, 1)
        pm.Normal("y", mu, 1, observed=np.concatenate([np.zeros(6000), np.full(2000, 50.0)]))
        settings = {"clip_logp": 0.5, "clip_grad": 1, "step_size": 0.1, "n_leapfrog": 2}
        step = pmdp.DPHMC(budget=budget, share=0.5, inverse_mass=0.01, **settings)
    found = pmdp.clip_fraction(step, budget, share=0.25, random_seed=1)
    assert found.fraction == pytest.approx(0.25, abs=6 * found.sd)


class TestFewDraws:
    """Said before anything is spent, by public numbers alone."""

    def test_by_a_forecast(self, caplog):
        with caplog.at_level("WARNING", logger="pymc_dp"):
            pmdp.suggest(1.0, 1e-6, n=2000, dim=2)
        assert "score_release" in caplog.text
        caplog.clear()
        with caplog.at_level("WARNING", logger="pymc_dp"):
            pmdp.suggest(4.0, 1e-6, n=1_000_000, dim=2)
        assert not caplog.text

    def test_by_the_number_of_iterations(self, caplog):
        with pm.Model():
            pm.Normal("y", pm.Normal("mu", 0, 1), 1, observed=np.zeros(20))
            step = pmdp.DPPenalty(epsilon=1, delta=1e-6, chains=2, clip_logp=3, step_size=0.5)
        with caplog.at_level("WARNING", logger="pymc_dp"):
            step.setup_chain(np.random.default_rng(1), 10, 30)
        assert "DPPenalty: this budget buys about 80" in caplog.text
