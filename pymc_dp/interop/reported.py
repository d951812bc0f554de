"""Mechanisms from the parameters that other libraries report; none of them is imported."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pymc_dp.mechanisms import (
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    Mechanism,
    RandomizedResponse,
)

__all__ = ["from_diffprivlib", "from_smartnoise", "from_tumult"]


def from_diffprivlib(mechanism: Any, **parameters: Any) -> Mechanism:
    r"""Build the mechanism that diffprivlib used.

    Known are Laplace, LaplaceTruncated, Geometric, GeometricTruncated, Gaussian (whose standard
    deviation is :math:`\Delta\sqrt{2\ln(1.25/\delta)}/\epsilon`), GaussianAnalytic,
    GaussianDiscrete (by its own ``scale``) and Binary.

    Parameters
    ----------
    mechanism : str or diffprivlib mechanism
        Name of the class, or an object of it.
    **parameters
        The parameters it was made with, where a name is given: ``epsilon``, ``delta``,
        ``sensitivity``, ``lower``, ``upper``.

    Returns
    -------
    Mechanism

    Examples
    --------
    >>> from pymc_dp.interop import from_diffprivlib
    >>> from_diffprivlib("GeometricTruncated", epsilon=0.5, sensitivity=1, lower=0, upper=100)
    DiscreteLaplace(scale=2.).clamped(lower=0, upper=100)
    """
    if isinstance(mechanism, str):
        name = mechanism
    else:
        name = type(mechanism).__name__
        parameters = {**vars(mechanism), **parameters}
        parameters.setdefault("scale", parameters.get("_scale"))
    need = _Parameters(f"diffprivlib's {name}", parameters)
    delta = parameters.get("delta") or 0.0
    if name in ("Laplace", "LaplaceTruncated"):
        noise: Any = Laplace(need("sensitivity") / (need("epsilon") - math.log1p(-delta)))
    elif name in ("Geometric", "GeometricTruncated"):
        noise = DiscreteLaplace(need("sensitivity") / need("epsilon"))
    elif name == "Gaussian":
        noise = Gaussian(
            need("sensitivity") * math.sqrt(2 * math.log(1.25 / need("delta"))) / need("epsilon")
        )
    elif name == "GaussianAnalytic":
        noise = Gaussian(
            epsilon=need("epsilon"), delta=need("delta"), sensitivity=need("sensitivity")
        )
    elif name == "GaussianDiscrete":
        noise = DiscreteGaussian(need("scale"))
    elif name == "Binary":
        return RandomizedResponse(2, epsilon=need("epsilon"))
    else:
        raise ValueError(f"No mechanism is known for diffprivlib's {name}: write it by its noise.")
    return noise.clamped(need("lower"), need("upper")) if name.endswith("Truncated") else noise


def from_tumult(noise_info: Mapping[str, Any]) -> Mechanism:
    """Build the mechanism that Tumult Analytics used.

    Parameters
    ----------
    noise_info : mapping
        One entry of the noise information of a query: ``noise_mechanism`` (LAPLACE, GEOMETRIC,
        GAUSSIAN or DISCRETE_GAUSSIAN) and ``noise_parameter``, which is a scale for the first two
        and a variance for the others.

    Returns
    -------
    Mechanism

    Examples
    --------
    >>> from pymc_dp.interop import from_tumult
    >>> from_tumult({"noise_mechanism": "DISCRETE_GAUSSIAN", "noise_parameter": 100.0})
    DiscreteGaussian(sigma=10.)
    """
    need = _Parameters("Tumult's noise information", noise_info)
    kind = need("noise_mechanism")
    name = str(getattr(kind, "name", kind)).upper()
    parameter = float(need("noise_parameter"))
    if name == "LAPLACE":
        return Laplace(parameter)
    if name == "GEOMETRIC":
        return DiscreteLaplace(parameter)
    if name == "GAUSSIAN":
        return Gaussian(math.sqrt(parameter))
    if name == "DISCRETE_GAUSSIAN":
        return DiscreteGaussian(math.sqrt(parameter))
    raise ValueError(f"No mechanism is known for Tumult's {name}: write it by its noise.")


def from_smartnoise(mechanism: Any, **parameters: Any) -> Mechanism:
    """Build the mechanism that SmartNoise SQL used.

    Parameters
    ----------
    mechanism : str or SmartNoise mechanism
        ``"laplace"``, ``"discrete_laplace"``, ``"geometric"``, ``"gaussian"``,
        ``"analytic_gaussian"`` or ``"discrete_gaussian"``; or an object with a ``mechanism`` and a
        ``scale``, as a private reader keeps them.
    **parameters
        ``scale``; or for the first three ``epsilon`` and ``sensitivity``, with ``max_contrib``
        where a person may be in several rows.

    Returns
    -------
    Mechanism

    Examples
    --------
    >>> from pymc_dp.interop import from_smartnoise
    >>> from_smartnoise("laplace", epsilon=0.5, sensitivity=10, max_contrib=2)
    Laplace(scale=40.)
    """
    if isinstance(mechanism, str):
        name = mechanism
    else:
        parameters = {**vars(mechanism), **parameters}
        kind = getattr(mechanism, "mechanism", type(mechanism).__name__)
        name = str(getattr(kind, "name", kind))
    need = _Parameters(f"SmartNoise's {name}", parameters)
    name = name.lower()
    pure: dict[str, Any] = {
        "laplace": Laplace,
        "discrete_laplace": DiscreteLaplace,
        "geometric": DiscreteLaplace,
    }
    if name in pure:
        if parameters.get("scale") is None and parameters.get("epsilon") is not None:
            reach = need("sensitivity") * (parameters.get("max_contrib") or 1)
            return pure[name](reach / need("epsilon"))
        return pure[name](need("scale"))
    if name in ("gaussian", "analytic_gaussian"):
        return Gaussian(need("scale"))
    if name == "discrete_gaussian":
        return DiscreteGaussian(need("scale"))
    raise ValueError(f"No mechanism is known for SmartNoise's {name}: write it by its noise.")


class _Parameters:
    """Look up a parameter, or say which one is missing."""

    def __init__(self, source: str, given: Mapping[str, Any]) -> None:
        self.source, self.given = source, given

    def __call__(self, name: str) -> Any:
        value = self.given.get(name)
        if value is None:
            raise ValueError(f"{self.source} needs the parameter {name!r}, which was not given.")
        return value
