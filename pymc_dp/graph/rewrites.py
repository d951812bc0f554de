"""Graphs made anew: without assertions, which look at all records at once, or over other inputs."""

from collections.abc import Sequence
from contextlib import AbstractContextManager

from pytensor import config
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import equal_computations
from pytensor.graph.fg import FunctionGraph
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor import alloc
from pytensor.tensor.basic import Alloc
from pytensor.tensor.shape import SpecifyShape

from pymc_dp.compat import SymbolicRandomVariable, inline_ofg_node
from pymc_dp.types import Variable

__all__ = ["rebuilt", "same_graph", "without_checks", "without_origins", "written_out"]


def without_checks(output: Variable) -> Variable:
    """Copy a graph without PyMC's parameter checks and other assertions.

    A value outside a distribution's domain then has NaN or infinite log-density by itself.

    Examples
    --------
    >>> import pymc as pm
    >>> import pytensor.tensor as pt
    >>> from pymc_dp.graph.rewrites import without_checks
    >>> sigma = pt.dscalar("sigma")
    >>> logp = without_checks(pm.logp(pm.Normal.dist(0, sigma), 0.0))
    >>> bool(logp.eval({sigma: -1.0}) != 0)
    True
    """
    graph = FunctionGraph(outputs=[output], clone=True, copy_inputs=False)
    for node in list(graph.toposort()):
        if isinstance(node.op, CheckAndRaise):
            graph.replace(node.outputs[0], node.inputs[0], import_missing=True)
    return graph.outputs[0]


def written_out(output: Variable) -> Variable:
    """Copy a graph with the operations that nested graphs are made of in place of these.

    Rules know operations, and a nested graph that was vectorised is none that they know. Random
    variables stay as they are.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from pytensor.compile.builders import OpFromGraph
    >>> from pymc_dp.graph.rewrites import written_out
    >>> x = pt.dvector("x")
    >>> squares = OpFromGraph([x], [x**2])(x)
    >>> type(written_out(squares).owner.op).__name__
    'Elemwise'
    """
    graph = FunctionGraph(outputs=[output], clone=True, copy_inputs=False)
    nested = True
    while nested:
        nested = False
        for node in list(graph.toposort()):
            if isinstance(node.op, OpFromGraph) and not isinstance(node.op, SymbolicRandomVariable):
                pairs = zip(node.outputs, inline_ofg_node(node), strict=True)
                graph.replace_all(pairs, import_missing=True)
                nested = True
    return graph.outputs[0]


def rebuilt(output: Variable, swap: dict[Variable, Variable]) -> Variable:
    """Graph with variables replaced and nodes above made anew, so that no static length stays."""
    made = dict(swap)
    for node in FunctionGraph(outputs=[output], clone=False).toposort():
        inputs = [made.get(variable, variable) for variable in node.inputs]
        if inputs == node.inputs or not swap.keys().isdisjoint(node.outputs):
            continue
        if isinstance(node.op, SpecifyShape):
            made[node.outputs[0]] = inputs[0]
        elif isinstance(node.op, Alloc) and inputs[0].type.ndim == len(inputs) - 1:
            value, *lengths = inputs
            kept = [
                length if static == 1 else value.shape[axis]
                for axis, (static, length) in enumerate(zip(value.type.shape, lengths, strict=True))
            ]
            made[node.outputs[0]] = alloc(value, *kept)
        else:
            made.update(zip(node.outputs, node.op.make_node(*inputs).outputs, strict=True))
    return made.get(output, output)


def same_graph(
    inputs: Sequence[Variable],
    output: Variable,
    others_inputs: Sequence[Variable],
    others_output: Variable,
) -> bool:
    """Whether what is compiled of one graph serves for another: the same but for its inputs.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from pymc_dp.graph.rewrites import same_graph
    >>> x, y = pt.dvector("x"), pt.dvector("y")
    >>> same_graph([x], 2 * x, [y], 2 * y), same_graph([x], 2 * x, [y], 3 * y)
    (True, False)
    """
    types, others = ([each.type for each in each_inputs] for each_inputs in (inputs, others_inputs))
    return types == others and equal_computations(
        [output], [others_output], list(inputs), list(others_inputs)
    )


def without_origins() -> AbstractContextManager[None]:
    """Have PyTensor not note where variables are made, for as long as this lasts.

    Its rewrites add such notes up, those of a constant to its own: in large graphs with many equal
    constants they come to gigabytes.

    Examples
    --------
    >>> from pytensor import config
    >>> from pymc_dp.graph.rewrites import without_origins
    >>> with without_origins():
    ...     print(config.traceback__limit)
    0
    """
    held: AbstractContextManager[None] = config.change_flags(traceback__limit=0)
    return held
