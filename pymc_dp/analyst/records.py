"""The confidential records of a model: which variables they are and what depends on them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pymc as pm
from pymc.vartypes import continuous_types
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.scalar import basic as ps
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.variable import TensorVariable

from pymc_dp.analyst.factors import per_record_factor, variable_factor
from pymc_dp.analyst.release import PrivatizedRV, Release, by_name, releases
from pymc_dp.graph.additivity import Additive, NotAdditiveError, PerRecord, direct_inputs, form_of
from pymc_dp.graph.intervals import ONCE
from pymc_dp.graph.support import has_whole_support
from pymc_dp.mechanisms import Gaussian, Mechanism

__all__ = [
    "RecordBlock",
    "form_of_statistic",
    "is_parent",
    "is_record",
    "record_blocks",
    "record_variables",
]

#: operations on numbers that are flat in parts or jump
_KINKS = (
    ps.Clip, ps.ScalarMaximum, ps.ScalarMinimum, ps.Switch, ps.Sign, ps.Floor, ps.Ceil, ps.Trunc,
    ps.RoundHalfToEven, ps.RoundHalfAwayFromZero, ps.LogicalComparison,
)  # fmt: skip


@dataclass(frozen=True)
class RecordBlock:
    """Record variables that are proposed together, and all that the model says about them.

    Attributes
    ----------
    records : list of TensorVariable
        Record variables with a common first axis, parents before children.
    releases : list of Release
        Releases of sums over these records.
    totals : list of TensorVariable
        For every release the sums through which the records enter its density: the statistic, or
        what the mechanism computes of it.
    contributions : list of TensorVariable
        What each record adds to these totals, of shape (n, *total.shape).
    factors : dict
        Other parts of the model's log-density that depend on the records, by name: one number a
        record, of shape (n,).
    """

    records: list[TensorVariable]
    releases: list[Release]
    totals: list[TensorVariable]
    contributions: list[TensorVariable]
    factors: dict[str, TensorVariable]

    @property
    def names(self) -> str:
        """The record variables' names, for messages."""
        return ", ".join(repr(rv.name) for rv in self.records)


def batch_ndim(rv: TensorVariable) -> int:
    """Count the axes along which a random variable's entries are independent given its parents."""
    return rv.type.ndim - rv.owner.op.ndim_supp


def candidates(statistic: TensorVariable, model: pm.Model) -> list[TensorVariable]:
    """Latent variables that a statistic uses and that have a first axis to hold records."""
    return [
        rv
        for rv in direct_inputs([statistic], model.basic_RVs)
        if rv in model.free_RVs and batch_ndim(rv) > 0 and not isinstance(rv.owner.op, PrivatizedRV)
    ]


def form_of_statistic(
    statistic: TensorVariable, model: pm.Model
) -> tuple[list[TensorVariable], Additive | PerRecord | None]:
    """Latent variables that a statistic uses, and its form as a function of them.

    Returns
    -------
    records : list of TensorVariable
        Variables that have a first axis to hold records.
    form : Additive, PerRecord or None
        None where it is neither a sum over that axis nor keeps it.
    """
    reached = candidates(statistic, model)
    if not reached or _lengths_differ(reached):
        return reached, None
    try:
        return reached, form_of(statistic, reached, model.basic_RVs)
    except NotAdditiveError:
        return reached, None


def sampled_as_records(
    rv: TensorVariable,
    statistic: TensorVariable,
    form: Additive | PerRecord | None,
    mechanism: Mechanism,
    model: pm.Model,
) -> bool:
    """Whether a variable that a release uses is for RecordGibbs to sample.

    A statistic that keeps the first axis (noise added to every record, or to a vector of
    parameters) may be an ordinary likelihood, left to PyMC's own steps: :func:`moves_by_record`
    tells. What fails to be a sum is for RecordGibbs too, which then explains what breaks it.
    """
    local = isinstance(form, PerRecord) and mechanism.elementwise
    return not local or moves_by_record(rv, statistic, mechanism, model)


