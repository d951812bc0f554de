"""DP penalty: random-walk Metropolis on noised log-likelihood ratios, corrected for the noise."""

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike, NDArray
from pymc.blocking import PointType, StatsType
from pymc.step_methods.compound import Competence, StepMethodState
from pymc.util import RandomGenerator

from pymc_dp.accounting.allowance import Allowance
from pymc_dp.accounting.budget import PrivacyBudget
from pymc_dp.accounting.levels import LEVELS
from pymc_dp.compat import dataclass_state
from pymc_dp.curator.hmc_iteration import move_length
from pymc_dp.curator.penalty_kernels import (
    NoisyRatio,
    batch_query,
    batch_sensitivity,
    log_acceptance,
)
from pymc_dp.curator.steps.hmc_settings import public_likelihood, square_root
from pymc_dp.curator.steps.penalty import PenaltyStep
from pymc_dp.types import Neighbours, Vector

Proposal = Literal["joint", "component", "guided"]


@dataclass_state
class DPPenaltyState(StepMethodState):
    """Everything a chain carries on, all of it public."""

    direction: np.ndarray


class DPPenalty(PenaltyStep):
    r"""Differentially private Metropolis sampling by the penalty method.

    Each iteration proposes a move :math:`\theta'` that does not depend on the data, clips every
    record's log-likelihood ratio to :math:`\pm b \lVert\theta' - \theta\rVert` with
    :math:`b` = ``clip_logp``, sums them, adds Gaussian noise of known standard deviation
    :math:`\sigma`, and accepts with probability
    :math:`\min\{1, \exp(\text{noisy ratio} + \Delta\ln\text{prior} - \sigma^2 / 2)\}`.
    Unless ratios are clipped, the chain keeps the exact posterior.

    Parameters
    ----------
    vars : list, optional
        Continuous variables to move; all of the model's by default.
    clip_logp : float
        Bound on a record's absolute log-likelihood ratio over the length of the move. Lengths are
        measured in the step's coordinates, PyMC's unconstrained space unless there is an
        ``inverse_mass``, over those that the likelihood depends on; or as ``public`` tells.
    step_size : float or array_like
        Standard deviation of a proposal, for all of the step's coordinates or one for each.
    inverse_mass : array_like, optional
        Public covariance matrix, or variances, that proposals are shaped like: a rough posterior
        covariance. The step's coordinates are those in which it is the identity.
    public : pymc.Model, optional
        The same model with simulated or public records observed. Moves are then measured by the
        root mean square of these records' log-likelihood ratios, which is what a record's ratio is
        to be clipped against; a length overestimates it where the posterior is curved.
    epsilon, delta : float, optional
        Guarantee for all chains together, tuning included.
    budget : PrivacyBudget, optional
        Instead of epsilon and delta, a budget to share with other steps and runs.
    chains : int
        Number of chains that share the guarantee.
    share : float, optional
        Part of the budget for this step; all that is left by default.
    neighbours : {"substitute", "add_remove"}, optional
        Which data sets are neighbours; "substitute" by default.
    proposal : {"joint", "component", "guided"}
        Move all coordinates, one at a time, or one at a time in a direction that is kept until a
        rejection (guided random walk).
    tempering : float
        Power of the likelihood; below 1 it flattens the posterior and lessens the noise's effect.
    batch_size : int, optional
        Use a fresh random batch of this many records in each iteration. The batch's own error is
        corrected for as if it were Gaussian, so the posterior is then approximate.
    independent_records : bool
        Vouch that row i of the log-likelihood depends on row i of the data alone, where the model
        has operations of which this package cannot tell.
    public_data : list of str
        Arrays without a row for each record that are public all the same: names of data containers
        (``pm.Data``), or of variables and potentials whose arrays all are.
    simulation : bool
        For research: reproducible noise from the seed, and no guarantee.
    noise_multiplier : float, optional
        Only in a simulation: the noise's standard deviation over the sensitivity.
    model, rng, compile_kwargs, initial_point, blocked
        As in PyMC's own step methods.

    Notes
    -----
    Section 3.1 of Räisä (2020), where the printed :math:`\lambda` must carry the noise, and section
    4.1 for batches (corrected, see :func:`~pymc_dp.curator.penalty_kernels.batch_query`);
    originally Yıldırım and Ermiş (2019). Coordinates that the likelihood does not depend on, such
    as hyperparameters, are moved one at a time by ordinary Metropolis steps on the prior, which
    costs nothing.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_dp as pmdp
    >>> y = np.random.default_rng(1).normal(0.5, 1, size=1000)
    >>> with pm.Model():
    ...     mu = pm.Normal("mu", 0, 10)
    ...     _ = pm.Normal("y", mu, 1, observed=y)
    ...     step = pmdp.DPPenalty(epsilon=2, delta=1e-6, chains=2, clip_logp=3, step_size=0.05)
    ...     idata = pmdp.sample(100, chains=2, cores=1, step=step, progressbar=False)
    >>> sorted(idata.children)
    ['posterior', 'sample_stats']
    """

    name = "dp_penalty"
    _state_class = DPPenaltyState
    stats_dtypes_shapes: dict[str, Any] = {  # noqa: RUF012
        "accepted": (bool, []),
        "noisy_log_ratio": (np.float64, []),
        "noise_sd": (np.float64, []),
    }

    def __init__(
        self,
        vars: Any = None,
        *,
        clip_logp: float,
        step_size: ArrayLike,
        epsilon: float | None = None,
        delta: float | None = None,
        budget: PrivacyBudget | None = None,
        chains: int = 4,
        share: float | None = None,
        neighbours: Neighbours | None = None,
        inverse_mass: ArrayLike | None = None,
        public: pm.Model | None = None,
        proposal: Proposal = "joint",
        tempering: float = 1.0,
        batch_size: int | None = None,
        batch_fraction: float | None = None,
        independent_records: bool = False,
        public_data: Sequence[str] = (),
        simulation: bool = False,
        noise_multiplier: float | None = None,
        model: pm.Model | None = None,
        rng: RandomGenerator = None,
        compile_kwargs: dict[str, Any] | None = None,
        initial_point: PointType | None = None,
        blocked: bool = True,
    ) -> None:
        if batch_fraction is not None and type(self) is DPPenalty:
            raise TypeError(
                "DPPenalty corrects for batches of a fixed size: write batch_size=, or use "
                "DPBarker."
            )
        if proposal not in get_args(Proposal):
            raise ValueError(f"proposal must be one of {get_args(Proposal)}, not {proposal!r}.")
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
        model = pm.modelcontext(model)
        super().__init__(
            vars,
            allowance,
            clip_logp=clip_logp,
            tempering=tempering,
            model=model,
            rng=rng,
            independent_records=independent_records,
            public_data=public_data,
            batch_size=batch_size,
            batch_fraction=batch_fraction,
            compile_kwargs=compile_kwargs,
        )
        self.proposal = proposal
        self.step_size = _step_sizes(step_size, self.space.size)
        self.direction = np.ones(self.space.size)
        self.public = public_likelihood(public, model, self.records)
        self._root = square_root(inverse_mass, self.own.size)
        self._inverse_root = None if inverse_mass is None else np.linalg.inv(self._root)
        basis = np.zeros((self.space.size, self.own.size))
        basis[self.own] = self._root
        self._columns = np.flatnonzero(self.records.data_columns(basis))
        self._moves = self.step_size[self.own[self._columns]] * basis[:, self._columns]
        self._forget()

    def setup_chain(self, rng: RandomGenerator, tune: int, draws: int) -> None:
        """Claim the whole chain's budget before the first look whose answer leaves."""
        super().setup_chain(rng, tune, draws)
        self.direction = np.ones(self.space.size)

    def step(self, point: PointType) -> tuple[PointType, StatsType]:
        """Move once, at the price of one noisy look at the data."""
        theta = self._arrive(point)
        proposal, column = self._propose(theta, self.rng)
        before, after = self._prior_here(theta), float(self.log_prior(proposal))
        noisy = self._look(theta, proposal, self.move_length(theta, proposal))
        accepted = self._accepts(noisy, after - before)
        if accepted:
            theta = proposal
            self._moved(theta, after)
        elif column is not None:
            self.direction[column] *= -1
        if self.prior_coordinates.size:
            theta = self._move_by_prior(theta)
        stats = {
            "accepted": accepted,
            "noisy_log_ratio": noisy.log_ratio,
            "noise_sd": noisy.sd,
        }
        return self._leave(theta, point), [stats]

    def _look(self, theta: Vector, proposal: Vector, length: float) -> NoisyRatio:
        """Noised log-likelihood ratio of all records, or what a batch says of it."""
        if self.fraction < 1:
            return self._batch_log_ratio(theta, proposal, self.bound(length))
        return self._noisy_log_ratio(theta, proposal, length)

    def _accepts(self, noisy: NoisyRatio, log_prior_ratio: float) -> bool:
        gain = log_acceptance(noisy.log_ratio, log_prior_ratio, noisy.sd, noisy.tempering)
        return bool(-self.rng.standard_exponential() < gain)

    def propose(self, theta: Vector, rng: np.random.Generator) -> Vector:
        """Propose a move, which does not depend on the data."""
        return self._propose(theta, rng)[0]

    def _propose(self, theta: Vector, rng: np.random.Generator) -> tuple[Vector, int | None]:
        if self.proposal == "joint":
            return theta + self._moves.dot(rng.standard_normal(self._columns.size)), None
        column = int(rng.integers(self._columns.size))
        move = rng.normal()
        if self.proposal == "guided":
            move = self.direction[column] * abs(move)
        proposal = theta + self._moves[:, column] * move
        return proposal, column if self.proposal == "guided" else None

    def move_length(self, theta: Vector, proposal: Vector) -> float:
        """Length of a move in the step's coordinates, or as public records tell it."""
        move = proposal - theta
        if self._inverse_root is not None:
            move = (self._inverse_root @ move[self.own])[self._columns]
        return move_length(theta, proposal, move, self.public)

    def _batch_log_ratio(self, theta: Vector, proposal: Vector, bound: float) -> NoisyRatio:
        assert self.batch_size is not None
        n, size = self.likelihood.n_records, self.batch_size
        # a record moves it by the sensitivity: from one bound on its part to the other
        sensitivity = batch_sensitivity(size, bound, n, self.tempering)
        part = sensitivity / self.door.record_weight

        def look(index: NDArray[np.int64]) -> list[int]:
            moments = self.records.ratios.batch_moments(theta, proposal, bound, index)
            query = batch_query(moments, bound, n, self.tempering)
            return [round(query.value / part * LEVELS)]

        (level,) = self.door.release_batch(look, LEVELS, n)
        return NoisyRatio(level / LEVELS * part, self.door.noise() * part, 1.0)

    def _move_by_prior(self, theta: Vector) -> Vector:
        """One Metropolis sweep over the coordinates that only the public part depends on."""
        before = self._prior_here(theta)
        scales = self.step_size.copy()
        scales[self.own] *= np.linalg.norm(self._root, axis=1)
        for coordinate in self.prior_coordinates:
            proposal = theta.copy()
            proposal[coordinate] += scales[coordinate] * self.rng.normal()
            after = float(self.log_prior(proposal))
            if np.log(self.rng.uniform()) < after - before:
                theta, before = proposal, after
                self._moved(theta, after)
        return theta

    @staticmethod
    def competence(var: Any, has_grad: bool) -> Competence:
        """Never pick this step by itself: privacy is asked for, not assumed."""
        return Competence.INCOMPATIBLE


def _step_sizes(step_size: ArrayLike, size: int) -> Vector:
    sizes = np.asarray(step_size, dtype=float)
    if sizes.ndim > 1 or (sizes.ndim == 1 and sizes.size != size):
        raise ValueError(
            f"step_size must be a number or one for each of the {size} unconstrained coordinates, "
            f"not of shape {sizes.shape}."
        )
    if not np.all((sizes > 0) & np.isfinite(sizes)):
        raise ValueError(f"step_size must be positive and finite, not {step_size!r}.")
    return np.broadcast_to(sizes, (size,)).copy()
