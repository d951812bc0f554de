"""Noise on every record: densities by enumeration and quadrature, gradients, predictive draws."""

import itertools

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import integrate, special, stats

import pymc_dp as pmdp
from pymc_dp.analyst.marginal.strategy import integrated_out
from pymc_dp.graph.intervals import ONCE


def log_likelihood(small, name, point):
    """Log-density of every record's release, and the gradient of its sum by each parameter."""
    [logp] = small.logp(vars=[small[name]], sum=False)
    values = [small.rvs_to_values[small[key]] for key in point]
    grads = pytensor.grad(logp.sum(), values)
    return pytensor.function(values, [logp, *grads], mode=ONCE, on_unused_input="ignore")


def assert_gradients(fn, point, step=1e-6):
    """Compare gradients with finite differences."""
    at = [np.asarray(value, float) for value in point.values()]
    found = fn(*at)[1:]
    for which, value in enumerate(at):
        for place in np.ndindex(value.shape):
            ends = []
            for sign in (1, -1):
                moved = [v.copy() for v in at]
                moved[which][place] += sign * step
                ends.append(fn(*moved)[0].sum())
            np.testing.assert_allclose(
                found[which][place], (ends[0] - ends[1]) / (2 * step), rtol=2e-5, atol=2e-5
            )


def test_categories_with_covariates():
    rng = np.random.default_rng(1)
    n = 30
    X, coin = rng.normal(size=(n, 2)), pmdp.RandomizedResponse(3, keep=0.7)
    reports = rng.integers(3, size=n)
    with pm.Model() as model:
        b = pm.Normal("b", 0, 2, shape=(2, 3))
        x = pm.Categorical("x", logit_p=X @ b, shape=n)
        pmdp.Privatized("r", x, coin, observed=reports)
    small = pmdp.marginalize(model)
    assert [rv.name for rv in small.free_RVs] == ["b"]
    assert "summed over 3 values" in str(integrated_out(small)["r"])
    point = {"b": rng.normal(size=(2, 3))}
    fn = log_likelihood(small, "r", point)
    p = special.softmax(X @ point["b"], axis=1)
    expected = np.log((p * coin.matrix[:, reports].T).sum(axis=1))
    np.testing.assert_allclose(fn(*point.values())[0], expected, rtol=1e-12)
    assert_gradients(fn, point)


def test_two_variables_released_apart():
    rng = np.random.default_rng(2)
    n = 40
    first, second = pmdp.RandomizedResponse(2, keep=0.8), pmdp.Laplace(scale=0.7)
    reports, noisy = rng.integers(2, size=n), rng.normal(size=n)
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        q = pm.Beta("q", 1, 1, shape=2)
        x = pm.Bernoulli("x", p, shape=n)
        y = pm.Binomial("y", 3, q[x], shape=n)
        pmdp.Privatized("rx", x, first, observed=reports)
        pmdp.Privatized("ry", y, second, observed=noisy)
    small = pmdp.marginalize(model)
    assert {rv.name for rv in small.free_RVs} == {"p", "q"}
    at = {"p": 0.3, "q": np.array([0.2, 0.6])}
    total = 0
    for a, b in itertools.product(range(2), range(4)):
        law = stats.bernoulli.pmf(a, 0.3) * stats.binom.pmf(b, 3, at["q"][a])
        total = total + law * first.matrix[a, reports] * stats.laplace.pdf(noisy, b, 0.7)
    values = {name: special.logit(value) for name, value in at.items()}
    names = [f"{name}_logodds__" for name in values]
    logp = small.compile_logp(vars=small.observed_RVs, mode=ONCE, sum=True)
    np.testing.assert_allclose(
        logp(dict(zip(names, values.values(), strict=True))), np.log(total).sum(), rtol=1e-12
    )
    both = small.compile_logp(mode=ONCE)(dict(zip(names, values.values(), strict=True)))
    assert np.isfinite(both)


def test_tables_of_several_columns():
    rng = np.random.default_rng(3)
    coin = pmdp.RandomizedResponse(2, keep=0.8)
    reports = rng.integers(2, size=(20, 3))
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1, shape=3)
        x = pm.Bernoulli("x", p, shape=(20, 3))
        pmdp.Privatized("r", x, coin, observed=reports)
    small = pmdp.marginalize(model)
    p = np.array([0.2, 0.5, 0.9])
    fn = log_likelihood(small, "r", {"p": p})
    given = special.logit(p)
    each = p * coin.matrix[1, reports] + (1 - p) * coin.matrix[0, reports]
    np.testing.assert_allclose(fn(given)[0], np.log(each).sum(axis=1), rtol=1e-12)


@pytest.mark.parametrize("n", [1, 3, 200])
def test_alike_rows_are_counted_once(n):
    rng = np.random.default_rng(4)
    group, reports = rng.integers(2, size=n), rng.integers(2, size=n)
    coin = pmdp.RandomizedResponse(2, keep=0.8)
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1, shape=2)
        x = pm.Bernoulli("x", logit_p=a[group], shape=n)
        pmdp.Privatized("r", x, coin, observed=reports)
    small = pmdp.marginalize(model)
    point = {"a": np.array([0.4, -1.2])}
    fn = log_likelihood(small, "r", point)
    p = special.expit(point["a"])[group]
    expected = np.log(p * coin.matrix[1, reports] + (1 - p) * coin.matrix[0, reports])
    np.testing.assert_allclose(fn(*point.values())[0], expected, rtol=1e-12)
    assert_gradients(fn, point)
    if n == 200:
        [logp] = small.logp(vars=[small["r"]], sum=False)
        assert logp.owner.inputs[0].type.shape == (4,)


def test_rows_of_latent_vectors_are_not_counted_once():
    n = 50
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1, shape=n)
        x = pm.Bernoulli("x", logit_p=a, shape=n)
        pmdp.Privatized("r", x, pmdp.RandomizedResponse(2, keep=0.8), observed=np.ones(n, int))
    fn = log_likelihood(pmdp.marginalize(model), "r", {"a": None})
    at = np.linspace(-2, 2, n)
    p = special.expit(at)
    np.testing.assert_allclose(fn(at)[0], np.log(0.8 * p + 0.2 * (1 - p)), rtol=1e-12)


def test_release_in_data_can_change():
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        x = pm.Bernoulli("x", p, shape=6)
        reports = pm.Data("reports", np.ones(6, int))
        pmdp.Privatized("r", x, pmdp.RandomizedResponse(2, keep=0.8), observed=reports)
    small = pmdp.marginalize(model)
    fn = small.compile_logp(vars=[small["r"]], mode=ONCE)
    at = {"p_logodds__": np.array(special.logit(0.3))}
    np.testing.assert_allclose(fn(at), 6 * np.log(0.3 * 0.8 + 0.7 * 0.2))
    with small:
        pm.set_data({"reports": np.zeros(6, int)})
    np.testing.assert_allclose(fn(at), 6 * np.log(0.3 * 0.2 + 0.7 * 0.8))
