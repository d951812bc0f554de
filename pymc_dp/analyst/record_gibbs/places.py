"""Points of a model that are unlike each other, to look at a log-density's form from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pymc.blocking import PointType
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random import basic as rvs

from pymc_dp.compat import make_initial_point_fn
from pymc_dp.graph.additivity import direct_inputs
from pymc_dp.graph.intervals import ONCE
from pymc_dp.graph.support import small_support

__all__ = ["arbitrary_points", "near"]

#: up to so many entries of counts and categories many points are looked at: in a longer table one
#: point has all values that a record may have, in all combinations
FEW_ENTRIES = 200
MOST_POINTS = 64
#: counts are given so many values
COUNTS = 4


def arbitrary_points(model: pm.Model, point: PointType) -> list[PointType]:
    """Draw points from the prior; parameters without one stay near where they are.

    The form of a log-density may depend on the values of counts and categories (that of p in
    ``pm.Bernoulli("k", 0.9 * p)`` is a beta's where all are ones), some of which the prior hardly
    ever draws: further points have values of each that are all alike probable.
    """
    others = _other_values(model)
    entries = sum(np.size(point[name]) for name in others)
    many = entries > FEW_ENTRIES
    # PyMC takes long to draw many categories, all values of which are tried below
    named = {str(rv.name): rv for rv in model.free_RVs}
    kept = {name: point[name] for name in others if many and small_support(named[name]) is not None}
    seeds = (1,) if many else (1, 2)
    try:
        draw = make_initial_point_fn(
            model=model,
            default_strategy="prior",
            jitter_rvs=set(),
            return_transformed=True,
            overrides=kept,
        )
        drawn = [draw(seed) for seed in seeds]
    except (NotImplementedError, ValueError):  # a prior so wide that draws given it overflow
        drawn = [near(point, np.random.default_rng(seed)) for seed in seeds]
    rng = np.random.default_rng(0)
    found = []
    for i in range((1 if many else MOST_POINTS) if others else 0):
        at = dict(drawn[i % len(seeds)])
        found.append(at | {name: other(rng, at[name]) for name, other in others.items()})
    return found if many and len(kept) == len(others) else [*drawn, *found]


def _other_values(model: pm.Model) -> dict[str, Callable[[Any, Any], Any]]:
    """Find counts and categories that may be given any values, and how to draw these."""
    bounding = _totals(model)
    return {
        str(model.rvs_to_values[rv].name): other
        for rv in model.free_RVs
        if rv not in bounding and (other := _other_value(model, rv)) is not None
    }


def _other_value(model: pm.Model, rv: Any) -> Callable[[Any, Any], Any] | None:
    """Return ``other(rng, value)``, which draws what a count or category may always be."""
    op = rv.owner.op
    values: Any = small_support(rv)
    if isinstance(op, rvs.PoissonRV | rvs.NegBinomialRV):
        values = np.arange(COUNTS)
    elif isinstance(op, rvs.GeometricRV):
        values = np.arange(1, 1 + COUNTS)
    elif isinstance(op, rvs.BinomialRV | rvs.MultinomialRV):
        n = op.dist_params(rv.owner)[0]
        if direct_inputs([n], model.basic_RVs):
            return None
        if isinstance(op, rvs.MultinomialRV):
            return _all_in_one
        values = np.unique([0, 1, np.min(n.eval(mode=ONCE))])
    if values is None:
        return None
    return lambda rng, value: rng.choice(values, size=np.shape(value)).astype(value.dtype)


def _all_in_one(rng: np.random.Generator, value: NDArray) -> NDArray:
    """Put all that a row counts into one category of it."""
    category = rng.integers(value.shape[-1], size=(*value.shape[:-1], 1))
    chosen = np.arange(value.shape[-1]) == category
    return (chosen * value.sum(axis=-1, keepdims=True)).astype(value.dtype)


def _totals(model: pm.Model) -> list[Any]:
    """Latent variables that bound others: how many there are to be counted."""
    counted = [
        rv.owner.op.dist_params(rv.owner)[0]
        for rv in model.basic_RVs
        if isinstance(rv.owner.op, rvs.BinomialRV | rvs.MultinomialRV)
    ]
    reached = set(ancestors(counted))
    return [rv for rv in model.free_RVs if rv in reached]


def near(point: PointType, rng: np.random.Generator) -> PointType:
    """Draw a point beside another: real values move by standard normal steps."""
    return {
        name: value + rng.normal(size=np.shape(value))
        if np.issubdtype(np.asarray(value).dtype, np.floating)
        else value
        for name, value in point.items()
    }
