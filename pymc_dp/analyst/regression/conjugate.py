"""Conjugate posteriors of a regression and of normal covariates, given sufficient statistics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import lapack

from pymc_dp.holder.regression_statistics import StatisticsLayout, checked_count
from pymc_dp.numerics.positive import nearest_positive
from pymc_dp.numerics.wishart import bartlett
from pymc_dp.types import Array

__all__ = ["NormalInverseGamma", "NormalInverseWishart", "conjugate_posterior", "nearest_valid"]


@dataclass(frozen=True)
class NormalInverseGamma:
    """sigma2 ~ InverseGamma(shape, rate) and coef given sigma2 ~ N(mean, sigma2 precision^-1).

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_dp.regression import NormalInverseGamma
    >>> prior = NormalInverseGamma(np.zeros(2), np.eye(2), 3, 0.5)
    >>> prior.updated([[5.0, 2.0], [2.0, 10.0]], [3.0, 1.0], 4.0, n=10).shape
    8.0
    """

    mean: Array
    precision: Array
    shape: float
    rate: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", np.asarray(self.mean, dtype=np.float64))
        object.__setattr__(self, "precision", np.asarray(self.precision, dtype=np.float64))
        p = self.mean.size
        if self.mean.shape != (p,) or self.precision.shape != (p, p):
            raise ValueError(
                f"mean has shape {self.mean.shape} and precision {self.precision.shape}: "
                "write (p,) and (p, p)."
            )
        if not (self.shape > 0 and self.rate > 0):
            raise ValueError(f"shape and rate must be positive, got {self.shape}, {self.rate}.")

    def updated(
        self, xtx: ArrayLike, xty: ArrayLike, yty: ArrayLike, n: float
    ) -> NormalInverseGamma:
        """Return the posterior (Bernstein & Sheldon 2019, equation 1).

        Raises
        ------
        LinAlgError
            Where the statistics are so far from those of any data that there is none.
        """
        precision = self.precision + np.asarray(xtx)
        factor = _cholesky(precision)
        weighted = self.precision @ self.mean + np.asarray(xty)
        mean, _ = lapack.dpotrs(factor, weighted, lower=True)
        rate = self.rate + 0.5 * (
            float(np.asarray(yty)) + self.mean @ self.precision @ self.mean - mean @ weighted
        )
        if not rate > 0:
            raise np.linalg.LinAlgError("The residual sum of squares is negative.")
        return NormalInverseGamma(mean, precision, self.shape + n / 2, float(rate))

    def draw(self, rng: np.random.Generator, draws: int | None = None) -> tuple[Any, Any]:
        """Draw coefficients and error variance, once or many times."""
        size = () if draws is None else (draws,)
        sigma2 = self.rate / rng.standard_gamma(self.shape, size=size)
        factor = _cholesky(self.precision)
        normal = rng.standard_normal((*size, self.mean.size))
        spread = lapack.dtrtrs(factor, normal.T, lower=True, trans=1)[0].T
        return self.mean + np.sqrt(sigma2)[..., None] * spread, sigma2


@dataclass(frozen=True)
class NormalInverseWishart:
    """cov ~ InverseWishart(df, scale) and mean given cov ~ N(mean, cov / weight).

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_dp.regression import NormalInverseWishart
    >>> prior = NormalInverseWishart(np.zeros(2), 1, np.eye(2), 4)
    >>> after = prior.updated(9, np.array([9.0, 0.0]), np.array([[12.0, 1.0], [1.0, 8.0]]))
    >>> after.mean, after.df
    (array([0.9, 0. ]), 13)
    """

    mean: Array
    weight: float
    scale: Array
    df: float

    def updated(self, n: float, total: Array, xtx: Array) -> NormalInverseWishart:
        """Return the posterior, from the sum of x and the sum of x x'.

        Raises
        ------
        LinAlgError
            Where these are so far from those of any data that there is none.
        """
        weight = self.weight + n
        mean = (self.weight * self.mean + total) / weight
        scale = (
            self.scale
            + xtx
            + self.weight * np.outer(self.mean, self.mean)
            - weight * np.outer(mean, mean)
        )
        _cholesky(scale)
        return NormalInverseWishart(mean, weight, scale, self.df + n)

    def draw(self, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draw mean and covariance, by Bartlett's decomposition."""
        d = len(self.mean)
        A = bartlett(rng, d, float(self.df))
        half, _ = lapack.dtrtrs(A, _cholesky(self.scale).T, lower=True)
        return self.mean + half.T @ rng.standard_normal(d) / np.sqrt(self.weight), half.T @ half


