"""Posteriors of a one-covariate regression from noisy statistics, by quadrature on a grid.

No intercept; the statistics of n records have the normal law of the central limit theorem, from
moments m2 and m4 of x, written out for one covariate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

Array = NDArray[np.float64]


@dataclass(frozen=True)
class GridPosterior:
    """Posterior of (slope, sigma2) on a grid."""

    slope: Array
    sigma2: Array
    weights: Array

    def cdf(self, name: str, x: ArrayLike) -> Array:
        """Marginal cumulative distribution, linear between the middles of grid cells."""
        points = getattr(self, name)
        mass = self.weights.sum(axis=1 if name == "slope" else 0)
        edges = np.concatenate([[points[0]], (points[1:] + points[:-1]) / 2, [points[-1]]])
        return np.interp(x, edges, np.concatenate([[0], np.cumsum(mass)]))


def statistics_law(
    slope: Array, sigma2: Array, n: int, m2: float, m4: float
) -> tuple[Array, Array]:
    """Mean and covariance of the sums of (x^2, xy, y^2), for arrays of parameters."""
    b, v = np.broadcast_arrays(slope, sigma2)
    q = m4 - m2**2
    mean = np.stack([np.full(b.shape, m2), b * m2, b**2 * m2 + v], axis=-1)
    cov = np.empty((*b.shape, 3, 3))
    cov[..., 0, 0] = q
    cov[..., 0, 1] = b * q
    cov[..., 0, 2] = b**2 * q
    cov[..., 1, 1] = b**2 * q + v * m2
    cov[..., 1, 2] = b**3 * q + 2 * b * v * m2
    cov[..., 2, 2] = b**4 * q + 4 * b**2 * v * m2 + 2 * v**2
    for i, j in ((1, 0), (2, 0), (2, 1)):
        cov[..., i, j] = cov[..., j, i]
    return n * mean, n * cov


def _grid(log_density: Array, slope: Array, sigma2: Array) -> GridPosterior:
    weights = np.exp(log_density - log_density.max())
    return GridPosterior(slope, sigma2, weights / weights.sum())


def _prior(slope: Array, sigma2: Array, slope_sd: float, shape: float, rate: float) -> Array:
    return stats.norm.logpdf(slope, 0, slope_sd * np.sqrt(sigma2)) + stats.invgamma.logpdf(
        sigma2, shape, scale=rate
    )


def gaussian_release_posterior(
    released: ArrayLike,
    sigma: ArrayLike,
    n: int,
    m2: float,
    m4: float,
    prior: tuple[float, float, float],
    slope: Array,
    sigma2: Array,
) -> GridPosterior:
    """All three statistics with Gaussian noise; prior is (sd factor of the slope, shape, rate)."""
    b, v = np.meshgrid(slope, sigma2, indexing="ij")
    mean, cov = statistics_law(b, v, n, m2, m4)
    cov = cov + np.diag(np.broadcast_to(sigma, 3) ** 2)
    gap = np.asarray(released) - mean
    quadratic = np.einsum("...i,...i", gap, np.linalg.solve(cov, gap[..., None])[..., 0])
    log_density = -0.5 * (quadratic + np.linalg.slogdet(cov)[1]) + _prior(b, v, *prior)
    return _grid(log_density, slope, sigma2)


def laplace_release_posterior(
    released: ArrayLike,
    scale: float,
    weights: ArrayLike,
    n: int,
    m2: float,
    m4: float,
    prior: tuple[float, float, float],
    slope: Array,
    sigma2: Array,
) -> GridPosterior:
    """One linear combination of the statistics with Laplace noise: normal plus Laplace."""
    b, v = np.meshgrid(slope, sigma2, indexing="ij")
    mean, cov = statistics_law(b, v, n, m2, m4)
    w = np.asarray(weights, float)
    sd = np.sqrt(np.einsum("i,...ij,j", w, cov, w))
    gap = float(np.asarray(released)) - mean @ w
    up = special.log_ndtr(gap / sd - sd / scale) - gap / scale
    down = special.log_ndtr(-gap / sd - sd / scale) + gap / scale
    log_likelihood = np.logaddexp(up, down) + 0.5 * (sd / scale) ** 2
    return _grid(log_likelihood + _prior(b, v, *prior), slope, sigma2)


def normal_features_law(
    slopes: Array, level: Array, sigma2: Array, n: int, mean: ArrayLike, cov: ArrayLike
) -> tuple[Array, Array]:
    """Mean and covariance of the statistics of (x, 1) and y for normal x, an intercept included.

    `level` is the mean of y. Sums of the upper triangle of (x, 1)(x, 1)' but for n, of (x, 1) y and
    of y^2; every covariance by Isserlis' formula, one at a time.
    """
    mean, cov = np.asarray(mean, float), np.asarray(cov, float)
    d = len(mean)
    shape = np.shape(level)
    u = np.empty((*shape, d + 2))
    u[..., :d], u[..., d], u[..., d + 1] = mean, 1.0, level
    C = np.zeros((*shape, d + 2, d + 2))
    C[..., :d, :d] = cov
    C[..., :d, d + 1] = C[..., d + 1, :d] = slopes @ cov
    C[..., d + 1, d + 1] = np.einsum("...i,ij,...j", slopes, cov, slopes) + sigma2
    pairs = [(i, j) for i in range(d + 1) for j in range(i, d + 1)][:-1]
    pairs += [(i, d + 1) for i in range(d + 2)]
    size = len(pairs)
    of_sums, between = np.empty((*shape, size)), np.empty((*shape, size, size))
    for a, (i, j) in enumerate(pairs):
        of_sums[..., a] = C[..., i, j] + u[..., i] * u[..., j]
        for b, (k, m) in enumerate(pairs):
            total = C[..., i, k] * C[..., j, m] + C[..., i, m] * C[..., j, k]
            for one, other in (
                ((i, k), (j, m)),
                ((j, m), (i, k)),
                ((i, m), (j, k)),
                ((j, k), (i, m)),
            ):
                total = total + u[..., one[0]] * u[..., one[1]] * C[..., other[0], other[1]]
            between[..., a, b] = total
    return n * of_sums, n * between


def normal_log_density(value: ArrayLike, mean: Array, cov: Array) -> Array:
    """Log-density of a normal vector, for arrays of means and covariances."""
    gap = np.asarray(value) - mean
    quadratic = np.einsum("...i,...i", gap, np.linalg.solve(cov, gap[..., None])[..., 0])
    return -0.5 * (quadratic + np.linalg.slogdet(cov)[1])


def marginal_cdf(log_density: Array, points: Array, axis: int) -> Callable[[ArrayLike], Array]:
    """Cumulative distribution along one axis of a grid, linear between the middles of its cells."""
    weights = np.exp(log_density - log_density.max())
    others = tuple(k for k in range(log_density.ndim) if k != axis)
    mass = np.cumsum(weights.sum(axis=others))
    edges = np.concatenate([[points[0]], (points[1:] + points[:-1]) / 2, [points[-1]]])
    return lambda x: np.interp(x, edges, np.concatenate([[0], mass / mass[-1]]))
