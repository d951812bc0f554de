"""Randomised response and other mechanisms applied to every record by itself."""

import numpy as np
import pymc as pm
import pytest

import pymc_dp as pmdp
from pymc_dp.graph.intervals import ONCE
from tests.mechanisms.chi_square import assert_follows, evaluate

MATRIX = [[0.7, 0.2, 0.1], [0.0, 0.6, 0.4]]


def test_log_probabilities():
    three = pmdp.RandomizedResponse(3, keep=0.5)
    found = np.exp(evaluate(three.logp([0, 1, 2, 0], [0, 0, 0, 2])))
    np.testing.assert_allclose(found, [0.5, 0.25, 0.25, 0.25])
    outside = evaluate(three.logp([0, 3, -1], [3, 0, 0]))
    assert np.all(np.isneginf(outside))
    table = pmdp.RandomizedResponse(matrix=MATRIX)
    assert np.isneginf(evaluate(table.logp(0, 1)))
    assert evaluate(table.logp(2, 1)) == pytest.approx(np.log(0.4))


def test_epsilon_both_ways():
    for k in (2, 5):
        for epsilon in (0.1, 1.0, 800.0):
            mechanism = pmdp.RandomizedResponse(k, epsilon=epsilon)
            np.testing.assert_allclose(mechanism.matrix.sum(axis=1), 1)
            if epsilon < 30:
                assert mechanism.guarantee().epsilon == pytest.approx(epsilon)
    assert pmdp.RandomizedResponse(2, keep=0.75).guarantee().epsilon == pytest.approx(np.log(3))
    assert pmdp.RandomizedResponse(2, keep=1).guarantee().epsilon == np.inf
    assert pmdp.RandomizedResponse(matrix=MATRIX).guarantee().epsilon == np.inf


@pytest.mark.parametrize("truth", [0, 1])
def test_draws_and_releases(truth):
    mechanism = pmdp.RandomizedResponse(matrix=MATRIX)
    with np.errstate(divide="ignore"):
        log_p = np.log(mechanism.matrix[truth])
    with pm.Model() as model:
        x = pm.Bernoulli("x", [float(truth)] * 5000)
        pmdp.Privatized("r", x, mechanism)
    assert_follows(pm.draw(model["r"], 4, random_seed=1, mode=ONCE), np.arange(3), log_p)
    assert_follows(mechanism.release(np.full(5000, truth)), np.arange(3), log_p)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pmdp.RandomizedResponse(2), "keep="),
        (lambda: pmdp.RandomizedResponse(2, keep=0.5, epsilon=1), "keep="),
        (lambda: pmdp.RandomizedResponse(1, keep=0.5), "n_categories"),
        (lambda: pmdp.RandomizedResponse(keep=0.5), "n_categories"),
        (lambda: pmdp.RandomizedResponse(2, keep=0), r"keep is a probability in \(0, 1\]"),
        (lambda: pmdp.RandomizedResponse(2, keep=1.5), "keep is a probability"),
        (lambda: pmdp.RandomizedResponse(2, epsilon=-1), "epsilon must be positive"),
        (lambda: pmdp.RandomizedResponse(matrix=[[0.5, 0.6], [0.5, 0.5]]), "sum to 1"),
        (lambda: pmdp.RandomizedResponse(matrix=[[1.5, -0.5], [0.5, 0.5]]), "probabilities"),
        (lambda: pmdp.RandomizedResponse(3, matrix=[[1, 0], [0, 1]]), "2 rows"),
        (lambda: pmdp.RandomizedResponse(2, keep=0.8).release([2]), "out of range"),
        (lambda: pmdp.RandomizedResponse(2, keep=0.8).guarantee(1), "no sensitivity"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_bad_reports():
    coin = pmdp.RandomizedResponse(2, keep=0.8)
    with pm.Model():
        x = pm.Bernoulli("x", 0.5, shape=3)
        with pytest.raises(ValueError, match="Category 2 in the released value of 'r'"):
            pmdp.Privatized("r", x, coin, observed=[0, 2, 1])
        with pytest.raises(ValueError, match="whole numbers"):
            pmdp.Privatized("r", x, coin, observed=[0, 0.5, 1])
        with pytest.raises(ValueError, match="shape"):
            pmdp.Privatized("r", x, coin, observed=[0, 1])
        y = pm.Normal("y", shape=3)
        with pytest.raises(ValueError, match="categories"):
            pmdp.Privatized("r", y, coin, observed=[0, 1, 1])


def test_which_step_is_picked(made_only):
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        x = pm.Bernoulli("x", p, shape=3)
        z = pm.Normal("z", 0, 1, shape=3)
        pmdp.Privatized("r", x, pmdp.RandomizedResponse(2, keep=0.8), observed=[0, 1, 1])
        pmdp.Privatized("s", z, pmdp.Laplace(scale=1), observed=[0.0, 1.0, 1.0])
    explained = pmdp.explain(model)
    assert explained.steps == {"p": "RecordGibbs", "x": "RecordGibbs", "z": "NUTS"}
    assert "applied to every record of x by itself" in repr(explained)
    assert "epsilon 1.38629 a record" in repr(explained)
    with model:
        pmdp.RecordGibbs([z])  # on request


def test_the_guarantee_is_that_of_the_probabilities_that_are_drawn():
    # draws have probabilities in proportion to a row, which need not add up to 1 to the last bit
    table = np.array([[0.4, 0.6], [0.3, 0.7 + 9e-10]])
    drawn = table / table.sum(axis=1, keepdims=True)
    found = pmdp.RandomizedResponse(matrix=table).guarantee().epsilon
    assert found >= np.log(drawn[0, 0] / drawn[1, 0]) * (1 - 1e-14)
