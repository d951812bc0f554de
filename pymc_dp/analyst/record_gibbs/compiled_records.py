"""A block of records, compiled: draw proposals for all of them, and evaluate the current ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import explicit_graph_inputs, graph_inputs
from pytensor.tensor.random.type import random_generator_type
from pytensor.tensor.variable import TensorVariable

from pymc_dp.analyst.privatized import concrete_shape
from pymc_dp.analyst.record_gibbs.drawing import draw_with
from pymc_dp.analyst.record_gibbs.joint_sweep import make_joint_sweep
from pymc_dp.analyst.record_gibbs.local_conditional import draw_local_conditional
from pymc_dp.analyst.record_gibbs.record_move import make_record_move
from pymc_dp.analyst.record_gibbs.swaps import Swaps
from pymc_dp.analyst.record_gibbs.sweep import make_sweep
from pymc_dp.analyst.records import RecordBlock, length_of
from pymc_dp.compat import jit_function, replace_rvs_by_values
from pymc_dp.graph.additivity import NotAdditiveError
from pymc_dp.graph.intervals import ONCE
from pymc_dp.graph.layout import PointLayout
from pymc_dp.numerics.compiled import density_key, graph_key
from pymc_dp.numerics.cycles import Part, Place

__all__ = ["CompiledRecords", "check_records"]


class CompiledRecords:
    """Compiled functions of one block of records."""

    def __init__(self, model: pm.Model, block: RecordBlock, layout: PointLayout) -> None:
        self.layout = layout
        self.names = [str(model.rvs_to_values[rv].name) for rv in block.records]
        self.release_names = [release.name for release in block.releases]
        self.mechanisms = [release.mechanism for release in block.releases]
        #: rows and columns of the table that hold the block's records
        rows = [layout.rows_of(name) for name in self.names]
        self.where = (rows[0][0], rows[-1][1], length_of(block.records[0]))
        transforms = model.rvs_to_transforms
        values = [
            transforms[rv].forward(rv, *rv.owner.inputs) if transforms.get(rv) else rv
            for rv in block.records
        ]
        per_record = [_columns(block), _log_weight(block)]
        drawn: list[Any] = [layout.rows(values), *per_record]
        conditional = draw_local_conditional(block)
        if conditional is not None:  # which leaves the block's terms out of every ratio
            per_record[1] = pt.zeros(0)
            given_draw: Any = {block.records[0]: conditional}
            drawn = graph_replace([layout.rows(values), *per_record], given_draw, strict=False)

        rng = random_generator_type("rng")
        drawn = layout.on_arrays(_proposals(model, block, drawn, rng), keep=[rng])
        theta, others, table = layout.theta, layout.given, layout.table
        self.propose = layout.compiled([theta, others], drawn, rng)

        # the current records: everything is replaced by its value
        totals = pt.concatenate([t.ravel().astype("float64") for t in [*block.totals, pt.zeros(0)]])
        evaluated = model.replace_rvs_by_values([*per_record, totals])
        evaluated = layout.on_arrays([g.astype("float64") for g in evaluated])
        self.evaluate = layout.compiled([theta, others, table], evaluated)
        _check_contributions(layout, self.where, block.names, [rng, *drawn], evaluated)
        released: list[Any] = [model.rvs_to_values[release.rv] for release in block.releases]
        self.released = layout.compiled([others], layout.on_arrays(released), mode="FAST_COMPILE")
        #: whether a release is itself a variable that other steps move
        self.free_release = any(release.rv in model.free_RVs for release in block.releases)
        self.shapes = [concrete_shape(total) for total in block.totals]
        #: log-density of all releases together, where one is not a sum over components
        self.joint = None
        if not all(mechanism.elementwise for mechanism in self.mechanisms):
            self.joint = pytensor.function(*_joint_density(block), mode="NUMBA")
        #: whether other terms of the model tell about the records
        self.weighted = bool(block.factors)
        #: exchanges between records, where totals are known exactly
        self.swaps = None
        if Swaps.needed(block):
            self.swaps = Swaps(model, block, per_record[0], layout)
        elementwise = self.mechanisms if self.joint is None else []
        self.densities = tuple(dict.fromkeys(m.log_density for m in elementwise))
        #: noise parameter and position of the density for every component of the releases
        self.noise, self.kind = self._components(elementwise)
        if self.joint is not None:  # which has the noise in it
            size = sum(int(np.prod(concrete_shape(release.rv))) for release in block.releases)
            self.noise, self.kind = np.zeros(size), np.zeros(size, dtype=np.int64)

    def _components(
        self, mechanisms: Sequence[Any]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        noise, kind = [np.zeros(0)], [np.zeros(0, dtype=np.int64)]
        for mechanism, shape in zip(mechanisms, self.shapes, strict=False):
            noise.append(np.broadcast_to(mechanism.noise, shape).ravel())
            kind.append(np.full(noise[-1].size, self.densities.index(mechanism.log_density)))
        return np.concatenate(noise), np.concatenate(kind)

    def key(self) -> str | None:
        """Name of the compiled moves, for the cache on disk."""
        functions = [self.propose, self.evaluate]
        functions += [] if self.joint is None else [self.joint]
        functions += [] if self.swaps is None else [self.swaps.evaluate]
        key = graph_key(functions)
        names = [density_key(density) for density in self.densities]
        rows = "" if self.swaps is None else str(self.swaps.rows)
        return None if key is None or None in names else f"records {key} {names} {rows}"

    def parts(self, place: Place) -> list[Part]:
        """Make the moves of the records, numba-compiled."""
        if self.joint is None:
            sweep = make_sweep(self.densities)
        else:
            sweep = make_joint_sweep(jit_function(self.joint))
        propose, evaluate = jit_function(self.propose), jit_function(self.evaluate)
        moves = [make_record_move(propose, evaluate, sweep, place)]
        if self.swaps is not None:
            moves.append(self.swaps.part(evaluate, self.densities, place))
        return moves

    def released_values(self, given: NDArray[np.float64]) -> NDArray[np.float64]:
        """Released value of every component, after a check by its mechanism."""
        released = [
            np.ravel(mechanism.checked_release(name, value, value.shape))
            for name, mechanism, value in zip(
                self.release_names, self.mechanisms, self.released(given), strict=True
            )
        ]
        return np.concatenate([np.zeros(0), *released]).astype(np.float64)


def _check_contributions(
    layout: PointLayout, where: tuple[int, int, int], names: str, drawn: Any, evaluated: Any
) -> None:
    """Guard against a rule for an operation that does not hold.

    Moves a record in the middle of the table to a proposal and compares the change of the
    statistics, computed in full, with the change of that record's contribution. All of it in
    Python: numba would compile these graphs once more for the way in, and a compiler of C, where
    there is one, what nested graphs are made of.
    """
    rng, *graphs = drawn
    inputs = [layout.theta, layout.given, layout.table]
    with pytensor.config.change_flags(cxx=""):
        propose = layout.compiled(inputs[:2], graphs, rng, mode=ONCE)
        evaluate = layout.compiled(inputs, evaluated, mode=ONCE)
    theta, given, table = layout.start()
    contributions, _, before = evaluate(theta, given, table)
    new, proposed, _ = propose(np.random.default_rng(0), theta, given)
    i = len(proposed) // 2
    first, last, _ = where
    table[first:last, i] = new[:, i]
    change = evaluate(theta, given, table)[2] - before
    expected = proposed[i] - contributions[i]
    size = np.abs(before).max(initial=0) + np.abs(proposed[i]).max(initial=0) + 1
    if np.abs(change - expected).max(initial=0) > 1e-6 * size:  # far above rounding
        raise NotAdditiveError(
            f"Moving one record of {names} changes the released statistic by something else than "
            "that record's contribution. Please report this model; step=pm.NUTS() samples it "
            "where all latent variables are continuous."
        )


def check_records(model: pm.Model, block: RecordBlock) -> None:
    """Raise what compiling a block would, as far as that can be told without compiling."""
    _proposals(model, block, block.records, random_generator_type("rng"))
    if not all(release.mechanism.elementwise for release in block.releases):
        _joint_density(block)
    if Swaps.needed(block):
        Swaps.check(block)


def _proposals(model: pm.Model, block: RecordBlock, graphs: Sequence[Any], rng: Any) -> list[Any]:
    """Graphs of new records: these stay random, everything else is replaced by its value."""
    given = {rv: v for rv, v in model.rvs_to_values.items() if rv not in block.records}
    drawn = replace_rvs_by_values(
        list(graphs),
        rvs_to_values=given,
        rvs_to_transforms={rv: model.rvs_to_transforms.get(rv) for rv in given},
    )
    return draw_with(rng, drawn, block.records)


def _columns(block: RecordBlock) -> TensorVariable:
    """Contributions to all releases side by side, of shape (n, number of components)."""
    n = block.records[0].shape[0]
    parts = [c.reshape((n, -1)).astype("float64") for c in block.contributions]
    return pt.concatenate(parts, axis=1) if parts else pt.zeros((n, 0))


def _joint_density(block: RecordBlock) -> tuple[list[Any], list[Any]]:
    """Log-density of all releases, after its inputs (totals, released), both flat."""
    totals, released = pt.dvector("totals"), pt.dvector("released")
    terms, start, first = [], 0, 0
    for release, total in zip(block.releases, block.totals, strict=True):
        mechanism, shape = release.mechanism, concrete_shape(total)
        out = concrete_shape(release.rv)
        stop, last = start + int(np.prod(shape)), first + int(np.prod(out))
        logp = mechanism.logp if total is release.statistic else mechanism.logp_of_totals
        value = released[first:last].reshape(out).astype(mechanism.dtype)
        terms.append(logp(value, totals[start:stop].reshape(shape)).sum())
        start, first = stop, last
    inputs = [var for var in explicit_graph_inputs(terms) if var not in (totals, released)]
    if inputs or any(isinstance(var, SharedVariable) for var in graph_inputs(terms)):
        raise NotImplementedError(
            f"The density of a release of {block.names} uses variables besides the released value "
            "and the statistic: write public numbers in it as plain arrays."
        )
    return [totals, released], [sum(terms[1:], terms[0])]


def _log_weight(block: RecordBlock) -> TensorVariable:
    """Each record's log-density in the model's other terms; empty where there are none."""
    terms = [term.astype("float64") for term in block.factors.values()]
    return sum(terms[1:], terms[0]) if terms else pt.zeros(0)
