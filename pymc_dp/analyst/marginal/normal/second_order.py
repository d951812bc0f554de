"""Second-order expansion of a mean about a centre, as one operation that is soon compiled.

Written with PyTensor's own operations it is some twenty kernels, of which each takes as long to
compile as these two loops.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import disconnected_type
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.graph.replace import graph_replace

from pymc_dp.compat import numba_njit, register_funcify_and_cache_key
from pymc_dp.numerics.compiled import source_key
from pymc_dp.types import Matrix, Variable, Vector

__all__ = ["SecondOrder", "second_order", "second_order_slope"]


def second_order(delta: Any, mean: Any, slope: Any, curvature: Any, nearness: Any) -> Any:
    """Mean at a distance from the centre; numbers, or graphs of PyTensor's own operations.

    Parameters
    ----------
    delta : (p,)
        The distance.
    mean, slope, curvature : (d,), (d, p), (d, p, p)
        Value and derivatives at the centre.
    nearness : (p, p)
        Form in `delta` from whose value 1 on the second-order term is held.
    """
    bend = 0.5 * (curvature @ delta) @ delta
    far = (nearness @ delta) @ delta
    return mean + slope @ delta + bend * (1 + far**2) ** -0.5


def second_order_slope(
    delta: Vector, mean: Vector, slope: Matrix, curvature: Any, nearness: Matrix
) -> Matrix:
    """Differentiate that mean; numbers."""
    turned = curvature @ delta
    far = nearness @ delta @ delta
    held = (1 + far**2) ** -0.5
    fall = -far * held**3 * 2 * (nearness @ delta)
    return slope + turned * held + np.outer(0.5 * turned @ delta, fall)


class SecondOrder(Op):
    """:func:`second_order` of graphs."""

    __props__ = ()

    def make_node(self, *inputs: Any) -> Apply:
        """Apply to `delta` and the four arrays."""
        tensors = [pt.as_tensor(each) for each in inputs]
        return Apply(self, tensors, [tensors[1].type()])

    def perform(self, node: Apply, inputs: Any, outputs: Any) -> None:
        """Compute in NumPy."""
        outputs[0][0] = second_order(*inputs)

    def infer_shape(self, node: Apply, shapes: Any) -> list[Any]:
        """As long as the mean is at the centre."""
        return [shapes[1]]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Tell that derivatives are by `delta` alone."""
        return [[True], *([False] for _ in range(4))]

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Any]:
        """Multiply by the slope."""
        delta, *form = inputs
        pulled = _PulledBack()(delta, cotangents[0], *form)
        return [pulled, *(disconnected_type() for _ in form)]


class _PulledBack(Op):
    """Slope of :class:`SecondOrder`, transposed, times a vector."""

    __props__ = ()

    def make_node(self, *inputs: Any) -> Apply:
        tensors = [pt.as_tensor(each) for each in inputs]
        return Apply(self, tensors, [tensors[0].type()])

    def perform(self, node: Apply, inputs: Any, outputs: Any) -> None:
        delta, vector, *form = inputs
        outputs[0][0] = second_order_slope(delta, *form).T @ vector

    def infer_shape(self, node: Apply, shapes: Any) -> list[Any]:
        return [shapes[0]]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        return [[True], [True], *([False] for _ in range(4))]

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Any]:
        """Second derivatives, which samplers do not ask for, are written out."""
        given, form = inputs[:2], inputs[2:]
        delta, vector = slots = [each.type() for each in given]  # one may depend on the other
        weighted: Variable = pt.dot(vector, second_order(delta, *form))
        along = pt.dot(pt.grad(weighted, delta), cotangents[0])
        second: Any = pt.grad(along, slots)
        swap = dict(zip(slots, given, strict=True))
        found: Any = graph_replace(second, swap, strict=False)
        return [*found, *(disconnected_type() for _ in form)]


def _mean(delta: Any, mean: Any, slope: Any, curvature: Any, nearness: Any) -> Any:
    d, p = slope.shape
    far = 0.0
    for i in range(p):
        for j in range(p):
            far += nearness[i, j] * delta[i] * delta[j]
    held = 0.5 / np.sqrt(1.0 + far * far)
    out = np.empty(d)
    for k in range(d):
        straight, bend = mean[k], 0.0
        for i in range(p):
            straight += slope[k, i] * delta[i]
            for j in range(p):
                bend += curvature[k, i, j] * delta[i] * delta[j]
        out[k] = straight + held * bend
    return out


def _pulled(delta: Any, vector: Any, mean: Any, slope: Any, curvature: Any, nearness: Any) -> Any:
    d, p = slope.shape
    far, fall = 0.0, np.zeros(p)
    for i in range(p):
        for j in range(p):
            fall[i] += nearness[i, j] * delta[j]
        far += fall[i] * delta[i]
    held = 1.0 / np.sqrt(1.0 + far * far)
    out, bend = np.zeros(p), 0.0
    for k in range(d):
        for i in range(p):
            turned = 0.0
            for j in range(p):
                turned += curvature[k, i, j] * delta[j]
            out[i] += vector[k] * (slope[k, i] + held * turned)
            bend += 0.5 * vector[k] * turned * delta[i]
    for i in range(p):
        out[i] -= bend * far * held**3 * 2.0 * fall[i]
    return out


@register_funcify_and_cache_key(SecondOrder)
def _funcify_mean(op: SecondOrder, **kwargs: Any) -> tuple[Any, str]:
    return numba_njit(_mean), source_key(__name__)


@register_funcify_and_cache_key(_PulledBack)
def _funcify_pulled(op: _PulledBack, **kwargs: Any) -> tuple[Any, str]:
    return numba_njit(_pulled), source_key(__name__)
