"""A joint random walk of parameters along which records move: a part of a round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pymc_dp.kernels.arrays import Part, inner, inner_cached
from pymc_dp.kernels.cholesky import cholesky

__all__ = ["make_walk"]

#: rounds of tuning between new shapes of the proposal
RESHAPE_EVERY = 50


@inner_cached
def _learn(theta, which, accept, arrays):  # type: ignore[no-untyped-def]
    """Robbins-Monro on the scale, running moments for the covariance (Haario et al. 2001)."""
    size, count = which.size, arrays.learned[0]
    target = 0.44 if size == 1 else 0.3
    arrays.log_scale[0] += (accept - target) / count**0.6
    weight = 2 / (count + 2)  # the later half counts most
    for i in range(size):
        for j in range(size):
            step = (theta[which[i]] - arrays.mean[i]) * (theta[which[j]] - arrays.mean[j])
            arrays.cov[i, j] = (1 - weight) * (arrays.cov[i, j] + weight * step)
    for i in range(size):
        arrays.mean[i] += weight * (theta[which[i]] - arrays.mean[i])


@inner_cached
def _reshape(arrays):  # type: ignore[no-untyped-def]
    """Give the proposal the shape learned so far; its size stays as it was learned."""
    size = arrays.mean.size
    spread = 0.0
    for i in range(size):
        spread += arrays.cov[i, i] / size
    regular = arrays.cov.copy()
    for i in range(size):
        regular[i, i] += 1e-6 * spread + 1e-300
    before = after = 0.0
    for i in range(size):
        before += np.log(arrays.factor[i, i])
    if cholesky(regular):
        for i in range(size):
            after += np.log(regular[i, i])
            for j in range(size):
                arrays.factor[i, j] = regular[i, j]
        arrays.log_scale[0] += (before - after) / size


def make_walk(
    moved: Callable[..., Any], which: NDArray[np.int64], times: int, randomised: bool
) -> Part:
    """Compile Metropolis moves of parameters that take the records along.

    The proposal is symmetric, with the tails of a t distribution with two degrees of freedom:
    posteriors from clamped records have long tails, for beyond the clamp the release says little.

    Parameters
    ----------
    moved : callable
        ``moved(proposal, theta, given, table, uniform)`` gives the log-density at the proposal,
        with the records moved along, and the moved records; `uniform` are numbers for residuals of
        counts, one for every entry of the table.
    which : ndarray
        Positions in `theta` of the parameters that move.
    times : int
        Moves a round.
    randomised : bool
        Whether records move that need such numbers.
    """
    size = which.size

    @inner
    def walk(rng, arrays, tune):  # type: ignore[no-untyped-def]
        theta, given, table = arrays.theta, arrays.given, arrays.table
        uniform = np.full(table.shape, 0.5) if randomised else table
        current = moved(theta, theta, given, table, uniform)[0].item()
        proposal = theta.copy()
        normal = np.empty(size)
        for _ in range(times):
            length = np.exp(arrays.log_scale[0]) / np.sqrt(rng.standard_exponential())
            for i in range(size):
                normal[i] = rng.standard_normal()
            for i in range(size):
                step = 0.0
                for j in range(i + 1):
                    step += arrays.factor[i, j] * normal[j]
                proposal[which[i]] = theta[which[i]] + length * step
            if randomised:
                for j in range(table.shape[0]):
                    for i in range(table.shape[1]):
                        uniform[j, i] = rng.random()
            density, records = moved(proposal, theta, given, table, uniform)
            log_ratio = density.item() - current
            accept = np.exp(min(0.0, log_ratio)) if np.isfinite(log_ratio) else 0.0
            if rng.random() < accept:
                for i in range(size):
                    theta[which[i]] = proposal[which[i]]
                for j in range(table.shape[0]):
                    for i in range(table.shape[1]):
                        table[j, i] = records[j, i]
                current = density.item()
            arrays.report[2] += accept / times
            if tune:
                _learn(theta, which, accept, arrays)
        if tune and arrays.learned[0] % RESHAPE_EVERY == 0:
            _reshape(arrays)

    return walk
