"""Read the parts of a score release from its document, each checked."""

from collections.abc import Mapping
from typing import Any, get_args

import numpy as np

from pymc_dp.analyst.score.bounding import Bound
from pymc_dp.analyst.score.graph import RecordArray
from pymc_dp.analyst.score.looks import Look, Moments, read_numbers
from pymc_dp.formats.document import in_field, known_fields
from pymc_dp.mechanisms.base import one_positive
from pymc_dp.numerics.arguments import numbers
from pymc_dp.types import Array

__all__ = ["read_parts"]

_LOOK = ("sigma", "value", "place", "basis", "clip", "bound")
_MOMENTS = ("sigma", "value", "name", "clip")
_ARRAY = ("name", "shape", "integer")


def read_parts(found: Mapping[str, Any]) -> dict[str, Any]:
    """Parts of a release that are no plain numbers or text."""
    if not isinstance(found["parameters"], dict) or not found["parameters"]:
        raise ValueError(f"parameters must be shapes by name, not {found['parameters']!r}.")
    parameters = {name: _shape(name, shape) for name, shape in found["parameters"].items()}
    size = sum(int(np.prod(shape, dtype=float)) for shape in parameters.values())
    looks = tuple(_look(each, size) for each in _list(found, "looks"))
    observed = tuple(_text("observed", each) for each in _list(found, "observed"))
    if not looks or not observed:
        raise ValueError("looks and observed must not be empty.")
    return {
        "parameters": parameters,
        "observed": observed,
        "arrays": tuple(_array(each) for each in _list(found, "arrays")),
        "looks": looks,
        "also": tuple(_moments(each) for each in _list(found, "also")),
        "trial": None if found["trial"] is None else read_numbers(found["trial"]),
    }


def _look(part: Any, size: int) -> Look:
    given = known_fields("a look", part, _LOOK)
    basis = _finite("basis", given["basis"], 2)
    if len(basis) != size or not 1 <= basis.shape[1] <= size:
        raise ValueError(
            f"basis has shape {basis.shape}, and the parameters have {size} coordinates."
        )
    bound: Any = given["bound"]
    if bound not in get_args(Bound):
        raise ValueError(f"bound must be one of {get_args(Bound)}, not {bound!r}.")
    return Look(
        sigma=_positive("sigma", given["sigma"]),
        value=_finite("value", given["value"], 1, basis.shape[1]),
        place=_finite("place", given["place"], 1, size),
        basis=basis,
        clip=_positive("clip", given["clip"]),
        bound=bound,
    )


def _moments(part: Any) -> Moments:
    given = known_fields("also", part, _MOMENTS)
    return Moments(
        sigma=_positive("sigma", given["sigma"]),
        value=_finite("value", given["value"], 1),
        name=_text("name", given["name"]),
        clip=_positive("clip", given["clip"]),
    )


def _array(part: Any) -> RecordArray:
    given = known_fields("arrays", part, _ARRAY)
    if not isinstance(given["integer"], bool):
        raise ValueError(f"integer must be true or false, not {given['integer']!r}.")
    name = None if given["name"] is None else _text("name", given["name"])
    return RecordArray(name, _shape("arrays", given["shape"]), given["integer"])


def _list(found: Mapping[str, Any], name: str) -> list[Any]:
    if not isinstance(found[name], list):
        raise ValueError(f"{name} must be a list, not {found[name]!r}.")
    return found[name]


def _shape(name: str, shape: Any) -> tuple[int, ...]:
    whole = isinstance(shape, list) and all(type(each) is int for each in shape)
    if not whole or not all(0 <= each < 2**31 for each in shape):
        raise ValueError(f"the shape of {name!r} must be a list of whole numbers, not {shape!r}.")
    return tuple(shape)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} must be text, not {value!r}.")
    return value


def _positive(name: str, value: Any) -> float:
    if isinstance(value, bool):
        raise ValueError(f"{name} must be a number, not {value!r}.")
    return one_positive(name, value)


def _finite(name: str, value: Any, axes: int, length: int | None = None) -> Array:
    with in_field(name):
        array = numbers(name, value)
    if array.ndim != axes or array.size == 0 or length not in (None, len(array)):
        raise ValueError(f"{name} has shape {array.shape}: it does not fit the parameters.")
    if np.asarray(value).dtype == bool or not np.all(np.isfinite(array)):
        raise ValueError(f"{name} must be finite numbers.")
    return array
