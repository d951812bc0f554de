import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Constant

import pymc_dp as pmdp
from pymc_dp.graph.layout import numbers_of


def model_of(mean, sd, upper, released):
    with pm.Model() as model:
        mu = pm.Normal("mu", mean, sd)
        x = pm.Normal("x", mu, 1.2, shape=(30, 2))
        total = pmdp.clamp(x[:, 1] ** 2, 0, upper).sum()
        pmdp.Privatized("released", total, pmdp.Laplace(scale=3), observed=released)
    return model


def test_numbers_are_those_that_no_shape_position_or_power_is_made_of():
    model = model_of(0.25, 7.5, 9.5, 41.5)
    found = sorted(float(var.data) for var in numbers_of(model))
    assert {0.25, 1.2, 7.5, 9.5, 41.5} <= set(found)
    assert 2.0 not in found
    assert 30.0 not in found


def test_what_is_infinite_or_long_stays():
    with pm.Model() as model:
        x = pm.Normal("x", np.zeros(2000), 1.0)
        y = pm.Normal("y", pt.switch(x.sum() > 0, np.inf, 0.5), 1.0)
    found = numbers_of(model)
    assert all(isinstance(var, Constant) and np.isfinite(var.data).all() for var in found)
    assert max(var.data.size for var in found) == 1
    assert y.name == "y"


def test_models_that_differ_in_numbers_share_what_is_compiled(made_only):
    steps = []
    for numbers in [(0.25, 7.5, 9.5, 41.5), (1.25, 2.5, 8.5, 60.5)]:
        with model_of(*numbers):
            steps.append(pmdp.RecordGibbs())
    one, other = (step.blocks[0]._key() for step in steps)
    assert one is not None
    assert one == other


def groups():
    """A model whose prior has a 3, as there are groups: graphs hold equal constants once."""
    with pm.Model() as model:
        sd = pm.Gamma("sd", 3, 2.5)
        x = pm.Normal("x", 0.5, sd, shape=8)
        sums = pt.zeros(3)[np.arange(8) % 3].inc(pmdp.clamp(x, 0, 5))
        pmdp.Privatized("sums", sums, pmdp.Laplace(scale=2), observed=[4.0, 5.0, 6.0])
    return model


def test_numbers_that_equal_a_length_stay():
    found = {float(var.data) for var in numbers_of(groups()) if var.data.size == 1}
    assert 2.5 in found
    assert 3.0 not in found


@pytest.mark.wide
def test_records_of_groups_are_sampled_where_a_number_equals_theirs():
    with groups() as model:
        step = pmdp.RecordGibbs()
    point, _ = step.step(model.initial_point())
    assert np.isfinite(point["x"]).all()
