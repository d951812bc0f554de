"""Whether the noise of a release is as large as the guarantee that it claims asks for."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pymc_dp.accounting.gaussian import gaussian_delta, gaussian_epsilon
from pymc_dp.mechanisms import (
    CustomMechanism,
    DiscreteGaussian,
    DiscreteLaplace,
    Exact,
    ExponentialMechanism,
    Gaussian,
    Laplace,
    Mechanism,
    RandomizedResponse,
    Staircase,
)

__all__ = ["check_claim", "check_count"]

#: numbers in a document may have been rounded so much
_ROUNDED = 1e-6
#: discrete Gaussian noise is better than continuous noise of the same sigma by less than this part
#: of epsilon, from sigma 1 on and at deltas up to 0.01: by up to 0.101 in sums over whole numbers
_DISCRETE, _SMALL_DELTA = 0.15, 0.01
#: up to this sigma, discrete Gaussian probabilities are summed
_SUMMED = 1e4


def check_claim(
    mechanism: Mechanism,
    sensitivity: NDArray[np.float64] | None,
    epsilon: float | None,
    delta: float,
    rho: float | None,
) -> None:
    """Refuse a claim that the noise certainly does not keep.

    What is certain: the epsilon of pure mechanisms, at a delta not below ``epsilon + 2 log(1 -
    delta)`` (the trade-off of one Laplace number), that of Gaussian noise exactly. One sensitivity
    for noise that differs between components may all be that of the noisiest; of discrete Gaussian
    noise at a delta, each component by itself, and of all only what they share with continuous
    noise. A rho is at least the Kullback-Leibler divergence of what neighbours release.
    """
    inner = _noise(mechanism)
    if isinstance(inner, Exact):
        raise ValueError(
            "guarantee: Exact() protects nothing, so that no epsilon can be claimed: leave "
            "epsilon and rho out."
        )
    known = sensitivity is not None or isinstance(inner, RandomizedResponse)
    if not known or isinstance(inner, CustomMechanism):
        return
    normal = isinstance(inner, Gaussian | DiscreteGaussian)
    with np.errstate(over="ignore", divide="ignore"):
        kept = _largest_noise(inner, sensitivity)
    if normal and epsilon is not None and delta == 0:
        raise ValueError(
            f"guarantee: {mechanism!r} has no epsilon without a delta. Write the delta at which "
            f"epsilon {epsilon:g} was calibrated, or rho {kept.rho:.6g} in place of it."
        )
    at_least = kept.rho if normal else _divergence(inner, sensitivity)
    if rho is not None and at_least > rho * (1 + _ROUNDED):
        more = "" if normal else " or more"
        raise _too_small(mechanism, sensitivity, f"rho {at_least:.6g}{more}", f"rho {rho:.6g}")
    if epsilon is None:
        return
    if isinstance(inner, DiscreteGaussian) and sensitivity is not None:
        found = _discrete_delta(inner.noise, sensitivity, epsilon)
        if found > delta * (1 + _ROUNDED):
            has, claims = (f"delta {each:.6g} at epsilon {epsilon:g}" for each in (found, delta))
            raise _too_small(mechanism, sensitivity, has, claims)
    if isinstance(inner, Gaussian):
        least = gaussian_epsilon(delta, kept.rho)
    elif isinstance(inner, DiscreteGaussian):
        sure = np.min(inner.noise) >= 1 and delta <= _SMALL_DELTA
        least = (1 - _DISCRETE) * gaussian_epsilon(delta, kept.rho) if sure else 0.0
    else:
        least = kept.epsilon + 2 * math.log1p(-delta)
    if least > epsilon * (1 + _ROUNDED):
        at = f" at delta {delta:g}" if delta else ""
        raise _too_small(mechanism, sensitivity, f"epsilon {least:.6g}{at}", f"epsilon {epsilon:g}")


def check_count(
    mechanism: Mechanism, epsilon: float | None, delta: float, rho: float | None
) -> None:
    """Refuse noise of a confidential number of records that does not hide one of them."""
    inner = _noise(mechanism)
    if isinstance(inner, Exact | RandomizedResponse):
        raise ValueError(
            f"{mechanism!r} does not hide a record in a number of them: release it with noise, "
            "such as pmdp.DiscreteLaplace(scale=10)."
        )
    if epsilon is not None or rho is not None:
        own = isinstance(inner, ExponentialMechanism)  # its sensitivity is that of a utility
        one = inner.sensitivity if own else np.array(1.0)
        check_claim(mechanism, one, epsilon, delta, rho)


def _noise(mechanism: Any) -> Any:
    """Return what drew, without what happened afterwards."""
    while hasattr(mechanism, "inner"):
        mechanism = mechanism.inner
    return mechanism


def _divergence(inner: Any, sensitivity: NDArray[np.float64] | None) -> float:
    """Kullback-Leibler divergence that neighbours' releases certainly reach; 0 if not known.

    That of Laplace noise at a distance is exact; discrete noise moved by whole numbers has more, as
    ``x < sinh(x)``. Staircase noise moved by m of its widths gains ``m epsilon`` below both centres
    and loses it above them, and what is between them does not lower the divergence.
    """
    if isinstance(inner, RandomizedResponse):
        with np.errstate(divide="ignore"):
            logs = np.maximum(np.log(inner.matrix), -1e300)  # for minus infinity
        gained = np.sum(inner.matrix * logs, axis=1)[:, None] - inner.matrix @ logs.T
        return float(gained.max())
    if not isinstance(inner, Laplace | DiscreteLaplace | Staircase) or sensitivity is None:
        return 0.0
    noise = inner.noise if sensitivity.ndim else inner.noise.max()
    if isinstance(inner, Staircase):
        t = inner.epsilon * np.floor(sensitivity / noise * (1 + 1e-12))
        return float(np.sum(-t * np.expm1(-t) / 2))
    moved = np.floor(sensitivity) if isinstance(inner, DiscreteLaplace) else sensitivity
    t = moved / noise
    return float(np.sum(t + np.expm1(-t)))


def _discrete_delta(
    noise: NDArray[np.float64], sensitivity: NDArray[np.float64], epsilon: float
) -> float:
    """Largest delta of one number with discrete Gaussian noise, moved by all it may be."""
    sigmas = noise if sensitivity.ndim else noise.max()
    pairs = np.broadcast_arrays(sigmas, np.floor(sensitivity * (1 + 1e-12)))
    each = {(float(s), float(m)) for s, m in zip(*map(np.ravel, pairs), strict=True) if m >= 1}
    return max((_one_delta(sigma, moved, epsilon) for sigma, moved in each), default=0.0)


def _one_delta(sigma: float, moved: float, epsilon: float) -> float:
    if sigma > _SUMMED:  # each of the two probabilities is off by less than the largest one
        near = gaussian_delta(epsilon, (moved / sigma) ** 2 / 2)
        return near - (1 + math.exp(min(epsilon, 700.0))) / sigma
    end = math.ceil(40 * sigma) + 1
    # the ratio of the two probabilities is above exp(epsilon) below this number
    below = min(moved / 2 - sigma * (sigma * epsilon / moved), end + 1.0)
    if below < -end:
        return 0.0
    with np.errstate(over="ignore", under="ignore"):
        all_mass = np.exp(-((np.arange(-end, end + 1) / sigma) ** 2) / 2).sum()
        k = np.arange(-end, math.ceil(below))
        ratio = np.minimum(epsilon + moved * (k - moved / 2) / sigma / sigma, 0.0)
        return float(-np.sum(np.exp(-((k / sigma) ** 2) / 2) * np.expm1(ratio)) / all_mass)


def _largest_noise(inner: Any, sensitivity: NDArray[np.float64] | None) -> Any:
    """Guarantee if all that one number of sensitivity allows happens where the noise is largest."""
    if sensitivity is None or sensitivity.ndim or not getattr(inner, "noise", np.zeros(())).ndim:
        return inner.guarantee(sensitivity)
    return inner.guarantee(sensitivity * inner.noise.min() / inner.noise.max())


def _too_small(mechanism: Mechanism, sensitivity: Any, has: str, claims: str) -> ValueError:
    at = "" if sensitivity is None else f" at sensitivity {np.array2string(sensitivity)}"
    return ValueError(
        f"guarantee: {mechanism!r}{at} gives {has}, and the release claims {claims}: its noise is "
        "too small for that. Write the guarantee that the noise keeps, or correct the noise or the "
        "sensitivity (one number for cells of which a record is in one only)."
    )
