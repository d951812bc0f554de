"""Posteriors on a grid."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.interpolate import CubicSpline

Array = NDArray[np.float64]


@dataclass(frozen=True)
class GridPosterior:
    """A density on a grid, normalised by the trapezoid rule.

    With an even grid that covers the whole posterior the rule's error is far below the others.
    """

    grid: Array
    density: Array

    @classmethod
    def from_log_density(cls, grid: ArrayLike, log_density: ArrayLike) -> GridPosterior:
        """Normalise a log density known up to a constant."""
        points, values = np.asarray(grid, float), np.asarray(log_density, float)
        if not np.isfinite(values.max()):
            raise ValueError("the log density is not finite anywhere on the grid")
        density = np.exp(values - values.max())
        return cls(points, density / np.trapezoid(density, points))

    def expect(self, values: ArrayLike) -> float:
        """Posterior expectation of a function given by its values on the grid."""
        return float(np.trapezoid(np.asarray(values) * self.density, self.grid))

    def mean(self) -> float:
        return self.expect(self.grid)

    def sd(self) -> float:
        return float(np.sqrt(self.expect((self.grid - self.mean()) ** 2)))

    def cdf(self, x: ArrayLike) -> Array:
        """Cumulative distribution at x: integral of the cubic spline through the density."""
        integral = CubicSpline(self.grid, self.density).antiderivative()
        inside = np.clip(np.asarray(x, float), self.grid[0], self.grid[-1])
        return np.clip(integral(inside) / integral(self.grid[-1]), 0.0, 1.0)

    def quantile(self, p: ArrayLike) -> Array:
        """Inverse of `cdf`, by bisection."""
        p = np.asarray(p, float)
        low, high = np.full(p.shape, self.grid[0]), np.full(p.shape, self.grid[-1])
        for _ in range(60):
            middle = (low + high) / 2
            below = self.cdf(middle) < p
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return (low + high) / 2


def posterior_from_likelihood(
    theta_grid: ArrayLike, log_prior: ArrayLike, log_likelihood: ArrayLike
) -> GridPosterior:
    """Posterior on a grid from log prior and log likelihood at its points."""
    return GridPosterior.from_log_density(
        theta_grid, np.asarray(log_prior, float) + np.asarray(log_likelihood, float)
    )


@dataclass(frozen=True)
class PlanePosterior:
    """A density on a rectangular grid; `first` and `second` are its marginals."""

    first: GridPosterior
    second: GridPosterior
    density: Array

    @classmethod
    def from_log_density(
        cls, first: ArrayLike, second: ArrayLike, log_density: ArrayLike
    ) -> PlanePosterior:
        """Normalise a log density of shape (len(first), len(second))."""
        a, b, values = (np.asarray(v, float) for v in (first, second, log_density))
        density = np.exp(values - values.max())
        density = density / np.trapezoid(np.trapezoid(density, b, axis=1), a)
        over_first = GridPosterior(a, np.trapezoid(density, b, axis=1))
        return cls(over_first, GridPosterior(b, np.trapezoid(density, a, axis=0)), density)