def _cholesky(matrix: Array) -> Array:
    factor, failed = lapack.dpotrf(matrix, lower=True, clean=True)
    if failed:
        raise np.linalg.LinAlgError("The matrix is not positive definite.")
    return factor


def conjugate_posterior(
    statistics: ArrayLike,
    n: int,
    prior: NormalInverseGamma,
    *,
    intercept: bool = True,
    draws: int = 2000,
    random_seed: int | None = None,
) -> Any:
    """Posterior draws that take regression statistics for exact.

    Of a data holder's own statistics this is the non-private posterior; of released ones it is the
    noise-naive posterior (Bernstein & Sheldon 2019, section 3.2), which is too sure of itself: for
    comparison, not for use. Noisy statistics that no data can have are first moved to the nearest
    valid ones (:func:`nearest_valid`).

    Parameters
    ----------
    statistics : array_like
        In the order of :class:`StatisticsLayout`.
    n : int
        Number of records.
    prior : NormalInverseGamma
        Prior of coefficients and error variance.
    intercept : bool
        Whether the regression has one.
    draws : int
        Independent draws.
    random_seed : int, optional
        For these.

    Returns
    -------
    DataTree
        With ``coef`` and ``sigma2``.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_dp.regression import NormalInverseGamma, conjugate_posterior
    >>> prior = NormalInverseGamma(np.zeros(2), np.eye(2), 3, 0.5)
    >>> naive = conjugate_posterior([13.1, 15.2, 7.2, -5.0, 10.7], 50, prior, draws=10)
    >>> naive.posterior.sizes["draw"]
    10
    """
    layout = StatisticsLayout(prior.mean.size - intercept, intercept)
    n = int(checked_count(n))
    if lapack.dpotrf(prior.precision, lower=True)[1]:
        raise ValueError("The precision of the prior is not positive definite.")
    xtx, xty, yty = layout.unpack(nearest_valid(statistics, n, layout), n)
    coef, sigma2 = prior.updated(xtx, xty, yty, n).draw(np.random.default_rng(random_seed), draws)
    return posterior_tree({"coef": coef[None], "sigma2": sigma2[None]})


def posterior_tree(draws: dict[str, Array]) -> Any:
    """Put draws, of shape (chain, draw, ...), into a tree as ``pm.sample`` returns."""
    from arviz_base import from_dict  # a fifth of the time that importing this package takes

    return from_dict({"posterior": draws})


def nearest_valid(statistics: ArrayLike, n: float, layout: StatisticsLayout) -> Array:
    """Move statistics to where [X, y]'[X, y] is positive semidefinite, if it is not.

    With an intercept the covariances of covariates and response are what must be so, given the
    means and the exact n: their negative eigenvalues become zero.
    """
    gram = layout.gram(statistics, n)
    p = layout.n_features
    keep = [k for k in range(p + 1) if not (layout.intercept and k == p - 1)]
    means = gram[np.ix_(keep, [p - 1])] / n if layout.intercept else np.zeros((p + 1, 1))
    centred = gram[np.ix_(keep, keep)] - n * means @ means.T
    positive, moved = nearest_positive(centred)
    if not moved:
        return np.asarray(statistics, dtype=np.float64)
    gram[np.ix_(keep, keep)] = positive + n * means @ means.T
    return gram[layout.pairs[:, 0], layout.pairs[:, 1]]
