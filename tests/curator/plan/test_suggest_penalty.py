"""Settings for DPPenalty and DPBarker from a synthetic posterior behave as forecast."""

import arviz as az
import numpy as np
import pymc as pm
import pytest

import pymc_dp as pmdp

N = 20_000
SPREAD = np.array([0.1, 3.0])
STEPS = {"penalty": pmdp.DPPenalty, "barker": pmdp.DPBarker}


def normal(n, seed):
    """Two means, of which records tell one thirty times as well as the other."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 5, 10, shape=2)
        rng = np.random.default_rng(seed)
        pm.Normal("y", mu, SPREAD, observed=5 + SPREAD * rng.normal(size=(n, 2)))
    return model


@pytest.mark.wide_except("barker-component")
@pytest.mark.parametrize(
    ("acceptance", "proposal"), [("penalty", "joint"), ("barker", "component")]
)
def test_acceptance_and_effective_draws_are_those_forecast(acceptance, proposal):
    found = pmdp.suggest_penalty(
        6.0,
        1e-6,
        n=N,
        synthetic=normal(2000, seed=2),
        chains=1,
        acceptance=acceptance,
        proposal=proposal,
    )
    model = normal(N, seed=1)
    y = model.rvs_to_values[model["y"]].data
    with model:
        step = STEPS[acceptance](
            epsilon=6.0, delta=1e-6, chains=1, simulation=True, **found.settings
        )
    step.setup_chain(np.random.default_rng(0), 0, found.draws)
    point, kept, accepted = {"mu": y.mean(axis=0)}, np.empty((found.draws, 2)), []
    for i in range(found.draws):
        point, (stats,) = step.step(point)
        kept[i] = point["mu"]
        accepted.append(stats["accepted"])
    kept = (kept - y.mean(axis=0)) / (SPREAD / np.sqrt(N))
    # 400 trials: a standard error of .02; thousands of moves
    assert abs(np.mean(accepted) - found.acceptance) < 0.1
    sizes = [float(az.ess(column[None], method="mean")) for column in kept.T]
    assert 0.4 < np.mean(sizes) / found.effective_draws < 2.5
    # five standard errors, and a factor of 1.5 in the number of effective draws
    assert np.all(np.abs(kept.mean(axis=0)) < 7.5 / np.sqrt(found.effective_draws))
    assert 0.5 < kept.var() < 1.8
    assert found.clip_shift < 0.1


def test_what_cannot_be_is_refused_by_name():
    synthetic = normal(2000, seed=2)
    for wrong in ({"acceptance": "metropolis"}, {"proposal": "wild"}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            pmdp.suggest_penalty(1.0, 1e-6, n=N, synthetic=synthetic, **wrong)
    with synthetic, pytest.raises(ValueError, match="in context"):
        pmdp.suggest_penalty(1.0, 1e-6, n=N, synthetic=synthetic)
    other = normal(300, seed=3)
    with other, pytest.raises(ValueError, match="public= is this model"):
        pmdp.DPPenalty(epsilon=1, delta=1e-6, clip_logp=3, step_size=0.1, public=other)
