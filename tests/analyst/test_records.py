"""Blocks of records, what depends on them, and models that are refused."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.sampling.mcmc import assign_step_methods

import pymc_dp as pmdp
from pymc_dp.analyst.records import record_blocks, record_variables
from pymc_dp.graph.additivity import NotAdditiveError

LAPLACE = pmdp.Laplace(scale=1)


def blocks_of(model):
    return [
        ([rv.name for rv in block.records], [r.name for r in block.releases], sorted(block.factors))
        for block in record_blocks(model, record_variables(model))
    ]


def test_parents_and_children_of_one_record_form_a_block():
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        x = pm.MvNormal("x", np.zeros(2), np.eye(2), shape=(9, 2))
        y = pm.Normal("y", x @ beta, 1, shape=9)
        pmdp.Privatized("xy", x.T @ y, LAPLACE, observed=[1, 2])
        pmdp.Privatized("yy", y @ y, LAPLACE, observed=1)
    assert blocks_of(model) == [(["x", "y"], ["xy", "yy"], [])]


def test_tables_that_nothing_links_are_apart():
    with pm.Model() as model:
        mu = pm.Normal("mu")
        a = pm.Normal("a", mu, 1, shape=3)
        b = pm.Normal("b", mu, 1, shape=4)
        pmdp.Privatized("sa", a.sum(), LAPLACE, observed=1)
        pmdp.Privatized("sb", b.sum(), LAPLACE, observed=1)
    assert blocks_of(model) == [(["a"], ["sa"], []), (["b"], ["sb"], [])]


def test_other_terms_are_found():
    with pm.Model() as model:
        mu = pm.Normal("mu")
        x = pm.Normal("x", mu, 1, shape=3)
        pm.Normal("seen", x, 1, observed=np.zeros(3))
        pm.Uniform("child", 0, pt.exp(x), shape=3)
        pm.Normal("elsewhere", mu, 1)
        pm.Potential("pull", (x**2).sum())
        pmdp.Privatized("s", x.sum(), LAPLACE, observed=1)
    assert blocks_of(model) == [(["x"], ["s"], ["child", "pull", "seen"])]


def test_deterministics_and_scalars_are_not_records():
    with pm.Model() as model:
        offset = pm.Normal("offset")
        x = pm.Normal("x", 0, 1, shape=3)
        shifted = pm.Deterministic("shifted", pmdp.clamp(x, -1, 1) + 1)
        pmdp.Privatized("s", shifted.sum() + offset, LAPLACE, observed=1)
    assert blocks_of(model) == [(["x"], ["s"], [])]


def test_dims_instead_of_shape(made_only):
    with pm.Model(coords={"person": range(6)}) as model:
        x = pm.Normal("x", 0, 1, dims="person")
        y = pm.Bernoulli("y", logit_p=x, dims="person")
        pmdp.Privatized("s", (pmdp.clamp(x, -1, 1) * y).sum(), LAPLACE, observed=1)
        pmdp.RecordGibbs()
    assert blocks_of(model) == [(["x", "y"], ["s"], [])]


def steps_of(build):
    with pm.Model() as model:
        build()
    _, chosen = assign_step_methods(model)
    names = {value: cls.__name__ for cls, values in chosen.items() for value in values}
    return {rv.name: names[model.rvs_to_values[rv]] for rv in model.free_RVs}


def test_counts_with_noise_on_each():
    def build():
        x = pm.Poisson("x", pm.Gamma("rate", 2, 0.1), shape=4)
        pmdp.Privatized("s", x, pmdp.DiscreteGaussian(sigma=3), observed=[3, 12, -2, 25])

    assert steps_of(build) == {"rate": "CountGibbs", "x": "CountGibbs"}


def test_counts_of_which_noisy_sums_alone_are_known_are_records():
    def build():
        x = pm.Poisson("x", pm.Gamma("rate", 2, 0.1), shape=4)
        pmdp.Privatized("s", x.sum(), pmdp.DiscreteGaussian(sigma=3), observed=30)

    assert steps_of(build) == {"rate": "RecordGibbs", "x": "RecordGibbs"}


@pytest.mark.parametrize("statistic", [lambda x: x.clip(-5, 5), lambda x: pt.switch(x > 0, x, 0)])
@pytest.mark.parametrize("mechanism", [pmdp.Gaussian(sigma=3), pmdp.Laplace(scale=3)])
def test_clamped_records_with_noise_on_each(statistic, mechanism):
    def build():
        x = pm.Normal("x", 0, 3, shape=4)
        pmdp.Privatized("s", statistic(x), mechanism, observed=np.ones(4))

    assert steps_of(build) == {"x": "RecordGibbs"}


@pytest.mark.parametrize(
    ("latent", "mechanism", "step"),
    [
        (True, pmdp.Gaussian(sigma=3), "NUTS"),
        (False, pmdp.Gaussian(sigma=3), "NUTS"),
        (True, pmdp.Laplace(scale=3), "RecordGibbs"),
        (False, pmdp.Laplace(scale=3), "NUTS"),
    ],
)
def test_smooth_statistics_with_noise_on_each(latent, mechanism, step):
    def build():
        mu = pm.Normal("mu") if latent else 0.0
        x = pm.Normal("x", mu, 1, shape=4)
        pmdp.Privatized("s", 2 * x + 1, mechanism, observed=np.ones(4))

    assert set(steps_of(build).values()) == {step}


def refused(build, error=ValueError):
    with pm.Model() as model:
        build()
        with pytest.raises(error) as caught:
            record_blocks(model, record_variables(model))
    return str(caught.value)


def test_statistic_that_is_not_a_sum():
    message = refused(
        lambda: pmdp.Privatized("s", pm.Normal("x", 0, 1, shape=5).var(), LAPLACE, observed=1),
        NotAdditiveError,
    )
    assert "'s'" in message
    assert "pm.NUTS()" in message


def test_record_axes_of_different_lengths():
    def build():
        x, y = pm.Normal("x", 0, 1, shape=5), pm.Normal("y", 0, 1, shape=6)
        pmdp.Privatized("s", x.sum() + y.sum(), LAPLACE, observed=1)

    message = refused(build)
    assert "'x' has 5, 'y' has 6" in message
    assert "step=[pmdp.RecordGibbs([x]), pmdp.RecordGibbs([y])]" in message


def test_rows_that_depend_on_other_rows():
    def build():
        x = pm.Normal("x", 0, 1, shape=5)
        y = pm.Normal("y", x.mean(), 1, shape=5)
        pmdp.Privatized("s", (x * y).sum(), LAPLACE, observed=1)

    assert "row i only" in refused(build, NotAdditiveError)


def test_another_term_that_mixes_records():
    def build():
        x = pm.Normal("x", 0, 1, shape=5)
        pm.Normal("z", x.sum() ** 2, 1, observed=0)
        pmdp.Privatized("s", x.sum(), LAPLACE, observed=1)

    message = refused(build, NotAdditiveError)
    assert "'z'" in message
    assert "'x'" in message


def test_one_multivariate_draw_is_not_a_table():
    with pm.Model() as model:
        x = pm.MvNormal("x", np.zeros(3), np.eye(3))
        pmdp.Privatized("s", x.sum(), LAPLACE, observed=1)
        assert record_variables(model) == []
        with pytest.raises(ValueError, match="one record a row"):
            pmdp.RecordGibbs([x])


def test_records_with_a_transform_of_their_own_are_refused():
    with pm.Model() as model:
        bounded = pm.distributions.transforms.Interval(0, 2)
        x = pm.Normal("x", 1, 1, shape=3, transform=bounded)
        pmdp.Privatized("s", x.sum(), LAPLACE, observed=1.0)
    with pytest.raises(ValueError, match=r"'x' has a transform .* pm\.Truncated"):
        pmdp.RecordGibbs(model=model)
    assert "transform" in pmdp.explain(model).problems[0]
