r"""Noise on a total that is itself normal: the law of their sum, in closed form.

For :math:`N(0, s^2)` plus :math:`\text{Laplace}(b)` and :math:`x \ge 0`, with
:math:`u_\mp = (s/b \mp x/s) / \sqrt 2`, the density and the upper tail are

.. math:: f(x) = (A_- + A_+) / 4b, \quad
          \bar F(x) = \tfrac12\text{erfc}(x / s\sqrt 2) + (A_- - A_+) / 4, \quad
          A_\mp = e^{s^2/2b^2 \mp x/b}\,\text{erfc}(u_\mp) = e^{-x^2/2s^2}\,\text{erfcx}(u_\mp).

The first form of A is taken where u is negative, the second where it is positive: neither
overflows. What was done to a noisy value afterwards (clamped, rounded, dropped) is then an interval
of this law instead of the noise's.

Integer noise on a sum of integers is taken for its continuous form with the same variance. A sum
of many records has a probability function that is smooth from one integer to the next.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray

from pymc_dp.mechanisms import (
    DiscreteGaussian,
    DiscreteLaplace,
    Exact,
    Gaussian,
    Laplace,
    Mechanism,
)
from pymc_dp.mechanisms.additive import AdditiveNoise
from pymc_dp.mechanisms.around import Around
from pymc_dp.types import Array, Variable

__all__ = ["convolved_logp", "gaussian_variance", "has_closed_form", "laplace_scale", "normal_logp"]

_SQRT2 = np.sqrt(2.0)


def gaussian_variance(mechanism: Mechanism) -> Array | None:
    """Variance of noise that is Gaussian, or none at all; None for other noise."""
    if isinstance(mechanism, Exact):  # of a count, which stands for what rounds to it
        return np.array(1 / 12)
    if isinstance(mechanism, Gaussian):
        return mechanism.noise**2
    if isinstance(mechanism, DiscreteGaussian):
        return _variance_of_integers(lambda k, sigma: -0.5 * (k / sigma) ** 2, mechanism.noise)
    return None


def laplace_scale(mechanism: Mechanism) -> tuple[Array, Array] | None:
    """Scale of noise that is Laplace, and what its variance is off; None for other noise."""
    if isinstance(mechanism, Laplace):
        return mechanism.noise, np.zeros_like(mechanism.noise)
    if isinstance(mechanism, DiscreteLaplace):
        q = np.exp(-1 / mechanism.noise)
        return mechanism.noise, 2 * q / (1 - q) ** 2 - 2 * mechanism.noise**2
    return None


def _variance_of_integers(log_p: Any, noise: NDArray[np.float64]) -> Array:
    """Variance of integer noise; that of the continuous one where the two cannot be told apart."""
    k = np.arange(-60, 61)
    p = np.exp(log_p(k, noise[..., None]))
    summed = (p * k**2).sum(axis=-1) / p.sum(axis=-1)
    return np.where(noise > 5, noise**2, summed)


def has_closed_form(mechanism: Mechanism) -> bool:
    """Whether the law of a normal total with this noise is known."""
    if isinstance(mechanism, Around):
        return not getattr(mechanism, "statistic_too", False) and has_closed_form(mechanism.inner)
    return gaussian_variance(mechanism) is not None or laplace_scale(mechanism) is not None


def normal_logp(x: Variable, variance: Variable) -> Variable:
    """Log-density of a centred normal."""
    return -0.5 * (x**2 / variance + pt.log(2 * np.pi * variance))


def convolved_logp(
    mechanism: Mechanism, released: Variable, mean: Variable, variance: Variable
) -> Variable:
    """Log-density of a released number whose total is normal.

    Parameters
    ----------
    mechanism : Mechanism
        The noise, of one number, and what was done afterwards.
    released : TensorVariable
        The released value.
    mean, variance : TensorVariable
        Of the total.
    """
    return _convolved(mechanism, variance).logp(released, mean)


def _convolved(mechanism: Mechanism, variance: Variable) -> Any:
    if isinstance(mechanism, Around):
        around = copy.copy(mechanism)
        around.inner = _convolved(mechanism.inner, variance)
        return around
    whole = getattr(mechanism, "lattice", 0.0)
    gaussian = gaussian_variance(mechanism)
    if gaussian is not None:
        return _NormalNoise(whole, variance + gaussian)
    found = laplace_scale(mechanism)
    assert found is not None, mechanism
    scale, off = found
    # integers vary a little less than their continuous form; a total of no spread keeps some
    return _NormalLaplace(whole, pt.maximum(variance + off, 1e-12 * scale**2), scale)


def _log_add(a: Variable, b: Variable) -> Variable:
    """Log of a sum of exponentials, safe whatever compiles it."""
    return pt.maximum(a, b) + pt.log1p(pt.exp(-pt.abs(a - b)))


class _Noise:
    """Noise around a mean, as the mechanisms around it want it: see `AdditiveNoise`."""

    _tail = AdditiveNoise._tail
    _log_above = AdditiveNoise._log_above

    def __init__(self, lattice: float, variance: Variable) -> None:
        self.lattice, self.variance = lattice, variance

    def noise_of(self, statistic: Any) -> None:
        """Insist on nothing: it is one number."""

    def log_interval(self, low: Any, high: Any, statistic: Any) -> Variable:
        """Symbolic log P(low <= released < high); an integer stands for what rounds to it."""
        if self.lattice:
            low, high = (None if b is None else pt.ceil(b) - 0.5 for b in (low, high))
        lattice, self.lattice = self.lattice, 0.0
        found = AdditiveNoise.log_interval(self, low, high, statistic)  # type: ignore[arg-type]
        self.lattice = lattice
        return found


class _NormalNoise(_Noise):
    def logp(self, released: Any, statistic: Any) -> Variable:
        return normal_logp(released - statistic, self.variance)

    def symbolic_log_tail(self, x: Variable) -> Variable:
        z = x / pt.sqrt(2 * self.variance)
        return pt.log(pt.erfcx(z)) - z**2 - np.log(2)


class _NormalLaplace(_Noise):
    def __init__(self, lattice: float, variance: Variable, scale: Array) -> None:
        super().__init__(lattice, variance)
        self.scale = scale

    def logp(self, released: Any, statistic: Any) -> Variable:
        minus, plus, _ = self._parts(pt.abs(released - statistic))
        return _log_add(minus, plus) - np.log(4 * self.scale)

    def symbolic_log_tail(self, x: Variable) -> Variable:
        minus, _, u_plus = self._parts(x)
        z = x / pt.sqrt(2 * self.variance)
        # both are of the size of the normal tail, and the first is the larger one
        rest = pt.log(0.5 * pt.erfcx(z) - 0.25 * pt.erfcx(u_plus)) - z**2
        return _log_add(rest, minus - np.log(4))

    def _parts(self, x: Variable) -> tuple[Variable, Variable, Variable]:
        """Log A of both signs, and u of the second, for x >= 0."""
        s = pt.sqrt(self.variance)
        ratio, z2 = s / self.scale, x**2 / (2 * self.variance)
        u_minus, u_plus = (ratio - x / s) / _SQRT2, (ratio + x / s) / _SQRT2
        near = pt.log(pt.erfcx(pt.maximum(u_minus, 0.0))) - z2
        far = 0.5 * ratio**2 - x / self.scale + pt.log(pt.erfc(pt.minimum(u_minus, 0.0)))
        minus = pt.switch(u_minus > 0, near, far)
        return minus, pt.log(pt.erfcx(u_plus)) - z2, u_plus
