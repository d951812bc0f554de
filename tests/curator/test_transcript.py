"""What leaves a run is a function of the noised quantities alone.

A run on one data set is recorded at the only door, ``noise.release``. A second run, on other data,
gets the recorded answers. If everything that can be seen is the same bit for bit, nothing else got
out.
"""

import logging
import re
import warnings

import numpy as np
import pymc as pm
import pytest
from pymc.progress_bar.progress import MCMCProgressBarManager
from pymc.step_methods.state import equal_dataclass_values

import pymc_dp as pmdp
from pymc_dp.accounting import noise


def logistic(X, y):
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 1)
        beta = pm.Normal("beta", 0, scale, shape=2)
        pm.Deterministic("odds", pm.math.exp(beta[0]))
        pm.Deterministic("fitted", pm.math.sigmoid(X @ beta))
        pm.Bernoulli("y", logit_p=X @ beta, observed=y)
    return model


def one_data_set(n=60, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 2)), rng.integers(0, 2, size=n)


def ugly_data_set(n=60):
    X, y = one_data_set(n, seed=1)
    X[0], X[1], X[2], X[3] = np.nan, np.inf, 1e300, 1e306
    return 100 * X, y


def watch(model, release, monkeypatch, caplog, cls=pmdp.DPPenalty, **kwargs):
    """Everything a bystander sees of a run."""
    shown = []
    monkeypatch.setattr(noise, "release", release)
    monkeypatch.setattr(
        MCMCProgressBarManager, "update", lambda self, **seen: shown.append(repr(seen))
    )
    monkeypatch.setattr("rich.live.Live.refresh", lambda self: None)  # what is shown is known
    caplog.clear()
    with model, caplog.at_level(logging.DEBUG), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        # little noise, so that moves are accepted
        step = cls(**({"epsilon": 200, "delta": 1e-3, "chains": 2} | kwargs))
        tree = pmdp.sample(40, tune=5, cores=1, step=step, random_seed=3)
    # elapsed time is not covered by the guarantee, and is not compared
    # nor is what compilers say of the code, which depends on what was compiled before
    said = [
        re.sub(r"took [\d.]+ seconds", "", record.getMessage())
        for record in caplog.records
        if not record.name.startswith(("numba", "pytensor", "filelock"))
    ]
    return {
        "tree": tree,
        "state": step.sampling_state,
        "log": said,
        "progress": shown,
        "warnings": [str(warning.message) for warning in warned],
        "spent": repr(pmdp.privacy_spent(step)),
    }


def assert_same_run(first, second):
    assert first["tree"].identical(second["tree"])
    assert first["tree"].attrs == second["tree"].attrs
    assert equal_dataclass_values(first["state"], second["state"])
    for what in ("log", "progress", "warnings", "spent"):
        assert first[what] == second[what]


def recorder(transcript):
    release = noise.release

    def record(totals, sd, simulation=None):
        answers = release(totals, sd, simulation)
        transcript.append((sd, answers))
        return answers

    return record


def player(transcript):
    answers = iter(transcript)

    def play(totals, sd, simulation=None):
        asked, released = next(answers)
        # the noise level and the number of answers, too, must not depend on the data
        assert (asked, len(released)) == (sd, len(totals))
        return released

    return play


LANGEVIN = {"clip_logp": None, "clip_grad": 1.0, "step_size": 1e-4, "epsilon": 20}
BARKER = {"cls": pmdp.DPBarker, "step_size": 0.03, "tempering": 0.2}
HMC = {"cls": pmdp.DPHMC, "clip_grad": 1.0, "step_size": 0.1, "n_leapfrog": 3, "epsilon": 2000}
VARIANTS = {
    "joint": {},
    "component": {"proposal": "component"},
    "guided": {"proposal": "guided"},
    "tempered": {"tempering": 0.5},
    "batch": {"batch_size": 20, "tempering": 0.2},
    "shaped, public records": {
        "inverse_mass": np.eye(3) + 0.5,
        "public": logistic(*one_data_set(seed=7)),
        "clip_logp": 4.0,
    },
    "hmc": HMC,
    "hmc, dense mass": HMC | {"inverse_mass": np.eye(3) + 0.5, "step_size": 0.08},
    "hmc, wild": HMC | {"step_size": 1e200},  # trajectories leave the floating-point numbers
    "hmc, public records": HMC | {"public": logistic(*one_data_set(seed=7)), "clip_logp": 4.0},
    "mala": {"cls": pmdp.DPMALA, "clip_grad": 1.0, "step_size": 0.15},
    "barker": {"cls": pmdp.DPBarker, "step_size": 0.02},
    "barker, poisson": BARKER | {"batch_fraction": 0.4},
    "barker, fixed": BARKER | {"batch_size": 20},
    "sgld": LANGEVIN | {"cls": pmdp.DPSGLD},
    "sgld, poisson": LANGEVIN | {"cls": pmdp.DPSGLD, "batch_fraction": 0.3},
    "sgld, fixed": LANGEVIN | {"cls": pmdp.DPSGLD, "batch_size": 20, "decay": 0.3},
    "sgnht": LANGEVIN | {"cls": pmdp.DPSGNHT, "step_size": 0.01},
    "sgnht, poisson": LANGEVIN | {"cls": pmdp.DPSGNHT, "step_size": 0.01, "batch_fraction": 0.3},
}
LOOKS = {  # numbers that leave in an iteration
    "hmc": 4 * 2 + 1,
    "hmc, public records": 4 * 2 + 1,
    "hmc, dense mass": 4 * 3 + 1,
    "hmc, wild": 2,
    "mala": 2 * 2 + 1,
    **{variant: 2 for variant in VARIANTS if variant.startswith("sg")},
}


