"""Tell what the package understood of a model: records, releases, sensitivities, steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np
import pymc as pm
from pymc.vartypes import continuous_types
from pytensor.graph.basic import Constant
from pytensor.scalar import basic as ps
from pytensor.tensor.basic import Alloc
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.variable import TensorVariable

from pymc_dp.analyst.count_gibbs.cells import CountTable, describe_cells, describe_releases
from pymc_dp.analyst.count_gibbs.step import CountGibbs
from pymc_dp.analyst.marginal.counts.tables import told_of
from pymc_dp.analyst.marginal.normal.accuracy import laplace_draws, normal_error
from pymc_dp.analyst.marginal.sampling import counted_blocks, told_of_holders
from pymc_dp.analyst.marginal.strategy import auxiliary_variables, integrated_out
from pymc_dp.analyst.record_gibbs.interweave import (
    advice_on_held,
    held_discrete,
    interweaving_plan,
    together,
)
from pymc_dp.analyst.record_gibbs.parameters import describe_updates
from pymc_dp.analyst.record_gibbs.step import RecordGibbs
from pymc_dp.analyst.records import RecordBlock, form_of_statistic, length_of, record_variables
from pymc_dp.analyst.regression.conjugate_priors import describe_statistics
from pymc_dp.analyst.regression.distribution import RegressionStatisticsRV
from pymc_dp.analyst.regression.gibbs_ss.latent_statistics import latent_statistics
from pymc_dp.analyst.regression.gibbs_ss.step import GibbsSS
from pymc_dp.analyst.regression.normal_x.step import NormalX
from pymc_dp.analyst.regression.normal_x.wishart import CrossProductRV, GramRV
from pymc_dp.analyst.release import Release, releases
from pymc_dp.compat import assign_step_methods
from pymc_dp.graph.additivity import Additive, PerRecord, direct_inputs
from pymc_dp.graph.sensitivity import Sensitivity, check_declared, derive_sensitivities
from pymc_dp.mechanisms import Mechanism

__all__ = ["ExplainedRelease", "Explanation", "explain"]

#: records up to which RecordGibbs's own moves are told, which takes a point of the model
MOST_DESCRIBED = 1_000_000


@dataclass(frozen=True)
class ExplainedRelease:
    """What is known of one release.

    Attributes
    ----------
    name : str
        The release.
    mechanism : Mechanism
        Its noise.
    records : list of str
        The record variables it sums over.
    adds : str or None
        What one record adds to the statistic; None where every record is released by itself.
    sensitivity : Sensitivity or str
        For replacing one record; the reason where it cannot be derived.
    add_remove : Sensitivity or str
        The same for adding or removing one.
    """

    name: str
    mechanism: Mechanism
    records: list[str]
    adds: str | None
    sensitivity: Sensitivity | str
    add_remove: Sensitivity | str

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.mechanism!r}"]
        over = ", ".join(self.records)
        if self.adds is None:
            lines.append(f"  applied to every record of {over} by itself")
        else:
            lines.append(f"  sums over {over}; one record adds {self.adds}")
        if self.mechanism.norm is None:
            return "\n".join([*lines, *self._own_guarantee()])
        if isinstance(self.sensitivity, str):
            reason = f"  sensitivity to replacing one record not derived: {self.sensitivity}"
            return "\n".join([*lines, reason])
        lines += [
            f"  sensitivity to {change} one record: {found}; so "
            f"{found.guarantee_text(self.mechanism)}"
            for change, found in [
                ("replacing", self.sensitivity),
                ("adding or removing", self.add_remove),
            ]
            if isinstance(found, Sensitivity) and found.norm(self.mechanism.norm) > 0
        ]
        return "\n".join(lines)

    def _own_guarantee(self) -> list[str]:
        """Guarantee of a mechanism that has no sensitivity of its statistic."""
        try:
            return [f"  {self.mechanism.guarantee()}" + (" a record" if self.adds is None else "")]
        except NotImplementedError:
            return []


@dataclass(frozen=True)
class Explanation:
    """What :func:`explain` found; print it.

    Attributes
    ----------
    records : dict
        Number of records of every record variable.
    releases : list of ExplainedRelease
        Releases of sums over records, and of every record by itself.
    other_terms : dict
        For every record variable, other parts of the model that depend on it.
    steps : dict
        The step that ``pm.sample`` picks for every variable.
    updates : dict
        For every parameter that :class:`~pymc_dp.RecordGibbs` takes, how it is moved given the
        records.
    interweaving : dict
        For the records of blocks that move together, the parameters that move along with them (see
        :class:`~pymc_dp.RecordGibbs`), or why none do.
    problems : list of str
        Why a step refuses what ``pm.sample`` gives to it.
    regressions : dict
        What latent regression statistics, which stand for the records, hold, and conjugate priors.
    latent : dict
        Releases of such statistics, of several holders', and of what has no records: their noise,
        and of what.
    cells : dict
        Tables of counts that :class:`~pymc_dp.CountGibbs` samples, and how it does.
    integrated : list of str
        What :func:`~pymc_dp.marginalize` has integrated out, how, and how far off that can be.
    counted : list of str
        Records in place of which :func:`~pymc_dp.sample` samples their table of counts.
    by_sample : list of str
        What :func:`~pymc_dp.sample` integrates out by itself, so that `steps` are those of
        ``pm.sample`` alone.
    """

    records: dict[str, int]
    releases: list[ExplainedRelease]
    other_terms: dict[str, list[str]]
    steps: dict[str, str]
    updates: dict[str, str] = field(default_factory=dict)
    interweaving: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    regressions: dict[str, list[str]] = field(default_factory=dict)
    latent: dict[str, str] = field(default_factory=dict)
    cells: dict[str, str] = field(default_factory=dict)
    integrated: list[str] = field(default_factory=list)
    counted: list[str] = field(default_factory=list)
    by_sample: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        lines = ["Records"]
        lines += [f"  {name}: n = {n}" for name, n in self.records.items()] or ["  none"]
        for name, terms in self.other_terms.items():
            lines.append(f"  {name} is also used by {', '.join(terms)}")
        lines += ["Counts", *(f"  {n}: {text}" for n, text in self.cells.items())] * bool(
            self.cells
        )
        lines += ["Integrated out", *(f"  {t}" for t in self.integrated)] if self.integrated else []
        lines += ["Regression statistics"] if self.regressions else []
        for name, (first, *more) in self.regressions.items():
            lines += [f"  {name}: {first}", *(f"    {line}" for line in more)]
        lines += ["Releases"]
        for release in self.releases:
            lines += [f"  {line}" for line in str(release).splitlines()]
        lines += [f"  {name}: {text}" for name, text in self.latent.items()]
        lines += ["Steps"]
        for name, step in self.steps.items():
            how = f", {self.updates[name]}" if name in self.updates else ""
            lines.append(f"  {name}: {step}{how}")
        lines += [f"  {names} {text}" for names, text in self.interweaving.items()]
        lines += ["Counted by pmdp.sample", *(f"  {t}" for t in self.counted)] * bool(self.counted)
        if self.by_sample:
            lines += ["Integrated out by pmdp.sample", *(f"  {t}" for t in self.by_sample)]
        lines += ["Problems", *(f"  {text}" for text in self.problems)] if self.problems else []
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Write the same for notebooks: a heading a section, names in bold."""
        parts = []
        for line in repr(self).splitlines():
            text, depth = escape(line.strip()), len(line) - len(line.lstrip())
            name, colon, rest = text.partition(": ")
            if depth == 2 and colon:
                text = f"<b>{name}</b>: {rest}"
            text = f"<b>{text}</b>" if depth == 0 else text
            parts.append(f'<div style="padding-left: {depth / 2}em">{text}</div>')
        return f"<div>{''.join(parts)}</div>"


