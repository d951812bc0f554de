"""Draws from shards are those from one place, bit for bit, for every curator's step."""

import numpy as np
import pytest

import pymc_dp as pmdp
from pymc_dp.accounting.levels import GRADIENT_LEVELS
from pymc_dp.curator.model import RecordModel, record_model
from tests.curator.shards.problems import (
    CUTS,
    X,
    Y,
    draws,
    groups,
    logistic,
    normal,
    split,
    student,
)

PENALTY = {"clip_logp": 2, "step_size": 0.1, "noise_multiplier": 3}
GRADIENT = {"clip_grad": 1.5, "noise_multiplier": 3}
HMC = {"clip_logp": 2, "clip_grad": 1.5, "step_size": 0.02, "noise_multiplier": 3}
STEPS = {
    "penalty": (pmdp.DPPenalty, PENALTY),
    "penalty, guided": (pmdp.DPPenalty, PENALTY | {"proposal": "guided"}),
    "penalty, batches": (pmdp.DPPenalty, PENALTY | {"batch_size": 97, "tempering": 0.1}),
    "barker": (pmdp.DPBarker, PENALTY | {"step_size": 0.02}),
    "barker, batches": (
        pmdp.DPBarker,
        PENALTY | {"step_size": 0.01, "batch_size": 97, "tempering": 0.02},
    ),
    "barker, Poisson": (
        pmdp.DPBarker,
        PENALTY | {"step_size": 0.01, "batch_fraction": 0.1, "tempering": 0.02},
    ),
    "hmc": (pmdp.DPHMC, HMC | {"n_leapfrog": 3, "grad_noise_multiplier": 3}),
    "mala": (pmdp.DPMALA, HMC | {"grad_noise_multiplier": 3}),
    "sgld": (pmdp.DPSGLD, GRADIENT | {"step_size": 1e-3}),
    "sgld, batches": (pmdp.DPSGLD, GRADIENT | {"step_size": 1e-5, "batch_size": 97}),
    "sgnht": (pmdp.DPSGNHT, GRADIENT | {"step_size": 1e-2}),
    "sgnht, Poisson": (pmdp.DPSGNHT, GRADIENT | {"step_size": 1e-3, "batch_fraction": 0.1}),
}


@pytest.fixture(scope="module")
def sharded():
    return {name: pmdp.shard(logistic, split((X, Y), cuts)) for name, cuts in CUTS.items()}


@pytest.mark.wide_except(
    "penalty",
    "penalty, guided",
    "barker, batches",
    "hmc",
    "sgld, batches",
    "sgnht, Poisson",
)
@pytest.mark.parametrize("step", STEPS)
def test_draws_are_those_of_one_place(step, sharded):
    kind, settings = STEPS[step]
    whole = draws(logistic(X, Y), kind, **settings)
    assert len(np.unique(whole["beta"][0], axis=0)) > 3  # it moves
    for name, records in sharded.items():
        assert (records.n_records, records.n_shards) == (len(X), len(CUTS[name]) + 1)
        found = draws(records.model, kind, **settings)
        assert found.keys() == whole.keys()
        for variable in whole:
            np.testing.assert_array_equal(found[variable], whole[variable], err_msg=variable)


@pytest.mark.wide_except("normal")
@pytest.mark.parametrize(
    ("build", "arrays"),
    [(student, (X, X[:, 1])), (normal, (X[:, 0],)), (groups, (X, Y))],
    ids=["student", "normal", "groups"],
)
def test_sums_of_other_forms_of_gradients(build, arrays):
    whole = RecordModel(build(*arrays))
    parts = record_model(pmdp.shard(build, split(arrays, CUTS["seven"])).model)
    rng = np.random.default_rng(1)
    basis = rng.normal(size=(whole.space.size,) * 2)
    batch = rng.permutation(len(X))[:200]
    for theta, other in rng.normal(size=(5, 2, whole.space.size)):
        for records in (whole, parts):
            records.gradients.prepare(basis)
        first, second = (records.gradients.total(theta, 0.7) for records in (whole, parts))
        np.testing.assert_array_equal(first, second)
        assert np.any(np.abs(first) > GRADIENT_LEVELS)
        for records in (whole, parts):
            records.gradients.prepare(basis, batches=True)
        np.testing.assert_array_equal(
            *(records.gradients.batch_total(theta, 0.7, batch, 250) for records in (whole, parts))
        )
        assert whole.ratios.total(theta, other, 0.3) == parts.ratios.total(theta, other, 0.3)
        assert whole.ratios.count(theta, other, 0.3) == parts.ratios.count(theta, other, 0.3)


def test_steps_in_turn_keep_coordinates_of_their_own():
    def run(model):
        with model:
            common = HMC | {"n_leapfrog": 2, "grad_noise_multiplier": 3, "simulation": True}
            mu, sigma = model["mu"], model["sigma"]
            steps = [
                pmdp.DPHMC([mu], rng=1, inverse_mass=0.5, **common),
                pmdp.DPHMC([sigma], rng=2, **common),
            ]
            tree = pmdp.sample(
                10, tune=0, chains=1, cores=1, step=steps, random_seed=1, progressbar=False
            )
        return tree.posterior

    y = X[:, 0]
    found = run(pmdp.shard(normal, split((y,), CUTS["two"])).model)
    assert found.equals(run(normal(y)))
