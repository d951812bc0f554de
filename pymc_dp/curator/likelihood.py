"""A model's log-likelihood record by record, and its public part, as functions of one flat vector.

A record is a row: observed variables share their first axis, and what belongs to record i is row i
of every observed value and of every other array of that length in the likelihood (covariates, group
indices). Those arrays are confidential; the rest of the model is public.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.logprob.utils import CheckParameterValue
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.basic import Alloc
from pytensor.tensor.shape import SpecifyShape

from pymc_dp.graph.additivity import NotAdditiveError, PerRecord, per_record_forms
from pymc_dp.graph.inner_graphs import refuse_hidden_records

Vector = NDArray[np.float64]
Variable = Any  # of a PyTensor graph


class FlatSpace:
    """The model's unconstrained values as one vector, in the model's own order.

    Parameters
    ----------
    model : pymc.Model
        Its free variables must be continuous.
    """

    def __init__(self, model: pm.Model) -> None:
        for rv in model.free_RVs:
            if rv.dtype.startswith(("int", "uint", "bool")):
                raise ValueError(
                    f"{rv.name!r} is discrete: this step moves continuous variables only. "
                    "Sum it out of the likelihood, or give it a continuous prior."
                )
        start = model.initial_point()
        self.values = list(model.value_vars)
        self.names = [str(value.name) for value in self.values]
        self.shapes = [np.shape(start[name]) for name in self.names]
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes])
        self.slices = [
            slice(int(end - np.prod(s)), int(end)) for end, s in zip(ends, self.shapes, strict=True)
        ]
        self.size = int(ends[-1])
        self.start = self.flatten(start)
        # lengths of dims are as fixed as the vector is, and compiled functions are called without
        lengths: list[Variable] = [
            v for v in model.dim_lengths.values() if isinstance(v, SharedVariable)
        ]
        self._lengths = {v: pt.constant(v.get_value(), dtype=v.dtype) for v in lengths}

    def flatten(self, point: dict[str, Any]) -> Vector:
        """Vector of a PyMC point."""
        theta = np.empty(self.size)
        for name, where in zip(self.names, self.slices, strict=True):
            theta[where] = np.ravel(point[name])
        return theta

    def unflatten(self, theta: Vector, point: dict[str, Any]) -> dict[str, Any]:
        """Copy of a PyMC point with the values of a vector."""
        new = dict(point)
        for name, where, shape in zip(self.names, self.slices, self.shapes, strict=True):
            new[name] = theta[where].reshape(shape).astype(point[name].dtype)
        return new

    def coordinates(self, values: Sequence[Variable]) -> NDArray[np.int64]:
        """Places of some value variables in the vector."""
        wanted = set(values)
        parts = [
            np.arange(where.start, where.stop)
            for value, where in zip(self.values, self.slices, strict=True)
            if value in wanted
        ]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)

    def on_vector(self, outputs: Sequence[Variable]) -> tuple[Variable, list[Variable]]:
        """Graphs over value variables, rewritten over one vector."""
        theta = pt.dvector("theta")
        swap = {
            value: theta[where].reshape(shape).astype(value.dtype)
            for value, where, shape in zip(self.values, self.slices, self.shapes, strict=True)
        }
        return theta, clone_replace(list(outputs), swap | self._lengths, rebuild_strict=False)


class RecordLikelihood:
    """Log-likelihood of every record, compiled once.

    Parameters
    ----------
    model : pymc.Model
        Observed variables share their first axis, the records.
    space : FlatSpace
        The model's vector.
    compile_kwargs : dict, optional
        Passed to :func:`pytensor.function`.

    Notes
    -----
    PyMC's parameter checks look at all records at once and are left out: a record outside a
    distribution's domain has NaN or infinite log-likelihood by itself.
    """

    def __init__(
        self, model: pm.Model, space: FlatSpace, compile_kwargs: dict[str, Any] | None = None
    ) -> None:
        self.n_records = _count_records(model)
        self.names = ", ".join(repr(rv.name) for rv in model.observed_RVs)
        total = _per_record_logp(model)
        self._sources, self.axes = _confidential_arrays(total, model, self.n_records)
        _refuse_confidential_prior(model, self.n_records)
        refuse_hidden_records(model, total, self.n_records)
        self.moves_with = space.coordinates(
            [value for value in space.values if value in set(ancestors([total]))]
        )
        rows = [
            _any_length(source, axis) for source, axis in zip(self._sources, self.axes, strict=True)
        ]
        theta, (flat,) = space.on_vector(
            [rebuilt(total, dict(zip(self._sources, rows, strict=True)))]
        )
        self.graph = (theta, rows, flat)
        _refuse_mixed_records(flat, rows, self.axes)
        self._logp = pytensor.function(
            [theta, *rows], flat, on_unused_input="ignore", **(compile_kwargs or {})
        )
        self._logp.trust_input = True
        self.load()
        # away from the start, where coefficients are often zero and hide what depends on what
        _check_records_apart(self, space.start + np.random.default_rng(0).normal(size=space.size))

    def load(self) -> None:
        """Read the data again, as ``pm.set_data`` may have changed it."""
        self.data = [np.ascontiguousarray(_value(source)) for source in self._sources]
        lengths = {rows.shape[axis] for rows, axis in zip(self.data, self.axes, strict=True)}
        if lengths != {self.n_records}:
            raise ValueError(
                f"The model had {self.n_records} records when the step was made and now has "
                f"arrays of {sorted(lengths)}: make a new step after pm.set_data."
            )

    def __call__(self, theta: Vector) -> Vector:
        """Log-likelihood of all records."""
        return self._evaluate(theta, self.data)

    def batch(self, theta: Vector, index: NDArray[np.int64]) -> Vector:
        """Log-likelihood of some records."""
        return self._evaluate(theta, self.rows(index))

    def _evaluate(self, theta: Vector, rows: Sequence[NDArray[Any]]) -> Vector:
        with np.errstate(all="ignore"):  # a warning would tell that some record is out of range
            return self._logp(theta, *rows)

    def part(self, records: slice) -> list[NDArray[Any]]:
        """Confidential arrays of consecutive records."""
        return [
            np.ascontiguousarray(rows[(slice(None),) * axis + (records,)])
            for rows, axis in zip(self.data, self.axes, strict=True)
        ]

    def rows(self, index: NDArray[np.int64]) -> list[NDArray[Any]]:
        """Take the confidential arrays of some records."""
        return [
            np.ascontiguousarray(rows.take(index, axis=axis))
            for rows, axis in zip(self.data, self.axes, strict=True)
        ]

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        state["data"] = None
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._logp.trust_input = True
        self.load()


def compile_prior(
    model: pm.Model, space: FlatSpace, compile_kwargs: dict[str, Any] | None = None
) -> Callable[[Vector], float]:
    """Log-density of the public part: priors with their Jacobians, and potentials."""
    theta, (flat,) = space.on_vector([log_prior(model)])
    function = pm.compile([theta], flat, **(compile_kwargs or {}))
    function.trust_input = True
    return function


def compile_prior_gradient(
    model: pm.Model, space: FlatSpace, compile_kwargs: dict[str, Any] | None = None
) -> Callable[[Vector], Vector]:
    """Gradient of the public part's log-density."""
    return compile_gradient(model, space, [], lambda gradient: gradient, compile_kwargs)