def settings_of(variant):
    kwargs = {"clip_logp": 2.0, "step_size": 0.3} | VARIANTS[variant]
    return {name: value for name, value in kwargs.items() if value is not None}


def exposure(exposed):
    rng = np.random.default_rng(4)
    with pm.Model() as model:
        base, effect = pm.Normal("base"), pm.Normal("effect")
        mean = base + pm.Normal("slope") * rng.normal(size=60) + effect * exposed
        pm.Normal("y", mean, 1, observed=rng.normal(size=60))
    return model


@pytest.mark.parametrize("variant", ["joint", "hmc"])
def test_a_covariate_that_is_alike_for_all_does_not_show(variant, monkeypatch, caplog):
    """Nobody was exposed, or one was: its coefficient is moved alike."""
    transcript, kwargs = [], settings_of(variant)
    with monkeypatch.context() as patch:
        first = watch(exposure(np.zeros(60)), recorder(transcript), patch, caplog, **kwargs)
    with monkeypatch.context() as patch:
        second = watch(exposure(np.eye(60)[7]), player(transcript), patch, caplog, **kwargs)
    assert_same_run(first, second)


@pytest.mark.parametrize("variant", VARIANTS)
def test_other_data_with_the_same_answers_gives_the_same_run(variant, monkeypatch, caplog):
    kwargs = settings_of(variant)
    transcript = []
    with monkeypatch.context() as patch:
        release = recorder(transcript)
        first = watch(logistic(*one_data_set()), release, patch, caplog, **kwargs)
    with monkeypatch.context() as patch:
        second = watch(logistic(*ugly_data_set()), player(transcript), patch, caplog, **kwargs)
    assert sum(len(answers) for _, answers in transcript) == 2 * 45 * LOOKS.get(variant, 1)
    stats = first["tree"].sample_stats
    if variant == "hmc, wild":
        assert stats["diverging"].all()
    elif variant.startswith("sg"):
        assert not stats["diverging"].any()
    else:
        assert 0 < float(stats["accepted"].mean()) < 1
    assert_same_run(first, second)


def location_and_scale(offset, y):
    with pm.Model() as model:
        mu, sigma = pm.Normal("mu"), pm.HalfNormal("sigma")
        pm.Normal("y", mu + offset, sigma, observed=y)
    return model


def test_the_same_where_gradients_are_made_in_one_compiled_function(monkeypatch, caplog):
    rng = np.random.default_rng(0)
    offset, y = rng.normal(size=(2, 60))
    ugly = np.concatenate([[np.nan, np.inf, -1e300, 0.0], 1e4 * offset[4:]])
    kwargs = {"clip_logp": 2.0} | HMC
    transcript = []
    with monkeypatch.context() as patch:
        release = recorder(transcript)
        first = watch(location_and_scale(offset, y), release, patch, caplog, **kwargs)
    with monkeypatch.context() as patch:
        play = player(transcript)
        second = watch(location_and_scale(ugly, 2 * y), play, patch, caplog, **kwargs)
    assert 0 < float(first["tree"].sample_stats["accepted"].mean()) < 1
    assert_same_run(first, second)


@pytest.mark.parametrize("variant", ["joint", "hmc", "sgld, poisson", "sgnht, poisson"])
def test_the_number_of_records_does_not_show_under_add_remove(variant, monkeypatch, caplog):
    kwargs = settings_of(variant) | {"neighbours": "add_remove"}
    transcript = []
    with monkeypatch.context() as patch:
        first = watch(logistic(*one_data_set()), recorder(transcript), patch, caplog, **kwargs)
    with monkeypatch.context() as patch:
        one_more = logistic(*one_data_set(61))
        second = watch(one_more, player(transcript), patch, caplog, **kwargs)
    assert_same_run(first, second)


