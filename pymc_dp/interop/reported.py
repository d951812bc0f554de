"""Mechanisms from the parameters that other libraries report; none of them is imported."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import scipy

from pymc_dp.interop.parameters import Parameters, unknown
from pymc_dp.mechanisms import (
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Guarantee,
    Laplace,
    Mechanism,
)

__all__ = ["from_smartnoise", "from_tumult"]


def from_tumult(noise_info: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> Mechanism:
    """Build the mechanism that Tumult Analytics used.

    Parameters
    ----------
    noise_info : mapping or list
        Noise information of a query, or one entry of it: ``noise_mechanism`` (LAPLACE, GEOMETRIC,
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
    if not isinstance(noise_info, Mapping):
        if len(noise_info) != 1:
            raise ValueError(
                f"The query is made of {len(noise_info)} noisy numbers, as averages, variances and "
                "standard deviations are, and they were not published: release sums and counts."
            )
        [noise_info] = noise_info
    known = {"noise_mechanism", "noise_parameter"}
    need = Parameters("Tumult's noise information", noise_info, known)
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
    raise unknown("Tumult", name, ("LAPLACE", "GEOMETRIC", "GAUSSIAN", "DISCRETE_GAUSSIAN"))


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
        ``scale``; or ``epsilon`` and ``sensitivity``, and ``delta`` for Gaussian noise, with
        ``max_contrib`` where a person may be in several rows. Gaussian noise is calibrated by way
        of zCDP (Canonne, Kamath & Steinke 2020, Proposition 12), and to the next whole number of
        the sensitivity.

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
        raise unknown("SmartNoise", name, _SMARTNOISE)
    if name == "gaussian":
        known |= {"delta"}
    need = Parameters(f"SmartNoise's {name}", parameters, known)
    if parameters.get("scale") is None and "epsilon" in parameters:
        contributions = parameters.get("max_contrib") or 1
        if name == "gaussian":
            unit = _gaussian_unit(need("epsilon"), need("delta"))
            scale = math.ceil(need("sensitivity")) * contributions * unit
        else:
            scale = need("sensitivity") * contributions / need("epsilon")
    else:
        scale = need("scale")
    return _in_column(_SMARTNOISE[name](scale), column, clamp_counts)


def _gaussian_unit(epsilon: float, delta: float) -> float:
    """Sigma at sensitivity 1 that zCDP turns into (epsilon, delta)."""

    def missed(log_sigma: float) -> float:
        return Guarantee(None, 0.0, 0.5 * math.exp(-2 * log_sigma)).epsilon_at(delta) - epsilon

    return math.exp(scipy.optimize.brentq(missed, -20, 30, xtol=1e-13))


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
