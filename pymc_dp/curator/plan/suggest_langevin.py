"""Settings for DPSGLD and DPSGNHT from synthetic data."""

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import pymc as pm

from pymc_dp.accounting.budget import record_weight
from pymc_dp.accounting.gaussian import gaussian_mu
from pymc_dp.curator.plan.synthetic import SyntheticPosterior, covariance, synthetic_models
from pymc_dp.types import Matrix, Neighbours, Vector

Dynamics = Literal["sgld", "sgnht"]
_PLACES = 12  # draws at which gradients and curvatures are looked at
_QUANTILES = (0.1, 0.2, 0.35, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 1.0)
_STEEP = 0.9  # quantile of the curvatures that steps suit
_MOST_FRICTION = 8.0  # that the thermostat is to settle at
_DRIFT, _KICK = 0.4, 0.5  # step over the steepest curvature, and over its root


class LangevinSuggestion(NamedTuple):
    """Settings for :class:`~pymc_dp.DPSGLD` or :class:`~pymc_dp.DPSGNHT`.

    ``settings`` is the part to write into the step, ``DPSGLD(..., **found.settings)``; ``draws`` is
    for each chain; ``shift`` is how far clipped gradients move the posterior, in its standard
    deviations.
    """

    settings: dict[str, Any]
    draws: int
    effective_draws: float
    shift: float


class _Clip(NamedTuple):
    bound: float
    scale: float
    square_shift: float


def suggest_langevin(
    epsilon: float,
    delta: float,
    *,
    n: int,
    synthetic: pm.Model | Sequence[pm.Model] | None = None,
    dim: int | None = None,
    prior_sd: float = 1.0,
    dynamics: Dynamics = "sgnht",
    chains: int = 4,
    neighbours: Neighbours = "substitute",
    most_draws: int = 50_000,
    start: dict[str, Any] | None = None,
    random_seed: int = 0,
) -> LangevinSuggestion:
    r"""Propose settings for DPSGLD or DPSGNHT on all records, without the confidential data.

    Parameters
    ----------
    epsilon, delta, n, synthetic, dim, prior_sd, chains, neighbours, start, random_seed
        As of :func:`~pymc_dp.suggest_hmc`.
    dynamics : {"sgld", "sgnht"}
        For which of the two.
    most_draws : int
        Iterations of a chain at the most: where the budget pays for more, noise is less instead.

    Returns
    -------
    LangevinSuggestion
        ``effective_draws`` is a forecast for a round posterior and all chains together, the way
        from the start not counted.

    Notes
    -----
    The covariance of the synthetic posterior becomes the inverse mass. There, noise of variance
    :math:`\sigma^2` in the gradient, which is in proportion to the number K of looks, leaves
    :math:`K / \sigma^2` effective draws whatever K is, once steps are so small that the noise is
    all that is injected. K is where that begins with steps that suit the steepest curvature. The
    clip is where the mean square shift of the posterior by clipped gradients, scaled up by what
    the clip takes, plus one over these draws is least.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_dp as pmdp
    >>> with pm.Model() as synthetic:
    ...     mu = pm.Normal("mu", 0, 1, shape=2)
    ...     _ = pm.Normal("y", mu, 1, observed=np.random.default_rng(0).normal(size=(1000, 2)))
    >>> found = pmdp.suggest_langevin(4.0, 1e-6, n=100_000, synthetic=synthetic)
    >>> found.effective_draws > 100
    True
    """
    if dynamics not in get_args(Dynamics):
        raise ValueError(f"dynamics must be one of {get_args(Dynamics)}, not {dynamics!r}.")
    models = synthetic_models(synthetic, dim, prior_sd)
    rng = np.random.default_rng(random_seed)
    with np.errstate(all="ignore"):
        targets = [SyntheticPosterior(model, n, start, rng) for model in models]
        mass = np.mean([covariance(target.draws) for target in targets], axis=0)
        basis = np.linalg.cholesky(mass)
        for target in targets:
            target.use_basis(basis)
        places = [
            _Place.at(target, theta, basis)
            for target in targets
            for theta in rng.choice(target.draws, _PLACES)
        ]
        steepest = max(1.0, float(np.quantile([at.curvatures[-1] for at in places], _STEEP)))
        # effective draws times the square of a clip bound
        worth = 2 * gaussian_mu(epsilon, delta) / record_weight(neighbours) ** 2
        clip = _best_clip(places, n, worth)
    effective = worth / (clip.scale * clip.bound) ** 2
    size, looks = _DRIFT / steepest, 4 / (_DRIFT / steepest)  # looks for an effective draw
    if dynamics == "sgnht":
        size = _KICK / math.sqrt(steepest)
        # more friction sees more of curved tails, but must be small over one step
        looks = max(1.0, min(_MOST_FRICTION, 0.5 / size)) * 2 / size
    draws = math.ceil(effective * looks / chains)
    if draws > most_draws:
        effective, draws = most_draws * chains / looks, most_draws
    settings = {
        "clip_grad": clip.bound,
        "grad_scale": clip.scale,
        "step_size": size * 0.999,  # just below what noise alone would heat
        "inverse_mass": mass,
    }
    return LangevinSuggestion(settings, draws, effective, math.sqrt(clip.square_shift))