def explain(model: pm.Model | None = None) -> Explanation:
    """Tell which variables are records, what one record adds, and which step samples what.

    Parameters
    ----------
    model : Model, optional
        Defaults to the model in context.

    Returns
    -------
    Explanation
        With a readable text as its representation.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dp as pmdp
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 0, 10)
    ...     x = pm.Normal("x", mu, 1, shape=100)
    ...     total = pmdp.clamp(x, -5, 5).sum()
    ...     released = pmdp.Privatized("released", total, pmdp.Laplace(scale=10), observed=103.0)
    >>> pmdp.explain(model)
    Records
      x: n = 100
    Releases
      released: Laplace(scale=10.)
        sums over x; one record adds clip(x, -5, 5)
        sensitivity to replacing one record: l1 10, l2 10; so epsilon 1
        sensitivity to adding or removing one record: l1 5, l2 5; so epsilon 0.5
    Steps
      mu: RecordGibbs, drawn from its conditional (normal)
      x: RecordGibbs
      x interweaved with mu
    """
    model = pm.modelcontext(model)
    step_of, plans, problems = _planned(model)
    blocks: list[RecordBlock] = plans.get(RecordGibbs, [])
    table: CountTable | None = plans.get(CountGibbs)
    counts = [rv for rv, step in step_of.items() if step is CountGibbs]
    records = [rv for rv in record_variables(model) if rv not in counts]
    taken = [rv for rv, step in step_of.items() if step is RecordGibbs]
    own = [rv for rv in taken if blocks and rv not in records]
    small = all(length_of(rv) <= MOST_DESCRIBED for rv in records)
    return Explanation(
        records={str(rv.name): length_of(rv) for rv in records},
        releases=_explained_releases(model, blocks, counts),
        other_terms={block.names: list(block.factors) for block in blocks if block.factors},
        steps={str(rv.name): step.__name__ for rv, step in step_of.items()},
        updates=describe_updates(model, own if small else []),
        interweaving={
            ", ".join(str(rv.name) for block in group for rv in block.records): _interweaving(
                model, group
            )
            for group in (together(model, blocks) if small else [])
        },
        problems=problems,
        regressions={str(s.name): describe_statistics(model, s) for s in latent_statistics(model)},
        latent={
            release.name: text for release in releases(model) if (text := _latent(release, model))
        }
        | ({} if table is None else describe_releases(table)),
        cells={} if table is None else describe_cells(table),
        integrated=_integrated(model),
        counted=[str(told_of(model, block)) for block in counted_blocks(model)],
        by_sample=told_of_holders(model),
    )


