"""Parts of a model's log-density that depend on records, split into one number a record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.traversal import io_toposort
from pytensor.tensor.basic import MakeVector, ScalarFromTensor
from pytensor.tensor.math import All
from pytensor.tensor.variable import TensorVariable

from pymc_dp.compat import CheckParameterValue
from pymc_dp.graph.additivity import Additive, NotAdditiveError, form_of

__all__ = ["own_log_density", "per_record_factor", "variable_factor"]


def variable_factor(
    model: pm.Model, rv: TensorVariable, records: Sequence[TensorVariable]
) -> TensorVariable:
    """Log-density of a variable whose distribution depends on records, one number a record.

    It is that of the variable's value as steps see it: where the value is transformed, the
    Jacobian belongs to it, for it may depend on the records too.
    """
    value: Any = model.rvs_to_values[rv]
    transform = model.rvs_to_transforms.get(rv)
    if transform is None:
        logp = pm.logp(rv, value, warn_rvs=False)
    else:
        natural = transform.backward(value, *rv.owner.inputs)
        jacobian = transform.log_jac_det(value, *rv.owner.inputs)
        logp = pm.logp(rv, natural, warn_rvs=False).sum() + jacobian.sum()
    others = [other for other in model.basic_RVs if other not in records]
    return per_record_factor(str(rv.name), logp, records, others)


def per_record_factor(
    name: str,
    logp: TensorVariable,
    records: Sequence[TensorVariable],
    fixed: Iterable[TensorVariable],
) -> TensorVariable:
    """Split the sum of a log-density over records, or say by `name` why it cannot be."""
    stops = [*records, *fixed]
    try:
        form = form_of(_checks_per_record(pt.sum(logp), stops), records, stops)
    except NotAdditiveError as err:
        names = ", ".join(repr(rv.name) for rv in records)
        raise NotAdditiveError(
            f"The log-density of {name!r} depends on the records {names} and is not a sum over "
            f"them: {err}. Let its rows depend on one record each."
        ) from None
    assert isinstance(form, Additive)
    return form.contributions


def own_log_density(
    model: pm.Model, records: Sequence[TensorVariable], terms: Iterable[TensorVariable]
) -> TensorVariable:
    """Log-density of each record given the parameters, `terms` included."""
    others = [rv for rv in model.basic_RVs if rv not in records]
    densities = [
        per_record_factor(str(rv.name), pm.logp(rv, rv, warn_rvs=False), records, others)
        for rv in records
    ]
    parts = [part.astype("float64") for part in [*densities, *terms]]
    return sum(parts[1:], parts[0])


def _checks_per_record(output: Any, stops: Sequence[Any]) -> Any:
    """Let each value answer for its own parameters.

    PyMC's checks of parameters look at all entries at once, so that one record's impossible
    proposal would condemn all the others.
    """
    replaced: dict[Any, Any] = {}
    for node in io_toposort(stops, [output]):
        inputs = [replaced.get(var, var) for var in node.inputs]
        if isinstance(node.op, CheckParameterValue):
            value, *conditions = inputs
            for condition in (c for given in conditions for c in _conditions(given)):
                extra = tuple(range(value.type.ndim, condition.type.ndim))
                value = pt.switch(condition.all(axis=extra) if extra else condition, value, -pt.inf)
            replaced[node.outputs[0]] = value
        elif inputs != node.inputs:
            new = node.clone_with_new_inputs(inputs, strict=False)
            replaced.update(zip(node.outputs, new.outputs, strict=True))
    return replaced.get(output, output)


def _conditions(given: Any) -> Iterator[Any]:
    """Take a check's condition apart into what holds for each entry."""
    op = given.owner.op if given.owner is not None else None
    if isinstance(op, ScalarFromTensor | MakeVector | All):
        for inner in given.owner.inputs:
            yield from _conditions(inner)
    else:
        yield pt.as_tensor(given)
