"""Where a function of one record has corners: values of the record to break an integral at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.traversal import ancestors
from pytensor.scalar import basic as ps
from pytensor.tensor.elemwise import Elemwise

__all__ = ["breaks_of"]

_COMPARISONS = (ps.LT, ps.GT, ps.LE, ps.GE)


def breaks_of(statistic: Any, record: Any, targets: Sequence[Any]) -> list[Any]:
    """Values of a record at which its statistic has a corner, jumps, or takes a value of `targets`.

    Read down the graph from the statistic to the record through operations that can be inverted;
    below one that cannot be, nothing is known and nothing returned.

    Parameters
    ----------
    statistic, record : TensorVariable
        An elementwise function of the record, and the record.
    targets : sequence of TensorVariable
        Values of the statistic.

    Returns
    -------
    list of TensorVariable
        NaN where a target cannot be reached.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from pymc_dp.analyst.marginal.exact.breaks import breaks_of
    >>> x = pt.vector("x")
    >>> [value.eval().item() for value in breaks_of(pt.clip(2 * x + 1, -3.0, 5.0), x, [])]
    [-2.0, 2.0]
    """
    if statistic is record:
        return [pt.as_tensor(target).astype("float64") for target in targets]
    node = statistic.owner
    if node is None or not isinstance(node.op, Elemwise):
        return []
    places = [i for i, var in enumerate(node.inputs) if record in ancestors([var])]
    if len(places) != 1:
        return []
    [place] = places
    others = [var for i, var in enumerate(node.inputs) if i != place]
    found = _before(node.op.scalar_op, place, others, list(targets))
    return breaks_of(node.inputs[place], record, found) if found is not None else []


def _before(op: Any, place: int, others: list[Any], targets: list[Any]) -> list[Any] | None:
    """Corners and targets in terms of the input of one operation; None where it is not known."""
    if isinstance(op, ps.Cast):
        return targets
    if isinstance(op, ps.Clip) and place == 0:
        return [*targets, *others]
    if isinstance(op, ps.ScalarMaximum | ps.ScalarMinimum):
        return [*targets, *others]
    if isinstance(op, _COMPARISONS):
        return others
    inverse = _INVERSES.get(type(op))
    if inverse is None:
        return None
    return [value for target in targets for value in inverse(target, place, others)]


def _sum(others: list[Any]) -> Any:
    return sum(others[1:], others[0])


def _product(others: list[Any]) -> Any:
    total = others[0]
    for other in others[1:]:
        total = total * other
    return total


#: values of the input in one place at which an operation gives t
_INVERSES: dict[type, Any] = {
    ps.Add: lambda t, place, others: [t - _sum(others)],
    ps.Sub: lambda t, place, others: [t + others[0] if place == 0 else others[0] - t],
    ps.Mul: lambda t, place, others: [t / _product(others)],
    ps.TrueDiv: lambda t, place, others: [t * others[0] if place == 0 else others[0] / t],
    ps.Neg: lambda t, place, others: [-t],
    ps.Exp: lambda t, place, others: [pt.log(t)],
    ps.Log: lambda t, place, others: [pt.exp(t)],
    ps.Sqrt: lambda t, place, others: [t**2],
    ps.Sqr: lambda t, place, others: [pt.sqrt(t), -pt.sqrt(t)],
    ps.Abs: lambda t, place, others: [t, -t],
}
