"""Log-likelihood of each record, as a graph that does not depend on what the records are.

PyMC simplifies a density while it writes it, and PyTensor's rules look at constants: a covariate
that is zero for everyone takes its coefficient out of the graph, one that is one for everyone takes
a product out, rows with a single one each make a product a lookup. One record would then decide
which parameters are in the likelihood, and how it is computed of all records. Here the arrays of
records are inputs without values for as long as graphs are simplified.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.censored import CensoredRV
from pytensor.graph.basic import Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors

from pymc_dp.compat import transformed_conditional_logp
from pymc_dp.curator.confidential import array_leaves, count_records
from pymc_dp.graph.rewrites import without_checks, written_out
from pymc_dp.types import Variable

__all__ = ["per_record_logp"]


def per_record_logp(model: pm.Model) -> Variable:
    """Write the log-likelihood of each record, of shape (n,).

    Parameters
    ----------
    model : pymc.Model
        Observed variables share their first axis, the records.
    """
    total: Any = 0.0
    unseen = _without_values(model)
    _refuse_bounds(model, unseen)
    for rv, logp in zip(model.observed_RVs, _log_densities(model, unseen), strict=True):
        if "Minibatch" in type(rv.owner.op).__name__:
            raise ValueError(
                f"{rv.name!r} is a minibatch: pass all records as observed and write batch_size= "
                "in the step."
            )
        if logp.type.ndim < 1:
            raise ValueError(
                f"{rv.name!r} has one joint density over all its records, so the contribution of a "
                "single record cannot be bounded: write a distribution that is independent over "
                "the first axis, such as pm.MvNormal with one row for each record."
            )
        total = total + logp.sum(axis=tuple(range(1, logp.type.ndim)))
    # derivatives are those of what is proven below, and not what a nested graph says they are
    written = pt.cast(written_out(without_checks(total)), "float64")
    [found] = _swapped([written], {stand_in: leaf for leaf, stand_in in unseen.items()})
    return found


def _without_values(model: pm.Model) -> dict[Variable, Variable]:
    """Make inputs that stand in for constants with a row for each record.

    One for all constants that are the same array in memory, as a covariate that is written twice;
    not for all that are equal, which depends on the records.
    """
    n_records = count_records(model)
    shared: dict[Any, Variable] = {}
    values = [model.rvs_to_values[rv] for rv in model.observed_RVs]
    unseen: dict[Variable, Variable] = {}
    for leaf in array_leaves([*model.observed_RVs, *values]):
        if isinstance(leaf, Constant) and n_records in leaf.data.shape:
            array = leaf.data
            place = (array.__array_interface__["data"], array.shape, array.strides, leaf.type)
            unseen[leaf] = shared.setdefault(place, leaf.type(name=leaf.name))
    return unseen


def _refuse_bounds(model: pm.Model, unseen: dict[Variable, Variable]) -> None:
    """Refuse constant bounds of censored records: PyMC leaves those out that are all infinite."""
    for rv in model.observed_RVs:
        for var in ancestors([rv]):
            if var.owner is None or not isinstance(var.owner.op, CensoredRV):
                continue
            if not unseen.keys().isdisjoint(var.owner.inputs[1:]):
                raise ValueError(
                    f"{rv.name!r} is censored at bounds with a row for each record, and how it is "
                    "computed would tell whether all of them are infinite: write them as "
                    "pm.Data('lower', ...) and pm.Data('upper', ...)."
                )


def _log_densities(model: pm.Model, unseen: dict[Variable, Variable]) -> list[Any]:
    """Log-densities of the observed variables, as ``model.logp`` writes them."""
    rvs = model.basic_RVs
    values = _swapped([model.rvs_to_values[rv] for rv in rvs], unseen)
    swapped = _swapped(rvs, unseen)
    of = dict(zip(rvs, swapped, strict=True))
    found: list[Any] = transformed_conditional_logp(
        rvs=[of[rv] for rv in model.observed_RVs],
        rvs_to_values=dict(zip(swapped, values, strict=True)),
        rvs_to_transforms={of[rv]: model.rvs_to_transforms[rv] for rv in rvs},
    )
    return found


def _swapped(outputs: Sequence[Any], swap: dict[Variable, Variable]) -> list[Any]:
    """Graphs with other leaves of the same types; what does not depend on these stays as it is."""
    made = dict(swap)
    for node in FunctionGraph(outputs=list(outputs), clone=False).toposort():
        inputs = [made.get(variable, variable) for variable in node.inputs]
        if any(new is not old for new, old in zip(inputs, node.inputs, strict=True)):
            new = node.clone_with_new_inputs(inputs)
            made.update(zip(node.outputs, new.outputs, strict=True))
            for old_output, new_output in zip(node.outputs, new.outputs, strict=True):
                new_output.name = old_output.name
    return [made.get(output, output) for output in outputs]
