"""The unique sufficient statistics of a linear regression: their order, and from data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
import pytensor.tensor as pt
from numpy.typing import ArrayLike, NDArray
from pytensor.graph.basic import Variable

from pymc_dp.types import Array

__all__ = ["PARTS", "StatisticsLayout", "checked_count", "holder_layout", "regression_statistics"]


#: X'X, X'y and y'y; a release holds all three, the first two, or the first
PARTS = ("xx", "xy", "yy")


@dataclass(frozen=True)
class StatisticsLayout:
    r"""Which number of a vector of regression statistics is which.

    With :math:`u = (x_1, \ldots, x_d, 1, y)`, the 1 only where there is an intercept, every
    statistic is a sum over records of a product :math:`u_i u_j`. The order: the upper triangle of
    X'X row by row, then X'y, then y'y. The intercept is the last feature, as in Bernstein & Sheldon
    (2019), and its own entry of X'X, the number of records, is left out. With one covariate and an
    intercept: sums of :math:`x^2, x, xy, y, y^2`.

    Parameters
    ----------
    n_covariates : int
        Number of covariates, the intercept not counted.
    intercept : bool
        Whether a feature that is always 1 is appended to x.
    parts : sequence of str
        ``("xx", "xy", "yy")``, or its beginning where X'y or y'y is not part of the vector.

    Examples
    --------
    >>> from pymc_dp.regression import StatisticsLayout
    >>> StatisticsLayout(1).names
    ['x0*x0', 'x0', 'x0*y', 'y', 'y*y']
    >>> StatisticsLayout(2, intercept=False).size
    6
    """

    n_covariates: int
    intercept: bool = True
    parts: tuple[str, ...] = PARTS

    def __post_init__(self) -> None:
        if int(self.n_covariates) != self.n_covariates or self.n_covariates < 1:
            raise ValueError(f"n_covariates must be 1 or more, got {self.n_covariates!r}.")
        object.__setattr__(self, "n_covariates", int(self.n_covariates))
        object.__setattr__(self, "parts", tuple(self.parts))
        if not self.parts or self.parts != PARTS[: len(self.parts)]:
            raise ValueError(
                f'parts must be ("xx", "xy", "yy") or its beginning, got {self.parts!r}.'
            )

    @property
    def n_features(self) -> int:
        """Number of coefficients: covariates and intercept."""
        return self.n_covariates + self.intercept

    @cached_property
    def pairs(self) -> NDArray[np.int64]:
        """Positions (i, j) in u of the two factors of every statistic, of shape (size, 2)."""
        p = self.n_features
        rows, columns = np.triu_indices(p)
        known = self.intercept & (rows == p - 1)
        found = [np.stack([rows, columns], axis=1)[~known]]
        if "xy" in self.parts:
            found.append(np.stack([np.arange(p), np.full(p, p)], axis=1))
        if "yy" in self.parts:
            found.append(np.array([[p, p]]))
        return np.concatenate(found)

    @property
    def size(self) -> int:
        """Number of statistics."""
        return len(self.pairs)

    @property
    def n_xx(self) -> int:
        """How many of them, the first ones, are entries of X'X."""
        p = self.n_features
        return p * (p + 1) // 2 - self.intercept

    @property
    def names(self) -> list[str]:
        """Readable names, e.g. for coordinates."""
        factors = [f"x{i}" for i in range(self.n_covariates)] + ["1"] * self.intercept + ["y"]
        return [
            "*".join(factors[k] for k in pair if factors[k] != "1") for pair in self.pairs.tolist()
        ]

    def pack(self, xtx: ArrayLike, xty: ArrayLike = (), yty: ArrayLike = 0.0) -> Array:
        """Put X'X, X'y and y'y, intercept included, in one vector of unique entries.

        Raises
        ------
        ValueError
            Where X'X is not symmetric or a size does not fit.

        Examples
        --------
        >>> from pymc_dp.regression import StatisticsLayout
        >>> StatisticsLayout(1).pack([[5.0, 2.0], [2.0, 10.0]], [3.0, 1.0], 4.0)
        array([5., 2., 3., 1., 4.])
        """
        p = self.n_features
        gram = np.zeros((p + 1, p + 1))
        matrix = np.asarray(xtx, dtype=np.float64)
        if matrix.shape != (p, p):
            raise ValueError(
                f"X'X has shape {matrix.shape}, expected {(p, p)}"
                f"{', the intercept last' if self.intercept else ''}."
            )
        if not np.allclose(matrix, matrix.T, rtol=1e-10, atol=1e-12 * np.abs(matrix).max()):
            raise ValueError(
                "X'X is not symmetric. Release each unique entry once: noise added to both "
                "triangles is two looks at the same number; average them with their noise, or "
                "declare both to Privatized."
            )
        gram[:p, :p] = matrix
        if "xy" in self.parts:
            vector = np.asarray(xty, dtype=np.float64)
            if vector.shape != (p,):
                raise ValueError(f"X'y has shape {vector.shape}, expected {(p,)}.")
            gram[:p, p] = vector
        if "yy" in self.parts:
            if np.size(yty) != 1:
                raise ValueError(f"y'y has shape {np.shape(yty)}, expected one number.")
            gram[p, p] = float(np.reshape(np.asarray(yty, dtype=np.float64), ()))
        return gram[self.pairs[:, 0], self.pairs[:, 1]]

    def gram(self, statistics: ArrayLike, n: float) -> Array:
        """Return the matrix [X, y]'[X, y] of a vector of statistics; absent parts are zero.

        Leading axes of `statistics` are kept.
        """
        values = np.asarray(statistics, dtype=np.float64)
        if values.shape[-1:] != (self.size,):
            raise ValueError(
                f"{self.size} statistics are expected for {self.n_covariates} covariates"
                f"{' and an intercept' if self.intercept else ''}, got {values.shape[-1:]}: "
                f"{', '.join(self.names[:6])}{', ...' if self.size > 6 else ''}."
            )
        p = self.n_features
        gram = np.zeros((*values.shape[:-1], p + 1, p + 1))
        i, j = self.pairs.T
        gram[..., i, j] = values
        gram[..., j, i] = values
        if self.intercept:
            gram[..., p - 1, p - 1] = n
        return gram

    def unpack(self, statistics: ArrayLike, n: float) -> tuple[Array, Array, Array]:
        """Return X'X, X'y and y'y, the count of records in its place.

        Examples
        --------
        >>> from pymc_dp.regression import StatisticsLayout
        >>> xtx, xty, yty = StatisticsLayout(1).unpack([5.0, 2.0, 3.0, 1.0, 4.0], n=10)
        >>> xtx
        array([[ 5.,  2.],
               [ 2., 10.]])
        """
        gram = self.gram(statistics, n)
        p = self.n_features
        return gram[..., :p, :p], gram[..., :p, p], gram[..., p, p]


