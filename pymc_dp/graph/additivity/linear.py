"""Linear functions of totals: the contributions go through the same function."""

from __future__ import annotations

from typing import Any

import pytensor.tensor as pt
from pytensor.compile.ops import ViewOp
from pytensor.graph.replace import vectorize_graph
from pytensor.scalar import basic as ps
from pytensor.tensor.basic import Alloc, AllocDiag, ExtractDiag, Join, MakeVector
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot, Sum
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
)

from pymc_dp.graph.additivity.forms import Additive, AdditiveForms, Node, NotAdditiveError, describe
from pymc_dp.graph.additivity.whole import check_values_kept

#: linear in the first input; the others (indices, shapes) must not involve records
_LINEAR_IN_FIRST = (
    Alloc,
    AllocDiag,
    AdvancedSubtensor,
    DimShuffle,
    ExtractDiag,
    JoinDims,
    Reshape,
    SpecifyShape,
    SplitDims,
    Subtensor,
    Sum,
    ViewOp,
    ps.Cast,
    ps.Identity,
    ps.Neg,
    ps.TrueDiv,
)
#: linear in each input while the others are held
_LINEAR_IN_EACH = (Dot, ps.Mul)


def linear_form(node: Node, forms: AdditiveForms) -> Additive:
    """Contributions to `node`'s output, where all inputs that involve records are totals."""
    op = node.op
    core = op.core_op if isinstance(op, Blockwise) else op
    core = core.scalar_op if isinstance(core, Elemwise) else core
    inputs = range(len(node.inputs))
    totals = {i for i in inputs if node.inputs[i] in forms}

    # `summands` are the inputs whose part without records only adds a constant, to be left out
    if isinstance(core, ps.Add | ps.Sub | MakeVector | Join):
        summands = set(inputs)
    elif isinstance(core, IncSubtensor | AdvancedIncSubtensor):
        summands = {0, 1}
    elif isinstance(core, ps.Switch):
        summands = {1, 2}
    elif isinstance(core, _LINEAR_IN_FIRST):
        summands = {0}
    elif isinstance(core, _LINEAR_IN_EACH):
        if len(totals) > 1:
            raise NotAdditiveError(f"{describe(node)} multiplies totals over the records")
        summands = totals
    else:
        raise NotAdditiveError(f"{describe(node)} is applied to a total over the records")
    if not totals <= summands:
        raise NotAdditiveError(f"{describe(node)} is not linear in a total over the records")
    check_values_kept(node, forms)

    some_total = forms[node.inputs[next(iter(totals))]].contributions
    number = some_total.type.shape[0] or some_total.shape[0]
    replace: dict[Any, Any] = {}
    for var in (node.inputs[i] for i in summands):
        nothing = pt.zeros((number, *var.shape), dtype=var.dtype)
        replace[var] = forms[var].contributions if var in forms else nothing
    return Additive(vectorize_graph(node.outputs[0], replace))
