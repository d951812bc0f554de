"""Parts of a score release: noised sums, and functions of records that are summed."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.tensor as pt

from pymc_dp.analyst.score.bounding import Bound
from pymc_dp.analyst.score.graph import RecordArray
from pymc_dp.types import Matrix, Variable, Vector

__all__ = [
    "Look",
    "Moments",
    "NoisedSum",
    "Statistic",
    "named_arrays",
    "named_statistic",
    "plain",
    "read_numbers",
]

Statistic = Callable[[Mapping[str, Variable]], Variable]
"""Takes the records' arrays by name and returns one row of numbers a record, in PyTensor."""


@dataclass(frozen=True, eq=False)
class NoisedSum:
    """A sum over the records with noise.

    Attributes
    ----------
    sigma : float
        Standard deviation of the noise in every component.
    value : ndarray
        The noised sum.
    """

    sigma: float
    value: Vector

    @property
    def noise(self) -> Vector:
        """Standard deviation of the noise, one for each component."""
        return np.full(self.value.size, self.sigma)


@dataclass(frozen=True, eq=False)
class Look(NoisedSum):
    """One noised sum of scores.

    Attributes
    ----------
    place : ndarray
        Unconstrained parameters at which scores were taken, as one vector.
    basis : ndarray
        Scores are by the coordinates q of ``theta = place + basis @ q``.
    clip : float
        Bound on the length of a record's part.
    bound : {"length", "covariates"}
        How it is kept.
    """

    place: Vector
    basis: Matrix
    clip: float
    bound: Bound


@dataclass(frozen=True, eq=False)
class Moments(NoisedSum):
    """Another noised sum over the records, of rows no longer than `clip`."""

    name: str
    clip: float


def named_statistic(name: str, statistic: Statistic, arrays: Mapping[str, Variable]) -> Variable:
    """Apply a user's function to the records' arrays; one record a column."""
    try:
        rows = pt.as_tensor_variable(statistic(arrays))
    except KeyError as error:
        raise ValueError(
            f"also={name!r} asks for {error}, and the records' arrays with a name are "
            f"{sorted(arrays)}: give covariates one, pm.Data('X', X), and the same to the "
            "analyst's variable."
        ) from None
    if rows.type.ndim not in (1, 2):
        raise ValueError(
            f"also={name!r} must return one number or one row of numbers a record, not an array "
            f"with {rows.type.ndim} axes."
        )
    return (rows[:, None] if rows.type.ndim == 1 else rows).T.astype("float64")


def named_arrays(arrays: Sequence[Variable], names: Mapping[Variable, str]) -> dict[str, Variable]:
    """Arrays of the records that have a name."""
    found = {names.get(array) or array.name: array for array in arrays}
    return {str(name): array for name, array in found.items() if name}


def plain(value: Any) -> Any:
    """Write a part of a release as numbers, text, lists and dicts."""
    if isinstance(value, np.ndarray):
        return [plain(each) for each in value.tolist()]
    if isinstance(value, float):  # densities of made-up records may be infinite
        return value if math.isfinite(value) else str(value)
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, RecordArray):
        return value._asdict()
    if isinstance(value, Look | Moments):
        return {name: plain(each) for name, each in vars(value).items()}
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    return dict(value) if isinstance(value, Mapping) else value


def read_numbers(value: Any) -> Matrix:
    """Read an array of floats, of which some may be infinite or NaN."""
    return np.array([[float(each) for each in row] for row in value])
