"""Where scores are taken, and in which coordinates: what a user writes, read into vectors."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import ArrayLike
from pytensor.graph.basic import Variable as GraphVariable
from pytensor.graph.replace import clone_replace

from pymc_dp.curator.score.totals import ConfidentialScores
from pymc_dp.curator.steps.hmc_settings import square_root
from pymc_dp.graph.intervals import ONCE
from pymc_dp.types import Matrix, Vector

__all__ = ["Place", "read_basis", "read_places"]

Place = Mapping[str, ArrayLike]
"""Values of parameters by their names, or unconstrained values by those of the value variables."""


def read_places(
    at: Place | Sequence[Place], model: pm.Model, scores: ConfidentialScores
) -> list[Vector]:
    """Unconstrained parameters of one place or of several, in the order of the release."""
    places = [at] if isinstance(at, Mapping) else list(at)
    if not places or not all(isinstance(place, Mapping) for place in places):
        raise ValueError(
            "at= must be a dict of parameters' values by name, or a list of such dicts."
        )
    return [_read_place(place, model, scores) for place in places]


def _read_place(place: Place, model: pm.Model, scores: ConfidentialScores) -> Vector:
    rvs = {str(model.rvs_to_values[rv].name): rv for rv in model.free_RVs}
    known = {*rvs, *(str(rv.name) for rv in model.free_RVs)}
    if unknown := sorted(set(place) - known):
        raise ValueError(
            f"at= has {unknown}, which are no parameters of the model: {sorted(known)}."
        )
    given: dict[Any, Any] = {}
    for rv in model.free_RVs:
        if str(rv.name) in place:
            given[rv] = _numbers(str(rv.name), place[str(rv.name)], rv.dtype)
    vector = np.empty(scores.layout.size)
    for name, where in scores.layout.slices.items():
        rv, shape = rvs[name], scores.layout.shapes[name]
        if name in place:
            value = _numbers(name, place[name])
        elif rv in given:
            value = _unconstrained(model, rv, given)
        else:
            raise ValueError(f"at= lacks {str(rv.name)!r}, which the records inform.")
        if value.shape != tuple(shape):
            raise ValueError(
                f"at= has {str(rv.name)!r} with shape {np.shape(place.get(str(rv.name), value))}; "
                f"its unconstrained values have shape {tuple(shape)}."
            )
        if not np.isfinite(value).all():
            raise ValueError(
                f"at= has {str(rv.name)!r} outside of its prior's support, or at its border: "
                f"{place.get(str(rv.name), value)!r}."
            )
        vector[where] = value.ravel()
    return vector


def _numbers(name: str, value: Any, dtype: str = "float64") -> Any:
    if isinstance(value, GraphVariable):
        raise ValueError(f"at= must have numbers for {name!r}, known from elsewhere, not a graph.")
    return np.asarray(value, dtype=float).astype(dtype)


def _unconstrained(model: pm.Model, rv: Any, given: Mapping[Any, Any]) -> Any:
    """Unconstrained value of a parameter, whose support may depend on other parameters."""
    transform = model.rvs_to_transforms[rv]
    if transform is None:
        return given[rv]
    forward = transform.forward(pt.as_tensor(given[rv]), *rv.owner.inputs)
    swap = {other: pt.as_tensor(value) for other, value in given.items() if other is not rv}
    with np.errstate(all="ignore"):
        return np.asarray(clone_replace(forward, swap, rebuild_strict=False).eval(mode=ONCE))


def read_basis(inverse_mass: ArrayLike, scores: ConfidentialScores) -> Matrix:
    """Coordinates in which the inverse mass is the identity.

    It may be given for all unconstrained coordinates of the model, or for those of the parameters
    that records inform.
    """
    mass, size = np.asarray(inverse_mass, dtype=float), scores.layout.size
    if mass.shape and mass.shape[0] == scores.records.space.size != size:
        mass = mass[scores.coordinates]
        mass = mass[:, scores.coordinates] if mass.ndim == 2 else mass
    return square_root(mass, size)
