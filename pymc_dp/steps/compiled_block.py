"""A block of records, compiled: draw proposals for all of them, and evaluate the current ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.blocking import PointType
from pymc.logprob.utils import replace_rvs_by_values
from pymc.pytensorf import compile as pm_compile
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.rewriting import inline_ofg_node
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import explicit_graph_inputs, graph_inputs
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomType, random_generator_type
from pytensor.tensor.variable import TensorVariable

from pymc_dp.kernels.joint_sweep import make_joint_sweep
from pymc_dp.kernels.sweep import make_sweep
from pymc_dp.privatized import concrete_shape
from pymc_dp.records import RecordBlock
from pymc_dp.steps.local_conditional import draw_local_conditional
from pymc_dp.steps.swaps import Swaps

__all__ = ["CompiledBlock"]


class CompiledBlock:
    """Compiled functions of one block of records, and the current records' contributions."""

    def __init__(self, model: pm.Model, block: RecordBlock, compile_kwargs: dict | None) -> None:
        self.names = [str(model.rvs_to_values[rv].name) for rv in block.records]
        self.release_names = [release.name for release in block.releases]
        self.mechanisms = [release.mechanism for release in block.releases]
        self._compile(model, block, compile_kwargs or {})
        self.forget()

    def _compile(self, model: pm.Model, block: RecordBlock, compile_kwargs: dict) -> None:
        transforms = model.rvs_to_transforms
        values = [
            transforms[rv].forward(rv, *rv.owner.inputs) if transforms.get(rv) else rv
            for rv in block.records
        ]
        per_record = [_columns(block), _log_weight(block)]
        proposals = [*values, *per_record]
        given = {rv: v for rv, v in model.rvs_to_values.items() if rv not in block.records}
        conditional = draw_local_conditional(block)
        if conditional is not None:  # which leaves the block's terms out of every ratio
            per_record[1] = pt.zeros(0)
            given_draw: Any = {block.records[0]: conditional}
            proposals = graph_replace([*values, *per_record], given_draw, strict=False)

        # proposals: the records stay random, everything else is replaced by its value
        drawn = replace_rvs_by_values(
            proposals,
            rvs_to_values=given,
            rvs_to_transforms={rv: transforms.get(rv) for rv in given},
        )
        rng = random_generator_type("rng")
        drawn = _draw_with(rng, drawn, block)
        self.propose_inputs, self.propose = _compiled(drawn, compile_kwargs, rng)

        # the current records: everything is replaced by its value
        evaluated = model.replace_rvs_by_values([*per_record, *block.totals])
        released = [model.rvs_to_values[release.rv] for release in block.releases]
        evaluated = [graph.astype("float64") for graph in [*evaluated, *released]]
        self.evaluate_inputs, self.evaluate = _compiled(evaluated, compile_kwargs)
        #: whether nothing but the records moves what is evaluated
        self.constant = set(self.evaluate_inputs) <= set(self.names)
        #: log-density of all releases together, where one is not a sum over components
        self.joint = None
        if not all(mechanism.elementwise for mechanism in self.mechanisms):
            self.joint = _joint_density(block)
        #: exchanges between records, where totals are known exactly
        self.swaps = None
        if Swaps.needed(block):
            self.swaps = Swaps(
                model, block, per_record[0], lambda graphs: _compiled(graphs, compile_kwargs)
            )

    @cached_property
    def joint_sweep(self) -> Callable[..., Any]:
        """Sweep that calls the compiled joint density."""
        assert self.joint is not None
        return make_joint_sweep(self.joint.vm.jit_fn)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "joint_sweep"}

    def forget(self) -> None:
        """Drop what is known of the current records."""
        self.last: PointType | None = None
        self.stale = True

    def follow(self, point: PointType) -> None:
        """Take note that the records were moved from outside the sweep, by their own step."""
        self.last = {name: point[name] for name in self.names}
        self.stale = True

    def refresh(self, point: PointType) -> None:
        """Evaluate the current records' contributions, the statistics and the released values."""
        self.contributions, self.log_weight, *rest = self.evaluate(
            *(point[name] for name in self.evaluate_inputs)
        )
        statistics, released = rest[: len(self.mechanisms)], rest[len(self.mechanisms) :]
        released = [
            mechanism.checked_release(name, value, value.shape)
            for name, mechanism, value in zip(
                self.release_names, self.mechanisms, released, strict=True
            )
        ]
        self.released = _flat(released).astype(np.float64)
        self.offset = _flat(statistics) - self.contributions.sum(axis=0)
        if self.joint is not None:
            return
        pairs = list(zip(self.mechanisms, statistics, strict=True))
        self.noise = _flat([np.broadcast_to(m.noise, s.shape) for m, s in pairs])
        self.densities = tuple(dict.fromkeys(m.log_density for m in self.mechanisms))
        kinds = [np.full(s.size, self.densities.index(m.log_density)) for m, s in pairs]
        self.kind = _flat(kinds).astype(np.int64)

    def sweep(self, point: PointType, rng: np.random.Generator) -> tuple[PointType, float, float]:
        """Offer every record one proposal: the new point, acceptance rate and lowest log-ratio."""
        if self.last is not None:
            self._check_untouched(point, self.last)
        if self.stale or not self.constant:
            self.refresh(point)
            self.stale = False
        *values, proposed, proposed_log_weight = self.propose(
            rng, *(point[name] for name in self.propose_inputs)
        )
        n = len(proposed)
        common = (
            self.contributions,
            proposed,
            self.log_weight,
            proposed_log_weight,
            -rng.standard_exponential(n),
            self.offset + self.contributions.sum(axis=0),
            self.released,
        )
        if self.joint is None:
            accepted, lowest = make_sweep(self.densities)(*common, self.noise, self.kind)
        else:
            accepted, lowest = self.joint_sweep(*common)
        self.last = {}
        for name, value in zip(self.names, values, strict=True):
            rejected = ~accepted.reshape(n, *[1] * (value.ndim - 1))
            np.copyto(value, point[name], where=rejected)
            self.last[name] = value
        point = {**point, **self.last}
        if self.swaps is not None:
            point = self.swaps.move(self, point, rng)
            self.last = {name: point[name] for name in self.names}
            self.refresh(point)
        return point, float(accepted.mean()), float(lowest)

    def _check_untouched(self, point: PointType, last: PointType) -> None:
        for name, value in last.items():
            if point[name] is not value and not np.array_equal(point[name], value):
                raise ValueError(
                    f"{name!r} is moved by RecordGibbs and by another step of the same run. "
                    "Leave it to one of them: take it out of the other step's variables."
                )

    def deviation(self, point: PointType, rng: np.random.Generator) -> float:
        """How far the contributions are from explaining a move of one record, relative to it.

        Moves a record in the middle of the table to a proposal and compares the change of the
        statistics, computed in full, with the change of that record's contribution.
        """
        self.refresh(point)
        before, contributions = self.offset + self.contributions.sum(axis=0), self.contributions
        *values, proposed, _ = self.propose(rng, *(point[name] for name in self.propose_inputs))
        i = len(proposed) // 2
        moved = dict(point)
        for name, value in zip(self.names, values, strict=True):
            moved[name] = point[name].copy()
            moved[name][i] = value[i]
        self.refresh(moved)
        change = self.offset + self.contributions.sum(axis=0) - before
        expected = proposed[i] - contributions[i]
        size = np.abs(before).max(initial=0) + np.abs(proposed[i]).max(initial=0) + 1
        return float(np.abs(change - expected).max(initial=0) / size)


