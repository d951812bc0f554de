"""Graphs that numba runs as one loop written by hand, and everything else as they are.

A density of small matrices is some hundred operations of a tenth of a microsecond each, most of it
calling and allocating. Where samplers spend their time one loop for the value and its gradient is
several times faster, and is compiled once for all models. Other backends, second derivatives and
rewrites see the graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph
from pytensor.gradient import DisconnectedType, disconnected_type
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

from pymc_dp.compat import register_funcify_and_cache_key
from pymc_dp.numerics.compiled import source_key
from pymc_dp.types import Variable

__all__ = ["DensityGraph", "KernelGraph"]


class KernelGraph(OpFromGraph):
    """An operation with an inner graph, and a function of arrays that computes the same.

    Parameters
    ----------
    inputs, outputs : list of TensorVariable
        The graph.
    kernel : callable
        Compiled by :func:`~pymc_dp.numerics.compiled.jit`; takes and returns arrays, all of them: a
        number is an array without axes.
    """

    def __init__(self, inputs: list[Any], outputs: list[Any], kernel: Any) -> None:
        super().__init__(inputs, outputs)
        self.kernel = kernel

    def make_thunk(self, *args: Any, **kwargs: Any) -> Any:
        """Leave out what PyTensor does for nested graphs: this one is not compiled to be run."""
        return Op.make_thunk(self, *args, **kwargs)

    def perform(self, node: Apply, inputs: Any, outputs: Any) -> None:
        """Call the kernel, as Python unless it was compiled: this is for a few evaluations."""
        found = (self.kernel if self.kernel.signatures else self.kernel.py_func)(*inputs)
        for storage, value in zip(outputs, found if len(outputs) > 1 else [found], strict=True):
            storage[0] = value


class DensityGraph(KernelGraph):
    """A number and its gradient, computed together.

    Parameters
    ----------
    inputs : list of TensorVariable
        What the number depends on: first all that it has derivatives by.
    value : TensorVariable
        The number.
    smooth : int
        Inputs that it has derivatives by.
    kernel : callable
        Returns the number, and its derivatives by these inputs.
    """

    def __init__(self, inputs: list[Any], value: Any, smooth: int, kernel: Any) -> None:
        slopes: Any = pt.grad(value, inputs[:smooth])
        super().__init__(inputs, [value, *slopes], kernel)
        self.smooth = smooth

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Tell that the others are only known."""
        outputs = 1 + self.smooth
        return [[i < self.smooth] * outputs for i in range(len(node.inputs))]

    def pullback(
        self, inputs: Sequence[Variable], outputs: Sequence[Any], cotangents: Sequence[Any]
    ) -> list[Any]:
        """Multiply by the gradient; second derivatives are those of the graph."""
        by_value, *by_slopes = cotangents
        if all(isinstance(one.type, DisconnectedType) for one in by_slopes):
            pulled = [by_value * slope for slope in outputs[1:]]
        else:
            pulled = super().pullback(inputs, outputs, cotangents)[: self.smooth]
        known = len(inputs) - self.smooth
        return [*pulled, *(disconnected_type() for _ in range(known))]


@register_funcify_and_cache_key(KernelGraph)
def _funcify(op: KernelGraph, **kwargs: Any) -> tuple[Any, str]:
    """Let compiled graphs call the kernel."""
    written = op.kernel.py_func
    return op.kernel, f"{source_key(written.__module__)} {written.__qualname__}"
