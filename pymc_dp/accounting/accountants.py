"""The two ways in which a budget counts what is claimed from it, and what each accepts."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import get_args

from pymc_dp.accounting.composition import (
    Accountant,
    GaussianQueries,
    batch_noise_multiplier,
    composed_epsilon,
    counted_in_turn,
    mixes_batches,
    pure_epsilon,
    renyi_divergence,
    renyi_noise_multiplier,
)
from pymc_dp.accounting.errors import PrivacyError
from pymc_dp.accounting.gaussian import gaussian_mu
from pymc_dp.accounting.renyi import filter_epsilon, filter_order
from pymc_dp.types import Neighbours

__all__ = ["BudgetAccountant", "make_accountant"]

_ROUNDING = 1e-13  # of a sum of divergences: far less than the part of delta that is kept in hand

_NOT_SETTLED = (
    "Looks at random batches share a budget that counts by privacy loss distributions with no "
    "other kind of look (other noise, other batches, all records), unless the first claim lists "
    "all kinds: if answers may choose which kind follows, more is learned than is counted. Write "
    'PrivacyBudget(..., accountant="rdp"), which pays for kinds that are chosen as one goes, or '
    "give these looks a budget of their own, whose epsilon adds to this one."
)


class BudgetAccountant(ABC):
    """Counts what was claimed from one guarantee, in the order in which it was.

    Parameters
    ----------
    epsilon, delta, neighbours
        The guarantee.

    Attributes
    ----------
    mu : float
        How much of looks at all records it pays for; shares are parts of that.
    """

    mu: float

    def __init__(self, epsilon: float, delta: float, neighbours: Neighbours) -> None:
        self.epsilon, self.delta, self.neighbours = epsilon, delta, neighbours

    @abstractmethod
    def left(self, claims: Sequence[GaussianQueries]) -> float:
        """Mu of further looks at all records that is left; negative if too much is spent."""

    @abstractmethod
    def spent(self, claims: Sequence[GaussianQueries]) -> float:
        """Epsilon of what was claimed."""

    @abstractmethod
    def fits(self, before: Sequence[GaussianQueries], claims: Sequence[GaussianQueries]) -> bool:
        """Whether claims are covered beside those before them; refuses what cannot be counted."""

    @abstractmethod
    def batch_noise(
        self, claims: Sequence[GaussianQueries], wish: GaussianQueries, share: float
    ) -> float:
        """Noise of the looks at batches wished for, after some claims, for a share of all."""

    def _in_turn(
        self, claims: Sequence[GaussianQueries]
    ) -> tuple[float, list[GaussianQueries], float]:
        """Pure epsilons that are added up, what else there is, and the epsilon left to that."""
        pure, rest = counted_in_turn(claims, self.epsilon, self.delta)
        return pure_epsilon(pure), rest, self.epsilon - math.fsum(one.epsilon or 0 for one in pure)

    def _purely_covered(self, claims: Sequence[GaussianQueries]) -> bool:
        """Whether there is nothing but pure epsilons, and their sum is covered without delta."""
        return _all_pure(claims) and math.fsum(one.epsilon or 0 for one in claims) <= self.epsilon


class _LossDistributions(BudgetAccountant):
    """Looks at all records exactly; looks at batches by privacy loss distributions, if settled.

    Notes
    -----
    Looks at all records may be chosen as one goes (Koskela, Tobaben & Honkela 2023; Smith &
    Thakurta 2022). Other kinds may not: whoever sees the answer of a look at all records and then
    decides between more of them and batches takes what suits that answer, and both ways together
    have up to twice the delta of either. So batches have to be settled: one kind, of which any
    number may follow (stopping early only processes what a longer sequence tells), or the kinds of
    one claim, whose looks may be taken in any order, since what dominates the rest is the same
    whichever comes next. Pure epsilons before them are no answer to fear: they change probabilities
    by factors that are taken off in full.
    """

    def __init__(self, epsilon: float, delta: float, neighbours: Neighbours) -> None:
        super().__init__(epsilon, delta, neighbours)
        self.mu = gaussian_mu(epsilon, delta)

    def left(self, claims: Sequence[GaussianQueries]) -> float:
        if any(one.fraction < 1 for one in claims):
            return 0.0
        _, rest, after = self._in_turn(claims)
        left = -math.inf
        if after >= 0:
            left = gaussian_mu(after, self.delta) - math.fsum(one.mu for one in rest)
        return max(left, 0.0) if self._purely_covered(claims) else left

    def spent(self, claims: Sequence[GaussianQueries]) -> float:
        pure, rest, _ = self._in_turn(claims)
        total = pure + composed_epsilon(rest, self.delta, "pld", self.neighbours)
        return min(total, pure_epsilon(claims)) if _all_pure(claims) else total

    def fits(self, before: Sequence[GaussianQueries], claims: Sequence[GaussianQueries]) -> bool:
        together = [*before, *claims]
        if all(one.fraction == 1 for one in together):
            return self.left(together) >= 0
        pure, rest = counted_in_turn(together, self.epsilon, self.delta)
        if mixes_batches(rest) and len(pure) < len(before):
            raise PrivacyError(_NOT_SETTLED)
        return self.spent(together) <= self.epsilon

    def batch_noise(
        self, claims: Sequence[GaussianQueries], wish: GaussianQueries, share: float
    ) -> float:
        _, _, after = self._in_turn(claims)
        if after <= 0:
            after = self.epsilon  # nothing is left, and the claim will be refused
        # as if everything that pure epsilons left were used in the same way
        total = math.ceil(wish.iterations / (share * (self.mu / gaussian_mu(after, self.delta))))
        return batch_noise_multiplier(
            after, self.delta, total, wish.fraction, "pld", wish.sampling, self.neighbours
        )


class _RenyiFilter(BudgetAccountant):
    r"""Everything by its Rényi divergence at one order, which the guarantee alone decides.

    Notes
    -----
    :func:`~pymc_dp.accounting.renyi.filter_order` tells why kinds of looks may then be chosen as
    one goes. Looks at all records are counted so too, also where there are no others: an exact
    count of their own would be one more end to choose. Pure epsilons before everything else add up
    to E, which may depend on their answers; given these, the rest has the order and the filter of
    :math:`(\epsilon - E, \delta)`, and :math:`P(S) \le \sum_y P(y)
    (e^{\epsilon - E(y)} Q(S \mid y) + \delta) \le e^\epsilon Q(S) + \delta`, as
    :math:`P(y) \le e^{E(y)} Q(y)`.
    """

    def __init__(self, epsilon: float, delta: float, neighbours: Neighbours) -> None:
        super().__init__(epsilon, delta, neighbours)
        order, divergence = filter_order(epsilon, delta)
        self.mu = divergence / order

    def left(self, claims: Sequence[GaussianQueries]) -> float:
        order, divergence, claimed = self._filled(claims)
        left = (divergence - claimed) / order
        return max(left, 0.0) if self._purely_covered(claims) else left

    def spent(self, claims: Sequence[GaussianQueries]) -> float:
        total, rest, after = self._in_turn(claims)
        if rest:
            total += filter_epsilon(
                lambda order: renyi_divergence(rest, order, self.neighbours), after, self.delta
            )
        if _all_pure(claims):
            total = min(total, pure_epsilon(claims))
        return min(total, self.epsilon) if self.fits(claims, []) else total

    def fits(self, before: Sequence[GaussianQueries], claims: Sequence[GaussianQueries]) -> bool:
        together = [*before, *claims]
        _, divergence, claimed = self._filled(together)
        return claimed <= divergence * (1 + _ROUNDING) or self._purely_covered(together)

    def _filled(self, claims: Sequence[GaussianQueries]) -> tuple[int, float, float]:
        """Order of the filter, the divergence that it pays for, and what was claimed of it."""
        _, rest, after = self._in_turn(claims)
        order, divergence = filter_order(after, self.delta)
        return order, divergence, renyi_divergence(rest, order, self.neighbours)

    def batch_noise(
        self, claims: Sequence[GaussianQueries], wish: GaussianQueries, share: float
    ) -> float:
        order, _ = filter_order(self._in_turn(claims)[2], self.delta)
        return renyi_noise_multiplier(
            order,
            order * self.mu * share,
            wish.iterations,
            wish.fraction,
            wish.sampling,
            self.neighbours,
        )


def make_accountant(
    name: Accountant, epsilon: float, delta: float, neighbours: Neighbours
) -> BudgetAccountant:
    """Tell who counts a budget's claims."""
    if name not in get_args(Accountant):
        raise ValueError(f"accountant must be one of {get_args(Accountant)}, not {name!r}.")
    kind = _LossDistributions if name == "pld" else _RenyiFilter
    return kind(epsilon, delta, neighbours)


def _all_pure(claims: Sequence[GaussianQueries]) -> bool:
    return all(one.epsilon is not None for one in claims)
