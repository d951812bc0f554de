"""How to take a score: bound and coordinates from simulated records, and what is left of them."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pymc as pm

from pymc_dp.accounting.budget import PrivacyBudget, record_weight
from pymc_dp.accounting.levels import CLIPPED
from pymc_dp.analyst.score.bounding import Bound
from pymc_dp.compat import no_model_context
from pymc_dp.curator.model import RecordModel
from pymc_dp.curator.plan.simulator import Simulator, Values
from pymc_dp.curator.plan.synthetic import refuse_confidential
from pymc_dp.curator.score.places import Place, read_basis, read_places
from pymc_dp.curator.score.totals import ConfidentialScores
from pymc_dp.types import Matrix, Neighbours, Vector

__all__ = ["ScoreSettings", "settings_at", "suggest_score"]

_QUANTILES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 1.0)
_RANK = 1e-6  # relative information below which a direction is left to the prior


class ScoreSettings(NamedTuple):
    """Arguments of :func:`~pymc_dp.score_release`, and what they are expected to give.

    Attributes
    ----------
    clip : float
        Bound on the length of a record's score.
    inverse_mass : ndarray
        Coordinates in which that is measured: those in which a simulated record tells as much about
        each.
    bound : {"length", "covariates"}
        How scores are kept within the bound.
    widening : float
        How many times as wide as without privacy the posterior is expected to be, by what the
        records alone tell: root mean square over coordinates.
    """

    clip: float
    inverse_mass: Matrix
    bound: Bound
    widening: float

    @property
    def settings(self) -> dict[str, Any]:
        """Keyword arguments of :func:`~pymc_dp.score_release`."""
        return {"clip": self.clip, "inverse_mass": self.inverse_mass, "bound": self.bound}


def suggest_score(
    simulate: Callable[[Values], pm.Model],
    at: Place,
    *,
    epsilon: float,
    delta: float,
    n: int | None = None,
    bound: Bound | None = None,
    neighbours: Neighbours = "substitute",
) -> ScoreSettings:
    r"""Choose bound and coordinates for a score release on simulated records.

    Parameters
    ----------
    simulate : callable
        As of :func:`~pymc_dp.pilot`: takes values of the parameters by name and returns the model
        with records simulated there.
    at : dict
        The place, values of all parameters by name.
    epsilon, delta : float
        Guarantee of the release.
    n : int, optional
        Number of confidential records; as many as are simulated by default.
    bound, neighbours
        As of :func:`~pymc_dp.score_release`.

    Returns
    -------
    ScoreSettings
        ``settings`` for :func:`~pymc_dp.score_release`, and ``widening``, the forecast.

    Notes
    -----
    With scores s in coordinates in which a record's information is the identity, held to
    :math:`\psi`, the released sum tells the parameters to a precision of
    :math:`D^T (V + \sigma^2 I)^{-1} D`, where :math:`D = n E[\psi s^T]`,
    :math:`V = n \operatorname{Cov} \psi` and :math:`\sigma` grows with the bound. The bound is
    where the trace of its inverse is least.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_dp as pmdp
    >>> rng = np.random.default_rng(1)
    >>> def simulate(values):
    ...     with pm.Model() as model:
    ...         mu = pm.Normal("mu", 0, 10)
    ...         _ = pm.Normal("y", mu, 2, observed=rng.normal(values["mu"], 2, size=5000))
    ...     return model
    >>> found = pmdp.suggest_score(simulate, {"mu": 3.0}, epsilon=1, delta=1e-6)
    >>> bool(1 < found.widening < 1.1)
    True
    """
    budget = PrivacyBudget(epsilon, delta, neighbours=neighbours)
    values = {name: np.asarray(value) for name, value in at.items()}
    with no_model_context():
        model = simulate(values)
    if not isinstance(model, pm.Model):
        raise TypeError(f"simulate= must return a pymc.Model, not {type(model).__name__}.")
    refuse_confidential([model])
    scores = _simulated(model)
    [place] = read_places(at, model, scores)
    number = scores.records.likelihood.n_records if n is None else int(n)
    noise = budget.gaussian_queries(1).noise_multiplier * record_weight(neighbours)
    return _settings(scores, place, number, noise, scores.bound(bound), None)


def settings_at(
    simulator: Simulator,
    confidential: ConfidentialScores,
    place: Vector,
    noise: float,
    bound: Bound,
    basis: Matrix | None,
) -> ScoreSettings:
    """Choose settings for a place, on records simulated there."""
    theta = confidential.records.space.start.copy()
    theta[confidential.coordinates] = place
    scores = _simulated(simulator(theta), simulator.like)
    if scores.records.likelihood.has_records_of(confidential.records.likelihood):
        raise ValueError(
            "simulate= puts records of the confidential model in its own: simulate covariates "
            "too, or take public ones."
        )
    scores.bound(bound, confidential if bound == "covariates" else None)
    return _settings(scores, place, simulator.n, noise, bound, basis)


def _simulated(model: pm.Model, like: RecordModel | None = None) -> ConfidentialScores:
    records = RecordModel(model, confidential=False, like=like)
    if records.likelihood.n_records < 100:
        raise ValueError("simulate= needs some thousands of records, a hundred at the least.")
    return ConfidentialScores(model, records)


def _settings(
    scores: ConfidentialScores,
    place: Vector,
    n: int,
    noise: float,
    bound: Bound,
    basis: Matrix | None,
) -> ScoreSettings:
    size = scores.layout.size
    raw = scores.parts("length", place, np.eye(size), math.inf)
    if not np.isfinite(raw).all() or not raw.any():
        raise ValueError("Records simulated at this place have no score there, or an infinite one.")
    mass = _inverse_information(raw) if basis is None else basis @ basis.T
    basis = read_basis(mass, scores)
    score = basis.T @ raw
    free = scores.parts(bound, place, basis, math.inf)
    # what a record's part is shortened from: a bound far below all shows its length
    small = 1e-9 * float(np.max(np.linalg.norm(free, axis=0)))
    shortened = np.linalg.norm(scores.parts(bound, place, basis, small), axis=0)
    lengths = small * np.linalg.norm(free, axis=0) / np.maximum(shortened, 1e-300)
    bounds = np.unique(np.quantile(lengths[shortened > 0], _QUANTILES))
    best = min(
        (_widening(score, free * np.minimum(1, b / np.maximum(lengths, 1e-300)), n, noise * b), b)
        for b in bounds[bounds > 0].tolist()
    )
    return ScoreSettings(best[1], mass, bound, best[0])


def _widening(score: Matrix, held: Matrix, n: int, noise: float) -> float:
    """Posterior width by what a noised sum tells, over that by all records."""
    number = score.shape[1]
    slope = n / number * held @ score.T
    spread = n * np.atleast_2d(np.cov(held)) + (noise / CLIPPED) ** 2 * np.eye(len(held))
    told = slope.T @ np.linalg.solve(spread, slope)
    whole = n / number * score @ score.T
    try:
        ratio = np.linalg.solve(told, whole)
    except np.linalg.LinAlgError:
        return math.inf
    return math.sqrt(max(float(np.trace(ratio)) / len(ratio), 0.0)) or math.inf


def _inverse_information(scores: Matrix) -> Matrix:
    """Inverse of a record's information; directions that it hardly has are taken for average."""
    information = scores @ scores.T / scores.shape[1]
    scale = np.sqrt(np.where(np.diag(information) > 0, np.diag(information), 1.0))
    found, vectors = np.linalg.eigh(information / np.outer(scale, scale))
    found = np.where(found > _RANK * found[-1], found, 1.0)
    turned = vectors / scale[:, None]
    return (turned / found) @ turned.T
