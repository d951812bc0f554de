"""What the compiled NUTS learns while tuning: the shape of the posterior and a step size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pymc_dp.numerics.dual_averaging import DualAveraging
from pymc_dp.types import Array

__all__ = ["NUTSTuning"]


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
        Lower triangular; the sampler moves in coordinates q of ``theta + factor @ q``.
    """

    factor: Array
    step: DualAveraging
    draws: list[Array]
    tune: int
    count: int = 0

    @classmethod
    def start(cls, size: int, tune: int) -> NUTSTuning:
        """Begin a chain of `tune` iterations of tuning, in the coordinates of the parameters."""
        step = DualAveraging(step_size=0.1, longest=2.0, centre=float(np.log(0.5)))
        return cls(factor=np.eye(size), step=step, draws=[], tune=tune)

    @property
    def active(self) -> bool:
        """Whether the chain is still being tuned."""
        return self.count < self.tune

    @property
    def doublings(self) -> int:
        """How often a trajectory may be doubled."""
        early = self.active and self.count < WINDOWS[1] * self.tune
        return FIRST_DOUBLINGS if early else MOST_DOUBLINGS

    def learn(self, theta: Array, accept: float, target: float) -> None:
        """Adapt to one more iteration."""
        self.count += 1
        self.step.learn(accept, target)
        self.draws.append(theta.copy())
        if self.count in [int(share * self.tune) for share in WINDOWS]:
            self._learn_shape()
            self.step.restart(near=1.0)
            self.draws = []

    def _learn_shape(self) -> None:
        number, size = len(self.draws), len(self.factor)
        if number < 2:
            return
        cov = np.atleast_2d(np.cov(np.array(self.draws).T))
        before = np.diag(np.sum(self.factor**2, axis=1))
        if number < DRAWS_A_PARAMETER * size:
            cov = np.diag(np.diag(cov))
        else:  # correlations of few draws are too large
            cov = (number * cov + size * np.diag(np.diag(cov))) / (number + size)
        shape = (number * cov + WEIGHT_BEFORE * before) / (number + WEIGHT_BEFORE)
        self.factor = np.linalg.cholesky(shape)

    def freeze(self) -> None:
        """End of tuning."""
        self.step.freeze()
        self.tune, self.draws = self.count, []
