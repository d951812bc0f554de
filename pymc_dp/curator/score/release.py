"""Release a noised score of confidential records: one look, and no chain."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike

from pymc_dp.accounting.allowance import Allowance
from pymc_dp.accounting.budget import PrivacyBudget, record_weight
from pymc_dp.accounting.door import Door
from pymc_dp.accounting.gaussian import gaussian_epsilon
from pymc_dp.accounting.levels import CLIPPED, GRADIENT_LEVELS
from pymc_dp.analyst.score.bounding import Bound
from pymc_dp.analyst.score.looks import Look, Moments, Statistic
from pymc_dp.analyst.score.release import ScoreRelease
from pymc_dp.curator.curated import mark_confidential
from pymc_dp.curator.model import record_model
from pymc_dp.curator.plan.pilot import PilotLook, explore, public_number
from pymc_dp.curator.plan.simulator import Simulator, Values
from pymc_dp.curator.score.places import Place, read_basis, read_places
from pymc_dp.curator.score.suggest import settings_at
from pymc_dp.curator.score.totals import ConfidentialScores
from pymc_dp.curator.shards.scores import confidential_scores
from pymc_dp.curator.steps.base import (
    refuse_confidential_starts,
    refuse_number_of_records,
    refuse_read_freely,
)
from pymc_dp.numerics.compiled import compiling_silently
from pymc_dp.types import Neighbours, Vector

__all__ = ["score_release"]

_ALSO = 0.2  # part of the spending that goes to other sums of the records
_COUNT = 0.02  # and to their number, where it is confidential


@compiling_silently()
@np.errstate(all="ignore")  # a warning would tell that some record is out of range
def score_release(
    model: pm.Model | None = None,
    *,
    at: Place | Sequence[Place] | None = None,
    clip: float | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    budget: PrivacyBudget | None = None,
    share: float | None = None,
    neighbours: Neighbours | None = None,
    simulate: Callable[[Values], pm.Model] | None = None,
    bound: Bound | None = None,
    inverse_mass: ArrayLike | None = None,
    also: Mapping[str, tuple[Statistic, float]] | None = None,
    also_share: float = _ALSO,
    pilot_share: float = 0.3,
    n: int | None = None,
    independent_records: bool = False,
    public_data: Sequence[str] = (),
) -> ScoreRelease:
    r"""Release the sum of the records' scores at a place, with noise, once.

    Whoever has the result infers from it with the same model, its records latent
    (:meth:`ScoreRelease.declare`): with any prior, any sampler and as many draws as they like, at
    no further cost. Clipping and noise are part of that model, and bias nothing.

    Parameters
    ----------
    model : pymc.Model, optional
        The model with the confidential records observed, if not the one in context.
    at : dict, or list of dicts, optional
        Public values of the parameters at which scores are taken, by name, near where the posterior
        is. Several places share the budget equally. Without it a pilot finds the place.
    clip : float, optional
        Bound on the length of a record's score in the coordinates of `inverse_mass`; chosen on
        simulated records where it is left out.
    epsilon, delta : float, optional
        Guarantee for the release; or
    budget : PrivacyBudget, optional
        one to share with other releases and steps, and
    share : float, optional
        the part of it to spend; all that is left by default.
    neighbours : {"substitute", "add_remove"}, optional
        Which data sets are neighbours; "substitute" by default. With "add_remove" the number of
        records is confidential too, and is released with noise.
    simulate : callable, optional
        As of :func:`~pymc_dp.pilot`: returns the model with records simulated at given values. To
        be written where `at` or `clip` is left out.
    bound : {"length", "covariates"}, optional
        How scores are kept within `clip` (see Notes); read from the model by default.
    inverse_mass : array_like, optional
        As of :class:`~pymc_dp.DPHMC`: a rough posterior covariance, up to a factor.
    also : dict, optional
        Other sums over the records to release in the same look: by name, a function that takes the
        records' arrays by name (``pm.Data`` and observed variables) and returns one row of numbers
        a record in PyTensor, and the length to which such rows are clipped.
    also_share, pilot_share : float
        Parts of what is spent that go to these sums, and to the pilot.
    n : int, optional
        Number of records, roughly, under "add_remove" with `simulate`.
    independent_records, public_data : bool, list of str
        As of :class:`~pymc_dp.DPHMC`.

    Returns
    -------
    ScoreRelease
        May be published.

    Raises
    ------
    PrivacyError
        If the budget does not cover it; the data has not been looked at then.

    Notes
    -----
    The score is a sum over records, so that its noised value is a release like any other. At a
    place near the mode it is nearly sufficient, and for exponential families in their natural
    parameters exactly so wherever it is taken.

    ``bound="length"`` clips the length of each score. ``"covariates"``, the default for
    regressions, scales it by a factor of the covariates alone and centres it given these, so that a
    wrong law for the covariates does not bias what an analyst infers with a place near the mode.
    :mod:`pymc_dp.analyst.score.bounding` has both, and the proof of their sensitivity.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_dp as pmdp
    >>> rng = np.random.default_rng(1)
    >>> X = rng.normal(size=(1000, 2))  # confidential
    >>> y = rng.random(1000) < 1 / (1 + np.exp(-X @ [0.5, -0.5]))
    >>> with pm.Model():
    ...     beta = pm.Normal("beta", 0, 1, shape=2)
    ...     _ = pm.Bernoulli("y", logit_p=X @ beta, observed=y.astype(int))
    ...     release = pmdp.score_release(at={"beta": [0.4, -0.4]}, clip=1, epsilon=1, delta=1e-6)
    >>> release.looks[0].bound, release.value.shape
    ('covariates', (2,))
    """
    model = pm.modelcontext(model)
    allowance = Allowance(
        epsilon=epsilon, delta=delta, budget=budget, chains=1, share=share, neighbours=neighbours
    )
    budget = allowance.budget
    assert budget is not None
    _check_numbers(clip, also or {}, also_share, pilot_share)
    if simulate is None and (at is None or clip is None):
        raise ValueError(
            f"{'at' if at is None else 'clip'}= is missing: write it, or simulate=, a function "
            "that returns the model with records simulated at given values, to find it."
        )
    # all is compiled before anything is paid for, since that may fail
    records = record_model(model, independent_records=independent_records, public_data=public_data)
    refuse_confidential_starts(model, model.rvs_to_initial_values)
    if budget.neighbours == "add_remove":
        refuse_number_of_records(model, records.likelihood)
    refuse_read_freely(records.likelihood)
    scores = confidential_scores(model, records, public_data, budget.neighbours)
    kind = scores.bound(bound)
    sums = [
        _Sum(name, scores.statistic(name, statistic, float(length)), float(length))
        for name, (statistic, length) in (also or {}).items()
    ]
    if budget.neighbours == "add_remove":
        sums.append(_Sum("n", lambda: [records.likelihood.n_records * GRADIENT_LEVELS], CLIPPED))
    places = [] if at is None else read_places(at, model, scores)
    basis = None if inverse_mass is None else read_basis(inverse_mass, scores)
    mark_confidential(model, records.likelihood, budget)

    spending, looks = allowance.share, []
    simulator = None
    if simulate is not None:
        simulator = Simulator(simulate, model, records, public_number(n, records, budget))
        if at is None:
            found, seen = explore(budget, simulator, model, records, share=pilot_share * spending)
            looks = [_pilot_look(each, scores) for each in seen]
            places = [records.space.flatten(found.point)[scores.coordinates]]
            spending *= 1 - pilot_share
    shares = [spending * part for part in _parts(len(places), sums, also_share)]
    queries = [budget.gaussian_queries(1, part) for part in shares]
    if clip is None:
        assert simulator is not None
        noise = queries[0].noise_multiplier * record_weight(budget.neighbours)
        found_settings = settings_at(simulator, scores, places[0], noise, kind, basis)
        clip, basis = found_settings.clip, read_basis(found_settings.inverse_mass, scores)
    if basis is None:
        basis = np.eye(scores.layout.size)
    trial = scores.tried(looks[0].place if looks else places[0])

    door = budget.open(queries, "score release")
    records.likelihood.load()
    for i, place in enumerate(places):
        total = partial(scores.total, kind, place, basis, float(clip))
        looks.append(Look(*_noised(door, i, total, clip), place, basis, float(clip), kind))
    moments = [
        Moments(*_noised(door, len(places) + i, each.total, each.clip), each.name, each.clip)
        for i, each in enumerate(sums)
    ]
    number, n_sigma = float(records.likelihood.n_records), 0.0
    if budget.neighbours == "add_remove":
        count = moments.pop()
        number, n_sigma = float(count.value[0]), count.sigma
    return ScoreRelease(
        parameters=scores.layout.shapes,
        observed=scores.observed,
        arrays=scores.arrays,
        looks=tuple(looks),
        also=tuple(moments),
        n=number,
        n_sigma=n_sigma,
        epsilon=gaussian_epsilon(budget.delta, budget.mu * allowance.share),
        delta=budget.delta,
        neighbours=budget.neighbours,
        trial=trial,
    )


class _Sum(NamedTuple):
    """Another sum over the records, in whole numbers."""

    name: str
    total: Callable[[], list[int]]
    clip: float


def _noised(
    door: Door, look: int, total: Callable[[], list[int]], clip: float
) -> tuple[float, Vector]:
    """Noise and noised value of a sum of parts no longer than `clip`."""
    bound = float(clip) / CLIPPED
    levels = door.release(total, GRADIENT_LEVELS, look)
    return door.noise(look) * bound, bound / GRADIENT_LEVELS * np.array(levels, dtype=float)


def _pilot_look(seen: PilotLook, scores: ConfidentialScores) -> Look:
    place, basis = seen.theta[scores.coordinates], seen.basis[scores.coordinates]
    return Look(seen.sigma, seen.value, place, basis, CLIPPED * seen.bound, "length")


def _parts(n_places: int, sums: Sequence[_Sum], also_share: float) -> list[float]:
    """Split what is spent: places alike, other sums alike, and a little for the number."""
    count = _COUNT if sums and sums[-1].name == "n" else 0.0
    others = len(sums) - (1 if count else 0)
    also = also_share if others else 0.0
    parts = [(1 - also) / n_places] * n_places + [also / max(others, 1)] * others
    return [(1 - count) * part for part in parts] + ([count] if count else [])


def _check_numbers(
    clip: float | None, also: Mapping[str, Any], also_share: float, pilot_share: float
) -> None:
    lengths = {"clip": clip} | {f"the length of also={name!r}": also[name][1] for name in also}
    for name, length in lengths.items():
        if length is not None and (np.ndim(length) or not 1e-100 < length < 1e100):
            raise ValueError(f"{name} must be positive and finite, not {length!r}.")
    for name, part in (("also_share", also_share), ("pilot_share", pilot_share)):
        if not 0 < part < 1:
            raise ValueError(f"{name} must lie in (0, 1), not {part!r}.")
    if "n" in also:
        raise ValueError("also= must not be named 'n', which is the number of records.")
