"""Matrices made positive."""

import numpy as np

from pymc_dp.numerics.positive import nearest_positive, positive_root


def indefinite():
    rotation = np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0]
    return rotation, (rotation * [-2.0, 0.5, 3.0]) @ rotation.T


def test_eigenvalues_are_raised_to_the_floor():
    rotation, matrix = indefinite()
    for floor, values in ((0.0, [0.0, 0.5, 3.0]), (1.0, [1.0, 1.0, 3.0])):
        expected = (rotation * values) @ rotation.T
        raised, negative = nearest_positive(matrix, lambda _, floor=floor: floor)
        root = positive_root(matrix, lambda _, floor=floor: floor)
        np.testing.assert_allclose(raised, expected, atol=1e-12)
        np.testing.assert_allclose(root @ root.T, expected, atol=1e-12)
        assert negative


def test_what_is_positive_stays():
    matrix = np.array([[2.0, 0.5], [0.5, 1.0]])
    raised, negative = nearest_positive(matrix)
    np.testing.assert_allclose(raised, matrix)
    assert not negative


def test_the_floor_sees_the_eigenvalues_in_ascending_order():
    _, matrix = indefinite()
    lowest = np.linalg.eigvalsh(nearest_positive(matrix, lambda values: 0.1 * values[-1])[0])[0]
    np.testing.assert_allclose(lowest, 0.3)
