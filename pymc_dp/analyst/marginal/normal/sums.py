"""Sums over records by their normal law: T ~ N(n m, n V), the noise integrated out too.

With Gaussian noise a release is normal. Laplace noise of scale b is Gaussian with variance
b^2 w, w exponential of mean 2: given the w of all components but one, which is summed in closed
form (:mod:`~pymc_dp.analyst.marginal.normal.convolved`), the totals integrate out and NUTS moves
the w. Other noise keeps the totals as latents, standardised.

Several releases of the same records are written one given the other, so that each remains a
variable of its own with a density and a draw.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.traversal import applys_between
from pytensor.scalar.basic import Clip, ScalarMinimum
from pytensor.tensor.random.basic import MvNormalRV
from pytensor.tensor.variable import TensorVariable

from pymc_dp.analyst.marginal.normal.accuracy import quadrature_error
from pymc_dp.analyst.marginal.normal.convolved import (
    gaussian_variance,
    has_closed_form,
    laplace_scale,
)
from pymc_dp.analyst.marginal.normal.expanded import Expanded
from pymc_dp.analyst.marginal.normal.moments import Contributions, Moments
from pymc_dp.analyst.marginal.normal.normal_release import (
    Background,
    MixingRV,
    NormalReleaseRV,
    StandardTotalsRV,
    eliminated,
    square,
)
from pymc_dp.analyst.marginal.normal.places import NoNodesError
from pymc_dp.analyst.marginal.rebuild import rebuilt
from pymc_dp.analyst.marginal.start import find_mode, start_of
from pymc_dp.analyst.marginal.strategy import Integrated, Replacement
from pymc_dp.analyst.privatized import concrete_shape
from pymc_dp.analyst.records import RecordBlock, length_of
from pymc_dp.analyst.release import PrivatizedRV, Release
from pymc_dp.graph.additivity import NotAdditiveError, direct_inputs
from pymc_dp.graph.support import small_support
from pymc_dp.mechanisms import Mechanism
from pymc_dp.mechanisms.around import Around
from pymc_dp.types import Variable

__all__ = ["ORDERS", "Normal"]

#: nodes between quantiles that are tried, until they are enough
ORDERS = (8, 16, 32, 64)
#: error of a total's mean that is small enough, in the total's standard deviations
ENOUGH = 0.05
#: records from which on an expansion is off by no more than points that stand for them
_MANY = 5000
#: numbers of a record of which there is a grid
_GRID = 2


class Normal:
    """Strategy: the released sums are normal, with the moments that the model gives them."""

    name = "normal"

    def refusal(self, model: pm.Model, block: RecordBlock) -> str | None:
        """Say what keeps the sums from having a normal law that is known."""
        if block.factors:
            names = ", ".join(map(repr, block.factors))
            return f"{names} tells about every record by itself, not about sums."
        if not block.releases:
            return f"no sum over {block.names} was released."
        for release, total in zip(block.releases, block.totals, strict=True):
            if total is not release.statistic:
                return f"{release.mechanism!r} of {release.name!r} does not add noise to sums."
        try:
            contributions = Contributions(model, block)
            if contributions.closed_form() is None:
                contributions.by_nodes(ORDERS[0])
        except (NoNodesError, NotAdditiveError) as err:
            return f"moments of what one record adds cannot be had: {err}"
        return None

    def preferred(self, model: pm.Model, block: RecordBlock) -> bool:
        """Prefer it but where every draw would ask thousands of points for what one place tells.

        An expansion about the posterior's mode has one covariance to factor, and where parts of
        many records of many dimensions are held, as scores are, no parts to hold.
        """
        bent = any(
            isinstance(rv.owner.op, MvNormalRV)
            and direct_inputs([rv.owner.op.dist_params(rv.owner)[1]], model.basic_RVs)
            for rv in block.records
        )
        narrow = length_of(block.records[0]) >= _MANY
        wide = bent or (narrow and _is_held_in_many_dimensions(block))
        return not wide or Expanded().refusal(model, block) is not None

    def integrate(self, model: pm.Model, block: RecordBlock) -> Replacement:
        """Build the releases' own law, with as many nodes as its mean needs at the posterior."""
        contributions = Contributions(model, block)
        moments = contributions.closed_form()
        if moments is not None:
            return self._replacement(contributions, moments, ORDERS[0], "in closed form")
        error = np.inf
        for order in ORDERS:
            how = contributions.table(order).how
            found = self._replacement(contributions, contributions.by_nodes(order), order, how)
            if all(small_support(rv) is not None for rv in block.records):
                return found
            error = _quadrature_error(model, found)
            if error < ENOUGH:
                return found
        raise ValueError(
            f"The mean of a sum over {block.names} cannot be had accurately enough: it is off by "
            f"{error:.2g} of the sum's standard deviation at n = {contributions.n}, and {ENOUGH} "
            "is allowed. pmdp.sample() samples the records (RecordGibbs)."
        )

    def _replacement(
        self, contributions: Contributions, moments: Moments, order: int, how: str
    ) -> Replacement:
        block = contributions.block
        names = tuple(str(rv.name) for rv in block.records)
        size = contributions.size
        n = contributions.n if size is None else size.name
        what = Integrated(self.name, names, n, f"sums are normal, moments {how}")
        constants = contributions.constants()
        means = [m + c for m, c in zip(moments.means, constants, strict=True)]
        chain = _Chain(block, Moments(means, moments.covariances), what)
        chain.finish(contributions, 2 * order, constants)
        before = {} if size is None else size.releases
        return Replacement(block.records, before | chain.releases, chain.latents)