def compile_gradient(
    model: pm.Model,
    space: FlatSpace,
    others: list[Variable],
    use: Callable[[Variable], Variable],
    compile_kwargs: dict[str, Any] | None,
) -> Callable[..., Vector]:
    """Compile what is made of the public part's gradient, and of other inputs."""
    theta, (flat,) = space.on_vector([log_prior(model)])
    try:
        gradient = use(pt.grad(flat, theta, disconnected_inputs="ignore"))
        options = {"on_unused_input": "ignore"} | (compile_kwargs or {})
        function = pm.compile([theta, *others], gradient, **options)
    except (NotImplementedError, TypeError, ValueError) as error:
        names = ", ".join(repr(rv.name) for rv in [*model.free_RVs, *model.potentials])
        raise ValueError(
            f"The prior of {names} has no gradient ({error}): write it with differentiable "
            "operations, or use pymc_dp.DPPenalty, which needs none."
        ) from error
    function.trust_input = True
    return function


def log_prior(model: pm.Model) -> Variable:
    """Log-density of the public part, a graph over the values of the model's variables."""
    return model.logp(vars=[*model.free_RVs, *model.potentials], jacobian=True)


def is_public(variable: Variable, model: pm.Model) -> bool:
    """Whether a variable is made of free variables and single numbers alone."""
    free = set(model.free_RVs)
    for leaf in ancestors([variable], blockers=free):
        if leaf in model.observed_RVs or leaf in model.data_vars:
            return False
        if isinstance(leaf, Constant | SharedVariable) and np.size(_value(leaf)) > 1:
            return False
    return True


def _value(leaf: Variable) -> Any:
    if isinstance(leaf, SharedVariable):
        return leaf.get_value(borrow=True)
    return leaf.data


def _count_records(model: pm.Model) -> int:
    if not model.observed_RVs:
        raise ValueError("The model has no observed variable: there is nothing to protect.")
    lengths = {}
    for rv in model.observed_RVs:
        shape = np.shape(_value(model.rvs_to_values[rv]))
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