def moves_by_record(
    rv: TensorVariable, statistic: TensorVariable, mechanism: Mechanism, model: pm.Model
) -> bool:
    """Whether records with noise on each are better offered values one by one than moved by NUTS.

    So are counts and categories; clamped records, whose density is flat in parts; and, where the
    noise has a kink or jumps, records of a population, the parameters of which are latent.
    Gaussian noise on a smooth function is left to NUTS.
    """
    if rv.dtype not in continuous_types or _has_kinks(statistic, rv, model):
        return True
    population = direct_inputs(rv.owner.inputs, model.free_RVs)
    return bool(population) and not isinstance(mechanism, Gaussian)


def _has_kinks(statistic: TensorVariable, rv: TensorVariable, model: pm.Model) -> bool:
    """Whether a statistic clamps, compares or rounds something that a variable enters."""
    reached: set[Any] = {rv}
    for node in io_toposort(model.basic_RVs, [statistic]):
        if any(var in reached for var in node.inputs):
            reached.update(node.outputs)
            if isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, _KINKS):
                return True
    return False


def is_record(model: pm.Model, rv: TensorVariable) -> bool:
    """Whether a model has a release of sums over this latent variable's first axis.

    Read from the graph, as all that follows: what PyMC makes of a model (``pm.do``, ``pm.observe``,
    copies) has its graph, and nothing that was noted beside it.
    """
    for release in releases(model):
        if rv in direct_inputs([release.statistic], model.basic_RVs):
            reached, form = form_of_statistic(release.statistic, model)
            rule = (release.statistic, form, release.mechanism, model)
            if rv in reached and sampled_as_records(rv, *rule):
                return True
    return False


def is_parent(model: pm.Model, rv: TensorVariable) -> bool:
    """Whether the distribution of records uses this variable, which is not one of them."""
    children = [
        child
        for child in model.free_RVs
        if rv in direct_inputs(child.owner.inputs, model.basic_RVs)
    ]
    return any(is_record(model, child) for child in children) and not is_record(model, rv)


def record_variables(model: pm.Model) -> list[TensorVariable]:
    """Latent record variables of a model, in the order of declaration."""
    return [rv for rv in model.free_RVs if is_record(model, rv)]


def record_blocks(model: pm.Model, records: Sequence[TensorVariable]) -> list[RecordBlock]:
    """Sort record variables into blocks that must move together.

    Variables share a block when a release uses both, or when one is a parent of the other and has
    as many records. A parent table of another length (groups of the records) is a block of its own.
    """
    order = parents_first(rv for rv in model.free_RVs if rv in records)
    groups = [{rv} for rv in order]
    linked = [
        set(direct_inputs([release.statistic], model.basic_RVs)) & set(order)
        for release in releases(model)
    ]
    for rv in order:
        parents = set(direct_inputs(rv.owner.inputs, model.basic_RVs)) & set(order)
        linked.append({rv} | {p for p in parents if length_of(p) == length_of(rv)})
    for link in linked:
        touched = [group for group in groups if group & link]
        if len(touched) > 1:
            groups = [group for group in groups if group not in touched] + [set().union(*touched)]
    members = [[rv for rv in order if rv in group] for group in groups]
    return [_block(model, found) for found in sorted(members, key=lambda m: order.index(m[0]))]


def parents_first(records: Iterable[TensorVariable]) -> list[TensorVariable]:
    """Sort variables so that each comes after its parents, and by name otherwise."""
    named = by_name(records)
    return sorted(named, key=lambda rv: len(set(ancestors([rv])) & set(named)))


