"""One released sum of integer records."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import fft, special, stats

Array = NDArray[np.float64]
LogDensity = Callable[[ArrayLike], NDArray[np.float64]]


def convolution_power(pmf: Array, n: int) -> Array:
    """Probabilities of the sum of n independent variables on 0, 1, ..., len(pmf) - 1."""
    size = n * (len(pmf) - 1) + 1
    padded = fft.next_fast_len(size, real=True)
    return np.clip(fft.irfft(fft.rfft(pmf, padded) ** n, padded)[:size], 0.0, None)


def clamped_poisson_pmf(rate: float, upper: int) -> Array:
    """Probabilities of min(x, upper) for Poisson x."""
    k = np.arange(upper)
    return np.append(stats.poisson.pmf(k, rate), stats.poisson.sf(upper - 1, rate))


def bernoulli_pmf(probability: float) -> Array:
    """Probabilities of 0 and 1."""
    return np.array([1 - probability, probability])


def lattice_likelihood(
    released: float,
    n: int,
    record_pmf: Callable[[float], Array],
    noise: LogDensity,
    theta: ArrayLike,
) -> Array:
    """Log density of a noisy sum of n records with values 0, 1, 2, ..., at each theta.

    The sum's probabilities are right to about 1e-16 each, so far tails are not to be trusted.
    """
    pmfs = (convolution_power(record_pmf(float(v)), n) for v in np.atleast_1d(theta))
    with np.errstate(divide="ignore"):
        return np.array(
            [special.logsumexp(np.log(p) + noise(released - np.arange(p.size))) for p in pmfs]
        )
