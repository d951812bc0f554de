"""Interweaving: move the parameters of records, the records' residuals held fixed.

Given the records, parameters hardly move when there are many records; given the parameters, the
records follow them closely when there is much noise. So the two hold each other under strong
privacy, and the plain sampler of Ju et al. (2022) slows down. In the coordinates (theta, u), with u
the residuals and x = x(theta, u), the posterior is

    p(theta) * noise(released | statistic(x(theta, u))),

in which theta moves freely. One move there after every sweep removes the slowdown
(ancillarity-sufficiency interweaving: Yu & Meng 2011). The residuals' own law does not depend on
theta, so that neither their density nor a Jacobian enters. Counts and categories have residuals
too: u uniform between F(x - 1) and F(x), drawn anew for every move. Parameters that are discrete
are drawn among their values (:mod:`~pymc_dp.analyst.record_gibbs.discrete_parents`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.vartypes import continuous_types
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import clone_replace
from pytensor.graph.rewriting.basic import MergeOptimizer
from pytensor.tensor.random.type import random_generator_type

from pymc_dp.analyst.privatized import concrete_shape
from pymc_dp.analyst.record_gibbs.discrete_parents import (
    chosen_discrete,
    make_discrete_moves,
    one_after_the_other,
)
from pymc_dp.analyst.record_gibbs.drawing import draw_from, draw_with
from pymc_dp.analyst.record_gibbs.residuals import AnyRule, DrawnRule, rule_for, takes_uniform
from pymc_dp.analyst.records import RecordBlock, parents_first, record_variables
from pymc_dp.analyst.release import by_name
from pymc_dp.compat import jit_function
from pymc_dp.graph.additivity import direct_inputs
from pymc_dp.graph.layout import PointLayout
from pymc_dp.numerics.compiled import graph_key
from pymc_dp.numerics.cycles import Part
from pymc_dp.numerics.slice import make_interweaving

__all__ = ["Interweaving", "advice_on_held", "held_discrete", "interweaving_plan", "together"]

#: in more directions than this a cycle would take long to get anywhere
MOST_PARAMETERS = 30
#: so many move together well enough, whatever they belong to
FEW_PARAMETERS = 8
#: updates a cycle of several parameters; one parameter needs a single one, and so do counts and
#: categories, whose residuals cost more than the records' own moves
MOST_UPDATES = 4
#: the same where residuals are drawn, which takes long and is done once a cycle
MOST_UPDATES_DRAWN = 6
#: up to here every whole number is one in double precision
LARGEST_COUNT = 2.0**53


#: rules of the records that move, and the parameters they move with
Plan = tuple[dict[Any, AnyRule], list[Any]]


def interweaving_plan(model: pm.Model, *blocks: RecordBlock) -> Plan | str:
    """Which records of some blocks move with their residuals kept, along with which parameters.

    Returns
    -------
    Plan or str
        The reason where there is none. Records without a rule stay where they are, and their
        density enters the ratio.
    """
    found = {rv for block in blocks for rv in block.records}
    records = parents_first(found)
    all_records = {*record_variables(model), *records}
    parents = {rv: _parameters(model, rv, all_records) for rv in records}
    rules: dict[Any, AnyRule] = {}
    unmoved: list[str] = []
    for rv in records:

        def moving(param: Any, rv: Any = rv) -> bool:
            return bool(set(direct_inputs([param], [*parents[rv], *rules])))

        rule = rule_for(rv, moving)
        if rule is not None and set(direct_inputs(rv.owner.inputs, [*parents[rv], *rules])):
            rules[rv] = rule
        elif rule is None and parents[rv]:
            unmoved.append(f"{rv.name!r} ({type(rv.owner.op).__name__.removesuffix('RV')})")
    parameters = list(dict.fromkeys(p for rv in rules for p in parents[rv]))
    if unmoved and not rules:
        return f"no rule to keep the residuals of {', '.join(unmoved)}"
    if not parameters:
        return "the records have no latent parameters"
    sizes = _sizes(model, parameters)
    kept: list[Any] = []
    for parameter in sorted(_continuous(parameters), key=lambda p: sizes[p]):
        if sum(sizes[p] for p in [*kept, parameter]) <= MOST_PARAMETERS:
            kept.append(parameter)
    kept += chosen_discrete(sizes)
    if not kept and not _continuous(parameters):
        return f"{_names(parameters)} has too many values"
    if not kept:
        total = sum(sizes.values())
        return f"the records have {total} parameters, more than {MOST_PARAMETERS}"
    return rules, [p for p in parameters if p in kept]


def _continuous(parameters: Iterable[Any]) -> list[Any]:
    """Those of some variables that are continuous."""
    return [p for p in parameters if p.dtype in continuous_types]


def held_discrete(model: pm.Model, plan: Plan | str, blocks: Sequence[RecordBlock]) -> list[Any]:
    """Discrete parameters of the records of some blocks that do not move along with these."""
    records = [rv for block in blocks for rv in block.records]
    all_records = {*record_variables(model), *records}
    moving = [] if isinstance(plan, str) else plan[1]
    found = dict.fromkeys(p for rv in records for p in _parameters(model, rv, all_records))
    return [p for p in found if p.dtype not in continuous_types and p not in moving]


def advice_on_held(parameters: Sequence[Any]) -> str:
    """Say what discrete parameters that are held by their records mean, and what to write."""
    return (
        f"{_names(parameters)} is discrete and moves given the records alone, which hold it: it "
        "may stay at one value, whatever R-hat says. Integrate the records out, "
        "pmdp.marginalize(model), or write the records' distribution with it summed out, "
        "e.g. pm.Mixture"
    )


def _names(parameters: Iterable[Any]) -> str:
    return ", ".join(repr(p.name) for p in parameters)


def _sizes(model: pm.Model, parameters: Sequence[Any]) -> dict[Any, int]:
    """Count the unconstrained values of each parameter, compiling nothing if types tell."""
    values = {p: model.rvs_to_values[p] for p in parameters}
    if any(None in value.type.shape for value in values.values()):
        start = model.initial_point()
        return {p: np.size(start[value.name]) for p, value in values.items()}
    return {p: int(np.prod(value.type.shape)) for p, value in values.items()}


def _parameters(model: pm.Model, rv: Any, records: Collection[Any]) -> list[Any]:
    """Latent variables in the distribution of a record that are not records."""
    return [
        parent
        for parent in direct_inputs(rv.owner.inputs, model.basic_RVs)
        if parent in model.free_RVs and parent not in records
    ]


def together(model: pm.Model, blocks: Sequence[RecordBlock]) -> list[list[RecordBlock]]:
    """Sort blocks into groups that interweave together, for their parameters are mostly shared.

    The records of one block hold the parameters while another's move along. Where most parameters
    are one block's own, moves of them with that block alone are better.
    """
    records = {*record_variables(model), *(rv for block in blocks for rv in block.records)}
    parameters = [
        {p for rv in block.records for p in _parameters(model, rv, records)} for block in blocks
    ]
    sizes = _sizes(model, list(set().union(*parameters))) if len(blocks) > 1 else {}

    def size(of: Iterable[Any]) -> int:
        return sum(sizes[p] for p in of)

    groups: list[list[int]] = []
    for i in range(len(blocks)):
        group = [i]
        for other in list(groups):
            sets = [parameters[j] for j in [*other, *group]]
            union = set().union(*sets)
            shared = {p for p in union if sum(p in s for s in sets) > 1}
            if shared and size(union) <= max(FEW_PARAMETERS, 2 * size(shared)):
                groups.remove(other)
                group = sorted([*other, *group])
        groups.append(group)
    return [[blocks[i] for i in group] for group in sorted(groups)]


class Interweaving:
    """A move of parameters with the records' residuals kept, compiled."""

    def __init__(self, model: pm.Model, plan: Plan, layout: PointLayout) -> None:
        rules, parameters = plan
        values = model.rvs_to_values
        proposal = layout.theta.type("proposal")
        drawn = _Drawn(model, rules, layout)
        #: every value that moves, and where it goes
        goes_to: dict[Any, Any] = {
            values[p]: layout.piece(proposal, values[p]).astype(values[p].dtype) for p in parameters
        }
        #: the same for expressions of them: a simplex' way to its values and back takes long
        at_once: dict[Any, Any] = {}
        for rv, rule in rules.items():
            x, *old = model.replace_rvs_by_values([rv, *rv.owner.op.dist_params(rv.owner)])
            new = clone_replace(old, goes_to, rebuild_strict=False)
            moved = drawn.moved(rv, rule, x, old, new)
            if isinstance(rule, DrawnRule):
                at_once[x] = moved
            transform = model.rvs_to_transforms.get(rv)
            if transform is not None:
                inputs = model.replace_rvs_by_values(
                    [i for i in rv.owner.inputs if hasattr(i.type, "dtype")]
                )
                kept = iter(clone_replace(inputs, goes_to, rebuild_strict=False))
                args = [next(kept) if hasattr(i.type, "dtype") else i for i in rv.owner.inputs]
                moved = transform.forward(moved, *args)
            goes_to[values[rv]] = moved.astype(values[rv].dtype)

        rest = by_name(rv for rv in [*model.basic_RVs, *model.potentials] if rv not in rules)
        log_density = model.logp(vars=rest, jacobian=True)
        if at_once:
            log_density, *found = _merged([log_density, *at_once])
            at_once = dict(zip(found, at_once.values(), strict=True))
        after = clone_replace(log_density, {**goes_to, **at_once}, rebuild_strict=False)
        records = [values[rv] for rv in layout.record_variables]
        table = layout.whole([goes_to.get(value, value) for value in records])
        state = [layout.theta, layout.given, layout.table]
        inputs = [proposal, *state, drawn.matrix]
        graphs = layout.on_arrays([after + drawn.log_density, table], keep=[proposal, drawn.matrix])
        self.density, self.moved = (layout.compiled(inputs, [graph]) for graph in graphs)
        #: draws what residuals have that is random given parameters and records
        self.draw: Any = None
        if drawn.rows:
            rng = random_generator_type("rng")
            graph = pt.concatenate(drawn.rows, axis=0)
            graphs = layout.on_arrays(draw_with(rng, [graph], list(rules)), keep=[rng])
            self.draw = layout.compiled(state, graphs, rng)
        self.uniform = any(takes_uniform(rv) for rv in rules)
        where = {
            p: np.arange(*layout.parameters.ends(str(values[p].name)), dtype=np.int64)
            for p in parameters
        }
        moving = [where[p] for p in _continuous(parameters)]
        #: positions of what is continuous, and positions and windows of what is discrete
        self.which = np.concatenate([*moving, np.zeros(0, dtype=np.int64)])
        windows = chosen_discrete({p: where[p].size for p in parameters})
        self.windows = [(int(i), window) for p, window in windows.items() for i in where[p]]
        several = MOST_UPDATES if self.draw is None else MOST_UPDATES_DRAWN
        self.times = 1 if self.uniform or self.which.size == 1 else several

    def key(self) -> str | None:
        """Name of the compiled move, for the cache on disk."""
        functions = [self.density, self.moved]
        key = graph_key(functions if self.draw is None else [*functions, self.draw])
        settings = f"{self.which.tolist()} {self.times} {self.windows}"
        return None if key is None else f"interweaving {key} {settings}"

    def part(self) -> Part:
        """Make the move, numba-compiled."""
        density, moved = jit_function(self.density), jit_function(self.moved)
        draw = None if self.draw is None else jit_function(self.draw)
        parts = []
        if self.which.size:
            parts.append(make_interweaving(density, moved, self.which, self.times, draw))
        if self.windows:
            parts.append(
                make_discrete_moves(density, moved, draw, *zip(*self.windows, strict=True))
            )
        return parts[0] if len(parts) == 1 else one_after_the_other(*parts)


