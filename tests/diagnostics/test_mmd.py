"""MMD against its definition, and its level for draws that are exact."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from xarray import Dataset, DataTree

from pymc_dp import mmd
from pymc_dp.datasets import banana


def test_definition_over_more_than_one_block():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(1500, 3)), rng.normal(0.2, 1.3, size=(700, 3))
    pick = np.random.default_rng(5)
    pairs = x[pick.integers(1500, size=500)] - y[pick.integers(700, size=500)]
    width = np.median(np.linalg.norm(pairs, axis=1))

    def kernel(a, b):
        return np.exp(-(cdist(a, b) ** 2) / (2 * width**2))

    kx, ky = kernel(x, x), kernel(y, y)
    inside = kx[~np.eye(1500, dtype=bool)].mean() + ky[~np.eye(700, dtype=bool)].mean()
    expected = np.sqrt(abs(inside - 2 * kernel(x, y).mean()))
    assert mmd(x, y, random_seed=5) == pytest.approx(expected)


def test_trees_and_arrays_agree():
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, 50)), rng.normal(size=(2, 50, 2))
    data = {"a": (("chain", "draw"), a), "b": (("chain", "draw", "k"), b)}
    tree = DataTree.from_dict({"posterior": Dataset(data)})
    rows = np.column_stack([a.ravel(), b.reshape(100, 2)])
    other = rng.normal(size=(80, 3))
    assert mmd(tree, other) == pytest.approx(mmd(rows, other))


def test_exact_draws_are_near_and_shifted_ones_are_not():
    problem = banana(n=1000)
    exact = problem.posterior(1000, 1)
    assert mmd(exact, problem.posterior(1000, 2)) < 0.06
    assert mmd(exact, problem.posterior(1000, 2) + exact.std(axis=0)) > 0.2


def test_shapes_are_checked():
    with pytest.raises(ValueError, match="coordinates"):
        mmd(np.zeros((5, 2)), np.zeros((5, 3)))
