"""What PyMC makes of a model (copies, ``pm.do``, frozen models) is sampled as the model itself."""

from unittest.mock import patch

import cloudpickle
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.model.fgraph import clone_model
from pymc.model.transform.optimization import freeze_dims_and_data, freeze_model
from pymc.sampling.mcmc import assign_step_methods

import pymc_dp as pmdp
from pymc_dp.graph.intervals import ONCE


def records():
    with pm.Model(coords={"person": range(8), "group": range(2)}) as model:
        sigma = pm.HalfNormal("sigma")
        mu = pm.Normal("mu", 0, 10, dims="group")
        x = pm.Normal("x", mu[np.arange(8) % 2], sigma, dims="person")
        released = pm.Data("released", 3.0)
        pmdp.Privatized("r", pmdp.clamp(x, -5, 5).sum(), pmdp.Laplace(scale=4), observed=released)
    return model


def reports():
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        x = pm.Bernoulli("x", p, shape=6)
        released = pm.Data("released", np.array([1, 0, 1, 1, 0, 1]))
        pmdp.Privatized("r", x, pmdp.RandomizedResponse(2, keep=0.8), observed=released)
    return model


def totals():
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(3))
        x = pm.Categorical("x", p, shape=7)
        released = pm.Data("released", np.array([4, 1]))
        counts = pt.stack([pt.eq(x, 0).sum(), pt.eq(x, 1).sum()])
        pmdp.Privatized("r", counts, pmdp.Exact(), observed=released)
    return model


def statistics():
    with pm.Model() as model:
        sigma2 = pm.InverseGamma("sigma2", 20, 0.5)
        theta = pm.Normal("theta", 0, 6 * pm.math.sqrt(sigma2), shape=2)
        moments = pmdp.regression.NormalMoments(0.0, 0.02)
        s = pmdp.RegressionStatistics("s", n=100, coef=theta, sigma2=sigma2, x_moments=moments)
        released = pm.Data("released", [2.1, 0.3, 1.4, 23.0, 9.5])
        pmdp.Privatized("r", s, pmdp.Laplace(scale=5), observed=released)
    return model


def holders():
    with pm.Model() as model:
        coef = pm.Normal("coef", 0, 2, shape=1)
        sigma2 = pm.InverseGamma("sigma2", 3, 1)
        cov = pmdp.regression.InverseWishart("cov", nu=4, psi=np.eye(1))
        (one,) = pmdp.HolderStatistics("h", n=90, coef=coef, sigma2=sigma2, cov_x=cov)
        released = pm.Data("released", [80.0, 45.0])
        pmdp.Privatized("r", one, pmdp.Gaussian(sigma=9), observed=released)
    return model


MODELS = {
    records: ("RecordGibbs", "mu"),
    reports: ("RecordGibbs", "p"),
    totals: ("RecordGibbs", "p"),
    statistics: ("GibbsSS", "theta"),
    holders: ("NormalX", "coef"),
}


def with_others(model):
    """Add variables that have nothing to do with the release."""
    with model:
        pm.Normal("seen", observed=0.3)
        pm.Normal("unseen")
    return model


def set_and_back(model):
    with model:
        before = model["released"].get_value()
        pm.set_data({"released": before + 1})
        pm.set_data({"released": before})
    return model


def pickled(model):
    return cloudpickle.loads(cloudpickle.dumps(model))


def do_and_observe(model):
    return pm.observe(pm.do(with_others(model), {"seen": 0.0}), {"unseen": 0.0})


TRANSFORMS = [
    pm.Model.copy,
    clone_model,
    freeze_dims_and_data,
    freeze_model,
    set_and_back,
    pickled,
    do_and_observe,
]


def chosen(model):
    with patch("pymc.sampling.mcmc.tg.grad"):  # takes long, and there are gradients
        _, steps = assign_step_methods(model)
    return {model.values_to_rvs[v].name: step.__name__ for step, vs in steps.items() for v in vs}


@pytest.mark.wide_except("records", "statistics", "holders")
@pytest.mark.parametrize("build", MODELS)
def test_the_same_step_is_chosen(build):
    step, parameter = MODELS[build]
    model = build()
    steps = chosen(model)
    assert set(steps.values()) == {step}
    for transform in TRANSFORMS:
        assert chosen(transform(build())) == steps, transform.__name__
    known = pm.draw(model[parameter], random_seed=1, mode=ONCE)
    for left in (pm.do(model, {parameter: known}), pm.observe(model, {parameter: known})):
        assert chosen(left) == {name: s for name, s in steps.items() if name != parameter}


def test_without_its_release_a_model_is_pymc_s():
    model = pm.do(records(), {"r": 3.0})
    assert set(chosen(model).values()) == {"NUTS"}
    observed = pm.observe(records(), {"x": np.zeros(8)})
    assert set(chosen(observed).values()) == {"NUTS"}


@pytest.mark.parametrize("build", MODELS)
def test_the_model_need_not_be_in_context(build):
    model = build()
    with pm.Model():
        pm.Normal("other")
        assert set(chosen(model).values()) == {MODELS[build][0]}
    with model:
        other = pm.Model(model=None)
        with other:
            pm.Normal("x", shape=3)
        assert chosen(other) == {"x": "NUTS"}


def draws(model, seed=11):
    tree = pm.sample(
        12,
        tune=8,
        chains=1,
        cores=1,
        random_seed=seed,
        model=model,
        progressbar=False,
        quiet=True,
        compute_convergence_checks=False,
    )
    return tree.posterior


def same_draws(build, transform):
    expected, found = draws(build()), draws(transform(build()))
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-9, err_msg=name)


@pytest.mark.wide
@pytest.mark.parametrize("build", [records, totals, statistics, holders])
def test_the_draws_are_the_same(build):
    # the order of declaration, which a copy does not keep, plays no part
    same_draws(build, lambda model: pickled(model.copy()))


@pytest.mark.calibrate  # other graphs, which are compiled
@pytest.mark.parametrize("transform", [freeze_dims_and_data, do_and_observe])
@pytest.mark.parametrize("build", [records, totals, statistics, holders])
def test_the_draws_are_the_same_where_the_graph_is_not(build, transform):
    same_draws(build, transform)


def test_compiled_code_of_a_copy_is_found_on_disk(made_only):
    model = records()
    keys = [
        pmdp.RecordGibbs(model=each).blocks[0]._key()
        for each in (model, model.copy(), pickled(model))
    ]
    assert keys[0] is not None
    assert len(set(keys)) == 1


@pytest.mark.wide
def test_a_chain_starts_from_records_that_agree_with_exact_totals():
    model = totals()
    for start, released in [(model, [4, 1]), (model.copy(), [2, 2])]:
        with start:
            pm.set_data({"released": np.array(released)})
            found = draws(start)["x"].values
        assert np.all(np.stack([found == 0, found == 1], -1).sum(axis=-2) == released)
    with model:
        pm.set_data({"released": np.array([6, 4])})
        with pytest.raises(ValueError, match="cannot be those of 7 records of 'x'"):
            pmdp.RecordGibbs()


def test_a_step_does_not_outlive_the_number_of_its_records(made_only):
    with pm.Model() as model:
        n = pm.Data("n", np.array(4))
        x = pm.Normal("x", pm.Normal("mu", 0, 1), 1, shape=n)
        pmdp.Privatized("s", x.sum(), pmdp.Laplace(scale=1), observed=1.0)
        step = pmdp.RecordGibbs()
        pm.set_data({"n": np.array(3)})
        with pytest.raises(ValueError, match=r"'x' has the shape \(3,\), and had \(4,\)"):
            step.step(model.initial_point())