def _columns(block: RecordBlock) -> TensorVariable:
    """Contributions to all releases side by side, of shape (n, number of components)."""
    n = block.records[0].shape[0]
    parts = [c.reshape((n, -1)).astype("float64") for c in block.contributions]
    return pt.concatenate(parts, axis=1) if parts else pt.zeros((n, 0))


def _joint_density(block: RecordBlock) -> Any:
    """Compile the log-density of all releases as a function of (totals, released), both flat."""
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
    return pytensor.function([totals, released], [sum(terms[1:], terms[0])], mode="NUMBA")


def _log_weight(block: RecordBlock) -> TensorVariable:
    """Each record's log-density in the model's other terms; empty where there are none."""
    terms = [term.astype("float64") for term in block.terms.values()]
    return sum(terms[1:], terms[0]) if terms else pt.zeros(0)


def _flat(arrays: Sequence[NDArray]) -> NDArray[np.float64]:
    return np.concatenate([np.ravel(a) for a in arrays]) if arrays else np.zeros(0)


def _draw_with(rng: Any, outputs: Sequence[Any], block: RecordBlock) -> list[Any]:
    """Thread one generator through all random draws of a graph, one after the other."""
    fgraph = FunctionGraph(outputs=list(outputs), clone=True)
    while symbolic := [n for n in fgraph.toposort() if _draws_inside(n)]:
        for node in symbolic:
            fgraph.replace_all(list(zip(node.outputs, inline_ofg_node(node), strict=True)))
    for node in fgraph.toposort():
        if isinstance(node.op, RandomVariable):
            fgraph.change_node_input(node, 0, rng, import_missing=True)
            rng = node.outputs[0]
    left = [var for var in fgraph.inputs if isinstance(var.type, RandomType) and var.name != "rng"]
    if any(fgraph.clients[var] for var in left):
        raise NotImplementedError(
            f"RecordGibbs cannot draw proposals for {block.names}: their distribution draws in a "
            "loop. Write it with vectorised distributions, or sample with step=pm.NUTS()."
        )
    return list(fgraph.outputs)


def _draws_inside(node: Any) -> bool:
    takes_rng = any(isinstance(var.type, RandomType) for var in node.inputs)
    return isinstance(node.op, OpFromGraph) and takes_rng


def _compiled(
    outputs: Sequence[Variable], compile_kwargs: dict, rng: Variable | None = None
) -> tuple[list[str], Callable[..., list[NDArray]]]:
    """Compile a function of a point's values; gives the names to pass, in order, and the function.

    A generator, where there is one, comes first and is advanced in place.
    """
    inputs = [var for var in explicit_graph_inputs(outputs) if var is not rng]
    first = [] if rng is None else [pytensor.In(rng, mutable=True)]
    function = pm_compile([*first, *inputs], outputs, random_seed=False, **compile_kwargs)
    function.trust_input = True
    return [str(var.name) for var in inputs], function
