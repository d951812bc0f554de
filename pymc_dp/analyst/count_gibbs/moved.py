"""Cells that are seen through sums: moved with their parameters, and by a few units at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from math import lgamma
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.blocking import PointType
from pytensor.graph.replace import graph_replace
from pytensor.tensor.variable import TensorVariable

from pymc_dp.analyst.count_gibbs.cells import CountTable
from pymc_dp.analyst.count_gibbs.graphs import (
    gamma_terms,
    law_means,
    law_terms,
    log_density_at,
    own_terms,
    references,
)
from pymc_dp.analyst.count_gibbs.jumps import make_jump
from pymc_dp.analyst.count_gibbs.laws import ALPHA, BETA, PHI, TERMS
from pymc_dp.analyst.count_gibbs.noise import ReleasedComponents
from pymc_dp.analyst.count_gibbs.start import (
    check_start,
    climbed,
    curvature,
    joint_coordinates,
    known_totals,
    learned_factor,
    started,
    sweep_arrays,
    table_lattice,
)
from pymc_dp.analyst.count_gibbs.sweep import Coordinates, SweepArrays, make_sweep, no_jump
from pymc_dp.compat import jit_function
from pymc_dp.graph.layout import PointLayout
from pymc_dp.numerics.compiled import graph_key, join, joined_key
from pymc_dp.numerics.nuts import DIVERGING, LEAPS, LOG_DENSITY, REPORT_SIZE, make_nuts
from pymc_dp.numerics.nuts_tuning import NUTSTuning
from pymc_dp.types import Vector

__all__ = ["Carried", "MovedCells"]


class Carried(NamedTuple):
    """How cells move, as learned while tuning: a chain carries it on."""

    coordinates: Coordinates
    scales: Vector


class Place(NamedTuple):
    """What moves change and need: see the kernels below.

    The last number of `vector` is 1 where the last density was asked for at impossible counts.
    """

    vector: Vector
    laws: NDArray[np.float64]
    means: Vector
    counts: Vector
    statistic: Vector
    arrays: SweepArrays
    coordinates: Coordinates


_DESCRIBE = """
def describe(theta, vector, laws, means):
    {names}, mean = terms(theta, vector)
{keep}
    means[:] = mean
"""


def _count(q, size, place):  # type: ignore[no-untyped-def]
    """Find counts and statistics at coordinates; tell whether such counts are possible."""
    arrays, at = place.arrays, place.coordinates
    counts, statistic = place.counts, place.statistic
    counts[:] = at.base
    for j in range(q.size - size):
        i = at.cells[j]
        more = np.round(q[size + j] + at.shares[j] * place.means[i]) - at.base[i]
        counts[i] += more
        if at.others[j] >= 0:
            counts[at.others[j]] -= more
    statistic[:] = arrays.constant
    for i in range(counts.size):
        if not arrays.low[i] <= counts[i] <= arrays.high[i]:
            return False
        for k in range(arrays.starts[i], arrays.starts[i + 1]):
            statistic[arrays.rows[k]] += arrays.factors[k] * counts[i]
    return True


#: number of parameters, and of what else the graphs use: places to be taken
SIZE = OWN = 0


def count(q, size, place):  # type: ignore[no-untyped-def]
    """See :func:`_count`: a place to be taken."""
    raise NotImplementedError


def describe(theta, vector, laws, means):  # type: ignore[no-untyped-def]
    """Write the cells' laws and means: a place to be taken."""
    raise NotImplementedError


def density(theta, vector):  # type: ignore[no-untyped-def]
    """Log-density of parameters with the counts in `vector`; its gradient: a place to be taken."""
    raise NotImplementedError


def log_noise(kind, released, statistic, noise):  # type: ignore[no-untyped-def]
    """Log-density of one component: a place to be taken."""
    raise NotImplementedError


