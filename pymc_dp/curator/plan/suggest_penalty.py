"""Settings for DPPenalty and DPBarker from synthetic data: their moves are tried there."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, get_args

import numpy as np
import pymc as pm
from scipy.special import expit, log_ndtr, ndtr

from pymc_dp.accounting.budget import record_weight
from pymc_dp.accounting.gaussian import gaussian_mu
from pymc_dp.curator.forecast import tell_if_few
from pymc_dp.curator.hmc_iteration import move_length
from pymc_dp.curator.plan.clipping import choose_bound
from pymc_dp.curator.plan.suggest import Acceptance
from pymc_dp.curator.plan.synthetic import (
    SyntheticPosterior,
    covariance,
    moves_between_draws,
    synthetic_models,
)
from pymc_dp.curator.steps.dp_penalty import Proposal
from pymc_dp.types import Matrix, Neighbours, Vector

_TRIALS = 400  # moves by which a step size is judged
_SIZES = np.geomspace(0.06, 2.4, 14)  # of steps, in posterior standard deviations
_MOST_CLIPPED = 0.01  # fraction of log-ratios
_ENOUGH = 0.8  # part of the most effective draws that fewer iterations may have


class PenaltySuggestion(NamedTuple):
    """Settings for :class:`~pymc_dp.DPPenalty` or :class:`~pymc_dp.DPBarker`.

    ``settings`` is the part to write into the step, ``DPPenalty(..., **found.settings)``; ``draws``
    is for each chain; ``clip_shift`` is how far the clip of ratios moves the posterior, in its
    standard deviations.
    """

    settings: dict[str, Any]
    draws: int
    acceptance: float
    effective_draws: float
    clip_shift: float


def suggest_penalty(
    epsilon: float,
    delta: float,
    *,
    n: int,
    synthetic: pm.Model | Sequence[pm.Model],
    acceptance: Acceptance = "penalty",
    proposal: Proposal = "joint",
    chains: int = 4,
    neighbours: Neighbours = "substitute",
    most_draws: int = 50_000,
    start: dict[str, Any] | None = None,
    random_seed: int = 0,
) -> PenaltySuggestion:
    r"""Propose settings for DPPenalty or DPBarker from a synthetic posterior.

    Parameters
    ----------
    epsilon, delta, n, synthetic, chains, neighbours, start, random_seed
        As of :func:`~pymc_dp.suggest_hmc`.
    acceptance : {"penalty", "barker"}
        The acceptance test, of :class:`~pymc_dp.DPPenalty` or :class:`~pymc_dp.DPBarker`.
    proposal : {"joint", "component", "guided"}
        How proposals are made.
    most_draws : int
        Iterations of a chain at the most: where the budget pays for more, noise is less instead.

    Returns
    -------
    PenaltySuggestion
        ``effective_draws`` is a forecast for all draws of all chains together, the way from the
        start not counted; below a hundred or so, the budget is too small for sampling.

    Notes
    -----
    :func:`~pymc_dp.suggest` takes the posterior for round and needs next to nothing; this samples
    that of synthetic records, weighted up to n. Proposals get the shape of its covariance, and
    moves are measured by the first synthetic model's log-ratios (``public``), so that noise is in
    proportion to what a move changes, on a curved posterior too. Ratios are clipped as by
    :func:`~pymc_dp.suggest_hmc`. Noise of standard deviation s on a log-ratio m leaves
    :math:`\Phi(m/s - s/2) + e^m \Phi(-m/s - s/2)` of the penalty method's acceptance, and that of
    Barker's test as it is up to s = 1; the size of steps is where accepted moves from draws of the
    synthetic posterior are worth most effective draws. More iterations carry more noise each and
    are worth more together, with a limit: the fewest that reach four fifths of it are taken.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_dp as pmdp
    >>> with pm.Model() as synthetic:
    ...     mu = pm.Normal("mu", 0, 1, shape=2)
    ...     _ = pm.Normal("y", mu, 1, observed=np.random.default_rng(0).normal(size=(1000, 2)))
    >>> found = pmdp.suggest_penalty(4.0, 1e-6, n=100_000, synthetic=synthetic)
    >>> found.effective_draws > 100, sorted(found.settings)
    (True, ['clip_logp', 'inverse_mass', 'proposal', 'public', 'step_size'])
    """
    for name, value, known in (
        ("acceptance", acceptance, get_args(Acceptance)),
        ("proposal", proposal, get_args(Proposal)),
    ):
        if value not in known:
            raise ValueError(f"{name} must be one of {known}, not {value!r}.")
    models = synthetic_models(synthetic, None, 1.0)
    rng = np.random.default_rng(random_seed)
    noise = record_weight(neighbours) / math.sqrt(2 * gaussian_mu(epsilon, delta))
    with np.errstate(all="ignore"):
        targets = [SyntheticPosterior(model, n, start, rng) for model in models]
        trials = _Trials(targets, proposal != "joint", rng)
        iterations = 8 * n / noise**2 / 2.0 ** np.arange(10.0)  # with a bound of 1
        unclipped = trials.best(noise, iterations, acceptance)
        dim = len(trials.mass)
        moves = moves_between_draws(targets, trials.length, rng)
        clip = choose_bound(moves, 2 * dim, 1 / unclipped.effective, _MOST_CLIPPED)
        iterations = np.clip(iterations / clip.bound**2, chains, chains * most_draws).astype(float)
        found = trials.best(noise * clip.bound, iterations, acceptance)
    tell_if_few(found.effective, "suggest_penalty")
    settings = {
        "clip_logp": clip.bound,
        "step_size": found.step_size,
        "inverse_mass": trials.mass,
        "public": models[0],
        "proposal": proposal,
    }
    draws = max(1, int(found.iterations / chains))
    return PenaltySuggestion(settings, draws, found.acceptance, found.effective, clip.shift)


class _Forecast(NamedTuple):
    effective: float
    acceptance: float
    iterations: float
    step_size: float


class _Tried(NamedTuple):
    """Moves: by how much they change the log-posterior, their lengths, and squared jumps."""

    gains: Vector
    lengths: Vector
    squares: Matrix


class _Trials:
    """Moves from draws of synthetic posteriors, with the noise that they will carry counted."""

    def __init__(
        self, targets: Sequence[SyntheticPosterior], single: bool, rng: np.random.Generator
    ) -> None:
        self.mass = np.mean([covariance(target.draws) for target in targets], axis=0)
        self.root = np.linalg.cholesky(self.mass)
        self.public = targets[0].records.likelihood
        for target in targets:
            target.use_basis(self.root)
        turns = [targets[i % len(targets)] for i in range(_TRIALS)]
        self.starts = [(each, each.draws[rng.integers(len(each.draws))]) for each in turns]
        self.normals = rng.normal(size=(_TRIALS, len(self.root))) * turns[0].data_columns
        if single:
            columns = np.flatnonzero(turns[0].data_columns)
            self.normals *= np.eye(len(self.root))[rng.choice(columns, _TRIALS)]
        self.tried = [self._try(float(size)) for size in _SIZES]

    def length(self, target: SyntheticPosterior, one: Vector, other: Vector) -> float:
        """Length of a move, as the step will measure it."""
        return move_length(one, other, one, self.public)

    def _try(self, size: float) -> _Tried:
        gains, lengths = np.empty(_TRIALS), np.empty(_TRIALS)
        for i, (target, theta) in enumerate(self.starts):
            end = theta + size * (self.root @ self.normals[i])
            records, likelihood = target.records, target.records.likelihood
            change = target.weight * float(np.sum(likelihood(end) - likelihood(theta)))
            gains[i] = change + float(records.log_prior(end) - records.log_prior(theta))
            lengths[i] = self.length(target, theta, end)
        gains[np.isnan(gains)] = -math.inf
        return _Tried(gains, lengths, (size * self.normals) ** 2)

    def best(self, noise: float, iterations: Vector, acceptance: Acceptance) -> _Forecast:
        """Find the fewest iterations that are worth about as much as any, and their steps.

        Parameters
        ----------
        noise : float
            Standard deviation of one iteration's noise over the length of its move.
        iterations : ndarray
            To choose from, most first.
        acceptance : {"penalty", "barker"}
            The acceptance test.
        """
        forecasts = []
        for number in iterations:
            sizes = [
                _forecast(tried, noise, float(number), float(size), acceptance)
                for size, tried in zip(_SIZES, self.tried, strict=True)
            ]
            forecasts.append(max(sizes, key=lambda each: each.effective))
        most = max(each.effective for each in forecasts)
        return [each for each in forecasts if each.effective >= _ENOUGH * most][-1]


def _forecast(
    tried: _Tried, noise: float, iterations: float, size: float, acceptance: Acceptance
) -> _Forecast:
    sd, gain = noise * math.sqrt(iterations) * tried.lengths, tried.gains
    if acceptance == "barker":
        chance = np.where(sd <= 1, expit(gain), 0.0)
    else:
        chance = ndtr(gain / sd - sd / 2) + np.exp(gain + log_ndtr(-gain / sd - sd / 2))
    chance = np.nan_to_num(chance)
    moving = tried.squares.any(axis=0)  # coordinates that cost
    jumps = (chance[:, None] * tried.squares)[:, moving].mean(axis=0)
    moved = np.clip(jumps / 2, 1e-9, 1.0)  # one less the autocorrelation
    effective = iterations / float(np.mean((2 - moved) / moved))
    return _Forecast(effective, float(chance.mean()), iterations, size)