def _merged(graphs: Sequence[Any]) -> list[Any]:
    """Let equal parts of graphs be the same variable."""
    keep: dict[str, Any] = {"copy_inputs": False, "copy_orphans": False}
    fgraph = FunctionGraph(outputs=list(graphs), clone=True, **keep)
    MergeOptimizer().rewrite(fgraph)
    return list(fgraph.outputs)


class _Drawn:
    """What residuals have that is random given parameters and records: rows of a matrix."""

    def __init__(self, model: pm.Model, rules: dict[Any, AnyRule], layout: PointLayout) -> None:
        self.model, self.layout = model, layout
        self.matrix = pt.dmatrix("drawn")
        #: graphs that draw its rows
        self.rows: list[Any] = []
        self._size = 0
        #: log-density of residuals at the new parameters, where it depends on these
        self.log_density: Any = pt.zeros(())
        if any(takes_uniform(rv) for rv in rules):
            shape = layout.table.type.shape
            self._add(draw_from(pt.random.uniform, size=shape), shape[0])

    def _add(self, rows: Any, number: int) -> Any:
        """Add rows that a graph draws, and cut them out of the matrix."""
        self.rows.append(rows)
        self._size += number
        return self.matrix[self._size - number : self._size]

    def moved(self, rv: Any, rule: Any, x: Any, old: Any, new: Any) -> Any:
        """Where records go that are at x, given old and new parameters."""
        if takes_uniform(rv):
            v = self.layout.columns(self.matrix, self.model.rvs_to_values[rv])
            moved = rule(x, old, new, v)
            # as an integer a greater one would be another number
            self.log_density += pt.switch(pt.all(moved < LARGEST_COUNT), 0.0, -np.inf)
            return moved
        if not isinstance(rule, DrawnRule):
            return rule(x, old, new)
        n, *rest = concrete_shape(rv)
        kept = []
        for residual in rule.residuals(x, old):
            rows = self.layout.padded(self.layout.rows([residual]), n)
            kept.append(self._add(rows, int(np.prod(rest)))[:, :n].T.reshape((n, *rest)))
        moved, log_density = rule.moved(kept, new)
        self.log_density += log_density
        return moved
