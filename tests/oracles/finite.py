"""Records with finitely many values: enumeration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from tests.oracles.posteriors import GridPosterior, posterior_from_likelihood

Array = NDArray[np.float64]
LogDensity = Callable[[ArrayLike], NDArray[np.float64]]


def count_vectors(n: int, categories: int) -> NDArray[np.int64]:
    """All ways to share n records among the categories, one in a row (stars and bars)."""
    bars = np.array(list(combinations(range(n + categories - 1), categories - 1)), dtype=int)
    edge = np.ones((len(bars), 1), dtype=int)
    return np.diff(np.hstack([-edge, bars, edge * (n + categories - 1)]), axis=1) - 1


def _log_orderings(counts: NDArray[np.int64]) -> Array:
    """Log multinomial coefficients: databases that have the same counts."""
    return special.gammaln(counts.sum(axis=1) + 1) - special.gammaln(counts + 1).sum(axis=1)


def _log_release(
    counts: NDArray[np.int64], contributions: ArrayLike, released: ArrayLike, noise: LogDensity
) -> Array:
    """Log density of the release for each count vector; one row of contributions a category."""
    per_value = np.asarray(contributions, float).reshape(counts.shape[1], -1)
    return noise(np.atleast_1d(np.asarray(released, float)) - counts @ per_value).sum(axis=1)


def enumerate_likelihood[Value, Theta](
    support: Sequence[Value],
    record_pmf: Callable[[Theta], Array],
    n: int,
    statistic: Callable[[Value], ArrayLike],
    released: ArrayLike,
    noise: LogDensity,
    thetas: Sequence[Theta] | Array,
) -> Array:
    """Log density of the release at each theta, summed over all multisets of n records."""
    counts = count_vectors(n, len(support))
    contributions = np.array([np.atleast_1d(statistic(value)) for value in support])
    fixed = _log_orderings(counts) + _log_release(counts, contributions, released, noise)
    pmf = np.array([record_pmf(theta) for theta in thetas])
    return special.logsumexp(fixed + special.xlogy(counts, pmf[:, None, :]).sum(axis=2), axis=1)


def enumerate_posterior[Value](
    support: Sequence[Value],
    record_pmf: Callable[[float], Array],
    n: int,
    statistic: Callable[[Value], ArrayLike],
    released: ArrayLike,
    noise: LogDensity,
    theta_grid: Array,
    log_prior: Array,
) -> GridPosterior:
    """Posterior of a scalar theta by `enumerate_likelihood`."""
    log_likelihood = enumerate_likelihood(
        support, record_pmf, n, statistic, released, noise, theta_grid
    )
    return posterior_from_likelihood(theta_grid, log_prior, log_likelihood)


@dataclass(frozen=True)
class DirichletMixture:
    """Posterior of one probability vector: Dirichlet(alphas[i]) with probability weights[i]."""

    weights: Array
    alphas: Array

    def mean(self) -> Array:
        return self.weights @ (self.alphas / self.alphas.sum(axis=1, keepdims=True))

    def sd(self) -> Array:
        total = self.alphas.sum(axis=1, keepdims=True)
        square = self.alphas * (self.alphas + 1) / (total * (total + 1))
        return np.sqrt(self.weights @ square - self.mean() ** 2)

    def cdf(self, category: int, x: ArrayLike) -> Array:
        """Marginal cumulative distribution of one probability: a mixture of betas."""
        a = self.alphas[:, category]
        b = self.alphas.sum(axis=1) - a
        return special.betainc(a, b, np.asarray(x, float)[..., None]) @ self.weights


def conjugate_posterior(
    n: int,
    contributions: ArrayLike,
    released: ArrayLike,
    noise: LogDensity,
    blocks: Sequence[tuple[ArrayLike, ArrayLike]],
) -> list[DirichletMixture]:
    """Exact posterior of Dirichlet probability vectors given a noisy sum over n records.

    Parameters
    ----------
    n : int
        Number of records; all count vectors over the records' possible values are visited.
    contributions : array of shape (values, components)
        What a record adds to the statistic.
    released, noise : array, log density
        The release and its noise.
    blocks : sequence of (alpha, membership)
        A Dirichlet prior and the 0/1 matrix (values, len(alpha)) that says which of its
        probabilities a record value uses; a row of zeros uses none. A value's probability is
        the product over blocks, so class and features given class are one block each.
    """
    counts = count_vectors(n, len(np.asarray(contributions)))
    log_weight = _log_orderings(counts) + _log_release(counts, contributions, released, noise)
    updated = []
    for alpha, membership in blocks:
        prior = np.asarray(alpha, float)
        after = prior + counts @ np.asarray(membership, float)
        log_weight = log_weight + _log_dirichlet_norm(after) - _log_dirichlet_norm(prior)
        updated.append(after)
    weights = special.softmax(log_weight)
    return [DirichletMixture(weights, after) for after in updated]


def _log_dirichlet_norm(alpha: Array) -> Array:
    return special.gammaln(alpha).sum(axis=-1) - special.gammaln(alpha.sum(axis=-1))
