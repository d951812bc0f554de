"""Settings for curators' steps: from public information, or asked of the data for a fee."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import pymc as pm
import scipy
from numpy.typing import NDArray
from scipy.special import expit, gammaincinv, ndtr

from pymc_dp.accounting.budget import PrivacyBudget, record_weight
from pymc_dp.accounting.gaussian import gaussian_mu
from pymc_dp.accounting.levels import LEVELS
from pymc_dp.curator.forecast import tell_if_few
from pymc_dp.curator.model import RecordModel
from pymc_dp.curator.plan.clipping import Move, choose_bound
from pymc_dp.curator.plan.synthetic import refuse_confidential
from pymc_dp.curator.steps.penalty import PenaltyStep
from pymc_dp.types import Neighbours

_NORMAL_99 = 2.576  # 99% of normal values lie within this many standard deviations
_MOST_CLIPPED = 0.01  # fraction of log-ratios
_BARKER_MOVE = 0.4  # length of a move, in posterior standard deviations
Acceptance = Literal["penalty", "barker"]


class Suggestion(NamedTuple):
    """Settings for :class:`~pymc_dp.DPPenalty` or :class:`~pymc_dp.DPBarker`.

    ``draws`` is for each chain.
    """

    clip_logp: float
    step_size: float
    draws: int
    noise_sd: float
    effective_draws: float


def suggest(
    epsilon: float,
    delta: float,
    *,
    n: int,
    dim: int,
    chains: int = 4,
    neighbours: Neighbours = "substitute",
    prior_sd: float = 1.0,
    synthetic: pm.Model | None = None,
    acceptance: Acceptance = "penalty",
) -> Suggestion:
    """Propose clip bound, step size and number of draws without looking at the confidential data.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee for all chains together.
    n, dim : int
        Number of records (roughly, if it is not public) and of unconstrained parameters.
    chains : int
        Number of chains.
    neighbours : {"substitute", "add_remove"}
        Neighbour relation.
    prior_sd : float
        Typical standard deviation of the prior, unconstrained. Used where there is no synthetic
        data, with the assumption that a record tells about as much as the prior does.
    synthetic : pymc.Model, optional
        The same model with simulated or public records observed, however many. It is read freely:
        never pass the confidential data here. Records of the model in context, or of one that a
        curator's step was made for, are recognised and refused.
    acceptance : {"penalty", "barker"}
        The acceptance test, of :class:`~pymc_dp.DPPenalty` or :class:`~pymc_dp.DPBarker`.

    Returns
    -------
    Suggestion
        ``effective_draws`` is a forecast for all draws of all chains together, for a round
        posterior and without the way from the start: below two hundred or so, the budget is too
        small for sampling.

    Notes
    -----
    Let a record's log-likelihood change by about J times the length of a move, so that the
    posterior's standard deviation is ``s = 1 / (J sqrt(n))``, and clip at the 99% point b of these
    changes; with synthetic data, beyond it where the square of the shift that the clip causes,
    plus one over the effective draws, is least. K moves of length D then carry noise of variance
    ``(2 b D)^2 K / (2 mu)`` and are accepted with probability about
    ``2 Phi(-D sqrt(1/s^2 + 2 b^2 K / mu) / 2)``. The distance travelled grows with K but levels
    off; K is chosen where four fifths of the limit are reached. Effective draws follow from the
    mean square of accepted moves, as for an autoregression. Barker's test takes noise of a standard
    deviation of 1 at the most: moves are 0.4 s long there (shorter ones, and more of them, gain
    little), and K is where more looks would have more moves rejected unseen than they are worth.

    Examples
    --------
    >>> from pymc_dp import suggest
    >>> found = suggest(4.0, 1e-6, n=100_000, dim=2)
    >>> found.draws, round(found.noise_sd, 2)
    (2644, 2.13)
    """
    root_mu = np.sqrt(2 * gaussian_mu(epsilon, delta)) / record_weight(neighbours)
    if acceptance not in get_args(Acceptance):
        raise ValueError(f"acceptance must be one of {get_args(Acceptance)}, not {acceptance!r}.")
    settings = _settings if acceptance == "penalty" else _barker_settings
    if synthetic is None:
        return _told(settings(_NORMAL_99 / prior_sd, 1 / prior_sd, n, dim, chains, root_mu))
    refuse_confidential([synthetic])
    slopes = _slopes(synthetic)
    slope = float(np.sqrt(np.mean(np.square(slopes))))
    moves = [Move(each, 1 / (slope * np.sqrt(n)), n / each.size) for each in slopes]
    noise_variance = 1 / settings(slope, slope, n, dim, chains, root_mu).effective_draws
    bound, _ = choose_bound(moves, 1.0, noise_variance, _MOST_CLIPPED)
    return _told(settings(bound, slope, n, dim, chains, root_mu))


def _told(found: Suggestion) -> Suggestion:
    tell_if_few(found.effective_draws, "suggest")
    return found


def _settings(
    clip_logp: float, slope: float, n: int, dim: int, chains: int, root_mu: float
) -> Suggestion:
    """Suggest settings for a clip bound and the root mean square of records' slopes."""
    scale = 1 / (slope * np.sqrt(n))
    cost = (clip_logp / root_mu) ** 2  # noise variance over K D^2
    moves = max(4 / (cost * scale**2), chains)
    draws = max(1, int(moves / chains))
    length = 2.38 / np.sqrt(1 / scale**2 + cost * draws * chains)
    step_size = length / np.sqrt(dim)
    # squared length of a proposal, in steps: chi-square
    squares = 2 * gammaincinv(dim / 2, (np.arange(1000) + 0.5) / 1000)
    accepted = 2 * ndtr(-2.38 / np.sqrt(dim) * np.sqrt(squares) / 2)
    # one less the autocorrelation
    moved = (step_size / scale) ** 2 / 2 * np.mean(accepted * squares) / dim
    return Suggestion(
        clip_logp=float(clip_logp),
        step_size=float(step_size),
        draws=draws,
        noise_sd=float(np.sqrt(cost * draws * chains) * length),
        effective_draws=float(draws * chains * moved / (2 - moved)),
    )


