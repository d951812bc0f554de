"""Settings as a value: what suggest_hmc returns and the step takes."""

import dataclasses

import numpy as np
import pymc as pm
import pytest

import pymc_dp as pmdp
from pymc_dp.curator.steps.hmc_settings import HMCSettings

SETTINGS = HMCSettings(
    clip_logp=3, clip_grad=2, step_size=0.1, n_leapfrog=5, inverse_mass=[2.0], grad_scale=1.5
)


def step(**kwargs):
    with pm.Model():
        pm.Normal("y", pm.Normal("m", 0, 1), 1, observed=np.linspace(-1, 1, 20))
        return pmdp.DPHMC(epsilon=1, delta=1e-6, **kwargs)


def numbers(step):
    names = ["clip_logp", "clip_grad", "step_size", "n_leapfrog", "grad_scale", "jitter"]
    return [getattr(step, name) for name in [*names, "tempering"]] + step.basis.ravel().tolist()


def test_a_value_and_its_keywords_are_the_same():
    expected = [3.0, 2.0, 0.1, 5, 1.5, 0.25, 1.0, np.sqrt(2.0)]
    assert numbers(step(settings=SETTINGS)) == expected
    assert numbers(step(**SETTINGS)) == expected
    assert SETTINGS["jitter"] == 0.25


def test_defaults_can_be_written_beside_it():
    assert numbers(step(**SETTINGS, jitter=0.1, tempering=0.5))[5:7] == [0.1, 0.5]


def test_what_is_written_beside_a_value_goes_before():
    changed = step(settings=SETTINGS, step_size=0.2, path_length=0.8)
    assert (changed.step_size, changed.n_leapfrog, changed.clip_grad) == (0.2, 4, 2.0)
    with pytest.raises(ValueError, match="grad_scale must be positive"):
        step(settings=SETTINGS, grad_scale=0)


def test_it_stays_as_it_is():
    with pytest.raises(dataclasses.FrozenInstanceError):
        SETTINGS.step_size = 1.0


@pytest.mark.parametrize(
    ("wrong", "name"),
    [({"step_siz": 0.1}, "step_siz"), ({"clip_logp": 1.0, "n_leapfrog": 2}, "clip_grad")],
)
def test_unknown_and_missing_names_are_told(wrong, name):
    with pytest.raises(TypeError, match=name):
        step(**wrong if "clip_logp" in wrong else {**SETTINGS, **wrong})
