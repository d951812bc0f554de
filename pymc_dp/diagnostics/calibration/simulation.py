"""Which variables are ranked, which are simulated, and a copy of the model that takes any values.

In the copy every observed value is a shared variable: compiled code takes it as an input, and one
compilation serves all replicates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.tensor.variable import TensorVariable

from pymc_dp.accounting.errors import PrivacyError
from pymc_dp.analyst.count_gibbs.cells import cell_variables, shape_of
from pymc_dp.analyst.count_gibbs.tables import RecordCountsRV
from pymc_dp.analyst.marginal.rebuild import without_initial_values
from pymc_dp.analyst.marginal.strategy import AuxiliaryRV, MarginalRV, auxiliary_variables
from pymc_dp.analyst.records import record_variables
from pymc_dp.analyst.regression.distribution import RegressionStatisticsRV
from pymc_dp.analyst.regression.normal_x.holder_model import is_statistic
from pymc_dp.analyst.release import releases
from pymc_dp.curator.curated import uses_records
from pymc_dp.graph.additivity import direct_inputs
from pymc_dp.graph.intervals import ONCE

__all__ = [
    "Simulated",
    "check_model",
    "confidential",
    "first_values",
    "fixed_parameters",
    "ranked_names",
    "records_or_counts",
    "simulate",
    "taking_inputs",
]


def check_model(model: pm.Model) -> None:
    """Refuse models of which a simulation would not be what they say, or would read records."""
    if uses_records(model):
        raise PrivacyError(
            "A curator's step was made for this model, or for another one with the same observed "
            "records or covariates, and these are confidential: "
            "fits that replace them are no check of a private sampler. Try the step on simulated "
            "records with simulation=True, or take the analyst's model of its releases."
        )
    found = released_variables(model)
    if not found:
        raise ValueError(
            "The model has no release: declare one with pymc_dp.Privatized. Ordinary models are "
            "calibrated by simuk."
        )
    free = [str(rv.name) for rv in found if rv in model.free_RVs]
    if free and len(free) < len(found):
        raise ValueError(
            f"The releases {', '.join(map(repr, free))} have no observed value, others have one. "
            "Give observed= to all of them, any value will do, or leave these out of the model."
        )
    if model.potentials:
        names = ", ".join(repr(str(var.name)) for var in model.potentials)
        raise ValueError(
            f"The potential {names} changes the prior and cannot be drawn from: write it as a "
            "distribution, or leave it out."
        )


def released_variables(model: pm.Model) -> list[TensorVariable]:
    """Releases, also those of which the records were integrated out."""
    declared = [release.rv for release in releases(model)]
    alone = [
        rv
        for rv in model.basic_RVs
        if isinstance(rv.owner.op, MarginalRV) and not isinstance(rv.owner.op, AuxiliaryRV)
    ]
    return [*declared, *alone]


def simulated_variables(model: pm.Model) -> list[TensorVariable]:
    """Variables that take simulated values: observed ones, and releases that wait for a value."""
    waiting = [rv for rv in released_variables(model) if rv in model.free_RVs]
    return [*model.observed_RVs, *waiting]


def records_or_counts(model: pm.Model) -> list[TensorVariable]:
    """Latent records and counts of records: what someone might have seen."""
    return [*record_variables(model), *cell_variables(model)]


def confidential(model: pm.Model) -> list[TensorVariable]:
    """Latent variables between the parameters and the releases: records, counts, statistics."""
    known = [*records_or_counts(model), *auxiliary_variables(model)]
    kinds = (RecordCountsRV, RegressionStatisticsRV)
    others = [rv for rv in model.free_RVs if isinstance(rv.owner.op, kinds) or is_statistic(rv)]
    return list(dict.fromkeys([*known, *others]))


def parameters(model: pm.Model) -> list[TensorVariable]:
    """Latent variables that are neither confidential nor simulated."""
    others = {*confidential(model), *simulated_variables(model)}
    return [rv for rv in model.free_RVs if rv not in others]


def ranked_names(model: pm.Model, var_names: Sequence[str] | None) -> list[str]:
    """Names of the parameters to rank, or of what was asked for."""
    hidden = confidential(model)
    if var_names is None:
        names = [str(rv.name) for rv in parameters(model)]
        if not names:
            raise ValueError(
                "The model has no parameters: records, counts and releases are not ranked."
            )
        return names
    for name in var_names:
        if name not in model.named_vars:
            raise ValueError(f"var_names: the model has no variable {name!r}.")
        variable = model[name]
        if variable in hidden or direct_inputs([variable], hidden):
            raise ValueError(
                f"{name!r} is a record or computed of records, of which there may be many: leave "
                "it out of var_names, and rank parameters."
            )
    return list(var_names)


@dataclass(frozen=True)
class Simulated:
    """Draws from a model, one a replicate along the first axis.

    Attributes
    ----------
    truths : dict
        Parameters.
    starts : dict
        The same as samplers see them, by the names of value variables.
    released : dict
        What they made.
    """

    truths: dict[str, Any]
    starts: dict[str, Any]
    released: dict[str, Any]


def simulate(
    model: pm.Model,
    names: Sequence[str],
    replicates: int,
    seed: int,
    *,
    truth: Mapping[str, Any] | None = None,
    also: Sequence[TensorVariable] = (),
) -> Simulated:
    """Draw parameters from the prior, records from the model and releases from the mechanisms.

    Parameters
    ----------
    model : Model
        To draw from.
    names : sequence of str
        Parameters, or Deterministics of these, whose values are wanted.
    replicates, seed : int
        How many draws, and from where.
    truth : mapping, optional
        Values of parameters that are not drawn (see :func:`fixed_parameters`).
    also : sequence of TensorVariable
        Latent variables that fits are to know, beside the releases.
    """
    free = [model[name] for name in names if model[name] in model.free_RVs]
    values = {str(model.rvs_to_values[rv].name): _value(model, rv) for rv in free}
    observed = [*simulated_variables(model), *also]
    wanted = [*(model[name] for name in names), *values.values(), *observed]
    if truth:
        wanted = clone_replace(wanted, fixed_parameters(model, truth))
    # some hundred evaluations are not worth compiling
    drawn = [np.asarray(a) for a in pm.draw(wanted, replicates, random_seed=seed, mode=ONCE)]
    if replicates == 1:  # which has no axis of its own
        drawn = [a[None] for a in drawn]
    first, second = len(names), len(names) + len(values)
    return Simulated(
        dict(zip(names, drawn[:first], strict=True)),
        dict(zip(values, drawn[first:second], strict=True)),
        dict(zip([str(rv.name) for rv in observed], drawn[second:], strict=True)),
    )


def fixed_parameters(model: pm.Model, truth: Mapping[str, Any]) -> dict[Any, Any]:
    """Check values that parameters are to have, and make constants of them."""
    known = parameters(model)
    names = [str(rv.name) for rv in known]
    fixed: dict[Any, Any] = {}
    for name, value in truth.items():
        if name not in names:
            raise ValueError(
                f"truth: {name!r} is not a parameter of the model, which has {', '.join(names)}."
            )
        rv = model[name]
        drawn = [str(p.name) for p in direct_inputs(rv.owner.inputs, known) if p.name not in truth]
        if drawn:
            raise ValueError(
                f"truth: {name!r} is drawn from {', '.join(map(repr, drawn))}: give values to "
                "these too, or to none of them."
            )
        array = np.asarray(value, dtype=rv.dtype)
        shape = shape_of(rv)
        if np.ndim(array) and array.shape != shape:
            raise ValueError(f"truth: {name!r} has the shape {shape}, not {array.shape}.")
        fixed[rv] = rv.type.filter_variable(pt.constant(np.broadcast_to(array, shape).copy()))
    for rv, value in fixed.items():
        density = clone_replace(pm.logp(rv, value, warn_rvs=False), fixed, rebuild_strict=False)
        if not np.all(np.isfinite(density.eval(mode=ONCE))):
            raise ValueError(f"truth: {rv.name!r} cannot be {truth[rv.name]!r} by its own prior.")
    return fixed


def _value(model: pm.Model, rv: TensorVariable) -> Variable:
    transform = model.rvs_to_transforms.get(rv)
    return rv if transform is None else transform.forward(rv, *rv.owner.inputs)


def first_values(model: pm.Model, released: dict[str, Any]) -> dict[str, Any]:
    """Take values to compile with: the model's own, so that they do not change from run to run."""
    first = {}
    for name, values in released.items():
        value = model.rvs_to_values[model[name]]
        known = model[name] in model.observed_RVs
        found = np.asarray(value.eval(mode=ONCE) if known else values[0])
        first[name] = found.tolist()
    return first


def taking_inputs(model: pm.Model, first: dict[str, Any]) -> pm.Model:
    """Copy a model, with shared variables for observed values; `first` has the first ones."""
    observed = {}
    for name, value in first.items():
        value = np.asarray(value, dtype=model[name].dtype)
        observed[name] = pytensor.shared(value, shape=value.shape)
    with without_initial_values(model) as initial_values:
        taking = pm.observe(model, observed)
    for rv, start in initial_values.items():
        if start is not None and taking[str(rv.name)] in taking.free_RVs:
            taking.set_initval(taking[str(rv.name)], start)
    return taking
