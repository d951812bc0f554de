"""What is wrong with a table is said before anything is compiled."""

import numpy as np
import pymc as pm
import pytest

import pymc_dp as pmdp
from pymc_dp.analyst.count_gibbs.noise import ReleasedComponents


def table():
    return pm.Poisson("c", 2.0, shape=(2, 3))


REFUSED = {
    "another shape": (
        lambda c: (c, pmdp.DiscreteLaplace(scale=2), [1, 2, 3]),
        r"'r' has shape \(3,\).*shape \(2, 3\)",
    ),
    "negative total": (
        lambda c: (c.sum(), pmdp.Exact(), -3),
        "exact total -3 in 'r'.*at least 0[.]",
    ),
    "fractional total": (lambda c: (c.sum(), pmdp.Exact(), 3.5), "'r'.*whole numbers"),
    "weights": (
        lambda c: ((c * 0.5).sum().astype("int64"), pmdp.Exact(), 3),
        "'r' was released exactly",
    ),
    "fractions under integer noise": (
        lambda c: (c, pmdp.DiscreteGaussian(sigma=2), np.full((2, 3), 0.5)),
        "'r'.*whole numbers",
    ),
    "integer noise on amounts": (
        lambda c: (c / 2, pmdp.DiscreteGaussian(sigma=2), np.ones((2, 3))),
        "'r' has type float64",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_releases_that_cannot_be(name):
    build, message = REFUSED[name]
    with pm.Model():
        statistic, mechanism, observed = build(table())
        with pytest.raises(ValueError, match=message):
            pmdp.Privatized("r", statistic, mechanism, observed=observed)


def test_maps_with_the_wrong_number_of_columns():
    with pm.Model():
        c = pm.Poisson("c", 2.0, shape=6)
        with pytest.raises(ValueError, match=r"columns|shape|dimension"):
            np.ones((2, 5)) @ c


def test_real_noise_that_gave_whole_numbers(caplog):
    with pm.Model() as model:
        c = pm.Poisson("c", 2.0, shape=3)
        pmdp.Privatized("r", c, pmdp.Laplace(scale=2), observed=[1, 4, 2])
        pmdp.Privatized("s", c, pmdp.Laplace(scale=2).rounded(), observed=[1, 4, 2])
        pmdp.Privatized("t", c, pmdp.Laplace(scale=2), observed=[1.5, 4, 2])
    ReleasedComponents(model, pmdp.CountGibbs.plan(None, model)).tell_of_rounding()
    assert [record.args[0] for record in caplog.records] == ["r"]
    assert "write .rounded()" in caplog.text


def test_totals_beyond_the_support():
    with pm.Model():
        c = pm.Binomial("c", 4, 0.5, shape=3)
        with pytest.raises(ValueError, match=r"exact total 13 in 'r'.*at most 12"):
            pmdp.Privatized("r", c.sum(), pmdp.Exact(), observed=13)


def test_totals_that_contradict_each_other_are_named():
    with pm.Model() as model:
        c = table()
        pmdp.Privatized("rows", c.sum(axis=1), pmdp.Exact(), observed=[4, 5])
        pmdp.Privatized("columns", c.sum(axis=0), pmdp.Exact(), observed=[4, 5, 1])
        pmdp.Privatized("first", c[0, 0], pmdp.Exact(), observed=2)
        with pytest.raises(ValueError, match="'columns' and 'rows' contradict each other"):
            pmdp.CountGibbs()
        assert "contradict" in pmdp.explain(model).problems[0]


def test_contradictions_with_what_laws_say():
    with pm.Model():
        c = pm.Multinomial("c", 10, np.ones(3) / 3)
        pmdp.Privatized("total", c.sum(), pmdp.Exact(), observed=11)
        with pytest.raises(ValueError, match="n of 'c' and 'total' contradict"):
            pmdp.CountGibbs()


def test_models_without_cells():
    with pm.Model():
        x = pm.Normal("x", shape=3)
        pmdp.Privatized("r", x.sum(), pmdp.Laplace(scale=1), observed=0.0)
        with pytest.raises(ValueError, match="CountGibbs samples latent counts"):
            pmdp.CountGibbs()
    with pm.Model():
        c, other = table(), pm.Normal("other")
        pmdp.Privatized("r", c, pmdp.Laplace(scale=1), observed=np.ones((2, 3)))
        with pytest.raises(ValueError, match="'other' is neither"):
            pmdp.CountGibbs([c, other])
