"""A name for a model: the same where graphs, constants, priors and parameters are the same."""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any

import numpy as np
from pytensor.graph.basic import Constant
from pytensor.graph.fg import FunctionGraph

from pymc_dp.curator.model import RecordModel
from pymc_dp.types import Variable

__all__ = ["fingerprint"]


def fingerprint(records: RecordModel, strict: bool = False) -> str:
    """Name a model without its records.

    Parameters
    ----------
    records : RecordModel
        Of any records, and of any number of them.
    strict : bool
        Whether numbers that are that of the records count as what they are.

    Notes
    -----
    Made of parameters, their starting values, the prior and the likelihood of one record:
    operations with their settings, how they are connected, and all numbers in them. Numbers that
    tell how many records there are count as one and the same.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_dp.curator.model import RecordModel
    >>> from pymc_dp.curator.shards.fingerprint import fingerprint
    >>> def named(y, sd):
    ...     with pm.Model() as model:
    ...         _ = pm.Normal("y", pm.Normal("mu", 0, sd), 1, observed=y)
    ...     return fingerprint(RecordModel(model))
    >>> first = named([0.3, 0.1, -1.0, 0.0, 2.5], 1.0)
    >>> first == named([2.0, 3.0, 5.0], 1.0), first == named([2.0, 3.0, 5.0], 2.0)
    (True, False)
    """
    likelihood, space = records.likelihood, records.space
    theta, rows, logp = likelihood.graph
    prior_theta, log_prior = records.prior_graph
    lengths = set() if strict else {len(data) for data in likelihood.data}
    digest = sha256()
    for part in (
        repr(list(space.shapes.items())),
        space.start.tobytes().hex(),
        f"{likelihood.names} {likelihood.axes} {likelihood.data_coordinates.tolist()}",
        repr([(row.type.dtype, row.type.ndim) for row in rows]),
        *_told([theta, *rows], logp, lengths),
        *_told([prior_theta], log_prior, lengths),
    ):
        digest.update(part.encode())
    return digest.hexdigest()


def _told(inputs: Sequence[Variable], output: Variable, lengths: set[int]) -> Iterable[str]:
    """Tell a graph line by line."""
    number: dict[Variable, str] = {var: f"in{i}" for i, var in enumerate(inputs)}
    for node in FunctionGraph(outputs=[output], clone=False).toposort():
        args = [number.get(var) or _leaf(var, lengths) for var in node.inputs]
        for i, out in enumerate(node.outputs):
            number[out] = f"{len(number)}.{i}"
        yield f"{_operation(node.op, lengths)}({', '.join(args)})"
    yield number.get(output) or _leaf(output, lengths)


def _operation(op: Any, lengths: set[int]) -> str:
    props = [
        _value(getattr(op, name, None), lengths) for name in getattr(op, "__props__", ()) or ()
    ]
    inner = getattr(op, "fgraph", None)
    inside = list(_inner(inner, lengths)) if isinstance(inner, FunctionGraph) else []
    return f"{type(op).__module__}.{type(op).__qualname__}{props}{inside}"


def _inner(graph: FunctionGraph, lengths: set[int]) -> Iterable[str]:
    for output in graph.outputs:
        yield from _told(list(graph.inputs), output, lengths)


def _value(value: Any, lengths: set[int]) -> str:
    """Tell a setting of an operation: other operations by what they are, plain values as such."""
    if hasattr(value, "__props__"):
        return _operation(value, lengths)
    if isinstance(value, tuple | list):
        return str([_value(each, lengths) for each in value])
    if isinstance(value, str | int | float | bool | slice | type | None):
        return repr(value)
    return type(value).__qualname__


def _leaf(var: Variable, lengths: set[int]) -> str:
    if not isinstance(var, Constant):
        value = getattr(var, "get_value", lambda **_: None)(borrow=True)
        return f"shared {np.asarray(value).tobytes().hex()}" if value is not None else str(var.type)
    data = var.data
    if isinstance(data, np.ndarray | np.generic):
        data = np.asarray(data)
        if data.ndim == 0 and data.dtype.kind in "iu" and int(data) in lengths:
            return "records"
        if data.ndim == 1 and data.dtype.kind in "iu" and lengths & set(data.tolist()):
            return str(["records" if each in lengths else each for each in data.tolist()])
        return f"{data.dtype} {data.shape} {data.tobytes().hex()}"
    return repr(data)
