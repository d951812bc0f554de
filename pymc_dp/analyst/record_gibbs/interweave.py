"""Interweaving: move the parameters of records, the records' residuals held fixed.

Given the records, parameters hardly move when there are many records; given the parameters, the
records follow them closely when there is much noise. So the two hold each other under strong
privacy, and the plain sampler of Ju et al. (2022) slows down. In the coordinates (theta, u), with u
the residuals and x = x(theta, u), the posterior is

    p(theta) * noise(released | statistic(x(theta, u))),

in which theta moves freely. One move there after every sweep removes the slowdown
(ancillarity-sufficiency interweaving: Yu & Meng 2011). The residuals' own law does not depend on
theta, so that neither their density nor a Jacobian enters. Counts and categories have residuals
too: u uniform between F(x - 1) and F(x), drawn anew for every move.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pymc as pm
from pymc.vartypes import continuous_types
from pytensor.graph.replace import clone_replace

from pymc_dp.analyst.record_gibbs.residuals import CountRule, Rule, rule_for, takes_uniform
from pymc_dp.analyst.records import RecordBlock, record_variables
from pymc_dp.analyst.release import by_name
from pymc_dp.compat import jit_function
from pymc_dp.graph.additivity import direct_inputs
from pymc_dp.graph.packing import Packing
from pymc_dp.numerics.compiled import graph_key
from pymc_dp.numerics.rounds import Part
from pymc_dp.numerics.slice import make_interweaving

__all__ = ["Interweaving", "interweaving_plan"]

#: in more directions than this a round would take long to get anywhere
MOST_PARAMETERS = 30
#: updates a round of several parameters; one parameter needs a single one, and so do counts and
#: categories, whose residuals cost more than the records' own moves
MOST_UPDATES = 4


#: rules of the records that move, and the parameters they move with
Plan = tuple[dict[Any, Rule | CountRule], list[Any]]


def interweaving_plan(model: pm.Model, block: RecordBlock) -> Plan | str:
    """Which records move with their residuals kept, and along with which parameters.

    Returns
    -------
    Plan or str
        The reason where there is none. Records without a rule stay where they are, and their
        density enters the ratio.
    """
    all_records = record_variables(model)
    parents: dict[Any, list[Any]] = {
        rv: [
            parent
            for parent in direct_inputs(rv.owner.inputs, model.basic_RVs)
            if parent in model.free_RVs and parent not in [*all_records, *block.records]
        ]
        for rv in block.records
    }
    rules: dict[Any, Rule | CountRule] = {}
    unmoved: list[str] = []
    for rv in block.records:

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
    if any(p.dtype not in continuous_types for p in parameters):
        return "a parameter of the records is discrete"
    start = model.initial_point()
    sizes = {p: np.size(start[model.rvs_to_values[p].name]) for p in parameters}
    kept: list[Any] = []
    for parameter in sorted(parameters, key=lambda p: sizes[p]):
        if sum(sizes[p] for p in [*kept, parameter]) <= MOST_PARAMETERS:
            kept.append(parameter)
    if not kept:
        total = sum(sizes.values())
        return f"the records have {total} parameters, more than {MOST_PARAMETERS}"
    return rules, [p for p in parameters if p in kept]


class Interweaving:
    """A move of parameters with the records' residuals kept, compiled."""

    def __init__(self, model: pm.Model, plan: Plan, packing: Packing) -> None:
        rules, parameters = plan
        values = model.rvs_to_values
        proposal = packing.theta.type("proposal")
        uniform = packing.table.type("uniform")
        #: every value that moves, and where it goes
        goes_to: dict[Any, Any] = {
            values[p]: packing.piece(proposal, values[p]) for p in parameters
        }
        for rv, rule in rules.items():
            x, *old = model.replace_rvs_by_values([rv, *rv.owner.op.dist_params(rv.owner)])
            new = clone_replace(old, goes_to, rebuild_strict=False)
            v = [packing.columns(uniform, values[rv])] if takes_uniform(rv) else []
            moved = rule(x, old, new, *v)
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
        after = clone_replace(log_density, goes_to, rebuild_strict=False)
        records = [values[rv] for rv in packing.record_variables]
        table = packing.rows([goes_to.get(value, value) for value in records])
        inputs = [proposal, packing.theta, packing.given, packing.table, uniform]
        graphs = packing.packed([after, table], keep=[proposal, uniform])
        self.density, self.moved = (packing.compiled(inputs, [graph]) for graph in graphs)
        self.uniform = any(takes_uniform(rv) for rv in rules)
        where = [packing.parameters.ends(str(values[p].name)) for p in parameters]
        self.which = np.concatenate([np.arange(*ends) for ends in where])
        self.times = 1 if self.uniform or self.which.size == 1 else MOST_UPDATES

    def key(self) -> str | None:
        """Name of the compiled move, for the cache on disk."""
        key = graph_key([self.density, self.moved])
        settings = f"{self.which.tolist()} {self.times} {self.uniform}"
        return None if key is None else f"interweaving {key} {settings}"

    def part(self) -> Part:
        """Make the move, numba-compiled."""
        density, moved = jit_function(self.density), jit_function(self.moved)
        return make_interweaving(density, moved, self.which, self.times, self.uniform)
