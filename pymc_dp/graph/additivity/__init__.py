"""Read record additivity, and what one record adds to a total, from a graph.

Ju et al. (2022), Assumption 2, asks that a statistic be a sum over records,
`t(x) = const + sum_i t_i(x_i)`. Here that form is read off the PyTensor graph. Walking from the
records up to the statistic, every variable is one of three things:

free
    it does not involve the records;
:class:`PerRecord`
    one of its axes is the record axis, and its i-th slice is a function of record i alone;
:class:`Additive`
    it is a constant plus a sum of contributions, one a record.

A rule for a new operation on each record's values belongs in
:mod:`~pymc_dp.graph.additivity.per_record`, for one that is linear in totals in
:mod:`~pymc_dp.graph.additivity.linear`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import io_toposort, walk
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.variable import TensorVariable

from pymc_dp.compat import inline_ofg_node
from pymc_dp.graph.additivity import indexing as _indexing  # noqa: F401  (registers its rules)
from pymc_dp.graph.additivity.forms import (
    Additive,
    Form,
    Forms,
    Node,
    NotAdditiveError,
    PerRecord,
    PerRecordForms,
    UnknownOperationError,
    describe,
)
from pymc_dp.graph.additivity.linear import linear_form
from pymc_dp.graph.additivity.per_record import form_of_node

__all__ = [
    "Additive",
    "NotAdditiveError",
    "PerRecord",
    "UnknownOperationError",
    "direct_inputs",
    "form_of",
    "per_record_forms",
]


def direct_inputs(outputs: Sequence[Any], stop_at: Iterable[Any]) -> list[Any]:
    """Variables of `stop_at` that `outputs` use without passing through another one of them."""
    stops = set(stop_at)

    def expand(var: Variable) -> list[Variable] | None:
        return None if var in stops or var.owner is None else list(var.owner.inputs)

    return [var for var in walk(outputs, expand, bfs=False) if var in stops]


def form_of(
    output: TensorVariable, records: Sequence[TensorVariable], fixed: Iterable[Variable] = ()
) -> Form | None:
    """Form of `output` as a function of `records`, whose first axes are the record axis.

    Parameters
    ----------
    output : TensorVariable
        The quantity to analyse.
    records : sequence of TensorVariable
        Variables with the records along their first axis.
    fixed : iterable of Variable
        Variables to take as given even where their own graph leads to the records.

    Returns
    -------
    PerRecord, Additive or None
        None where the output does not involve the records.

    Raises
    ------
    NotAdditiveError
        Naming the operation that breaks the form.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from pymc_dp.graph.additivity import form_of
    >>> x = pt.vector("x", shape=(3,))
    >>> form_of(2 * (x**2).sum() + 1, [x]).contributions.eval({x: [1.0, 2.0, 3.0]})
    array([ 2.,  8., 18.])
    """
    forms: Forms = {record: PerRecord(0) for record in records}
    return _propagate(output, forms, fixed, records[0].shape[0])


def per_record_forms(
    output: TensorVariable,
    axes: Mapping[TensorVariable, int],
    vouched: bool = False,
    fixed: Iterable[Variable] = (),
) -> Forms:
    """Forms of all variables below `output` that involve records.

    Parameters
    ----------
    output : TensorVariable
        The quantity to analyse.
    axes : mapping
        Variables that hold the records, and which of their axes is the record axis.
    vouched : bool
        Take it that operations without a rule keep records apart. The record axis of what they
        return is then the one of the right length.
    fixed : iterable of Variable
        Variables to take as given even where their own graph leads to the records.

    Raises
    ------
    NotAdditiveError
        Naming the first operation without a form: an :class:`UnknownOperationError` where it has
        no rule, or where its record axis cannot be told.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from pymc_dp.graph.additivity import per_record_forms
    >>> x, scale = pt.matrix("x"), pt.scalar("scale")
    >>> output = (x / scale).sum(axis=1)
    >>> per_record_forms(output, {x: 0})[output]
    PerRecord(axis=0, rows=None)
    """
    forms: Forms = {var: PerRecord(axis) for var, axis in axes.items()}
    first, axis = next(iter(axes.items()))
    _propagate(output, forms, fixed, first.shape[axis], vouched)
    return forms


def _propagate(
    output: Variable,
    forms: Forms,
    fixed: Iterable[Variable],
    number: TensorVariable,
    vouched: bool = False,
) -> Form | None:
    """Carry forms from the variables that have one up to `output`."""
    blockers = [*forms, *(var for var in fixed if var not in forms)]
    for node in [] if output in blockers else io_toposort(blockers, [output]):
        if isinstance(node.op, Shape | Shape_i) or not any(var in forms for var in node.inputs):
            continue
        if isinstance(node.op, OpFromGraph):
            inlined = inline_ofg_node(node)
            found = [
                _propagate(graph, dict(forms), node.inputs, number, vouched) for graph in inlined
            ]
        else:
            found = _output_forms(node, forms, number, vouched)
        forms.update((out, form) for out, form in zip(node.outputs, found, strict=True) if form)
    return forms.get(output)


def _output_forms(
    node: Node, forms: Forms, number: TensorVariable, vouched: bool
) -> list[Form | None]:
    try:
        return [_node_form(node, forms, number)] * len(node.outputs)
    except UnknownOperationError:
        if not vouched:
            raise
    given = {var: form for var in node.inputs if isinstance(form := forms.get(var), PerRecord)}
    return [_vouched_form(node, output, given) for output in node.outputs]


def _vouched_form(node: Node, output: Any, forms: PerRecordForms) -> Form:
    """Form of an unknown operation's output that is vouched to keep records apart."""
    form = next(iter(forms.values()))
    lengths = {var.type.shape[each.axis] for var, each in forms.items()}
    fitting = [axis for axis, length in enumerate(output.type.shape) if {length} == lengths]
    if form.axis in fitting:
        return form
    if len(fitting) != 1:
        raise UnknownOperationError(
            f"{describe(node)} returns no axis that is plainly the records'"
        )
    return PerRecord(fitting[0], form.rows)


def _node_form(node: Node, forms: Forms, number: TensorVariable) -> Form | None:
    if isinstance(node.op, CheckAndRaise):
        return forms.get(node.inputs[0])
    involved = {var: forms[var] for var in node.inputs if var in forms}
    per_record = {var: form for var, form in involved.items() if isinstance(form, PerRecord)}
    totals = {var: form for var, form in involved.items() if isinstance(form, Additive)}
    if not totals:
        return form_of_node(node.op, node, per_record, number)
    if not per_record:
        return linear_form(node, totals)
    raise NotAdditiveError(
        f"{describe(node)} combines each record with a total over all records, "
        "so that what one record adds depends on the others"
    )
