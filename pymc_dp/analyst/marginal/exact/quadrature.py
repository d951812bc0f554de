"""One-dimensional quadrature over a continuous record, broken at corners, quantiles and releases.

The integrand is the record's own density times the noise's. Neither has a width that is known
beforehand, and the parameters move both; so the line is cut at quantiles of the record's law as it
is, at the corners of the statistic (clamps), and around the value that was released in steps of the
noise, and every piece gets a few Gauss-Legendre nodes. The places of the cuts are no part of the
gradient: the integral does not depend on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.tensor.variable import TensorVariable

from pymc_dp.analyst.marginal.exact.breaks import breaks_of
from pymc_dp.analyst.marginal.held import held
from pymc_dp.analyst.records import length_of
from pymc_dp.analyst.release import Release
from pymc_dp.mechanisms.additive import AdditiveNoise

__all__ = ["Rule", "corners_of", "gauss_legendre", "nodes"]

#: nodes in (-1, 1) of one piece, and their weights
Rule = tuple[Any, Any]

_LOWER = (1e-15, 1e-11, 1e-8, 1e-6, 1e-4, 1e-3, 0.01, 0.05, 0.2)
#: probabilities of the record's own law at whose quantiles the line is cut
QUANTILES = np.array([*_LOWER, 0.5, *(1 - p for p in reversed(_LOWER))])
#: the same around a released value, in units of the noise's parameter
STEPS = (0.0, 1.0, 3.0, 7.0, 15.0, 37.0)


def gauss_legendre(order: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Nodes and weights on (-1, 1), exact for polynomials of degree below 2 * order."""
    return np.polynomial.legendre.leggauss(order)


def nodes(
    record: TensorVariable, releases: Sequence[Release], released: Sequence[Any], rule: Rule
) -> tuple[TensorVariable, TensorVariable]:
    """Nodes of a quadrature over each record, and the logarithms of their weights.

    Returns
    -------
    values, log_weights : TensorVariable of shape (number of nodes, n)
    """
    cuts, median = _cuts(record, releases, released)
    start, end = cuts[:-1, None, :], cuts[1:, None, :]
    places, weights = (pt.as_tensor(part)[None, :, None] for part in rule)
    middle, half = (start + end) / 2, (end - start) / 2
    values, slope = middle + half * places, half + 0 * places
    lower, upper = _quantile(record, 0.0), _quantile(record, 1.0)
    from_lower, by_lower = _on_log_scale(start - lower, end - lower, places)
    from_upper, by_upper = _on_log_scale(upper - end, upper - start, places)
    near_upper = upper - middle < middle - lower
    some = (start > lower) & ~pt.isinf(lower) & ~near_upper
    values, slope = pt.switch(some, lower + from_lower, values), pt.switch(some, by_lower, slope)
    some = (end < upper) & ~pt.isinf(upper) & near_upper
    values, slope = pt.switch(some, upper - from_upper, values), pt.switch(some, by_upper, slope)
    # pieces without length may lie where the density is not finite
    values = pt.switch(half > 0, values, median)
    log_weights = pt.switch(half > 0, pt.log(slope) + pt.log(weights), -np.inf)
    number = (-1, values.shape[-1])
    return held(values.reshape(number)), held(log_weights.reshape(number))


def _on_log_scale(near: Any, far: Any, places: Any) -> tuple[Any, Any]:
    """Nodes between two distances from an end of the support, and how fast they move.

    Densities may be powers of that distance, which are smooth on a logarithmic scale.
    """
    known = (near > 0) & ~pt.isinf(near) & (far > near)
    first = pt.switch(known, near, 1.0)
    length = pt.log(pt.switch(known, far, 2.0) / first)
    moved = first * pt.exp(length * (1 + places) / 2)
    return moved, moved * length / 2


def _cuts(
    record: Any, releases: Sequence[Release], released: Sequence[Any]
) -> tuple[TensorVariable, TensorVariable]:
    """Sorted places to break the line at, of shape (number of cuts, n), and the median."""
    quantiles = [_quantile(record, p) for p in QUANTILES]
    corners = corners_of(record, releases, released)
    lower, upper = _quantile(record, 0.0), _quantile(record, 1.0)
    middle = quantiles[len(quantiles) // 2]
    inside = [
        pt.clip(pt.switch(pt.isinf(at) | pt.isnan(at), middle, at), lower, upper) for at in corners
    ]
    everywhere = [pt.broadcast_to(at, (length_of(record),)) for at in (*quantiles, *inside)]
    return pt.sort(pt.stack(everywhere, axis=0), axis=0), middle


def corners_of(record: Any, releases: Sequence[Release], released: Sequence[Any]) -> list[Any]:
    """Values of a record at which a statistic has corners, or near which it was released."""
    found: list[Any] = []
    for release, value in zip(releases, released, strict=True):
        found += breaks_of(release.statistic, record, _around(release, value))
    return found


def _quantile(record: Any, probability: float) -> TensorVariable:
    return pm.icdf(record, np.float64(probability), warn_rvs=False)


def _around(release: Release, value: Any) -> list[Any]:
    """Values of the statistic near the one released, in steps of the noise."""
    if not isinstance(release.mechanism, AdditiveNoise):
        return []
    noise = release.mechanism.noise
    return [
        value + sign * step * noise for step in STEPS for sign in ((1,) if not step else (-1, 1))
    ]
