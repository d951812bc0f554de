"""Loops for densities of Gram matrices: values and derivatives are those of their graphs."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import pymc_dp as pmdp
from pymc_dp.analyst.marginal.regression.density_graphs import log_determinants, log_released
from pymc_dp.analyst.regression.normal_x.gram_graph import (
    gram_matrices,
    residuals,
    standardised_entries,
)
from pymc_dp.compat import inline_ofg_node
from pymc_dp.graph.intervals import ONCE
from tests.analyst.marginal.test_regression import holders

J, P = 3, 4


def grams(rng):
    A = rng.normal(size=(J, P, 2 * P))
    return A @ A.transpose(0, 2, 1)


def slopes_of_kernel_and_graph(value, arguments, smooth):
    """Value and derivatives by the loop, and by the graph that it stands for."""
    node = value.owner
    expected = [graph.eval(mode=ONCE) for graph in inline_ofg_node(node)]
    return node.op.kernel(*arguments)[: 1 + smooth], expected[: 1 + smooth]


def assert_same(found, expected):
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-12)
    for one, other in zip(found[1:], expected[1:], strict=True):
        one, other = np.asarray(one), np.asarray(other)
        if one.ndim == 3:  # matrices are symmetric: only the sum of both halves is defined
            one, other = (a + a.transpose(0, 2, 1) for a in (one, other))
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("first", [0, 1])
def test_log_determinants(first):
    rng = np.random.default_rng(1)
    S, prior = grams(rng), np.diag(rng.uniform(1, 2, P))
    value = log_determinants(
        pt.as_tensor(S), prior, pt.as_tensor(rng.normal(size=J)), pt.as_tensor(2.5), first
    )
    arguments = [each.eval(mode=ONCE) for each in value.owner.inputs]
    assert_same(*slopes_of_kernel_and_graph(value, arguments, 3))
    whole = prior + S.sum(axis=0)
    expected = arguments[1] @ np.linalg.slogdet(S)[1]
    expected -= 2.5 * (np.linalg.slogdet(whole)[1] - first * np.log(whole[-1, -1]))
    np.testing.assert_allclose(value.eval(mode=ONCE), expected, rtol=1e-12)


@pytest.mark.parametrize("laplace", [0.0, 1.0])
def test_log_released(laplace):
    rng = np.random.default_rng(2)
    place = np.arange(J * P * P)[:: P + 1]
    some = rng.uniform(1, 2, place.size)
    entries = (place, 10 * some, some, np.where(np.arange(place.size) % 2, laplace, 0.0))
    given = [grams(rng), rng.normal(size=P), np.array(0.7), rng.uniform(1, 2, (J, P))]
    hat = rng.normal(size=(J, P))
    value = log_released(*map(pt.as_tensor, given), pt.as_tensor(hat), entries)
    assert_same(*slopes_of_kernel_and_graph(value, [*given, hat, *entries], 4))


def test_matrices_that_are_none_have_no_density():
    S = np.stack([np.eye(2), -np.eye(2)])
    value = log_determinants(
        pt.as_tensor(S), np.eye(2), pt.as_tensor(np.ones(2)), pt.as_tensor(1.0), 0
    )
    assert value.eval(mode=ONCE) == -np.inf
    nothing = (np.zeros(0, dtype=int), np.zeros(0), np.zeros(0), np.zeros(0))
    given = [S, np.zeros(2), np.array(9.0), np.ones((2, 2)), np.zeros((2, 2))]
    assert log_released(*map(pt.as_tensor, given), nothing).eval(mode=ONCE) == -np.inf


@pytest.mark.parametrize("first", [0, 1])
def test_gram_matrices_and_their_derivatives(first):
    rng = np.random.default_rng(3)
    size = J * (P * (P + 1) // 2 - first)
    value, n = pt.dvector("value"), pt.dvector("n")
    R = pt.matrix("R", dtype="float64", shape=(P, P))
    S = gram_matrices(value, pt.specify_shape(n, (J,)), R, J, P, first)
    weights = rng.normal(size=(J, P, P))
    total = (S * weights).sum()
    at = {
        value: rng.normal(size=size),
        n: rng.uniform(50, 90, J),
        R: np.tril(rng.uniform(0.5, 1.5, (P, P))),
    }
    if first:
        at[R][0, 0], at[R][0, 1:] = 1.0, 0.0
    evaluate = pytensor.function(list(at), [S, total, *pt.grad(total, list(at))], mode=ONCE)
    found, _, *slopes = evaluate(*at.values())
    np.testing.assert_allclose(found, found.transpose(0, 2, 1))
    if first:
        np.testing.assert_allclose(found[:, -1, -1], at[n])
    # against the graph, and slopes by differences
    [graph] = inline_ofg_node(S.owner)
    np.testing.assert_allclose(found, graph.eval(at, mode=ONCE), rtol=1e-12)
    back = standardised_entries(S, pt.specify_shape(n, (J,)), R, J, P, first)
    np.testing.assert_allclose(back.eval(at, mode=ONCE), at[value], rtol=1e-8, atol=1e-8)
    [graph] = inline_ofg_node(back.owner)
    np.testing.assert_allclose(graph.eval(at, mode=ONCE), at[value], rtol=1e-8, atol=1e-8)
    for k, var in enumerate(at):
        for place in np.ndindex(at[var].shape):
            if var is R and place[0] < place[1]:
                continue
            moved = []
            for sign in (1, -1):
                other = {v: a.copy() for v, a in at.items()}
                other[var][place] += sign * 1e-5
                moved.append(evaluate(*other.values())[1])
            np.testing.assert_allclose(
                slopes[k][place], (moved[0] - moved[1]) / 2e-5, rtol=1e-5, atol=1e-5
            )


def test_residuals_of_cross_products():
    rng = np.random.default_rng(6)
    S, coef, noise = grams(rng), rng.normal(size=P), rng.normal(size=(J, P))
    z = S @ coef + np.sqrt(1.7) * np.einsum("jik,jk->ji", np.linalg.cholesky(S), noise)
    found = residuals(*map(pt.as_tensor, (z, S, coef, np.array(1.7))))
    np.testing.assert_allclose(found.eval(mode=ONCE), noise, rtol=1e-8)
    [graph] = inline_ofg_node(found.owner)
    np.testing.assert_allclose(graph.eval(mode=ONCE), noise, rtol=1e-8)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("mechanism", [pmdp.Gaussian(sigma=4.0), pmdp.Laplace(scale=4.0)])
def test_gradient_and_curvature_of_a_model(intercept, mechanism):
    """Derivatives of the whole density by differences, second ones too."""
    small = pmdp.marginalize(holders([30, 40], d=2, intercept=intercept, mechanism=mechanism))
    values = small.value_vars
    logp = small.logp()
    slope = pt.concatenate([each.ravel() for each in pt.grad(logp, values)])
    direction = np.random.default_rng(4).normal(size=1000)
    along = (
        slope
        * direction[
            : slope.shape[0].eval(small.initial_point(), mode=ONCE, on_unused_input="ignore")
        ]
    ).sum()
    second = pt.concatenate([each.ravel() for each in pt.grad(along, values)])
    evaluate = pytensor.function(values, [logp, slope, second], mode=ONCE)
    rng = np.random.default_rng(5)
    start = small.initial_point()
    point = [start[v.name] + 0.1 * rng.normal(size=np.shape(start[v.name])) for v in values]
    _, slopes, seconds = evaluate(*point)
    at = 0
    for k, part in enumerate(point):
        for place in np.ndindex(np.shape(part)):
            up, down = ([np.array(p, dtype=float) for p in point] for _ in range(2))
            up[k][place] += 1e-5
            down[k][place] -= 1e-5
            high, low = evaluate(*up), evaluate(*down)
            np.testing.assert_allclose(slopes[at], (high[0] - low[0]) / 2e-5, rtol=2e-4, atol=2e-4)
            bent = (high[1] - low[1]) @ direction[: slopes.size] / 2e-5
            np.testing.assert_allclose(seconds[at], bent, rtol=2e-3, atol=2e-3)
            at += 1


def test_graphs_are_not_compiled_beside_the_loop(monkeypatch):
    """Where numba is not used, nested graphs would be, in C."""
    rng = np.random.default_rng(7)
    value = log_determinants(*map(pt.as_tensor, (grams(rng), np.eye(P), np.ones(J), 1.0)), 0)
    op = value.owner.op
    monkeypatch.setattr(type(op), "compile_fn", None)
    assert np.isfinite(value.eval(mode=ONCE))
    assert np.isfinite(value.eval(mode=pytensor.compile.mode.Mode(linker="cvm", optimizer=None)))
