"""Mechanisms from the parameters that other libraries report; none of them is imported."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
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


#: what each mechanism of diffprivlib is made of
_DIFFPRIVLIB: dict[str, set[str]] = {
    "Laplace": {"epsilon", "delta", "sensitivity"},
    "LaplaceTruncated": {"epsilon", "delta", "sensitivity", "lower", "upper"},
    "Geometric": {"epsilon", "sensitivity"},
    "GeometricTruncated": {"epsilon", "sensitivity", "lower", "upper"},
    "Gaussian": {"epsilon", "delta", "sensitivity"},
    "GaussianAnalytic": {"epsilon", "delta", "sensitivity"},
    "GaussianDiscrete": {"scale", "epsilon", "delta", "sensitivity"},
    "Binary": {"epsilon", "value0", "value1"},
}


def from_diffprivlib(mechanism: Any, **parameters: Any) -> Mechanism:
    r"""Build the mechanism that diffprivlib used.

    Known are Laplace, LaplaceTruncated, Geometric, GeometricTruncated, Gaussian (whose standard
    deviation is :math:`\Delta\sqrt{2\ln(1.25/\delta)}/\epsilon`), GaussianAnalytic,
    GaussianDiscrete (by its own ``scale``) and Binary; checked against releases of version 0.6.6.
    Other mechanisms, and parameters that a mechanism does not have, are refused.

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
    name = mechanism if isinstance(mechanism, str) else type(mechanism).__name__
    if name not in _DIFFPRIVLIB:
        raise _unknown("diffprivlib", name, _DIFFPRIVLIB)
    if not isinstance(mechanism, str):
        parameters = {**_diffprivlib_attributes(mechanism, name), **parameters}
    need = _Parameters(f"diffprivlib's {name}", parameters, _DIFFPRIVLIB[name])
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
    else:
        return RandomizedResponse(2, epsilon=need("epsilon"))
    if not name.endswith("Truncated"):
        return noise
    bounds = [b if math.isfinite(b) else None for b in (need("lower"), need("upper"))]
    return noise if bounds == [None, None] else noise.clamped(*bounds)


def _diffprivlib_attributes(mechanism: Any, name: str) -> dict[str, Any]:
    """Return what an object was made with, without what does not change its noise."""
    kept = dict(vars(mechanism))
    scale = kept.pop("_scale", None)
    for silent in ("random_state", "_rng"):
        kept.pop(silent, None)
    if name == "GaussianDiscrete":
        kept["scale"] = scale
    if not kept.get("delta"):  # zero in mechanisms that have none
        kept.pop("delta", None)
    return kept


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
    known = {"noise_mechanism", "noise_parameter"}
    need = _Parameters("Tumult's noise information", noise_info, known)
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
    raise _unknown("Tumult", name, ("LAPLACE", "GEOMETRIC", "GAUSSIAN", "DISCRETE_GAUSSIAN"))


#: noise behind SmartNoise SQL's names, from 1.0.4 to 1.0.10: continuous under the discrete names
_SMARTNOISE: dict[str, Any] = {
    "laplace": Laplace,
    "discrete_laplace": Laplace,
    "geometric": Laplace,
    "gaussian": Gaussian,
}


