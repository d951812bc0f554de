"""Random draws in graphs, made with one generator that the caller hands in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytensor.tensor as pt
from pymc.vartypes import discrete_types
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomType

from pymc_dp.compat import inline_ofg_node

__all__ = ["draw_from", "draw_with"]


def draw_from(distribution: Any, *parameters: Any, size: Any, **named: Any) -> Any:
    """Make a symbolic draw from one of ``pt.random``, for :func:`draw_with`."""
    rng = pt.random.shared_rng(seed=None)
    return distribution(*parameters, size=size, rng=rng, return_next_rng=True, **named)[1]


def draw_with(rng: Any, outputs: Sequence[Any], records: Sequence[Any]) -> list[Any]:
    """Thread one generator through all random draws of a graph, one after the other."""
    keep: dict[str, Any] = {"copy_inputs": False, "copy_orphans": False}
    fgraph = FunctionGraph(outputs=list(outputs), clone=True, **keep)
    while symbolic := [n for n in fgraph.toposort() if _draws_inside(n)]:
        for node in symbolic:
            fgraph.replace_all(list(zip(node.outputs, inline_ofg_node(node), strict=True)))
    for node in fgraph.toposort():
        if isinstance(node.op, RandomVariable):
            fgraph.change_node_input(node, 0, rng, import_missing=True)
            rng = node.outputs[0]
    left = [var for var in fgraph.inputs if isinstance(var.type, RandomType) and var.name != "rng"]
    if any(fgraph.clients[var] for var in left):
        discrete = ", ".join(str(rv.name) for rv in records if rv.dtype in discrete_types)
        step = f"pm.Metropolis([{discrete}])" if discrete else "pm.NUTS()"
        raise NotImplementedError(
            f"RecordGibbs cannot draw proposals for {', '.join(repr(rv.name) for rv in records)}: "
            "their distribution draws in a loop. Write it with vectorised distributions, or sample "
            f"with step={step}."
        )
    return list(fgraph.outputs)


def _draws_inside(node: Any) -> bool:
    takes_rng = any(isinstance(var.type, RandomType) for var in node.inputs)
    return isinstance(node.op, OpFromGraph) and takes_rng