def _integrated(model: pm.Model) -> list[str]:
    """Say what was integrated out, and how far off the normal law is near the posterior's mode."""
    found = list(dict.fromkeys(map(str, integrated_out(model).values())))
    if not found:
        return []
    added = auxiliary_variables(model)
    names = [str(rv.name) for rv in model.free_RVs if rv not in added]
    smooth = all(rv.dtype in continuous_types for rv in model.free_RVs)
    error = normal_error(model, laplace_draws(model), names) if smooth else None
    more = [f"{', '.join(str(rv.name) for rv in added)} added for it"] if added else []
    return [*found, *more, *([] if error is None else [str(error)])]


def _planned(model: pm.Model) -> tuple[dict[TensorVariable, type], dict[type, Any], list[str]]:
    """Which step ``pm.sample`` gives each variable to, what these read, and what they refuse.

    By the same assignment and the same reading of the model as when it samples.
    """
    _, chosen = assign_step_methods(model)
    step_of = {
        model.values_to_rvs[value]: step for step, found in chosen.items() for value in found
    }
    plans: dict[type, Any] = {}
    problems = []
    for step, found in chosen.items():
        if issubclass(step, RecordGibbs | GibbsSS | NormalX | CountGibbs):
            try:
                plans[step] = step.plan(found, model)
            except (ValueError, NotImplementedError) as err:
                problems.append(str(err))
    return {rv: step_of[rv] for rv in model.free_RVs}, plans, problems


