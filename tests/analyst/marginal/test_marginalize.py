"""The model around the records: what is kept, what goes, what is refused."""

from functools import cache

import numpy as np
import pymc as pm
import pytest

import pymc_dp as pmdp
from pymc_dp.analyst.marginal import sampling
from pymc_dp.analyst.marginal.start import find_mode, has_light_tails
from pymc_dp.analyst.marginal.strategy import integrated_out
from pymc_dp.graph.intervals import ONCE


def example(n=50, observed=20.0, **kwargs):
    with pm.Model(coords={"group": ["a", "b"], "person": range(n)}) as model:
        tau = pm.HalfNormal("tau", 2)
        mu = pm.Normal("mu", 0, tau)
        effect = pm.Normal("effect", mu, 1, dims="group")
        pm.Deterministic("double", 2 * effect, dims="group")
        pm.Potential("soft", -0.1 * effect.sum())
        pm.Normal("other", effect, 1, observed=[0.5, 1.0], dims="group")
        x = pm.Normal("x", mu, 1, dims="person")
        if observed is not None:
            observed = pm.Data("release_data", observed)
        pmdp.Privatized("released", x.sum(), pmdp.Gaussian(sigma=3), observed=observed)
    return model


def test_keeps_all_but_the_records():
    model = example()
    before = [list(part) for part in (model.free_RVs, model.observed_RVs, model.named_vars)]
    small = pmdp.marginalize(model)
    assert [list(p) for p in (model.free_RVs, model.observed_RVs, model.named_vars)] == before
    assert set(small.named_vars) == set(model.named_vars) - {"x"}
    assert small.coords == model.coords
    assert tuple(small.named_vars_to_dims["effect"]) == ("group",)
    assert {rv.name for rv in small.observed_RVs} == {"other", "released"}
    assert not set(small.named_vars.values()) & set(model.named_vars.values())
    with small:
        pm.set_data({"release_data": 30.0})
    assert model["release_data"].get_value() == 20.0


def test_density_is_that_of_the_sum():
    small = pmdp.marginalize(example())
    point = small.initial_point() | {"mu": np.array(0.3)}
    logp = small.compile_logp(vars=[small["released"]], mode=ONCE)(point)
    expected = pm.logp(pm.Normal.dist(50 * 0.3, np.sqrt(50 + 9)), 20.0).eval(mode=ONCE)
    np.testing.assert_allclose(logp, expected)


def test_copies_know_what_was_integrated_out():
    small = pmdp.marginalize(example())
    for copy in (small, small.copy(), pm.do(small, {"tau": 1.0})):
        assert integrated_out(copy)["released"].records == ("x",)
        assert integrated_out(copy)["released"].n == 50


def test_release_without_a_value_stays_free():
    small = pmdp.marginalize(example(observed=None))
    assert "released" in [rv.name for rv in small.free_RVs]
    drawn = pm.draw(small["released"], 5, random_seed=1, mode=ONCE)
    assert np.isfinite(drawn).all()


def test_initial_values_are_kept():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1, initval=0.7)
        x = pm.Normal("x", mu, 1, shape=5)
        pmdp.Privatized("released", x.sum(), pmdp.Gaussian(sigma=3), observed=1.0)
    assert pmdp.marginalize(model).initial_point()["mu"] == 0.7
    assert model.initial_point()["mu"] == 0.7


def test_deterministics_of_records_go_too(caplog):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        x = pm.Normal("x", mu, 1, shape=5)
        pm.Deterministic("total", x.sum())
        pmdp.Privatized("released", x.sum(), pmdp.Gaussian(sigma=3), observed=1.0)
    assert "total" not in pmdp.marginalize(model).named_vars
    assert "'total'" in caplog.text


def test_refuses_models_without_records():
    with pm.Model() as model:
        pm.Normal("mu", 0, 1)
    with pytest.raises(ValueError, match="nothing to integrate out"):
        pmdp.marginalize(model)


def test_refuses_records_that_other_terms_use():
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1, shape=5)
        pm.Normal("y", x, 1, observed=np.zeros(5))
        pm.Potential("p", x.sum())
        pmdp.Privatized("released", x.sum(), pmdp.Gaussian(sigma=3), observed=1.0)
    with pytest.raises(ValueError, match="'y', 'p' depends on the records 'x'"):
        pmdp.marginalize(model)


def test_refuses_unknown_methods_and_variables():
    model = example()
    with pytest.raises(ValueError, match="method='magic' is not a way"):
        pmdp.marginalize(model, method="magic")
    with pytest.raises(ValueError, match="not a latent variable"):
        pmdp.marginalize(model, [model["other"]])


@cache
def of_shares(number):
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1, shape=number)
        x = pm.Bernoulli("x", p[np.arange(160) % number], shape=160)
        coin = pmdp.RandomizedResponse(2, keep=0.8)
        pmdp.Privatized("reports", x, coin, observed=np.arange(160) % 2)
    return pmdp.marginalize(model, method="exact")


NEW, OLD = {"adaptation", "check_turning"}, set()
SHORT = {"check_turning": False, "maxdepth": 2}


@pytest.mark.parametrize(
    ("groups", "known", "asked"),
    [
        (1, NEW, SHORT),
        (1, OLD, {}),
        (3, NEW, {"adaptation": "low_rank"}),
        (3, OLD, {}),
        (80, NEW, {}),
    ],
)
def test_settings_of_nutpie_for_models_of_few_parameters(groups, known, asked, monkeypatch):
    small, told = of_shares(groups), {}
    monkeypatch.setattr(sampling, "nutpie_takes", known.__contains__)
    monkeypatch.setattr(sampling, "_compiled", lambda *args: {})  # nothing is sampled
    monkeypatch.setattr(pm, "sample", lambda draws, **kwargs: told.update(kwargs))
    for name in ("nuts", "nuts_sampler_kwargs"):  # PyMC's earlier name
        pmdp.sample(model=small, nuts_sampler="nutpie", **{name: {"target_accept": 0.9}})
        assert told["nuts"] == asked | {"target_accept": 0.9}
        assert "nuts_sampler_kwargs" not in told
    for mine in ({"adaptation": "diag"}, {"maxdepth": 5}, {"check_turning": True}):
        kept = {} if (asked == SHORT) == (mine != {"adaptation": "diag"}) else asked
        assert sampling.nutpie_settings(small, mine) == kept | mine
    monkeypatch.setattr(sampling, "find_spec", lambda name: name)  # it is installed
    for other in ({"nuts_sampler": "pymc"}, {"callback": print}, {"init": "adapt_full"}):
        told.clear()
        pmdp.sample(model=small, **other)
        assert "nuts" not in told


@pytest.mark.parametrize(
    ("make", "light"),
    [
        (lambda: pm.Normal("x", 3, 0.01), True),
        (lambda: pm.Gumbel("x", 0, 1), True),
        (lambda: pm.Beta("x", 2, 3), True),
        (lambda: pm.Cauchy("x", 0, 1), False),
        (lambda: pm.Cauchy("x", 0, 1, shape=1), False),
    ],
)
def test_which_densities_fall_off(make, light):
    with pm.Model() as model:
        make()
    assert has_light_tails(model, find_mode(model)) is light
    settings = sampling.nutpie_settings
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sampling, "nutpie_takes", NEW.__contains__)
        assert settings(model, {}) == (SHORT if light else {})
