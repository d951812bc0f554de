"""Arrays that operations hold inside, where a walk over the graph does not see them."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pymc as pm
from pytensor.compile.ops import FromFunctionOp
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.op import HasInnerGraph
from pytensor.graph.traversal import ancestors

from pymc_dp.types import Variable


def operations(variables: Iterable[Variable], blockers: Iterable[Variable] = ()) -> Iterator[Any]:
    """All operations above some variables, and those inside of them."""
    stop = set(blockers)
    for variable in ancestors(list(variables), blockers=stop):
        if variable.owner and variable not in stop:
            yield from with_parts(variable.owner.op)


def with_parts(op: Any) -> Iterator[Any]:
    """List an operation and those inside of it."""
    yield op
    if isinstance(op, HasInnerGraph):
        yield from operations(op.inner_outputs)
    for name in ("core_op", "scalar_op"):
        if hasattr(op, name):
            yield from with_parts(getattr(op, name))


def _constants(op: Any) -> list[Constant]:
    inside = ancestors(op.inner_outputs) if isinstance(op, HasInnerGraph) else []
    return [v for v in inside if isinstance(v, Constant) and np.size(v.data) > 1]


def _arrays(op: Any) -> list[Any]:
    return [constant.data for constant in _constants(op)]


def inner_constants(
    variables: Iterable[Variable], blockers: Iterable[Variable] = ()
) -> list[Constant]:
    """Arrays that operations above some variables hold inside."""
    return [constant for op in operations(variables, blockers) for constant in _constants(op)]


def is_foreign(op: Any) -> bool:
    """Whether an operation is not one of PyTensor's or PyMC's, and may do anything."""
    known = type(op).__module__.startswith(("pytensor.", "pymc."))
    return isinstance(op, FromFunctionOp) or not known


def may_hide_arrays(variable: Variable, blockers: Iterable[Variable]) -> bool:
    """Whether an operation above a variable holds arrays, or is not one of PyTensor's or PyMC's."""
    return any(is_foreign(op) or _arrays(op) for op in operations([variable], blockers))


def refuse_hidden_records(model: pm.Model, likelihood: Variable, n_records: int) -> None:
    """Refuse arrays as long as the records where they are not seen, which must be taken for theirs.

    Parameters
    ----------
    model : pymc.Model
        Its operations may hold no such array inside, and its priors none in functions logp=.
    likelihood : Variable
        The log-likelihood of each record, whose operations may hold none inside either.
    n_records : int
        The length.
    """
    names = ", ".join(repr(rv.name) for rv in model.observed_RVs)
    parts = [(f"The likelihood of {names}", _inside([likelihood]))]
    for variable in [*model.basic_RVs, *model.potentials]:  # logp may have folded what is constant
        others = [rv for rv in model.basic_RVs if rv is not variable]
        parts.append((repr(variable.name), _inside([variable], others)))
    priors = model.logp(vars=model.free_RVs, sum=False)
    for rv, logp in zip(model.free_RVs, priors, strict=True):
        parts.append((f"The prior of {rv.name!r}", [*_leaves([logp]), *_inside([logp])]))
    for what, arrays in parts:
        if any(n_records in np.shape(array) for array in arrays):
            raise ValueError(
                f"{what} has an array with as many entries as there are records ({n_records}) "
                "inside a function or an operation, which is taken for confidential: pass it as "
                "an argument (of CustomDist, of OpFromGraph, non_sequences= of scan), or leave it "
                "out of the prior."
            )


def _inside(variables: list[Variable], blockers: Iterable[Variable] = ()) -> list[Any]:
    return [array for op in operations(variables, blockers) for array in _arrays(op)]


def _leaves(variables: list[Variable]) -> list[Any]:
    leaves = [v for v in ancestors(variables) if isinstance(v, Constant | SharedVariable)]
    return [v.data if isinstance(v, Constant) else v.get_value(borrow=True) for v in leaves]
