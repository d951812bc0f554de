"""What steps by the penalty method share: a noised log-likelihood ratio, and what is kept of it."""

from typing import Any

import numpy as np

from pymc_dp.accounting.levels import LEVELS
from pymc_dp.curator.penalty_kernels import NoisyRatio, ratio_bound
from pymc_dp.curator.steps.base import CuratorStep
from pymc_dp.types import Vector


def check_penalty(clip_logp: float, tempering: float) -> None:
    """Refuse what no noised ratio can be made with."""
    if not (0 < clip_logp < np.inf and 0 < tempering <= 1):
        raise ValueError("clip_logp must be positive and finite, and tempering in (0, 1].")


class PenaltyStep(CuratorStep):
    """A step that accepts moves by noised log-likelihood ratios, corrected for the noise.

    Parameters
    ----------
    clip_logp : float
        Bound on a record's absolute log-likelihood ratio over the length of the move.
    tempering : float
        Power of the likelihood.
    *args, **kwargs
        As of :class:`~pymc_dp.curator.steps.base.CuratorStep`.
    """

    def __init__(self, *args: Any, clip_logp: float, tempering: float, **kwargs: Any) -> None:
        check_penalty(clip_logp, tempering)
        super().__init__(*args, **kwargs)
        if self.data_coordinates.size == 0:
            raise ValueError("The likelihood depends on none of this step's variables.")
        self.clip_logp, self.tempering = float(clip_logp), float(tempering)

    @property
    def clips(self) -> dict[str, float]:
        """Bounds on a record's influence, by name."""
        return {"clip_logp": self.clip_logp}

    def _forget(self) -> None:
        self.records.ratios.forget()
        self._prior: tuple[bytes, float] | None = None

    def propose(self, theta: Vector, rng: np.random.Generator) -> Vector:
        """Propose a move like the step's own, which does not depend on the data."""
        raise NotImplementedError

    def move_length(self, theta: Vector, proposal: Vector) -> float:
        """Length of a move, in units of which ``clip_logp`` bounds a record's influence."""
        raise NotImplementedError

    def bound(self, length: float) -> float:
        """Largest absolute log-ratio of a record that a move of this length lets through."""
        return ratio_bound(self.clip_logp, length)

    def _noisy_log_ratio(self, theta: Vector, proposal: Vector, length: float) -> NoisyRatio:
        bound = self.bound(length)
        ratios = self.records.ratios
        (level,) = self.door.release(lambda: [ratios.total(theta, proposal, bound)], LEVELS)
        return NoisyRatio(level / LEVELS * bound, self.door.noise() * bound, self.tempering)

    def _prior_here(self, theta: Vector) -> float:
        if self._prior is None or self._prior[0] != theta.tobytes():
            self._prior = (theta.tobytes(), float(self.log_prior(theta)))
        return self._prior[1]

    def _moved(self, theta: Vector, log_prior: float) -> None:
        """Keep the log-prior of an accepted point."""
        self._prior = (theta.tobytes(), log_prior)