def _explained_releases(
    model: pm.Model, blocks: list[RecordBlock], counts: list[TensorVariable]
) -> list[ExplainedRelease]:
    """Releases of sums over records, and of every record by itself."""
    found = {
        release.name: _explained(release, contribution, block.records, model)
        for block in blocks
        for release, contribution in zip(block.releases, block.contributions, strict=True)
    }
    for release in releases(model):
        reached, form = form_of_statistic(release.statistic, model)
        if release.name in found or set(reached) & set(counts):
            continue
        if isinstance(form, Additive):  # of records that are refused for another reason
            found[release.name] = _explained(release, form.contributions, reached, model)
        elif isinstance(form, PerRecord) and release.mechanism.elementwise:
            names = [str(rv.name) for rv in reached]
            found[release.name] = ExplainedRelease(
                release.name, release.mechanism, names, None, *_LOCAL
            )
    return list(found.values())


def _latent(release: Release, model: pm.Model) -> str:
    """Say of what a release is that has no records to sum over; empty for others."""
    kinds = (RegressionStatisticsRV, GramRV, CrossProductRV)
    reached = direct_inputs([release.statistic], model.basic_RVs)
    names = sorted(str(rv.name) for rv in reached if isinstance(rv.owner.op, kinds))
    if names:
        return f"{release.mechanism!r} on entries of {', '.join(names)}"
    if form_of_statistic(release.statistic, model)[0]:
        return ""
    names = sorted(str(rv.name) for rv in reached)
    return f"{release.mechanism!r} on a function of {', '.join(names)}, an ordinary likelihood"


#: sensitivities of a release of every record by itself
_LOCAL = ("every record is released by itself", "every record is released by itself")


def _explained(
    release: Release,
    contribution: TensorVariable,
    records: list[TensorVariable],
    model: pm.Model,
) -> ExplainedRelease:
    check_declared(release.name, release.mechanism, contribution, records)
    noise = None if release.mechanism.norm is None else release.mechanism.noise
    replace, add_remove = derive_sensitivities(contribution, records, noise=noise)
    return ExplainedRelease(
        name=release.name,
        mechanism=release.mechanism,
        records=[str(rv.name) for rv in direct_inputs([contribution], records)],
        adds=_text(contribution, set(model.basic_RVs)),
        sensitivity=replace,
        add_remove=add_remove,
    )


def _interweaving(model: pm.Model, group: list[RecordBlock]) -> str:
    plan = interweaving_plan(model, *group)
    held = held_discrete(model, plan, group)
    more = f"; {advice_on_held(held)}" if held else ""
    if isinstance(plan, str):
        return f"not interweaved: {plan}{more}"
    return f"interweaved with {', '.join(str(parameter.name) for parameter in plan[1])}{more}"


_INFIX: dict[type, str] = {
    ps.Add: "+", ps.Sub: "-", ps.Mul: "*", ps.TrueDiv: "/", ps.Pow: "**",
    ps.EQ: "==", ps.LT: "<", ps.GT: ">", ps.LE: "<=", ps.GE: ">=",
}  # fmt: skip
_SILENT = (Alloc, DimShuffle, Reshape, SpecifyShape)


def _text(var: Any, named: set[Any], most: int = 100) -> str:
    """Write an expression for people: names for variables, no bookkeeping of axes and types."""
    text = _expression(var, named)
    return text if len(text) <= most else text[: most - 3] + "..."


def _expression(var: Any, named: set[Any]) -> str:
    if var in named or (var.owner is None and not isinstance(var, Constant)):
        return str(var.name)
    if isinstance(var, Constant):
        value = np.asarray(var.data)
        return f"{value.item():g}" if value.size == 1 else f"<{'x'.join(map(str, value.shape))}>"
    op = var.owner.op
    if isinstance(op, _SILENT):
        return _expression(var.owner.inputs[0], named)
    kind = type(op.scalar_op if isinstance(op, Elemwise) else op)
    if kind is ps.Cast:
        return _expression(var.owner.inputs[0], named)
    parts = [_expression(inp, named) for inp in var.owner.inputs]
    if kind in _INFIX:
        return f"({f' {_INFIX[kind]} '.join(parts)})"
    return f"{kind.__name__.lower()}({', '.join(parts)})"
