"""Indices into arrays, such as a record's group: within bounds, whatever is in the data.

Compiled code does not look. A bad index is told to the curator when the data is read, before
anything is released. From then on indices are clamped, so that no record can stop a run.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.compile.mode import Mode
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    indices_from_subtensor,
)

from pymc_dp.types import Variable


class Index(NamedTuple):
    """An index into an axis of this length."""

    entry: Variable
    length: Variable


def clamped(
    output: Variable, theta: Variable, rows: Sequence[Variable]
) -> tuple[Variable, list[Index]]:
    """Rewrite a graph so that indices made of parameters or records stay within bounds.

    Returns the graph, and those indices that no parameter enters.
    """
    made: dict[Variable, Variable] = {}
    found: list[Index] = []
    moving, by_theta = {theta, *rows}, {theta}
    for node in FunctionGraph(outputs=[output], clone=False).toposort():
        inputs = [made.get(variable, variable) for variable in node.inputs]
        for place, axis in _index_places(node):
            base, entry = inputs[0], inputs[place].astype("int64")
            length = pt.as_tensor(base.type.shape[axis] or base.shape[axis]).astype("int64")
            if node.inputs[place] not in by_theta and 0 not in entry.type.shape:
                found.append(Index(entry, length))
            if node.inputs[place] in moving:
                inputs[place] = pt.clip(entry, -length, length - 1)
        if inputs != node.inputs:
            made.update(zip(node.outputs, node.op.make_node(*inputs).outputs, strict=True))
        if not isinstance(node.op, Shape | Shape_i):
            for some in (moving, by_theta):
                if not some.isdisjoint(node.inputs):
                    some.update(node.outputs)
    return made.get(output, output), found


def _index_places(node: Any) -> Iterator[tuple[int, int]]:
    """Find inputs that index an axis by whole numbers, and that axis."""
    op: Any = node.op
    axis = op.batch_ndim(node) if isinstance(op, Blockwise) else 0
    op = op.core_op if isinstance(op, Blockwise) else op
    if not isinstance(op, AdvancedSubtensor | AdvancedIncSubtensor):
        return
    first = 1 if isinstance(op, AdvancedSubtensor) else 2
    places: list[Any] = list(range(first, len(node.inputs)))
    entries: Any = indices_from_subtensor(places, op.idx_list)
    for entry in entries:
        if isinstance(entry, slice):
            axis += 1
            continue
        kind = node.inputs[entry].type
        if kind.dtype != "bool":
            yield entry, axis
        axis += 1 if kind.dtype != "bool" else kind.ndim


class IndexCheck:
    """Refuses data with indices out of bounds.

    Parameters
    ----------
    what : str
        What looks entries up, for messages.
    found : sequence of Index
        From the log-likelihood's graph.
    theta : TensorVariable
        The parameters.
    rows : sequence of TensorVariable
        Inputs that hold the records.
    """

    def __init__(
        self, what: str, found: Sequence[Index], theta: Variable, rows: Sequence[Variable]
    ) -> None:
        self.what = what
        ranges = [
            part for entry, length in found for part in (pt.min(entry), pt.max(entry), length)
        ]
        # once for each reading of the data: not worth compiling
        mode = Mode(linker="py", optimizer=None)  # type: ignore[arg-type]
        self._ranges = pytensor.function([theta, *rows], ranges, mode, on_unused_input="ignore")

    def __call__(self, theta: NDArray[np.float64], data: Sequence[NDArray[Any]]) -> None:
        """Refuse records' arrays that hold an index out of bounds."""
        ranges = np.array(self._ranges(theta, *data), dtype=np.int64)
        for smallest, largest, length in ranges.reshape(-1, 3):
            if smallest < -length or largest >= length:
                raise IndexError(
                    f"{self.what} looks up an entry that an array of {length} does not have: "
                    f"number groups from 0 to {length - 1}, or give the array more entries."
                )
