"""Linear and Gaussian problems: closed form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

Array = NDArray[np.float64]


@dataclass(frozen=True)
class NormalPosterior:
    """A multivariate normal posterior."""

    mean: Array
    cov: Array

    def sd(self) -> Array:
        return np.sqrt(np.diag(self.cov))

    def cdf(self, component: int, x: ArrayLike) -> Array:
        """Marginal cumulative distribution of one component."""
        return stats.norm.cdf(x, self.mean[component], self.sd()[component])


def condition_normal(
    mean: ArrayLike, cov: ArrayLike, design: ArrayLike, released: ArrayLike, noise_cov: ArrayLike
) -> NormalPosterior:
    """Law of z ~ N(mean, cov) given design @ z + N(0, noise_cov) = released."""
    mean, cov, design = np.asarray(mean, float), np.asarray(cov, float), np.atleast_2d(design)
    marginal = design @ cov @ design.T + noise_cov
    gain = np.linalg.solve(marginal, design @ cov).T
    after = cov - gain @ design @ cov
    return NormalPosterior(mean + gain @ (released - design @ mean), (after + after.T) / 2)


def normal_sums_posterior(
    released: ArrayLike,
    weights: ArrayLike,
    record_sd: float,
    prior_mean: float,
    prior_sd: float,
    sigma: ArrayLike,
) -> NormalPosterior:
    """Posterior of the mean of normal records given noisy weighted sums of them.

    One row of weights, of length n, for each sum; Gaussian noise with sd `sigma`, no clamp.
    """
    rows = np.atleast_2d(np.asarray(weights, float))
    spread = record_sd**2 * rows @ rows.T + np.diag(np.broadcast_to(sigma, len(rows)) ** 2)
    design = rows.sum(axis=1, keepdims=True)
    return condition_normal([prior_mean], [[prior_sd**2]], design, np.atleast_1d(released), spread)


def group_means_posterior(
    released: ArrayLike,
    sizes: ArrayLike,
    record_sd: float,
    group_sd: float,
    prior_mean: float,
    prior_sd: float,
    sigma: ArrayLike,
) -> NormalPosterior:
    """Posterior of (overall mean, group means) given one noisy sum for each group.

    Overall mean ~ N(prior_mean, prior_sd^2), group means ~ N(overall, group_sd^2), records ~
    N(group mean, record_sd^2), sums over a group's records released with Gaussian noise.
    """
    sizes = np.asarray(sizes, float)
    groups = len(sizes)
    loads = np.hstack([np.ones((groups + 1, 1)), np.vstack([np.zeros(groups), np.eye(groups)])])
    cov = loads @ np.diag([prior_sd**2] + [group_sd**2] * groups) @ loads.T
    design = np.hstack([np.zeros((groups, 1)), np.diag(sizes)])
    spread = np.diag(sizes * record_sd**2 + np.broadcast_to(sigma, groups) ** 2)
    return condition_normal(
        np.full(groups + 1, prior_mean), cov, design, np.asarray(released, float), spread
    )
