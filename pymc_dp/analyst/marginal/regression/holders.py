r"""Holders' statistics with z, and where its prior is conjugate the rows' law, integrated out.

Given the Gram matrices the cross products are normal (Alparslan, Yildirim & Birbil 2023,
Proposition 3.1), and with Gaussian noise so is their release (equation 10, corrected):

.. math:: \hat z_j \mid S_j \sim N(S_j\theta, \sigma^2 S_j + D_j),

with D_j the noise's variances; those of Laplace noise are latent. What is left are the parameters
and S_j, which NUTS moves in the coordinates of Bartlett's factor: around the rows' law where this
is latent, around the released matrices where it is integrated out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.variable import TensorVariable

from pymc_dp.analyst.marginal.normal.normal_release import MixingRV
from pymc_dp.analyst.marginal.regression.density_graphs import log_released
from pymc_dp.analyst.marginal.regression.gram import MarginalGramRV
from pymc_dp.analyst.marginal.regression.numbers import Numbers, names_of_numbers
from pymc_dp.analyst.marginal.strategy import Integrated, MarginalRV, Replacement
from pymc_dp.analyst.regression.normal_x.gram_tuning import pooled
from pymc_dp.analyst.regression.normal_x.holder_model import HolderModel, holder_model
from pymc_dp.analyst.regression.normal_x.holder_releases import entries_of
from pymc_dp.analyst.regression.normal_x.wishart import CrossProductRV, GramRV
from pymc_dp.analyst.release import PrivatizedRV, Release, releases
from pymc_dp.compat import collect_default_updates, logprob_rules
from pymc_dp.graph.additivity import direct_inputs
from pymc_dp.mechanisms import Laplace
from pymc_dp.types import Array

__all__ = ["HolderReleasesRV", "holders_replacement"]


@dataclass(frozen=True)
class Entries:
    """Which entry of (S, z), flat and one after the other, every released number is.

    Attributes
    ----------
    place : array of int
        Entry of each number.
    scale : array
        By which it was multiplied before noise.
    noise : array
        Sigma or scale of its noise, in units of the entry.
    laplace : array of bool
        Whether the noise is Laplace.
    """

    place: NDArray[np.int64]
    scale: Array
    noise: Array
    laplace: NDArray[np.bool_]


class HolderReleasesRV(MarginalRV):
    """Releases of all holders given their Gram matrices, z integrated out.

    Inputs are S, coef, sigma2, the variances w of Laplace noise on z in units of its squared scale
    (empty where there is none), which draws do not use, and generators. Outputs are the releases
    and the generators' next states.
    """

    _ndim_supp = 1

    def __init__(self, *args: Any, entries: Entries, **kwargs: Any) -> None:
        self.entries = entries
        super().__init__(*args, **kwargs)


def holders_replacement(
    model: pm.Model, numbers: Numbers, asked: Sequence[TensorVariable] | None = None
) -> Replacement:
    """Integrate z, and the rows' law if it can be, out of a model of several holders."""
    [S] = [rv for rv in model.free_RVs if isinstance(rv.owner.op, GramRV)]
    _, n, mean, cov = S.owner.inputs
    found = holder_model(model, n=numbers.roughly(n))
    known = not direct_inputs([n], model.basic_RVs)
    number = numbers.of(n)
    z = found.z
    rows = [rv for rv in found.owned if rv in S.owner.inputs and found.priors.rows_nu > 0]
    if asked is not None:
        rows = [rv for rv in rows if rv in asked]
    latents: dict[str, Any] = {}
    grams: Any = S
    if rows:
        given = found.releases
        moments = pooled(given)
        prior = found.priors
        grams = MarginalGramRV.rv_op(
            number, prior.rows_scale, prior.rows_nu, moments, int(given.first), _named(model, rows)
        )
    elif not known:
        grams = GramRV.rv_op(number, mean, cov, S.owner.op.first)
    if grams is not S:
        latents[str(S.name)] = grams
    mixed = int(found.releases.z_laplace.sum())
    w: Any = pt.zeros((0,))
    if mixed:
        w = latents[f"{z.name}_w"] = MixingRV.of(mixed)
    removed = [z, *rows, *([S] if grams is not S else [])]
    names = tuple(str(rv.name) for rv in (z, *rows))
    many = int(found.releases.n.sum()) if known else names_of_numbers(model, n)
    told = Integrated("exact", names, many, "normal given X'X")
    return Replacement(removed, _releases(model, found, grams, w, told), latents)


