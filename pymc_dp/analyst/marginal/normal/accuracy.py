"""How far off the normal law of sums is, and integrals over records, at the posterior.

The posterior under the next terms of the Edgeworth series is the present one, reweighted: draws
are, and means and standard deviations before and after compared. Where the terms are of the size of
the law itself, as for records with heavy tails, the series says nothing, and the error is infinite.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

from pymc_dp.analyst.marginal.normal.edgeworth import edgeworth_terms, standard_cumulants
from pymc_dp.analyst.marginal.normal.normal_release import NormalReleaseRV
from pymc_dp.analyst.marginal.start import Mode, find_mode
from pymc_dp.compat import replace_rvs_by_values
from pymc_dp.graph.intervals import ONCE
from pymc_dp.types import Array, Matrix, Vector

__all__ = ["NormalError", "laplace_draws", "normal_error", "quadrature_error"]

#: ratios of the series to the normal law that are taken at their word, and the share of draws
#: beyond these from which on the error cannot be told
_RATIOS, _OFTEN = (0.05, 20.0), 0.05


@dataclass(frozen=True)
class NormalError:
    """Estimated error of the normal law, in posterior standard deviations; infinite if unknown.

    Attributes
    ----------
    means : dict
        For every parameter, of its posterior mean (the largest of its entries).
    deviations : dict
        Of its posterior standard deviation, relative to it.
    quadrature : float
        Error of the mean of a total by quadrature, in its standard deviations.
    """

    means: dict[str, float]
    deviations: dict[str, float]
    quadrature: float

    @property
    def worst(self) -> float:
        """The largest of them."""
        return max([*self.means.values(), *self.deviations.values(), 0.0])

    def __str__(self) -> str:
        if not np.isfinite(self.worst):
            return (
                "the error of the normal law cannot be estimated: what records add has tails too "
                "heavy, or records are too few; RecordGibbs, which samples the records, is exact"
            )
        parts = [
            f"{name}: mean {self.means[name]:.2g}, sd {self.deviations[name]:.2g}"
            for name in self.means
        ]
        return "estimated error in posterior sds: " + "; ".join(parts)


def normal_error(
    model: pm.Model,
    points: Sequence[dict[str, Any]],
    names: list[str],
    natural: bool = False,
) -> NormalError | None:
    """Estimate the error of a marginal model's posterior from draws of it.

    Parameters
    ----------
    model : Model
        With totals that were taken to be normal.
    points : sequence of dict
        Draws: values of the value variables.
    names : list of str
        Parameters to judge.
    natural : bool
        Whether draws are of the variables themselves, not transformed.

    Returns
    -------
    NormalError or None
        None where nothing was taken to be normal.
    """
    sources = _sources(model)
    if not sources or not points:
        return None
    function = _compiled(model, sources, names, natural)
    ratios, found, beyond, off = [], [], 0, 0.0
    for point in points:
        released, draws = function(point)
        own = np.array([_ratio(value) for value in released])
        held = np.clip(np.nan_to_num(own, nan=1.0), *_RATIOS)
        beyond += bool(np.any(held != own))
        off = max(off, *map(_quadrature_error, released))
        ratios.append(np.prod(held))
        found.append(draws)
    if beyond > _OFTEN * len(points):
        unknown = dict.fromkeys(names, np.inf)
        return NormalError(unknown, unknown, off)
    weights = np.array(ratios) / np.sum(ratios)
    means, deviations = {}, {}
    for i, name in enumerate(names):
        draws = np.array([np.ravel(one[i]) for one in found], dtype=np.float64)
        means[name], deviations[name] = _shifts(draws, weights)
    return NormalError(means, deviations, off)


def _shifts(draws: Matrix, weights: Vector) -> tuple[float, float]:
    """Tell how weights change mean and standard deviation, over the standard deviation."""
    mean, sd = draws.mean(axis=0), draws.std(axis=0)
    sd = np.where(sd > 0, sd, 1.0)
    new = weights @ draws
    new_sd = np.sqrt(np.maximum(weights @ (draws - new) ** 2, 0.0))
    return float(np.max(np.abs(new - mean) / sd)), float(np.max(np.abs(new_sd / sd - 1)))


def quadrature_error(model: pm.Model, mode: Mode) -> float:
    """Largest error of a total's mean by quadrature around a mode, in the total's deviations."""
    sources = _sources(model)
    function = _compiled(model, sources, [])
    sds = np.sqrt(np.diagonal(mode.covariance))
    vectors = [mode.vector]
    for i, sd in enumerate(sds):
        move = min(3 * sd, 2.0) * (np.arange(sds.size) == i)
        vectors += [mode.vector + move, mode.vector - move]
    with np.errstate(all="ignore"):
        errors = [
            _quadrature_error(one)
            for vector in vectors
            for one in function(mode.point_of(vector))[0]
        ]
    return float(np.max(np.nan_to_num(errors, nan=np.inf), initial=0.0))


def laplace_draws(model: pm.Model, number: int = 400) -> list[dict[str, Any]]:
    """Draws of the normal approximation to a posterior at its mode."""
    mode = find_mode(model)
    if mode is None:
        return []
    rng = np.random.default_rng(0)
    vectors = rng.multivariate_normal(mode.vector, mode.covariance, size=number, method="eigh")
    return [mode.point_of(vector) for vector in vectors]


def _sources(model: pm.Model) -> list[Any]:
    return [
        rv
        for rv in model.basic_RVs
        if isinstance(rv.owner.op, NormalReleaseRV) and NormalReleaseRV.background(rv) is not None
    ]


def _compiled(model: pm.Model, sources: list[Any], names: list[str], natural: bool = False) -> Any:
    """Make a function of a point: what is known of every block's totals, and parameters."""
    graphs: list[Any] = []
    for rv in sources:
        background = NormalReleaseRV.background(rv)
        assert background is not None
        value: Any = model.rvs_to_values[rv]
        released = pt.concatenate([background.earlier, value.ravel().astype("float64")])
        graphs += [released, *background]
    graphs += [model[name] for name in names]
    inputs: list[Any] = model.value_vars
    if natural:
        inputs = [rv.type(name=rv.name) for rv in model.free_RVs]
        given: dict[Any, Any] = dict(zip(model.free_RVs, inputs, strict=True))
        given |= {rv: model.rvs_to_values[rv] for rv in model.observed_RVs}
        graphs = replace_rvs_by_values(graphs, rvs_to_values=given)
    else:
        graphs = model.replace_rvs_by_values(graphs)
    function = pytensor.function(inputs, graphs, mode=ONCE, on_unused_input="ignore")

    def evaluate(point: dict[str, Any]) -> tuple[list[list[Array]], list[Array]]:
        out = function(*[np.asarray(point[v.name], dtype=v.dtype) for v in inputs])
        blocks = [out[8 * i : 8 * i + 8] for i in range(len(sources))]
        return blocks, out[8 * len(sources) :]

    return evaluate


def _ratio(value: list[Array]) -> float:
    """Density by the series over that by the normal law; the series may turn negative."""
    released, mean, covariance, _, columns, weights, counts, _ = value
    try:
        third, fourth, factor = standard_cumulants(covariance, columns, weights, counts)
    except np.linalg.LinAlgError:
        return 1.0
    first, second = edgeworth_terms(np.linalg.solve(factor, released - mean), third, fourth)
    return 1 + first + second


def _quadrature_error(value: list[Array]) -> float:
    _, mean, covariance, *_, finer = value
    return float(np.max(np.abs(finer - mean) / np.sqrt(np.diagonal(covariance))))
