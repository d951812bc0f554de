import numpy as np
import pytest
from scipy.optimize import minimize

from pymc_dp.regression import StatisticsLayout, box_sensitivity, norm_sensitivity

ALL = ("xx", "xy", "yy")


def changes(u, v, layout):
    one = np.ones((*u.shape[:-1], int(layout.intercept)))
    d = layout.n_covariates
    i, j = layout.pairs.T
    u, v = (np.concatenate([w[..., :d], one, w[..., d:]], -1) for w in (u, v))
    return u[..., i] * u[..., j] - v[..., i] * v[..., j]


def largest_found(layout, low, high, order, inside=lambda w: w, seed=0):
    """Greatest change between two records by random search and local ascent."""
    rng = np.random.default_rng(seed)
    m = len(low)
    draws = rng.uniform(low, high, size=(20_000, 2, m))
    draws = np.where(rng.random(draws.shape) < 0.5, np.where(draws > 0, high, low), draws)
    draws = inside(draws)
    size = np.linalg.norm(changes(draws[:, 0], draws[:, 1], layout), order, axis=1)
    best = size.max()
    for start in draws[np.argsort(size)[-6:]]:
        found = minimize(
            lambda w: (
                -np.linalg.norm(
                    changes(*inside(np.clip(w.reshape(2, m), low, high)), layout), order
                )
            ),
            start.ravel(),
            method="Nelder-Mead",
            options={"maxiter": 4000, "xatol": 1e-9, "fatol": 1e-12},
        )
        best = max(best, -found.fun)
    return best


BOXES = [
    ([-1.0], [1.0], -1, 1),
    ([0.0], [1.0], 0, 1),
    ([10.0], [11.0], -1, 1),
    ([-0.3], [2.0], -4, 1),
    ([-1.0, 0.2], [0.1, 3.0], -0.05, 0.2),
]


@pytest.mark.parametrize("box", BOXES)
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("parts", [ALL, ("xx", "xy"), ("xx",)])
def test_box_bounds(box, intercept, parts):
    lower, upper, y_low, y_high = box
    layout = StatisticsLayout(len(lower), intercept, parts)
    low, high = np.array([*lower, y_low]), np.array([*upper, y_high])
    kwargs = {"intercept": intercept, "parts": parts}
    found = box_sensitivity((lower, upper), (y_low, y_high), **kwargs)
    l1, l2 = (largest_found(layout, low, high, order) for order in (1, 2))
    assert l1 == pytest.approx(found.l1, rel=1e-6)  # exact for every box
    assert l2 <= found.l2 * (1 + 1e-9)
    if found.exact:
        assert l2 == pytest.approx(found.l2, rel=1e-6)

    alone = box_sensitivity((lower, upper), (y_low, y_high), neighbours="add_remove", **kwargs)
    corners = np.random.default_rng(1).integers(2, size=(500, len(low)))
    rows = changes(np.where(corners, low, high), 0 * corners, layout)
    assert np.abs(rows).sum(1).max() == pytest.approx(alone.l1)
    assert np.linalg.norm(rows, axis=1).max() == pytest.approx(alone.l2)
    assert alone.exact


def test_values_of_the_errata():
    assert box_sensitivity((-1, 1), (-1, 1)).l1 == pytest.approx(16 / 3)
    assert box_sensitivity((0, 1), (0, 1)).l1 == pytest.approx(5)
    # x in [10, 11]: the range of x^2 is 21, not 1
    assert box_sensitivity((10, 11), (0, 1)).components[0] == pytest.approx(21)


@pytest.mark.parametrize(("x", "y"), [(1.0, 1.0), (1.0, 2.0), (0.7, 0.3)])
@pytest.mark.parametrize(
    ("intercept", "parts"), [(False, ("xx", "xy")), (False, ALL), (True, ALL), (False, ("xx",))]
)
def test_norm_bounds(x, y, intercept, parts):
    layout = StatisticsLayout(2, intercept, parts)

    def inside(w):
        size = np.linalg.norm(w[..., :2], axis=-1, keepdims=True)
        factor = np.concatenate([np.minimum(1, x / np.maximum(size, 1e-300))] * 2, -1)
        return np.concatenate([w[..., :2] * factor, w[..., 2:]], -1)

    found = norm_sensitivity(x, y, n_covariates=2, intercept=intercept, parts=parts)
    high = np.array([x, x, y])
    for order in (1, 2):
        best = largest_found(layout, -high, high, order, inside)
        assert best <= found.norm(order) * (1 + 1e-9)
        if order == 2 and found.exact:
            assert best == pytest.approx(found.l2, rel=1e-5)
    assert found.exact == (not intercept and parts != ALL)

    alone = norm_sensitivity(
        x, y, n_covariates=2, intercept=intercept, parts=parts, neighbours="add_remove"
    )
    rng = np.random.default_rng(0)
    angle = np.concatenate([rng.uniform(0, 2 * np.pi, 4000), np.arange(8) * np.pi / 4])
    rows = np.column_stack([x * np.cos(angle), x * np.sin(angle), np.full(4008, y)])
    change = changes(rows, 0 * rows, layout)
    assert np.abs(change).sum(1).max() == pytest.approx(alone.l1)
    assert np.linalg.norm(change, axis=1).max() == pytest.approx(alone.l2)


def test_one_covariate_by_its_norm_is_a_box():
    assert (
        norm_sensitivity(2, 3, n_covariates=1).l1
        == box_sensitivity((-2, 2), (-3, 3), intercept=False).l1
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: box_sensitivity((1, 1), (0, 1)), "x_bounds"),
        (lambda: box_sensitivity((0, np.inf), (0, 1)), "x_bounds"),
        (lambda: box_sensitivity(([0, 0], 1), (0, 1), n_covariates=3), "2 covariates"),
        (lambda: box_sensitivity((0, 1), (1, 0)), "y_bounds"),
        (lambda: box_sensitivity((0, 1), (0, 1), neighbours="swap"), "neighbours"),
        (lambda: norm_sensitivity(0, 1, n_covariates=2), "x_norm"),
        (lambda: norm_sensitivity(1, -1, n_covariates=2), "y_bound"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
