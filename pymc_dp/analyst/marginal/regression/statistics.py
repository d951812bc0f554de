"""Regression statistics integrated out: one holder's by their normal law, several holders' z.

:class:`~pymc_dp.RegressionStatistics` are normal given the parameters, so that with Gaussian noise
the release is normal, and with Laplace noise it is so given its variances; the statistics need not
exist. Only under Laplace noise much larger than they vary by do they stay, standardised. Of
:func:`~pymc_dp.HolderStatistics` z = X'y is normal given X'X and is integrated out too, see
:mod:`~pymc_dp.analyst.marginal.regression.holders`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.type import random_generator_type
from pytensor.tensor.variable import TensorVariable

from pymc_dp.analyst.marginal.normal.normal_release import (
    MixingRV,
    NormalReleaseRV,
    StandardTotalsRV,
)
from pymc_dp.analyst.marginal.regression.holders import holders_replacement
from pymc_dp.analyst.marginal.regression.numbers import Numbers, names_of_numbers
from pymc_dp.analyst.marginal.strategy import Integrated, Replacement
from pymc_dp.analyst.regression.conjugate_priors import constant
from pymc_dp.analyst.regression.gibbs_ss.latent_statistics import (
    check_only_released,
    latent_statistics,
    linear_map,
)
from pymc_dp.analyst.regression.normal_x.wishart import CrossProductRV, GramRV
from pymc_dp.analyst.release import PrivatizedRV, Release, by_name, releases
from pymc_dp.graph.intervals import ONCE
from pymc_dp.mechanisms import Laplace

__all__ = ["integrated_statistics", "regression_variables"]

#: from how many standard deviations of the statistics on Laplace noise drowns them
DROWNED = 5.0


class StatisticsReleaseRV(NormalReleaseRV):
    """A release of linear functions of regression statistics, which are integrated out."""

    @classmethod
    def of_arrays(
        cls, mean: Any, covariance: Any, shape: tuple[int, ...], last: Any, told: Integrated
    ) -> TensorVariable:
        """Make the variable, of the mean and covariance of its numbers one after the other."""
        inner = [random_generator_type(), mean.type(), covariance.type()]
        factor = pt.linalg.cholesky(inner[2])
        size = (mean.type.shape[0],)
        rng, z = pt.random.normal(size=size, rng=inner[0], return_next_rng=True)
        value = inner[1] + factor @ z
        if last is not None:
            rng, end = last.draw(value[-1], rng)
            value = pt.concatenate([value[:-1], end[None]])
        axes = ",".join(f"r{axis}" for axis in range(len(shape)))
        op = cls(
            inner,
            [rng, value.reshape(shape)],
            last=last,
            integrated=told,
            extended_signature=f"[rng],(d),(d,d)->[rng],({axes})",
        )
        generator = pytensor.shared(np.random.default_rng())
        return op.make_node(generator, mean, covariance).outputs[1]


def regression_variables(model: pm.Model) -> list[TensorVariable]:
    """Latent statistics of regressions, and what is integrated out along with them."""
    grams = [rv for rv in model.free_RVs if isinstance(rv.owner.op, GramRV)]
    rows = [rv for S in grams for rv in S.owner.inputs if rv in model.free_RVs]
    crosses = [rv for rv in model.free_RVs if isinstance(rv.owner.op, CrossProductRV)]
    return [*latent_statistics(model), *grams, *crosses, *rows]


def integrated_statistics(
    model: pm.Model, asked: Sequence[TensorVariable] | None = None, method: str | None = None
) -> list[Replacement]:
    """Replace the latent regression statistics of a model, or those asked for.

    Of holders' statistics, z is always integrated out, and the rows' law too, where its prior is
    conjugate, unless variables were asked for and it is not among them.
    """
    found, numbers = [], Numbers(model)
    for s in latent_statistics(model):
        if asked is None or s in asked:
            _check_method(method, "normal", s)
            found.append(_statistics_replacement(model, s, numbers))
    for z in (rv for rv in model.free_RVs if isinstance(rv.owner.op, CrossProductRV)):
        if asked is None or z in asked:
            _check_method(method, "exact", z)
            found.append(holders_replacement(model, numbers, asked))
    return [numbers.replacement(), *found] if numbers.unknown else found


def _check_method(method: str | None, own: str, statistics: TensorVariable) -> None:
    if method not in (None, own):
        raise ValueError(
            f"The regression statistics {statistics.name!r} are integrated out by method {own!r}, "
            f"which follows from their law: write that instead of method={method!r}, or none."
        )


def _statistics_replacement(model: pm.Model, s: TensorVariable, numbers: Numbers) -> Replacement:
    """Let the releases of one vector of statistics have their own law."""
    found = by_name(r for r in releases(model) if s in ancestors([r.statistic]))
    check_only_released(model, s, found)
    n, *others = s.owner.inputs[2:]
    mean, cov = s.owner.op.mean_and_cov(numbers.of(n), *others)
    maps = [linear_map(release, s, s.owner.op.layout.size) for release in found]
    rows = np.concatenate([rows for rows, _ in maps])
    offset = np.concatenate([offset for _, offset in maps])
    if all(_drowned(release, part, cov) for release, (part, _) in zip(found, maps, strict=True)):
        return _standardised(model, s, found, mean, cov)
    mean, cov = rows @ mean + offset, rows @ cov @ rows.T
    sizes = [len(offset) for _, offset in maps]
    latents: dict[str, Any] = {}
    variances, last = [], None
    for release, size in zip(found, sizes, strict=True):
        noise = np.broadcast_to(release.mechanism.noise, release.rv.type.shape).ravel()
        if not isinstance(release.mechanism, Laplace):
            variances.append(pt.as_tensor(noise**2))
            continue
        # the last number's noise is summed in closed form, the others' given their variances
        mixed = size - 1 if release is found[-1] else size
        latents[f"{release.name}_w"] = w = MixingRV.of(mixed)
        variances.append(noise[:mixed] ** 2 * w)
        if mixed < size:
            variances.append(pt.zeros(1))
            last = Laplace(scale=float(noise[-1]))
    cov = cov + pt.diag(pt.concatenate(variances))
    told = _told(model, s)
    return Replacement([s], _one_by_one(found, sizes, mean, cov, last, told), latents)


def _drowned(release: Release, rows: Any, cov: Any) -> bool:
    """Whether Laplace noise is much larger than what the statistics vary by, at prior draws.

    Then the release says little about its noise's variances, and standardised statistics are the
    better coordinates.
    """
    if not isinstance(release.mechanism, Laplace):
        return False
    try:
        drawn = pm.draw(pt.diag(rows @ cov @ rows.T), 50, random_seed=1, mode=ONCE)
    except NotImplementedError:  # a flat prior
        return False
    noise = np.broadcast_to(release.mechanism.noise, release.rv.type.shape).ravel()
    return bool(np.all(noise > DROWNED * np.sqrt(np.median(drawn, axis=0))))


def _standardised(
    model: pm.Model, s: TensorVariable, found: Sequence[Release], mean: Any, cov: Any
) -> Replacement:
    """Keep the statistics, as a linear function of standard normal numbers."""
    size = s.owner.op.layout.size
    z: Any = StandardTotalsRV.of(size, _told(model, s))
    # covariances may be singular, e.g. where x is 0 or 1 and x^2 = x
    root = pt.linalg.cholesky(cov * (1 + 1e-12 * np.eye(size)))
    new: dict[Any, Any] = {}
    for release in found:
        known: dict[Any, Any] = {s: mean + root @ z}
        statistic: Any = graph_replace([release.statistic], known, strict=False)[0]
        new[release.rv] = PrivatizedRV.rv_op(statistic, release.mechanism)
    return Replacement([s], new, {f"{s.name}_z": z})


def _one_by_one(
    found: Sequence[Release], sizes: Sequence[int], mean: Any, cov: Any, last: Any, told: Integrated
) -> dict[Any, Any]:
    """Law of each release given those before it."""
    new: dict[Any, Any] = {}
    for release, size in zip(found, sizes, strict=True):
        final = release is found[-1]
        shape = tuple(int(side or 0) for side in release.rv.type.shape)
        own, block = pt.specify_shape(mean[:size], (size,)), cov[:size, :size]
        block = pt.specify_shape(block, (size, size))
        rv = StatisticsReleaseRV.of_arrays(own, block, shape, last if final else None, told)
        new[release.rv] = rv
        if not final:
            factor = pt.linalg.cholesky(block)
            cross = pt.linalg.cho_solve((factor, True), cov[:size, size:])
            mean = mean[size:] + cross.T @ (rv.astype("float64").ravel() - own)
            cov = cov[size:, size:] - cross.T @ cov[:size, size:]
    return new


def _told(model: pm.Model, s: TensorVariable) -> Integrated:
    n = constant(model, s.owner.inputs[2])
    number = names_of_numbers(model, s.owner.inputs[2]) if n is None else int(n)
    how = "statistics are normal, as they were declared"
    return Integrated("normal", (str(s.name),), number, how)