def _is_held_in_many_dimensions(block: RecordBlock) -> bool:
    drawn = [rv for rv in block.records if small_support(rv) is None]
    numbers = sum(int(np.prod(rv.type.shape[1:])) for rv in drawn)
    return numbers > _GRID and any(
        isinstance(getattr(node.op, "scalar_op", None), Clip | ScalarMinimum)
        for node in applys_between(block.records, block.contributions)
    )


def _quadrature_error(model: pm.Model, found: Replacement) -> float:
    """Error of a total's mean near the posterior; at the start where other records remain."""
    trial = rebuilt(model, [found])
    size = sum(value.size for value in trial.initial_point().values())
    mode = find_mode(trial) if size < 200 else None
    return quadrature_error(trial, mode or start_of(trial))


@dataclass(frozen=True)
class _Part:
    """A release in the chain."""

    release: Release
    shape: tuple[int, ...]
    places: list[int]

    @property
    def noise(self) -> Mechanism:
        """The noise on it."""
        return self.release.mechanism


class _Chain:
    """Releases of one block, one given the other.

    First those with noise of which no law is known together with a normal total, whose totals are
    latent; then normal noise; then Laplace noise; last, if there is one, a single number whose
    noise was clamped, rounded or the like.
    """

    def __init__(self, block: RecordBlock, moments: Moments, what: Integrated) -> None:
        self.what = what
        self.latents: dict[str, TensorVariable] = {}
        self.releases: dict[TensorVariable, TensorVariable] = {}
        self.parts = parts = _in_order(block)
        self.order = order = [place for part in parts for place in part.places]
        self.mean = [moments.means[i] for i in order]
        self.covariance = [
            [moments.covariances[max(i, j)][min(i, j)] for j in order[: k + 1]]
            for k, i in enumerate(order)
        ]
        self.joint = list(self.mean), [list(row) for row in self.covariance]
        #: noise on every total, as a variance, and values of those before the last release
        self.noise: list[Any] = []
        self.earlier: list[Variable] = []
        for part in parts[:-1]:
            self._add(part, final=False)

    def finish(
        self, contributions: Contributions, order: int, constants: Sequence[Variable]
    ) -> None:
        """Add the last release, which knows all that is known of the block."""
        table = contributions.table(order)
        columns = contributions.columns(table)[:, self.order]
        counts = contributions.sizes
        added = pt.stack([constants[i] for i in self.order])
        mean, covariance = self.joint
        self._add(
            self.parts[-1],
            final=True,
            background=lambda: Background(
                pt.stack(mean),
                square(covariance) + pt.diag(pt.stack([pt.as_tensor(v) for v in self.noise])),
                pt.stack(self.earlier) if self.earlier else pt.zeros(0),
                columns,
                table.weights,
                counts,
                counts @ table.mean(columns) + added,
            ),
        )

    def _add(
        self, part: _Part, final: bool, background: Callable[[], Background] | None = None
    ) -> None:
        d = len(part.places)
        if not _integrable(part) and not (final and _closed(part)):
            return self._latent(part, d)
        last = None
        laplace, normal = laplace_scale(part.noise), gaussian_variance(part.noise)
        if normal is not None:
            self._noise(np.broadcast_to(normal, part.shape).ravel())
        elif laplace is not None:
            scale, off = (np.broadcast_to(a, part.shape).ravel() for a in laplace)
            mixed = d - 1 if final else d
            if mixed:
                name = f"{part.release.name}_w"
                w = MixingRV.of(mixed)
                self.latents[name] = w
                self._noise([scale[i] ** 2 * w[i] + off[i] for i in range(mixed)])
            if final:
                kind: Any = type(part.noise)
                last = kind(scale=scale[-1])
                self.noise.append(2 * scale[-1] ** 2)
        else:
            last = part.noise
            self.noise.append(_rough_variance(part.noise))
        own = self.mean[:d], [row[: i + 1] for i, row in enumerate(self.covariance[:d])]
        told = None if background is None else background()
        new = NormalReleaseRV.rv_op(*own, part.shape, part.noise.dtype, last, self.what, told)
        self.releases[part.release.rv] = new
        if not final:
            value = new.astype("float64").ravel()
            self._given([value[i] for i in range(d)])

    def _latent(self, part: _Part, d: int) -> None:
        """Keep the totals of a release: its noise has no law together with theirs."""
        z: Any = StandardTotalsRV.of(d, self.what)
        self.latents[f"{part.release.name}_z"] = z
        variances = [self.covariance[i][i] for i in range(d)]
        totals: list[Variable] = []
        for i in range(d):
            # totals that follow from others have no variance left, but for rounding
            self.covariance[0][0] = pt.maximum(self.covariance[0][0], 1e-9 * variances[i])
            totals.append(self.mean[0] + pt.sqrt(self.covariance[0][0]) * z[i])
            self._given(totals[-1:])
        self.noise += [0.0] * d
        statistic = pt.stack(totals).reshape(part.shape) if part.shape else totals[0]
        if part.noise.dtype == "int64":
            statistic = pt.specify_shape(statistic, part.shape)
        self.releases[part.release.rv] = PrivatizedRV.rv_op(statistic, part.noise)

    def _noise(self, variances: Any) -> None:
        self.noise += list(variances)
        for i, variance in enumerate(variances):
            self.covariance[i][i] = self.covariance[i][i] + variance

    def _given(self, values: list[Variable]) -> None:
        self.earlier += values
        self.mean, self.covariance = eliminated(self.mean, self.covariance, values)


