"""Draws of parameters whose conditional is of a known family: parts of a cycle.

The conditional's own parameters are read from the gradient of its log-density l, a function that
the model gives:

========== ==================================== =====================================
family     dl/dx                                 read from
========== ==================================== =====================================
normal     linear in x                           its value, and slopes over long steps
gamma      (a - 1)/x - b                         two points near the conditional
inv. gamma -(a + 1)/x + b/x^2                    two points near the conditional
beta       (a - 1)/x - (b - 1)/(1 - x)           1/4 and 3/4
dirichlet  (a_k - 1)/x_k                         equal shares
========== ==================================== =====================================

Points are of the conditional's own size, whatever the unit: they are looked for, from the current
value. Far from there one of two terms would be lost by rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pymc_dp.numerics.cholesky import normal_from_precision
from pymc_dp.numerics.cycles import Part, inner, inner_cached

__all__ = ["make_conjugate_draw"]

#: keeps a draw that underflows away from the edge of its support
TINY, HUGE = 1e-300, 1e300
#: where the search for the size of a positive parameter starts at the most; one look at a time
#: brings it closer by a factor of eight powers of ten
FAR, MOST_LOOKS = 1e200, 100
#: the longest step over which a normal's slope is read, and by how much steps grow
LONGEST, LONGER = 1e150, 1e4


def _normal(gradient: Callable[..., Any], k: int) -> Callable[..., None]:
    # One loop, so that the gradient is compiled into it once: -1 is where x is. An affine function
    # is as exact over a long step as over a short one, and rounding is lost in what a long one
    # changes: it goes beyond the conditional's standard deviation and towards its mean.
    @inner
    def draw(rng, x, theta, given, table):  # type: ignore[no-untyped-def]
        size = x.size
        shift, precision = np.empty(size), np.empty((size, size))
        j, step = -1, 0.0
        while j < size:
            start = x[j]
            if j >= 0:
                x[j] = start + step
                step = x[j] - start  # as it was rounded
            slope = gradient(x, theta, given, table)[0]
            if j >= 0:
                x[j] = start
                fall = shift[j] - slope[j]
                if (fall * step < 1 or fall < 1e-3 * abs(shift[j])) and step < LONGEST:
                    step *= LONGER
                    continue
                for i in range(size):
                    precision[i, j] = (shift[i] - slope[i]) / step
            else:
                shift[:] = slope
            j += 1
            if j < size:
                step = max(abs(x[j]), 1.0)
        if normal_from_precision(rng, precision, shift):
            for i in range(size):
                x[i] += shift[i]

    return draw


def _positive(gradient: Callable[..., Any], sign: int) -> Callable[..., None]:
    """Draw x whose power `sign` is gamma: x dl/dx = A + B z is linear in z = x**sign."""

    @inner
    def draw(rng, x, theta, given, table):  # type: ignore[no-untyped-def]
        size = x.size
        start, unit = x.copy(), np.empty(size)
        shape, rate, products = np.empty(size), np.empty(size), np.empty((2, size))
        for i in range(size):
            unit[i] = min(max(x[i], 1 / FAR), FAR) if x[i] == x[i] else 1.0
        searching, looks = True, 0
        while searching and looks < MOST_LOOKS:
            for side in range(2):
                for i in range(size):
                    x[i] = unit[i] * (2.0 if (side == 1) == (sign == 1) else 0.5)
                slope = gradient(x, theta, given, table)[0]
                for i in range(size):
                    products[side, i] = x[i] * slope[i]
            searching = False
            looks += 1
            for i in range(size):
                b = (products[1, i] - products[0, i]) / 1.5
                a = products[0, i] - 0.5 * b
                shape[i], rate[i] = sign * (a + 1), -sign * b
                by = _nearer(shape[i], rate[i])
                if by != 1.0:
                    searching = True
                    unit[i] = np.sqrt(unit[i]) if by == 0.0 else unit[i] * by**sign
        for i in range(size):
            x[i] = start[i]  # stays where there is no such law
            if shape[i] > 0 and rate[i] > 0 and _nearer(shape[i], rate[i]) == 1.0:
                power = (rng.standard_gamma(shape[i]) + TINY) / rate[i]
                x[i] = min(max(unit[i] * power**sign, TINY), HUGE)

    return draw


@inner_cached
def _nearer(shape, rate):  # type: ignore[no-untyped-def]
    """By how much a gamma variable's unit must grow to be of its size; 1 where it is or none is.

    Of a shape or rate that is far below the other, only its rounding is known. 0 is said of a
    gradient that overflows.
    """
    if not (np.isfinite(shape) and np.isfinite(rate)):
        return 0.0
    if rate < 1e-4 * abs(shape) and rate > -1e-8 * abs(shape):
        return min(shape / rate, 1e8) if rate > 0 and shape > 0 else 1e8
    if shape < 1e-4 * abs(rate) and shape > -1e-8 * abs(rate):
        return max(shape / rate, 1e-8) if shape > 0 and rate > 0 else 1e-8
    return 1.0


def _beta(gradient: Callable[..., Any], k: int) -> Callable[..., None]:
    @inner
    def draw(rng, x, theta, given, table):  # type: ignore[no-untyped-def]
        slopes = np.empty((2, x.size))
        for side in range(2):
            x.fill(0.25 + 0.5 * side)
            slopes[side] = gradient(x, theta, given, table)[0]
        for i in range(x.size):
            # 4 u - 4/3 v at a quarter and 4/3 u - 4 v at three quarters, of shapes u + 1 and v + 1
            first = rng.standard_gamma((9 * slopes[0, i] - 3 * slopes[1, i]) / 32 + 1) + TINY
            other = rng.standard_gamma((3 * slopes[0, i] - 9 * slopes[1, i]) / 32 + 1) + TINY
            x[i] = first / (first + other)

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
    "gamma": lambda gradient, k: _positive(gradient, 1),
    "inverse gamma": lambda gradient, k: _positive(gradient, -1),
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
    # positive parameters that have a transform have the logarithm, or where they start is no matter
    logarithms = len(functions) > 1 and family in ("gamma", "inverse gamma")
    to_value = functions[1] if len(functions) > 1 else inner(lambda x, theta, given: (x,))

    @inner
    def part(rng, arrays, tune):  # type: ignore[no-untyped-def]
        theta, given = arrays.theta, arrays.given
        x = np.empty(size)
        for i in range(min(size, stop - start)):
            x[i] = np.exp(theta[start + i]) if logarithms else theta[start + i]
        draw(rng, x, theta, given, arrays.table)
        value = to_value(x, theta, given)[0]
        for i in range(start, stop):
            theta[i] = value[i - start]

    return part
