"""Matrices of linear statistics, compared with the statistics themselves."""

import numpy as np
import pymc as pm
import pytensor.sparse as ps
import pytensor.tensor as pt
import pytest
import scipy.sparse as sp

from pymc_dp.graph.intervals import ONCE
from pymc_dp.graph.linear_map import NotLinearError, linear_map

RNG = np.random.default_rng(1)
A, B = RNG.integers(0, 3, (3, 20)), RNG.integers(0, 2, (5, 3))
SPARSE = sp.csr_matrix(RNG.integers(0, 2, (3, 6)).astype(float))

LINEAR = {
    "itself": lambda c, d: c,
    "total": lambda c, d: c.sum(),
    "axis": lambda c, d: c.sum(axis=0),
    "matrix": lambda c, d: A @ c.ravel(),
    "left": lambda c, d: RNG.integers(0, 2, (2, 4)) @ c,
    "right": lambda c, d: c @ B,
    "vector": lambda c, d: c @ np.arange(5),
    "sparse": lambda c, d: ps.structured_dot(SPARSE, d.astype("float64")[:, None]),
    "two variables": lambda c, d: pt.concatenate([c.sum(axis=1), d]),
    "chosen": lambda c, d: c[1:3, [0, 2]],
    "reshaped": lambda c, d: c.reshape((2, 2, 5)).sum(axis=(0, 2)),
    "weighted": lambda c, d: (c * np.arange(5)).sum(axis=1) / 2 - 3,
    "stacked": lambda c, d: pt.stack([c.sum(), 2 * d.sum(), pt.constant(7)]),
    "whole in floats": lambda c, d: (1.0 * A @ c.ravel() + 2).astype("int64"),
    "whole and sparse": lambda c, d: ps.structured_dot(SPARSE, d.astype("float64")[:, None]).astype(
        "int64"
    ),
    "differences": lambda c, d: c.T[2] - c[:, 0],
}


def variables():
    return pt.tensor("c", dtype="int64", shape=(4, 5)), pt.tensor("d", dtype="int64", shape=(6,))


@pytest.mark.parametrize("name", LINEAR)
def test_matrix_is_the_statistics(name):
    c, d = variables()
    statistic = pt.as_tensor(LINEAR[name](c, d))
    found = linear_map(statistic, [c, d])
    counts = {c: RNG.integers(0, 9, (4, 5)), d: RNG.integers(0, 9, 6)}
    expected = statistic.eval(counts, on_unused_input="ignore", mode=ONCE)
    flat = np.concatenate([v.ravel() for v in counts.values()])
    assert found.shape == expected.shape
    np.testing.assert_allclose(found.matrix @ flat + found.constant, expected.ravel())


@pytest.mark.parametrize(
    "statistic",
    [
        lambda c, d: (c**2).sum(),
        lambda c, d: pt.clip(c, 0, 3).sum(),
        lambda c, d: c.sum() * d.sum(),
        lambda c, d: c.sum() / (1 + d.sum()),
        lambda c, d: d[c[0]],
        lambda c, d: pt.eq(c, 2).sum(),
        lambda c, d: c.astype("int8").sum(),
        lambda c, d: c.sum(dtype="int8"),
        lambda c, d: c.astype("uint64"),
        lambda c, d: (0.5 * c).astype("int64"),
        lambda c, d: (c.sum() + 0.5).astype("int64"),
        lambda c, d: (0.5 * c).sum(dtype="int64"),
    ],
)
def test_other_statistics_are_refused(statistic):
    c, d = variables()
    with pytest.raises(NotLinearError):
        linear_map(statistic(c, d), [c, d])


def test_casts_of_amounts_are_refused():
    x = pt.vector("x", shape=(3,))
    with pytest.raises(NotLinearError, match="float64 to int64 rounds"):
        linear_map(x.sum().astype("int64"), [x])


def test_maps_must_be_public():
    with pm.Model() as model:
        c, weight = pm.Poisson("c", 3, shape=2), pm.Normal("weight")
    with pytest.raises(NotLinearError, match="'weight'"):
        linear_map(weight * c.sum(), [c], model.basic_RVs)


def test_large_tables_stay_sparse():
    c = pt.tensor("c", dtype="int64", shape=(500, 24))
    found = linear_map(c.reshape((20, 25, 24)).sum(axis=1), [c])
    assert found.shape == (20, 24)
    assert found.matrix.nnz == 12_000
