"""What is simulated and ranked, and what is refused. Nothing is compiled."""

import numpy as np
import pymc as pm
import pytest
from pytensor.compile.sharedvalue import SharedVariable

import pymc_dp as pmdp
from pymc_dp.diagnostics.calibration.simulation import (
    check_model,
    first_values,
    fixed_parameters,
    ranked_names,
    simulate,
    taking_inputs,
)


def model_of(observed=3.0, second=None):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1, initval=0.3)
        sd = pm.Gamma("sd", 4, 4)
        pm.Deterministic("variance", sd**2)
        x = pm.Normal("x", mu, sd, shape=10)
        pm.Deterministic("mean", x.mean())
        pmdp.Privatized("s", x.sum(), pmdp.Gaussian(sigma=2), observed=observed)
        if second is not None:
            pmdp.Privatized("t", (x**2).sum(), pmdp.Gaussian(sigma=2), **second)
        pm.Normal("pilot", mu, 1, observed=[0.3, 0.4])
    return model


def test_parameters_are_ranked_and_records_are_not():
    model = model_of()
    assert ranked_names(model, None) == ["mu", "sd"]
    assert ranked_names(model, ["variance"]) == ["variance"]
    for name in ("x", "mean"):
        with pytest.raises(ValueError, match=f"'{name}' is a record"):
            ranked_names(model, [name])
    with pytest.raises(ValueError, match="no variable 'nu'"):
        ranked_names(model, ["nu"])


def test_records_of_a_release_that_waits_are_not_ranked():
    assert ranked_names(model_of(observed=None), None) == ["mu", "sd"]


def test_releases_without_records_wait_too():
    """They are no parameters, and take simulated values."""
    with pm.Model() as model:
        x = pm.Normal("x", pm.Normal("mu", 0, 1), 1, shape=10)
        pmdp.Privatized("s", x.sum(), pmdp.Gaussian(sigma=2))
    small = pmdp.marginalize(model)
    assert ranked_names(small, None) == ["mu"]
    found = simulate(small, ["mu"], 1, seed=1)
    assert found.released["s"].shape == (1,)
    assert small["s"] in small.free_RVs
    copy = taking_inputs(small, first_values(small, found.released))
    assert copy["s"] in copy.observed_RVs


def test_simulated_values_belong_together():
    """Moments of parameters and release over 4000 replicates, within five standard errors."""
    model = model_of()
    found = simulate(model, ["mu", "variance"], 4000, seed=1)
    mu, variance, s = found.truths["mu"], found.truths["variance"], found.released["s"]
    residual = s - 10 * mu
    expected = 10 * variance + 4
    assert abs(mu.mean()) < 5 / np.sqrt(4000)
    ratio = residual**2 / expected
    assert abs(ratio.mean() - 1) < 5 * np.sqrt(2 / 4000)
    assert found.released["pilot"].shape == (4000, 2)
    np.testing.assert_array_equal(found.starts["mu"], mu)
    assert "sd_log__" not in found.starts


@pytest.mark.parametrize("held", ["constant", "data", "waiting"])
def test_observed_values_become_inputs_of_a_copy(held):
    model = model_of(None if held == "waiting" else 3.0)
    if held == "data":
        with pm.Model() as model:
            x = pm.Normal("x", pm.Normal("mu", 0, 1), 1, shape=10)
            pm.Data("held", 3.0)
            pmdp.Privatized("s", x.sum(), pmdp.Gaussian(sigma=2), observed=model["held"])
    free = [rv.name for rv in model.free_RVs]
    found = simulate(model, ["mu"], 2, seed=1)
    copy = taking_inputs(model, first_values(model, found.released))
    value = copy.rvs_to_values[copy["s"]]
    assert isinstance(value, SharedVariable)
    assert value.get_value() == (found.released["s"][0] if held == "waiting" else 3.0)
    assert [rv.name for rv in model.free_RVs] == free
    if held == "data":
        assert model["held"].get_value() == 3.0
    if held == "constant":
        assert copy.initial_point()["mu"] == 0.3


def test_models_that_cannot_be_simulated_are_refused():
    with pm.Model() as ordinary:
        pm.Normal("y", pm.Normal("mu"), 1, observed=[1.0])
    with pytest.raises(ValueError, match=r"no release.*Privatized"):
        check_model(ordinary)
    model = model_of()
    with model:
        pm.Potential("weight", -(model["mu"] ** 4))
    with pytest.raises(ValueError, match="potential 'weight'"):
        check_model(model)
    with pytest.raises(ValueError, match=r"'t' have no observed value.*observed="):
        check_model(model_of(second={"observed": None}))
    check_model(model_of(observed=None, second={"observed": None}))
    with pm.Model() as bare:
        x = pm.Normal("x", 0, 1, shape=10)
        pmdp.Privatized("s", x.sum(), pmdp.Gaussian(sigma=2), observed=1.0)
    with pytest.raises(ValueError, match="no parameters"):
        ranked_names(bare, None)


def test_curators_models_are_refused():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mu"), 1, observed=[0.3, -0.2, 1.1])
        pmdp.DPPenalty(epsilon=1, delta=1e-6, chains=1, clip_logp=3, step_size=0.5)
    with pytest.raises(pmdp.PrivacyError, match=r"curator's step.*simulation=True"):
        check_model(model)


def hierarchy():
    with pm.Model() as model:
        mean = pm.Normal("mean", 0, 1)
        sd = pm.Gamma("sd", 4, 4)
        group = pm.Normal("group", mean, 1, shape=3)
        x = pm.Normal("x", group, sd, shape=(10, 3))
        pmdp.Privatized("s", x.sum(0), pmdp.Gaussian(sigma=2))
    return model


def test_parameters_can_be_fixed():
    """What depends on them follows; others are drawn. Five standard errors of 2000 replicates."""
    truth = {"mean": 3.0, "group": [1.0, 2.0, 5.0]}
    model = hierarchy()
    found = simulate(model, ["mean", "group", "sd"], 2000, seed=1, truth=truth)
    np.testing.assert_array_equal(found.truths["group"], np.tile([1.0, 2.0, 5.0], (2000, 1)))
    np.testing.assert_array_equal(found.starts["mean"], np.full(2000, 3.0))
    assert len(np.unique(found.truths["sd"])) == 2000
    spread = np.sqrt(10 * (found.truths["sd"] ** 2).mean() + 4)
    error = found.released["s"].mean(0) - 10 * np.array([1.0, 2.0, 5.0])
    assert np.all(np.abs(error) < 5 * spread / np.sqrt(2000))


@pytest.mark.parametrize(
    ("truth", "message"),
    [
        ({"sd": -1.0}, r"'sd' cannot be -1.0"),
        ({"group": 1.0}, "'group' is drawn from 'mean': give values to these too"),
        ({"mean": 1.0, "group": [1.0, 2.0]}, r"'group' has the shape \(3,\)"),
        ({"nu": 1.0}, "'nu' is not a parameter"),
        ({"s": 1.0}, "'s' is not a parameter"),
    ],
)
def test_values_that_parameters_cannot_have(truth, message):
    with pytest.raises(ValueError, match=message):
        fixed_parameters(hierarchy(), truth)