def from_smartnoise(
    mechanism: Any, *, column: str | None = None, clamp_counts: bool = False, **parameters: Any
) -> Mechanism:
    """Build the mechanism that SmartNoise SQL used.

    Its noise is continuous whatever its name, and a query truncates what stands in an integer
    column towards zero: a true 40 is released as 39.5 on average. So the type of the column must be
    known. Checked against releases of version 1.0.10 with Laplace noise; versions from 1.0.4 on
    have the same names for the same noise.

    Averages and variances are made of several noisy numbers and have no mechanism of their own.
    That a query dropped rows with few people (``censor_dims``) is not read: what the rows that are
    left say is.

    Parameters
    ----------
    mechanism : str or SmartNoise mechanism
        ``"laplace"``, ``"discrete_laplace"``, ``"geometric"`` or ``"gaussian"``; or an object that
        has a ``mechanism`` and a ``scale``, as a private reader keeps them.
    column : {"int", "float"}
        ``"int"`` for a COUNT, and for the SUM of an integer column; ``"float"`` for other sums and
        for what a mechanism's own ``release`` returned. Needs not be written for
        ``"discrete_laplace"`` and ``"geometric"``, SmartNoise's choice for integer columns.
    clamp_counts : bool
        Whether the number is a COUNT of a table with the option ``clamp_counts``, which raises
        negative counts to zero.
    **parameters
        ``scale``; or, but for Gaussian noise, ``epsilon`` and ``sensitivity``, with ``max_contrib``
        where a person may be in several rows.

    Returns
    -------
    Mechanism

    Examples
    --------
    >>> from pymc_dp.interop import from_smartnoise
    >>> from_smartnoise("laplace", column="float", epsilon=0.5, sensitivity=10, max_contrib=2)
    Laplace(scale=40.)
    >>> from_smartnoise("laplace", column="int", epsilon=0.5, sensitivity=1, clamp_counts=True)
    Laplace(scale=2.).clamped(lower=0).rounded(1, how='trunc')
    """
    known = {"scale", "epsilon", "sensitivity", "max_contrib"}
    if isinstance(mechanism, str):
        kind: Any = mechanism
        if column is None and kind.lower() in ("discrete_laplace", "geometric"):
            column = "int"
    else:
        parameters = {**vars(mechanism), **parameters}
        kind = parameters.pop("mechanism", type(mechanism).__name__)
        # with the scale at hand these are only how it was found
        known |= {"delta", "lower", "upper", "bit_depth"} if parameters.get("scale") else set()
    name = str(getattr(kind, "name", kind)).lower()
    if name not in _SMARTNOISE:
        raise _unknown("SmartNoise", name, _SMARTNOISE)
    need = _Parameters(f"SmartNoise's {name}", parameters, known)
    if parameters.get("scale") is None and name != "gaussian" and "epsilon" in parameters:
        scale = need("sensitivity") * (parameters.get("max_contrib") or 1) / need("epsilon")
    else:
        scale = need("scale")
    return _in_column(_SMARTNOISE[name](scale), column, clamp_counts)


def _in_column(noise: Any, column: str | None, clamp_counts: bool) -> Mechanism:
    """Noise as a query of SmartNoise SQL shows it."""
    if column not in ("int", "float"):
        raise ValueError(
            f"column={column!r} does not say what the number went through: SmartNoise truncates "
            'integer columns towards zero. Write column="int" for a COUNT or the SUM of an '
            'integer column, column="float" for other numbers.'
        )
    if column == "float":
        if clamp_counts:
            raise ValueError('clamp_counts is for counts, which stand in a column="int".')
        return noise
    return (noise.clamped(lower=0) if clamp_counts else noise).rounded(how="trunc")


def _unknown(library: str, name: str, known: Iterable[str]) -> ValueError:
    return ValueError(
        f"No mechanism is known for {library}'s {name!r}; known are {', '.join(known)}. Write the "
        "mechanism by its noise."
    )


class _Parameters:
    """Look up a parameter, or say which one is missing; refuse those that are not known."""

    def __init__(self, source: str, given: Mapping[str, Any], known: set[str]) -> None:
        self.source, self.given = source, given
        unknown = [name for name in given if name not in known]
        if unknown:
            raise ValueError(
                f"{source} came with {unknown[0]!r}, and what that does to the noise is not known; "
                f"known are {', '.join(sorted(known))}. Write the mechanism by its noise."
            )

    def __call__(self, name: str) -> Any:
        value = self.given.get(name)
        if value is None:
            raise ValueError(f"{self.source} needs the parameter {name!r}, which was not given.")
        return value
