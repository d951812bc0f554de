"""Graphs whose operations are shared and written shorter compute what PyTensor's own do."""

import numpy as np
import pytensor
import pytensor.link.numba.dispatch.basic as numba_basic
import pytensor.tensor as pt
import pytest

from pymc_dp.compat.operations import operations_once
from pymc_dp.numerics.compiled import compiling


def test_moved_axes():
    x = pt.tensor("x", shape=(2, 1, 3, 4), dtype="float64")
    moved = [x.dimshuffle(2, "x", 0, 3), x.dimshuffle(0, 2, 3)]
    data = np.arange(24.0).reshape(2, 1, 3, 4)
    with compiling("moved axes"):
        function = pytensor.function([x], moved, mode="NUMBA")
        function.trust_input = True
        found = function(data)
    assert np.array_equal(found[0], data[:, 0].swapaxes(0, 1)[:, None])
    assert np.array_equal(found[1], data[:, 0])
    with pytest.raises(ValueError, match="length other than one"):
        function(np.zeros((2, 2, 3, 4)))


def test_sums_of_two_and_of_three_numbers_are_two_operations():
    x, y = pt.dvectors("x", "y")
    with compiling("sums"):
        function = pytensor.function([x, y], pt.exp(x + y) * (x + 1.5 + pt.sin(y)), mode="NUMBA")
        found = function(np.array([0.0, 1.0]), np.array([1.0, 2.0]))
    np.testing.assert_allclose(
        found, np.exp([1.0, 3.0]) * (np.array([1.5, 2.5]) + np.sin([1.0, 2.0]))
    )


def test_pytensor_is_as_it_was_afterwards():
    held = numba_basic.numba_funcify_ensure_cache
    with operations_once():
        with operations_once():
            inside = numba_basic.numba_funcify_ensure_cache
        assert numba_basic.numba_funcify_ensure_cache is inside is not held
    assert numba_basic.numba_funcify_ensure_cache is held