def _slopes(place, by_cell):  # type: ignore[no-untyped-def]
    """Log-density of noise and of what laws have besides their parameters, and slopes by counts.

    Slopes are taken between neighbouring counts.
    """
    arrays, laws, counts, statistic = place.arrays, place.laws, place.counts, place.statistic
    value, slope = 0.0, np.zeros(statistic.size)
    for r in range(statistic.size):
        kind, released, noise = arrays.kind[r], arrays.released[r], arrays.noise[r]
        if kind >= 0:
            value += log_noise(kind, released, statistic[r], noise)
            up = log_noise(kind, released, statistic[r] + 1.0, noise)
            down = log_noise(kind, released, statistic[r] - 1.0, noise)
            slope[r] = 0.5 * (up - down)
    for i in range(counts.size):
        c, m = counts[i], arrays.trials[i]
        value -= lgamma(c + 1.0)
        by_cell[i] = laws[PHI, i] - np.log(c + 0.5)
        if laws[ALPHA, i] >= 0.0:
            by_cell[i] += np.log(max(c + laws[ALPHA, i] - 0.5, 0.5))
        if m > 0.0:
            value -= lgamma(m - c + 1.0)
            by_cell[i] += np.log(m - c + 0.5)
        if laws[BETA, i] >= 0.0:
            by_cell[i] -= np.log(max(m - c + laws[BETA, i] - 0.5, 0.5))
        for k in range(arrays.starts[i], arrays.starts[i + 1]):
            by_cell[i] += arrays.factors[k] * slope[arrays.rows[k]]
    return value


def slopes(place, by_cell):  # type: ignore[no-untyped-def]
    """See :func:`_slopes`: a place to be taken."""
    raise NotImplementedError


def _target(q, place):  # type: ignore[no-untyped-def]
    """Log-density of parameters and, where they are coordinates, of cells.

    It is that of the counts to which coordinates are rounded; the gradient steers only.
    """
    size, own, cells = SIZE, OWN, place.counts.size
    at, theta, value = place.coordinates, q[:size], 0.0
    gradient = np.zeros(q.size)
    if q.size > size:
        describe(theta, place.vector, place.laws, place.means)
        if not count(q, size, place):
            place.vector[-1] = 1.0 if np.isfinite(q.sum()) else 0.0  # NaN is no count
            return np.asarray(-np.inf), gradient
        by_cell = np.empty(cells)
        value = slopes(place, by_cell)
        place.vector[own + cells :] = 0.0
        if value == -np.inf:
            place.vector[-1] = 1.0
        for j in range(q.size - size):
            slope = by_cell[at.cells[j]]
            if at.others[j] >= 0:
                slope -= by_cell[at.others[j]]
            gradient[size + j] = slope
            place.vector[own + cells + at.cells[j]] = at.shares[j] * slope
    place.vector[own : own + cells] = place.counts
    found, by_theta = density(theta, place.vector)
    gradient[:size] = by_theta
    return np.asarray(value + found.item()), gradient


def nuts(rng, q, place, metric, step_size, doublings, report):  # type: ignore[no-untyped-def]
    """One move of NUTS: a place to be taken."""
    raise NotImplementedError


def sweep(rng, arrays, laws, counts, statistic, times, rate):  # type: ignore[no-untyped-def]
    """Move cells by units: a place to be taken."""
    raise NotImplementedError


def target(q, place):  # type: ignore[no-untyped-def]
    """See :func:`_target`: a place to be taken."""
    raise NotImplementedError


def _draw(rng, q, place, metric, step_size, doublings, report, times, rate):  # type: ignore[no-untyped-def]
    """Move parameters, with the cells that are coordinates; then all cells by some units.

    With no `times` nothing moves: `q` becomes the target's gradient, and the report has its value.
    That is no function of its own, so that machine code of the target is made once.
    """
    size, own, at = SIZE, OWN, place.coordinates
    if times == 0:
        found, gradient = target(q, place)
        report[LOG_DENSITY] = found.item()
        q[:] = gradient
        return 0.0
    at.base[:] = place.counts
    place.vector[own + place.counts.size :] = 0.0
    if q.size > size:
        describe(q[:size], place.vector, place.laws, place.means)
    for j in range(q.size - size):  # anywhere in the cell's unit
        i = at.cells[j]
        q[size + j] = at.base[i] + rng.random() - 0.5 - at.shares[j] * place.means[i]
    if q.size:
        nuts(rng, q, place, metric, step_size, doublings, report)
    describe(q[:size], place.vector, place.laws, place.means)
    count(q, size, place)
    return sweep(rng, place.arrays, place.laws, place.counts, place.statistic, times, rate)


