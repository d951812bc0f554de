"""A model's log-likelihood record by record, as a function of one flat vector.

:mod:`~pymc_dp.curator.confidential` finds the arrays that are the records', and
:mod:`~pymc_dp.curator.independence` checks that the likelihood keeps records apart.
"""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors

from pymc_dp.curator.blocks import Rows, cut, filled_up, in_blocks, missing_rows
from pymc_dp.curator.common_rows import shared_records
from pymc_dp.curator.confidential import (
    count_records,
    is_updated,
    leaf_value,
    lengths_of_records,
    record_arrays,
    refuse_other_data,
    refuse_updates,
)
from pymc_dp.curator.independence import (
    check_records_apart,
    refuse_mixed_constants,
    refuse_mixed_records,
    with_lengths,
)
from pymc_dp.curator.indices import IndexCheck, clamped
from pymc_dp.curator.record_logp import per_record_logp
from pymc_dp.graph.inner_graphs import refuse_hidden_records
from pymc_dp.graph.quick_mode import quick_mode
from pymc_dp.graph.rewrites import rebuilt, same_graph
from pymc_dp.graph.vector import FlatSpace
from pymc_dp.numerics.compiled import compiling_silently
from pymc_dp.types import Variable, Vector

SHAPE_ERRORS = (ValueError, IndexError, AssertionError)
"""What compiled functions raise of fewer records, where their number is written into the graph."""


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
    independent_records : bool
        The user vouches that operations which are not known here keep records apart.
    public_data : sequence of str
        Names of data containers that are public, and of variables whose arrays are.
    confidential : bool
        False for simulated or public records, which need no protection.
    like : RecordLikelihood, optional
        Of a model that may be the same but for its records: what is compiled serves here then.

    Notes
    -----
    PyMC's parameter checks, and other assertions, look at all records at once and are left out: a
    record outside a distribution's domain has NaN or infinite log-likelihood by itself, and none
    can stop a run, but for matrix functions that raise by themselves (docs/curator.md).
    """

    @compiling_silently()
    def __init__(
        self,
        model: pm.Model,
        space: FlatSpace,
        compile_kwargs: dict[str, Any] | None = None,
        *,
        independent_records: bool = False,
        public_data: Sequence[str] = (),
        confidential: bool = True,
        like: "RecordLikelihood | None" = None,
    ) -> None:
        if isinstance(public_data, str):
            raise TypeError(f"public_data= is a list of names: write [{public_data!r}].")
        self.n_records, self.compile_kwargs = count_records(model), dict(compile_kwargs or {})
        self.names = ", ".join(repr(rv.name) for rv in model.observed_RVs)
        total = per_record_logp(model)
        self._sources, self.axes = record_arrays(total, model, self.n_records, public_data)
        if confidential:
            refuse_updates(total, model)
            refuse_other_data(total, model, self._sources, public_data)
            refuse_hidden_records(model, total, self.n_records)
        vouched = independent_records or not confidential
        refuse_mixed_constants(model, self.n_records, public_data, vouched)
        #: whether a record's place in the order matters, which others change by leaving
        self.by_place = _refuse_mixed(
            self, total, space, vouched, lengths_of_records(model, self.n_records)
        )
        self.data_coordinates = space.coordinates(
            [value for value in space.values if value in set(ancestors([total]))]
        )
        rows = [
            _any_length(source, axis) for source, axis in zip(self._sources, self.axes, strict=True)
        ]
        theta, (flat,) = space.on_vector(
            [rebuilt(total, dict(zip(self._sources, rows, strict=True)))]
        )
        flat, indices = clamped(flat, theta, rows)
        self.graph = (theta, rows, flat)
        self._start = space.start
        self._check_indices = IndexCheck(f"The likelihood of {self.names}", indices, theta, rows)
        self.load()
        #: whether it is the same function of parameters and records as another one
        self.is_alike = like is not None and same_graph(
            [theta, *rows], flat, [like.graph[0], *like.graph[1]], like.graph[2]
        )
        self._logp: Any = like._logp if like is not None and self.is_alike else self._compiled()
        #: whether some records' likelihood can be computed without the others
        self.splits = not self.by_place and self._can_split()
        #: whether the graph itself shows that a record's likelihood is made of its own rows
        self.apart = self.splits and not independent_records
        if not confidential:
            return
        # away from the start, where coefficients are often zero and hide what depends on what
        away = space.start + np.random.default_rng(0).normal(size=space.size)
        check_records_apart(
            self.names, lambda rows: self._evaluate(away, rows), self.data, self.axes
        )

    def _compiled(self) -> Any:
        theta, rows, flat = self.graph
        options = self.compile_kwargs | {"mode": quick_mode(self.compile_kwargs.get("mode"))}
        logp = pytensor.function([theta, *rows], flat, on_unused_input="ignore", **options)
        logp.trust_input = True
        return logp

    def load(self) -> None:
        """Read the data again, as ``pm.set_data`` may have changed it."""
        self.data = [np.ascontiguousarray(leaf_value(source)) for source in self._sources]
        lengths = {rows.shape[axis] for rows, axis in zip(self.data, self.axes, strict=True)}
        if lengths != {self.n_records}:
            raise ValueError(
                f"The model had {self.n_records} records when the step was made and now has "
                f"arrays of {sorted(lengths)}: make a new step after pm.set_data."
            )
        self._check_indices(self._start, self.data)
        self._laid_out: list[Rows] = []

    def keep(self, count: int) -> None:
        """Leave out all but the first records, here and in what is computed from now on."""
        self.n_records = count
        self.data = cut(self.data, self.axes, slice(0, count))
        self._laid_out = []

    def __call__(self, theta: Vector) -> Vector:
        """Log-likelihood of all records."""
        if not self.splits:
            return self._evaluate(theta, self.data)
        self._laid_out = self._laid_out or in_blocks(self.data, self.axes)
        parts = [self._evaluate(theta, rows)[:count] for rows, count in self._laid_out]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def batch(self, theta: Vector, index: NDArray[np.int64]) -> Vector:
        """Log-likelihood of some records."""
        if not self.splits or not index.size:
            return self._evaluate(theta, self.rows(index))
        more = np.zeros(missing_rows(index.size), dtype=np.int64)
        return self._evaluate(theta, self.rows(np.concatenate([index, more])))[: index.size]

    def _can_split(self) -> bool:
        some, count = filled_up(self.part(slice(0, 2)), self.axes)
        try:
            alone, whole = (self._evaluate(self._start, rows) for rows in (some, self.data))
        except SHAPE_ERRORS:
            return False
        same_length = len(alone) == some[0].shape[self.axes[0]]
        return same_length and np.allclose(alone[:count], whole[:count], equal_nan=True)

    def _evaluate(self, theta: Vector, rows: Sequence[NDArray[Any]]) -> Vector:
        with np.errstate(all="ignore"):  # a warning would tell that some record is out of range
            return self._logp(theta, *rows)

    def part(self, records: slice) -> list[NDArray[Any]]:
        """Confidential arrays of consecutive records."""
        return cut(self.data, self.axes, records)

    def rows(self, index: NDArray[np.int64]) -> list[NDArray[Any]]:
        """Take the confidential arrays of some records."""
        return [
            np.ascontiguousarray(rows.take(index, axis=axis))
            for rows, axis in zip(self.data, self.axes, strict=True)
        ]

    def has_records_of(self, other: "RecordLikelihood") -> bool:
        """Whether this and another likelihood have arrays, or many rows, in common."""
        return other.shares(self.data, self.axes)

    def shares(self, arrays: Sequence[NDArray[Any]], axes: Sequence[int]) -> bool:
        """Whether records are among the rows of some arrays, whose axes are given."""
        return shared_records(self.data, self.axes, arrays, axes)

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        state["data"], state["_laid_out"] = None, []
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._logp.trust_input = True
        self.load()


def records_of(model: pm.Model) -> tuple[list[NDArray[Any]], list[int]]:
    """Arrays of a model that hold records, and which of their axes these are."""
    sources, axes = record_arrays(per_record_logp(model), model, count_records(model))
    return [leaf_value(source) for source in sources], axes


def is_public(variable: Variable, model: pm.Model) -> bool:
    """Whether a variable is made of free variables and single numbers alone."""
    free = set(model.free_RVs)
    for leaf in ancestors([variable], blockers=free):
        if leaf in model.observed_RVs or leaf in model.data_vars:
            return False
        if isinstance(leaf, Constant | SharedVariable) and np.size(leaf_value(leaf)) > 1:
            return False
        if is_updated(leaf):
            return False
    return True


def _refuse_mixed(
    likelihood: RecordLikelihood,
    total: Variable,
    space: FlatSpace,
    vouched: bool,
    lengths: Collection[Variable],
) -> bool:
    """Read the graph with all lengths written into it, which tell its axes apart."""
    sources = likelihood._sources
    rows = with_lengths(sources, [leaf_value(source).shape for source in sources])
    values = with_lengths(space.values, list(space.shapes.values()))
    logp = rebuilt(total, dict(zip([*sources, *space.values], [*rows, *values], strict=True)))
    return refuse_mixed_records(likelihood.names, logp, rows, likelihood.axes, vouched, lengths)


def _any_length(source: Variable, axis: int) -> Variable:
    shape = list(source.type.shape)
    shape[axis] = None
    return pt.tensor(dtype=source.type.dtype, shape=tuple(shape))
