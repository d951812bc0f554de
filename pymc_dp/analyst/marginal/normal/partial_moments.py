r"""Integrals of powers of a standard variable between ends, of the families that have them.

Ends are numbers in increasing order; pieces reach from below the first to above the last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytensor.tensor as pt
from scipy import special

from pymc_dp.types import Array

__all__ = ["LARGEST_SHAPE", "PartialMoments", "gamma_partial_moments", "normal_partial_moments"]

#: of ends and the number of powers: for each piece, the integrals of powers 0, 1, ...
PartialMoments = Callable[[Sequence[Any], int], list[list[Any]]]

LARGEST_SHAPE = 1000.0
"""Of gamma variables: with more, differences of raw moments lose too many digits."""
_SQRT2 = np.sqrt(2.0)
_POSITIVE = np.float64(1e-300), np.float64(1e300)


def normal_partial_moments(ends: Sequence[Any], number: int) -> list[list[Any]]:
    r"""Integrate powers of a standard normal variable.

    Notes
    -----
    .. math:: I_0 = \Phi(b) - \Phi(a), \quad I_1 = \phi(a) - \phi(b), \quad
              I_k = (k - 1) I_{k-2} + a^{k-1}\phi(a) - b^{k-1}\phi(b).

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from pymc_dp.analyst.marginal.normal.partial_moments import normal_partial_moments
    >>> below, above = normal_partial_moments([pt.constant(0.0)], 3)
    >>> round(float(above[2].eval()), 6)
    0.5
    """
    # far out all that matters is which side it is
    places: list[Any] = [None, *(pt.clip(z, -40.0, 40.0) for z in ends), None]
    densities: list[Any] = [
        None if z is None else pt.exp(-0.5 * z**2) / np.sqrt(2 * np.pi) for z in places
    ]
    result = []
    for (a, b), (pa, pb) in zip(pairwise(places), pairwise(densities), strict=True):
        found: list[Any] = [_normal_mass(a, b)]
        for k in range(1, number):
            edges = [
                sign * (z ** (k - 1) if k > 1 else 1.0) * p
                for sign, z, p in ((1.0, a, pa), (-1.0, b, pb))
                if z is not None
            ]
            edge: Any = sum(edges[1:], edges[0]) if edges else 0.0
            found.append(edge if k == 1 else (k - 1.0) * found[k - 2] + edge)
        result.append(found)
    return result


def _normal_mass(a: Any, b: Any) -> Any:
    """Probability of a standard normal between a and b; None is infinite."""
    if a is None and b is None:
        return 1.0
    if a is None:
        return 0.5 * pt.erfc(-b / _SQRT2)
    if b is None:
        return 0.5 * pt.erfc(a / _SQRT2)
    return 0.5 * (pt.erf(b / _SQRT2) - pt.erf(a / _SQRT2))


def gamma_partial_moments(shape: Array | float) -> PartialMoments:
    r"""Make a function that integrates powers of gamma variables of scale 1.

    Parameters
    ----------
    shape : float or array
        Of the variables, at most ``LARGEST_SHAPE``: one for all rows, or one for each.

    Notes
    -----
    With the regularised incomplete gamma function P, :math:`\int_0^b z^k p(z) dz =
    (\alpha)_k P(\alpha + k, b)`. P is evaluated for the largest k; below it follows by adding
    positive numbers, which keeps all digits:
    :math:`P(\alpha + k, b) = P(\alpha + k + 1, b) + b^{\alpha + k} e^{-b} /
    \Gamma(\alpha + k + 1)`.

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from pymc_dp.analyst.marginal.normal.partial_moments import gamma_partial_moments
    >>> below, above = gamma_partial_moments(1.0)([pt.constant(2.0)], 2)
    >>> round(float(above[0].eval()), 6)  # exp(-2)
    0.135335
    """
    alpha = np.asarray(shape, dtype=np.float64)[()]

    def below(end: Any, number: int) -> list[Any]:
        z = pt.clip(end, *_POSITIVE)  # there is nothing below zero
        term = pt.exp(alpha * pt.log(z) - z - special.gammaln(alpha + 1))
        terms = [term]
        for k in range(1, number - 1):
            terms.append(terms[-1] * z / (alpha + k))
        found = [pt.gammainc(alpha + (number - 1), z)]
        for term in terms[: number - 1][::-1]:
            found.append(found[-1] + term)
        return found[::-1]

    def integrals(ends: Sequence[Any], number: int) -> list[list[Any]]:
        reached: list[Any] = [[0.0] * number, *(below(end, number) for end in ends), [1.0] * number]
        scales = [special.poch(alpha, k) for k in range(number)]
        return [
            [scale * (b - a) for scale, a, b in zip(scales, before, after, strict=True)]
            for before, after in pairwise(reached)
        ]

    return integrals
