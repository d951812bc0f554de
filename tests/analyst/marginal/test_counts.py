"""Tables of counts against the records that they stand for."""

import itertools

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.special import logsumexp

import pymc_dp as pmdp
from pymc_dp.analyst.marginal.counts import tables as counts_module
from pymc_dp.graph.intervals import ONCE


def one_hot(x, k):
    return pt.eq(x[..., None], np.arange(k))


def classes(n=4, observed=(1.5, 2.2), **kwargs):
    """Class and, given the class, two features; one of them is never released with the class."""
    with pm.Model() as model:
        p = pm.Beta("p", 2, 1)
        px = pm.Dirichlet("px", np.ones((2, 2, 3)))
        y = pm.Bernoulli("y", p, shape=n)
        x = pm.Categorical("x", px[y], shape=(n, 2))
        together = (y[:, None] * one_hot(x[:, 0], 3)).sum(0)
        pmdp.Privatized("together", together, pmdp.Laplace(scale=2), observed=[0.3, 1.9, -0.4])
        second = 2 * pt.eq(x[:, 1], 2).sum() + 1
        pmdp.Privatized("second", second, pmdp.DiscreteGaussian(sigma=2), observed=4)
    return model


def covariates(n=4):
    """A small count, whose success depends on a public covariate, and an answer that needs it."""
    dose = np.array([0.0, 1.0, 0.0, 2.0])[:n]
    with pm.Model() as model:
        a, b = pm.Normal("a"), pm.Normal("b")
        k = pm.Binomial("k", 2, pm.math.invlogit(a + b * dose), shape=n)
        z = pm.Bernoulli("z", logit_p=0.5 * k - a, shape=n)
        pmdp.Privatized("weighted", (k * dose).sum(), pmdp.Laplace(scale=1.5), observed=2.4)
        pmdp.Privatized("both", (k * z).sum(), pmdp.Gaussian(sigma=1), observed=1.1)
    return model


def with_zeros(n=4):
    """Uniform values and a category that is impossible for some of them."""
    with pm.Model() as model:
        r = pm.Beta("r", 1, 1)
        u = pm.DiscreteUniform("u", 1, 3, shape=n)
        shares = pt.stack(
            [pt.stack([r, 1 - r, 0.0 * r]), pt.stack([r / 2, 0.5 + 0 * r, (1 - r) / 2])]
        )
        v = pm.Categorical("v", shares[pt.eq(u, 2).astype("int64")], shape=n)
        pmdp.Privatized(
            "sums",
            pt.stack([u.sum(), (u * v).sum()]),
            pmdp.DiscreteLaplace(scale=1),
            observed=[8, 5],
        )
    return model


def all_values(rv):
    """Every table of records that a variable may have."""
    values = {"y": 2, "z": 2, "k": 3, "x": 3, "v": 3, "u": 3}[rv.name]
    low = 1 if rv.name == "u" else 0
    shape = rv.type.shape
    for flat in itertools.product(range(low, low + values), repeat=int(np.prod(shape))):
        yield np.reshape(flat, shape)


def summed_over_records(model, points):
    """Log-density of parameters and releases, records summed out."""
    records = [rv for rv in model.free_RVs if rv.dtype == "int64"]
    logp = model.compile_logp(mode=ONCE)
    total = [[] for _ in points]
    for combined in itertools.product(*(all_values(rv) for rv in records)):
        values = dict(zip([rv.name for rv in records], combined, strict=True))
        for i, point in enumerate(points):
            total[i].append(logp({**point, **values}))
    return np.array([logsumexp(t) for t in total])


def compositions(n, cells):
    """Every way to put n records into cells."""
    for bars in itertools.combinations(range(n + cells - 1), cells - 1):
        yield np.diff([-1, *bars, n + cells - 1]) - 1


def summed_over_tables(small, points):
    [counts] = [rv for rv in small.free_RVs if rv.dtype == "int64"]
    shape = counts.type.shape
    sizes = np.atleast_1d(counts.owner.inputs[-2].data)
    logp = small.compile_logp(mode=ONCE)
    total = [[] for _ in points]
    for rows in itertools.product(*(compositions(n, shape[-1]) for n in sizes)):
        for i, point in enumerate(points):
            total[i].append(logp({**point, counts.name: np.reshape(rows, shape)}))
    return np.array([logsumexp(t) for t in total])


def places(model):
    """Points unlike each other, without discrete values."""
    rng = np.random.default_rng(1)
    start = model.initial_point()
    names = [name for name, value in start.items() if value.dtype != "int64"]
    return [{k: start[k] + rng.normal(size=start[k].shape) for k in names} for _ in range(2)]


@pytest.mark.parametrize(
    ("build", "n", "shape"),
    [(classes, 2, (8,)), (covariates, 4, (3, 5)), (with_zeros, 3, (7,))],
)
def test_density_is_that_of_the_records_summed_out(build, n, shape, monkeypatch):
    """Over all tables and over all records: equal."""
    monkeypatch.setattr(counts_module, "SAVED_BY_MERGING", 1)
    model = build(n)
    small = pmdp.marginalize(model, method="counts")
    [counts] = [rv for rv in small.free_RVs if rv.dtype == "int64"]
    assert counts.type.shape == shape
    points = places(model)
    np.testing.assert_allclose(
        summed_over_tables(small, points), summed_over_records(model, points), rtol=1e-10
    )


def test_states_apart_have_the_same_density():
    """Few states that releases do not tell apart stay."""
    model = covariates(2)
    small = pmdp.marginalize(model, method="counts")
    assert small["k_z_counts"].type.shape == (2, 6)
    points = places(model)
    np.testing.assert_allclose(
        summed_over_tables(small, points), summed_over_records(model, points), rtol=1e-10
    )
