"""What a list of noisy looks at the data costs together."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri_exp

from pymc_dp.accounting.gaussian import _check_delta, _check_epsilon, gaussian_epsilon, gaussian_mu
from pymc_dp.accounting.privacy_loss import Look, composed_loss_epsilon
from pymc_dp.accounting.renyi import (
    ORDERS,
    filter_order,
    poisson_gaussian_rdp,
    rdp_epsilon,
    subsampled_gaussian_rdp,
)
from pymc_dp.types import Neighbours

Accountant = Literal["pld", "rdp"]
Sampling = Literal["fixed", "poisson"]
_LARGEST_SHIFT = 50.0  # more than noise of a fiftieth of the sensitivity could hide


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
        A record's chance to be in the batch; 1 is all of them.
    epsilon : float, optional
        For other noise that protects at least as well as such Gaussian noise, and gives all the
        values together this pure guarantee; see :func:`pure_queries`.
    sampling : {"fixed", "poisson"}
        How batches are drawn: a fixed number of records without replacement, or each record by
        itself.

    Examples
    --------
    >>> from pymc_dp.accounting import GaussianQueries
    >>> GaussianQueries(noise_multiplier=10.0, iterations=100).mu
    0.5
    """

    noise_multiplier: float
    iterations: int
    fraction: float = 1.0
    epsilon: float | None = None
    sampling: Sampling = "fixed"

    def __post_init__(self) -> None:
        if self.sampling not in get_args(Sampling):
            raise ValueError(f"sampling must be one of {get_args(Sampling)}, not {self.sampling!r}")
        if self.epsilon is not None:
            _check_epsilon(self.epsilon)  # a negative one would give something back

    @property
    def mu(self) -> float:
        """Their mu, without counting on subsampling."""
        if self.noise_multiplier == 0:
            return math.inf
        return self.iterations / (2 * self.noise_multiplier**2)


def pure_queries(epsilon: float) -> GaussianQueries:
    r"""Gaussian noise that protects no better than a pure epsilon guarantee, to count it by.

    Parameters
    ----------
    epsilon : float
        Guarantee of one release, without a delta.

    Notes
    -----
    A trade-off curve bounds the errors of guessing from which of two neighbours a release came.
    That of an epsilon-private mechanism lies above the lines from (0, 1) over the point where both
    errors are :math:`1 / (1 + e^\epsilon)` to (1, 0), which randomised response attains (Kairouz,
    Oh & Viswanath 2015; Dong, Roth & Su 2022, section 2). That of Gaussian noise with
    multiplier :math:`1/m`, :math:`\Phi(\Phi^{-1}(1 - \alpha) - m)`, is convex and, with
    :math:`m = 2 \Phi^{-1}(e^\epsilon / (1 + e^\epsilon))`, passes through the same three points,
    so lies below these lines. Such curves compose as Gaussian noise does (the same paper, Theorem
    3.2 and Corollary 3.3). It costs at most :math:`\pi/2` times the :math:`\epsilon^2/2` of zCDP,
    and less for epsilon above 5. That suits many small releases; for a few, their epsilons are
    added up instead (:func:`composed_epsilon`).

    Examples
    --------
    >>> from pymc_dp.accounting import pure_queries
    >>> round(pure_queries(1.0).mu, 3)
    0.759
    """
    epsilon = max(_check_epsilon(epsilon), 1e-9)  # less is not worth an exception
    if epsilon < 1e-4:  # the slope at zero, which is the steepest, where the next line cancels
        m = math.sqrt(math.pi / 2) * epsilon
    else:
        m = -2 * float(ndtri_exp(-np.logaddexp(0.0, epsilon)))
    noise = 1 / (m * (1 + 1e-9))  # which is more than rounding errors
    return GaussianQueries(noise, 1, epsilon=epsilon)


def composed_epsilon(
    queries: Sequence[GaussianQueries],
    delta: float,
    accountant: Accountant = "pld",
    neighbours: Neighbours = "substitute",
) -> float:
    """Epsilon of all the queries together.

    Parameters
    ----------
    queries : sequence of GaussianQueries
        They may depend on one another's answers; which kinds there are must not. A
        :class:`~pymc_dp.PrivacyBudget` refuses, or counts otherwise, what may have been chosen so.
    delta : float
        Privacy parameter between 0 and 1.
    accountant : {"pld", "rdp"}
        How to count queries on batches: by privacy loss distributions
        (:mod:`pymc_dp.accounting.privacy_loss`), which are tight, or by Rényi-DP at the order that
        suits them best. Queries on all records alone are counted exactly.
    neighbours : {"substitute", "add_remove"}
        Whether a record has other values or is missing, which matters to batches.

    Notes
    -----
    Queries with a pure guarantee are counted as Gaussian ones, or their epsilons are added to that
    of all others, whichever gives less: if one part is (a, delta)-private and the other
    (b, 0)-private, both together are (a + b, delta)-private.

    Examples
    --------
    >>> from pymc_dp.accounting import GaussianQueries, composed_epsilon
    >>> round(composed_epsilon([GaussianQueries(10.0, 100)], 1e-6), 3)
    4.887
    >>> composed_epsilon([GaussianQueries(10.0, 100, fraction=0.01)], 1e-6) < 0.1
    True
    """
    rest = [query for query in queries if query.epsilon is None]
    epsilon = _gaussian_composed(queries, delta, accountant, neighbours)
    if len(rest) == len(queries):
        return epsilon
    return min(
        epsilon,
        pure_epsilon(queries) + _gaussian_composed(rest, delta, accountant, neighbours),
    )


