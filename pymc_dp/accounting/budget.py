"""The budget: a guarantee that all looks at the data share and cannot overspend."""

import math
import operator
import os
from collections.abc import Iterable, Sequence

from pymc_dp.accounting.accountants import make_accountant
from pymc_dp.accounting.composition import (
    FIXED_SIZES,
    Accountant,
    GaussianQueries,
    Sampling,
    composed_epsilon,
    mixes_batches,
)
from pymc_dp.accounting.door import Door
from pymc_dp.accounting.errors import PrivacyError
from pymc_dp.accounting.gaussian import _check_delta, _check_epsilon, gaussian_epsilon
from pymc_dp.accounting.ledger import Ledger
from pymc_dp.numerics.arguments import number
from pymc_dp.types import Neighbours


def record_weight(neighbours: Neighbours) -> int:
    """How far, in clip bounds, one record can move a sum of clipped values.

    Under substitution a record may go from one bound to the other, which is 2; added or removed, it
    moves the sum by 1.
    """
    weights = {"substitute": 2, "add_remove": 1}
    if neighbours not in weights:
        raise ValueError(f'neighbours must be "substitute" or "add_remove", not {neighbours!r}.')
    return weights[neighbours]


def check_share(share: float) -> float:
    """Refuse what is no part of a whole; 0 must not come to mean everything."""
    if not 0 < share <= 1:
        raise ValueError(f"share must lie in (0, 1], not {share!r}.")
    return float(share)


def _whole(iterations: int) -> int:
    """Refuse counts that would cost nothing, or give something back."""
    try:
        count = operator.index(iterations)
    except TypeError:
        count = int(iterations) if float(iterations).is_integer() else 0
    if not 1 <= count < 2**53:
        raise ValueError(f"iterations must be a whole number >= 1, not {iterations!r}.")
    return count


def _check_fraction(fraction: float) -> float:
    if not 0 < fraction <= 1:
        raise ValueError(f"fraction must lie in (0, 1], not {fraction!r}.")
    return float(fraction)


_PURE_FIRST = (
    " Noise with a pure epsilon is cheap before all other looks and counts as Gaussian noise after "
    "them: release with it first, or from a budget of its own, whose epsilon adds to this one."
)


def _checked(queries: GaussianQueries) -> GaussianQueries:
    """Claims are compared and stored as these numbers, whatever they were given as."""
    noise = float(queries.noise_multiplier)
    if not 1e-100 < noise < 1e100:
        raise ValueError(f"noise_multiplier must be positive and finite, not {noise!r}.")
    iterations, fraction = _whole(queries.iterations), _check_fraction(queries.fraction)
    return GaussianQueries(noise, iterations, fraction, queries.epsilon, queries.sampling)


