"""What a variable of a graph is to the records: the forms and their error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pytensor.tensor.variable import TensorVariable


class NotAdditiveError(ValueError):
    """A quantity is not a sum over records."""


class UnknownOperationError(NotAdditiveError):
    """What an operation does to the records cannot be read from the graph."""


@dataclass(frozen=True)
class PerRecord:
    """Slice i along `axis` is a function of record i alone (of record `rows[i]`, where given)."""

    axis: int
    rows: TensorVariable | None = None


@dataclass(frozen=True)
class Additive:
    """A constant plus the sum over the first axis of `contributions`, of shape (n, *shape)."""

    contributions: TensorVariable


Form = PerRecord | Additive
# PyTensor types variables by value, not by class: to mypy an Apply's inputs have no shape
Node = Any
Forms = dict[Any, Form]
PerRecordForms = dict[Any, PerRecord]
AdditiveForms = dict[Any, Additive]


def describe(node: Node) -> str:
    """Name an operation for people."""
    op = node.op
    inner = getattr(op, "core_op", None) or getattr(op, "scalar_op", None) or op
    return f"the operation `{type(inner).__name__}`"
