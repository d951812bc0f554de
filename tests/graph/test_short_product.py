import pickle

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_dp.graph.quick_mode import quick_mode
from pymc_dp.graph.short_product import ShortProduct, with_short_products


def compiled(rows, inner, columns, transpose=False):
    a = pt.tensor("a", shape=(inner, rows) if transpose else (rows, inner), dtype="float64")
    b = pt.tensor("b", shape=(inner, columns), dtype="float64")
    product = (a.T if transpose else a) @ b
    return pytensor.function([a, b], product, mode=with_short_products("NUMBA"))


def is_short(function):
    return any(isinstance(node.op, ShortProduct) for node in function.maker.fgraph.apply_nodes)


@pytest.mark.parametrize("transpose", [False, True])
def test_value(transpose):
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(40, 3)), rng.normal(size=(3, 2))
    function = compiled(40, 3, 2, transpose)
    assert is_short(function)
    np.testing.assert_allclose(function(a.T.copy() if transpose else a, b), a @ b)


def test_sides():
    assert is_short(compiled(10_000, 4, 8))
    assert is_short(compiled(4, 10_000, 8))
    assert not is_short(compiled(10_000, 6, 6))
    assert is_short(compiled(None, 3, 1))
    assert not is_short(compiled(None, 6, 6))
    assert not is_short(compiled(3, None, 1))
    assert not is_short(compiled(None, None, 1))


def test_value_in_python():
    a, b = np.ones((4, 3)), np.arange(6.0).reshape(3, 2)
    product = ShortProduct()(pt.as_tensor(a), pt.as_tensor(b))
    np.testing.assert_array_equal(product.eval(mode="FAST_COMPILE"), a @ b)


def test_compiled_functions_can_be_pickled():
    # steps of curators are, with all that they compiled
    a = pt.tensor("a", shape=(None, 2), dtype="float64")
    function = pytensor.function([a], a @ np.ones((2, 1)), mode=quick_mode("NUMBA"))
    assert is_short(function)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(function))(np.ones((4, 2))), 2)
