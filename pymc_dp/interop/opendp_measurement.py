"""Read the noise of an OpenDP measurement."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from pymc_dp.mechanisms import (
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    Mechanism,
    RandomizedResponse,
)
from pymc_dp.mechanisms.postprocess import PostProcessing

__all__ = ["from_opendp", "opendp"]

_ADDED_NOISE = {
    "make_laplace": (Laplace, DiscreteLaplace),
    "make_gaussian": (Gaussian, DiscreteGaussian),
    "make_geometric": (DiscreteLaplace, DiscreteLaplace),
}
#: noise that a privacy measure stands for, where the constructor's name does not say it
_NOISE_OF_MEASURE = {"MaxDivergence": "make_laplace", "ZeroConcentratedDivergence": "make_gaussian"}
_NOISE_ARGUMENTS = {"input_domain", "input_metric", "scale", "k", "MO"}
#: arguments of each constructor that are understood; some have no effect on the noise
_ARGUMENTS = {
    "make_laplace": _NOISE_ARGUMENTS,
    "make_gaussian": _NOISE_ARGUMENTS,
    "make_noise": _NOISE_ARGUMENTS - {"MO"} | {"output_measure"},
    "make_geometric": _NOISE_ARGUMENTS - {"k"} | {"bounds"},
    "make_laplace_threshold": _NOISE_ARGUMENTS | {"threshold"},
    "make_gaussian_threshold": _NOISE_ARGUMENTS | {"threshold"},
    "make_noise_threshold": _NOISE_ARGUMENTS - {"MO"} | {"output_measure", "threshold"},
    "make_randomized_response_bool": {"prob", "constant_time"},
    "make_randomized_response": {"categories", "prob", "T"},
    "make_chain_mt": {"measurement1", "transformation0"},
    "make_chain_pm": {"postprocess1", "measurement0"},
    "make_composition": {"measurements"},
    "make_basic_composition": {"measurements"},
    # these tell the same release's guarantee in other words
    "make_fix_delta": {"measurement", "delta"},
    "make_zCDP_to_approxDP": {"measurement"},
    "make_pureDP_to_zCDP": {"measurement"},
    "make_approximate": {"measurement"},
    "make_fixed_approxDP_to_approxDP": {"measurement"},
}
#: functions of one number, and how they round
_ROUNDINGS = {math.floor: "floor", math.ceil: "ceil", math.trunc: "trunc", int: "trunc"}
#: ends of the types that OpenDP's integers have; a release beyond them is moved there
_ENDS = {
    f"{sign}{bits}": (0, 2**bits - 1) if sign == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    for sign in "iu"
    for bits in (8, 16, 32, 64)
}
#: noise smaller than this part of a type's range does not reach its far ends
_SMALL = 1e-3
#: whole numbers beyond this are not exact here
_EXACT = 2**53
#: a grid this much finer than the scale moves no log-density by more than half of it
_FINE_GRID = 1e-6


def from_opendp(measurement: Any) -> Mechanism | list[Mechanism]:
    """Build the mechanism of an OpenDP measurement.

    Parameters
    ----------
    measurement : opendp.Measurement, query or str
        As made by ``make_laplace``, ``make_gaussian``, ``make_geometric``, ``make_noise``, their
        kin with a threshold, or a randomised response, alone or after transformations; or what
        ``opendp.serialize`` wrote of it; or a query of a context, which is resolved. Combinators
        that only change how the guarantee is told (``make_fix_delta``, ``make_zCDP_to_approxDP``
        and the like) are taken off, and rounding by ``math.floor``, ``ceil``, ``trunc`` or ``int``
        is understood. Transformations are left out: write them as the statistic. What is not
        understood is refused, so is noise on a grid ``2**k`` that is coarse beside its scale.

    Returns
    -------
    Mechanism, or list of Mechanism for a composition
        Integer noise where the measurement's domain is integer; OpenDP moves what its type cannot
        hold to the type's end, so that noise on unsigned integers is clamped at zero. Noise in
        ``f32`` is refused. The ``bounds`` of ``make_geometric`` hold for the statistic and for the
        released value. With a threshold, ``np.nan`` stands for a key that was dropped; that keys
        without any record are always dropped is not read: it says the same up to the measurement's
        delta.

    Examples
    --------
    >>> from pymc_dp.interop import from_opendp
    >>> text = '{"__function__": "make_randomized_response_bool", "__kwargs__": {"prob": 0.75}}'
    >>> from_opendp(text)
    RandomizedResponse(2, keep=0.75)
    """
    return _from_description(_description(measurement))


def _description(measurement: Any) -> dict[str, Any]:
    """Constructors and their arguments, as OpenDP keeps them."""
    if isinstance(measurement, str):
        return json.loads(measurement)
    dp = opendp()
    if hasattr(measurement, "resolve"):
        measurement = measurement.resolve()
    if not isinstance(measurement, dp.Measurement):
        raise TypeError(f"{measurement!r} is not an OpenDP measurement.")
    return _plain(measurement, (dp.Measurement, dp.Function))


def _plain(value: Any, kinds: tuple[Any, ...]) -> Any:
    """Take measurements and functions apart; domains and measures stay as they are."""
    if isinstance(value, list):
        return [_plain(each, kinds) for each in value]
    if not isinstance(value, kinds):
        return value
    found = getattr(value, "__opendp_dict__", {"__function__": None})
    arguments = found.get("__kwargs__", {})
    return {
        "__function__": found["__function__"],
        "__kwargs__": {name: _plain(each, kinds) for name, each in arguments.items()},
    }


def _from_description(description: dict[str, Any]) -> Any:
    maker, arguments = description.get("__function__"), description.get("__kwargs__", {})
    if maker == "make_private_lazyframe":
        raise ValueError(
            "OpenDP's Polars queries tell their noise by summarize(): write "
            "pmdp.interop.opendp_summary_releases(query.summarize(), released_frame, ...)."
        )
    if maker not in _ARGUMENTS:
        raise ValueError(
            f"No mechanism is known for OpenDP's {maker!r}; known are {', '.join(_ARGUMENTS)}. "
            "Pass that part of the measurement, or write the mechanism with its parameters."
        )
    if unknown := sorted(set(arguments) - _ARGUMENTS[maker]):
        raise ValueError(
            f"OpenDP's {maker} came with {unknown[0]!r}, and what that does to the noise is not "
            "known. Write the mechanism with its parameters."
        )
    if "measurements" in _ARGUMENTS[maker]:
        return [_from_description(each) for each in _given(arguments, "measurements", maker)]
    if "measurement" in _ARGUMENTS[maker]:
        return _from_description(_given(arguments, "measurement", maker))
    if maker == "make_chain_mt":
        return _from_description(arguments["measurement1"])
    if maker == "make_chain_pm":
        return _rounded(_from_description(arguments["measurement0"]), arguments["postprocess1"])
    if maker == "make_randomized_response_bool":
        return RandomizedResponse(2, keep=_given(arguments, "prob", maker))
    if maker == "make_randomized_response":
        categories = _given(arguments, "categories", maker)
        return RandomizedResponse(len(categories), keep=_given(arguments, "prob", maker))
    return _added_noise(maker, arguments)


def _rounded(mechanism: Any, postprocess: Any) -> Mechanism:
    """Noise that a known function rounded."""
    described = postprocess if isinstance(postprocess, dict) else {}
    function = described.get("__kwargs__", {}).get("function")
    known = isinstance(mechanism, PostProcessing) and function in _ROUNDINGS
    if not known:
        raise ValueError(
            f"The measurement is followed by {function!r}, and what that does to the noise is not "
            "known; known are math.floor, math.ceil, math.trunc and int after one number's noise. "
            "Pass the measurement before it, and declare what it released; or say what was done "
            "with .clamped, .rounded or .thresholded."
        )
    return mechanism.rounded(1, how=_ROUNDINGS[function])


def _added_noise(maker: str, arguments: dict[str, Any]) -> Mechanism:
    """Noise added to every component, with the grid, the bounds and the threshold it was given."""
    family = maker.removesuffix("_threshold")
    if family == "make_noise":
        measure = _measure(_given(arguments, "output_measure", maker))
        family = _NOISE_OF_MEASURE.get(measure, "")
        if not family:
            raise ValueError(
                f"OpenDP's {maker} came with the measure {measure!r}, whose noise is "
                "not known. Write the mechanism with its parameters."
            )
    continuous, discrete = _ADDED_NOISE[family]
    scale = _given(arguments, "scale", maker)
    kind = _kind(arguments.get("input_domain", {}))
    noise: Any = (discrete if kind in _ENDS else continuous)(scale)
    k = arguments.get("k")
    if k is not None and 2.0**k > _FINE_GRID * scale:
        raise ValueError(
            f"The measurement's {maker} rounds the statistic to multiples of 2**{k} and adds noise "
            f"on that grid, which is coarse beside the scale {scale:g} and has no mechanism here. "
            "Release with a finer grid: leave out k."
        )
    if (bounds := arguments.get("bounds")) is not None:
        lower, upper = bounds["__tuple__"] if isinstance(bounds, dict) else bounds
        return noise.clamped(lower, upper, statistic_too=True)
    threshold = _given(arguments, "threshold", maker) if maker.endswith("_threshold") else None
    if kind in _ENDS:
        noise = _saturated(noise, scale, kind, threshold)
    return noise if threshold is None else noise.thresholded(threshold, dropped=math.nan)


def _saturated(noise: Any, scale: float, kind: str, threshold: float | None) -> Any:
    """Clamp noise at those ends of its integer type that it may reach and that may be seen."""
    lower, upper = _ENDS[kind]
    small = scale <= _SMALL * (upper - lower)
    if not small and upper > _EXACT:
        raise ValueError(
            f"The measurement's scale {scale:g} is large beside the range of {kind}, at whose ends "
            "OpenDP stops, and these ends have no exact number here. Measure in larger units, so "
            f"that the scale is below {_SMALL * (upper - lower):.0e}."
        )
    # with a threshold what is below it is dropped before the type's lower end is felt
    seen = threshold is None and (lower == 0 or not small)
    bounds = (lower if seen else None, None if small else upper)
    return noise if bounds == (None, None) else noise.clamped(*bounds)


def _measure(described: Any) -> str:
    """Name of a privacy measure, without what allows for a delta."""
    if isinstance(described, dict):
        inner = described.get("__kwargs__", {}).get("measure")
        if inner is not None:
            return _measure(inner)
        words = str(described.get("__function__")).split("_")
        return "".join(word.capitalize() for word in words)
    return re.sub(r"^Approximate[(<](.*)[)>]$", r"\1", str(described))


def _given(arguments: dict[str, Any], name: str, maker: str) -> Any:
    if arguments.get(name) is None:
        raise ValueError(f"The measurement's {maker} has no parameter {name!r}.")
    return arguments[name]


def _kind(domain: Any) -> str:
    """Type of the numbers that noise was added to, from the domain's description."""
    while isinstance(domain, dict):
        maker, inner = domain.get("__function__"), domain.get("__kwargs__", {})
        if maker is None or (maker == "atom_domain" and inner.get("T") is not None):
            domain = f"T={inner.get('T', 'f64')}"
        elif maker in ("vector_domain", "map_domain"):
            domain = inner.get("value_domain", inner.get("atom_domain", {}))
        else:  # described by its bounds, or by the transformation before it: ask OpenDP
            domain = opendp().deserialize(json.dumps(domain))
    kinds = re.findall(r"T=(\w+)", str(domain))
    kind = kinds[-1] if kinds else str(domain)  # the last one: of values, not of keys
    kind = {"int": "i32", "float": "f64"}.get(kind, kind)
    if kind not in _ENDS and kind != "f64":
        raise ValueError(
            f"The measurement adds its noise in the type {kind!r}, and how that rounds or stops is "
            "not known here. Release in f64 (T=float), i32 or i64: dp.t.then_cast_default and the "
            "TO= of counts choose it."
        )
    return kind


def opendp() -> Any:
    """OpenDP itself, or how to install it."""
    try:
        import opendp.prelude as dp
    except ImportError as err:
        raise ImportError(
            "Reading a measurement needs OpenDP: pip install pymc_dp[opendp]"
        ) from err
    dp.enable_features("contrib")
    return dp
