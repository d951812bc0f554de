"""Matrix products that numba compiles sooner: loops where two of three sides are short.

PyTensor's product calls BLAS, and prepares for every order in memory that its operands may have:
nine seconds of compiling for each kind of operands, where a model of records multiplies n rows by a
few coefficients. A loop does that as fast, and is compiled in a tenth of a second; the number of
rows need not be known, as in likelihoods of confidential records.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from pytensor.compile.mode import Mode, get_mode
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import node_rewriter, out2in
from pytensor.tensor.math import Dot
from pytensor.tensor.type import matrix

from pymc_dp.compat import numba_njit, register_funcify_and_cache_key
from pymc_dp.numerics.compiled import source_key

__all__ = ["ShortProduct", "with_short_products"]

#: the two shorter of the three sides of a product, multiplied: with more BLAS is faster
MOST = 32


def _product(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    rows, columns, inner = a.shape[0], b.shape[1], a.shape[1]
    out = np.empty((rows, columns))
    for i in range(rows):
        for j in range(columns):
            total = 0.0
            for k in range(inner):
                total += a[i, k] * b[k, j]
            out[i, j] = total
    return out


class ShortProduct(Op):
    """Product of two matrices of real numbers, of which two sides are short."""

    __props__ = ()

    def make_node(self, *inputs: Any) -> Apply:
        """Apply to two matrices."""
        a, b = inputs
        shape = (a.type.shape[0], b.type.shape[1])
        return Apply(self, [a, b], [matrix(dtype="float64", shape=shape)])

    def perform(self, node: Apply, inputs: Any, outputs: Any) -> None:
        """Compute in Python."""
        outputs[0][0] = inputs[0] @ inputs[1]

    def infer_shape(self, node: Apply, shapes: Any) -> list[tuple[Any, Any]]:
        """Shape of the product."""
        return [(shapes[0][0], shapes[1][1])]


@register_funcify_and_cache_key(ShortProduct)
def _funcify(op: ShortProduct, **kwargs: Any) -> tuple[Any, str]:
    return numba_njit(_product, fastmath={"reassoc", "nsz", "contract"}), source_key(__name__)


_short_product = ShortProduct()


def _short_products(fgraph: Any, node: Apply) -> list[Any] | None:
    a, b = node.inputs
    if not a.type.dtype == b.type.dtype == "float64":
        return None
    rows, inner, columns = a.type.shape[0], a.type.shape[1] or b.type.shape[0], b.type.shape[1]
    # one row a record, of which the number is unknown: BLAS is faster where records are summed over
    known = sorted(int(side) for side in (rows, inner, columns) if side is not None)
    is_short = inner is not None and len(known) > 1 and known[0] * known[1] <= MOST
    return [_short_product(a, b)] if is_short else None


# not a decorator: a compiled function is pickled with its mode, and finds this function by its name
_REWRITE = out2in(node_rewriter([Dot])(_short_products), name="short_products")


def with_short_products(mode: Any) -> Mode:
    """Return a mode of PyTensor that writes products as loops where two sides are short."""
    return get_mode(mode).register((_REWRITE, 49.4))