def _block(model: pm.Model, records: list[TensorVariable]) -> RecordBlock:
    names = ", ".join(repr(rv.name) for rv in records)
    if _lengths_differ(records):
        lengths = ", ".join(f"{rv.name!r} has {length_of(rv)}" for rv in records)
        separate = ", ".join(f"pmdp.RecordGibbs([{rv.name}])" for rv in records)
        raise ValueError(
            f"Record axes of different lengths in one block: {lengths}. Declare variables of the "
            f"same records with the same first axis; sample different tables apart, with "
            f"step=[{separate}]."
        )
    others = by_name(rv for rv in model.basic_RVs if rv not in records)
    _check_independent_rows(records, others)
    _check_transforms(model, records)

    found = RecordBlock(records, [], [], [], {})
    for release in by_name(releases(model)):
        if not set(direct_inputs([release.statistic], model.basic_RVs)) & set(records):
            continue
        totals = release.statistic
        form = _form_of(totals, release, records, others)
        if not isinstance(form, Additive) and not release.mechanism.elementwise:
            value: Any = model.rvs_to_values[release.rv]
            totals = release.mechanism.totals(value, totals)
            form = _form_of(totals, release, records, others)
            if not isinstance(form, Additive):
                raise NotAdditiveError(
                    f"The statistic of {release.name!r} keeps the records apart, and "
                    f"{release.mechanism!r} takes sums over them: sum over the first axis."
                )
        if isinstance(form, Additive):
            found.releases.append(release)
            found.totals.append(totals)
            found.contributions.append(form.contributions)
        else:
            found.factors[release.name] = variable_factor(model, release.rv, records)
    for rv in others:
        uses = set(direct_inputs(rv.owner.inputs, model.basic_RVs)) & set(records)
        if uses and not isinstance(rv.owner.op, PrivatizedRV):
            found.factors[str(rv.name)] = variable_factor(model, rv, records)
    for potential in by_name(model.potentials):
        if set(direct_inputs([potential], model.basic_RVs)) & set(records):
            name = str(potential.name)
            found.factors[name] = per_record_factor(name, potential, records, others)
    if not found.releases and not found.factors:
        raise ValueError(
            f"No release reaches {names}. Declare one with pmdp.Privatized(name, statistic, "
            f"mechanism, observed=...), its statistic a sum over the first axis of {names}."
        )
    return found


def length_of(rv: TensorVariable) -> int:
    """Length of a variable's first axis."""
    static = rv.type.shape[0]
    return int(static if static is not None else rv.shape[0].eval(mode=ONCE))


def _lengths_differ(records: Sequence[TensorVariable]) -> bool:
    return len({length_of(rv) for rv in records}) > 1


def _check_independent_rows(records: list[TensorVariable], others: list[TensorVariable]) -> None:
    """Insist that given the parameters one record says nothing about another."""
    for rv in records:
        if batch_ndim(rv) == 0:
            raise ValueError(
                f"{rv.name!r} is one multivariate draw, not a table of records: its rows depend on "
                "each other. Give it one record a row, e.g. shape=(n, d)."
            )
        parents = [other for other in records if other is not rv and other in ancestors([rv])]
        if not parents:
            continue
        try:
            form = form_of(rv, parents, others)
        except NotAdditiveError as err:
            raise NotAdditiveError(
                f"The distribution of {rv.name!r} mixes records of "
                f"{', '.join(repr(p.name) for p in parents)}: {err}. Let row i of {rv.name!r} "
                "depend on row i only."
            ) from None
        if form is not None and form != PerRecord(0):
            raise NotAdditiveError(
                f"Row i of {rv.name!r} must depend on row i of its parents only."
            )


def _check_transforms(model: pm.Model, records: list[TensorVariable]) -> None:
    """Refuse records that may not have every value which their distribution draws."""
    for rv in records:
        if not has_whole_support(model, rv):
            raise ValueError(
                f"{rv.name!r} has a transform of your own, which may leave out values that its "
                f"distribution proposes. Drop transform= where {rv.name!r} is declared; where "
                f'records are bounded write pm.Truncated("{rv.name}", distribution, lower, upper).'
            )


def _form_of(
    totals: TensorVariable,
    release: Release,
    records: list[TensorVariable],
    others: list[TensorVariable],
) -> Additive | PerRecord | None:
    try:
        return form_of(totals, records, others)
    except NotAdditiveError as err:
        raise NotAdditiveError(
            f"The statistic of {release.name!r} is not a sum over records: {err}. "
            f"{release.mechanism.advice_on_sums}"
        ) from None
