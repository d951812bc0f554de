"""Mechanisms as plain numbers and text, and back: every parameter, and what happened afterwards."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pymc_dp.formats.document import in_field, known_fields
from pymc_dp.mechanisms import (
    BoundedLaplace,
    DiscreteGaussian,
    DiscreteLaplace,
    Exact,
    ExponentialMechanism,
    FoldedDiscreteLaplace,
    FoldedLaplace,
    Gaussian,
    KNormGradient,
    Laplace,
    Mechanism,
    RandomizedResponse,
    Staircase,
)
from pymc_dp.mechanisms.postprocess import Clamped, Rounded, Thresholded
from pymc_dp.numerics.arguments import number

__all__ = ["InWords", "mechanism_from_plain", "mechanism_to_plain", "with_function"]

#: noise that is known by one parameter
_NOISE: dict[str, tuple[Any, str]] = {
    "Laplace": (Laplace, "scale"),
    "DiscreteLaplace": (DiscreteLaplace, "scale"),
    "Gaussian": (Gaussian, "sigma"),
    "DiscreteGaussian": (DiscreteGaussian, "sigma"),
}
#: noise that does not leave its bounds
_WITHIN: dict[str, Any] = {
    "FoldedLaplace": FoldedLaplace,
    "FoldedDiscreteLaplace": FoldedDiscreteLaplace,
    "BoundedLaplace": BoundedLaplace,
}
#: what happened to the noisy value, and its parameters
_AFTERWARDS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "clamped": (Clamped, ("lower", "upper", "statistic_too")),
    "rounded": (Rounded, ("step", "how")),
    "thresholded": (Thresholded, ("threshold", "dropped")),
}
#: choices, and what the function is called of which a document has only words
_CHOICES: dict[str, tuple[Any, str]] = {
    "ExponentialMechanism": (ExponentialMechanism, "utility"),
    "KNormGradient": (KNormGradient, "gradient"),
}
#: what a document may ask for: steps after the noise, and categories, whose table has their square
_MOST_STEPS, _MOST_CATEGORIES = 20, 2000


class InWords:
    """Stands for a function that a document can only describe."""

    def __init__(self, what: str, words: str) -> None:
        self.what = what
        self.__doc__ = words

    def __call__(self, *arguments: Any) -> Any:
        """Say that the function has to be written."""
        raise ValueError(
            f"The {self.what} of this release is known in words alone ({self.__doc__!r}): write it "
            f"as a function, release.declare(name, statistic, {self.what}=...)."
        )


def mechanism_to_plain(mechanism: Mechanism) -> dict[str, Any]:
    """Write a mechanism with all its parameters."""
    steps: list[dict[str, Any]] = []
    inner: Any = mechanism
    while step := _step(inner):
        steps.insert(0, step)
        inner = inner.inner
    return {**_first(inner), "then": steps}


def _step(mechanism: Any) -> dict[str, Any] | None:
    for name, (kind, parameters) in _AFTERWARDS.items():
        if type(mechanism) is kind:
            values = {each: getattr(mechanism, each) for each in parameters}
            return {"name": name} | {each: _null_for_nan(v) for each, v in values.items()}
    return None


def _null_for_nan(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def _first(mechanism: Any) -> dict[str, Any]:
    """Write a mechanism that is not around another one."""
    name, kind = type(mechanism).__name__, type(mechanism)
    if name in _NOISE and kind is _NOISE[name][0]:
        return {"name": name, _NOISE[name][1]: mechanism.noise.tolist()}
    if name in _WITHIN and kind is _WITHIN[name]:
        bounds = {"lower": mechanism.lower, "upper": mechanism.upper}
        finite = {each: b if math.isfinite(b) else None for each, b in bounds.items()}
        return {"name": name, "scale": mechanism.noise.tolist(), **finite}
    if kind is Staircase:
        steps = {"epsilon": mechanism.epsilon, "sensitivity": mechanism.noise.tolist()}
        return {"name": name, **steps, "gamma": mechanism.gamma}
    if kind is RandomizedResponse:
        return {"name": name, **_responses(mechanism)}
    if kind is Exact:
        return {"name": name}
    if name in _CHOICES and kind is _CHOICES[name][0] and mechanism.candidates is not None:
        function = _CHOICES[name][1]
        order = {"order": str(mechanism.order)} if kind is KNormGradient else {}
        return {
            "name": name,
            "epsilon": mechanism.epsilon,
            "sensitivity": float(mechanism.sensitivity),
            "candidates": mechanism.candidates.tolist(),
            function: _words(mechanism._utility, function),
            **order,
        }
    raise ValueError(
        f"{mechanism!r} cannot be written into a document: its density is code, which nobody could "
        "read from JSON. Publish the released value together with that code."
    )


def _responses(mechanism: RandomizedResponse) -> dict[str, Any]:
    rows, reports = mechanism.matrix.shape
    keep = float(mechanism.matrix[0, 0])
    if rows == reports and keep > 0:
        alike = RandomizedResponse(rows, keep=keep)
        if np.array_equal(alike.matrix, mechanism.matrix):
            return {"n_categories": rows, "keep": keep}
    return {"matrix": mechanism.matrix.tolist()}


def _words(function: Callable[..., Any], what: str) -> str:
    words = inspect.cleandoc(function.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
    if not words:
        raise ValueError(
            f"The {what} is a function, of which a document can only have words: give it a "
            "docstring that says what it computes from the statistic and a candidate."
        )
    return words


def mechanism_from_plain(
    plain: Any, sensitivity: NDArray[np.float64] | None = None, delta: float = 0.0
) -> Mechanism:
    """Make the mechanism that :func:`mechanism_to_plain` wrote.

    Noise is then what was written, to the last bit; `sensitivity` and `delta` are what it was
    calibrated to, as far as that is known.
    """
    if not isinstance(plain, dict):
        raise ValueError(f'a mechanism is an object with "name" and parameters, not {plain!r}.')
    rest = dict(plain)
    name, steps = rest.pop("name", None), rest.pop("then", None)
    if not isinstance(steps, list):
        raise ValueError(
            f'"then" must list what happened after the noise, [] if nothing: {steps!r}'
        )
    if len(steps) > _MOST_STEPS:
        raise ValueError(f'"then" has {len(steps)} steps, and may have {_MOST_STEPS}.')
    mechanism = _first_from_plain(name, rest, sensitivity, delta)
    for step in steps:
        mechanism = _changed(mechanism, step)
    return mechanism


def _first_from_plain(
    name: Any, rest: dict[str, Any], sensitivity: NDArray[np.float64] | None, delta: float
) -> Any:
    if name in _NOISE:
        kind, parameter = _NOISE[name]
        mechanism = kind(known_fields(f"a {name}", rest, [parameter])[parameter])
        mechanism.sensitivity = sensitivity
        if parameter == "sigma" and delta > 0:
            mechanism.delta = delta
        return mechanism
    if name in _WITHIN:
        given = known_fields(f"a {name}", rest, ["scale", "lower", "upper"])
        infinite = {"lower": -math.inf, "upper": math.inf}
        ends = {
            each: given[each] if given[each] is not None else infinite[each] for each in infinite
        }
        mechanism = _WITHIN[name](given["scale"], **ends)
        mechanism.sensitivity = sensitivity
        return mechanism
    if name == "Staircase":
        return Staircase(**known_fields("a Staircase", rest, ["epsilon", "sensitivity", "gamma"]))
    if name == "RandomizedResponse":
        names = ["matrix"] if "matrix" in rest else ["n_categories", "keep"]
        given = known_fields("a RandomizedResponse", rest, names)
        if (number(names[0], given[names[0]]) if len(names) > 1 else 0) > _MOST_CATEGORIES:
            raise ValueError(
                f"n_categories is {given['n_categories']!r}, and may be {_MOST_CATEGORIES}: the "
                "table of probabilities of all reports of all categories is made."
            )
        return RandomizedResponse(**given)
    if name == "Exact":
        known_fields("an Exact", rest, [])
        return Exact()
    if name in _CHOICES:
        return _choice(name, rest)
    known = [*_NOISE, *_WITHIN, "Staircase", "RandomizedResponse", *_CHOICES, "Exact"]
    raise ValueError(
        f"no mechanism is called {name!r}; known are {known}. Write it as a pmdp.CustomMechanism "
        "in your model."
    )


def _choice(name: str, rest: dict[str, Any]) -> Any:
    kind, function = _CHOICES[name]
    names = ["epsilon", "sensitivity", "candidates", function]
    options: dict[str, Any] = {}
    if kind is KNormGradient:
        names.append("order")
        options["order"] = {"1": 1, "2": 2, "inf": math.inf}.get(str(rest.get("order")))
    known = known_fields(f"a {name}", rest, names)
    words = known[function]
    if not isinstance(words, str) or not words:
        raise ValueError(f"{function} must be words, not {words!r}.")
    given = {each: known[each] for each in names[:3]}
    return kind(InWords(function, words), **given, **options)


def _changed(mechanism: Any, step: Any) -> Any:
    """Put around a mechanism what happened afterwards."""
    name = step.get("name") if isinstance(step, dict) else None
    if name not in _AFTERWARDS:
        raise ValueError(f"nothing is known to happen by {step!r}; known are {[*_AFTERWARDS]}.")
    if not hasattr(mechanism, "inner") and not hasattr(mechanism, "rounded"):
        raise ValueError(f"{mechanism!r} has no noisy value that could be {name}.")
    kind, parameters = _AFTERWARDS[name]
    given = known_fields(f"{name}", {k: v for k, v in step.items() if k != "name"}, parameters)
    if name == "thresholded" and given["dropped"] is None:
        given = given | {"dropped": math.nan}
    if name == "clamped" and not isinstance(given["statistic_too"], bool):
        raise ValueError(f"statistic_too must be true or false, not {given['statistic_too']!r}.")
    with in_field(name):
        return kind(mechanism, *(given[each] for each in parameters))


def with_function(mechanism: Mechanism, **functions: Callable[..., Any] | None) -> Mechanism:
    """Put the function in place that the document has in words."""
    given = {name: function for name, function in functions.items() if function is not None}
    stand_in = getattr(mechanism, "_utility", None)
    if not given:
        return mechanism
    if not isinstance(stand_in, InWords) or list(given) != [stand_in.what]:
        raise ValueError(f"{mechanism!r} takes no {' or '.join(given)}= here.")
    choice: Any = mechanism
    order = {"order": choice.order} if isinstance(choice, KNormGradient) else {}
    return type(choice)(
        given[stand_in.what],
        choice.epsilon,
        float(choice.sensitivity),
        candidates=choice.candidates,
        **order,
    )
