"""Where the posterior of a marginal model is: a start for samplers, and a rough shape.

With many records the density is steep, and chains that start from the prior hardly arrive. The
place is found with the releases weighted down at first, then more and more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import scipy
from pymc.blocking import DictToArrayBijection, RaveledVars
from pymc.vartypes import continuous_types

from pymc_dp.graph.intervals import ONCE
from pymc_dp.graph.rewrites import without_checks
from pymc_dp.types import Matrix, Vector

__all__ = ["Mode", "find_mode", "has_light_tails", "scattered_start", "start_of"]

WEIGHTS = (1e-6, 1e-3, 1.0, 1.0)


@dataclass(frozen=True)
class Mode:
    """A mode of a model's posterior.

    Attributes
    ----------
    point : dict
        Values of the value variables, as samplers see them.
    vector : array
        The same as one vector.
    covariance : array
        Inverse of minus the Hessian there; empty where it is not known.
    names : tuple
        How PyMC reads a point from a vector.
    """

    point: dict[str, Any]
    vector: Vector
    covariance: Matrix
    names: Any

    def point_of(self, vector: Vector) -> dict[str, Any]:
        """Write another vector as a point."""
        return DictToArrayBijection.rmap(RaveledVars(vector, self.names))


def scattered_start(mode: Mode) -> dict[str, Any]:
    """Make initial values for ``pm.sample``, which each chain draws for itself, around a mode."""
    deviations = mode.point_of(np.sqrt(np.diagonal(mode.covariance)))
    return {
        name: pm.Normal.dist(value, np.maximum(deviations[name], 1e-300))
        for name, value in mode.point.items()
    }


def has_light_tails(model: pm.Model, mode: Mode) -> bool:
    """Whether the density of a model's one parameter falls off on both sides of its mode.

    By a factor of exp(5) within six standard deviations, as they are at the mode: those of normal,
    exponential and Gumbel variables do, that of a Cauchy variable does not.
    """
    density = pytensor.function(list(model.value_vars), model.logp(), mode=ONCE)
    reach = 6 * np.sqrt(mode.covariance[0, 0])
    with np.errstate(all="ignore"):
        here, *there = [
            float(density(**mode.point_of(mode.vector + move))) for move in (0, -reach, reach)
        ]
    return bool(here - max(there) > 5)


def start_of(model: pm.Model) -> Mode:
    """Where PyMC would start, with no idea of the shape."""
    raveled = DictToArrayBijection.map(model.initial_point())
    vector = np.asarray(raveled.data, dtype=np.float64)
    point = DictToArrayBijection.rmap(raveled)
    return Mode(point, vector, np.zeros((0, 0)), raveled.point_map_info)


def find_mode(model: pm.Model, weights: Sequence[float] = WEIGHTS) -> Mode | None:
    """Find a mode; None where a variable is discrete or the density is nowhere finite.

    Releases are weighted down at first, by `weights`: from far away. A hierarchy's scale would
    vanish meanwhile, so that full weights are better where the model starts near its posterior.
    """
    values = list(model.value_vars)
    if not values or any(value.dtype not in continuous_types for value in values):
        return None
    prior = model.logp(vars=[*model.free_RVs, *model.potentials])
    likelihood = model.logp(vars=model.observed_RVs) if model.observed_RVs else pt.zeros(())
    weight = pt.dscalar("weight")
    # where the search goes too far, a scale that underflows is no error
    density = without_checks(prior + weight * likelihood)
    gradients: Any = pt.grad(density, values)
    gradient = pt.concatenate([g.ravel() for g in gradients])
    # some hundred evaluations are not worth compiling
    function = pytensor.function(
        [weight, *values], [density, gradient], mode=ONCE, on_unused_input="ignore"
    )
    raveled = DictToArrayBijection.map(model.initial_point())
    names = [value.name for value in values]

    def evaluate(weight: float, vector: Vector) -> tuple[float, Vector]:
        point = DictToArrayBijection.rmap(RaveledVars(vector, raveled.point_map_info))
        density, gradient = function(np.asarray(weight), *[np.asarray(point[n]) for n in names])
        order = DictToArrayBijection.map(_unraveled(gradient, point, names))
        if not np.isfinite(density) or not np.all(np.isfinite(order.data)):
            return 1e300, np.zeros_like(vector)
        return -float(density), -_sorted(order, raveled)

    return _climbed(evaluate, raveled, weights)


def _unraveled(gradient: Vector, point: dict[str, Any], names: list[str]) -> dict[str, Any]:
    sizes = [np.size(point[name]) for name in names]
    parts = np.split(gradient, np.cumsum(sizes)[:-1])
    shaped = {n: p.reshape(np.shape(point[n])) for n, p in zip(names, parts, strict=True)}
    return {name: shaped[name] for name in point if name in shaped}


def _sorted(found: RaveledVars, like: RaveledVars) -> Vector:
    assert [i[0] for i in found.point_map_info] == [i[0] for i in like.point_map_info]
    return found.data


def _climbed(evaluate: Any, raveled: RaveledVars, weights: Sequence[float]) -> Mode | None:
    vector = np.asarray(raveled.data, dtype=np.float64)
    with np.errstate(all="ignore"):
        for weight in weights:
            found = scipy.optimize.minimize(
                lambda x, weight=weight: evaluate(weight, x),
                vector,
                jac=True,
                method="BFGS",
                options={"maxiter": 100},
            )
            if np.isfinite(found.fun) and found.fun < 1e299:
                vector = found.x
        if not evaluate(1.0, vector)[0] < 1e299:
            return None
        covariance = _inverse_hessian(evaluate, vector, np.asarray(found.hess_inv))
    point = DictToArrayBijection.rmap(RaveledVars(vector, raveled.point_map_info))
    return Mode(point, vector, covariance, raveled.point_map_info)


def _inverse_hessian(evaluate: Any, vector: Vector, guess: Matrix) -> Matrix:
    """Invert the Hessian, by differences of gradients over about a hundredth of a deviation."""
    d = vector.size
    steps = np.sqrt(np.clip(np.diagonal(guess), 1e-24, 1.0))
    hessian = np.eye(d)
    for _ in range(3):  # the first guess of a step may be far off
        rows = []
        for i, step in enumerate(0.03 * steps):
            move = step * (np.arange(d) == i)
            up, down = evaluate(1.0, vector + move)[1], evaluate(1.0, vector - move)[1]
            rows.append((up - down) / (2 * step))
        hessian = 0.5 * (np.array(rows) + np.array(rows).T)
        steps = 1 / np.sqrt(np.clip(np.abs(np.diagonal(hessian)), 1e-24, 1e24))
    values, vectors = np.linalg.eigh(hessian)
    values = np.maximum(np.abs(values), 1e-12 * np.abs(values).max(initial=1.0))
    return (vectors / values) @ vectors.T
