r"""How much one record can move the sufficient statistics of a regression.

Every statistic is a sum of products :math:`u_i u_j` (:class:`StatisticsLayout`). For two records u
and v, :math:`u_i u_j - v_i v_j = a_i b_j + b_i a_j` with :math:`a = (u + v)/\sqrt 2` and
:math:`b = (u - v)/\sqrt 2`, hence at most :math:`|a_i||b_j| + |b_i||a_j|` in absolute value. Where
the signs of the coordinates are chosen so that every upper bound is the one farther from zero,
all these bounds are attained at once with u at the upper bounds and v somewhere in the box.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from pymc_dp.accounting.budget import record_weight
from pymc_dp.graph.sensitivity import Sensitivity
from pymc_dp.holder.regression_statistics import PARTS, StatisticsLayout
from pymc_dp.mechanisms.base import positive
from pymc_dp.types import Array, Neighbours

__all__ = ["averaged_sensitivity", "box_sensitivity", "norm_sensitivity"]


def box_sensitivity(
    x_bounds: tuple[ArrayLike, ArrayLike],
    y_bounds: tuple[float, float] = (0.0, 0.0),
    *,
    n_covariates: int | None = None,
    intercept: bool = True,
    neighbours: Neighbours = "substitute",
    parts: Sequence[str] = PARTS,
) -> Sensitivity:
    """Sensitivity of the unique regression statistics of values in a box.

    The l1 sensitivity is exact for every box, in both senses of neighbours. The l2 sensitivity is
    exact for adding or removing a record and where no range has zero inside; otherwise it is an
    upper bound. Section 3.1 of Bernstein & Sheldon (2019) has widths of the ranges instead: not
    private for values away from zero, and too large around it.

    Parameters
    ----------
    x_bounds : (lower, upper)
        Bounds of the covariates, numbers or one for each covariate.
    y_bounds : (lower, upper)
        Bounds of the response.
    n_covariates : int, optional
        Number of covariates where `x_bounds` are numbers; 1 by default.
    intercept : bool
        Whether the regression has one.
    neighbours : {"substitute", "add_remove"}
        Tables that differ in one record's values, or of which one has a record more. In the second
        sense the number of records is confidential too, and is not among these statistics.
    parts : sequence of str
        See :class:`StatisticsLayout`.

    Returns
    -------
    Sensitivity
        With ``l1``, ``l2``, and the greatest change of each statistic in ``components``.

    Examples
    --------
    >>> from pymc_dp.regression import box_sensitivity
    >>> round(box_sensitivity((-1, 1), (-1, 1)).l1, 4)
    5.3333
    >>> box_sensitivity((0, 1), (0, 1)).l1
    5.0
    """
    weight = record_weight(neighbours)
    lower, upper = _box(x_bounds, n_covariates)
    layout = StatisticsLayout(len(lower), intercept, tuple(parts))
    y_low, y_high = (float(bound) for bound in y_bounds)
    if "xy" in layout.parts and not y_low < y_high:
        raise ValueError(f"y_bounds must be (lower, upper) with lower < upper, got {y_bounds!r}.")
    one = np.ones(int(intercept))
    low = np.concatenate([lower, one, [y_low]])
    high = np.concatenate([upper, one, [y_high]])
    flip = -low > high
    low, high = np.where(flip, -high, low), np.where(flip, -low, high)
    i, j = layout.pairs.T
    largest = high[i] * high[j]
    if weight == 1:
        return Sensitivity(
            float(largest.sum()), float(np.linalg.norm(largest)), True, largest, True
        )
    ranges = largest - _smallest_products(low, high, layout.pairs)
    l1 = float(largest.sum()) - _smallest_total(low, high, layout)
    one_sided = bool(np.all(low >= 0))
    l2 = float(np.linalg.norm(ranges))
    if not one_sided:
        # unique entries count a diagonal once and a pair once: half the squared Frobenius norm of
        # uu' - vv', at most 2 |u|^4, and half the diagonal's squares
        diagonal = ranges[i == j]
        l2 = min(l2, float(np.sqrt(high.dot(high) ** 2 + diagonal.dot(diagonal) / 2)))
    return Sensitivity(l1, l2, one_sided, ranges, True)


def norm_sensitivity(
    x_norm: float,
    y_bound: float = 0.0,
    *,
    n_covariates: int,
    intercept: bool = False,
    neighbours: Neighbours = "substitute",
    parts: Sequence[str] = PARTS,
) -> Sensitivity:
    """Sensitivity of the unique regression statistics where norm(x) <= X and abs(y) <= Y.

    Exact for adding or removing a record. For substitution the l2 sensitivity of X'X and X'y,
    or of X'X alone, is exact with two covariates or more and no intercept:
    sqrt(2 (X^4 + X^2 Y^2) + Y^4 / 2) where Y^2 <= 2 X^2, else 2 X Y. The value
    sqrt(X^4 + X^2 Y^2) of Alparslan, Yildirim & Birbil (2023, section 3) is that of adding or
    removing a record. Otherwise upper bounds.

    Parameters
    ----------
    x_norm : float
        Bound of the Euclidean norm of the covariates, the intercept not counted.
    y_bound : float
        Bound of the response's absolute value.
    n_covariates : int
        Number of covariates.
    intercept, neighbours, parts
        As for :func:`box_sensitivity`.

    Returns
    -------
    Sensitivity
        ``exact`` tells whether the l2 sensitivity is.

    Examples
    --------
    >>> from pymc_dp.regression import norm_sensitivity
    >>> round(norm_sensitivity(1, 1, n_covariates=2, parts=("xx", "xy")).l2, 4)
    2.1213
    """
    weight = record_weight(neighbours)
    layout = StatisticsLayout(n_covariates, intercept, tuple(parts))
    x = float(positive("x_norm", x_norm))
    y = float(positive("y_bound", y_bound)) if "xy" in layout.parts else 0.0
    d, one = layout.n_covariates, float(intercept)
    yy = y**2 if "yy" in layout.parts else 0.0
    # x along (1, ..., 1) for l1, along an axis for l2: every part is at its largest at once
    l1 = (d + 1) / 2 * x**2 + np.sqrt(d) * x * (y + one) + y * one + yy
    l2 = np.sqrt(x**4 + x**2 * (y**2 + one) + y**2 * one + yy**2)
    bound = np.concatenate([np.full(d, x), np.ones(int(intercept)), [y]])
    i, j = layout.pairs.T
    components = bound[i] * bound[j]
    both_covariates = (i < d) & (j < d) & (i != j)
    components[both_covariates] = x**2 / 2
    if weight == 1:
        return Sensitivity(float(l1), float(l2), True, components, True)
    components = np.where(i == j, components, 2 * components)
    if d == 1:
        box = box_sensitivity(
            (-x, x), (-y, y) if y else (0, 0), intercept=intercept, parts=layout.parts
        )
        return box
    cross = 2 * (x**4 + x**2 * y**2) + y**4 / 2 if y**2 <= 2 * x**2 else 4 * x**2 * y**2
    l2 = np.sqrt(cross + yy**2 + one * 4 * (x**2 + y**2))
    exact = not intercept and not yy
    return Sensitivity(float(2 * l1), float(l2), exact, components, True)


def _box(bounds: tuple[ArrayLike, ArrayLike], n_covariates: int | None) -> tuple[Array, Array]:
    if len(bounds) != 2:
        raise ValueError(f"x_bounds must be (lower, upper), got {bounds!r}.")
    lower, upper = np.broadcast_arrays(*(np.asarray(b, dtype=np.float64) for b in bounds))
    if lower.ndim == 0:
        lower, upper = (np.full(n_covariates or 1, bound) for bound in (lower, upper))
    if n_covariates is not None and lower.shape != (n_covariates,):
        raise ValueError(f"x_bounds are for {lower.size} covariates, n_covariates={n_covariates}.")
    if not np.all(np.isfinite(lower) & np.isfinite(upper) & (lower < upper)):
        raise ValueError(
            f"x_bounds must be finite (lower, upper) with lower < upper, got {bounds!r}."
        )
    return lower, upper


def _smallest_products(low: Array, high: Array, pairs: NDArray[np.int64]) -> Array:
    """Smallest value of each product u_i u_j, where high >= abs(low)."""
    i, j = pairs.T
    corners = np.min([low[i] * low[j], low[i] * high[j], high[i] * low[j]], axis=0)
    squares = np.maximum(low[i], 0) ** 2
    return np.where(i == j, squares, corners)


def _smallest_total(low: Array, high: Array, layout: StatisticsLayout) -> float:
    """Smallest sum of all products over the box.

    In the coordinates that enter squared the sum is c V + (V^2 + sum v_i^2) / 2 with V = sum v_i,
    convex, and at its smallest v_i is -(c + V) moved into its range: one equation for V. A
    response without y'y enters linearly and is at one of its bounds.
    """
    d = layout.n_covariates
    one = float(layout.intercept)
    squared = np.array([*range(d), d + layout.intercept] if "yy" in layout.parts else range(d))
    low_s, high_s = low[squared], high[squared]

    def smallest(c: float, constant: float) -> float:
        def gap(total: float) -> float:
            return total - float(np.clip(-(c + total), low_s, high_s).sum())

        ends = float(low_s.sum()), float(high_s.sum())
        total = ends[0] if gap(ends[0]) >= 0 else scipy.optimize.brentq(gap, *ends, xtol=1e-14)
        v = np.clip(-(c + total), low_s, high_s)
        return float(constant + c * v.sum() + (v.sum() ** 2 + v @ v) / 2)

    if layout.parts != PARTS[:2]:
        return smallest(one, 0.0)
    return min(smallest(one + y, one * y) for y in (float(low[-1]), float(high[-1])))


def averaged_sensitivity(
    x_norm: float,
    y_bound: float,
    average: int,
    *,
    n_covariates: int,
    neighbours: Neighbours = "substitute",
) -> Sensitivity:
    r"""Sensitivity of X'X and X'y where every row is a sum of k records over sqrt(k).

    With s the sum of the k - 1 other records of the group, a record w contributes
    :math:`(s w' + w s' + w w')/k`: (2 - 1/k) times what it would alone when it is removed (its
    place stays empty), and at most :math:`4 (1 - 1/k) \sqrt{X^4 + X^2 Y^2} + \Delta/k` when it is
    replaced, :math:`\Delta` the sensitivity without averaging. Alparslan, Yildirim & Birbil (2023,
    appendix B.1) say that it does not change.

    Parameters
    ----------
    x_norm, y_bound, n_covariates, neighbours
        As for :func:`norm_sensitivity`.
    average : int
        Number k of records in a row.

    Examples
    --------
    >>> from pymc_dp.holder.regression_sensitivity import averaged_sensitivity
    >>> removal = averaged_sensitivity(1, 1, 2, n_covariates=2, neighbours="add_remove")
    >>> round(removal.l2 / 2**0.5, 4)
    1.5
    """
    k = int(average)
    parts = PARTS[:2]
    alone = norm_sensitivity(
        x_norm, y_bound, n_covariates=n_covariates, neighbours="add_remove", parts=parts
    )
    if record_weight(neighbours) == 1:
        factor = 2 - 1 / k
        return Sensitivity(
            factor * alone.l1, factor * alone.l2, True, factor * alone.components, True
        )
    once = norm_sensitivity(x_norm, y_bound, n_covariates=n_covariates, parts=parts)
    l1, l2, components = (
        4 * (1 - 1 / k) * single + replaced / k
        for single, replaced in (
            (alone.l1, once.l1),
            (alone.l2, once.l2),
            (alone.components, once.components),
        )
    )
    return Sensitivity(float(l1), float(l2), k == 1 and once.exact, np.asarray(components), False)