def checked_count(n: Any) -> float:
    """Return the number of records, a positive whole number."""
    number = np.asarray(n)
    if number.ndim or number.dtype.kind not in "iuf" or not 1 <= number < np.inf or number % 1:
        raise ValueError(
            f"n must be the number of records, a positive whole number, got {n!r}. A noisy count "
            "is not n: give it a latent variable of its own."
        )
    return float(number)


def regression_statistics(
    X: Any,
    y: Any = None,
    *,
    intercept: bool = True,
    parts: Sequence[str] = PARTS,
    x_bounds: tuple[ArrayLike, ArrayLike] | None = None,
    y_bounds: tuple[ArrayLike, ArrayLike] | None = None,
) -> Any:
    """Sum the unique entries of X'X, X'y and y'y over records.

    Of arrays, for a data holder; or of latent record variables of a PyMC model, for
    :func:`~pymc_dp.Privatized` and :class:`~pymc_dp.RecordGibbs` (MCMC-Ind of Bernstein & Sheldon
    2019, section 3.3).

    Parameters
    ----------
    X : array_like or TensorVariable
        Covariates without the intercept, of shape (n, d), or (n,) for one.
    y : array_like or TensorVariable
        Responses, of shape (n,).
    intercept : bool
        Whether the regression has one.
    parts : sequence of str
        See :class:`StatisticsLayout`, which also has the order.
    x_bounds, y_bounds : (lower, upper), optional
        Public bounds to which values are clipped first, a number or one a covariate: without them
        the statistics have no finite sensitivity.

    Returns
    -------
    array or TensorVariable
        Of shape (layout.size,).

    Examples
    --------
    >>> from pymc_dp.regression import regression_statistics
    >>> regression_statistics([[1.0], [2.0]], [3.0, 5.0])
    array([ 5.,  3., 13.,  8., 34.])
    """
    if any(isinstance(value, Variable) for value in (X, y)):
        return _symbolic(X, y, intercept, tuple(parts), x_bounds, y_bounds)
    x = np.asarray(X, dtype=np.float64)
    x = x[:, None] if x.ndim == 1 else x
    layout = StatisticsLayout(x.shape[1], intercept, tuple(parts))
    columns = [_clipped(np, x, x_bounds)]
    if intercept:
        columns.append(np.ones((len(x), 1)))
    if "xy" in layout.parts:
        if y is None:
            raise ValueError("X'y and y'y need y: pass it, or write parts=(\"xx\",).")
        response = np.asarray(y, dtype=np.float64)
        if response.shape != (len(x),):
            raise ValueError(f"X has {len(x)} rows and y has shape {response.shape}.")
        columns.append(_clipped(np, response, y_bounds)[:, None])
    u = np.hstack(columns)
    if not np.all(np.isfinite(u)):
        raise ValueError("X or y has NaN or infinite entries: leave incomplete records out.")
    gram = u.T @ u
    return gram[layout.pairs[:, 0], layout.pairs[:, 1]]


