"""Which arrays of a model are confidential, which are public, and which it may not have.

A record is a row: observed variables share their first axis, and what belongs to record i is row i
of every observed value and of every other array of that length in the likelihood (covariates, group
indices). Those arrays are confidential. Numbers in the model are public, and so are the arrays that
hyperparameters are written as, no longer than the parameters; any other array could hold records of
people, and is refused unless it is named as public.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pymc as pm
from pymc.distributions.distribution import PartialObservedRV, support_point
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import AdvancedIncSubtensor
from pytensor.tensor.type import TensorType

from pymc_dp.compat import inline_ofg_node
from pymc_dp.graph.inner_graphs import inner_constants
from pymc_dp.types import Variable

_FEW = 4  # numbers in an array that is like so many numbers written into the model


def leaf_value(leaf: Variable) -> Any:
    """Value of a constant or shared variable, not to be written to."""
    if isinstance(leaf, SharedVariable):
        return leaf.get_value(borrow=True)
    return leaf.data


def refuse_gaps(model: pm.Model) -> None:
    """Refuse masked arrays, which ``pm.set_data`` makes of NaN and compiled functions stop at."""
    for data in model.data_vars:
        if isinstance(leaf_value(data), np.ma.MaskedArray):
            raise ValueError(
                f"{data.name!r} has missing values (NaN, or masked) since pm.set_data: fill the "
                "gaps with a number within range, and keep which they are in data of their own."
            )


def count_records(model: pm.Model) -> int:
    """Length of the first axis that all observed variables share."""
    if not model.observed_RVs:
        raise ValueError("The model has no observed variable: there is nothing to protect.")
    _refuse_missing(model)
    lengths = {}
    for rv in model.observed_RVs:
        shape = _observed_shape(model.rvs_to_values[rv])
        if not shape:
            raise ValueError(
                f"{rv.name!r} is observed as a single number: write observed=[...] with one entry "
                "for each record along the first axis."
            )
        lengths[rv.name] = shape[0]
    if len(set(lengths.values())) > 1:
        raise ValueError(
            f"Observed variables have different numbers of records, {lengths}: write them so that "
            "row i of each belongs to record i, or put them in models of their own."
        )
    count = next(iter(lengths.values()))
    if not 2 <= count <= 2**30:
        raise ValueError(f"The number of records must be between 2 and 2**30, not {count}.")
    return count


def lengths_of_records(model: pm.Model, n_records: int) -> set[Variable]:
    """Lengths of named dimensions that are as long as there are records, numbers in graphs."""
    return {
        length
        for length in model.dim_lengths.values()
        if isinstance(length, SharedVariable) and int(leaf_value(length)) == n_records
    }


def _refuse_missing(model: pm.Model) -> None:
    """Refuse missing values, which PyMC makes free variables of."""
    for rv in model.observed_RVs:
        if isinstance(rv.owner.op, PartialObservedRV) or _is_joined(rv, model):
            name = str(rv.name).removesuffix("_observed")
            raise ValueError(
                f"{name!r} is observed with missing values (NaN, or masked). PyMC would sample "
                "them as parameters, and their number and their records' covariates would leave. "
                "Write missingness as data: fill the gaps with a number within range, keep which "
                "are not gaps, seen = pm.Data('seen', ~np.isnan(y)), and write pm.CustomDist("
                "'y', mu, seen, logp=lambda y, mu, seen: pm.math.switch(seen, "
                "pm.logp(pm.Normal.dist(mu, 1), y), 0), observed=filled). Where missingness itself "
                "tells something, observe it too: pm.Bernoulli('is_seen', p, observed=seen)."
            )


def _is_joined(rv: Variable, model: pm.Model) -> bool:
    """Whether an observed variable is written into one together with its missing part."""
    written = [
        node.inputs[1]
        for joined in model.deterministics
        for node in [joined.owner, joined.owner.inputs[0].owner]
        if node is not None and isinstance(node.op, AdvancedIncSubtensor)
    ]
    return rv in written


def _observed_shape(value: Variable) -> tuple[int, ...]:
    """Shape of observed data, which may be wrapped in casts and the like."""
    if isinstance(value, Constant | SharedVariable):
        return np.shape(leaf_value(value))
    return tuple(int(length) for length in value.shape.eval(mode="FAST_COMPILE"))


def record_arrays(
    graph: Variable, model: pm.Model, n_records: int, public: Collection[str] = ()
) -> tuple[list[Variable], list[int]]:
    """Find the arrays in a likelihood's graph that hold records, and these' axes."""
    values = [model.rvs_to_values[rv] for rv in model.observed_RVs]
    observed = {leaf for leaf in array_leaves(values) if leaf_value(leaf).shape[0] == n_records}
    sources, axes = [], []
    for leaf in array_leaves([graph], set(model.free_RVs)):
        shape = leaf_value(leaf).shape
        if n_records not in shape or (leaf.name in public and leaf not in observed):
            continue
        if shape.count(n_records) > 1 and leaf not in observed:
            raise ValueError(
                f"{_called(leaf)} in the likelihood has more than one axis as long as there are "
                f"records ({n_records}), so that a row of it may tell of several records: write "
                "arrays with one row for each record, made of that record alone."
            )
        sources.append(leaf)
        axes.append(shape.index(n_records))
    return sources, axes


def as_written(rv: Variable) -> list[Variable]:
    """Graphs of a variable's parameters, as the user wrote them.

    PyMC folds constants on the way to a log-density, where a mean over records is but a number.
    """
    if rv.owner is None:
        return []
    inner = inline_ofg_node(rv.owner) if isinstance(rv.owner.op, OpFromGraph) else []
    return [var for var in [*rv.owner.inputs, *inner] if isinstance(var.type, TensorType)]


def array_leaves(
    outputs: Sequence[Variable], blockers: Collection[Variable] = ()
) -> Iterator[Variable]:
    """Find the arrays that graphs are made of."""
    for leaf in ancestors(outputs, blockers):
        if not isinstance(leaf, Constant | SharedVariable) or not getattr(leaf.type, "ndim", 0):
            continue
        if not isinstance(leaf.type, TensorType):
            raise ValueError(
                f"{_called(leaf)} is of {leaf.type}, which this step cannot take apart into "
                "records: write it as an ordinary (dense) array."
            )
        yield leaf


def _called(leaf: Variable) -> str:
    if leaf.name:
        return f"The array {leaf.name!r}"
    return f"An array of shape {leaf_value(leaf).shape}"


def is_updated(leaf: Variable) -> bool:
    """Whether compiled functions change a number as they run, perhaps to one made of records."""
    updated = isinstance(leaf, SharedVariable) and leaf.default_update is not None
    return updated and isinstance(leaf.type, TensorType)


def refuse_updates(logp: Variable, model: pm.Model) -> None:
    """Refuse numbers that are not what they are when they are looked at."""
    graphs = [logp, *model.basic_RVs, *model.potentials, *model.deterministics]
    written = [graph for rv in model.basic_RVs for graph in as_written(rv)]
    for leaf in ancestors([*graphs, *written]):
        if is_updated(leaf):
            raise ValueError(
                f"The number {leaf.name or 'without a name'} in the model has a default_update, "
                "which may be made of records: write a number, or pytensor.shared without one."
            )


def refuse_other_data(
    logp: Variable, model: pm.Model, records: Sequence[Variable], public: Collection[str]
) -> None:
    """Refuse arrays that could hold records and that the noise would not cover.

    Parameters
    ----------
    logp : TensorVariable
        Log-likelihood of all records.
    model : pymc.Model
        Its priors and potentials are looked at.
    records : sequence of TensorVariable
        Arrays that are treated as confidential.
    public : collection of str
        Names of data containers, and of variables whose arrays are all public.
    """
    named = {str(var.name): var for var in [*model.basic_RVs, *model.potentials, *model.data_vars]}
    if unknown := sorted(set(public) - set(named)):
        raise ValueError(
            f"public_data= names {unknown}, which are no data containers (pm.Data), potentials or "
            "random variables of the model."
        )
    check = _Arrays(model, records, [named[name] for name in public])
    if not all(rv.name in public for rv in model.observed_RVs):
        written = [graph for rv in model.observed_RVs for graph in as_written(rv)]
        for leaf in array_leaves([logp, *written], set(model.basic_RVs)):
            if leaf not in records and check.n_records not in leaf_value(leaf).shape:
                check.refuse(leaf, "likelihood", None)
        for leaf in inner_constants([logp, *written], set(model.basic_RVs)):
            if check.n_records not in leaf_value(leaf).shape:
                check.refuse(leaf, "likelihood", None)
    functions = _made_by_functions(model)
    for rv in [*model.free_RVs, *model.potentials]:
        what = f"{'potential' if rv in model.potentials else 'prior'} {rv.name!r}"
        others = set(model.free_RVs) - {rv}
        if any(var in model.observed_RVs for var in ancestors([rv], others)):
            raise ValueError(f"The {what} depends on an observed variable: {_INSTEAD}")
        graphs = [rv, *as_written(rv)]
        for leaf in array_leaves(graphs, others):  # the length of one tells, too
            check.refuse(leaf, what, rv)
        if rv.name not in public:
            for leaf in _in_functions(graphs, functions.get(rv, ()), others, check.n_records):
                check.refuse(leaf, what, rv)


def refuse_arrays_beside(what: str, graph: Variable, records: Sequence[Variable]) -> None:
    """Refuse a user's function of the records that brings arrays of its own.

    These could hold other records. Numbers, and whole numbers in order, which categories are
    compared with, are taken for public.
    """
    for leaf in ancestors([graph], set(records)):
        if is_updated(leaf) or isinstance(leaf.type, RandomType):
            raise ValueError(
                f"{what} draws random numbers, or uses one that changes as it is used, and so what "
                "is computed of a record may depend on others: write a function of each record."
            )
    leaves = [leaf for leaf in array_leaves([graph], set(records)) if leaf not in records]
    for leaf in [*leaves, *inner_constants([graph], set(records))]:
        value = leaf_value(leaf)
        in_order = isinstance(leaf, Constant) and np.array_equal(value.ravel(), range(value.size))
        if isinstance(leaf, SharedVariable) or not (value.size <= 1 or in_order):
            raise ValueError(
                f"{what} uses an array that is none of the records' ({_called(leaf).lower()}): no "
                "noise would cover it. Write its numbers one by one, or make it a column of the "
                "records with pm.Data."
            )


def _made_by_functions(model: pm.Model) -> dict[Variable, tuple[Variable, ...]]:
    """Graphs that functions, perhaps a user's, make of free variables: logp=, transforms, starts.

    A density moves the chain, a transform is between what is moved and what is published, and a
    starting value is among the first draws.
    """
    made: dict[Variable, tuple[Variable, ...]] = {}
    densities = model.logp(vars=model.free_RVs, sum=False)
    published = model.replace_rvs_by_values(model.free_RVs)
    for rv, density, draws in zip(model.free_RVs, densities, published, strict=True):
        made[rv] = (density, draws)
        with suppress(NotImplementedError):  # PyMC then draws from the prior
            made[rv] += (support_point(rv),)
    return made


def _in_functions(
    written: Sequence[Variable],
    made: Sequence[Variable],
    others: Collection[Variable],
    n_records: int,
) -> Iterator[Variable]:
    """Arrays that functions and operations bring in.

    Whole numbers are taken for places in an array, which PyMC's own functions hold. What is as long
    as the records in densities and operations is left to
    :func:`~pymc_dp.graph.inner_graphs.refuse_hidden_records`.
    """
    for leaf in inner_constants([*written, *made], others):
        if n_records not in leaf_value(leaf).shape:
            yield leaf
    density, shown = made[:1], made[1:]
    for graphs, left in ((density, True), (shown, False)):
        for leaf in array_leaves(graphs, set(others) | _lengths(graphs)):
            value = leaf_value(leaf)
            if n_records in value.shape:
                if not left:
                    yield leaf
            elif isinstance(leaf, SharedVariable) or value.dtype.kind == "f":
                yield leaf


_INSTEAD = (
    "write its part of the likelihood as an observed variable, pm.CustomDist(..., observed=...), "
    "with one row for each record."
)


def _lengths(graphs: Sequence[Variable]) -> set[Variable]:
    """Find where no more than an array's lengths is used, as by named dimensions."""
    made = (var for var in ancestors(graphs) if var.owner is not None)
    return {var for var in made if isinstance(var.owner.op, Shape | Shape_i)}


