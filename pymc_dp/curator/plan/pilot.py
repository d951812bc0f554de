"""A paid pilot: find the posterior's place by a few noised gradients, before any chain is run."""

import math
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import scipy

from pymc_dp.accounting.budget import PrivacyBudget, record_weight
from pymc_dp.curator.curated import mark_confidential
from pymc_dp.curator.gradient_kernels import GRADIENT_LEVELS
from pymc_dp.curator.gradients import RecordGradients
from pymc_dp.curator.model import RecordModel, record_model
from pymc_dp.curator.plan.marginal_mode import marginal_mode
from pymc_dp.curator.plan.scoring import ScoringStep, SimulatedScores
from pymc_dp.curator.plan.simulator import Simulator, Values
from pymc_dp.curator.steps.base import (
    refuse_confidential_starts,
    refuse_number_of_records,
    refuse_read_freely,
)
from pymc_dp.types import Matrix, Vector

_GROWTH = 1.5  # of a gradient's part of the budget over the one before: the way there is cheap
_AWRY = 0.1  # part of a step that may lead elsewhere, as the likelihood is not quite normal
_USEFUL = 2.0  # posterior standard deviations from which a chain finds its way in


class Pilot(NamedTuple):
    """Where the posterior is, as noised gradients tell; all of it may be published.

    Attributes
    ----------
    point : dict
        The place, unconstrained as of ``model.initial_point()``: ``initvals=`` of
        :func:`~pymc_dp.sample` and ``start=`` of :func:`~pymc_dp.suggest_hmc`.
    error : float
        How far it may be from the posterior's mode, in posterior standard deviations, root mean
        square over what records identify: what noise, clipping and the disagreement of the last
        steps let expect where confidential records are like the simulated ones.
    synthetic : pymc.Model
        The model with records simulated there.
    """

    point: dict[str, Any]
    error: float
    synthetic: pm.Model


@np.errstate(all="ignore")  # a warning would tell that some record is out of range
def pilot(
    budget: PrivacyBudget,
    simulate: Callable[[Values], pm.Model],
    *,
    share: float = 0.1,
    n: int | None = None,
    n_gradients: int = 10,
    start: dict[str, Any] | None = None,
    independent_records: bool = False,
    public_data: Sequence[str] = (),
    model: pm.Model | None = None,
) -> Pilot:
    r"""Find the posterior's place, for a share of a budget.

    Settings that were tried on synthetic data suit the place where that data was drawn, and a chain
    that starts elsewhere spends its budget on the way. A few noised gradients find the place at a
    small part of the price.

    Parameters
    ----------
    budget : PrivacyBudget
        Pays for it. The share is claimed before the data is read, and never given back.
    simulate : callable
        Takes values of the model's variables, a dict by name, and returns the same model with
        records observed that were simulated at these values: about as many as the confidential
        ones, with covariates like theirs. It must not use the confidential data.
    share : float
        Part of the whole budget to spend.
    n : int, optional
        Number of confidential records, roughly. To be written under ``neighbours="add_remove"``,
        where it is not public.
    n_gradients : int
        How many gradients share the price; each is one step of the way.
    start : dict, optional
        Public point (as of ``model.initial_point()``) to look from; that point by default.
    independent_records, public_data : bool, list of str
        As of :class:`~pymc_dp.DPHMC`.
    model : pymc.Model, optional
        The model with the confidential records, if not the one in context.

    Returns
    -------
    Pilot
        ``point``, ``error`` and ``synthetic``, for :func:`~pymc_dp.suggest_hmc`.

    Raises
    ------
    PrivacyError
        If the budget does not cover the share.

    Notes
    -----
    Fisher scoring with clipped, noised scores. At each place records are simulated anew. In
    coordinates in which their information is the identity, scores s are clipped to psi, at the
    bound where the step's error is least, and the step is
    :math:`A^{-1} (\sum \psi + \text{noise} - n E\psi)` with :math:`A = n E[\psi s^T]`, both
    expectations over simulated records. So clipping takes nothing from the step's length and, where
    the model holds, does not shift its end: the estimator is that of optimal robust estimation
    (Hampel et al. 1986, section 4.3). Steps are scaled by how much steeper the likelihood turned
    out to be along the last one than simulated, and limited: seen from neither end may they change
    records' log-likelihoods by more than about 1. The prior is added as it is, to a likelihood that
    is taken for normal. Each gradient's part of the budget is 1.5 times that of the one before; the
    ends of the last half are averaged. Hyperparameters that records do not identify are then moved
    to the mode of their marginal posterior by Laplace's approximation, and the others with them, so
    that simulated records keep their likelihoods.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_dp as pmdp
    >>> rng = np.random.default_rng(1)
    >>> def build(y):
    ...     with pm.Model() as model:
    ...         mu = pm.Normal("mu", 0, 10)
    ...         _ = pm.Normal("y", mu, 1, observed=y)
    ...     return model
    >>> def simulate(values):
    ...     return build(values["mu"] + rng.normal(size=20_000))
    >>> budget = pmdp.PrivacyBudget(epsilon=4, delta=1e-6)
    >>> found = pmdp.pilot(budget, simulate, model=build(rng.normal(3, 1, size=20_000)))
    >>> bool(abs(found.point["mu"] - 3) < 0.1), round(budget.unspent, 9)
    (True, 0.9)
    """
    if not 0 < share < 1:
        raise ValueError(f"share must lie in (0, 1), so that a chain can be paid, not {share!r}.")
    model = pm.modelcontext(model)
    records = record_model(model, independent_records=independent_records, public_data=public_data)
    simulator = Simulator(simulate, model, records, public_number(n, records, budget))
    return explore(
        budget, simulator, model, records, share=share, n_gradients=n_gradients, start=start
    )[0]


