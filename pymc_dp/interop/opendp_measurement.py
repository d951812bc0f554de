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


def from_opendp(measurement: Any) -> Mechanism:
    """Build the mechanism of an OpenDP measurement.

    Parameters
    ----------
    measurement : opendp.Measurement or str
        As made by ``make_laplace``, ``make_gaussian``, ``make_geometric`` or a randomised response,
        alone or after transformations; or what ``opendp.serialize`` wrote of it. Transformations
        are left out: write them as the statistic.

    Returns
    -------
    Mechanism
        Integer noise where the measurement's domain is integer.

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
    if maker == "make_chain_mt":
        return _from_description(arguments["measurement1"])
    if maker in _ADDED_NOISE:
        continuous, discrete = _ADDED_NOISE[maker]
        return (discrete if _is_integer(arguments) else continuous)(
            _given(arguments, "scale", maker)
        )
    if maker == "make_randomized_response_bool":
        return RandomizedResponse(2, keep=_given(arguments, "prob", maker))
    if maker == "make_randomized_response":
        categories = _given(arguments, "categories", maker)
        return RandomizedResponse(len(categories), keep=_given(arguments, "prob", maker))
    known = ", ".join([*_ADDED_NOISE, "make_randomized_response", "make_randomized_response_bool"])
    raise ValueError(
        f"No mechanism is known for OpenDP's {maker!r}; known are {known}. "
        "Pass that part of the measurement, or write the mechanism with its parameters."
    )


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
