"""A step's part of a budget: how much noise each chain needs, and how many looks it may take."""

import math
import secrets
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pymc_dp.accounting.budget import PrivacyBudget, check_share, record_weight
from pymc_dp.accounting.composition import GaussianQueries, Sampling
from pymc_dp.accounting.door import Door
from pymc_dp.accounting.errors import PrivacyError
from pymc_dp.accounting.ledger import Ledger
from pymc_dp.types import Neighbours

_CRUMBS = 1e-9  # of a budget, which roundings of shares leave


class PrivacySpent(tuple[float, float]):
    """The guarantee that holds so far, ``(epsilon, delta)``, and what it is made of.

    Attributes
    ----------
    epsilon, delta : float
        Everything claimed from the budget together; ``(inf, 1)`` for a simulation.
    details : dict
        ``mu`` (or ``batch_fraction``), ``iterations``, ``chains``, ``noise_multiplier`` (and
        ``gradients`` and ``grad_noise_multiplier``), clip bounds, ``neighbours`` and whether it was
        a ``simulation``, of the step alone.
    """

    details: dict[str, Any]

    def __new__(cls, epsilon: float, delta: float, **details: Any) -> "PrivacySpent":
        """Make the pair."""
        spent = super().__new__(cls, (epsilon, delta))
        spent.details = details
        return spent

    @property
    def epsilon(self) -> float:
        """First part of the guarantee."""
        return self[0]

    @property
    def delta(self) -> float:
        """Second part of the guarantee."""
        return self[1]

    def __getnewargs_ex__(self) -> tuple[tuple[float, float], dict[str, Any]]:
        return (self[0], self[1]), self.details

    def __repr__(self) -> str:
        rest = "".join(f", {name}={value!r}" for name, value in self.details.items())
        return f"PrivacySpent(epsilon={self[0]!r}, delta={self[1]!r}{rest})"


class Allowance:
    """What a step may spend over all its chains.

    Parameters
    ----------
    epsilon, delta : float, optional
        A guarantee of the step's own; or
    budget : PrivacyBudget, optional
        one it shares.
    chains : int
        How many chains will be run, each of which claims an equal part.
    share : float, optional
        Part of the whole budget for this step; all that is left if not given.
    neighbours : {"substitute", "add_remove"}, optional
        Neighbour relation of the step's own guarantee.
    simulation : bool
        Reproducible noise and no guarantee, for research.
    noise_multiplier : float, optional
        Noise for a simulation, instead of a guarantee.
    grad_share : float
        Part of this step's spending that goes to gradients; 0 for a step that takes none.
    grad_noise_multiplier : float, optional
        Noise of the gradients for a simulation, where the step takes some.
    """

    def __init__(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        budget: PrivacyBudget | None = None,
        chains: int = 4,
        share: float | None = None,
        neighbours: Neighbours | None = None,
        simulation: bool = False,
        noise_multiplier: float | None = None,
        grad_share: float = 0.0,
        grad_noise_multiplier: float | None = None,
    ) -> None:
        if chains < 1 or chains != int(chains):
            raise ValueError(f"chains must be a whole number >= 1, not {chains!r}.")
        if share is not None:
            check_share(share)
        _check_one_way(epsilon, delta, budget, simulation, noise_multiplier)
        _check_gradients(grad_share, noise_multiplier, grad_noise_multiplier)
        self.simulation, self.noise_multiplier = simulation, noise_multiplier
        self.grad_share, self.grad_noise_multiplier = float(grad_share), grad_noise_multiplier
        self.chains = int(chains)
        if budget is None and epsilon is not None and delta is not None:
            budget = PrivacyBudget(epsilon, delta, neighbours=neighbours or "substitute")
        elif budget is not None and neighbours not in (None, budget.neighbours):
            raise ValueError(
                f"The budget's neighbours are {budget.neighbours!r}: write them there."
            )
        self.budget = budget
        self.neighbours: Neighbours = budget.neighbours if budget else neighbours or "substitute"
        record_weight(self.neighbours)  # refuses what is no relation
        if budget is not None and share is None:
            share = 1.0 if simulation else budget.unspent
            if share < _CRUMBS:
                raise PrivacyError(f"Nothing is left of {budget!r}.")
        self.share = 1.0 if share is None else float(share)
        # a simulation keeps its own books and is never charged to the budget
        self._books = Ledger(None, math.inf, 1.0, self.neighbours) if simulation else None
        self._key = f"step {secrets.token_hex(8)}"

    def open(
        self,
        iterations: int,
        rng: np.random.Generator,
        fraction: float = 1.0,
        gradients: int = 0,
        sampling: Sampling = "fixed",
        check: Callable[[Sequence[GaussianQueries]], None] | None = None,
    ) -> Door:
        """Claim a chain's part before its data is touched, and open the door for its looks.

        Parameters
        ----------
        iterations : int
            Iterations of the chain, tuning included, each of which looks at one log-ratio.
        rng : numpy.random.Generator
            The chain's generator, from which a simulation takes its noise.
        fraction : float
            A record's chance to be in the batch.
        gradients : int
            Gradients that each iteration looks at.
        sampling : {"fixed", "poisson"}
            How batches are drawn.
        check : callable, optional
            Told what is about to be claimed, which it may refuse.

        Returns
        -------
        Door
            For the log-ratios (kind 0) and, if there are any, the gradients (kind 1). Their costs
            add up as in Theorem 3.5 of Räisä et al. (2021).
        """
        queries = self._calibrated(iterations, fraction, gradients, sampling)
        if check is not None:
            check(queries)
        if self._books is not None:
            self._books.claim(queries, self._key, lambda before, claims: True)
            return Door(queries, record_weight(self.neighbours), rng.spawn(1)[0])
        assert self.budget is not None
        return self.budget.open(queries, self._key)

    def _calibrated(
        self, iterations: int, fraction: float, gradients: int, sampling: Sampling
    ) -> list[GaussianQueries]:
        counts = [iterations, iterations * gradients][: self._kinds]
        if self.noise_multiplier is not None:
            noises = [self.noise_multiplier, self.grad_noise_multiplier or 0.0]
            pairs = zip(noises, counts, strict=False)
            return [
                GaussianQueries(noise, count, fraction, sampling=sampling) for noise, count in pairs
            ]
        assert self.budget is not None
        part = self.share / self.chains
        shares = zip([1 - self.grad_share, self.grad_share], counts, strict=False)
        return [
            self.budget.gaussian_queries(count, part * share, fraction, sampling)
            for share, count in shares
        ]

    @property
    def _kinds(self) -> int:
        """How many kinds of looks there are: log-ratios, and perhaps gradients."""
        return 2 if self.grad_share > 0 else 1

    def check_chains(self, chains: int) -> None:
        """Refuse more chains than are left, before the first one starts."""
        if self.budget is None or self._books is not None:
            return
        used = len(self.budget.claims(self._key)) // self._kinds
        if used + chains > self.chains:
            raise PrivacyError(
                f"{chains} chains asked for, {self.chains - used} left of the chains={self.chains} "
                "that share the budget: a claimed share is never given back. Write chains= in the "
                "step for all chains of all runs together."
            )

    def spent(self, **details: Any) -> PrivacySpent:
        """Tell the guarantee that holds so far, with a step's own details."""
        if self._books is not None:
            claims, pair = self._books.claims(), (math.inf, 1.0)
        else:
            assert self.budget is not None
            claims = self.budget.claims(self._key)
            pair = (self.budget.spent, self.budget.delta)
        if any(queries.fraction < 1 for queries in claims):
            fraction = max(queries.fraction for queries in claims)
            details |= {"batch_fraction": fraction, "sampling": claims[0].sampling}
        else:
            details["mu"] = math.fsum(queries.mu for queries in claims)
        if self.budget is not None and ("mu" not in details or self.budget.accountant != "pld"):
            details["accountant"] = self.budget.accountant
        ratios, gradients = claims[:: self._kinds], claims[1::2] if self._kinds == 2 else []
        if gradients:
            details["gradients"] = sum(queries.iterations for queries in gradients)
            details["grad_noise_multiplier"] = _common_noise(gradients)
        return PrivacySpent(
            *pair,
            iterations=sum(queries.iterations for queries in ratios),
            chains=len(ratios),
            noise_multiplier=_common_noise(ratios),
            neighbours=self.neighbours,
            simulation=self.simulation,
            **details,
        )


