"""Values of a PyMC point side by side in one vector, as numbers and in graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.blocking import PointType
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.replace import clone_replace
from pytensor.tensor.variable import TensorVariable

from pymc_dp.types import Variable, Vector

__all__ = ["FlatSpace", "VectorLayout"]


class VectorLayout:
    """Where each of some values lies in a vector.

    Parameters
    ----------
    shapes : dict
        Shape of every value, by name, in the order of the vector.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_dp.graph.vector import VectorLayout
    >>> layout = VectorLayout({"a": (), "b": (2, 2)})
    >>> vector = layout.flatten({"a": np.array(3.0), "b": np.eye(2)})
    >>> vector
    array([3., 1., 0., 0., 1.])
    >>> layout.unflatten(2 * vector, {"a": np.array(3.0), "b": np.eye(2)})["a"]
    array(6.)
    """

    def __init__(self, shapes: dict[str, tuple[int, ...]]) -> None:
        self.shapes = shapes
        self.slices: dict[str, slice] = {}
        self.size = 0
        for name, shape in shapes.items():
            start, self.size = self.size, self.size + int(np.prod(shape))
            self.slices[name] = slice(start, self.size)

    def flatten(self, point: PointType) -> Vector:
        """Vector of a point's values; a copy."""
        vector = np.empty(self.size)
        for name, where in self.slices.items():
            value = point[name]
            vector[where] = value.ravel() if isinstance(value, np.ndarray) else np.ravel(value)
        return vector

    def unflatten(self, vector: Vector, point: PointType) -> PointType:
        """Copy of a point with the values of a vector."""
        new = dict(point)
        for name, where in self.slices.items():
            value, dtype = vector[where].reshape(self.shapes[name]), point[name].dtype
            new[name] = value if value.dtype == dtype else value.astype(dtype)
        return new

    def ends(self, name: str) -> tuple[int, int]:
        """First place of a value in the vector, and the one after its last."""
        return self.slices[name].start, self.slices[name].stop

    def piece(self, vector: TensorVariable, name: str) -> Any:
        """Cut one value out of a symbolic vector."""
        where, shape = self.slices[name], self.shapes[name]
        return vector[where].reshape(shape) if shape else vector[where.start]


class FlatSpace(VectorLayout):
    """All unconstrained values of a model as one vector, in the model's own order.

    Parameters
    ----------
    model : pymc.Model
        Its free variables must be continuous.
    """

    def __init__(self, model: pm.Model) -> None:
        for rv in model.free_RVs:
            if rv.dtype.startswith(("int", "uint", "bool")):
                raise ValueError(
                    f"{rv.name!r} is discrete: this step moves continuous variables only. "
                    "Sum it out of the likelihood, or give it a continuous prior."
                )
        start = model.initial_point()
        self.values = list(model.value_vars)
        super().__init__({str(value.name): np.shape(start[value.name]) for value in self.values})
        self.start = self.flatten(start)
        # lengths of dims are as fixed as the vector is, and compiled functions are called without
        lengths: list[Variable] = [
            v for v in model.dim_lengths.values() if isinstance(v, SharedVariable)
        ]
        self._lengths = {v: pt.constant(v.get_value(), dtype=v.dtype) for v in lengths}

    @property
    def names(self) -> list[str]:
        """Names of the values."""
        return list(self.shapes)

    def coordinates(self, values: Sequence[Variable]) -> Any:
        """Places of some value variables in the vector."""
        parts = [np.arange(self.size)[self.slices[str(v.name)]] for v in self.values if v in values]
        return np.concatenate([np.empty(0, dtype=np.int64), *parts])

    def on_vector(self, outputs: Sequence[Variable]) -> tuple[Variable, list[Variable]]:
        """Graphs over value variables, rewritten over one vector."""
        theta = pt.dvector("theta")
        swap = {v: self.piece(theta, str(v.name)).astype(v.dtype) for v in self.values}
        return theta, clone_replace(list(outputs), swap | self._lengths, rebuild_strict=False)
