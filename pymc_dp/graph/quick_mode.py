"""How PyTensor compiles what this package joins or runs at every draw: the same, in less time."""

from __future__ import annotations

from typing import Any

from pytensor.compile.mode import Mode
from pytensor.graph.basic import Apply
from pytensor.graph.rewriting.basic import node_rewriter, out2in
from pytensor.tensor.shape import SpecifyShape
from pytensor.tensor.type_other import NoneTypeT

from pymc_dp.compat import compile_numba_function_src, numba_njit, register_funcify_and_cache_key
from pymc_dp.graph.short_product import with_short_products
from pymc_dp.numerics.compiled import source_key

__all__ = ["quick_mode"]


class PlainSpecifyShape(SpecifyShape):
    """Check that does not tell which shape it found: that text takes a second to compile."""


@register_funcify_and_cache_key(PlainSpecifyShape)
def _funcify(op: PlainSpecifyShape, node: Apply, **kwargs: Any) -> tuple[Any, str]:
    known = [i for i, size in enumerate(node.inputs[1:]) if not isinstance(size.type, NoneTypeT)]
    names = ", ".join(f"shape_{i}" for i in range(len(node.inputs) - 1))
    equal = " and ".join(f"x.shape[{i}] == shape_{i}.item()" for i in known) or "True"
    source = (
        f"def specify_shape(x, {names}):\n"
        f"    if {equal}: return x\n"
        '    raise ValueError("A value has another shape than the model was compiled for.")\n'
    )
    function = compile_numba_function_src(source, "specify_shape")
    return numba_njit(function), f"{source_key(__name__)} {equal}"


def _plain_shapes(fgraph: Any, node: Apply) -> list[Any] | None:
    if isinstance(node.op, PlainSpecifyShape):
        return None
    return [PlainSpecifyShape()(*node.inputs)]


# not a decorator: a compiled function is pickled with its mode, and finds this function by its name
_REWRITE = out2in(node_rewriter([SpecifyShape])(_plain_shapes), name="plain_shapes")


def quick_mode(mode: Any) -> Mode:
    """Return a mode of PyTensor that writes short products as loops and checks shapes in silence.

    Examples
    --------
    >>> import numpy as np
    >>> import pytensor
    >>> import pytensor.tensor as pt
    >>> from pymc_dp.graph.quick_mode import quick_mode
    >>> x = pt.vector("x")
    >>> twice = pytensor.function([x], 2 * pt.specify_shape(x, 3), mode=quick_mode("NUMBA"))
    >>> twice(np.ones(3)).tolist()
    [2.0, 2.0, 2.0]
    """
    return with_short_products(mode).register((_REWRITE, 49.5))
