r"""Sums over records of many dimensions by their normal law, with moments from simulated records.

A record with ten covariates has no grid. Here records are simulated at a centre :math:`c` of the
parameters, near the posterior's mode, and reweighted from there: with :math:`\psi` what a record
adds, L its log-density and :math:`w = \exp(L(\phi) - L(c))`, the mean is
:math:`m(\phi) = E_c[w \psi]`, of which the first two derivatives at the centre are

.. math:: D = E_c[\psi s^T], \qquad H = E_c[\psi (s s^T + \nabla s)], \qquad s = \nabla L(c).

Sums are then :math:`N(n (m + D \delta + \delta^T H \delta / 2), n V)`, V at the centre. An error of
m moves a sum by n times that, against a spread of :math:`\sqrt n`, so m needs most records:
:math:`m = E[\psi - B s]` for every B, since s has mean zero, and B is chosen by regression. A
variable of few values that no other record variable depends on is not drawn but summed over: what a
record adds to a score then has mean zero given its covariates, exactly, where the score was taken
and was held by them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.vartypes import continuous_types
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.type import TensorType

from pymc_dp.analyst.marginal.normal.curvature import Bend, columns_of
from pymc_dp.analyst.marginal.normal.densities import Density, log_density
from pymc_dp.analyst.marginal.normal.second_order import second_order, second_order_slope
from pymc_dp.analyst.records import RecordBlock, batch_ndim, length_of
from pymc_dp.analyst.score.graph import constrained
from pymc_dp.graph.additivity import direct_inputs
from pymc_dp.graph.intervals import ONCE
from pymc_dp.graph.rewrites import rebuilt
from pymc_dp.graph.support import small_support
from pymc_dp.graph.vector import VectorLayout
from pymc_dp.types import Matrix, Variable, Vector

__all__ = ["Expansion", "SimulatedRecords", "parameter_layout", "why_not_simulated"]

_ROWS = 20_000  # simulated at a time
_COMPILED = 20  # rounds of simulation from which on what records add is compiled
_REACH = 0.5  # of second derivatives, in standard deviations that a single record has
_BENT = 60_000  # records that second derivatives are taken of, at the most
_PIECE = 5000  # of these at a time


class Expansion(NamedTuple):
    r"""Mean and covariance of what a record adds, around a centre.

    Attributes
    ----------
    centre : ndarray
        Unconstrained parameters.
    mean, slope, curvature : ndarray
        Of the mean at the centre: (d,), (d, p) and (d, p, p).
    covariance : ndarray
        At the centre.
    error : float
        Standard error of a sum's mean by simulation, in the sum's standard deviations.

    Notes
    -----
    A parabola comes back: far from the centre it would have the same mean again, and with it a
    posterior mode that does not exist. So the second-order term is divided by
    :math:`\sqrt{1 + (r^2 / k^2)^2}`, where r is the distance from the centre in standard
    deviations that a single record has, and k a half: it is left alone as far as posteriors reach
    that know more than a few records' worth, and bounded beyond.
    """

    centre: Vector
    mean: Vector
    slope: Matrix
    curvature: NDArray[np.float64]
    covariance: Matrix
    error: float

    @property
    def nearness(self) -> Matrix:
        """Form whose value is the distance from the centre, in those that it holds for, squared."""
        return self.slope.T @ np.linalg.pinv(self.covariance) @ self.slope / _REACH**2

    @property
    def form(self) -> tuple[Any, ...]:
        """What :func:`second_order` needs besides the distance from the centre."""
        return self.mean, self.slope, self.curvature, self.nearness

    def at(self, delta: Vector) -> Vector:
        """Mean of what a record adds, away from the centre."""
        return second_order(delta, *self.form)

    def slope_at(self, delta: Vector) -> Matrix:
        """Differentiate that mean."""
        return second_order_slope(delta, *self.form)


def parameter_layout(model: pm.Model, records: Sequence[Variable]) -> VectorLayout:
    """Unconstrained values of all variables that are no records."""
    point = model.initial_point()
    values = [str(model.rvs_to_values[rv].name) for rv in model.free_RVs if rv not in records]
    return VectorLayout({name: np.shape(point[name]) for name in values})


class SimulatedRecords:
    """Records of a block, drawn at given parameters, with what they add and their densities.

    Parameters
    ----------
    model : pymc.Model
        With the records latent.
    block : RecordBlock
        The records.

    """

    def __init__(self, model: pm.Model, block: RecordBlock) -> None:
        self.n, self.layout = length_of(block.records[0]), parameter_layout(model, block.records)
        last = block.records[-1]
        self._support = small_support(last)
        self._drawn = [rv for rv in block.records if self._support is None or rv is not last]
        theta = pt.dvector("theta")
        swap = constrained(model, self.layout, theta)
        slots = {rv: rv.type.clone(shape=(None, *rv.type.shape[1:]))() for rv in block.records}
        densities = [log_density(rv, slots, swap) for rv in block.records]
        added = [
            rebuilt(each, slots).reshape((slots[last].shape[0], -1)) for each in block.contributions
        ]
        #: with public values, such as covariates, every record is its own kind
        self.public = any(_has_rows(leaf, self.n) for leaf in ancestors([*densities, *added]))
        self.rows = self.n if self.public else _ROWS
        self._draw = self._compiled_draw(theta, swap)
        inputs = [slots[rv] for rv in block.records]
        self._densities = [Density(rv, slots, model, self.layout) for rv in block.records]
        parts = pt.concatenate(added, axis=1).astype("float64")
        #: constants of what a record adds, such as a score's place, by what stands for them
        self.constants = _constants(parts)
        self._parts = inputs, rebuilt(parts, dict(self.constants))
        self._added, self._is_compiled = self._compiled_parts(ONCE), False

    def compile(self) -> None:
        """Compile what records add, once, for many simulations."""
        if not self._is_compiled:
            self._added, self._is_compiled = self._compiled_parts("NUMBA"), True

    def _compiled_parts(self, mode: Any) -> Any:
        inputs, parts = self._parts
        return pytensor.function(inputs, parts, mode=mode, on_unused_input="ignore")

    def _compiled_draw(self, theta: Variable, swap: dict[Variable, Variable]) -> Any:
        drawn: dict[Variable, Variable] = {}
        updates: dict[Any, Variable] = {}
        for i, rv in enumerate(self._drawn):
            op = rv.owner.op
            given = [rebuilt(each, swap | drawn) for each in op.dist_params(rv.owner)]
            size = [self.rows, *rv.type.shape[1 : batch_ndim(rv)]]
            rng = pytensor.shared(np.random.default_rng([20, i]))
            updates[rng], drawn[rv] = op.make_node(rng, size, *given).outputs
        return pytensor.function(
            [theta], list(drawn.values()), updates=updates, mode=ONCE, on_unused_input="ignore"
        )

    @property
    def exact(self) -> bool:
        """Whether nothing is drawn."""
        return not self._drawn

    def draw(self, centre: Vector) -> list[_Rows]:
        """Draw records; one entry for every value of the variable that is summed over."""
        drawn = self._draw(centre)
        values = [None] if self._support is None else list(self._support)
        shared, found = None, []
        for value in values:
            last = [] if value is None else [np.full(self.rows, value)]
            rows = [*drawn, *last]
            if shared is None:  # does not depend on the variable that is summed over
                shared = [each(centre, rows) for each in self._densities[: len(drawn)]]
            terms = [*shared, *(each(centre, rows) for each in self._densities[len(drawn) :])]
            density: Any = sum(term[0] for term in terms)
            slopes: Any = sum(term[1] for term in terms)
            found.append(_Rows(rows, density, slopes, self._added(*rows), density))
        if self._support is None:
            return [rows._replace(weight=np.ones(self.rows)) for rows in found]
        total = np.logaddexp.reduce([rows.density for rows in found], axis=0)
        return [rows._replace(weight=np.exp(rows.density - total)) for rows in found]

    def expand(self, centre: Vector, many: int, noise: Matrix | float = 0.0) -> Expansion:
        """Expand the moments of what a record adds around a centre.

        Parameters
        ----------
        centre : ndarray
            Unconstrained parameters.
        many : int
            How many times to simulate records.
        noise : ndarray
            Covariance of the noise on the sums.
        """
        rows = self.draw(centre)
        first = self._moments(rows, self._mean_of(self.draw(centre)))
        controls = np.linalg.lstsq(first.information, first.slope.T, rcond=1e-10)[0]
        total = self.n * first.covariance + noise
        bend = Bend(self._reach(first, total), np.sqrt(np.diag(total)) / self.n)
        means, squares, moments = [], [], [first]
        if many > _COMPILED:  # otherwise not worth it
            self.compile()
        for i in range(1 if self.exact else many):
            if i:
                before, rows = self._mean_of(rows), self.draw(centre)
                moments.append(self._moments(rows, before))
            if i * self.rows < _BENT:
                self._add_curvatures(bend, centre, rows)
            left: Any = sum(
                each.weight[:, None] * (each.added - each.slopes.T @ controls) for each in rows
            )
            means.append(left.mean(axis=0))
            squares.append(left.var(axis=0))
        slope = np.mean([each.slope for each in moments], axis=0)
        covariance = np.mean([each.covariance for each in moments], axis=0)
        spread = np.sqrt(np.mean(squares, axis=0) / (self.rows * len(means)))
        error = 0.0 if self.exact else float(np.max(spread / bend.scale))
        return Expansion(centre, np.mean(means, axis=0), slope, bend.mean, covariance, error)

    @staticmethod
    def _mean_of(rows: list[_Rows]) -> Any:
        """Mean of what each record adds, over the values that are summed over."""
        return sum(each.weight[:, None] * each.added for each in rows)

    def _moments(self, rows: list[_Rows], again: Matrix) -> _Moments:
        """Slope of the mean, covariance, and information of a record; `again` of another draw."""
        weighted = [each.weight[:, None] * each.added for each in rows]
        slope: Any = sum(w.T @ each.slopes.T for w, each in zip(weighted, rows, strict=True))
        second: Any = sum(w.T @ each.added for w, each in zip(weighted, rows, strict=True))
        information: Any = sum((each.weight * each.slopes) @ each.slopes.T for each in rows)
        mean: Any = sum(weighted)
        if not self.public:
            average = mean.mean(axis=0)
            covariance = second / self.rows - np.outer(average, average)
        elif self.exact:
            covariance = (second - mean.T @ mean) / self.rows
        else:  # half of the difference of two draws of each record, which has public values
            within = second - mean.T @ mean
            covariance = (within + (mean - again).T @ (mean - again) / 2) / self.rows
        return _Moments(slope / self.rows, covariance, information / self.rows)

    def _reach(self, moments: _Moments, total: Matrix) -> Matrix:
        """Tell how far the posterior reaches, roughly: its covariance without the prior."""
        told = self.n**2 * moments.slope.T @ np.linalg.pinv(total) @ moments.slope
        values, vectors = np.linalg.eigh(told)
        # directions of which nothing is learnt reach as far as a record tells
        least = np.diag(moments.information).max()
        return (vectors / np.maximum(values, max(least, 1e-300))) @ vectors.T

    def _add_curvatures(self, bend: Bend, centre: Vector, rows: list[_Rows]) -> None:
        """Add second derivatives of the mean, of some records after others until they do."""
        length = self.rows if self.public else _PIECE
        for start in range(0, self.rows, length):
            if bend.is_known:
                return
            where = slice(start, start + length)
            bend.add(self._curvature(centre, [each.cut(where) for each in rows], bend.reach))

    def _curvature(self, centre: Vector, rows: list[_Rows], reach: Matrix) -> NDArray[np.float64]:
        """Second derivatives of the mean, by differences of first ones.

        A record that by itself would tell more than the whole release does (a large rate of a
        Poisson law) has second derivatives that hold next to the centre only, and so large that a
        single one makes the curvature: these are divided by one plus what it tells, in units of
        the release's information.
        """
        d, p, number = rows[0].added.shape[1], centre.size, len(rows[0].weight)
        curvature = np.zeros((d, p, p))
        drawn, last = self._densities[: len(self._drawn)], self._densities[len(self._drawn) :]
        shared = columns_of(drawn, centre, rows[0].values)
        for each in rows:
            own = columns_of(last, centre, each.values)
            told = np.zeros(number)
            for j, where, values in chain(shared(), own()):
                told -= reach[j, where] @ values
            held = (each.weight / (1 + np.maximum(told, 0.0)))[:, None] * each.added
            for k in range(d):
                curvature[k] += (each.slopes * held[:, k]) @ each.slopes.T
            for j, where, values in chain(shared(), own()):
                curvature[:, where, j] += (values @ held).T
        return 0.5 * (curvature + curvature.transpose(0, 2, 1)) / number


class _Moments(NamedTuple):
    """First moments of one simulation."""

    slope: Matrix
    covariance: Matrix
    information: Matrix


class _Rows(NamedTuple):
    """Simulated records: their values, log-density with its gradient, and what they add."""

    values: list[Any]
    density: Vector
    slopes: Matrix
    added: Matrix
    weight: Vector

    def cut(self, where: slice) -> _Rows:
        """Take some of the records."""
        values = [each[where] for each in self.values]
        by_record = (each[where] for each in (self.added, self.weight))
        return _Rows(values, self.density[where], self.slopes[:, where], *by_record)


def why_not_simulated(model: pm.Model, block: RecordBlock) -> str | None:
    """Say why records of a block cannot be simulated here; None where they can."""
    for rv in model.free_RVs:
        if rv not in block.records and rv.dtype not in continuous_types:
            return f"{rv.name!r} is discrete."
    for rv in block.records:
        if not isinstance(rv.owner.op, RandomVariable):
            return f"{rv.name!r} is of a distribution that cannot be resized."
    for rv in direct_inputs(block.contributions, model.basic_RVs):
        if rv not in block.records:
            return f"what a record adds depends on {rv.name!r}."
    return None


def _constants(graph: Variable) -> dict[Variable, SharedVariable]:
    """Constants of a graph and, to be put in their place, values that compiled code does not hold.

    So a score at another place, in other coordinates or with another bound is compiled once.
    """
    found = {}
    for leaf in ancestors([graph]):
        if isinstance(leaf, Constant) and getattr(leaf.type, "dtype", None) == "float64":
            value = np.asarray(leaf.data)
            if value.size > 1 or (value.size == 1 and not float(value.item()).is_integer()):
                found[leaf] = pytensor.shared(value, shape=leaf.type.shape)
    return found


def _has_rows(leaf: Variable, n: int) -> bool:
    if not isinstance(leaf, Constant | SharedVariable) or not isinstance(leaf.type, TensorType):
        return False
    value = leaf.data if isinstance(leaf, Constant) else leaf.get_value(borrow=True)
    return bool(value.ndim) and n in value.shape and n > 1
