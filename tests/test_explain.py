import numpy as np
import pymc as pm
import pytensor.tensor as pt

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