def _named(
    model: pm.Model, rows: Sequence[TensorVariable]
) -> list[tuple[str, tuple[str | None, ...] | None]]:
    """Names and dimensions of the rows' covariance, then of their mean."""
    return [
        (str(rv.name), model.named_vars_to_dims.get(str(rv.name)))
        for rv in sorted(rows, key=lambda rv: -rv.type.ndim)
    ]


def _releases(
    model: pm.Model, found: HolderModel, grams: Any, w: Any, told: Integrated
) -> dict[Any, Any]:
    """Releases as outputs of one operation, which draws z inside."""
    old = [
        release
        for release in releases(model)
        if {found.S, found.z} & set(direct_inputs([release.statistic], model.basic_RVs))
    ]
    given = [grams, *found.z.owner.inputs[2:], w]
    inner = [part.type() for part in given]
    known: dict[Any, Any] = {found.S: inner[0], found.z: CrossProductRV.rv_op(*inner[:3])}
    drawn = []
    for release in old:
        statistic: Any = clone_replace(release.statistic, known, rebuild_strict=False)
        drawn.append(PrivatizedRV.rv_op(statistic, release.mechanism))
    generators = [var for var in graph_inputs(drawn) if isinstance(var, SharedVariable)]
    updates = collect_default_updates(drawn, inputs=inner, must_be_shared=False)
    op = HolderReleasesRV(
        [*inner, *generators],
        [*drawn, *updates.values()],
        entries=_entries(old, found),
        integrated=told,
    )
    made = op.make_node(*given, *generators).outputs[: len(old)]
    return {release.rv: new for release, new in zip(old, made, strict=True)}


def _entries(old: Sequence[Release], found: HolderModel) -> Entries:
    parts = []
    for release in old:
        place, scale = entries_of(release, found.S, found.z)
        noise = np.broadcast_to(release.mechanism.noise, release.rv.type.shape).ravel()
        laplace = np.full(place.size, isinstance(release.mechanism, Laplace))
        parts.append((place, scale, noise / np.abs(scale), laplace))
    return Entries(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


@logprob_rules.register(HolderReleasesRV)
def _logprob(
    op: HolderReleasesRV, values: Sequence[Any], S: Any, coef: Any, sigma2: Any, w: Any, *_: Any,
    **kwargs: Any,
) -> Any:  # fmt: skip
    """Joint log-density of all releases, under the first of them."""
    flat = pt.concatenate([value.astype("float64").ravel() for value in values])
    total = _log_released(flat, op.entries, S, coef, sigma2, w)
    return [total, *(pt.zeros(()) for _ in values[1:])] if len(values) > 1 else total


def _log_released(flat: Any, entries: Entries, S: Any, coef: Any, sigma2: Any, w: Any) -> Any:
    holders, p, _ = S.type.shape
    size = holders * p * p
    is_gram = entries.place < size
    released = flat / entries.scale
    place = entries.place[~is_gram] - size
    hat = pt.zeros(holders * p)[place].set(released[np.flatnonzero(~is_gram)])
    scales, laplace = np.ones(holders * p), np.zeros(holders * p, dtype=bool)
    scales[place], laplace[place] = entries.noise[~is_gram], entries.laplace[~is_gram]
    variances: Any = pt.as_tensor(scales**2)
    if laplace.any():
        variances = variances[np.flatnonzero(laplace)].set(scales[laplace] ** 2 * w)
    noisy = (
        entries.place[is_gram],
        released[np.flatnonzero(is_gram)],
        entries.noise[is_gram],
        entries.laplace[is_gram].astype(np.float64),
    )
    table = (holders, p)
    total = log_released(S, coef, sigma2, variances.reshape(table), hat.reshape(table), noisy)
    return total - np.log(np.abs(entries.scale)).sum()
