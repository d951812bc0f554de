"""Models in single precision are refused in words, and nothing is compiled before."""

import numpy as np
import pymc as pm
import pytensor
import pytest

import pymc_dp as pmdp


@pytest.fixture
def single():
    with pytensor.config.change_flags(floatX="float32"):
        with pm.Model() as model:
            mu = pm.Normal("mu", 1000, 10)
            x = pm.Normal("x", mu, 1, shape=30)
            total = pmdp.clamp(x, 900, 1100).sum()
            pmdp.Privatized("t", total, pmdp.Laplace(scale=20), observed=30125.0)
        yield model


def test_records_in_single_precision_are_refused(single):
    words = r"'mu' is in single precision \(float32\).*floatX = \"float64\""
    with pytest.raises(NotImplementedError, match=words), single:
        pmdp.sample(10, tune=10, progressbar=False)
    assert any("single precision" in problem for problem in pmdp.explain(single).problems)


def test_so_are_marginal_models(single):
    with pytest.raises(NotImplementedError, match=r"'x' is in single precision \(float32\)"):
        pmdp.marginalize(single)


def test_double_precision_is_none_of_it():
    with pm.Model() as model:
        mu = pm.Normal("mu", 1000, 10)
        x = pm.Normal("x", mu, 1, shape=30)
        pmdp.Privatized("t", x.sum(), pmdp.Laplace(scale=20), observed=np.float32(30125.0))
    assert not pmdp.explain(model).problems


def test_so_are_tables_of_counts():
    with pytensor.config.change_flags(floatX="float32"), pm.Model() as model:
        x = pm.Bernoulli("x", pm.Beta("p", 1, 1), shape=30)
        pmdp.Privatized("t", x.sum(), pmdp.Laplace(scale=2), observed=12.5)
        with pytest.raises(NotImplementedError, match=r"'p' is in single precision"):
            pmdp.marginalize(model, method="counts")