def _fixed_size(queries: GaussianQueries) -> bool:
    return queries.fraction < 1 and queries.sampling == "fixed"


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
    accountant : {"pld", "rdp"}
        How claims are counted. ``"pld"``: looks at all records exactly, steps on random batches by
        privacy loss distributions, which are tight. ``"rdp"``: everything by Rényi-DP, which pays
        for less, and for batches together with anything else.

    Notes
    -----
    Claims are made before anything computed from the data can leave and are never given back, also
    when a run fails. The guarantee is for what was claimed from this budget: other budgets spent on
    the same records add to it, so that a study needs one budget for all it publishes.

    What is claimed may be chosen by earlier answers. For that, pure epsilons are added up before
    any other look alone, and count as Gaussian noise after it
    (:func:`~pymc_dp.accounting.composition.counted_in_turn`). Privacy loss distributions do not
    allow it where kinds of looks mix: who saw the answer of a look at all records and then decided
    whether more of them or batches follow takes what suits that answer, and learns at up to twice
    the delta of either. So with ``accountant="pld"`` steps on random batches share the budget with
    looks of their own kind alone (the same noise and batches, any number of them, after pure
    epsilons or not), or with kinds that one claim, the first, lists together; all else is refused.
    A pilot and then steps on batches take ``accountant="rdp"``: there all looks are counted by
    their Rényi divergences at one order, which epsilon and delta alone decide, and such sums hold
    however the next look is chosen (:func:`~pymc_dp.accounting.renyi.filter_order`).

    A ledger is worth what its file is worth. While this process lives, a ledger that lost claims
    (deleted, replaced, restored from an older copy) is refused. After a restart nothing but the
    file remembers: keep it with the data, and never restore it from a backup alone.

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
        accountant: Accountant = "pld",
    ) -> None:
        record_weight(neighbours)
        self.epsilon = _check_epsilon(number("epsilon", epsilon))
        self.delta = _check_delta(number("delta", delta))
        self.neighbours, self.accountant = neighbours, accountant
        self._accountant = make_accountant(accountant, self.epsilon, self.delta, neighbours)
        self.mu = self._accountant.mu
        if self.mu <= 0:
            raise ValueError(
                f'accountant="rdp" pays for nothing at epsilon={self.epsilon}, delta={self.delta}: '
                'ask for a larger epsilon, or write accountant="pld".'
            )
        self._ledger = Ledger(ledger, self.epsilon, self.delta, neighbours, accountant)

    def __repr__(self) -> str:
        return f"PrivacyBudget(epsilon={self.epsilon}, delta={self.delta}, spent={self.spent:.6g})"

    @property
    def ledger(self) -> str:
        """The file that keeps what was claimed."""
        return self._ledger.path

    def claims(self, purpose: str | None = None) -> list[GaussianQueries]:
        """Everything claimed so far, or everything claimed for one purpose."""
        return self._trusted(self._ledger.claims(purpose))

    def _trusted(self, claims: Sequence[GaussianQueries]) -> list[GaussianQueries]:
        try:
            return [_checked(one) for one in claims]
        except ValueError as error:
            raise PrivacyError(
                f"The ledger {self.ledger} was changed by other means than claims: {error}"
            ) from None

    @property
    def spent(self) -> float:
        """Epsilon, at the budget's delta, of everything claimed so far."""
        return self._accountant.spent(self.claims())

    @property
    def unspent(self) -> float:
        """Share of the whole budget that is left; with ``"pld"``, 0 once batches were claimed."""
        return max(0.0, self._accountant.left(self.claims()) / self.mu)

    @property
    def remaining(self) -> tuple[float, float]:
        """The guarantee (epsilon, delta) of looks at all records that what is left pays for."""
        return gaussian_epsilon(self.delta, self.mu * self.unspent), self.delta

    def gaussian_queries(
        self,
        iterations: int,
        share: float = 1.0,
        fraction: float = 1.0,
        sampling: Sampling = "fixed",
    ) -> GaussianQueries:
        """Calibrate noise so that a number of queries cost a share of the whole budget.

        Parameters
        ----------
        iterations : int
            How many values will be released.
        share : float
            Part of the budget to use, in (0, 1]; shares that add to 1 spend it all.
        fraction : float
            A record's chance to be in the batch, where each value is made from a random one.
        sampling : {"fixed", "poisson"}
            How batches are drawn: so many records, or each record by itself.
        """
        check_share(share)
        iterations, fraction = _whole(iterations), _check_fraction(fraction)
        if fraction == 1:
            mu = self.mu * share * (1 - 1e-12)  # so that rounded shares never add to more than 1
            return GaussianQueries(math.sqrt(iterations / (2 * mu)), iterations)
        wish = GaussianQueries(1.0, iterations, fraction, sampling=sampling)
        if self.neighbours != "substitute" and _fixed_size(wish):
            raise ValueError(FIXED_SIZES)
        noise = self._accountant.batch_noise(self.claims(), wish, share)
        return GaussianQueries(noise, iterations, fraction, sampling=sampling)

    def claim(self, queries: GaussianQueries | Sequence[GaussianQueries], purpose: str) -> None:
        """Claim queries before they are made: all of those given, or none.

        Raises
        ------
        PrivacyError
            If they do not fit beside what was claimed before, or the ledger cannot be written.
        ValueError
            If a number is none that queries can have, such as a negative count.
        """
        claims = [queries] if isinstance(queries, GaussianQueries) else list(queries)
        claims = [_checked(one) for one in claims]
        if not self._ledger.claim(claims, purpose, self._fits):
            looks = sum(one.iterations for one in claims)
            raise PrivacyError(
                f"{purpose}: the budget of epsilon={self.epsilon}, delta={self.delta} does not "
                f"cover {looks} more noisy looks at the data ({self.spent:.6g} is "
                "spent). A share that was claimed is never given back, not even by a run that "
                "failed; plan all chains and draws together, in one budget."
                + _PURE_FIRST
                * any(one.epsilon is not None for one in claims)
            )

    def open(self, queries: GaussianQueries | Sequence[GaussianQueries], purpose: str) -> Door:
        """Claim queries, and open the door through which their answers leave.

        Parameters
        ----------
        queries : GaussianQueries or sequence of them
            One for each kind of look.
        purpose : str
            What they are for, kept in the ledger.

        Returns
        -------
        Door
            It lets out as many answers as were claimed, with the noise that was.

        Raises
        ------
        PrivacyError
            As of :meth:`claim`; nothing is then opened.
        """
        looks = [queries] if isinstance(queries, GaussianQueries) else list(queries)
        if any(one.epsilon is not None for one in looks):
            raise ValueError(
                "A door adds Gaussian noise, which has no pure epsilon guarantee: leave epsilon= "
                "out of GaussianQueries(...), as budget.gaussian_queries(...) does."
            )
        looks = [_checked(one) for one in looks]  # the noise that is claimed, and no other float
        self.claim(looks, purpose)
        return Door(looks, record_weight(self.neighbours))

    def _fits(self, before: Sequence[GaussianQueries], claims: Sequence[GaussianQueries]) -> bool:
        if self.neighbours != "substitute" and any(map(_fixed_size, claims)):
            raise ValueError(FIXED_SIZES)
        return self._accountant.fits(self._trusted(before), claims)


def spent_together(budgets: Iterable[PrivacyBudget]) -> tuple[float, float]:
    """Tell the guarantee (epsilon, delta) of all that was claimed from several budgets.

    They are spent on the same records. Gaussian looks at all records, and looks at batches of one
    kind, compose as if they were claimed from one budget, at the largest of the deltas. Where
    batches or pure epsilons mix with other kinds, which answers may have chosen, or a budget counts
    by Rényi-DP, the epsilons and the deltas of the budgets that were claimed from are added up:
    each of them holds by itself.

    Raises
    ------
    PrivacyError
        If they differ in their neighbours, where no composition is proven.
    """
    separate = list({budget.ledger: budget for budget in budgets}.values())
    if len({budget.neighbours for budget in separate}) > 1:
        raise PrivacyError(
            'Guarantees for neighbours="substitute" and for "add_remove" do not compose to one: '
            "share one PrivacyBudget(...), budget=, between all steps of a run."
        )
    used = [budget for budget in separate if budget.claims()]
    claims = [one for budget in used for one in budget.claims()]
    pure = any(one.epsilon is not None for one in claims)
    if pure or mixes_batches(claims) or any(budget.accountant != "pld" for budget in used):
        return math.fsum(one.spent for one in used), math.fsum(one.delta for one in used)
    delta = max(budget.delta for budget in separate)
    neighbours = separate[0].neighbours if separate else "substitute"
    return composed_epsilon(claims, delta, "pld", neighbours), delta
