"""A number that gradients do not see."""

from __future__ import annotations

from typing import Any

from pytensor.gradient import disconnected_type
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.tensor.variable import TensorVariable

from pymc_dp.compat import numba_njit, register_funcify_and_cache_key
from pymc_dp.numerics.compiled import source_key

__all__ = ["held"]


class Held(Op):
    """Identity without a gradient.

    PyTensor's ``disconnected_grad`` is a view, which PyMC's rewrites remove before it takes
    gradients.
    """

    __props__ = ()
    view_map = {0: [0]}  # noqa: RUF012  (as PyTensor declares it)

    def make_node(self, *inputs: Any) -> Apply:
        """Make a node of the input's type."""
        [x] = inputs
        return Apply(self, [x], [x.type()])

    def perform(self, node: Any, inputs: Any, output_storage: Any) -> None:
        """Pass the value on."""
        output_storage[0][0] = inputs[0]

    def infer_shape(self, node: Any, shapes: Any) -> Any:
        """Keep the input's shape."""
        return shapes

    def pullback(self, inputs: Any, outputs: Any, output_grads: Any) -> list[Any]:
        """Stop here."""
        return [disconnected_type()]

    def connection_pattern(self, node: Any) -> list[list[bool]]:
        """Tell that nothing is connected."""
        return [[False]]


def _identity(x: Any) -> Any:
    return x


@register_funcify_and_cache_key(Held)
def _funcify(op: Held, **kwargs: Any) -> tuple[Any, str]:
    return numba_njit(_identity), source_key(__name__)


def held(x: Any) -> TensorVariable:
    """Return the same number, constant as far as gradients go.

    Examples
    --------
    >>> import pytensor
    >>> import pytensor.tensor as pt
    >>> from pymc_dp.analyst.marginal.held import held
    >>> x = pt.dscalar("x")
    >>> pytensor.grad(x * held(x), x).eval({x: 3.0})
    array(3.)
    """
    found: Any = Held()(x)
    return found
