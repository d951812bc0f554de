"""Tuning: step sizes learned from acceptance, and when windows of tuning close."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["DualAveraging", "window_closes"]


def window_closes(count: int, tune: int, shares: Sequence[float]) -> bool:
    """Whether iteration `count` of `tune` is the last of a window, which end after these shares."""
    return count in [int(share * tune) for share in shares]


@dataclass
class DualAveraging:
    """Dual averaging of a leapfrog step size (Hoffman & Gelman 2014, section 3.2).

    Attributes
    ----------
    step_size : float
        For the next trajectory.
    longest : float
        Steps never get longer.
    """

    step_size: float
    longest: float
    centre: float = 0.0
    gap: float = 0.0
    log_average: float = 0.0
    count: int = 0

    def learn(self, accept: float, target: float) -> None:
        """Adapt to the acceptance of one more trajectory."""
        self.count += 1
        weight = 1 / (self.count + 10)
        self.gap = (1 - weight) * self.gap + weight * (target - accept)
        log_step = self.centre - np.sqrt(self.count) / 0.05 * self.gap
        share = self.count**-0.75
        self.log_average = share * log_step + (1 - share) * self.log_average
        self.step_size = float(np.exp(np.clip(log_step, -12, np.log(self.longest))))

    def restart(self, near: float) -> None:
        """Learn again, starting near a step size."""
        self.centre, self.gap, self.count = float(np.log(near)), 0.0, 0

    def freeze(self) -> None:
        """Take the average of what was learned."""
        if self.count:
            self.step_size = float(np.exp(min(self.log_average, np.log(self.longest))))
            self.count = 0
