import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.sampling.mcmc import assign_step_methods

import pymc_dp as pmdp


def test_a_full_explanation():
    with pm.Model() as model:
        mu = pm.Normal("mu")
        x = pm.Normal("x", mu, 1, shape=10)
        k = pm.Categorical("k", np.ones(3) / 3, shape=10)
        pm.Normal("seen", x, 1, observed=np.zeros(10))
        pmdp.Privatized("total", pmdp.clamp(x, -5, 5).sum(), pmdp.Gaussian(sigma=2), observed=1)
        counts = pt.eq(k[:, None], np.arange(3)).sum(0)
        pmdp.Privatized("counts", counts, pmdp.Laplace(scale=4), observed=[1, 2, 3])
    found = pmdp.explain(model)
    assert found.records == {"x": 10, "k": 10}
    assert found.steps == {"mu": "RecordGibbs", "x": "RecordGibbs", "k": "RecordGibbs"}
    assert found.other_terms == {"'x'": ["seen"]}
    text = repr(found)
    assert "one record adds clip(x, -5, 5)" in text
    assert "l1 2, l2 1.41421; so epsilon 0.5" in text
    assert "rho 12.5 (zCDP)" in text


def test_says_what_is_wrong():
    with pm.Model():
        x = pm.Normal("x", 0, 1, shape=10)
        pmdp.Privatized("v", x.var(), pmdp.Laplace(scale=1), observed=1)
        assert "'v' is not a sum over records" in repr(pmdp.explain())


def test_an_ordinary_likelihood():
    with pm.Model() as model:
        theta = pm.Normal("theta", shape=3)
        pmdp.Privatized("r", theta, pmdp.Laplace(scale=1), observed=[1, 2, 3])
    found = pmdp.explain(model)
    assert found.records == {}
    assert found.steps == {"theta": "NUTS"}
    assert "applied to every record of theta by itself" in repr(found)
    assert found.problems == []


def test_tables_of_counts():
    with pm.Model() as model:
        rate = pm.Gamma("rate", 2, 0.1)
        counts = pm.Poisson("counts", rate, shape=(2, 3))
        pmdp.Privatized("cells", counts, pmdp.DiscreteGaussian(sigma=2), observed=np.ones((2, 3)))
        pmdp.Privatized("rows", counts.sum(axis=1), pmdp.Exact(), observed=[4, 5])
    found = pmdp.explain(model)
    assert found.problems == []
    assert found.records == {}
    assert found.steps == {"rate": "CountGibbs", "counts": "CountGibbs"}
    assert "counts: 6 cells, moved with the parameters and by units" in repr(found)
    assert "rows: Exact() on 2 sums of cells of 'counts'" in repr(found)


def test_what_sampling_refuses_is_a_problem_and_the_advice_works():
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        x = pm.HurdlePoisson("x", p, 2.0, shape=6)
        pmdp.Privatized("r", pmdp.clamp(x, 0, 9).sum(), pmdp.Laplace(scale=4), observed=12)
        found = pmdp.explain()
        with pytest.raises(NotImplementedError) as refused:
            pmdp.RecordGibbs()
        assert found.problems == [str(refused.value)]
        assert "step=pm.Metropolis([x])" in found.problems[0]
        step = pm.Metropolis([x])
    _, others = assign_step_methods(model, step)
    [(gibbs, values)] = others.items()
    assert gibbs is pmdp.RecordGibbs
    assert [v.name for v in values] == ["p_logodds__"]
    assert pmdp.RecordGibbs.plan(values, model) == []
    assert "one record adds clip(x, 0, 9)" in repr(found)


def test_refusals_of_the_other_steps():
    with pm.Model():
        x = pmdp.regression.NormalMoments(0.0, 0.02)
        coef = pm.Normal("coef", shape=2)
        s = pmdp.RegressionStatistics("s", n=100, coef=coef, sigma2=1.0, x_moments=x)
        pmdp.Privatized("z", s**2, pmdp.Gaussian(sigma=1.0), observed=np.ones(5))
        [problem] = pmdp.explain().problems
    assert "is not linear in 's'" in problem
    with pm.Model():
        coef = pm.Normal("coef", shape=1)
        (one,) = pmdp.HolderStatistics("h", n=90, coef=coef, sigma2=1.0, cov_x=[[1.0]])
        pmdp.Privatized("r", one[:1], pmdp.Gaussian(sigma=9), observed=[80.0])
        [problem] = pmdp.explain().problems
    assert "Not every entry of 'h_z' was released" in problem


def test_a_release_without_records_is_no_problem():
    with pm.Model() as model:
        x = pm.MvNormal("x", np.zeros(3), np.eye(3))
        pmdp.Privatized("r", x.sum(), pmdp.Laplace(scale=1), observed=1)
    found = pmdp.explain(model)
    assert found.problems == []
    assert found.latent == {"r": "Laplace(scale=1.) on a function of x, an ordinary likelihood"}
