import numpy as np
import pymc as pm
import pytest

import pymc_dp as pmdp
from pymc_dp.analyst.records import record_blocks, record_variables
from pymc_dp.graph.intervals import ONCE
from pymc_dp.regression import StatisticsLayout, regression_statistics


@pytest.fixture
def data():
    rng = np.random.default_rng(3)
    return rng.normal(size=(12, 3)), rng.normal(size=12)


@pytest.mark.parametrize("intercept", [True, False])
def test_statistics_are_the_unique_entries(data, intercept):
    X, y = data
    layout = StatisticsLayout(3, intercept)
    s = regression_statistics(X, y, intercept=intercept)
    design = np.column_stack([X, np.ones(12)]) if intercept else X
    xtx, xty, yty = layout.unpack(s, n=12)
    np.testing.assert_allclose(xtx, design.T @ design)
    np.testing.assert_allclose(xty, design.T @ y)
    np.testing.assert_allclose(yty, y @ y)
    np.testing.assert_allclose(layout.pack(xtx, xty, yty), s)
    assert s.shape == (layout.size,) == (len(layout.names),)
    assert layout.n_xx == len(regression_statistics(X, intercept=intercept, parts=["xx"]))


def test_order_is_that_of_the_paper():
    x, y = np.array([1.0, 2, 4]), np.array([3.0, 5, 0])
    expected = [x @ x, x.sum(), x @ y, y.sum(), y @ y]
    np.testing.assert_allclose(regression_statistics(x, y), expected)
    assert StatisticsLayout(2).names == [
        "x0*x0", "x0*x1", "x0", "x1*x1", "x1", "x0*y", "x1*y", "y", "y*y",
    ]  # fmt: skip


def test_without_the_response(data):
    X, y = data
    full = regression_statistics(X, y)
    np.testing.assert_allclose(regression_statistics(X, y, parts=("xx", "xy")), full[:-1])
    np.testing.assert_allclose(regression_statistics(X, parts=("xx",)), full[:9])


def test_unpacks_many_at_once(data):
    X, y = data
    s = regression_statistics(X, y)
    many = StatisticsLayout(3).gram(np.stack([s, 2 * s]), 12)
    assert many.shape == (2, 5, 5)
    np.testing.assert_allclose(many[1, 0, 4], 2 * X[:, 0] @ y)


def test_values_are_clipped_to_bounds(data):
    X, y = data
    clipped = regression_statistics(X, y, x_bounds=(-0.5, [0.5, 1, 2]), y_bounds=(0, 1))
    by_hand = regression_statistics(np.clip(X, -0.5, [0.5, 1, 2]), np.clip(y, 0, 1))
    np.testing.assert_allclose(clipped, by_hand)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("parts", [("xx", "xy", "yy"), ("xx", "xy")])
def test_of_latent_records_the_same(data, intercept, parts):
    X, y = data
    with pm.Model() as model:
        x_rv = pm.Normal("x", 0, 1, shape=(12, 3))
        y_rv = pm.Normal("y", x_rv.sum(1), 1, shape=12)
        kwargs = {"intercept": intercept, "parts": parts, "x_bounds": (-1, 1), "y_bounds": (0, 1)}
        s = regression_statistics(x_rv, y_rv, **kwargs)
        size = StatisticsLayout(3, intercept, parts).size
        pmdp.Privatized("z", s, pmdp.Gaussian(sigma=1.0), observed=np.zeros(size))
    np.testing.assert_allclose(
        s.eval({x_rv: X, y_rv: y}, mode=ONCE), regression_statistics(X, y, **kwargs)
    )
    assert record_variables(model) == model.free_RVs
    [block] = record_blocks(model, model.free_RVs)
    assert len(block.contributions) == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: StatisticsLayout(0), "1 or more"),
        (lambda: StatisticsLayout(2, parts=("yy",)), "its beginning"),
        (lambda: StatisticsLayout(1).pack([[1, 2], [3, 4]], [0, 0]), "not symmetric"),
        (lambda: StatisticsLayout(1).pack(np.eye(3), [0, 0]), "X'X has shape"),
        (lambda: StatisticsLayout(1).pack(np.eye(2), [0]), "X'y has shape"),
        (lambda: StatisticsLayout(1).pack(np.eye(2), [0, 0], [1, 2]), "y'y has shape"),
        (lambda: StatisticsLayout(1).gram([1.0, 2], 3), "5 statistics are expected"),
        (lambda: regression_statistics([[1.0]], [1.0, 2]), "X has 1 rows"),
        (lambda: regression_statistics([[np.nan]], [1.0]), "NaN"),
        (lambda: regression_statistics([[1.0]], [1.0], x_bounds=(1, 0)), "lower < upper"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