def pure_epsilon(queries: Sequence[GaussianQueries]) -> float:
    """Sum of the pure guarantees among the queries, rounded up."""
    total = math.fsum(query.epsilon for query in queries if query.epsilon is not None)
    return math.nextafter(total, math.inf) if total else 0.0


def counted_in_turn(
    queries: Sequence[GaussianQueries], epsilon: float, delta: float
) -> tuple[list[GaussianQueries], list[GaussianQueries]]:
    r"""Tell which pure guarantees are added up, and what else is counted, as Gaussian noise.

    Parameters
    ----------
    queries : sequence of GaussianQueries
        In the order in which they were claimed.
    epsilon, delta : float
        The guarantee that they are claimed from.

    Notes
    -----
    What is claimed next may be chosen by earlier answers. Whoever saw a Gaussian answer and may
    then decide whether epsilons are added up or counted as Gaussian noise takes what suits that
    answer, and both kinds of ends together have up to twice the delta of either. So the first
    claim, before any answer, decides. Where it is a pure one and cheaper added up, pure ones are
    added up, to E, until something else is claimed: whatever they answered, probabilities have
    changed by factors within :math:`e^E`, and Gaussian noise of all that follows is held within
    :math:`(\epsilon - E, \delta)`, however it is chosen (Koskela, Tobaben & Honkela 2023; Smith &
    Thakurta 2022). All else is Gaussian noise from the start.

    Examples
    --------
    >>> from pymc_dp.accounting import GaussianQueries, pure_queries
    >>> from pymc_dp.accounting.composition import counted_in_turn
    >>> pure, noise = pure_queries(0.5), GaussianQueries(10.0, 1)
    >>> [len(part) for part in counted_in_turn([pure, pure, noise, pure], 2.0, 1e-6)]
    [2, 2]
    >>> [len(part) for part in counted_in_turn([noise, pure], 2.0, 1e-6)]
    [0, 2]
    """
    first = queries[0].epsilon if queries else None
    number = 0
    if first is not None and first <= epsilon:
        left = gaussian_mu(epsilon, delta) - queries[0].mu
        if gaussian_mu(epsilon - first, delta) >= left:
            kinds = [query.epsilon is None for query in queries]
            number = kinds.index(True) if True in kinds else len(kinds)
    return list(queries[:number]), [replace(query, epsilon=None) for query in queries[number:]]


def mixes_batches(claims: Sequence[GaussianQueries]) -> bool:
    """Whether looks at batches are among looks of other kinds."""
    kinds = {(one.noise_multiplier, one.fraction, one.sampling) for one in claims}
    return len(kinds) > 1 and any(one.fraction < 1 for one in claims)


def _gaussian_composed(
    queries: Sequence[GaussianQueries],
    delta: float,
    accountant: Accountant,
    neighbours: Neighbours,
) -> float:
    on_all = [query for query in queries if query.fraction == 1]
    batches = [query for query in queries if query.fraction < 1]
    mu = math.fsum(query.mu for query in on_all)
    if not batches:
        return gaussian_epsilon(delta, mu)
    if neighbours != "substitute" and any(query.sampling == "fixed" for query in batches):
        raise ValueError(FIXED_SIZES)
    if accountant == "pld":
        looks = tuple(_look(query, neighbours) for query in batches if query.iterations)
        return _loss_epsilon(looks, mu, _check_delta(delta), neighbours)
    total = mu * ORDERS.astype(float)
    for query in batches:
        total += query.iterations * _batch_rdp(query, neighbours, ORDERS)
    return rdp_epsilon(ORDERS, total, delta)


def renyi_divergence(
    queries: Sequence[GaussianQueries], order: int, neighbours: Neighbours
) -> float:
    """Rényi divergence of all the queries together at an order, rounded up."""
    kinds: Counter[GaussianQueries] = Counter()
    for query in queries:
        kinds[replace(query, iterations=1, epsilon=None)] += query.iterations
    return math.fsum(
        count * _one_divergence(one, order, neighbours) for one, count in kinds.items()
    )