class _Arrays:
    """Tells public arrays from such as could hold records."""

    def __init__(
        self, model: pm.Model, records: Sequence[Variable], public: Sequence[Variable]
    ) -> None:
        self.n_records = count_records(model)
        self._public = [
            leaf_value(leaf)
            for var in public
            for leaf in array_leaves([var, *as_written(var)], set(model.free_RVs) - {var})
            if var not in model.observed_RVs or self.n_records not in leaf_value(leaf).shape
        ]
        #: lengths of what hyperparameters are about
        self._lengths = {1}
        for record in records:
            self._lengths.update(n for n in leaf_value(record).shape if n != self.n_records)
        for shape in model.eval_rv_shapes().values():
            self._lengths.update(shape)

    def refuse(self, leaf: Variable, what: str, rv: Variable | None) -> None:
        """Refuse data containers, and arrays with an axis that no parameter has."""
        value = leaf_value(leaf)
        if any(np.array_equal(value, other) for other in self._public):
            return
        vouch = f"public_data=[{leaf.name!r}]"
        if isinstance(leaf, Constant):
            vouch = "pm.Data('name', ...) and public_data=['name']"
            if rv is not None:
                vouch = f"public_data=[{rv.name!r}]"
        if self.n_records in value.shape:
            raise ValueError(
                f"The {what} depends on an array with as many entries as there are records "
                f"({self.n_records}), which is taken for confidential: {_INSTEAD} If it is public, "
                f"and of this length by chance, say so by {vouch}."
            )
        if isinstance(leaf, Constant):
            same = value.size == 0 or bool(np.all(value == value.flat[0]))
            if same or value.size <= _FEW or set(value.shape) <= self._lengths:
                return
        raise ValueError(
            f"The {what} depends on data without a row for each record: {_called(leaf).lower()}. "
            f"No noise would cover it. If it is public, say so by {vouch}; if it holds records, "
            f"{_INSTEAD}"
        )