def _symbolic(
    X: Any, y: Any, intercept: bool, parts: tuple[str, ...], x_bounds: Any, y_bounds: Any
) -> Any:
    x = pt.as_tensor(X)
    x = x[:, None] if x.type.ndim == 1 else x
    d = x.type.shape[1]
    if d is None:
        raise ValueError("The number of covariates must be known: give X a shape=(n, d).")
    layout = StatisticsLayout(d, intercept, parts)
    x = _clipped(pt, x, x_bounds)
    p = layout.n_features
    entries: dict[tuple[int, int], int] = {}  # where each pair is in the joined vector
    joined: list[Any] = []

    def join(values: Any, pairs: list[tuple[int, int]]) -> None:
        for position, pair in enumerate(pairs, start=len(entries)):
            entries[pair] = position
        joined.append(values)

    join((x.T @ x).reshape((d * d,)), [(i, j) for i in range(d) for j in range(d)])
    if intercept:
        join(x.sum(axis=0), [(i, d) for i in range(d)])
    if "xy" in parts:
        response = _clipped(pt, pt.as_tensor(y), y_bounds)
        join(x.T @ response, [(i, p) for i in range(d)])
        if intercept:
            join(response.sum()[None], [(d, p)])
        if "yy" in parts:
            join((response**2).sum()[None], [(p, p)])
    order = np.array([entries[cast(tuple[int, int], tuple(pair))] for pair in layout.pairs])
    return pt.concatenate(joined)[order]


def _clipped(library: Any, values: Any, bounds: tuple[ArrayLike, ArrayLike] | None) -> Any:
    if bounds is None:
        return values
    lower, upper = (np.asarray(bound, dtype=np.float64) for bound in bounds)
    if not np.all(lower < upper):
        raise ValueError(f"Bounds must be (lower, upper) with lower < upper, got {bounds!r}.")
    return library.clip(values, lower, upper)


def holder_layout(n_covariates: int, intercept: bool) -> StatisticsLayout:
    """Order of what a holder releases: unique entries of X'X, then X'y."""
    return StatisticsLayout(n_covariates, intercept, ("xx", "xy"))
