"""Clipped log-likelihood ratios of the records of a model, added up in whole numbers."""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pymc_dp.curator.likelihood import RecordLikelihood
from pymc_dp.curator.linear_ratios import LinearRatios
from pymc_dp.curator.penalty_kernels import (
    BatchMoments,
    batch_moments,
    clipped_count,
    clipped_total,
    two_point_total,
)
from pymc_dp.types import Vector

__all__ = ["RecordRatios"]


class RecordRatios:
    """Sums over records of the log-likelihood ratio of two points, each record's part clipped.

    Parameters
    ----------
    likelihood : RecordLikelihood
        The log-likelihood, whose data is used.

    Notes
    -----
    All are whole numbers, in units of ``bound / LEVELS``: however records are split, sums over the
    parts add up to the sum over all.
    """

    def __init__(self, likelihood: RecordLikelihood) -> None:
        self.likelihood = likelihood
        self.forget()

    def forget(self) -> None:
        """Drop what was computed from the data."""
        self._kept: list[tuple[bytes, Vector]] = []
        linear = self.__dict__.get("linear")
        if linear is not None:
            linear.forget()

    @cached_property
    def linear(self) -> LinearRatios | None:
        """The same ratios as linear functions of a record's statistics, where they are."""
        return LinearRatios.of(self.likelihood)

    def total(self, theta: Vector, proposal: Vector, bound: float) -> int:
        """Sum over all records; the likelihood at the proposal is kept for the next iteration."""
        if self.linear is not None:
            total = self.linear.total(theta, proposal, bound)
            if total is not None:
                return total
        new, old = self.likelihood(proposal), self._log_likelihood(theta)
        self._kept.append((self._key(proposal), new))
        return clipped_total(new, old, bound)

    def count(self, theta: Vector, proposal: Vector, bound: float) -> int:
        """Count the records whose ratio reaches the bound."""
        return clipped_count(self.likelihood(proposal), self.likelihood(theta), bound)

    def batch_moments(
        self, theta: Vector, proposal: Vector, bound: float, batch: NDArray[np.int64]
    ) -> BatchMoments:
        """Count some records, and add up their ratios and the squares of these."""
        return batch_moments(*self._of_batch(theta, proposal, batch), bound)

    def batch_two_point(
        self,
        theta: Vector,
        proposal: Vector,
        bound: float,
        batch: NDArray[np.int64],
        words: NDArray[np.uint64],
    ) -> int:
        """Sum over some records of ratios that are rounded at random to one of their bounds."""
        return two_point_total(*self._of_batch(theta, proposal, batch), bound, words)

    def _of_batch(
        self, theta: Vector, proposal: Vector, batch: NDArray[np.int64]
    ) -> tuple[Vector, Vector]:
        return self.likelihood.batch(proposal, batch), self.likelihood.batch(theta, batch)

    def _log_likelihood(self, theta: Vector) -> Vector:
        """Log-likelihood at the current point, kept from the iteration that proposed it."""
        here = self._key(theta)
        for kept, log_likelihood in self._kept:
            if kept == here:
                self._kept = [(kept, log_likelihood)]
                return log_likelihood
        log_likelihood = self.likelihood(theta)
        self._kept = [(here, log_likelihood)]
        return log_likelihood

    def _key(self, theta: Vector) -> bytes:
        return theta[self.likelihood.data_coordinates].tobytes()
