"""The pieces of the leapfrog against plain matrices, and trajectories made of them."""

import numpy as np
import pytest

from pymc_dp.numerics.leapfrog import drift, kick, leapfrog, pull_back

BLOCKS, ROWS, COLUMNS = 4, 3, 2


@pytest.fixture
def metric():
    return np.random.default_rng(1).normal(size=(BLOCKS, ROWS, COLUMNS))


def dense(metric):
    """Write the same metric as one matrix, on vectors with entry i of block b at i * blocks + b."""
    out = np.zeros((ROWS, BLOCKS, COLUMNS, BLOCKS))
    for b in range(BLOCKS):
        out[:, b, :, b] = metric[b]
    return out.reshape(ROWS * BLOCKS, COLUMNS * BLOCKS)


def test_drift_and_pull_back_are_products_with_the_metric(metric):
    rng = np.random.default_rng(2)
    start, momentum = rng.normal(size=ROWS * BLOCKS), rng.normal(size=COLUMNS * BLOCKS)
    place, out = start.copy(), np.empty(COLUMNS * BLOCKS)
    drift(place, metric, momentum, 0.3)
    np.testing.assert_allclose(place, start + 0.3 * dense(metric) @ momentum)
    pull_back(metric, start, out)
    np.testing.assert_allclose(out, dense(metric).T @ start)
    kick(momentum, out, 0.0)
    before = momentum.copy()
    kick(momentum, out, -0.5)
    np.testing.assert_allclose(momentum, before - 0.5 * out)


def test_a_trajectory_comes_back():
    """With the momentum turned round, in fewer coordinates than the point has."""
    basis = np.array([[1.0, 0.0], [0.5, 2.0], [0.0, -1.0]])
    start, momentum = np.array([1.0, -0.5, 0.3]), np.array([0.7, -1.1])

    def gradient(theta):
        return -basis.T @ theta**3

    there = leapfrog(gradient, start, basis, momentum, 0.05, 20)
    back = leapfrog(gradient, there.theta, basis, -there.momentum, 0.05, 20)
    np.testing.assert_allclose(there.theta, start + basis @ there.displacement)
    np.testing.assert_allclose(back.theta, start, atol=1e-10)
    np.testing.assert_allclose(back.momentum, -momentum, atol=1e-10)
    assert there.finite
    assert np.max(np.abs(there.displacement)) > 0.1