def _barker_settings(
    clip_logp: float, slope: float, n: int, dim: int, chains: int, root_mu: float
) -> Suggestion:
    """As :func:`_settings`, with noise of no more than Barker's test can use."""
    scale = 1 / (slope * np.sqrt(n))
    length = _BARKER_MOVE * scale
    squares = 2 * gammaincinv(dim / 2, (np.arange(1000) + 0.5) / 1000) / dim
    # looks are in proportion to one over the square of the longest move whose noise the test takes
    last = int(200 + np.argmax((np.cumsum(squares) / squares)[200:]))
    longest = np.sqrt(squares[last])
    draws = max(1, int((root_mu / (clip_logp * length * longest)) ** 2 / chains))
    rng = np.random.default_rng(0)
    change = _BARKER_MOVE * np.sqrt(squares)
    gain = -(change**2) / 2 + change * rng.normal(size=squares.size)
    moved = _BARKER_MOVE**2 / 2 * np.sum((squares * expit(gain))[: last + 1]) / 1000 / dim
    return Suggestion(
        clip_logp=float(clip_logp),
        step_size=float(length / np.sqrt(dim)),
        draws=draws,
        noise_sd=float(1 / longest),
        effective_draws=float(draws * chains * moved / (2 - moved)),
    )


def _slopes(model: pm.Model) -> list[NDArray[np.float64]]:
    """Tell records' log-likelihood changes by length of move, for small moves."""
    records = RecordModel(model, confidential=False)
    likelihood, log_prior = records.likelihood, records.log_prior
    theta = scipy.optimize.minimize(
        lambda t: -likelihood(t).sum() - log_prior(t), records.space.start
    ).x
    rng = np.random.default_rng(0)
    here, changes = likelihood(theta), []
    for _ in range(20):
        direction, places = np.zeros(theta.size), likelihood.data_coordinates
        direction[places] = rng.normal(size=places.size)
        direction *= 1e-4 / np.linalg.norm(direction)
        changes.append((likelihood(theta + direction) - here) / 1e-4)
    return changes


class ClipFraction(NamedTuple):
    """A noised fraction of clipped log-ratios and the standard deviation of the noise in it."""

    fraction: float
    sd: float


def clip_fraction(
    step: PenaltyStep,
    budget: PrivacyBudget,
    *,
    share: float = 0.05,
    points: Sequence[dict[str, Any]] | None = None,
    moves: int = 20,
    random_seed: int | None = None,
) -> ClipFraction:
    """Release, for a share of a budget, how often a step's clip bound cuts log-ratios.

    Parameters
    ----------
    step : DPPenalty or DPHMC
        The step to be tried, perhaps one made for trial only.
    budget : PrivacyBudget
        Pays for it.
    share : float
        Part of the whole budget to spend.
    points : sequence of dict, optional
        Public points (unconstrained, as of ``model.initial_point()``) to move from.
    moves : int
        How many proposals to average over.
    random_seed : int, optional
        Of the proposals; the noise does not follow it.

    Notes
    -----
    Counts over all moves change by at most ``moves`` with one record. Up to a few percent of
    clipped ratios leave the posterior as it is; a quarter widens its variance by a third.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_dp as pmdp
    >>> budget = pmdp.PrivacyBudget(epsilon=2, delta=1e-6)
    >>> with pm.Model():
    ...     mu = pm.Normal("mu", 0, 1)
    ...     _ = pm.Normal("y", mu, 1, observed=np.linspace(-2, 2, 5000))
    ...     step = pmdp.DPPenalty(budget=budget, share=0.9, clip_logp=3, step_size=0.02)
    >>> found = pmdp.clip_fraction(step, budget, share=0.1)
    >>> bool(abs(found.fraction) < 6 * found.sd)
    True
    """
    if budget.neighbours != "substitute" or step.allowance.neighbours != "substitute":
        raise ValueError('A fraction of the records needs their number: neighbours="substitute".')
    if moves != int(moves) or moves < 1:
        raise ValueError(f"moves must be a whole number >= 1, not {moves!r}.")
    rng = np.random.default_rng(random_seed)
    starts = [step.space.flatten(point) for point in points or []] or [step.space.start]
    door = budget.open(budget.gaussian_queries(1, share), "clip fraction")

    def look() -> list[int]:
        count = 0
        for move in range(moves):
            theta = starts[move % len(starts)]
            proposal = step.propose(theta, rng)
            bound = step.bound(step.move_length(theta, proposal))
            count += step.records.ratios.count(theta, proposal, bound)
        # in fine units, as every number that leaves: the noise is then as good as continuous
        return [count * LEVELS]

    # a record counts from 0 to `moves`, which is half of that either way from the middle
    bound, total = moves * LEVELS // 2, step.likelihood.n_records * moves * LEVELS
    (noisy,) = door.release(look, bound)
    return ClipFraction(noisy / total, door.noise() * bound / total)
