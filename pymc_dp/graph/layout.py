"""A point as three arrays, and graphs as compiled functions of these three.

The kernels take `theta` (parameters that move), `given` (whatever else the graphs use: other
variables of the model, public data) and `table` (records, one a column), whatever the model is.
Shorter tables of records stand in the first columns of theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.blocking import PointType
from pymc.pytensorf import compile as pm_compile
from pymc.vartypes import continuous_types
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import graph_inputs, io_toposort
from pytensor.scalar import basic as ps
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable

from pymc_dp.graph.quick_mode import quick_mode
from pymc_dp.graph.vector import VectorLayout

__all__ = ["PointLayout"]

#: entries of an array that is given to compiled functions rather than written into them
MOST_NUMBERS = 1000


class PointLayout:
    """Where every value of a model's point lies in `theta`, `given` or `table`.

    Parameters
    ----------
    model : Model
        The model.
    parameters, records : sequence of TensorVariable
        Random variables whose values go to `theta` and to `table`.
    point : dict
        A point of the model, for the shapes.
    compile_kwargs : dict
        Passed to the compilation.
    """

    def __init__(
        self,
        model: pm.Model,
        parameters: Sequence[TensorVariable],
        records: Sequence[TensorVariable],
        point: PointType,
        compile_kwargs: dict[str, Any],
    ) -> None:
        self.compile_kwargs = compile_kwargs
        self.record_variables = list(records)
        self.records = [str(model.rvs_to_values[rv].name) for rv in records]
        #: what `given` holds, values of the model or shared variables
        self.inputs: list[Any] = []
        self._point = point
        self._pieces: dict[Any, TensorVariable] = {}

        names = [str(model.rvs_to_values[rv].name) for rv in parameters]
        self.parameters = VectorLayout({name: np.shape(point[name]) for name in names})
        self.size = self.parameters.size
        #: rows of the table for every record variable
        self.widths = [np.size(point[name]) // len(point[name]) for name in self.records]
        #: number of records of every record variable
        self.lengths = [len(point[name]) for name in self.records]
        longest = max(self.lengths, default=0)
        self.theta = pt.tensor("theta", shape=(self.size,), dtype="float64")
        self.given = pt.dvector("given")
        self.table = pt.tensor("table", shape=(sum(self.widths), longest), dtype="float64")
        self._given_size = 0
        self._given_shapes: list[tuple[int, ...]] = []
        self._numbers = numbers_of(model)
        self._reals = _real_arguments(model)
        self._copies = {number.data.tobytes() for number in self._numbers}

        for rv in parameters:
            value: Any = model.rvs_to_values[rv]
            piece = self.piece(self.theta, value)
            whole = value.dtype not in continuous_types
            self._pieces[value] = piece.astype(value.dtype) if whole else piece
        self._shapes = {name: np.shape(point[name]) for name in self.records}
        for rv in records:
            value = model.rvs_to_values[rv]
            self._pieces[value] = self.columns(self.table, value).astype(value.dtype)

    def on_arrays(self, graphs: Sequence[Any], keep: Sequence[Any] = ()) -> list[Any]:
        """Express graphs of the model's values as graphs of the three arrays.

        Inputs in `keep` stay as they are.
        """
        known = {*self._pieces, self.theta, self.given, self.table, *keep}
        for var in dict.fromkeys(graph_inputs(graphs)):
            if isinstance(var.type, RandomType) or var in known:
                continue
            if not isinstance(var, Constant) or var in self._numbers or self._is_copy(var):
                self._add_given(var)
        return clone_replace(list(graphs), self._pieces, rebuild_strict=False)

    def _is_copy(self, var: Constant) -> bool:
        """Whether a real number is one of the model's: PyMC copies these, and gives them axes."""
        real = isinstance(var.type, TensorType) and var.type.dtype in continuous_types
        return real and var.data.tobytes() in self._copies

    @property
    def given_size(self) -> int:
        """Length of `given`, as far as graphs were laid out."""
        return self._given_size

    def _add_given(self, var: Any) -> None:
        shape = np.shape(_current(var, self._point))
        stop = self._given_size + int(np.prod(shape))
        piece = self.given[self._given_size : stop].reshape(shape)
        self._given_shapes.append(shape)
        self._pieces[var] = piece if var in self._reals else piece.astype(var.dtype)
        self.inputs.append(var)
        self._given_size = stop

    def compiled(
        self, inputs: Sequence[Any], outputs: Sequence[Any], rng: Any = None, **kwargs: Any
    ) -> Any:
        """Compile graphs of the three arrays; a generator is advanced in place."""
        first = [] if rng is None else [pytensor.In(rng, mutable=True)]
        options = {**self.compile_kwargs, **kwargs}
        function = pm_compile(
            [*first, *inputs],
            list(outputs),
            random_seed=False,
            on_unused_input="ignore",
            **{**options, "mode": quick_mode(options.get("mode"))},
        )
        function.trust_input = True
        return function

    def piece(self, theta: TensorVariable, value: Any) -> TensorVariable:
        """Cut the value of a parameter out of a vector like `theta`."""
        return self.parameters.piece(theta, str(value.name))

    def columns(self, table: TensorVariable, value: Any) -> TensorVariable:
        """Cut the value of a record variable out of a matrix like `table`."""
        first, last = self.rows_of(str(value.name))
        shape = self._shapes[str(value.name)]
        if shape[0] < self.table.type.shape[1]:
            table = table[:, : shape[0]]
        if len(shape) == 1:
            return table[first]
        piece = table[first:last].T
        return piece.reshape(shape) if len(shape) > 2 else piece

    def rows(self, values: Sequence[Any]) -> TensorVariable:
        """Lay symbolic values of the records out as a table."""
        parts = [
            (v[None] if v.ndim == 1 else v.reshape((v.shape[0], -1)).T).astype("float64")
            for v in values
        ]
        return pt.concatenate(parts, axis=0) if len(parts) > 1 else parts[0]

    def whole(self, values: Sequence[Any]) -> TensorVariable:
        """Lay symbolic values of all record variables out as the table."""
        if len(set(self.lengths)) < 2:
            return self.rows(values)
        rows = [
            self.padded(self.rows([value]), length)
            for value, length in zip(values, self.lengths, strict=True)
        ]
        return pt.concatenate(rows, axis=0)

    def padded(self, rows: Any, length: int) -> Any:
        """Make rows of some records as long as the table."""
        longest = int(self.table.type.shape[1])
        if length == longest:
            return rows
        return pt.concatenate([rows, pt.zeros((rows.shape[0], longest - length))], axis=1)

    def rows_of(self, name: str) -> tuple[int, int]:
        """First row of a record variable in the table, and the one after its last."""
        position = self.records.index(name)
        return sum(self.widths[:position]), sum(self.widths[: position + 1])

    def start(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Lay the point out that this was made with."""
        point = self._point
        return self.theta_of(point), self.given_of(point), self.table_of(point)

    def theta_of(self, point: PointType) -> NDArray[np.float64]:
        """Read the parameters of a point; a copy."""
        return self.parameters.flatten(point)

    def given_of(self, point: PointType) -> NDArray[np.float64]:
        """Read everything else that the compiled functions use."""
        values = [_current(var, point) for var in self.inputs]
        for var, value, shape in zip(self.inputs, values, self._given_shapes, strict=True):
            _check_shape(str(var.name), value, shape)
        flat = [np.ravel(value) for value in values]
        return np.concatenate(flat, dtype=np.float64) if flat else np.zeros(0)

    def table_of(self, point: PointType) -> NDArray[np.float64]:
        """Read the records of a point, one a column; a copy."""
        table = np.zeros(self.table.type.shape)
        row = 0
        for name, width in zip(self.records, self.widths, strict=True):
            value = point[name]
            _check_shape(name, value, self._shapes[name])
            if value.ndim == 1:
                table[row, : len(value)] = value
            else:
                table[row : row + width, : len(value)] = value.reshape(len(value), -1).T
            row += width
        return table

    def point_of(
        self, point: PointType, theta: NDArray[np.float64], table: NDArray[np.float64]
    ) -> PointType:
        """Write parameters and records back into a copy of a point."""
        new = self.parameters.unflatten(theta, point)
        row = 0
        for name, width in zip(self.records, self.widths, strict=True):
            old = point[name]
            if old.ndim == 1:  # the usual case, quickly: this runs once a draw
                part = table[row, : len(old)]
            else:
                part = table[row : row + width, : len(old)].T.reshape(old.shape)
            new[name] = part.astype(old.dtype, copy=False)
            row += width
        return new


def _check_shape(name: str, value: Any, shape: tuple[int, ...]) -> None:
    """Refuse what has another shape than the compiled functions were made for."""
    if np.shape(value) != shape:
        raise ValueError(
            f"{name!r} has the shape {np.shape(value)}, and had {shape} when this step was made. "
            "Make a new step after pm.set_data changes a shape."
        )


def numbers_of(model: pm.Model) -> set[Constant]:
    """Numbers in a model that are given to compiled functions instead of being written into them.

    Models that differ in these alone, released values and arguments of distributions among them,
    are compiled once. What shapes, positions and powers are made of has to stay as it is.
    """
    graphs = [*model.basic_RVs, *model.potentials]
    found = {var for var in model.rvs_to_values.values() if isinstance(var, Constant)}
    written: set[Any] = set()
    shaped: dict[Any, Constant] = {}  # numbers given more axes
    for node in io_toposort([], graphs):
        for var in node.inputs:
            number = shaped.get(var, var)
            if not isinstance(number, Constant):
                continue
            if isinstance(node.op, DimShuffle):
                shaped[node.outputs[0]] = number
            elif _is_argument(node, var, number):
                found.add(number)
            else:
                written.add(number)
    kept = {var.signature() for var in written}  # densities' graphs hold equal constants once
    return {var for var in found if _is_given(var) and var.signature() not in kept}


def _real_arguments(model: pm.Model) -> set[Any]:
    """Whole numbers that are arguments of continuous distributions alone: 7 may become 7.5.

    Of one number each, whose densities are computed entry by entry: that of a simplex adds whole
    numbers up as such.
    """
    real: set[Any] = set()
    whole: set[Any] = set()
    for node in io_toposort([], [*model.basic_RVs, *model.potentials]):
        drawn = isinstance(node.op, RandomVariable) and node.op.dtype in continuous_types
        drawn = drawn and node.op.ndim_supp == 0
        arguments = node.op.dist_params(node) if drawn else []
        for var in node.inputs:
            (real if var in arguments else whole).add(var)
    kept = {var.signature() for var in whole if isinstance(var, Constant)}
    return {var for var in real if isinstance(var, Constant) and var.signature() not in kept}


def _is_argument(node: Any, var: Any, number: Constant) -> bool:
    """Whether a number is an argument of a distribution, or a real one that is computed with."""
    if isinstance(node.op, RandomVariable):
        return var in node.op.dist_params(node)
    computed = isinstance(node.op, Elemwise) and not isinstance(node.op.scalar_op, ps.Pow)
    return computed and number.type.dtype in continuous_types


def _is_given(var: Constant) -> bool:
    """Whether a number can be laid beside others: each draw does so again."""
    numeric = isinstance(var.type, TensorType) and var.type.dtype != "bool"
    return numeric and var.data.size <= MOST_NUMBERS and bool(np.isfinite(var.data).all())


def _current(var: Any, point: PointType) -> Any:
    if isinstance(var, Constant):
        return var.data
    if isinstance(var, SharedVariable):
        return var.get_value(borrow=True)
    return point[str(var.name)]
