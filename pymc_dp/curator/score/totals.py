"""Sums of scores over confidential records, each held within a bound, in whole numbers."""

from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray

from pymc_dp.accounting.levels import CLIPPED
from pymc_dp.analyst.score.bounding import Bound, held_by_length
from pymc_dp.analyst.score.graph import RecordArray, ScoreGraph, record_arrays, score_graph
from pymc_dp.analyst.score.looks import Statistic, named_statistic
from pymc_dp.curator import confidential
from pymc_dp.curator.blocks import Rows, cut, filled_up
from pymc_dp.curator.gradient_kernels import clipped_gradient_total
from pymc_dp.curator.independence import (
    check_records_apart,
    refuse_mixed_records,
    with_lengths,
)
from pymc_dp.curator.indices import IndexCheck, clamped
from pymc_dp.curator.likelihood import SHAPE_ERRORS
from pymc_dp.curator.model import RecordModel
from pymc_dp.graph.quick_mode import quick_mode
from pymc_dp.graph.rewrites import rebuilt, same_graph
from pymc_dp.graph.vector import VectorLayout
from pymc_dp.numerics.compiled import compiling_silently
from pymc_dp.types import Matrix, Neighbours, Variable, Vector

__all__ = ["ConfidentialScores", "RecordTotal"]

_CHUNK = 2**13  # records whose parts stay in the processor's cache
_TRIED = 1000  # records that are changed to see what others' parts do


class RecordTotal:
    """Sum over the records of vectors made of each record alone, in whole numbers.

    Parameters
    ----------
    names : str
        What the vectors are of, for messages.
    inputs : list of Variable
        What the vectors depend on besides the records.
    parts : Variable
        Graph of the vectors over the model's own arrays, one record a column.
    model : pymc.Model
        The model with the confidential records.
    records : RecordModel
        What was checked of it.
    public_data : collection of str
        Names of arrays that are no records.
    like : RecordTotal, optional
        Of a model that may be the same but for its records: what is compiled serves here then.

    Raises
    ------
    ValueError
        Where the graph does not keep records apart.
    """

    @compiling_silently()
    def __init__(
        self,
        names: str,
        inputs: list[Variable],
        parts: Variable,
        model: pm.Model,
        records: RecordModel,
        public_data: Collection[str],
        like: "RecordTotal | None" = None,
    ) -> None:
        number = confidential.count_records(model)
        self._sources, self._axes = confidential.record_arrays(parts, model, number, public_data)
        if not self._sources:
            raise ValueError(f"{names} depends on no record.")
        rows = []
        for source, axis in zip(self._sources, self._axes, strict=True):
            shape = [None if i == axis else length for i, length in enumerate(source.type.shape)]
            rows.append(pt.tensor(dtype=source.type.dtype, shape=tuple(shape)))
        lengths = [confidential.leaf_value(source).shape for source in self._sources]
        long = with_lengths(self._sources, lengths)
        whole = rebuilt(parts, dict(zip(self._sources, long, strict=True)))
        #: whether a record's place in the order matters, which others change by leaving
        self.by_place = refuse_mixed_records(names, whole.sum(axis=0), long, self._axes, False)
        graph = rebuilt(parts, dict(zip(self._sources, rows, strict=True)))
        theta = inputs[0] if inputs else pt.dvector("none")
        graph, indices = clamped(graph, theta, rows)
        self._check_indices = IndexCheck(names, indices, theta, rows)
        self._graph = [*inputs, *rows], graph
        if like is not None and same_graph(*self._graph, *like._graph):
            self._parts: Any = like._parts
        else:
            self._parts = pytensor.function(
                *self._graph, mode=quick_mode("NUMBA"), on_unused_input="ignore"
            )
            self._parts.trust_input = True
        self._n_records, self._names = records.likelihood.n_records, names

    @compiling_silently()
    def check_apart(self, *inputs: Any) -> None:
        """Change some records, and see that the parts of others stay as they were."""
        data = self._data()
        self._check_indices(inputs[0] if inputs else np.zeros(0), data)
        if self._splits(inputs, data):
            data = cut(data, self._axes, slice(0, _TRIED))

        def lengths(rows: list[NDArray[Any]]) -> Vector:
            return np.abs(self._evaluate(inputs, rows)).sum(axis=0)

        check_records_apart(self._names, lengths, data, self._axes)

    def __call__(self, bound: float, *inputs: Any) -> NDArray[np.int64]:
        """Sum in units of ``bound / GRADIENT_LEVELS``, parts clipped to ``CLIPPED * bound``."""
        data, total = self._data(), None
        splits = self._splits(inputs, data)
        length = _CHUNK if splits else self._n_records
        for start in range(0, self._n_records, length):
            chunk = cut(data, self._axes, slice(start, min(start + length, self._n_records)))
            rows, count = filled_up(chunk, self._axes) if splits else Rows(chunk, length)
            added = clipped_gradient_total(self._evaluate(inputs, rows)[:, :count], bound)
            total = added if total is None else total + added
        assert total is not None
        return total

    def parts(self, *inputs: Any) -> Matrix:
        """Vectors of all records, to be used where these are simulated."""
        return self._evaluate(inputs, self._data())

    def _data(self) -> list[NDArray[Any]]:
        arrays = [confidential.leaf_value(each) for each in self._sources]
        return cut(arrays, self._axes, slice(0, self._n_records))

    def _evaluate(self, inputs: Any, rows: list[NDArray[Any]]) -> Matrix:
        with np.errstate(all="ignore"):  # a warning would tell that some record is out of range
            return self._parts(*inputs, *rows)

    def _splits(self, inputs: Any, data: list[NDArray[Any]]) -> bool:
        """Whether some records' parts can be computed without the others."""
        try:
            twice = [
                rows.take([0, 0], axis=axis) for rows, axis in zip(data, self._axes, strict=True)
            ]
            return self._evaluate(inputs, twice).shape[1] == 2
        except SHAPE_ERRORS:
            return False


