"""Mechanisms of diffprivlib, by their names and parameters or as objects; it is not imported."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pymc_dp.interop.parameters import Parameters, unknown
from pymc_dp.mechanisms import (
    BoundedLaplace,
    DiscreteGaussian,
    DiscreteLaplace,
    FoldedDiscreteLaplace,
    FoldedLaplace,
    Gaussian,
    Laplace,
    Mechanism,
    RandomizedResponse,
    Staircase,
)
from pymc_dp.mechanisms.bounded_laplace import bounded_scale

__all__ = ["from_diffprivlib"]

#: what each mechanism of diffprivlib is made of
_DIFFPRIVLIB: dict[str, set[str]] = {
    "Laplace": {"epsilon", "delta", "sensitivity"},
    "LaplaceTruncated": {"epsilon", "delta", "sensitivity", "lower", "upper"},
    "LaplaceFolded": {"epsilon", "delta", "sensitivity", "lower", "upper"},
    "LaplaceBoundedDomain": {"epsilon", "delta", "sensitivity", "lower", "upper"},
    "Geometric": {"epsilon", "sensitivity"},
    "GeometricTruncated": {"epsilon", "sensitivity", "lower", "upper"},
    "GeometricFolded": {"epsilon", "sensitivity", "lower", "upper"},
    "Staircase": {"epsilon", "sensitivity", "gamma"},
    "Gaussian": {"epsilon", "delta", "sensitivity"},
    "GaussianAnalytic": {"epsilon", "delta", "sensitivity"},
    "GaussianDiscrete": {"scale", "epsilon", "delta", "sensitivity"},
    "Binary": {"epsilon", "value0", "value1"},
}
#: relative difference of scales that two searches for them may leave
_SAME_SCALE = 1e-4


def from_diffprivlib(mechanism: Any, **parameters: Any) -> Mechanism:
    r"""Build the mechanism that diffprivlib used.

    Known are Laplace, LaplaceTruncated, LaplaceFolded, LaplaceBoundedDomain, Geometric,
    GeometricTruncated, GeometricFolded, Staircase, Gaussian (whose standard deviation is
    :math:`\Delta\sqrt{2\ln(1.25/\delta)}/\epsilon`), GaussianAnalytic, GaussianDiscrete (by its
    own ``scale``) and Binary; checked against releases of version 0.6.6. Other mechanisms, and
    parameters that a mechanism does not have or that contradict the object, are refused.

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
        raise unknown("diffprivlib", name, _DIFFPRIVLIB)
    if isinstance(mechanism, str):
        return _MAKERS[name](Parameters(f"diffprivlib's {name}", parameters, _DIFFPRIVLIB[name]))
    for each, value in parameters.items():
        if value != (own := getattr(mechanism, each, None)):
            raise ValueError(
                f"diffprivlib's {name} has {each}={own!r}, not {value!r}: leave it out, or write "
                f'from_diffprivlib("{name}", ...) with all parameters.'
            )
    own = _diffprivlib_attributes(mechanism, name)
    found = _MAKERS[name](Parameters(f"diffprivlib's {name}", own, _DIFFPRIVLIB[name]))
    _check_scale(found, mechanism, name)
    return found


def _check_scale(found: Any, mechanism: Any, name: str) -> None:
    """Insist that the noise is what the object itself has found, where it has done so."""
    scale = getattr(mechanism, "_scale", None)
    if scale is None:
        return
    if name.startswith("Geometric"):  # there it is -epsilon / sensitivity
        scale = -1 / scale if scale else math.inf
    if not math.isclose(float(np.max(found.noise)), scale, rel_tol=_SAME_SCALE):
        raise ValueError(
            f"diffprivlib's {name} draws noise of scale {scale:g}, and its parameters say "
            f"{float(np.max(found.noise)):g}: they were changed after it was made. Make it anew "
            "with the parameters of the release."
        )


def _laplace(need: Parameters) -> Laplace:
    return _calibrated(Laplace(need("sensitivity") / _with_delta(need)), need)


def _geometric(need: Parameters) -> DiscreteLaplace:
    return DiscreteLaplace(epsilon=need("epsilon"), sensitivity=need("sensitivity"))


def _with_delta(need: Parameters) -> float:
    """Epsilon that Laplace noise has to meet where a delta was given."""
    return need("epsilon") - math.log1p(-(need.given.get("delta") or 0.0))


def _calibrated(noise: Any, need: Parameters) -> Any:
    noise.sensitivity = np.asarray(float(need("sensitivity")))
    return noise


def _truncated(noise: Any, need: Parameters) -> Mechanism:
    lower, upper = need("lower"), need("upper")
    bounds = [b if math.isfinite(b) else None for b in (lower, upper)]
    return noise if bounds == [None, None] else noise.clamped(*bounds)


def _folded(noise: Any, kind: Any, need: Parameters) -> Mechanism:
    bounds = {"lower": need("lower"), "upper": need("upper")}
    if not any(map(math.isfinite, bounds.values())):
        return noise
    return _calibrated(kind(noise.noise, **bounds), need)


def _bounded_domain(need: Parameters) -> Mechanism:
    lower, upper, sensitivity = need("lower"), need("upper"), need("sensitivity")
    if not sensitivity <= upper - lower < math.inf:
        raise ValueError(
            f"diffprivlib's LaplaceBoundedDomain has sensitivity {sensitivity:g} in the domain "
            f"[{lower:g}, {upper:g}]: its scale is known only where that is no wider than a finite "
            "domain. Write pmdp.BoundedLaplace(scale=, lower=, upper=)."
        )
    scale = bounded_scale(_with_delta(need), sensitivity, upper - lower)
    return _calibrated(BoundedLaplace(scale, lower=lower, upper=upper), need)


def _classic_gaussian(need: Parameters) -> Gaussian:
    unit = math.sqrt(2 * math.log(1.25 / need("delta"))) / need("epsilon")
    noise = _calibrated(Gaussian(need("sensitivity") * unit), need)
    noise.delta = float(need("delta"))
    return noise


def _analytic_gaussian(need: Parameters) -> Gaussian:
    names = ("epsilon", "delta", "sensitivity")
    return Gaussian(**{name: need(name) for name in names})


def _staircase(need: Parameters) -> Staircase:
    gamma = need.given.get("gamma")
    return Staircase(epsilon=need("epsilon"), sensitivity=need("sensitivity"), gamma=gamma)


_MAKERS: dict[str, Callable[[Parameters], Mechanism]] = {
    "Laplace": _laplace,
    "LaplaceTruncated": lambda need: _truncated(_laplace(need), need),
    "LaplaceFolded": lambda need: _folded(_laplace(need), FoldedLaplace, need),
    "LaplaceBoundedDomain": _bounded_domain,
    "Geometric": _geometric,
    "GeometricTruncated": lambda need: _truncated(_geometric(need), need),
    "GeometricFolded": lambda need: _folded(_geometric(need), FoldedDiscreteLaplace, need),
    "Staircase": _staircase,
    "Gaussian": _classic_gaussian,
    "GaussianAnalytic": _analytic_gaussian,
    "GaussianDiscrete": lambda need: DiscreteGaussian(need("scale")),
    "Binary": lambda need: RandomizedResponse(2, epsilon=need("epsilon")),
}


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