def _common_noise(claims: Sequence[GaussianQueries]) -> float:
    """Noise at which as many looks would cost no less: all of them, if chains had equal lengths."""
    noises = {queries.noise_multiplier for queries in claims}
    if len(noises) < 2 or any(queries.fraction < 1 for queries in claims):
        return min(noises, default=0.0)
    mu = math.fsum(queries.mu for queries in claims)
    return math.sqrt(sum(queries.iterations for queries in claims) / (2 * mu))


def _check_gradients(
    grad_share: float, noise_multiplier: float | None, grad_noise_multiplier: float | None
) -> None:
    if not 0 <= grad_share < 1:
        raise ValueError(f"grad_share must lie in (0, 1), not {grad_share!r}.")
    if (grad_noise_multiplier is None) != (noise_multiplier is None or grad_share == 0):
        raise ValueError(
            "In a simulation without a guarantee write both noise_multiplier= and "
            "grad_noise_multiplier=, and otherwise neither."
        )
    for noise in (noise_multiplier, grad_noise_multiplier):
        if noise is not None and not 0 <= noise < math.inf:
            raise ValueError(f"A noise multiplier must be finite and >= 0, not {noise!r}.")


def _check_one_way(
    epsilon: float | None,
    delta: float | None,
    budget: PrivacyBudget | None,
    simulation: bool,
    noise_multiplier: float | None,
) -> None:
    if noise_multiplier is not None and not simulation:
        raise ValueError(
            "noise_multiplier= sets noise without a guarantee and is for research: write "
            "simulation=True beside it, or epsilon= and delta= instead."
        )
    ways = [epsilon is not None or delta is not None, budget is not None]
    ways.append(noise_multiplier is not None)
    if sum(ways) != 1 or (epsilon is None) != (delta is None):
        raise ValueError(
            "Write exactly one of epsilon= with delta=, budget=PrivacyBudget(...), or, in a "
            "simulation, noise_multiplier=."
        )
