"""Settings for DPHMC from synthetic data: the sampler is tried where nothing is confidential."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pymc as pm

from pymc_dp.accounting.budget import record_weight
from pymc_dp.accounting.gaussian import gaussian_mu
from pymc_dp.accounting.levels import LEVELS
from pymc_dp.curator.forecast import tell_if_few
from pymc_dp.curator.gradient_kernels import GRADIENT_LEVELS
from pymc_dp.curator.hmc_iteration import hmc_iteration, move_length
from pymc_dp.curator.penalty_kernels import NoisyRatio, clipped_total, ratio_bound
from pymc_dp.curator.plan.clipping import ClipBound, choose_bound
from pymc_dp.curator.plan.synthetic import (
    SyntheticPosterior,
    covariance,
    moves_between_draws,
    synthetic_models,
)
from pymc_dp.curator.steps.hmc_settings import HMCSettings
from pymc_dp.types import Matrix, Neighbours, Vector

_TRIALS = 288  # single iterations by which a setting is judged
_MOST_CLIPPED = 0.05  # fraction of log-ratios
# effective draws are about this times n mu / (bound^2 dim), the bound in root mean squares of a
# ratio and times the records' weight: so forecast for logistic models at n = 1e5 and 1e6
_DRAWS_PER_RECORD = 0.15


class HMCSuggestion(NamedTuple):
    """Settings for :class:`~pymc_dp.DPHMC`; ``draws`` is for each chain.

    ``settings`` is the part to write into the step, ``DPHMC(..., **found.settings)``.
    """

    settings: HMCSettings
    draws: int
    acceptance: float
    effective_draws: float
    clip_shift: float


def suggest_hmc(
    epsilon: float,
    delta: float,
    *,
    n: int,
    synthetic: pm.Model | Sequence[pm.Model] | None = None,
    dim: int | None = None,
    prior_sd: float = 1.0,
    chains: int = 4,
    neighbours: Neighbours = "substitute",
    start: dict[str, Any] | None = None,
    random_seed: int = 0,
) -> HMCSuggestion:
    """Propose settings for DP-HMC without looking at the confidential data.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee for all chains together.
    n : int
        Number of confidential records (roughly, if it is not public).
    synthetic : pymc.Model or list of them, optional
        The same model with simulated or public records observed, some thousands at least; or
        several such models, for settings that suit all of them. They are read freely: never pass
        the confidential data here. Records of the model in context, or of one that a curator's step
        was made for, are recognised and refused.
    dim, prior_sd : int, float
        Without synthetic data, the number of unconstrained parameters and the prior's standard
        deviation; a record is then taken to tell as much as the prior does.
    chains : int
        Number of chains.
    neighbours : {"substitute", "add_remove"}
        Neighbour relation.
    start : dict, optional
        Public point (as of ``model.initial_point()``) to look for the synthetic posterior from.
    random_seed : int
        Of the trials.

    Returns
    -------
    HMCSuggestion
        ``effective_draws`` is a forecast for all chains together, the way from the start not
        counted; below a hundred or so, the budget is too small for sampling. ``clip_shift`` is how
        far the clip of ratios moves the posterior, in its standard deviations, root mean square
        over coordinates.

    Notes
    -----
    Synthetic records are weighted up to n. Their posterior is sampled by NUTS, and its
    covariance (the mean of several) becomes the inverse mass. Ratios are clipped where the mean
    square error of posterior means is least: the square of the shift by which clipped log-ratios
    between its draws tilt it, plus one over the effective draws that the noise leaves. Gradients
    are clipped where noise over signal is least, and scaled up by what the clip takes away. Numbers
    of iterations and steps, step size and split of the budget are then searched one after the other
    for the most effective draws, by single iterations of the private sampler from draws of the
    synthetic posterior.

    Examples
    --------
    >>> import pymc_dp as pmdp
    >>> found = pmdp.suggest_hmc(4.0, 1e-6, n=100_000, dim=2)
    >>> found.effective_draws > 100, found.settings.n_leapfrog >= 1
    (True, True)
    """
    models = synthetic_models(synthetic, dim, prior_sd)
    public = models[0] if synthetic else None
    rng = np.random.default_rng(random_seed)
    with np.errstate(all="ignore"):  # trajectories that diverge
        targets = [SyntheticPosterior(model, n, start, rng) for model in models]
        trial = _Trial(targets, public, math.sqrt(2 * gaussian_mu(epsilon, delta)), neighbours)
        found = trial.searched(chains)
    tell_if_few(found.effective_draws, "suggest_hmc")
    return found


class _Setting(NamedTuple):
    log_iterations: float
    log_steps: float
    log_path: float
    share: float


def _clipped(jacobian: Matrix, bound: float) -> Matrix:
    lengths = np.linalg.norm(jacobian, axis=0)
    return jacobian * np.minimum(1, bound / np.maximum(lengths, 1e-300))


class _Trial:
    """The private sampler, tried on synthetic posteriors one iteration at a time."""

    def __init__(
        self,
        targets: Sequence[SyntheticPosterior],
        public: pm.Model | None,
        root_mu: float,
        neighbours: Neighbours,
    ) -> None:
        self.root_mu, self.weight, self.public = root_mu, record_weight(neighbours), public
        self._public_logp = None if public is None else targets[0].records.likelihood
        self.mass = np.mean([covariance(target.draws) for target in targets], axis=0)
        self.root = np.linalg.cholesky(self.mass)
        for target in targets:
            target.use_basis(self.root)
        rng = np.random.default_rng(1)
        self.starts = [
            (target, target.draws[rng.integers(len(target.draws))])
            for _ in range(_TRIALS // len(targets))
            for target in targets
        ]
        self.clip_logp, self.clip_shift = self._ratio_clip(targets, rng)
        self.clip_grad, self.grad_scale = self._gradient_clip()

    def _ratio_clip(
        self, targets: Sequence[SyntheticPosterior], rng: np.random.Generator
    ) -> ClipBound:
        """Weigh what clipping does to log-ratios between draws against the noise."""

        def length(target: SyntheticPosterior, one: Vector, other: Vector) -> float:
            return self._length(target, one, other, np.linalg.solve(self.root, one - other))

        moves = moves_between_draws(targets, length, rng)
        dim, n = len(self.mass), targets[0].n
        draws = _DRAWS_PER_RECORD * n * self.root_mu**2 / 2 / (self.weight**2 * dim)
        # two draws are apart by the root of two standard deviations in each coordinate
        return choose_bound(moves, 2 * dim, 1 / draws, _MOST_CLIPPED)

    def _length(
        self, target: SyntheticPosterior, start: Vector, end: Vector, displacement: Vector
    ) -> float:
        """Length of a move, as the step will measure it."""
        return move_length(start, end, displacement[target.data_columns], self._public_logp)

    def _gradient_clip(self) -> tuple[float, float]:
        """Find the bound at which noise is least against what is left of the gradients."""
        pairs = [
            (np.hstack(list(target.records.gradients.jacobians(theta))), target.weight)
            for target, theta in self.starts[:32]
        ]
        lengths = np.concatenate([np.linalg.norm(j, axis=0) for j, _ in pairs])
        whole = np.array([weight * j.sum(axis=1) for j, weight in pairs])
        apart = whole - whole.mean(axis=0)
        best = (math.inf, 1.0, 1.0)
        for quantile in (0.05, 0.2, 0.4, 0.6, 0.8, 0.95, 0.99, 1.0):
            bound = float(np.quantile(lengths, quantile))
            clipped = [_clipped(j, bound) for j, _ in pairs]
            total = np.array([w * c.sum(axis=1) for c, (_, w) in zip(clipped, pairs, strict=True)])
            kept = float((total * apart).sum() / (apart**2).sum())
            if kept <= 0:
                continue
            off = ((total / kept - whole) ** 2).sum(axis=1)
            # less what comes of having fewer synthetic records
            spread = [
                (c / kept - j).var(axis=1).sum() for c, (j, _) in zip(clipped, pairs, strict=True)
            ]
            fewer = [(w**2 - w) * j.shape[1] * v for v, (j, w) in zip(spread, pairs, strict=True)]
            # noise of, say, a thousand gradients, and what no factor mends
            noise = self.weight * bound / kept * math.sqrt(1000) / self.root_mu
            size = whole.shape[1] * noise**2 + max(0.0, float(np.mean(off - fewer)))
            if size < best[0]:
                best = (size, bound, 1 / kept)
        return best[1], best[2]

    def searched(self, chains: int) -> HMCSuggestion:
        """Improve one setting after the other until none does."""
        starts = [
            _Setting(math.log(iterations), math.log(steps), path, 0.5)
            for iterations in (200.0, 800.0, 3000.0)
            for steps in (1, 3, 9)
            for path in (-0.2, 0.4)
        ]
        tried: dict[_Setting, tuple[float, float]] = {}

        def score(setting: _Setting) -> float:
            if setting not in tried:
                tried[setting] = self.forecast(setting)
            effective, acceptance = tried[setting]
            # a setting that is rarely accepted is judged by few trials, and fails where the
            # confidential posterior is a little steeper
            return effective * min(1.0, acceptance / 0.4)

        here = max(starts, key=score)
        for width in (1.0, 0.5):
            improved = True
            while improved:
                improved = False
                for name in _Setting._fields:
                    move = 0.15 * width if name == "share" else 0.7 * width
                    for sign in (1, -1):
                        value = round(getattr(here, name) + sign * move, 9)
                        there = here._replace(**{name: value})
                        if _sensible(there) and score(there) > 1.02 * score(here):
                            here, improved = there, True
        effective, acceptance = tried[here]
        iterations, steps, step_size = _plain(here)
        settings = HMCSettings(
            clip_logp=self.clip_logp,
            clip_grad=self.clip_grad,
            grad_scale=self.grad_scale,
            grad_share=here.share,
            step_size=step_size,
            n_leapfrog=steps,
            inverse_mass=self.mass,
            public=self.public,
        )
        return HMCSuggestion(
            settings,
            draws=max(1, round(iterations / chains)),
            acceptance=acceptance,
            effective_draws=effective,
            clip_shift=self.clip_shift,
        )

    def forecast(self, setting: _Setting) -> tuple[float, float]:
        """Effective draws and acceptance, from one iteration at each of the starts."""
        iterations, steps, step_size = _plain(setting)
        ratio = self.weight * math.sqrt(iterations / (1 - setting.share)) / self.root_mu
        gradient = self.weight * math.sqrt(iterations * (steps + 1) / setting.share) / self.root_mu
        rng = np.random.default_rng(2)
        jumps, chances = np.zeros((len(self.starts), self.root.shape[0])), []
        for i, start in enumerate(self.starts):
            chance, jumps[i] = self._iterate(*start, steps, step_size, ratio, gradient, rng)
            jumps[i] = chance * jumps[i] ** 2
            chances.append(chance)
        moved = np.clip(jumps.mean(axis=0) / 2, 1e-9, 1.0)  # one less the autocorrelation
        effective = iterations / np.mean((2 - moved) / moved)
        return float(effective), float(np.mean(chances))

    def _iterate(
        self,
        target: SyntheticPosterior,
        theta: Vector,
        steps: int,
        step_size: float,
        ratio_noise: float,
        grad_noise: float,
        rng: np.random.Generator,
    ) -> tuple[float, Vector]:
        """Chance that a trajectory is accepted, and its displacement."""
        records, momentum = target.records, rng.normal(size=theta.size)

        def gradient(place: Vector) -> Vector:
            total = target.weight / GRADIENT_LEVELS * records.gradients.total(place, self.clip_grad)
            noisy = self.grad_scale * (total + grad_noise * rng.normal(size=total.size))
            return target.posterior_gradient(place, self.clip_grad * noisy)

        def noisy_log_ratio(start: Vector, end: Vector, length: float) -> NoisyRatio:
            bound = ratio_bound(self.clip_logp, length)
            total = clipped_total(records.likelihood(end), records.likelihood(start), bound)
            noisy = target.weight * total / LEVELS + ratio_noise * rng.normal()
            return NoisyRatio(noisy * bound, ratio_noise * bound, 1.0)

        found = hmc_iteration(
            theta,
            momentum,
            step_size,
            steps,
            basis=self.root,
            gradient=gradient,
            noisy_log_ratio=noisy_log_ratio,
            log_prior=records.log_prior,
            log_prior_here=float(records.log_prior(theta)),
            length=partial(self._length, target),
        )
        chance = found.acceptance
        return chance, found.displacement if chance else np.zeros(theta.size)


def _plain(setting: _Setting) -> tuple[int, int, float]:
    steps = max(1, round(math.exp(setting.log_steps)))
    return (
        max(4, round(math.exp(setting.log_iterations))),
        steps,
        math.exp(setting.log_path) / steps,
    )


def _sensible(setting: _Setting) -> bool:
    iterations, steps, _ = _plain(setting)
    return 8 <= iterations <= 100_000 and steps <= 64 and 0.05 < setting.share < 0.95
