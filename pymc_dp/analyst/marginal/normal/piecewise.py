r"""Moments of piecewise polynomials of one normal or gamma record, in closed form.

Clamped values, their squares, indicators, absolute values: what one record adds to a sum is most
often a polynomial between kinks. With :math:`x = \mu + \sigma z`, each piece is a polynomial in z,
and what is left are integrals of powers of z between kinks (:mod:`.partial_moments`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray

from pymc_dp.analyst.marginal.normal.kinks import on_numbers
from pymc_dp.analyst.marginal.normal.partial_moments import PartialMoments
from pymc_dp.types import Array, Matrix, Variable

__all__ = ["PiecewisePolynomials", "piecewise_polynomials"]

_DEGREE = 4


@dataclass(frozen=True)
class PiecewisePolynomials:
    """Functions of one number that are polynomials between kinks.

    Attributes
    ----------
    kinks : array, shape (rows, kinks)
        For every row the places between the pieces.
    centres : array, shape (rows, pieces)
        About which the polynomials are written.
    coefficients : array, shape (rows, pieces, degree + 1, functions)
        Of powers of the distance from the centre.
    """

    kinks: Matrix
    centres: Matrix
    coefficients: Array

    def moments(
        self, mu: Any, sigma: Variable, partial: PartialMoments
    ) -> tuple[list[Variable], list[list[Variable]]]:
        """Means, and covariances (lower triangle), if the number is mu + sigma z.

        Parameters
        ----------
        mu, sigma : scalar or vector
            Place and scale of the number, for all rows or one for each.
        partial : callable
            Integrals of powers of z between ends, see :mod:`.partial_moments`.
        """
        pieces = [self._in_z(j, mu, sigma) for j in range(self.centres.shape[1])]
        longest = 2 * max((len(p) for piece in pieces for p in piece), default=1) - 1
        ends = [
            (_constant(np.clip(kinks, -1e300, 1e300)) - mu) / sigma  # powers must stay finite
            for kinks in self.kinks.T
        ]
        integrals = partial(ends, longest)
        functions = range(self.coefficients.shape[3])
        means = [
            _sum(_dot(piece[f], integrals[j]) for j, piece in enumerate(pieces)) for f in functions
        ]
        centred = [[_minus(piece[f], means[f]) for f in functions] for piece in pieces]
        covariances = [
            [
                _sum(
                    _dot(_product(piece[f], piece[g]), integrals[j])
                    for j, piece in enumerate(centred)
                )
                for g in range(f + 1)
            ]
            for f in functions
        ]
        return means, covariances

    def _in_z(self, j: int, mu: Variable, sigma: Variable) -> list[list[Any]]:
        """Coefficients of one piece, a list for each function, of powers of (x - mu) / sigma."""
        shift = mu - _constant(self.centres[:, j])
        return [
            _trimmed(
                [
                    _sum(
                        _times(_constant(c[:, k]) * float(comb(k, i)), shift, k - i)
                        for k in range(i, c.shape[1])
                        if np.any(c[:, k])
                    )
                    for i in range(c.shape[1])
                ],
                sigma,
            )
            for c in np.moveaxis(self.coefficients[:, j], 2, 0)
        ]


def piecewise_polynomials(
    contributions: Sequence[Variable], record: Variable, kinks: Matrix, index: NDArray[np.int64]
) -> PiecewisePolynomials | None:
    """Write contributions as polynomials between kinks; None where they are something else.

    Kinks at which no polynomial changes are left out of the result.

    Parameters
    ----------
    contributions : sequence of TensorVariable, of shape (n, ...)
        They use this record variable and public values alone.
    record : TensorVariable
        The record variable.
    kinks : array, shape (rows, kinks)
        As :func:`~pymc_dp.analyst.marginal.kinks.kinks_of` finds them.
    index : array of int, shape (rows,)
        Records to which the rows belong.
    """
    reach = _reach(kinks)
    found = _fitted(contributions, record, kinks, index, reach)
    for j in reversed(range(kinks.shape[1])):
        if found is None:
            return None
        fewer = _fitted(contributions, record, np.delete(found.kinks, j, axis=1), index, reach)
        found = fewer or found
    return found


def _fitted(
    contributions: Sequence[Variable],
    record: Variable,
    kinks: Matrix,
    index: NDArray[np.int64],
    reach: tuple[Matrix, Matrix],
) -> PiecewisePolynomials | None:
    inside = np.where(np.isfinite(kinks), kinks, reach[1])
    start = np.concatenate([reach[0], inside], axis=1)
    width = np.concatenate([inside, reach[1]], axis=1) - start
    width = np.where(width > 0, width, 1.0)  # pieces that this row does not have
    fit, check = np.cos(np.pi * (np.arange(5) + 0.5) / 5), np.linspace(-0.93, 0.97, 12)
    points = np.concatenate([fit, check])
    centres = start + 0.5 * width
    x = centres[..., None] + 0.5 * width[..., None] * points
    table = np.repeat(index, x[0].size)
    with np.errstate(all="ignore"):
        found = on_numbers([(c, 0) for c in contributions], record, table)(x.ravel())
    y = np.concatenate([f.reshape(*x.shape, -1).astype(np.float64) for f in found], axis=-1)
    if not np.all(np.isfinite(y)):
        return None
    vandermonde = np.vander(points, _DEGREE + 1, increasing=True)
    scaled = np.einsum("kp,rjpf->rjkf", np.linalg.inv(vandermonde[:5]), y[:, :, :5])
    size = np.abs(y).max(axis=2, keepdims=True)
    scaled = np.where(np.abs(scaled) > 1e-13 * size, scaled, 0.0)
    fitted = np.einsum("pk,rjkf->rjpf", vandermonde, scaled)
    if np.any(np.abs(fitted - y) > 1e-10 * size):
        return None
    powers = (0.5 * width[..., None, None]) ** np.arange(_DEGREE + 1)[:, None]
    return PiecewisePolynomials(kinks, centres, scaled / powers)


def _reach(kinks: Matrix) -> tuple[Matrix, Matrix]:
    """Find ends, beyond all kinks, of the part on which polynomials are read off."""
    finite = np.where(np.isfinite(kinks), kinks, kinks[:, :1])
    finite = np.where(np.isfinite(finite), finite, 0.0)
    low = finite.min(axis=1, keepdims=True, initial=np.inf if kinks.shape[1] else 0.0)
    high = finite.max(axis=1, keepdims=True, initial=-np.inf if kinks.shape[1] else 0.0)
    return low - np.maximum(1.0, np.abs(low)), high + np.maximum(1.0, np.abs(high))


def _constant(values: Array) -> Any:
    """One number where all rows have the same."""
    return float(values[0]) if np.all(values == values[0]) else pt.constant(values)


def _times(coefficient: Any, base: Any, power: int) -> Any:
    return coefficient if power == 0 else coefficient * (base if power == 1 else base**power)


def _trimmed(coefficients: Sequence[Any], sigma: Variable) -> list[Any]:
    """Multiply by powers of sigma; leave vanishing high powers out."""
    last = max((k for k, c in enumerate(coefficients) if not _is_zero(c)), default=0)
    return [
        0.0 if _is_zero(c) else _times(c, sigma, k) for k, c in enumerate(coefficients[: last + 1])
    ]


def _is_zero(value: Any) -> bool:
    return isinstance(value, float) and value == 0.0


def _sum(terms: Any) -> Any:
    kept = [term for term in terms if not _is_zero(term)]
    return sum(kept[1:], kept[0]) if kept else 0.0


def _dot(coefficients: Sequence[Any], integrals: Sequence[Any]) -> Any:
    return _sum(
        c * i
        for c, i in zip(coefficients, integrals, strict=False)
        if not _is_zero(c) and not _is_zero(i)
    )


def _minus(coefficients: Sequence[Any], mean: Any) -> list[Any]:
    return [_sum([coefficients[0], -mean]), *coefficients[1:]]


def _product(left: Sequence[Any], right: Sequence[Any]) -> list[Any]:
    return [
        _sum(
            left[i] * right[k - i]
            for i in range(max(0, k - len(right) + 1), min(k, len(left) - 1) + 1)
            if not _is_zero(left[i]) and not _is_zero(right[k - i])
        )
        for k in range(len(left) + len(right) - 1)
    ]