def _per_record_logp(model: pm.Model) -> Variable:
    total: Any = 0.0
    for rv, logp in zip(
        model.observed_RVs, model.logp(vars=model.observed_RVs, sum=False), strict=True
    ):
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
    graph = FunctionGraph(outputs=[total], clone=True, copy_inputs=False)
    for node in list(graph.toposort()):
        if isinstance(node.op, CheckParameterValue):
            graph.replace(node.outputs[0], node.inputs[0], import_missing=True)
    return pt.cast(graph.outputs[0], "float64")


def _confidential_arrays(
    logp: Variable, model: pm.Model, n_records: int
) -> tuple[list[Variable], list[int]]:
    observed = {model.rvs_to_values[rv] for rv in model.observed_RVs}
    sources, axes = [], []
    for leaf in ancestors([logp]):
        if isinstance(leaf, Constant | SharedVariable) and hasattr(leaf.type, "ndim"):
            shape = np.shape(_value(leaf))
            if leaf in observed or n_records in shape:
                sources.append(leaf)
                axes.append(shape.index(n_records))
    return sources, axes


def _any_length(source: Variable, axis: int) -> Variable:
    shape = list(source.type.shape)
    shape[axis] = None
    return pt.tensor(dtype=source.type.dtype, shape=tuple(shape))


def rebuilt(output: Variable, swap: dict[Variable, Variable]) -> Variable:
    """Graph with variables replaced and nodes above made anew, so that no static length stays."""
    made = dict(swap)
    for node in FunctionGraph(outputs=[output], clone=False).toposort():
        inputs = [made.get(variable, variable) for variable in node.inputs]
        if inputs == node.inputs or not swap.keys().isdisjoint(node.outputs):
            continue
        if isinstance(node.op, SpecifyShape):
            made[node.outputs[0]] = inputs[0]
        elif isinstance(node.op, Alloc) and inputs[0].type.ndim == len(inputs) - 1:
            value, *lengths = inputs
            kept = [
                length if static == 1 else value.shape[axis]
                for axis, (static, length) in enumerate(zip(value.type.shape, lengths, strict=True))
            ]
            made[node.outputs[0]] = pt.alloc(value, *kept)
        else:
            made.update(zip(node.outputs, node.op.make_node(*inputs).outputs, strict=True))
    return made.get(output, output)


def _refuse_confidential_prior(model: pm.Model, n_records: int) -> None:
    """Refuse public parts with an array as long as the records, which must be taken for theirs."""
    for rv in [*model.free_RVs, *model.potentials]:
        for leaf in ancestors([rv], blockers=set(model.free_RVs) - {rv}):
            shape = np.shape(_value(leaf)) if isinstance(leaf, Constant | SharedVariable) else ()
            if n_records in shape or leaf in model.observed_RVs:
                what = "potential" if rv in model.potentials else "prior"
                raise ValueError(
                    f"The {what} {rv.name!r} depends on an array with as many entries as there are "
                    f"records ({n_records}), which is taken for confidential: write its part of "
                    "the likelihood as an observed variable, pm.CustomDist(..., observed=...), "
                    "with one row for each record."
                )


def _refuse_mixed_records(logp: Variable, rows: Sequence[Variable], axes: Sequence[int]) -> None:
    """Read from the graph, where it has known operations, that row i is a function of record i."""
    try:
        form = per_record_forms(logp, dict(zip(rows, axes, strict=True)))[logp]
    except NotAdditiveError:
        return  # left to the numerical check
    if form != PerRecord(0):
        raise ValueError(
            "The log-likelihood's rows do not belong to one record each (records are added up, "
            "picked or put in another order inside the model), so a single record's influence "
            "cannot be bounded: write the model so that row i is a function of record i."
        )


def _check_records_apart(likelihood: RecordLikelihood, theta: Vector) -> None:
    """Change every second record and see that the others' log-likelihood stays."""
    n = likelihood.n_records
    before = np.array(likelihood(theta))
    if before.shape != (n,):
        raise ValueError(
            f"The log-likelihood has shape {before.shape} for {n} records: write the model so that "
            "every observed variable's first axis is the records."
        )
    index = np.arange(n)
    index[::2] = np.roll(index, 2)[::2]
    rows = likelihood.rows(index)
    for turn in range(2):
        if turn:  # in place: the copy may be as large as the data
            for array, axis in zip(rows, likelihood.axes, strict=True):
                _jitter(array[(slice(None),) * axis + (slice(None, None, 2),)])
        after = likelihood._evaluate(theta, rows)
        if not np.allclose(before[1::2], after[1::2], rtol=1e-9, equal_nan=True):
            raise ValueError(
                "One record's log-likelihood changes with another record's values (a mean or a sum "
                "over records inside the model?), so a single record's influence cannot be "
                "bounded: compute such numbers outside, from public information."
            )


def _jitter(rows: NDArray[Any]) -> None:
    if rows.dtype.kind == "f":
        rows *= 1.125
        rows += 0.25