class PilotLook(NamedTuple):
    """A noised sum of scores that a pilot paid for, clipped to ``CLIPPED * bound``."""

    theta: Vector
    basis: Matrix
    bound: float
    sigma: float
    value: Vector


def explore(
    budget: PrivacyBudget,
    simulator: Simulator,
    model: pm.Model,
    records: RecordModel,
    *,
    share: float,
    n_gradients: int = 10,
    start: dict[str, Any] | None = None,
) -> tuple[Pilot, list[PilotLook]]:
    """Do what :func:`pilot` does, and give what was looked at too."""
    if n_gradients != int(n_gradients) or n_gradients < 1:
        raise ValueError(f"n_gradients must be a whole number >= 1, not {n_gradients!r}.")
    # compiled before anything is paid for, since that may fail
    gradients, log_prior = records.gradients, records.log_prior
    prior_gradient = records.prior_gradient
    refuse_confidential_starts(model, model.rvs_to_initial_values)
    if budget.neighbours == "add_remove":
        refuse_number_of_records(model, records.likelihood)
    refuse_read_freely(records.likelihood)
    mark_confidential(model, records.likelihood, budget)
    theta = records.space.start if start is None else records.space.flatten(start)
    scores = simulator.scores(theta)
    whole = budget.gaussian_queries(1, share).noise_multiplier * record_weight(budget.neighbours)
    _warn_if_useless(scores, whole, share)

    parts = _GROWTH ** np.arange(n_gradients)
    queries = [budget.gaussian_queries(1, float(share * part / parts.sum())) for part in parts]
    door = budget.open(queries, "pilot")
    records.likelihood.load()
    taken: list[_Taken] = []
    looks: list[PilotLook] = []
    for look in range(n_gradients):
        step = scores.step(door.noise(look))
        total = partial(_clipped_total, gradients, theta, scores.basis, step.bound)
        levels = door.release(total, GRADIENT_LEVELS, look)
        value = step.bound / GRADIENT_LEVELS * np.array(levels, dtype=float)
        sigma = door.noise(look) * step.bound
        looks.append(PilotLook(theta, scores.basis, step.bound, sigma, value))
        move = step.move(value)
        curvature = _relative_curvature(taken[-1], theta, move, step, scores) if taken else 1.0
        short = move / curvature / max(1.0, scores.log_ratio(move / curvature))
        end, there = simulator.reach(theta, _with_prior(records, theta, scores.basis, short))
        taken.append(_Taken(theta, scores.basis @ move, end, step))
        theta, scores = end, there
    place, error = _averaged(taken[n_gradients // 2 :], scores)
    place, change = marginal_mode(place, scores, log_prior, prior_gradient)
    point = records.space.unflatten(place, model.initial_point())
    return Pilot(point, math.hypot(error, change), simulator(place)), looks


class _Taken(NamedTuple):
    """A step that was taken: from where, what the gradient alone asked for, and to where."""

    theta: Vector
    move: Vector
    end: Vector
    step: ScoringStep


def _relative_curvature(
    last: _Taken, theta: Vector, move: Vector, step: ScoringStep, scores: SimulatedScores
) -> float:
    """Curvature of the likelihood along the last step, over that of simulated records.

    A secant: the change of what gradients ask for over the way gone, drawn to 1 as by a prior of
    standard deviation 1/2.
    """
    gone = scores.standardised(theta - last.theta)
    change = scores.standardised(last.move) - move
    ridge = 4 * (step.variance + last.step.variance)
    return float(np.clip((gone @ change + ridge) / (gone @ gone + ridge), 0.25, 4.0))


def _averaged(taken: Sequence[_Taken], scores: SimulatedScores) -> tuple[Vector, float]:
    """Mean of the ends of steps, weighted by their precision, and its error."""
    noise_variance = np.array([one.step.noise_error**2 for one in taken])
    asked = np.array([scores.standardised(one.move) for one in taken])
    # of clipping, which is the same records' every time, and of steps that were still on the way
    other = np.array([one.step.clip_error**2 for one in taken])
    other += _AWRY**2 * np.mean(asked**2, axis=1)
    weights = 1 / (noise_variance + other)
    weights /= weights.sum()
    # from the last end, as records see it: parameters that they do not identify have moved too
    mean = weights @ np.array([scores.coordinates(one.end) for one in taken])
    near = scores.log_ratio(mean) < 1  # else the average of such ends means nothing
    place = taken[-1].end + (scores.basis @ mean if near else 0.0)
    in_mean = float(weights**2 @ noise_variance)
    apart = float(np.mean(mean**2)) if np.isfinite(mean).all() else math.inf
    excess = max(0.0, apart - float((1 - 2 * weights[-1]) * noise_variance[-1]) - in_mean)
    if excess > _USEFUL**2:
        warnings.warn(
            f"The last steps still disagree by {math.sqrt(excess):.2g} posterior standard "
            "deviations: write more n_gradients=, a nearer start=, or a simulate= whose records "
            "are more like the confidential ones.",
            stacklevel=3,
        )
    return place, math.sqrt(in_mean + float(weights @ other) + excess)


def _warn_if_useless(scores: SimulatedScores, noise_sd: float, share: float) -> None:
    error = scores.step(noise_sd).noise_error
    if error > _USEFUL:
        warnings.warn(
            f"{share} of this budget finds the place of a posterior of {scores.n} records only to "
            f"within about {error:.2g} of its standard deviations: write a larger share=, or leave "
            "the pilot out and start where earlier studies or theory tell.",
            stacklevel=3,
        )


def _clipped_total(
    gradients: RecordGradients, theta: Vector, basis: Matrix, bound: float
) -> list[int]:
    """Sum of clipped gradients in whole numbers, to be let out through a door."""
    gradients.prepare(basis)
    return gradients.total(theta, bound).tolist()


def _with_prior(records: RecordModel, theta: Vector, basis: Matrix, move: Vector) -> Vector:
    """Maximise the prior times a normal likelihood around the end of a move."""

    def surprise(z: Vector) -> tuple[float, Vector]:
        off, place = z - move, theta + basis @ z
        value = float(off @ off) / 2 - float(records.log_prior(place))
        return value, off - basis.T @ records.prior_gradient(place)

    with np.errstate(all="ignore"):
        found = scipy.optimize.minimize(surprise, move, jac=True, method="BFGS").x
    return theta + basis @ (found if np.isfinite(found).all() else move)


def public_number(n: int | None, records: RecordModel, budget: PrivacyBudget) -> int:
    """Tell how many records the simulated ones stand for, which must be public."""
    if n is None and budget.neighbours == "add_remove":
        raise ValueError('The number of records is not public under "add_remove": write n=.')
    n = records.likelihood.n_records if n is None else n
    if n != int(n) or n < 1:
        raise ValueError(f"n must be a whole number of records, not {n!r}.")
    return int(n)
