"""Log-densities of the noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Laplace:
    """Laplace noise; `scale` may be one per component of the release."""

    scale: float | Array

    def __call__(self, x: ArrayLike) -> Array:
        return -np.abs(x) / self.scale - np.log(2 * np.asarray(self.scale))


@dataclass(frozen=True)
class Gaussian:
    """Gaussian noise with standard deviation `sigma`, which may be one per component."""

    sigma: float | Array

    def __call__(self, x: ArrayLike) -> Array:
        return stats.norm.logpdf(x, scale=self.sigma)


@dataclass(frozen=True)
class DiscreteLaplace:
    """Two-sided geometric noise, P(k) proportional to exp(-|k| / scale)."""

    scale: float | Array

    def __call__(self, k: ArrayLike) -> Array:
        return np.log(np.tanh(0.5 / np.asarray(self.scale))) - np.abs(k) / self.scale


@dataclass(frozen=True)
class DiscreteGaussian:
    """Noise on the integers, P(k) proportional to exp(-k^2 / (2 sigma^2))."""

    sigma: float

    def __call__(self, k: ArrayLike) -> Array:
        reach = np.arange(-int(40 * self.sigma) - 40, int(40 * self.sigma) + 41)
        log_total = special.logsumexp(-0.5 * (reach / self.sigma) ** 2)
        return -0.5 * (np.asarray(k, float) / self.sigma) ** 2 - log_total
