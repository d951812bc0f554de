"""DP-HMC: Hamiltonian proposals from noised gradients, accepted by noised log-likelihood ratios."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike
from pymc.blocking import PointType, StatsType
from pymc.step_methods.compound import Competence, StepMethodState
from pymc.util import RandomGenerator

from pymc_dp.accounting.allowance import Allowance
from pymc_dp.accounting.budget import PrivacyBudget
from pymc_dp.compat import dataclass_state
from pymc_dp.curator.gradient_kernels import GRADIENT_LEVELS, MOST_COORDINATES
from pymc_dp.curator.hmc_iteration import hmc_iteration, move_length
from pymc_dp.curator.steps.hmc_settings import HMCSettings, public_likelihood, square_root
from pymc_dp.curator.steps.penalty import PenaltyStep
from pymc_dp.types import Matrix, Neighbours, Vector

GRADIENTS = 1  # the second kind of looks
_FIRST_STEPS = 0.1  # size of a chain's first steps, from which they grow while it is tuned


@dataclass_state
class DPHMCState(StepMethodState):
    """Everything a chain carries on, all of it public."""

    jitter_turn: int
    jitter_shift: float


class DPHMC(PenaltyStep):
    r"""Differentially private Hamiltonian Monte Carlo.

    Each iteration draws a momentum and follows ``n_leapfrog`` leapfrog steps. Every gradient on the
    way is the sum of the records' gradients, each clipped to length ``clip_grad``, with fresh
    Gaussian noise, plus the prior's own. The end is accepted by the penalty method, on a noised
    log-likelihood ratio with each record's part clipped to ``clip_logp`` times the length of the
    move. Neither the gradients' noise nor their clipping changes the posterior; clipped ratios do.

    Parameters
    ----------
    vars : list, optional
        Continuous variables to move; all of the model's by default.
    settings : HMCSettings, optional
        The following ones as a value, from :func:`~pymc_dp.suggest_hmc`; arguments override it.
    clip_logp : float
        Bound on a record's absolute log-likelihood ratio over the length of the move.
    clip_grad : float
        Bound on the Euclidean length of a record's gradient.
    public : pymc.Model, optional
        The same model with simulated or public records observed. With it, ``clip_logp`` bounds a
        record's absolute log-likelihood ratio over the root mean square of the ratios of these
        records, which follow the shape of the posterior where a length does not.
    step_size : float
        Size of a leapfrog step.
    n_leapfrog : int, optional
        Leapfrog steps of an iteration; or
    path_length : float, optional
        the length of a trajectory, from which ``n_leapfrog`` is ``path_length / step_size``.
    inverse_mass : array_like, optional
        A rough posterior covariance from public information: one number, one variance for each
        unconstrained coordinate of ``vars`` or a matrix. The sampler moves in the coordinates in
        which this is the identity, and it is there that lengths, gradients and their bounds are
        measured and noise is added.
    epsilon, delta : float, optional
        Guarantee for all chains together, tuning included.
    budget : PrivacyBudget, optional
        Instead of epsilon and delta, a budget to share with other steps and runs.
    chains : int
        Number of chains that share the guarantee.
    share : float, optional
        Part of the budget for this step; all that is left by default.
    grad_share : float
        Part of the step's spending that goes to gradients.
    grad_scale : float
        Factor on the noised gradients of the likelihood. Above 1 it makes up for what clipping
        takes away; any value leaves the posterior as it is.
    jitter : float
        Steps of an iteration are ``step_size`` times a number from ``[1 - jitter, 1 + jitter)``, in
        a randomised Halton sequence.
    neighbours : {"substitute", "add_remove"}, optional
        Which data sets are neighbours; "substitute" by default.
    tempering : float
        Power of the likelihood; below 1 it flattens the posterior and lessens the noise's effect.
    independent_records : bool
        Vouch that row i of the log-likelihood depends on row i of the data alone, where the model
        has operations of which this package cannot tell.
    public_data : list of str
        Arrays without a row for each record that are public all the same: names of data containers
        (``pm.Data``), or of variables and potentials whose arrays all are.
    simulation : bool
        For research: reproducible noise from the seed, and no guarantee.
    noise_multiplier, grad_noise_multiplier : float, optional
        Only in a simulation: noise over sensitivity (the paper's tau) of ratios and of gradients.
    model, rng, compile_kwargs, initial_point, blocked
        As in PyMC's own step methods.

    Notes
    -----
    Algorithm 1 and Theorems 3.3 to 3.5 of Räisä et al. (2021), with the sign of the noisy leapfrog
    corrected (it prints :math:`p - s(g + \xi)` for a gradient g of the log-density). K iterations
    look at K ratios and K (L + 1) fresh gradients and cost
    :math:`\mu = K / (2 \tau_l^2) + K (L + 1) / (2 \tau_g^2)`. By default both kinds cost the same
    in all; the split that :func:`~pymc_dp.suggest_hmc` finds has been from .35 to .65. The
    paper's steps are jittered over [0, 2) times their mean; a tenth of those hardly move and cost
    as much, hence the milder default here. In the first half of tuning (``tune=`` of
    ``pm.sample``) steps grow from a tenth to their size, so that a chain finds its way from
    places where the posterior is steeper than where it is large.

    Coordinates that the likelihood does not depend on follow the prior's gradient, at no cost. A
    trajectory that leaves the floating-point numbers, or the prior's support, is rejected, which
    only public numbers decide.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_dp as pmdp
    >>> y = np.random.default_rng(1).normal(0, 1, size=10_000)
    >>> with pm.Model():
    ...     mu = pm.Normal("mu", 0, 1)
    ...     _ = pm.Normal("y", mu, 1, observed=y)
    ...     settings = {"clip_logp": 3, "clip_grad": 2, "step_size": 0.006, "n_leapfrog": 3}
    ...     step = pmdp.DPHMC(epsilon=8, delta=1e-6, chains=2, **settings)
    ...     idata = pmdp.sample(100, chains=2, cores=1, step=step, progressbar=False)
    >>> sorted(idata.children)
    ['posterior', 'sample_stats']
    """

    name = "dp_hmc"
    _state_class = DPHMCState
    stats_dtypes_shapes: dict[str, Any] = {  # noqa: RUF012
        "accepted": (bool, []),
        "diverging": (bool, []),
        "step_size": (np.float64, []),
        "noisy_log_ratio": (np.float64, []),
        "noise_sd": (np.float64, []),
        "grad_noise_sd": (np.float64, []),
    }

    def __init__(
        self,
        vars: Any = None,
        *,
        settings: HMCSettings | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        budget: PrivacyBudget | None = None,
        chains: int = 4,
        share: float | None = None,
        neighbours: Neighbours | None = None,
        independent_records: bool = False,
        public_data: Sequence[str] = (),
        simulation: bool = False,
        noise_multiplier: float | None = None,
        grad_noise_multiplier: float | None = None,
        model: pm.Model | None = None,
        rng: RandomGenerator = None,
        compile_kwargs: dict[str, Any] | None = None,
        initial_point: PointType | None = None,
        blocked: bool = True,
        **keywords: Any,
    ) -> None:
        settings = HMCSettings.of(settings, **keywords)
        allowance = Allowance(
            epsilon=epsilon,
            delta=delta,
            budget=budget,
            chains=chains,
            share=share,
            neighbours=neighbours,
            simulation=simulation,
            noise_multiplier=noise_multiplier,
            grad_share=settings.grad_share,
            grad_noise_multiplier=grad_noise_multiplier,
        )
        model = pm.modelcontext(model)
        super().__init__(
            vars,
            allowance,
            clip_logp=settings.clip_logp,
            tempering=settings.tempering,
            model=model,
            rng=rng,
            independent_records=independent_records,
            public_data=public_data,
            compile_kwargs=compile_kwargs,
        )
        self.step_size, self.n_leapfrog = settings.step_size, settings.n_leapfrog
        self.clip_grad, self.grad_scale = settings.clip_grad, settings.grad_scale
        self.jitter, self.jitter_turn, self.jitter_shift = settings.jitter, 0, 0.0
        self.warm_up = 0
        self.gradients_per_iteration = self.n_leapfrog + 1
        self.basis = self._basis(settings.inverse_mass)
        self.data_columns = self.records.data_columns(self.basis)
        if np.count_nonzero(self.data_columns) > MOST_COORDINATES:
            raise ValueError(
                f"The likelihood may depend on {MOST_COORDINATES} coordinates at most."
            )
        self.posterior_gradient = self.records.posterior_gradient(self.basis)
        self.gradients = self.records.gradients
        self.public = public_likelihood(settings.public, model, self.records)
        self._totals: dict[bytes, list[int]] = {}
        self._forget()

    @property
    def clips(self) -> dict[str, float]:
        """Bounds on a record's influence, by name."""
        return {"clip_logp": self.clip_logp, "clip_grad": self.clip_grad}

    def _basis(self, inverse_mass: ArrayLike | None) -> Matrix:
        """Columns are the sampler's coordinates, in the model's own."""
        basis = np.zeros((self.space.size, self.own.size))
        basis[self.own] = square_root(inverse_mass, self.own.size)
        return basis

    def setup_chain(self, rng: RandomGenerator, tune: int, draws: int) -> None:
        """Claim the whole chain's budget before the first look whose answer leaves."""
        super().setup_chain(rng, tune, draws)
        self.gradients.prepare(self.basis[:, self.data_columns])
        self.jitter_turn, self.jitter_shift = 0, float(self.rng.random())
        self.warm_up = tune // 2

    def step(self, point: PointType) -> tuple[PointType, StatsType]:
        """Move once, at the price of ``n_leapfrog + 1`` noised gradients and a noised ratio."""
        theta = self._arrive(point)
        self._totals = {key: kept for key, kept in self._totals.items() if key == theta.tobytes()}
        momentum = self.rng.normal(size=self.data_columns.size)
        step_size = self._next_step_size()
        proposal = hmc_iteration(
            theta,
            momentum,
            step_size,
            self.n_leapfrog,
            basis=self.basis,
            gradient=self._noisy_gradient,
            noisy_log_ratio=self._noisy_log_ratio,
            log_prior=self.log_prior,
            log_prior_here=self._prior_here(theta),
            length=self._length,
        )
        # a trajectory that diverged is rejected for certain, and takes no chance
        accepted = not proposal.diverged and bool(
            -self.rng.standard_exponential() < proposal.log_acceptance
        )
        if accepted:
            theta = proposal.theta
            self._moved(theta, proposal.log_prior)
        stats = {
            "accepted": accepted,
            "diverging": proposal.diverged,
            "step_size": step_size,
            "noisy_log_ratio": proposal.ratio.log_ratio,
            "noise_sd": proposal.ratio.sd,
            "grad_noise_sd": self.door.noise(GRADIENTS) * self.clip_grad,
        }
        return self._leave(theta, point), [stats]

    def _noisy_gradient(self, theta: Vector) -> Vector:
        """Gradient of the log-density by the sampler's coordinates, noised afresh."""
        levels = self.door.release(lambda: self._total(theta), GRADIENT_LEVELS, GRADIENTS)
        scale = self.tempering * self.grad_scale * self.clip_grad / GRADIENT_LEVELS
        return self.posterior_gradient(theta, np.array([scale * level for level in levels]))

    def _total(self, theta: Vector) -> list[int]:
        """Clipped sum of the records' gradients; kept, since a trajectory starts at a known end."""
        here = theta.tobytes()
        if here not in self._totals:
            self._totals[here] = self.gradients.total(theta, self.clip_grad).tolist()
        return self._totals[here]

    def _forget(self) -> None:
        super()._forget()
        self._totals = {}

    def _next_step_size(self) -> float:
        """Take the next of a randomised Halton sequence of base 2."""
        missing = max(0.0, 1 - self.jitter_turn / self.warm_up) if self.warm_up else 0.0
        self.jitter_turn += 1
        fraction, place, turn = self.jitter_shift, 0.5, self.jitter_turn
        while turn:
            fraction, place, turn = fraction + place * (turn & 1), place / 2, turn >> 1
        jittered = self.step_size * (1 + self.jitter * (2 * (fraction % 1) - 1))
        return jittered * _FIRST_STEPS**missing

    def propose(self, theta: Vector, rng: np.random.Generator) -> Vector:
        """Propose a move as long as a free trajectory, which does not depend on the data."""
        length = self.step_size * self.n_leapfrog
        return theta + self.basis @ (length * rng.normal(size=self.data_columns.size))

    def move_length(self, theta: Vector, proposal: Vector) -> float:
        """Length of a move in the sampler's coordinates, or as public records tell it."""
        move, *_ = np.linalg.lstsq(self.basis, proposal - theta, rcond=None)
        return self._length(theta, proposal, move)

    def _length(self, theta: Vector, proposal: Vector, displacement: Vector) -> float:
        return move_length(theta, proposal, displacement[self.data_columns], self.public)

    @staticmethod
    def competence(var: Any, has_grad: bool) -> Competence:
        """Never pick this step by itself: privacy is asked for, not assumed."""
        return Competence.INCOMPATIBLE


class DPMALA(DPHMC):
    r"""Differentially private Metropolis-adjusted Langevin algorithm, DP-HMC of one step.

    Parameters
    ----------
    vars : list, optional
        Continuous variables to move; all of the model's by default.
    step_size : float
        Standard deviation of a proposal without its drift.
    **kwargs
        As of :class:`DPHMC`, but for ``n_leapfrog`` and ``path_length``.

    Notes
    -----
    Section 4.2 of Räisä (2020) noises the log-ratio of the proposal's densities, which depends on
    all records through the drift: its sensitivity grows with the summed gradient, in the worst case
    with the number of records (the thesis's bound holds :math:`(n - 1) \sigma_p^2 L_g^2 / a`). One
    leapfrog step proposes the same move but keeps the momentum, whose change is public once the
    gradients are noised, so the ratio of densities need not be looked at. It pays for a second
    gradient instead. In ``benchmarks/raisa2021_mala.py`` this dominates the thesis's algorithm,
    also with the summed gradient bounded.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dp as pmdp
    >>> with pm.Model():
    ...     mu = pm.Normal("mu", 0, 1)
    ...     _ = pm.Normal("y", mu, 1, observed=[0.3, -0.2, 1.1])
    ...     step = pmdp.DPMALA(epsilon=1, delta=1e-6, clip_logp=3, clip_grad=3, step_size=0.5)
    >>> step.n_leapfrog
    1
    """

    name = "dp_mala"

    def __init__(self, vars: Any = None, *, step_size: float, **kwargs: Any) -> None:
        if extra := {"n_leapfrog", "path_length"} & set(kwargs):
            raise TypeError(f"DPMALA takes one step: leave {extra.pop()} out, or use DPHMC.")
        super().__init__(vars, step_size=step_size, n_leapfrog=1, **kwargs)
