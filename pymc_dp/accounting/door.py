"""The door: the one way by which numbers computed from confidential data leave.

A budget opens it, and claims what it costs first (:meth:`~pymc_dp.PrivacyBudget.open`). From then
on the door knows how many looks of each kind were paid for and with how much noise, adds that noise
and no other, and refuses the next look too many. What has no door cannot add noise.
"""

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from pymc_dp.accounting import noise
from pymc_dp.accounting.composition import GaussianQueries
from pymc_dp.accounting.errors import PrivacyError
from pymc_dp.numerics.batches import draw_batch

__all__ = ["Door", "closed"]


class Door:
    """Noised looks at confidential data that were paid for.

    Parameters
    ----------
    looks : sequence of GaussianQueries
        What was claimed, one for each kind of look.
    record_weight : int
        How far, in bounds on its part, one record can move a sum between neighbouring data sets.
    simulation : numpy.random.Generator, optional
        Source of reproducible noise for research. Without it noise comes from the operating system.

    Examples
    --------
    >>> import pymc_dp as pmdp
    >>> budget = pmdp.PrivacyBudget(epsilon=1.0, delta=1e-6)
    >>> door = budget.open(budget.gaussian_queries(iterations=1), "a count of records in groups")
    >>> noised = door.release(lambda: [40 * 2**20, 2 * 2**20], bound=2**20)
    >>> try:
    ...     door.release(lambda: [1], bound=1)
    ... except pmdp.PrivacyError:
    ...     print("refused")
    refused
    """

    def __init__(
        self,
        looks: Sequence[GaussianQueries],
        record_weight: int,
        simulation: np.random.Generator | None = None,
    ) -> None:
        self.looks, self.record_weight, self.generator = tuple(looks), record_weight, simulation
        self._left = [iter(range(kind.iterations)) for kind in self.looks]
        # others may have claimed at another noise
        self._owner = (os.getpid(), threading.get_ident())

    def noise(self, kind: int = 0) -> float:
        """Tell the standard deviation of the noise, in bounds on a record's part."""
        return self.looks[kind].noise_multiplier * self.record_weight

    def release(self, look: Callable[[], Sequence[int]], bound: int, kind: int = 0) -> list[int]:
        """Look at the data, and let sums over the records out with the noise that was paid for.

        Parameters
        ----------
        look : callable
            Computes sums of the records' parts, in whole numbers of a public unit. It is called
            only where it was paid for, at the price of all records.
        bound : int
            Largest Euclidean length of a record's part over all the totals, in that unit.
        kind : int
            Position of the kind of look in what was claimed.

        Returns
        -------
        list of int
            May be published.

        Raises
        ------
        PrivacyError
            Where no look of this kind is left, or in a process or thread that did not claim.
        """
        if self.looks[kind].fraction < 1:
            raise PrivacyError(
                "A look at all records was paid for at the price of a random batch: use "
                "door.release_batch, which draws it."
            )
        self._take(kind)
        return noise.release(look(), self.noise(kind) * bound, self.generator)

    def release_batch(
        self,
        look: Callable[[NDArray[np.int64]], Sequence[int]],
        bound: int,
        n_records: int,
        kind: int = 0,
    ) -> list[int]:
        """Look at a random batch, drawn here and as it was paid for.

        Parameters
        ----------
        look : callable
            Computes sums of the parts of the records whose numbers it is given.
        bound, kind : int
            As of :meth:`release`.
        n_records : int
            How many records there are to draw from.

        Returns
        -------
        list of int
            May be published; the batch, and what it was like, may not.
        """
        self._take(kind)
        paid = self.looks[kind]
        poisson = paid.sampling == "poisson"
        batch = draw_batch(n_records, paid.fraction, poisson, self.generator)
        return noise.release(look(batch), self.noise(kind) * bound, self.generator)

    def _take(self, kind: int) -> None:
        here = (os.getpid(), threading.get_ident())
        if self._owner != here or next(self._left[kind], None) is None:
            closed()

    def __reduce__(self) -> Any:
        raise PrivacyError("What was paid for does not pass to copies: open another door.")


def closed() -> NoReturn:
    """Refuse a look that was not paid for."""
    raise PrivacyError(
        "No budget was claimed for another look at the data: run a step by pm.sample or "
        "pymc_dp.sample, which tell it the number of iterations (setup_chain). Claims do not pass "
        "to copies, other threads or forked processes."
    )
