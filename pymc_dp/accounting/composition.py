"""What a list of noisy looks at the data costs together."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from pymc_dp.accounting.gaussian import _check_delta, gaussian_epsilon, gaussian_mu
from pymc_dp.accounting.renyi import ORDERS, rdp_epsilon, subsampled_gaussian_rdp

Accountant = Literal["rdp", "pld"]


@dataclass(frozen=True)
class GaussianQueries:
    """A number of values released with Gaussian noise, each perhaps from a random batch.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise over the value's sensitivity (given the batch).
    iterations : int
        How many values are released.
    fraction : float
        Size of a batch drawn without replacement over the number of records; 1 is all of them.

    Examples
    --------
    >>> from pymc_dp.accounting import GaussianQueries
    >>> GaussianQueries(noise_multiplier=10.0, iterations=100).mu
    0.5
    """

    noise_multiplier: float
    iterations: int
    fraction: float = 1.0

    @property
    def mu(self) -> float:
        """Their mu, without counting on subsampling."""
        if self.noise_multiplier == 0:
            return math.inf
        return self.iterations / (2 * self.noise_multiplier**2)


def composed_epsilon(
    queries: Sequence[GaussianQueries], delta: float, accountant: Accountant = "rdp"
) -> float:
    """Epsilon of all the queries together, under substitution of a record.

    Parameters
    ----------
    queries : sequence of GaussianQueries
        They may depend on one another's answers.
    delta : float
        Privacy parameter between 0 and 1.
    accountant : {"rdp", "pld"}
        How to count queries on batches: Rényi-DP, or the privacy loss distributions of the optional
        package dp-accounting, which are tight. Queries on all records are counted exactly.

    Examples
    --------
    >>> from pymc_dp.accounting import GaussianQueries, composed_epsilon
    >>> round(composed_epsilon([GaussianQueries(10.0, 100)], 1e-6), 3)
    4.887
    >>> composed_epsilon([GaussianQueries(10.0, 100, fraction=0.01)], 1e-6) < 0.4
    True
    """
    if all(query.fraction == 1 for query in queries):
        return gaussian_epsilon(delta, math.fsum(query.mu for query in queries))
    if accountant == "pld":
        return _pld_epsilon(tuple(queries), _check_delta(delta))
    total = np.zeros(ORDERS.size)
    for query in queries:
        total += query.iterations * subsampled_gaussian_rdp(query.noise_multiplier, query.fraction)
    return rdp_epsilon(ORDERS, total, delta)


@lru_cache(maxsize=64)
def _pld_epsilon(queries: tuple[GaussianQueries, ...], delta: float) -> float:
    try:
        import dp_accounting
        from dp_accounting import pld
    except ImportError as error:
        raise ImportError(
            "Tight accounting of random batches needs dp-accounting: "
            'pip install "pymc_dp[accounting]", or leave accountant="rdp".'
        ) from error
    # discretisation errs on the safe side, by about interval * sqrt(iterations)
    interval = 1e-3 if sum(query.iterations for query in queries) < 10_000 else 1e-4
    accountant = pld.PLDAccountant(
        dp_accounting.NeighboringRelation.REPLACE_ONE, value_discretization_interval=interval
    )
    population = 1_000_000_000
    for query in queries:
        # this relation doubles the sensitivity, which ours already includes
        event = dp_accounting.GaussianDpEvent(2 * query.noise_multiplier)
        if query.fraction < 1:
            event = dp_accounting.TruncatedSubsampledGaussianDpEvent(
                dataset_size=population,
                sampling_probability=1.0,
                truncated_batch_size=math.ceil(query.fraction * population),
                noise_multiplier=2 * query.noise_multiplier,
            )
        accountant.compose(event, query.iterations)
    return float(accountant.get_epsilon(delta))


def batch_noise_multiplier(
    epsilon: float,
    delta: float,
    iterations: int,
    fraction: float,
    accountant: Accountant = "rdp",
) -> float:
    """Smallest noise multiplier whose queries on random batches stay within (epsilon, delta).

    Parameters
    ----------
    epsilon, delta : float
        The guarantee to meet.
    iterations : int
        Number of batches, over all chains.
    fraction : float
        Batch size over number of records.
    accountant : {"rdp", "pld"}
        As in :func:`composed_epsilon`.

    Examples
    --------
    >>> from pymc_dp.accounting import batch_noise_multiplier
    >>> round(batch_noise_multiplier(4.0, 1e-6, 2256, 0.01), 2)
    1.41
    """

    def fits(noise_multiplier: float) -> bool:
        query = GaussianQueries(noise_multiplier, iterations, fraction)
        return composed_epsilon([query], delta, accountant) <= epsilon

    high = math.sqrt(iterations / (2 * gaussian_mu(epsilon, delta)))
    while not fits(high):  # the Rényi route may lose a little against the exact bound
        high *= 1.1
    low = high / 2
    while fits(low) and low > 1e-3:
        low, high = low / 2, low
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high
