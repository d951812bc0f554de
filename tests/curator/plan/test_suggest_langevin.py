"""Settings for DPSGLD, DPSGNHT and DPBarker from synthetic records behave as forecast."""

import numpy as np
import pymc as pm
import pytest

import pymc_dp as pmdp

N = 20_000
SPREAD = np.array([0.1, 3.0])


def normal(n, seed, mean=5.0):
    with pm.Model() as model:
        mu = pm.Normal("mu", mean, 10, shape=2)
        rng = np.random.default_rng(seed)
        pm.Normal("y", mu, SPREAD, observed=mean + SPREAD * rng.normal(size=(n, 2)))
    return model


@pytest.fixture(scope="module")
def confidential():
    return normal(N, seed=1)


def standardised(model, step, draws, seed=0):
    y = model.rvs_to_values[model["y"]].data
    step.setup_chain(np.random.default_rng(seed), 0, draws)
    point, kept = {"mu": y.mean(axis=0)}, np.empty((draws, 2))
    for i in range(draws):
        point, _ = step.step(point)
        kept[i] = point["mu"]
    return (kept - y.mean(axis=0)) / (SPREAD / np.sqrt(N))


@pytest.mark.parametrize("dynamics", ["sgld", "sgnht"])
def test_settings_of_langevin_steps(confidential, dynamics):
    guarantee = {"epsilon": 6.0, "delta": 1e-6, "chains": 1}
    found = pmdp.suggest_langevin(
        6.0, 1e-6, n=N, synthetic=normal(2000, seed=2), dynamics=dynamics, chains=1
    )
    cls = {"sgld": pmdp.DPSGLD, "sgnht": pmdp.DPSGNHT}[dynamics]
    with confidential:
        step = cls(simulation=True, **guarantee, **found.settings)
    draws = standardised(confidential, step, found.draws)
    assert 300 < found.effective_draws < 3000
    assert found.shift < 0.1
    # of hundreds of effective draws: a factor of 2 in the mean's error, five standard errors
    assert np.all(np.abs(draws.mean(axis=0)) < 0.1 + 10 / np.sqrt(found.effective_draws))
    assert 0.6 < draws.var() < 1.5


def test_more_draws_than_asked_for_are_not_suggested():
    # without synthetic records
    found = pmdp.suggest_langevin(6.0, 1e-6, n=N, dim=2, prior_sd=3.0, chains=2, most_draws=50)
    np.testing.assert_allclose(found.settings["inverse_mass"], 9 / N * np.eye(2), atol=2 / N)
    assert found.draws == 50
    assert found.effective_draws < 100


def test_confidential_records_and_other_dynamics_are_refused(confidential):
    with confidential, pytest.raises(ValueError, match="in context"):
        pmdp.suggest_langevin(1.0, 1e-6, n=N, synthetic=confidential)
    with pytest.raises(ValueError, match="dynamics"):
        pmdp.suggest_langevin(1.0, 1e-6, n=N, synthetic=normal(2000, 2), dynamics="hmc")
    with pytest.raises(ValueError, match=r"synthetic=.* or dim="):
        pmdp.suggest_langevin(1.0, 1e-6, n=N)
    with pytest.raises(ValueError, match="acceptance"):
        pmdp.suggest(1.0, 1e-6, n=N, dim=2, acceptance="metropolis")


def test_settings_for_barker_use_the_noise_that_its_test_can():
    n = 5 * N
    found = pmdp.suggest(10.0, 1e-6, n=n, dim=1, chains=1, acceptance="barker")
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        y = np.random.default_rng(0).normal(size=n)
        pm.Normal("y", mu, 1, observed=y)
        step = pmdp.DPBarker(
            epsilon=10.0,
            delta=1e-6,
            chains=1,
            simulation=True,
            clip_logp=found.clip_logp,
            step_size=found.step_size,
        )
    step.setup_chain(np.random.default_rng(0), 0, found.draws)
    point, seen, kept = model.initial_point(), [], []
    for _ in range(found.draws):
        point, (stats,) = step.step(point)
        seen.append(np.isfinite(stats["noisy_log_ratio"]))
        kept.append(float(point["mu"]))
    assert 0.7 < np.mean(seen) < 0.95
    assert found.effective_draws > 100
    kept = (np.array(kept) - y.mean()) * np.sqrt(n)
    # five standard errors of a mean of so many effective draws, twice for what a forecast is worth
    assert abs(kept.mean()) < 10 / np.sqrt(found.effective_draws)
    assert 0.6 < kept.var() < 1.6
