"""Where parameters meet records in a likelihood's graph: how one record's gradient is made.

A value that is free of records, such as a mean or a scale, meets the records in an elementwise
operation, and then the gradient of record i by it is what reverse mode has before it adds over the
records. Or it meets them in a linear predictor ``X @ coefficients``, and then the gradient by the
coefficients is a number, the record's score, times the record's row of X. Values themselves depend
on the parameters by derivatives that no record enters.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytensor.tensor as pt
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.shape import Shape, Shape_i

from pymc_dp.graph.additivity import NotAdditiveError, PerRecord, per_record_forms
from pymc_dp.graph.rewrites import rebuilt
from pymc_dp.types import Variable


class GradientPieces(NamedTuple):
    """Graphs of the pieces of every record's gradient.

    Attributes
    ----------
    values : list
        Variables of the parameters alone that meet the records elementwise.
    value_gradients : list
        Derivative of each record's log-likelihood by such a variable, one record a row.
    coefficients : list
        Vectors of the parameters alone that meet the records in a linear predictor.
    covariates : list
        The rows that such a vector is multiplied by.
    scores : list
        Derivative of each record's log-likelihood by such a predictor.
    """

    values: list[Variable]
    value_gradients: list[Variable]
    coefficients: list[Variable]
    covariates: list[Variable]
    scores: list[Variable]


def split_gradient(
    logp: Variable, theta: Variable, rows: Sequence[Variable], axes: Sequence[int]
) -> GradientPieces | None:
    """Apply the chain rule where `theta` meets the rows; None where they meet in another way."""
    try:
        forms = per_record_forms(logp, dict(zip(rows, axes, strict=True)))
    except NotAdditiveError:
        return None
    graph = FunctionGraph(outputs=[logp], clone=False)
    nodes = graph.toposort()
    by_theta = {theta}
    for node in nodes:
        if not isinstance(node.op, Shape | Shape_i) and not by_theta.isdisjoint(node.inputs):
            by_theta.update(node.outputs)
    cutter = _Cutter(forms, by_theta)
    made = cutter.rewritten(nodes, logp)
    if made is None or not cutter.cuts:
        return None
    slots = list(cutter.cuts)
    gradients: Any = pt.grad(made.sum(), slots, disconnected_inputs="ignore")
    values_of = {slot: cut.variable for slot, cut in cutter.cuts.items()}
    number = rows[0].shape[axes[0]]
    pieces = GradientPieces([], [], [], [], [])
    for slot, gradient in zip(slots, gradients, strict=True):
        cut = cutter.cuts[slot]
        one_a_row = pt.moveaxis(rebuilt(gradient, values_of), cut.axis, 0)
        if cut.covariates is None:
            width = cut.variable.size
            spread = pt.broadcast_to(one_a_row, (number, *one_a_row.shape[1:]))
            pieces.values.append(cut.variable)
            pieces.value_gradients.append(spread.reshape((number, width)))
        else:
            pieces.coefficients.append(cut.coefficients)
            pieces.covariates.append(cut.covariates)
            pieces.scores.append(one_a_row.ravel())
    return pieces


class _Cut(NamedTuple):
    """Where the chain rule is applied: a value that is free of records, or a linear predictor."""

    variable: Variable
    axis: int
    coefficients: Variable | None = None
    covariates: Variable | None = None


class _Cutter:
    """Goes through a graph and puts a new variable, a slot, where parameters meet records."""

    def __init__(self, forms: dict[Variable, Any], by_theta: set[Variable]) -> None:
        self.forms, self.by_theta = forms, by_theta
        self.cuts: dict[Variable, _Cut] = {}
        self._slots: dict[tuple[Variable, int], Variable] = {}

    def rewritten(self, nodes: Sequence[Any], output: Variable) -> Variable | None:
        """Rewrite the graph over its slots; None where they meet in another way."""
        made: dict[Variable, Variable] = {}
        for node in nodes:
            if not any(var in self.forms for var in node.outputs):
                continue
            if not all(isinstance(self.forms.get(var), PerRecord) for var in node.outputs):
                return None
            inputs = [made.get(var, var) for var in node.inputs]
            entering = [i for i, var in enumerate(node.inputs) if self._enters(var)]
            if entering and _is_dot(node.op):
                if (slot := self._predictor(node, entering)) is None:
                    return None
                made[node.outputs[0]] = slot
                continue
            if entering and not isinstance(node.op, Elemwise):
                return None
            for i in entering:
                if (slot := self._value(node.inputs[i], node.outputs[0])) is None:
                    return None
                inputs[i] = slot
            if inputs != node.inputs:
                made.update(zip(node.outputs, node.op.make_node(*inputs).outputs, strict=True))
        return made.get(output)

    def _enters(self, var: Variable) -> bool:
        return var in self.by_theta and var not in self.forms

    def _value(self, var: Variable, output: Variable) -> Variable | None:
        axis = self.forms[output].axis
        if var.type.shape[axis] != 1 or not var.dtype.startswith("float"):
            return None
        if (var, axis) not in self._slots:
            shape = list(var.type.shape)
            shape[axis] = None
            slot = pt.tensor(dtype=var.dtype, shape=tuple(shape))
            self._slots[var, axis] = slot
            self.cuts[slot] = _Cut(var, axis)
        return self._slots[var, axis]

    def _predictor(self, node: Any, entering: list[int]) -> Variable | None:
        left, right = node.inputs
        output = node.outputs[0]
        axis = self.forms[output].axis
        if output.type.ndim != 2 or output.type.shape[1 - axis] != 1 or len(entering) != 1:
            return None
        covariates, coefficients = (left, right) if entering == [1] else (right.T, left.T)
        if covariates in self.by_theta or (entering == [1]) != (axis == 0):
            return None
        slot = output.type()
        self.cuts[slot] = _Cut(output, axis, coefficients.ravel(), covariates)
        return slot


def _is_dot(op: Any) -> bool:
    return isinstance(op.core_op if isinstance(op, Blockwise) else op, Dot)