class _Place(NamedTuple):
    """Records' gradients at a draw, one a column, and how the log-density curves there."""

    gradients: Matrix
    curvatures: Vector
    directions: Matrix

    @classmethod
    def at(cls, target: SyntheticPosterior, theta: Vector, basis: Matrix) -> "_Place":
        """Look at a synthetic posterior, by the sampler's coordinates."""
        columns = [
            (_gradient(target, theta + 1e-4 * side) - _gradient(target, theta - 1e-4 * side)) / 2e-4
            for side in basis.T
        ]
        hessian = -np.array(columns)
        curvatures, directions = np.linalg.eigh((hessian + hessian.T) / 2)
        gradients = np.concatenate(list(target.records.gradients.jacobians(theta)), axis=1)
        own = np.flatnonzero(target.data_columns)
        return cls(gradients, curvatures, directions[own])

    def moved(self, off: Matrix) -> Matrix:
        """How far gradients that are off move the posterior, in standard deviations."""
        return (self.directions.T @ off) / np.maximum(self.curvatures, 1.0)[:, None]


def _gradient(target: SyntheticPosterior, theta: Vector) -> Vector:
    total = sum(jacobian.sum(axis=1) for jacobian in target.records.gradients.jacobians(theta))
    return target.posterior_gradient(theta, np.asarray(target.weight * total))


def _best_clip(places: Sequence[_Place], n: int, worth: float) -> _Clip:
    lengths = np.concatenate([np.linalg.norm(place.gradients, axis=0) for place in places])
    bounds = np.quantile(lengths[np.isfinite(lengths)], _QUANTILES)
    clips = [_clip(places, float(bound), n) for bound in bounds]
    return min(clips, key=lambda clip: clip.square_shift + (clip.scale * clip.bound) ** 2 / worth)


def _clip(places: Sequence[_Place], bound: float, n: int) -> _Clip:
    """Tell what a bound takes away on average, and how far it moves the posterior of n records."""
    short = [
        place.gradients * np.minimum(1, bound / np.linalg.norm(place.gradients, axis=0))
        for place in places
    ]
    pairs = list(zip(places, short, strict=True))
    plain = math.fsum(float(np.sum(place.gradients**2)) for place in places)
    scale = plain / math.fsum(float(np.sum(place.gradients * each)) for place, each in pairs)
    shifts = []
    for place, each in pairs:
        off = place.moved(scale * each - place.gradients)
        chance = float(off.var(axis=1).sum()) * n  # of n records, a draw of their law
        mean = float(np.sum(off.mean(axis=1) ** 2)) * n**2
        # the synthetic records' own chance is no shift
        shifts.append((chance + max(0.0, mean - chance * n / off.shape[1])) / len(off))
    return _Clip(bound, scale, float(np.mean(shifts)))
