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
from pytensor.gradient import disconnected_grad
from pytensor.tensor.variable import TensorVariable

from pymc_dp.analyst.marginal.breaks import breaks_of
from pymc_dp.analyst.records import length_of
from pymc_dp.analyst.release import Release
from pymc_dp.mechanisms.additive import AdditiveNoise

__all__ = ["Rule", "gauss_legendre", "nodes"]

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
    cuts, safe = _cuts(record, releases, released)
    middle, half = (cuts[1:] + cuts[:-1]) / 2, (cuts[1:] - cuts[:-1]) / 2
    places, weights = (pt.as_tensor(part)[None, :, None] for part in rule)
    # pieces without length may lie where the density is not finite
    values = pt.switch(half > 0, middle, safe)[:, None, :] + half[:, None, :] * places
    log_weights = pt.log(half)[:, None, :] + pt.log(weights)
    return tuple(
        disconnected_grad(part.reshape((-1, part.shape[-1]))) for part in (values, log_weights)
    )


def _cuts(
    record: Any, releases: Sequence[Release], released: Sequence[Any]
) -> tuple[TensorVariable, TensorVariable]:
    """Places to break the line for each record, sorted, of shape (number of cuts, n); the median."""
    quantiles = [_quantile(record, p) for p in QUANTILES]
    corners: list[Any] = []
    for release, value in zip(releases, released, strict=True):
        corners += breaks_of(release.statistic, record, _around(release, value))
    lower, upper = _quantile(record, 0.0), _quantile(record, 1.0)
    middle = quantiles[len(quantiles) // 2]
    inside = [
        pt.clip(pt.switch(pt.isinf(at) | pt.isnan(at), middle, at), lower, upper) for at in corners
    ]
    everywhere = [pt.broadcast_to(at, (length_of(record),)) for at in (*quantiles, *inside)]
    return pt.sort(pt.stack(everywhere, axis=0), axis=0), middle


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
