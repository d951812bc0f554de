"""Draws of parameters whose conditional is of a known family: parts of a cycle.

The conditional's own parameters are read from the gradient of its log-density l, a function that
the model gives:

========== ==================================== =====================================
family     dl/dx                                 read from
========== ==================================== =====================================
normal     linear in x                           its value and slopes
gamma      (a - 1)/x - b                         two points
inv. gamma -(a + 1)/x + b/x^2                    two points
beta       (a - 1)/x - (b - 1)/(1 - x)           two points
dirichlet  (a_k - 1)/x_k                         one point
========== ==================================== =====================================
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pymc_dp.numerics.cholesky import normal_from_precision
from pymc_dp.numerics.cycles import Part, inner

__all__ = ["make_conjugate_draw"]

#: two points so far apart that one term of a gradient rules at each, whatever the data's unit
LOW, HIGH = 1e-30, 1e30
#: keeps a draw that underflows away from the edge of its support
TINY = 1e-300


def _normal(gradient: Callable[..., Any], k: int) -> Callable[..., None]:
    @inner
    def draw(rng, x, theta, given, table):  # type: ignore[no-untyped-def]
        size = x.size
        shift = gradient(x, theta, given, table)[0].copy()
        precision = np.empty((size, size))
        for j in range(size):
            x[j] += 1.0
            slope = gradient(x, theta, given, table)[0]
            x[j] -= 1.0
            for i in range(size):
                precision[i, j] = shift[i] - slope[i]
        if normal_from_precision(rng, precision, shift):
            for i in range(size):
                x[i] += shift[i]

    return draw


def _two_points(
    gradient: Callable[..., Any], terms: Callable[..., Any], low: float, high: float
) -> Callable[..., Any]:
    """Coefficients (c, d) of a gradient c * f(x) + d * g(x), (f, g) = terms(x), entry by entry."""

    @inner
    def coefficients(x, theta, given, table):  # type: ignore[no-untyped-def]
        x.fill(low)
        at_low = gradient(x, theta, given, table)[0].copy()
        x.fill(high)
        at_high = gradient(x, theta, given, table)[0]
        f_low, g_low = terms(low)
        f_high, g_high = terms(high)
        determinant = f_low * g_high - f_high * g_low
        first, second = np.empty(x.size), np.empty(x.size)
        for i in range(x.size):
            first[i] = (at_low[i] * g_high - at_high[i] * g_low) / determinant
            second[i] = (f_low * at_high[i] - f_high * at_low[i]) / determinant
        return first, second

    return coefficients


def _gamma(gradient: Callable[..., Any], k: int) -> Callable[..., None]:
    terms = inner(lambda x: (1 / x, -1.0))
    coefficients = _two_points(gradient, terms, LOW, HIGH)

    @inner
    def draw(rng, x, theta, given, table):  # type: ignore[no-untyped-def]
        shape, rate = coefficients(x, theta, given, table)
        for i in range(x.size):
            x[i] = (rng.standard_gamma(shape[i] + 1) + TINY) / rate[i]

    return draw


def _inverse_gamma(gradient: Callable[..., Any], k: int) -> Callable[..., None]:
    terms = inner(lambda x: (-1 / x, 1 / x**2))
    coefficients = _two_points(gradient, terms, LOW, HIGH)

    @inner
    def draw(rng, x, theta, given, table):  # type: ignore[no-untyped-def]
        shape, scale = coefficients(x, theta, given, table)
        for i in range(x.size):
            x[i] = scale[i] / (rng.standard_gamma(shape[i] - 1) + TINY)

    return draw


def _beta(gradient: Callable[..., Any], k: int) -> Callable[..., None]:
    terms = inner(lambda x: (1 / x, -1 / (1 - x)))
    coefficients = _two_points(gradient, terms, 0.25, 0.75)

    @inner
    def draw(rng, x, theta, given, table):  # type: ignore[no-untyped-def]
        a, b = coefficients(x, theta, given, table)
        for i in range(x.size):
            first = rng.standard_gamma(a[i] + 1) + TINY
            x[i] = first / (first + rng.standard_gamma(b[i] + 1) + TINY)

    return draw


def _dirichlet(gradient: Callable[..., Any], k: int) -> Callable[..., None]:
    @inner
    def draw(rng, x, theta, given, table):  # type: ignore[no-untyped-def]
        x.fill(1.0 / k)
        slope = gradient(x, theta, given, table)[0]
        for row in range(x.size // k):
            total = 0.0
            for i in range(row * k, row * k + k):
                x[i] = rng.standard_gamma(slope[i] / k + 1) + TINY
                total += x[i]
            for i in range(row * k, row * k + k):
                x[i] /= total

    return draw


#: for every family ``make(gradient, length of the last axis)``, giving a draw of x in place
_FAMILIES: dict[str, Callable[..., Any]] = {
    "normal": _normal,
    "gamma": _gamma,
    "inverse gamma": _inverse_gamma,
    "beta": _beta,
    "dirichlet": _dirichlet,
}


def make_conjugate_draw(
    family: str,
    functions: Sequence[Callable[..., Any]],
    where: tuple[int, int],
    shape: tuple[int, ...],
) -> Part:
    """Compile a draw of the parameters ``theta[where[0]:where[1]]`` from their conditional.

    Parameters
    ----------
    family : str
        As in the table above.
    functions : sequence of callable
        ``gradient(x, theta, given, table)`` gives dl/dx, x the flat parameters in their own space;
        and ``to_value(x, theta, given)`` the unconstrained values, where these are others.
    where : tuple of int
        First position in theta, and the one after the last.
    shape : tuple of int
        Shape of the parameters in their own space.
    """
    start, stop = where
    size, k = int(np.prod(shape)), (shape[-1] if shape else 1)
    draw = _FAMILIES[family](functions[0], k)
    to_value = functions[1] if len(functions) > 1 else inner(lambda x, theta, given: (x,))

    @inner
    def part(rng, arrays, tune):  # type: ignore[no-untyped-def]
        theta, given = arrays.theta, arrays.given
        x = np.empty(size)
        for i in range(min(size, stop - start)):
            x[i] = theta[start + i]
        draw(rng, x, theta, given, arrays.table)
        value = to_value(x, theta, given)[0]
        for i in range(start, stop):
            theta[i] = value[i - start]

    return part
