"""Unknown numbers of records in marginal models: n itself, continuous where that is honest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.graph.replace import graph_replace

from pymc_dp.analyst.marginal.normal.convolved import gaussian_variance, laplace_scale
from pymc_dp.analyst.marginal.normal.normal_release import NormalReleaseRV
from pymc_dp.analyst.marginal.normal.relaxed import SMOOTH, RelaxedSizeRV, integral_is_sum
from pymc_dp.analyst.marginal.strategy import Integrated
from pymc_dp.analyst.privatized import concrete_shape
from pymc_dp.analyst.release import Release, releases
from pymc_dp.analyst.unknown_size import presences
from pymc_dp.graph.additivity import Additive, NotAdditiveError, direct_inputs, form_of
from pymc_dp.graph.intervals import ONCE
from pymc_dp.graph.rewrites import rebuilt
from pymc_dp.graph.rows import on_rows
from pymc_dp.types import Variable

__all__ = ["UnknownNumber", "UnknownSize"]

#: variance of the noise on a count from which on sums over n are as good as integrals
_ENOUGH_NOISE = 0.5


class UnknownNumber:
    """A number of records that is a variable of the model.

    Attributes
    ----------
    name : str
        Its name.
    number : TensorVariable
        It, in the marginal model: the variable, or its continuous form.
    releases : dict
        What stands in place of the variable, and of releases of the number alone.
    """

    def __init__(self, model: pm.Model, discrete: Variable) -> None:
        self.model, self.discrete = model, discrete
        self.name = str(discrete.name)
        self.number: Variable = discrete.astype("float64")
        self.releases: dict[Any, Any] = {}
        self.counts = [
            release
            for release in releases(model)
            if set(direct_inputs([release.statistic], model.basic_RVs)) == {discrete}
        ]
        smooth = isinstance(discrete.owner.op, SMOOTH) and discrete.type.ndim == 0
        if smooth and all(map(_noisy, self.counts)) and self._integral_is_sum():
            self.number = RelaxedSizeRV.rv_op(discrete)
            self.releases[discrete] = self.number
            self.releases |= {release.rv: self._relaxed(release) for release in self.counts}

    def _integral_is_sum(self) -> bool:
        """Whether nothing is lost by a continuous number: not so near a prior's hard end."""
        counts = [
            (release.mechanism, self.model.rvs_to_values[release.rv], release.statistic)
            for release in self.counts
            if release.rv in self.model.observed_RVs
        ]
        counts = [(noise, value, self.in_number(graph)) for noise, value, graph in counts]
        return integral_is_sum(self.discrete, counts, self.model.basic_RVs)

    def _relaxed(self, release: Release) -> Any:
        """Make a release of a continuous number of records."""
        noise = gaussian_variance(release.mechanism)
        what = Integrated("normal", (), self.name, "taken for continuous where it is counted")
        last = release.mechanism if noise is None else None
        given = [self.in_number(release.statistic)], [[pt.constant(np.float64(noise or 0.0))]]
        return NormalReleaseRV.rv_op(*given, (), release.mechanism.dtype, last, what)

    def in_number(self, graph: Variable) -> Variable:
        """Write a function of the number, or of how many rows are there, in terms of it."""
        for there in presences([graph], self.model.basic_RVs):
            if there.owner.inputs == [self.discrete]:
                graph = self._counted(graph, there)
        if self.discrete not in self.releases:
            return graph
        return rebuilt(graph, {self.discrete: self.number})

    def _counted(self, graph: Variable, there: Variable) -> Variable:
        """Write a function of how many rows are there in terms of the number."""
        form = form_of(graph, [there], self.model.basic_RVs)
        if not isinstance(form, Additive):
            raise ValueError(f"rows that are there are released by themselves, not {self.name!r}.")
        one = {there: pt.ones(1, dtype=there.dtype)}
        [each] = on_rows([(form.contributions, 0)], one, np.zeros(1, dtype=np.int64))
        nobody = pt.zeros(concrete_shape(there), dtype=there.dtype)
        [rest] = graph_replace([graph], {there: nobody}, strict=False)
        return rest + self.number * each[0]


class UnknownSize(UnknownNumber):
    """The number of records behind some releases, of a table with more rows.

    Attributes
    ----------
    there : TensorVariable
        Which rows of the table are records.
    """

    def __init__(self, model: pm.Model, there: Variable) -> None:
        self.there = there
        [discrete] = there.owner.inputs
        super().__init__(model, discrete)

    def all_there(self, graphs: Sequence[Variable]) -> list[Variable]:
        """Write what records add for those that are there, and insist that others add nothing."""
        shape, dtype = concrete_shape(self.there), self.there.dtype
        none, every = (
            graph_replace(list(graphs), {self.there: make(shape, dtype=dtype)}, strict=False)
            for make in (pt.zeros, pt.ones)
        )
        for graph in none:
            if not _vanishes(graph, shape[0], self.model):
                raise NotAdditiveError(
                    f"records that are not there add something: multiply what each record adds by "
                    f"the rows that {self.name!r} says are there"
                )
        return every


def _noisy(release: Release) -> bool:
    """Whether a count of records has noise enough for sums over n to be integrals."""
    laplace, normal = laplace_scale(release.mechanism), gaussian_variance(release.mechanism)
    if release.statistic.type.ndim or (laplace is None and normal is None):
        return False
    variance: Any = normal if laplace is None else 2 * laplace[0] ** 2
    return bool(np.all(variance >= _ENOUGH_NOISE))


def _vanishes(graph: Variable, n: int, model: pm.Model) -> bool:
    """Whether what rows add is zero, tried on a few draws of the model's variables."""
    reached = direct_inputs([graph], model.basic_RVs)
    values = {
        rv: rv.type.clone(shape=(2, *rv.type.shape[1:]))()
        for rv in reached
        if rv.type.ndim and rv.type.shape[0] == n
    }
    fixed = [rv for rv in reached if rv not in values]
    [few] = on_rows([(graph, 0)], values, np.zeros(2, dtype=np.int64), fixed)
    inputs = [*values.values(), *fixed]
    rng = np.random.default_rng(0)
    given = [
        np.asarray(rng.uniform(1.2, 3.7, size=[s or 2 for s in v.type.shape])).astype(v.dtype)
        for v in inputs
    ]
    function = pytensor.function(inputs, few, mode=ONCE, on_unused_input="ignore")
    return bool(np.all(function(*given) == 0))
