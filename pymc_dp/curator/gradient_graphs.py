"""Graphs of what one record's gradient is made of, for compiling."""

from collections.abc import Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.gradient import pushforward
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import ancestors
from pytensor.scalar import ScalarType
from pytensor.scalar import basic as ps
from pytensor.tensor.elemwise import Elemwise

from pymc_dp.curator.predictors import GradientPieces
from pymc_dp.graph.rewrites import rebuilt
from pymc_dp.types import Variable

MOST_PRODUCTS = 64  # of single values and coordinates that are written out in one loop
_STEPS = (ps.Floor, ps.Ceil, ps.Trunc, ps.RoundHalfToEven, ps.RoundHalfAwayFromZero, ps.IntDiv)


def transposed_inputs(
    graphs: GradientPieces, rows: Sequence[Variable], axes: Sequence[int]
) -> tuple[list[Variable], list[bool]]:
    """Make inputs in place of the rows, and tell which of them have one record a column.

    Matrices that meet values alone have: loops over records then read and write memory in order.
    """
    transposed = [
        row.type.ndim == 2 and axis == 0 and not graphs.scores
        for row, axis in zip(rows, axes, strict=True)
    ]
    inputs = [
        row.T.type() if is_transposed else row
        for row, is_transposed in zip(rows, transposed, strict=True)
    ]
    return inputs, transposed


def piece_graphs(
    graphs: GradientPieces, rows: Sequence[Variable], inputs: Sequence[Variable]
) -> list[Variable]:
    """Pieces by all values and scores of all predictors, one record a column."""
    number = [*graphs.value_gradients, *graphs.scores][0].shape[0]
    pieces, scores = pt.zeros((0, number), dtype="float32"), pt.zeros((0, number))
    if graphs.value_gradients:
        by_value = [gradient.T for gradient in graphs.value_gradients]
        pieces = pt.concatenate(by_value, axis=0).astype("float32")
    if graphs.scores:
        scores = pt.stack(graphs.scores)
    swap = {row: given.T for row, given in zip(rows, inputs, strict=True) if given is not row}
    return [rebuilt(graph, swap) for graph in (pieces, scores)]


def is_elementwise(graphs: GradientPieces, rows: Sequence[Variable]) -> bool:
    """Whether a few single values meet records of single numbers, elementwise."""
    single = all(set(value.type.shape) <= {1} for value in graphs.values)
    few = len(graphs.values) <= MOST_PRODUCTS
    return not graphs.scores and single and few and all(row.type.ndim == 1 for row in rows)


def of_one_record(
    graphs: GradientPieces, rows: Sequence[Variable]
) -> tuple[list[Variable], list[Variable]]:
    """Pieces of one record's gradient, over plain numbers: the values, and the record."""
    replaced = [*graphs.values, *rows]
    numbers = [ScalarType(variable.dtype)() for variable in replaced]
    swap: dict[Variable, Variable] = {
        variable: pt.expand_dims(pt.tensor_from_scalar(number), range(variable.type.ndim))
        for variable, number in zip(replaced, numbers, strict=True)
    }
    pieces = [rebuilt(gradient, swap) for gradient in graphs.value_gradients]
    return numbers, [pt.scalar_from_tensor(piece[0, 0].astype("float32")) for piece in pieces]


def directional_derivatives(outputs: Variable, theta: Variable, directions: Variable) -> Variable:
    """Differentiate along directions, one a row, in one vectorised forward-mode pass."""
    direction = pt.dvector("direction")
    pushed: Any = pushforward(outputs, theta, direction, disconnected_outputs="ignore")
    if direction not in set(ancestors([pushed])):
        raise ValueError("it is zero everywhere")
    return vectorize_graph(pushed, {direction: directions})


def kind_of(graphs: GradientPieces | None) -> str:
    """Tell in which form records' gradients are made."""
    if graphs is None:
        return "forward"
    return "rows" if not graphs.values and len(graphs.scores) == 1 else "pieces"


def refuse_steps(logp: Variable, theta: Variable) -> None:
    """Refuse parameters that are rounded on their way to the likelihood."""
    by_theta = {theta}
    for node in FunctionGraph(outputs=[logp], clone=False).toposort():
        if by_theta.isdisjoint(node.inputs):
            continue
        scalar = node.op.scalar_op if isinstance(node.op, Elemwise) else None
        if isinstance(scalar, _STEPS):
            raise ValueError(
                f"The likelihood rounds a parameter (`{type(scalar).__name__}`), so that its "
                "gradient is zero: leave the rounding out, or use pymc_dp.DPPenalty, which needs "
                "no gradient."
            )
        by_theta.update(node.outputs)