def _rough_variance(noise: Any) -> float:
    """Variance of noise before anything was done to it."""
    inner = noise.inner if isinstance(noise, Around) else noise
    if isinstance(inner, Around):
        return _rough_variance(inner)
    normal = gaussian_variance(inner)
    return float(2 * inner.noise**2 if normal is None else normal)


def _integrable(part: _Part) -> bool:
    """Whether noise is normal, or is so given other variables."""
    return gaussian_variance(part.noise) is not None or laplace_scale(part.noise) is not None


def _closed(part: _Part) -> bool:
    """Whether it is one number, whose law together with a normal total is known."""
    return len(part.places) == 1 and has_closed_form(part.noise)


def _in_order(block: RecordBlock) -> list[_Part]:
    shapes = [concrete_shape(total) for total in block.totals]
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
    parts = [
        _Part(release, shape, list(range(end - int(np.prod(shape)), end)))
        for release, shape, end in zip(block.releases, shapes, ends, strict=True)
    ]
    odd = [part for part in parts if not _integrable(part)]
    final = next((part for part in odd if _closed(part)), None)
    normal = [part for part in parts if gaussian_variance(part.noise) is not None]
    laplace = [part for part in parts if laplace_scale(part.noise) is not None]
    latent = [part for part in odd if part is not final]
    return [*latent, *normal, *laplace, *([] if final is None else [final])]