class ConfidentialScores:
    """Scores of confidential records by the parameters that they inform.

    Parameters
    ----------
    model : pymc.Model
        With the confidential records observed.
    records : RecordModel
        The same, checked.
    public_data : collection of str
        Names of arrays that are no records.
    neighbours : {"substitute", "add_remove"}
        Which data sets are to be hard to tell apart.
    """

    def __init__(
        self,
        model: pm.Model,
        records: RecordModel,
        public_data: Collection[str] = (),
        neighbours: Neighbours = "substitute",
    ) -> None:
        self.model, self.records = model, records
        self._public_data, self._neighbours = public_data, neighbours
        space, likelihood = records.space, records.likelihood
        informed = set(likelihood.data_coordinates.tolist())
        #: parameters that records inform, and their places in the model's vector
        self.layout = VectorLayout(
            {
                name: space.shapes[name]
                for name, where in space.slices.items()
                if not informed.isdisjoint(range(where.start, where.stop))
            }
        )
        if not self.layout.size:
            raise ValueError(
                f"No parameter is informed by the records of {likelihood.names}: their "
                "log-likelihood does not depend on any."
            )
        self.coordinates = np.concatenate(
            [np.arange(space.size)[space.slices[name]] for name in self.layout.shapes]
        )
        self.observed = tuple(str(rv.name) for rv in model.observed_RVs)
        self.graph: ScoreGraph = score_graph(
            model, self.observed, self.layout, confidential.count_records(model)
        )

    def bound(self, wanted: Bound | None, like: "ConfidentialScores | None" = None) -> Bound:
        """How scores are held: as asked for, or by covariates where there are some.

        What another of the same model has compiled, `like`, serves here.
        """
        if wanted not in (None, "length", "covariates"):
            raise ValueError(f'bound must be "length" or "covariates", not {wanted!r}.')
        if wanted == "length" or (wanted is None and not self.graph.has_covariates):
            _ = self.records.gradients  # compiled
            return "length"
        try:
            if not self.graph.has_covariates:
                raise ValueError("there are none, or no rule for such a likelihood")
            self._compile_covariates(None if like is None else like._by_covariates)
        except (NotImplementedError, TypeError, ValueError) as error:
            if wanted is None:
                return "length"
            raise ValueError(
                f"Scores of {self.records.likelihood.names} cannot be held by their covariates "
                f'({error}): write bound="length".'
            ) from error
        return "covariates"

    def _compile_covariates(self, like: RecordTotal | None) -> None:
        directions, clip = pt.dmatrix("directions"), pt.dscalar("clip")
        held = self.graph.held("covariates", directions, clip)
        inputs = [self.graph.theta, directions, clip]
        total = self._record_total(self.records.likelihood.names, inputs, held, like)
        away = np.random.default_rng(0).normal(size=self.layout.size)
        total.check_apart(away, np.eye(self.layout.size), np.array(1.0))
        self._by_covariates = total

    def _record_total(
        self, names: str, inputs: list[Variable], parts: Variable, like: RecordTotal | None = None
    ) -> RecordTotal:
        total = RecordTotal(names, inputs, parts, self.model, self.records, self._public_data, like)
        if total.by_place and self._neighbours == "add_remove":
            raise ValueError(
                f"{names} uses records' places in the order, which others change by leaving: pass "
                'what belongs to each record as an array, or use neighbours="substitute".'
            )
        return total

    def parts(self, bound: Bound, place: Vector, basis: Matrix, clip: float) -> Matrix:
        """Held scores, one record a column: of simulated records, which are not confidential."""
        if bound == "covariates":
            directions = np.ascontiguousarray(basis.T)
            return self._by_covariates.parts(place, directions, np.array(clip))
        theta, whole = self._in_model(place, basis)
        self.records.gradients.prepare(whole)
        score = np.hstack(list(self.records.gradients.jacobians(theta)))
        length = np.linalg.norm(score, axis=0)
        return score * np.minimum(1.0, clip / np.maximum(length, 1e-300))

    def total(self, bound: Bound, place: Vector, basis: Matrix, clip: float) -> list[int]:
        """Sum of the held scores at a place, in units of ``clip / CLIPPED / GRADIENT_LEVELS``."""
        if bound == "covariates":
            directions = np.ascontiguousarray(basis.T)
            total = self._by_covariates(clip / CLIPPED, place, directions, np.array(clip))
            return total.tolist()
        theta, whole = self._in_model(place, basis)
        gradients = self.records.gradients
        gradients.prepare(whole)
        return gradients.total(theta, clip / CLIPPED).tolist()

    def _in_model(self, place: Vector, basis: Matrix) -> tuple[Vector, Matrix]:
        """Place and basis in the model's whole vector."""
        theta = self.records.space.start.copy()
        whole = np.zeros((theta.size, basis.shape[1]))
        theta[self.coordinates], whole[self.coordinates] = place, basis
        return theta, whole

    def statistic(self, name: str, statistic: Statistic, clip: float) -> Callable[[], list[int]]:
        """Compile the sum of a user's function of the records, held by length."""
        known = zip(self.arrays, self.graph.arrays, strict=True)
        arrays = {each.name: array for each, array in known if each.name}
        rows = named_statistic(name, statistic, arrays)
        confidential.refuse_arrays_beside(f"also={name!r}", rows, list(arrays.values()))
        parts = held_by_length(rows, clip)
        total = self._record_total(f"also={name!r}", [], parts)
        total.check_apart()
        return lambda: total(clip / CLIPPED).tolist()

    def tried(self, place: Vector) -> Matrix | None:
        """Density of made-up records, by which analysts' models are compared.

        None where some array of the records is not replaced by made-up ones: those that have
        records along another axis would be looked at without noise.
        """
        sources, axes = confidential.record_arrays(
            self.graph.logp,
            self.model,
            confidential.count_records(self.model),
            self._public_data,
        )
        if any(axes) or not set(sources) <= set(self.graph.arrays):
            return None
        try:
            self.graph.tried(place, len(self.observed), 7)  # or None would tell of six records
            return self.graph.tried(place, len(self.observed))
        except SHAPE_ERRORS:
            return None

    @property
    def arrays(self) -> tuple[RecordArray, ...]:
        """What a record consists of."""
        names: dict[Variable, str] = {data: str(data.name) for data in self.model.data_vars}
        names |= dict(zip(self.graph.arrays, self.observed, strict=False))
        return tuple(record_arrays(self.graph, names))