def run_of_two_steps(y, group, release, monkeypatch):
    """One effect a record, moved by a step of its own; records are labelled by what they are."""
    monkeypatch.setattr(noise, "release", release)
    budget = pmdp.PrivacyBudget(2000, 1e-3)
    kwargs = {"budget": budget, "share": 0.5, "chains": 2, "clip_logp": 2, "step_size": 0.1}
    coords = {"person": [f"{value:.3f}" for value in y], "group": ["north", "south"]}
    with pm.Model(coords=coords):
        u, v = pm.Normal("u", dims="person"), pm.Normal("v", dims="group")
        pm.Normal("y", u + v[group], 1, observed=y, dims="person")
        steps = [
            pmdp.DPPenalty([u], **kwargs),
            pmdp.DPHMC([v], clip_grad=1, n_leapfrog=2, **kwargs),
        ]
        quiet = {"cores": 1, "progressbar": False, "quiet": True, "discard_tuned_samples": False}
        return pmdp.sample(20, tune=5, step=steps, random_seed=3, **quiet)


def test_the_same_of_two_steps_and_of_one_value_a_record(monkeypatch):
    rng, transcript = np.random.default_rng(0), []
    group = rng.integers(0, 2, size=(2, 30))
    with monkeypatch.context() as patch:
        first = run_of_two_steps(rng.normal(size=30), group[0], recorder(transcript), patch)
    with monkeypatch.context() as patch:
        ugly = 100 * rng.normal(size=30)
        second = run_of_two_steps(ugly, group[1], player(transcript), patch)
    assert float(first.sample_stats["accepted"].mean()) > 0
    assert first.identical(second)


def watch_pilot(model, release, monkeypatch, caplog, **kwargs):
    """Everything a bystander sees of a pilot, what it asks to be simulated included."""
    asked = []

    def simulate(values):
        asked.append({name: value.tobytes() for name, value in values.items()})
        X, _ = one_data_set(200, seed=7)
        odds = np.random.default_rng(8).logistic(size=200)
        return logistic(X, (odds < X @ values["beta"]).astype(int))

    monkeypatch.setattr(noise, "release", release)
    budget = pmdp.PrivacyBudget(2000, 1e-3, **kwargs)
    caplog.clear()
    for compiler in ("numba", "pytensor"):  # which tell what they do at great length
        caplog.set_level(logging.WARNING, logger=compiler)
    with caplog.at_level(logging.DEBUG), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        found = pmdp.pilot(budget, simulate, n=60, n_gradients=6, model=model)
    return {
        "asked": asked,
        "point": {name: value.tobytes() for name, value in found.point.items()},
        "error": found.error,
        "log": [r.getMessage() for r in caplog.records if not r.name.startswith("filelock")],
        "warnings": [str(warning.message) for warning in warned],
        "spent": repr(budget),
    }


@pytest.mark.parametrize("neighbours", ["substitute", "add_remove"])
def test_other_data_with_the_same_answers_gives_the_same_pilot(neighbours, monkeypatch, caplog):
    transcript = []
    kwargs = {"neighbours": neighbours}
    with monkeypatch.context() as patch:
        release = recorder(transcript)
        first = watch_pilot(logistic(*one_data_set()), release, patch, caplog, **kwargs)
    n = 60 if neighbours == "substitute" else 61
    with monkeypatch.context() as patch:
        other = logistic(*ugly_data_set(n))
        second = watch_pilot(other, player(transcript), patch, caplog, **kwargs)
    assert len(transcript) == 6
    assert first == second


def test_the_seed_does_not_fix_the_noise():
    model = logistic(*one_data_set())
    runs = []
    for _ in range(2):
        with model:
            step = pmdp.DPPenalty(epsilon=3, delta=1e-6, chains=1, clip_logp=2.0, step_size=0.3)
            tree = pmdp.sample(20, cores=1, step=step, random_seed=3, progressbar=False, quiet=True)
        runs.append(tree.sample_stats)
    # the first proposal follows the seed, its noise does not
    assert runs[0]["noise_sd"][0, 0] == runs[1]["noise_sd"][0, 0]
    assert runs[0]["noisy_log_ratio"][0, 0] != runs[1]["noisy_log_ratio"][0, 0]


def test_a_simulation_is_reproducible_and_says_so():
    model = logistic(*one_data_set())
    trees = []
    for _ in range(2):
        with model:
            step = pmdp.DPPenalty(
                simulation=True, noise_multiplier=2.0, chains=1, clip_logp=2.0, step_size=0.3
            )
            trees.append(
                pmdp.sample(20, cores=1, step=step, random_seed=3, progressbar=False, quiet=True)
            )
    assert trees[0].identical(trees[1])
    assert trees[0].attrs["privacy_simulation"] == 1
    assert trees[0].attrs["privacy_epsilon"] == np.inf
