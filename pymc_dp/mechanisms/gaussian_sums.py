r"""Sums of :math:`f(k) = \exp(-k^2 / 2\sigma^2)` over whole numbers k, as cheap as integrals.

The sum from x on, x >= 0, has two forms, right to some 1e-12 of it everywhere:

- where terms fall off quickly, sigma < 3 or :math:`y = x/\sigma^2 \ge 1`,
  :math:`f(x) \sum_j g_j w^j` with :math:`w = e^{-y}` and :math:`g_j = f(j)`: 32 terms of a
  polynomial;
- elsewhere the midpoint rule of Euler and Maclaurin: the integral from m = x - 1/2 on and
  corrections :math:`a_k f^{(2k-1)}(m)`, each some :math:`(\max(y, 1/\sigma) / 2\pi)^2` of the one
  before.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.tensor.variable import TensorVariable
from scipy.special import bernoulli, factorial

from pymc_dp.mechanisms.gaussian import mills_ratio

__all__ = ["log_interval", "log_normaliser", "log_tail", "symbolic_log_sum"]

_SMALL_SIGMA = 3.0
_TERMS = 32  # exp(-32) and, at sigma = 3, exp(-32^2 / 18) are below any rounding error
_FEW = 32.0  # so many terms are summed one by one
_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)

_even = np.arange(2, 18, 2)
# of the first, third, ..., fifteenth derivative
_CORRECTIONS = (1 - 2.0 ** (1 - _even)) * bernoulli(16)[_even] / factorial(_even)


@numba.njit
def log_normaliser(sigma: float) -> float:
    r"""Log of :math:`\sum_k f(k)`, to machine precision.

    Both series are of the same theta function, which Poisson's summation formula turns into each
    other: the sum itself for small sigma,
    :math:`\sigma\sqrt{2\pi}\,(1 + 2\sum_{j \ge 1} \exp(-2\pi^2\sigma^2 j^2))` for large.
    """
    rate, factor = (0.5 / sigma**2, 0.0)
    if sigma > 0.4:  # where both exponents are near pi
        rate, factor = 2 * np.pi**2 * sigma**2, np.log(sigma) + _HALF_LOG_2PI
    if rate > 40:
        return factor
    rest = 0.0
    for j in range(1, 7):
        rest += np.exp(-rate * j * j)
    return factor + np.log1p(2 * rest)


def _corrections(m: Any, sigma: Any) -> Any:
    """Euler-Maclaurin terms of a sum over midpoints from m on, over f(m); numbers or graphs."""
    y, v = m / sigma**2, 1 / sigma**2
    before, here = 1.0, -y  # f'/f, and from it the next: f^(n+1) = -y f^(n) - n v f^(n-1)
    total = _CORRECTIONS[0] * here
    for k in range(1, 8):
        n = 2.0 * k - 1.0
        even = -y * here - n * v * before
        odd = -y * even - (n + 1.0) * v * here
        before, here = even, odd
        total = total + _CORRECTIONS[k] * odd
    return total


_compiled_corrections = numba.njit(_corrections)


@numba.njit
def _polynomial(x: float, sigma: float, terms: float) -> float:
    """Sum of so many terms f(x), f(x + 1), ... over f(x)."""
    ratio = np.exp(-(2 * x + 1) / (2 * sigma**2))
    smaller = np.exp(-1 / sigma**2)
    total, term, j = 1.0, 1.0, 1.0
    while j < terms and term > 1e-17 * total:
        term *= ratio
        ratio *= smaller
        total += term
        j += 1.0
    return total


@numba.njit
def log_tail(x: float, sigma: float) -> float:
    """Log P(noise >= x) of discrete Gaussian noise, for whole x >= 0."""
    if x == np.inf:
        return -np.inf
    if sigma < _SMALL_SIGMA or x >= sigma * sigma:
        log_sum = -0.5 * (x / sigma) ** 2 + np.log(_polynomial(x, sigma, 2.0 * _TERMS))
    else:
        m = x - 0.5
        z = m / sigma
        log_sum = -0.5 * z * z + np.log(sigma * mills_ratio(z) + _compiled_corrections(m, sigma))
    return log_sum - log_normaliser(sigma)


@numba.njit
def log_interval(low: float, high: float, statistic: float, sigma: float) -> float:
    """Log P(low <= statistic + noise < high)."""
    u, v = np.ceil(low - statistic), np.ceil(high - statistic)
    if not u < v:
        return -np.inf
    if u + v < 1:  # symmetric around zero: turn it to the right
        u, v = 1.0 - v, 1.0 - u
    if v - u <= _FEW:
        start = max(u, 0.0)
        total = _polynomial(start, sigma, v - start)
        log_scale = -0.5 * (start / sigma) ** 2
        if u < 0:
            total += _polynomial(1.0, sigma, -u) * np.exp(-0.5 / sigma**2)
        return log_scale + np.log(total) - log_normaliser(sigma)
    if u > 0:
        larger = log_tail(u, sigma)
        return larger + np.log(-np.expm1(log_tail(v, sigma) - larger))
    return np.log1p(-np.exp(log_tail(v, sigma)) - np.exp(log_tail(1.0 - u, sigma)))


def symbolic_log_sum(x: TensorVariable, sigma: NDArray[np.float64]) -> TensorVariable:
    """Symbolic log of the sum of f from x on, x >= 0."""
    y, j = x / sigma**2, np.arange(_TERMS)
    weights = np.exp(-(j**2) / (2 * np.expand_dims(sigma, -1) ** 2))
    w, total = pt.exp(-y), 0.0
    for k in j[::-1]:
        total = total * w + weights[..., k]
    log_sum = -0.5 * (x / sigma) ** 2 + pt.log(total)
    if np.all(sigma < _SMALL_SIGMA):
        return log_sum
    # where the other branch is taken this one must stay finite, or gradients would be NaN
    large = np.maximum(sigma, _SMALL_SIGMA)
    m = pt.minimum(x, large**2) - 0.5
    area = np.sqrt(np.pi / 2) * large * pt.erfcx(m / (np.sqrt(2) * large))
    series = -0.5 * (m / large) ** 2 + pt.log(area + _corrections(m, large))
    quick = pt.or_(np.asarray(sigma < _SMALL_SIGMA), y >= 1)
    return pt.switch(quick, log_sum, series)