@lru_cache(maxsize=4096)
def _one_divergence(query: GaussianQueries, order: int, neighbours: Neighbours) -> float:
    if query.fraction == 1:
        return order * query.mu
    if neighbours != "substitute" and query.sampling == "fixed":
        raise ValueError(FIXED_SIZES)
    # so little that the logarithm of 1 and a bit is rounded off must not be free
    return float(_batch_rdp(query, neighbours, [order])[0]) * (1 + 1e-9) + 1e-14


FIXED_SIZES = (
    "Batches of a fixed size reveal the number of records, which is confidential with "
    'neighbours="add_remove": use neighbours="substitute", or Poisson batches (batch_fraction=).'
)


def _batch_rdp(
    query: GaussianQueries, neighbours: Neighbours, orders: ArrayLike
) -> NDArray[np.float64]:
    noise, fraction = query.noise_multiplier, query.fraction
    if query.sampling == "fixed":
        return subsampled_gaussian_rdp(noise, fraction, orders)
    return poisson_gaussian_rdp(noise, fraction, neighbours, orders)


def _look(query: GaussianQueries, neighbours: Neighbours) -> Look:
    """How a query on batches is dominated; substitution moves a record's part from c to -c."""
    noise, form = query.noise_multiplier, "fixed"
    if query.sampling == "poisson":
        noise, form = (2 * noise, "poisson") if neighbours == "substitute" else (noise, "remove")
    return Look(1 / noise, query.fraction, form, query.iterations)


@lru_cache(maxsize=256)
def _loss_epsilon(
    looks: tuple[Look, ...], mu: float, delta: float, neighbours: Neighbours
) -> float:
    on_all = [Look(math.sqrt(2 * mu), 1.0, "all", 1)] if mu else []
    if any(look.shift > _LARGEST_SHIFT for look in [*looks, *on_all]):
        return math.inf
    epsilon = composed_loss_epsilon([*looks, *on_all], delta)
    if neighbours == "substitute":
        return epsilon
    added = [look._replace(form="add") for look in looks]
    return max(epsilon, composed_loss_epsilon([*added, *on_all], delta))


def batch_noise_multiplier(
    epsilon: float,
    delta: float,
    iterations: int,
    fraction: float,
    accountant: Accountant = "pld",
    sampling: Sampling = "fixed",
    neighbours: Neighbours = "substitute",
) -> float:
    """Smallest noise multiplier whose queries on random batches stay within (epsilon, delta).

    Parameters
    ----------
    epsilon, delta : float
        The guarantee to meet.
    iterations : int
        Number of batches, over all chains.
    fraction : float
        A record's chance to be in a batch.
    accountant : {"pld", "rdp"}
        As of the budget that they will be claimed from: for ``"rdp"`` noise is found at the one
        order of :func:`~pymc_dp.accounting.renyi.filter_order`.
    sampling : {"fixed", "poisson"}
        As of :class:`GaussianQueries`.
    neighbours
        As in :func:`composed_epsilon`.

    Examples
    --------
    >>> from pymc_dp.accounting import batch_noise_multiplier
    >>> round(batch_noise_multiplier(4.0, 1e-6, 2256, 0.01), 2)
    0.98
    >>> round(batch_noise_multiplier(4.0, 1e-6, 2256, 0.01, "rdp"), 2)
    1.41
    """
    if accountant == "rdp":
        order, bound = filter_order(epsilon, delta)
        return renyi_noise_multiplier(order, bound, iterations, fraction, sampling, neighbours)

    def fits(noise_multiplier: float) -> bool:
        query = GaussianQueries(noise_multiplier, iterations, fraction, sampling=sampling)
        return composed_epsilon([query], delta, accountant, neighbours) <= epsilon

    # with much noise a batch costs as all records do with more noise by its fraction
    high = max(fraction * math.sqrt(iterations / (2 * gaussian_mu(epsilon, delta))), 0.05)
    while not fits(high):
        high *= 1.5
    low = high / 1.5
    while low > 0.02 and fits(low):
        low, high = low / 1.5, low
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def renyi_noise_multiplier(
    order: int,
    divergence: float,
    iterations: int,
    fraction: float,
    sampling: Sampling,
    neighbours: Neighbours,
) -> float:
    """Smallest noise multiplier of queries on random batches with a divergence at an order."""

    def fits(noise_multiplier: float) -> bool:
        query = GaussianQueries(noise_multiplier, iterations, fraction, sampling=sampling)
        return renyi_divergence([query], order, neighbours) <= divergence

    if divergence <= 2e-14 * iterations:  # what each look is rounded up by
        raise ValueError(
            f"Divergences of {iterations} looks at batches are too small for floats: ask for "
            "fewer, or for a larger part of the budget."
        )
    high = math.sqrt(order * iterations / divergence)  # more than all records would need
    low = high / 2
    while fits(low):
        low, high = low / 2, low
    while high - low > 1e-11 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high
