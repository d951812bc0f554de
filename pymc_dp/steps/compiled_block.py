"""A block of records, compiled: draw proposals for all of them, and evaluate the current ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import explicit_graph_inputs
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomType, random_generator_type
from pytensor.tensor.variable import TensorVariable

from pymc_dp.kernels.sweep import make_sweep
from pymc_dp.privatized import check_finite
from pymc_dp.records import RecordBlock

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
        given = {rv: v for rv, v in model.rvs_to_values.items() if rv not in block.records}

        # proposals: the records stay random, everything else is replaced by its value
        drawn = replace_rvs_by_values(
            [*values, *per_record],
            rvs_to_values=given,
            rvs_to_transforms={rv: transforms.get(rv) for rv in given},
        )
        rng = random_generator_type("rng")
        drawn = _draw_with(rng, drawn, block)
        self.propose_inputs, self.propose = _compiled(drawn, compile_kwargs, rng)

        # the current records: everything is replaced by its value
        evaluated = model.replace_rvs_by_values(
            [*per_record, *(release.statistic for release in block.releases)]
        )
        released = [model.rvs_to_values[release.rv] for release in block.releases]
        evaluated = [graph.astype("float64") for graph in [*evaluated, *released]]
        self.evaluate_inputs, self.evaluate = _compiled(evaluated, compile_kwargs)
        #: whether nothing but the records moves what is evaluated
        self.constant = set(self.evaluate_inputs) <= set(self.names)

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
        for name, value in zip(self.release_names, released, strict=True):
            check_finite(name, value)
        self.released = _flat(released)
        self.offset = _flat(statistics) - self.contributions.sum(axis=0)
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
        accepted, lowest = make_sweep(self.densities)(
            self.contributions,
            proposed,
            self.log_weight,
            proposed_log_weight,
            -rng.standard_exponential(n),
            self.offset + self.contributions.sum(axis=0),
            self.released,
            self.noise,
            self.kind,
        )
        self.last = {}
        for name, value in zip(self.names, values, strict=True):
            rejected = ~accepted.reshape(n, *[1] * (value.ndim - 1))
            np.copyto(value, point[name], where=rejected)
            self.last[name] = value
        return {**point, **self.last}, float(accepted.mean()), float(lowest)

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