#: where only a density is evaluated
_UNUSED_RNG = np.random.default_rng(0)


class MovedCells:
    """Parameters and cells, of which sums were released.

    Parameters
    ----------
    model : Model
        The model.
    table : CountTable
        Its cells.
    parameters : sequence of TensorVariable
        What moves besides the cells.
    released : ReleasedComponents
        What was released.
    point, compile_kwargs
        A point of the model, for shapes; passed to the compilation.
    """

    def __init__(
        self,
        model: pm.Model,
        table: CountTable,
        parameters: Sequence[TensorVariable],
        released: ReleasedComponents,
        point: PointType,
        compile_kwargs: dict[str, Any],
    ) -> None:
        self.table, self.released = table, released
        numba = {**compile_kwargs, "mode": "NUMBA"}  # whose functions can be joined
        self.layout = layout = PointLayout(model, parameters, [], point, numba)
        terms = law_terms(table)
        self.terms = list(terms)
        counts: Any = pt.tensor("counts", dtype="float64", shape=(table.size,))
        total = log_density_at(table).sum() + gamma_terms(table, terms, counts)
        total += ((counts - references(table)) * terms["phi"]).sum()
        if "zero" in terms:  # references are not zero there
            total += pt.switch(pt.eq(counts, 0), terms["zero"], 0.0).sum()
        described = [*terms.values(), law_means(table)]
        total, *described = model.replace_rvs_by_values([total, *described])
        cost = total + model.logp(vars=own_terms(model, parameters, table))
        cost, *described = layout.on_arrays([cost, *described], keep=[counts])
        #: numbers of `vector` before the counts, after which weights of the means follow
        self.size = layout.given_size
        last = self.size + table.size
        [cost] = graph_replace([cost], {counts: layout.given[self.size : last]})
        along = cost + (layout.given[last : last + table.size] * described[-1]).sum()
        gradient: Any = pt.grad(along, layout.theta) if layout.size else pt.zeros(0)
        inputs = [layout.theta, layout.given]
        self.density = layout.compiled(inputs, [cost, gradient])
        self.described = layout.compiled(inputs, described)
        self._laws = np.repeat(np.array(list(TERMS.values()))[:, np.newaxis], table.size, axis=1)
        totals = known_totals(table, released.components())
        self.lattice = table_lattice(table, totals)
        self.read_release()

    def read_release(self) -> None:
        """Take the released values as they are now; totals must not contradict each other."""
        self.components = self.released.components()
        self.totals = known_totals(self.table, self.components)
        self.arrays = sweep_arrays(self.table, self.components, self.lattice)

    def begin(
        self, rng: np.random.Generator, theta: Vector, given: Vector, counts: Vector
    ) -> tuple[Vector, Vector, Carried, Vector]:
        """Return where a chain starts: parameters, counts, how they move, and scales for NUTS."""
        counts = started(rng, self.table, self.lattice, self.totals, self.components, counts)
        coordinates, precision = joint_coordinates(self.table, self.arrays, counts, theta.size)
        carried = Carried(coordinates, np.ones_like(self.arrays.scales))
        place = self._place(given, counts.copy(), carried)
        coordinates.base[:] = counts
        if theta.size:
            check_start(self.table, self.evaluated(theta, place))
        theta = climbed(lambda at, _: self.evaluated(at, place), theta, given)
        curved = curvature(lambda at, _: self.evaluated(at, place), theta, given)
        factor = 1 / np.sqrt(np.concatenate([curved, precision]))
        if coordinates.cells.size:
            q = np.concatenate([theta, counts[coordinates.cells]])
            self.evaluated(q, place)  # which finds the means
            q[theta.size :] -= coordinates.shares * place.means[coordinates.cells]
            factor = learned_factor(lambda at: self.evaluated(at, place)[1], q, factor)
        return theta, counts, carried, factor

    def evaluated(self, q: Vector, place: Place) -> tuple[float, Vector]:
        """Log-density and steering gradient of :func:`_target`."""
        slope, report = q.copy(), np.zeros(REPORT_SIZE)
        self.draw(_UNUSED_RNG, slope, place, np.ones((1, 1, 1)), 1.0, 1, report, 0, 0.0)
        return float(report[LOG_DENSITY]), slope

    def _place(self, given: Vector, counts: Vector, carried: Carried) -> Place:
        return Place(
            np.concatenate([given, counts, 0 * counts, [0.0]]),
            self._laws,
            np.empty(counts.size),
            counts,
            np.empty(len(self.arrays.kind)),
            self.arrays._replace(scales=carried.scales),
            carried.coordinates,
        )

    def move(
        self,
        rng: np.random.Generator,
        theta: Vector,
        given: Vector,
        counts: Vector,
        tuning: NUTSTuning,
        carried: Carried,
    ) -> tuple[Vector, Vector]:
        """Move parameters and cells in place; gives NUTS's coordinates and report."""
        coordinates = carried.coordinates
        q = np.concatenate([theta, counts[coordinates.cells]])
        place = self._place(given, counts, carried)
        report = np.zeros(REPORT_SIZE)
        rate = (1.0 + tuning.count) ** -0.5 if tuning.active else 0.0
        times = 1 if coordinates.cells.size else int(np.clip(200 // counts.size, 4, 8))
        self.draw(
            rng, q, place, tuning.metric, tuning.step.step_size, tuning.doublings, report, times,
            rate,
        )  # fmt: skip
        theta[:] = q[: theta.size]
        if q.size and not report[LEAPS]:  # the density is no number here: nothing can move
            report[DIVERGING] = 1.0
        if place.vector[-1]:  # the edge of the possible counts is no divergence
            report[DIVERGING] = 0.0
        return q, report

    @cached_property
    def _parts(self) -> dict[str, Any]:
        """Compiled functions that moves are made of, under one key."""
        names = [f"law_{term}" for term in self.terms]
        rows = [list(TERMS).index(term) for term in self.terms]
        keep = [f"    laws[{row}] = {name}" for row, name in zip(rows, names, strict=True)]
        source = _DESCRIBE.format(names=", ".join(names), keep="\n".join(keep))
        parts: dict[str, Any] = {"SIZE": self.layout.size, "OWN": self.size}
        parts["log_noise"] = self.released.log_noise
        parts["density"] = jit_function(self.density)
        terms = {"terms": jit_function(self.described)}
        parts["describe"] = join(source, terms, self._key("describe"))
        parts["count"] = join(_count, {}, self._key("count"))
        parts["slopes"] = join(_slopes, parts, self._key("slopes"))
        return parts

    def _key(self, part: str) -> str | None:
        graphs = graph_key([self.density, self.described])
        what = f"{part} {self.terms} {self.layout.size} {self.size} {self.released.key}"
        known = graphs if self.released.key is not None else None
        return joined_key([make_nuts, make_sweep, make_jump, MovedCells], known, what)

    @cached_property
    def draw(self) -> Callable[..., float]:
        """Compiled ``draw(rng, q, place, metric, step_size, doublings, report, times, rate)``."""
        parts = dict(self._parts)
        parts["target"] = join(_target, self._parts, self._key("target"))
        parts["nuts"] = make_nuts(parts["target"], self._key("nuts"))
        log_noise = self.released.log_noise
        jump = make_jump(log_noise, self._key("jump")) if "zero" in self.terms else no_jump
        parts["sweep"] = make_sweep(log_noise, self._key("sweep"), jump)
        made: Callable[..., float] = join(_draw, parts, self._key("draw"))
        return made

    def __getstate__(self) -> dict[str, Any]:
        compiled = ("draw", "_parts")
        return {key: value for key, value in self.__dict__.items() if key not in compiled}
