"""DPBarker keeps the posterior: Kolmogorov-Smirnov tests, as for DPPenalty; and what it refuses."""

import math

import numpy as np
import pymc as pm
import pytest

import pymc_dp as pmdp
from pymc_dp.accounting.levels import LEVELS
from pymc_dp.curator.penalty_kernels import two_point_total
from pymc_dp.curator.steps import dp_barker
from tests.curator.steps.test_dp_penalty_invariance import LEVEL, Problem

TEMPERED = ({"n": 400, "tempering": 0.1}, {"tempering": 0.1, "clip_logp": 7.0, "step_size": 0.03})
CASES = {
    "little noise": ({}, {"noise_multiplier": 0.01, "step_size": 0.3}, 60_000, 60),
    "all the noise it can use": ({}, {"noise_multiplier": 0.06, "step_size": 0.2}, 80_000, 80),
    "guided": ({}, {"noise_multiplier": 0.06, "step_size": 0.25, "proposal": "guided"}, 90_000, 90),
    "hyperparameter": (
        {"hyper": True},
        {"noise_multiplier": 0.04, "step_size": [0.25, 0.25, 2.0]},
        80_000,
        80,
    ),
    "poisson": (
        TEMPERED[0],
        TEMPERED[1] | {"noise_multiplier": 2.0, "batch_fraction": 0.5},
        60_000,
        300,
    ),
}


@pytest.mark.wide_except("all the noise it can use")
@pytest.mark.parametrize("case", CASES)
def test_the_posterior_is_kept(case):
    problem, kwargs, steps, thin = CASES[case]
    problem = Problem(**problem)
    draws = problem.draws(steps, thin, seed=1, cls=pmdp.DPBarker, **kwargs)
    assert problem.worst_p_value(draws) > LEVEL


TRIALS = 30_000
MOVES = {  # all records, or batches; all with a total noise close to what the test can use
    "all": {"noise_multiplier": 4.8},
    "poisson": {"noise_multiplier": 2.0, "batch_fraction": 0.2},
    "fixed": {"noise_multiplier": 2.0, "batch_size": 200},
}

PRIOR = {"all": 0.0, "poisson": 1.2, "fixed": 1.2}


def acceptance(case, accepts=None):
    """How often one and the same move is accepted, and how often it should be."""
    y = np.random.default_rng(3).normal(2.0, 1, size=1000)
    tempering = 1.0 if case == "all" else 0.2
    with pm.Model():
        mu = pm.Normal("mu", 0, 10)
        pm.Normal("y", mu, 1, observed=y)
        step = pmdp.DPBarker(
            simulation=True,
            chains=1,
            clip_logp=6.0,
            step_size=1e-3,
            tempering=tempering,
            **MOVES[case],
        )
    step.setup_chain(np.random.default_rng(0), 0, TRIALS)
    if accepts is not None:
        step._accepts = lambda noisy, prior: accepts(step, noisy, prior)
    before, after = np.array([1.9]), np.array([1.9 + (0.016 if case == "all" else 0.0095)])
    taken = 0
    for _ in range(TRIALS):
        noisy = step._look(before, after, step.move_length(before, after))
        taken += step._accepts(noisy, PRIOR[case])
    assert 0.6 < (tempering * noisy.sd) ** 2 < 1
    exact = PRIOR[case] + tempering * float(
        np.sum(step.likelihood(after) - step.likelihood(before))
    )
    return taken / TRIALS, 1 / (1 + math.exp(-exact))


@pytest.mark.parametrize("case", MOVES)
def test_moves_are_accepted_as_barker_would(case):
    found, expected = acceptance(case)
    assert 0.6 < expected < 0.9
    # five standard errors: false alarm below 1e-6
    assert abs(found - expected) < 5 * math.sqrt(expected * (1 - expected) / TRIALS)


def _no_correction(step, noisy, prior):
    return noisy.tempering * noisy.log_ratio + prior + step.rng.normal() > 0


def _filled_up_twice(step, noisy, prior):
    return pmdp.DPBarker._accepts(step, noisy._replace(sd=0.0), prior)


@pytest.mark.oracles
@pytest.mark.parametrize("case", MOVES)
@pytest.mark.parametrize("wrong", [_no_correction, _filled_up_twice])
def test_a_wrong_chance_is_found(case, wrong):
    found, expected = acceptance(case, accepts=wrong)
    assert abs(found - expected) > 5 * math.sqrt(expected * (1 - expected) / TRIALS)


def test_rounding_to_a_bound_keeps_the_mean_and_fixes_the_square():
    rng = np.random.default_rng(0)
    ratios = np.array([0.3, -0.9, 0.0, 5.0, -5.0, np.nan])
    draws = 20_000
    words = rng.integers(2**64, size=(draws, ratios.size), dtype=np.uint64)
    old = np.zeros(1)
    sums = np.array(
        [
            [
                two_point_total(ratios[i : i + 1], old, 1.0, words[k, i : i + 1])
                for k in range(draws)
            ]
            for i in range(ratios.size)
        ]
    )
    assert set(np.unique(sums)) == {-LEVELS, LEVELS}
    # five standard errors of six means: below 1e-5
    expected = np.array([0.3, -0.9, 0.0, 1.0, -1.0, -1.0])
    assert np.all(np.abs(sums.mean(1) / LEVELS - expected) <= 5 / math.sqrt(draws))
    assert np.all(sums[3] == LEVELS)
    assert np.all(sums[4:] == -LEVELS)


@pytest.fixture(scope="module")
def model():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 10)
        pm.Normal("y", mu, 1, observed=np.random.default_rng(1).normal(0.3, 1, size=2000))
    return model


def test_moves_with_too_much_noise_are_refused_before_the_claim(model):
    budget = pmdp.PrivacyBudget(1.0, 1e-6)
    quiet = {"cores": 1, "progressbar": False, "quiet": True}
    with model:
        step = pmdp.DPBarker(budget=budget, chains=1, clip_logp=3, step_size=0.5)
        with pytest.raises(ValueError, match=r"make step_size .* times smaller"):
            pmdp.sample(1000, chains=1, step=step, **quiet)
    assert budget.claims() == []


def test_too_long_a_move_is_rejected_unseen(model, monkeypatch):
    with model:
        step = pmdp.DPBarker(
            simulation=True, noise_multiplier=1.0, chains=1, clip_logp=1.0, step_size=0.3
        )
    step.setup_chain(np.random.default_rng(0), 0, 400)
    looks, release = [], step.door.release
    monkeypatch.setattr(step.door, "release", lambda *args: looks.append(1) or release(*args))
    point, seen = model.initial_point(), []
    for _ in range(400):
        before = point["mu"]
        point, (stats,) = step.step(point)
        seen.append(not math.isnan(stats["noisy_log_ratio"]))
        assert seen[-1] == (stats["noise_sd"] ** 2 <= dp_barker.VARIANCE)
        assert seen[-1] or point["mu"] == before
    assert 0 < sum(seen) == len(looks) < 400


def test_batches_need_the_number_of_records(model):
    guarantee = {"epsilon": 1, "delta": 1e-6, "clip_logp": 1, "step_size": 0.1}
    with model:
        with pytest.raises(ValueError, match="proportional to the number of records"):
            pmdp.DPBarker(batch_fraction=0.1, neighbours="add_remove", **guarantee)
        with pytest.raises(ValueError, match="reveal the number of records"):
            pmdp.DPBarker(batch_size=10, neighbours="add_remove", **guarantee)
        with pytest.raises(TypeError, match="DPBarker"):
            pmdp.DPPenalty(batch_fraction=0.1, **guarantee)
