"""The budget: a guarantee that all looks at the data share and cannot overspend."""

import math
import os
from collections.abc import Sequence
from typing import Literal

from pymc_dp.accounting.composition import (
    Accountant,
    GaussianQueries,
    batch_noise_multiplier,
    composed_epsilon,
)
from pymc_dp.accounting.errors import PrivacyError
from pymc_dp.accounting.gaussian import gaussian_epsilon, gaussian_mu
from pymc_dp.accounting.ledger import Ledger
from pymc_dp.numerics.arguments import number

Neighbours = Literal["substitute", "add_remove"]


def record_weight(neighbours: Neighbours) -> int:
    """How far, in clip bounds, one record can move a sum of clipped values.

    Under substitution a record may go from one bound to the other, which is 2; added or removed, it
    moves the sum by 1.
    """
    weights = {"substitute": 2, "add_remove": 1}
    if neighbours not in weights:
        raise ValueError(f'neighbours must be "substitute" or "add_remove", not {neighbours!r}.')
    return weights[neighbours]


class PrivacyBudget:
    """An (epsilon, delta) guarantee that several chains, runs and releases spend together.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee for everything that is claimed from this budget together.
    ledger : path, optional
        File that keeps what was claimed, so that the budget holds over restarts and between
        processes. Without it the budget lasts as long as this process.
    neighbours : {"substitute", "add_remove"}
        Which data sets must be hard to tell apart: those where one record has other values (the
        number of records is public), or those where one record is missing.
    accountant : {"rdp", "pld"}
        How steps on random batches are counted; "pld" is tight and needs dp-accounting.

    Notes
    -----
    Claims are made before the data is touched and are never given back, also when a run fails.

    Examples
    --------
    >>> import pymc_dp as pmdp
    >>> budget = pmdp.PrivacyBudget(epsilon=1.0, delta=1e-6)
    >>> budget.claim(budget.gaussian_queries(iterations=100), "a first run")
    >>> round(budget.spent, 9)
    1.0
    >>> try:
    ...     budget.claim(budget.gaussian_queries(iterations=1), "one more")
    ... except pmdp.PrivacyError:
    ...     print("refused")
    refused
    """

    def __init__(
        self,
        epsilon: float,
        delta: float,
        ledger: str | os.PathLike[str] | None = None,
        *,
        neighbours: Neighbours = "substitute",
        accountant: Accountant = "rdp",
    ) -> None:
        record_weight(neighbours)
        self.epsilon, self.delta = number("epsilon", epsilon), number("delta", delta)
        self.neighbours, self.accountant = neighbours, accountant
        self.mu = gaussian_mu(self.epsilon, self.delta)
        self._ledger = Ledger(ledger, self.epsilon, self.delta, neighbours)

    def __repr__(self) -> str:
        return f"PrivacyBudget(epsilon={self.epsilon}, delta={self.delta}, spent={self.spent:.6g})"

    @property
    def ledger(self) -> str:
        """The file that keeps what was claimed."""
        return self._ledger.path

    def claims(self, purpose: str | None = None) -> list[GaussianQueries]:
        """Everything claimed so far, or everything claimed for one purpose."""
        return self._ledger.claims(purpose)

    @property
    def spent(self) -> float:
        """Epsilon, at the budget's delta, of everything claimed so far."""
        return composed_epsilon(self.claims(), self.delta, self.accountant)

    @property
    def unspent(self) -> float:
        """Share of the whole budget that is left; 0 once steps on random batches have claimed."""
        claims = self.claims()
        if any(queries.fraction < 1 for queries in claims):
            return 0.0
        return max(0.0, 1 - math.fsum(queries.mu for queries in claims) / self.mu)

    @property
    def remaining(self) -> tuple[float, float]:
        """The guarantee (epsilon, delta) of a budget as large as what is left of this one."""
        return gaussian_epsilon(self.delta, self.mu * self.unspent), self.delta

    def gaussian_queries(
        self, iterations: int, share: float = 1.0, fraction: float = 1.0
    ) -> GaussianQueries:
        """Calibrate noise so that a number of queries cost a share of the whole budget.

        Parameters
        ----------
        iterations : int
            How many values will be released.
        share : float
            Part of the budget to use, in (0, 1]; shares that add to 1 spend it all.
        fraction : float
            Batch size over number of records, where each value is made from a random batch.
        """
        if not 0 < share <= 1:
            raise ValueError(f"share must lie in (0, 1], not {share!r}.")
        if fraction == 1:
            mu = self.mu * share * (1 - 1e-12)  # so that rounded shares never add to more than 1
            return GaussianQueries(math.sqrt(iterations / (2 * mu)), iterations)
        if self.neighbours != "substitute":
            raise ValueError(
                'Batches of a fixed size reveal the number of records: use neighbours="substitute".'
            )
        # equal shares of everything: calibrate as if all shares were used in the same way
        total = math.ceil(iterations / share)
        noise = batch_noise_multiplier(self.epsilon, self.delta, total, fraction, self.accountant)
        return GaussianQueries(noise, iterations, fraction)

    def claim(self, queries: GaussianQueries | Sequence[GaussianQueries], purpose: str) -> None:
        """Claim queries before they are made: all of those given, or none.

        Raises
        ------
        PrivacyError
            If they do not fit beside what was claimed before, or the ledger cannot be written.
        """
        claims = [queries] if isinstance(queries, GaussianQueries) else list(queries)
        if not self._ledger.claim(claims, purpose, self._fits):
            looks = sum(one.iterations for one in claims)
            raise PrivacyError(
                f"{purpose}: the budget of epsilon={self.epsilon}, delta={self.delta} does not "
                f"cover {looks} more noisy looks at the data ({self.spent:.6g} is "
                "spent). A share that was claimed is never given back, not even by a run that "
                "failed; plan all chains and draws together, in one budget."
            )

    def _fits(self, claims: Sequence[GaussianQueries]) -> bool:
        if all(queries.fraction == 1 for queries in claims):
            return math.fsum(queries.mu for queries in claims) <= self.mu
        return composed_epsilon(claims, self.delta, self.accountant) <= self.epsilon
