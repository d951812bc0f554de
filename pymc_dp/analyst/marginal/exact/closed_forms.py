r"""Normal records with noise on each, integrated out in closed form, clamped or not.

With :math:`x \sim N(\mu, s^2)`, clamped to [a, b], the release r has the density

.. math::

    P(x < a)\, \eta(r - a) + P(x > b)\, \eta(r - b) + \int_a^b N(x; \mu, s^2)\, \eta(r - x)\, dx.

For Gaussian noise the integral is a normal density times the probability of an interval under the
record's conditional; for Laplace noise it has two pieces, left and right of r, each the probability
of an interval under the normal law shifted by :math:`\pm s^2 / \beta`. All is done in logarithms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.random.basic import NormalRV
from pytensor.tensor.variable import TensorVariable

from pymc_dp.analyst.marginal.exact.logs import log_interval, log_ndtr, log_sum
from pymc_dp.analyst.marginal.values import clamp_of
from pymc_dp.analyst.release import Release
from pymc_dp.mechanisms import Gaussian, Laplace

__all__ = ["closed_form", "has_closed_form"]

#: a bound of a clamp, or None where there is none
Bound = Any


def has_closed_form(records: Sequence[Any], releases: Sequence[Release]) -> bool:
    """Whether it is one normal variable, released once, with Gaussian or Laplace noise on each."""
    if len(records) != 1 or len(releases) != 1:
        return False
    [record], [release] = records, releases
    normal = isinstance(record.owner.op, NormalRV) and record.type.ndim == 1
    known = type(release.mechanism) in (Gaussian, Laplace)
    return normal and known and clamp_of(release.statistic, record) is not None


def closed_form(record: Any, release: Release, released: Any) -> TensorVariable:
    """Log-density of each record's release, the record integrated out."""
    bounds = clamp_of(release.statistic, record)
    assert bounds is not None
    low, high = bounds
    mu, sigma = record.owner.op.dist_params(record.owner)
    density = gaussian_noise if type(release.mechanism) is Gaussian else laplace_noise
    return density(released, mu, sigma, release.mechanism.noise, low, high)


def gaussian_noise(
    released: Any, mu: Any, sigma: Any, noise: Any, low: Bound = None, high: Bound = None
) -> TensorVariable:
    """Log-density of clamp(x, low, high) + N(0, noise^2) with x ~ N(mu, sigma^2)."""
    variance = sigma**2 + noise**2
    whole = _log_normal(released - mu, pt.sqrt(variance))
    mean = (mu * noise**2 + released * sigma**2) / variance
    sd = sigma * noise / pt.sqrt(variance)
    inside = whole + log_interval(_scaled(low, mean, sd), _scaled(high, mean, sd))
    return _with_ends(inside, lambda x: _log_normal(released - x, noise), mu, sigma, low, high)


def laplace_noise(
    released: Any, mu: Any, sigma: Any, noise: Any, low: Bound = None, high: Bound = None
) -> TensorVariable:
    """Log-density of clamp(x, low, high) + Laplace(noise) with x ~ N(mu, sigma^2)."""
    tilt = sigma / noise  # how far the law is shifted, in units of sigma
    end = released if high is None else pt.minimum(released, high)
    start = released if low is None else pt.maximum(released, low)
    centred = (released - mu) / noise
    left = log_interval(_scaled(low, mu, sigma, -tilt), _scaled(end, mu, sigma, -tilt)) - centred
    right = log_interval(_scaled(start, mu, sigma, tilt), _scaled(high, mu, sigma, tilt)) + centred
    inside = log_sum(pt.stack([left, right])) + tilt**2 / 2 - np.log(2 * noise)

    def log_noise(x: Any) -> Any:
        return -pt.abs(released - x) / noise - np.log(2 * noise)

    return _with_ends(inside, log_noise, mu, sigma, low, high)


def _with_ends(
    inside: Any, log_noise: Any, mu: Any, sigma: Any, low: Bound, high: Bound
) -> TensorVariable:
    """Add the records at the clamp's ends."""
    terms = [inside]
    if low is not None:
        terms.append(log_ndtr((low - mu) / sigma) + log_noise(low))
    if high is not None:
        terms.append(log_ndtr((mu - high) / sigma) + log_noise(high))
    return log_sum(pt.stack(terms)) if len(terms) > 1 else inside


def _scaled(bound: Bound, mean: Any, sd: Any, shift: Any = 0.0) -> Any:
    return None if bound is None else (bound - mean) / sd + shift


def _log_normal(x: Any, sd: Any) -> Any:
    return -((x / sd) ** 2) / 2 - pt.log(sd) - np.log(2 * np.pi) / 2
