"""What samplers that follow noised gradients without an acceptance test share."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike, NDArray
from pymc.step_methods.compound import Competence
from pymc.util import RandomGenerator

from pymc_dp.accounting.allowance import Allowance
from pymc_dp.accounting.budget import PrivacyBudget
from pymc_dp.curator.gradient_kernels import GRADIENT_LEVELS, MOST_COORDINATES
from pymc_dp.curator.steps.base import CuratorStep
from pymc_dp.curator.steps.hmc_settings import square_root
from pymc_dp.types import Neighbours, Vector

_FAR = 8.0  # standard deviations of a Poisson batch's size that are computed in any case


class LangevinStep(CuratorStep):
    """A step along noised sums of clipped gradients, of all records or of a random batch.

    Parameters
    ----------
    vars : list, optional
        Continuous variables to move; all of the model's by default.
    clip_grad : float
        Bound on the Euclidean length of a record's gradient.
    grad_scale : float
        Factor on the gradients of the likelihood that makes up for what clipping takes from them.
        It changes the posterior: 1, or as :func:`~pymc_dp.suggest_langevin` finds it.
    step_size : float
        Size of the first steps.
    decay : float
        Step t has size ``step_size * (1 + t)**-decay``; 0 keeps it.
    inverse_mass : array_like, optional
        A rough posterior covariance from public information, which sets the coordinates in which
        the sampler moves, clips and adds noise; as of :class:`~pymc_dp.DPHMC`.
    batch_size : int, optional
        Use a fresh random batch of this many records in each iteration; or
    batch_fraction : float, optional
        one that every record joins by itself with this probability.
    batch_noise : float
        Standard deviation that batches leave in a coordinate of the gradient, as far as it is
        publicly known: in coordinates that make the posterior round about
        ``sqrt((1 - q) / q)`` times ``sqrt(tempering)``, q a record's chance to be in a batch.
    tempering : float
        Power of the likelihood.
    epsilon, delta, budget, chains, share, neighbours, simulation, noise_multiplier
        The guarantee, as of :class:`~pymc_dp.DPPenalty`.
    independent_records, public_data, model, rng, compile_kwargs, initial_point, blocked
        As of :class:`~pymc_dp.DPPenalty`.
    """

    def __init__(
        self,
        vars: Any = None,
        *,
        clip_grad: float,
        step_size: float,
        grad_scale: float = 1.0,
        decay: float = 0.0,
        inverse_mass: ArrayLike | None = None,
        batch_size: int | None = None,
        batch_fraction: float | None = None,
        batch_noise: float = 0.0,
        tempering: float = 1.0,
        epsilon: float | None = None,
        delta: float | None = None,
        budget: PrivacyBudget | None = None,
        chains: int = 4,
        share: float | None = None,
        neighbours: Neighbours | None = None,
        simulation: bool = False,
        noise_multiplier: float | None = None,
        independent_records: bool = False,
        public_data: Sequence[str] = (),
        model: pm.Model | None = None,
        rng: RandomGenerator = None,
        compile_kwargs: dict[str, Any] | None = None,
        initial_point: Any = None,
        blocked: bool = True,
    ) -> None:
        positive = {"clip_grad": clip_grad, "step_size": step_size, "grad_scale": grad_scale}
        for name, value in positive.items():
            if not 0 < value < math.inf:
                raise ValueError(f"{name} must be positive and finite, not {value!r}.")
        if not (0 <= decay <= 1 and 0 < tempering <= 1 and 0 <= batch_noise < math.inf):
            raise ValueError(
                "decay must lie in [0, 1], tempering in (0, 1], and batch_noise be finite and >= 0."
            )
        allowance = Allowance(
            epsilon=epsilon,
            delta=delta,
            budget=budget,
            chains=chains,
            share=share,
            neighbours=neighbours,
            simulation=simulation,
            noise_multiplier=noise_multiplier,
        )
        super().__init__(
            vars,
            allowance,
            model=model,
            rng=rng,
            batch_size=batch_size,
            batch_fraction=batch_fraction,
            independent_records=independent_records,
            public_data=public_data,
            compile_kwargs=compile_kwargs,
        )
        self.clip_grad, self.first_step_size = float(clip_grad), float(step_size)
        self.decay, self.tempering = float(decay), float(tempering)
        self.grad_scale = float(grad_scale)
        self.batch_noise, self.turn = float(batch_noise), 0
        self.basis = np.zeros((self.space.size, self.own.size))
        self.basis[self.own] = square_root(inverse_mass, self.own.size)
        self.data_columns = self.records.data_columns(self.basis)
        if not 0 < np.count_nonzero(self.data_columns) <= MOST_COORDINATES:
            raise ValueError(
                f"The likelihood must depend on from 1 to {MOST_COORDINATES} coordinates of this "
                "step's variables."
            )
        self.posterior_gradient = self.records.posterior_gradient(self.basis)
        self.gradients = self.records.gradients
        batch = self.fraction * self.likelihood.n_records
        self._least = math.ceil(batch + (_FAR * math.sqrt(batch) if batch_fraction else 0))

    @property
    def clips(self) -> dict[str, float]:
        """Bounds on a record's influence, by name."""
        return {"clip_grad": self.clip_grad}

    def setup_chain(self, rng: RandomGenerator, tune: int, draws: int) -> None:
        """Claim the whole chain's budget before the first look whose answer leaves."""
        super().setup_chain(rng, tune, draws)
        self.gradients.prepare(self.basis[:, self.data_columns], batches=self.fraction < 1)
        self.turn = 0

    def _next_step_size(self) -> float:
        self.turn += 1
        return self.first_step_size * self.turn**-self.decay

    def _gradient_sd(self, noise: float) -> float:
        """Tell the standard deviation of noise in a coordinate of the posterior's gradient."""
        return noise * self.tempering * self.grad_scale * self.clip_grad / self.fraction

    def _known_variance(self, noise: float) -> Vector:
        """Variance that is known to be in each coordinate of the posterior's gradient."""
        own = self._gradient_sd(noise) ** 2 + self.batch_noise**2
        return np.where(self.data_columns, own, 0.0)

    def _noisy_gradient(self, theta: Vector) -> Vector:
        """Estimate of the log-density's gradient by the sampler's coordinates."""
        if self.fraction < 1:
            n = self.likelihood.n_records
            levels = self.door.release_batch(self._batch_total(theta), GRADIENT_LEVELS, n)
        else:
            levels = self.door.release(
                lambda: self.gradients.total(theta, self.clip_grad).tolist(), GRADIENT_LEVELS
            )
        scale = self._gradient_sd(1.0) / GRADIENT_LEVELS
        return self.posterior_gradient(theta, scale * np.array(levels, dtype=float))

    def _batch_total(self, theta: Vector) -> Any:
        def look(batch: NDArray[np.int64]) -> list[int]:
            total = self.gradients.batch_total(theta, self.clip_grad, batch, self._least)
            return list(total.tolist())

        return look

    @staticmethod
    def competence(var: Any, has_grad: bool) -> Competence:
        """Never pick this step by itself: privacy is asked for, not assumed."""
        return Competence.INCOMPATIBLE
