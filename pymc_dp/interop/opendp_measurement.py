"""Read the noise of an OpenDP measurement."""

from __future__ import annotations

import json
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

__all__ = ["from_opendp"]

_ADDED_NOISE = {
    "make_laplace": (Laplace, DiscreteLaplace),
    "make_gaussian": (Gaussian, DiscreteGaussian),
    "make_geometric": (DiscreteLaplace, DiscreteLaplace),
}
#: arguments of each constructor that are understood; some have no effect on the noise
_ARGUMENTS = {
    "make_laplace": {"input_domain", "input_metric", "scale", "k", "MO"},
    "make_gaussian": {"input_domain", "input_metric", "scale", "k", "MO"},
    "make_geometric": {"input_domain", "input_metric", "scale", "bounds", "MO"},
    "make_randomized_response_bool": {"prob", "constant_time"},
    "make_randomized_response": {"categories", "prob", "T"},
    "make_chain_mt": {"measurement1", "transformation0"},
}
#: a grid this much finer than the scale moves no log-density by more than half of it
_FINE_GRID = 1e-6


def from_opendp(measurement: Any) -> Mechanism:
    """Build the mechanism of an OpenDP measurement.

    Parameters
    ----------
    measurement : opendp.Measurement or str
        As made by ``make_laplace``, ``make_gaussian``, ``make_geometric`` or a randomised response,
        alone or after transformations; or what ``opendp.serialize`` wrote of it. Transformations
        are left out: write them as the statistic. What is not understood is refused, so is noise on
        a grid ``2**k`` that is coarse beside its scale.

    Returns
    -------
    Mechanism
        Integer noise where the measurement's domain is integer. The ``bounds`` of
        ``make_geometric`` hold for the statistic and for the released value.

    Examples
    --------
    >>> from pymc_dp.interop import from_opendp
    >>> text = '{"__function__": "make_randomized_response_bool", "__kwargs__": {"prob": 0.75}}'
    >>> from_opendp(text)
    RandomizedResponse(2, keep=0.75)
    """
    return _from_description(json.loads(_serialized(measurement)))


def _serialized(measurement: Any) -> str:
    if isinstance(measurement, str):
        return measurement
    try:
        import opendp.prelude as dp
    except ImportError as err:
        raise ImportError(
            "Reading a measurement needs OpenDP: pip install pymc_dp[opendp]"
        ) from err
    if not isinstance(measurement, dp.Measurement):
        raise TypeError(f"{measurement!r} is not an OpenDP measurement.")
    return str(dp.serialize(measurement))


def _from_description(description: dict[str, Any]) -> Mechanism:
    maker, arguments = description.get("__function__"), description.get("__kwargs__", {})
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
    if maker == "make_chain_mt":
        return _from_description(arguments["measurement1"])
    if maker in _ADDED_NOISE:
        return _added_noise(maker, arguments)
    if maker == "make_randomized_response_bool":
        return RandomizedResponse(2, keep=_given(arguments, "prob", maker))
    categories = _given(arguments, "categories", maker)
    return RandomizedResponse(len(categories), keep=_given(arguments, "prob", maker))


def _added_noise(maker: str, arguments: dict[str, Any]) -> Mechanism:
    """Noise added to every component, with the grid and the bounds that it was given."""
    continuous, discrete = _ADDED_NOISE[maker]
    scale = _given(arguments, "scale", maker)
    noise: Any = (discrete if _is_integer(arguments) else continuous)(scale)
    k = arguments.get("k")
    if k is not None and 2.0**k > _FINE_GRID * scale:
        raise ValueError(
            f"The measurement's {maker} rounds the statistic to multiples of 2**{k} and adds noise "
            f"on that grid, which is coarse beside the scale {scale:g} and has no mechanism here. "
            "Release with a finer grid: leave out k."
        )
    if (bounds := arguments.get("bounds")) is None:
        return noise
    lower, upper = bounds["__tuple__"] if isinstance(bounds, dict) else bounds
    return noise.clamped(lower, upper, statistic_too=True)


def _given(arguments: dict[str, Any], name: str, maker: str) -> Any:
    if arguments.get(name) is None:
        raise ValueError(f"The measurement's {maker} has no parameter {name!r}.")
    return arguments[name]


def _is_integer(arguments: dict[str, Any]) -> bool:
    """Whether noise was added to integers, from the type in the domain's description."""
    domain = arguments.get("input_domain", {})
    if domain.get("__function__") not in (None, "atom_domain", "vector_domain"):
        # after a transformation the domain is described by how it came about: ask OpenDP
        kind = re.search(r"T=(\w+)", str(_opendp().deserialize(json.dumps(domain))))
        return kind is not None and kind.group(1)[0] in "iu"
    inner = domain.get("__kwargs__", {})
    inner = inner.get("atom_domain", {}).get("__kwargs__", inner)
    return str(inner.get("T", "f64"))[0] in "iu"


def _opendp() -> Any:
    try:
        import opendp.prelude as dp
    except ImportError as err:
        raise ImportError(
            "Reading a measurement needs OpenDP: pip install pymc_dp[opendp]"
        ) from err
    dp.enable_features("contrib")
    return dp
