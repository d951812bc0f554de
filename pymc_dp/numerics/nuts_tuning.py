"""Chains of the compiled NUTS: what they learn while tuning, and how one is run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_dp.compat import jit_function
from pymc_dp.numerics.compiled import graph_key, joined_key
from pymc_dp.numerics.dual_averaging import DualAveraging, window_closes
from pymc_dp.numerics.nuts import ACCEPT, REPORT_SIZE, make_nuts
from pymc_dp.types import Array, Matrix, Vector

__all__ = ["NUTSTuning", "compiled_nuts", "run_nuts"]


#: shares of tuning after which the shape is learned anew, each time from the draws since the last
WINDOWS = (0.1, 0.25, 0.45, 0.75)
#: doublings of a trajectory before the shape is known, when steps may be far too small, and after
FIRST_DOUBLINGS, MOST_DOUBLINGS = 6, 10
#: draws for every parameter that correlations need; with fewer, only scales are learned
DRAWS_A_PARAMETER = 4
#: draws that the last shape counts for when a new one is learned: it may be far too wide
WEIGHT_BEFORE = 0.005


@dataclass
class NUTSTuning:
    """Factor of the mass matrix' inverse, and step size.

    Attributes
    ----------
    factor : ndarray
        Lower triangular, or a vector for a diagonal one; the sampler moves in coordinates q of
        ``theta + factor @ q``.
    trusted : bool
        Whether the first factor stays until there are draws enough for correlations.
    """

    factor: Array
    step: DualAveraging
    draws: list[Array]
    tune: int
    count: int = 0
    trusted: bool = False

    @classmethod
    def start(cls, size: int, tune: int) -> NUTSTuning:
        """Begin a chain of `tune` iterations of tuning, in the coordinates of the parameters."""
        step = DualAveraging(step_size=0.1, longest=2.0, centre=float(np.log(0.5)))
        return cls(factor=np.ones(size), step=step, draws=[], tune=tune)

    @property
    def metric(self) -> Array:
        """The factor in blocks, as :mod:`~pymc_dp.numerics.leapfrog` takes it."""
        diagonal = self.factor.ndim == 1
        return self.factor[:, np.newaxis, np.newaxis] if diagonal else self.factor[np.newaxis]

    @property
    def active(self) -> bool:
        """Whether the chain is still being tuned."""
        return self.count < self.tune

    @property
    def doublings(self) -> int:
        """How often a trajectory may be doubled."""
        early = self.active and self.count < WINDOWS[1] * self.tune
        return FIRST_DOUBLINGS if early else MOST_DOUBLINGS

    def move(
        self, nuts: Callable[..., None], rng: np.random.Generator, theta: Vector, given: Vector
    ) -> Vector:
        """Move `theta` once, in place; the report is that of :func:`make_nuts`."""
        report = np.empty(REPORT_SIZE)
        nuts(rng, theta, given, self.metric, self.step.step_size, self.doublings, report)
        return report

    def learn(self, theta: Array, accept: float, target: float) -> None:
        """Adapt to one more iteration."""
        self.count += 1
        self.step.learn(accept, target)
        self.draws.append(theta.copy())
        if window_closes(self.count, self.tune, WINDOWS):
            self._learn_shape()
            self.step.restart(near=1.0)
            self.draws = []

    def _learn_shape(self) -> None:
        number, size = len(self.draws), len(self.factor)
        few = number < DRAWS_A_PARAMETER * size
        if number < 2 or (few and self.trusted):
            return
        draws = np.array(self.draws)
        before = self.factor**2 if self.factor.ndim == 1 else np.sum(self.factor**2, axis=1)
        scales = (number * draws.var(axis=0, ddof=1) + WEIGHT_BEFORE * before) / (
            number + WEIGHT_BEFORE
        )
        if few:
            self.factor = np.sqrt(scales)
            return
        # correlations of few draws are too large
        cov = number / (number + size) * np.atleast_2d(np.cov(draws.T))
        np.fill_diagonal(cov, scales)
        self.factor = np.linalg.cholesky(cov)

    def freeze(self) -> None:
        """End of tuning."""
        self.step.freeze()
        self.tune, self.draws = self.count, []


def compiled_nuts(density: Any) -> Callable[..., None]:
    """Compile :func:`~pymc_dp.numerics.nuts.make_nuts` for a PyTensor function in numba's mode."""
    return make_nuts(jit_function(density), joined_key([make_nuts], graph_key([density])))


def run_nuts(
    density: Any,
    start: Vector,
    given: Vector,
    factor: Matrix,
    *,
    tune: int,
    draws: int,
    target_accept: float,
    rng: np.random.Generator,
) -> Matrix:
    """Run a whole chain, and return its draws after tuning, one a row.

    Parameters
    ----------
    density : callable
        PyTensor function of ``(theta, given)`` in numba's mode: log-density and gradient.
    start, given : ndarray
        Where the chain starts, and what else the density takes.
    factor : ndarray
        Lower triangular; the first guess at a factor of the covariance.
    tune, draws : int
        Number of iterations.
    target_accept : float
        Of the step size.
    rng : Generator
        Source of randomness.
    """
    nuts, theta = compiled_nuts(density), start.copy()
    tuning = NUTSTuning.start(theta.size, tune)
    tuning.factor = factor
    for _ in range(tune):
        report = tuning.move(nuts, rng, theta, given)
        tuning.learn(theta, float(report[ACCEPT]), target_accept)
    tuning.freeze()
    found = np.empty((draws, theta.size))
    for draw in found:
        tuning.move(nuts, rng, theta, given)
        draw[:] = theta
    return found
