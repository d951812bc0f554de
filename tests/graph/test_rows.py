"""Quantities on a few rows are those of the same records among all."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_dp.graph.additivity import NotAdditiveError
from pymc_dp.graph.intervals import ONCE
from pymc_dp.graph.rows import distinct_rows, on_rows

N = 12
RNG = np.random.default_rng(1)
GROUP, DOSE = np.arange(N) % 3, np.arange(N) % 2 * 1.5
X = np.stack([np.ones(N), DOSE], axis=1)

x = pt.vector("x", shape=(N,))
table = pt.matrix("table", shape=(N, 4))
beta, effect = pt.vector("beta", shape=(2,)), pt.vector("effect", shape=(3,))

CASES = {
    "elementwise": x * DOSE + beta[0],
    "looked up": effect[GROUP] + x,
    "looked up and narrowed": effect[GROUP][:, None] * table[:, 1:3],
    "linear": X @ beta * x,
    "a row of a product": (X.T[:, :, None] * x[None, :, None]).dimshuffle(1, 0, 2),
    "its own length": x / x.shape[0],
    "constant": pt.alloc(0.5, N) * x,
    "softmax": pt.special.softmax(table * DOSE[:, None], axis=1),
    "reduced": (table * X[:, :1]).sum(axis=1),
    "joined": pt.stack([x, x**2, pt.constant(DOSE)], axis=1),
    "reshaped": table.reshape((N, 2, 2)),
    "outer product": table[:, :, None] * X[:, None, :],
    "by group": pt.zeros((N, 3))[pt.arange(N), GROUP].inc(x**2),
    "product of matrices": table @ np.ones((4, 2)) + X,
}


@pytest.mark.parametrize("name", CASES)
def test_rows_are_those_of_all_records(name):
    index = np.array([3, 4, 11, 0])
    values = {x: RNG.normal(size=N), table: RNG.normal(size=(N, 4))}
    given = {beta: RNG.normal(size=2), effect: RNG.normal(size=3)}
    graph = CASES[name]
    [few] = on_rows([(graph, 0)], {v: pt.constant(a[index]) for v, a in values.items()}, index)
    inputs = [*values, *given]
    whole = pytensor.function(inputs, graph, mode=ONCE, on_unused_input="ignore")
    part = pytensor.function(list(given), few, mode=ONCE, on_unused_input="ignore")
    expected = whole(*values.values(), *given.values())[index]
    found = np.broadcast_to(part(*given.values()), expected.shape)
    np.testing.assert_allclose(found, expected)


def test_kinds_of_records():
    index, counts = distinct_rows([(CASES["linear"], 0), (CASES["looked up"], 0)], [x], N)
    assert counts.tolist() == [2] * 6
    assert {(GROUP[i], DOSE[i]) for i in index} == {(g, d) for g in range(3) for d in (0.0, 1.5)}
    index, counts = distinct_rows([(x**2, 0)], [x], N)
    assert (index.tolist(), counts.tolist()) == ([0], [N])


def test_values_that_may_change_keep_all_records_apart():
    covariate = pytensor.shared(DOSE)
    assert len(distinct_rows([(x * covariate, 0)], [x], N)[0]) == N


def test_nothing_has_the_records_length():
    many = pt.vector("many", shape=(10**9,))
    graph = pt.clip(many, 0, 1) / many.shape[0] + pt.zeros(10**9)
    [few] = on_rows([(graph, 0)], {many: pt.constant(np.array([0.5, 2.0]))}, np.zeros(2, int))
    np.testing.assert_allclose(few.eval(mode=ONCE), [0.5e-9, 1e-9])


def test_operations_without_a_rule_are_named():
    with pytest.raises(NotAdditiveError, match="Join"):
        on_rows([(pt.roll(x, 1), 0)], {x: pt.constant(np.zeros(2))}, np.zeros(2, int))
