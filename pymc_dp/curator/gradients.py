"""Clipped sums of per-record gradients of a model's log-likelihood."""

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.scalar import ScalarType

from pymc_dp.compat import jit_function
from pymc_dp.curator.blocks import filled_up
from pymc_dp.curator.gradient_graphs import (
    MOST_PRODUCTS,
    directional_derivatives,
    is_elementwise,
    kind_of,
    of_one_record,
    piece_graphs,
    refuse_steps,
    transposed_inputs,
)
from pymc_dp.curator.gradient_kernels import (
    CHUNK,
    MOST_COORDINATES,
    clipped_gradient_total,
    clipped_piece_total,
    clipped_score_total,
    column_lengths,
)
from pymc_dp.curator.likelihood import SHAPE_ERRORS, RecordLikelihood
from pymc_dp.curator.predictors import split_gradient
from pymc_dp.curator.value_gradient import make_value_total
from pymc_dp.graph.quick_mode import quick_mode
from pymc_dp.numerics.compiled import graph_key, joined_key
from pymc_dp.types import Matrix, Variable, Vector

_CHUNK_BYTES = 2**19  # of a chunk's gradients: stays in the processor's cache


class _Chunk(NamedTuple):
    """Some records: their arrays, and what stays the same over a chain.

    Attributes
    ----------
    rows : list
        As the compiled functions take them, in whole blocks.
    number : int
        How many of them count.
    covariates : list
        Of linear predictors.
    columns : ndarray or None
        Gradients of the predictors, one record a column, where no parameter changes them.
    lengths : ndarray or None
        Of these gradients, where there is nothing else.
    """

    rows: list[NDArray[Any]]
    number: int
    covariates: Sequence[Matrix] = ()
    columns: Any = None
    lengths: Vector | None = None


class RecordGradients:
    """Sum over the records of their clipped gradients, in coordinates of the caller's choice.

    Parameters
    ----------
    likelihood : RecordLikelihood
        The log-likelihood, whose data is used.
    compile_kwargs : dict, optional
        Passed to :func:`pytensor.function`.

    Notes
    -----
    Where parameters meet the records elementwise or in linear predictors
    (:mod:`pymc_dp.curator.predictors`), a record's gradient costs no more than in plain reverse
    mode, and where it is a score times a row of covariates it is never made. Otherwise one
    vectorised forward-mode pass gives the gradients. Records are worked through in chunks, so that
    memory does not grow with their number times the number of coordinates.
    """

    def __init__(
        self, likelihood: RecordLikelihood, compile_kwargs: dict[str, Any] | None = None
    ) -> None:
        self.likelihood = likelihood
        self._transposed: list[bool] = [False] * len(likelihood.axes)
        theta, rows, logp = likelihood.graph
        refuse_steps(logp, theta)
        directions = pt.dmatrix("directions")
        # numba's functions can be joined with kernels
        options = (
            {"on_unused_input": "ignore"} | (compile_kwargs or {}) | {"mode": quick_mode("NUMBA")}
        )

        def compiled(inputs: Sequence[Variable], outputs: Any) -> Any:
            function = pytensor.function(inputs, outputs, **options)
            function.trust_input = True
            return function

        try:
            graphs = split_gradient(logp, theta, rows, likelihood.axes)
            self.kind = kind_of(graphs)
            if graphs is None:
                spread = directional_derivatives(logp, theta, directions)
                self._jacobian = compiled([theta, directions, *rows], spread)
            else:
                parts = [part.ravel() for part in [*graphs.values, *graphs.coefficients]]
                values = pt.concatenate(parts)
                slopes = [directional_derivatives(values, theta, directions), values]
                self._slopes = compiled([theta, directions], slopes)
                inputs, self._transposed = transposed_inputs(graphs, rows, likelihood.axes)
                self._pieces = compiled([theta, *inputs], piece_graphs(graphs, rows, inputs))
                self._covariates = compiled(inputs, graphs.covariates)
                self._n_values = len(graphs.values)
                if is_elementwise(graphs, rows):
                    self._record = compiled(*of_one_record(graphs, rows))
                    made = [
                        v for node in self._record.maker.fgraph.apply_nodes for v in node.outputs
                    ]
                    if all(isinstance(variable.type, ScalarType) for variable in made):
                        self.kind = "values"
        except (NotImplementedError, TypeError, ValueError) as error:
            raise ValueError(
                f"The log-likelihood of {likelihood.names} has no gradient ({error}): write it "
                "with differentiable operations, or use pymc_dp.DPPenalty, which needs none."
            ) from error
        self._made: dict[int, Callable[..., NDArray[np.int64]]] = {}
        self.forget()

    def forget(self) -> None:
        """Drop what was computed from the data."""
        self._chunks: list[_Chunk] = []

    def on(self, likelihood: RecordLikelihood) -> "RecordGradients":
        """Use what is compiled for other records of the same model."""
        other = copy.copy(self)
        other.likelihood = likelihood
        other.forget()
        return other

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_chunks": [], "_joined": None, "_made": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for name in ("_jacobian", "_slopes", "_pieces", "_covariates"):
            if name in state:
                state[name].trust_input = True

    def prepare(self, basis: Matrix, batches: bool = False) -> None:
        """Choose coordinates, and compute from the data what stays the same over a chain.

        Parameters
        ----------
        basis : ndarray
            Gradients are by the coordinates q of ``theta = constant + basis @ q``.
        batches : bool
            Whether :meth:`batch_total` will be asked for, and not :meth:`total`.
        """
        with np.errstate(all="ignore"):  # a warning would tell that some record is out of range
            self._prepare(basis, batches)

    def _prepare(self, basis: Matrix, batches: bool) -> None:
        self.forget()
        self._directions = np.ascontiguousarray(basis.T)
        self.size = len(self._directions)
        if self.size > MOST_COORDINATES:
            raise ValueError(f"{self.size} coordinates, more than {MOST_COORDINATES}.")
        splits = self._splits(len(basis))
        if batches:
            self._prepare_batches(splits)
            return
        fits = CHUNK * max(1, _CHUNK_BYTES // (8 * self.size * CHUNK))
        self._cut(fits if splits else self.likelihood.n_records, splits)
        #: the whole of `total` as one compiled function
        self._joined = None
        if self.kind == "values" and splits and self.size * self._n_values <= MOST_PRODUCTS:
            self._joined = self._value_total()

    def _cut(self, length: int, splits: bool = True) -> None:
        """Cut the records into chunks of some length."""
        n = self.likelihood.n_records
        parts = [slice(start, min(start + length, n)) for start in range(0, n, length)]
        chunks = [self._rows(part, splits) for part in parts]
        if self.kind == "forward":
            self._chunks = chunks
            return
        points = np.random.default_rng(0).normal(size=(2, self._directions.shape[1]))
        slopes, again = (self._slopes(point, self._directions)[0] for point in points)
        self._chunks = [self._chunk(each, slopes, again) for each in chunks]

    def _rows(self, records: slice, splits: bool) -> _Chunk:
        arrays = self.likelihood.part(records)
        if not splits:
            return _Chunk(self._as_inputs(arrays), records.stop - records.start)
        filled, count = filled_up(arrays, self.likelihood.axes)
        return _Chunk(self._as_inputs(filled), count)

    def _chunk(self, chunk: _Chunk, slopes: Matrix, again: Matrix) -> _Chunk:
        covariates, count = self._covariates(*chunk.rows), chunk.number
        self._widths = [len(each.T) for each in covariates]
        first = slopes.shape[1] - sum(self._widths)
        if not np.array_equal(slopes[:, first:], again[:, first:]):
            return chunk._replace(covariates=covariates)
        # coefficients are parameters, and the predictors' gradients stay the same over a chain
        n = count if covariates else 0
        columns = np.empty((len(covariates), self.size, n), dtype=np.float32)
        for i, slope in enumerate(self._by_predictor(slopes)):
            columns[i] = (slope @ covariates[i].T)[:, :count]
        lengths = column_lengths(columns[0]) if self.kind == "rows" else None
        return chunk._replace(columns=columns, lengths=lengths)

    def total(self, theta: Vector, bound: float) -> NDArray[np.int64]:
        """Sum of the clipped gradients at `theta`, in units of ``bound / GRADIENT_LEVELS``."""
        if self._joined is not None:
            return self._joined(theta, self._directions, bound, *self.likelihood.data)
        total = np.zeros(self.size, dtype=np.int64)
        with np.errstate(all="ignore"):
            if any(chunk.columns is None for chunk in self._chunks):
                for jacobian in self.jacobians(theta):
                    total += clipped_gradient_total(jacobian, bound)
                return total
            slopes, _ = self._slopes(theta, self._directions)
            for chunk in self._chunks:
                made = (each[:, : chunk.number] for each in self._pieces(theta, *chunk.rows))
                pieces, scores = map(np.ascontiguousarray, made)
                if chunk.lengths is not None:
                    columns, lengths = chunk.columns[0], chunk.lengths
                    total += clipped_score_total(scores[0], columns, lengths, bound)
                else:
                    by_value = slopes[:, : len(pieces)]
                    total += clipped_piece_total(by_value, pieces, scores, chunk.columns, bound)
        return total

    def _prepare_batches(self, splits: bool) -> None:
        if not splits:
            raise ValueError(
                f"Gradients of some records of {self.likelihood.names} cannot be computed without "
                "the others: write the model without fixed lengths (shape=, size=) of the records, "
                "or leave batches out."
            )
        if self.kind != "forward":
            self._widths = [len(each.T) for each in self._covariates(*self._part(slice(0, 2)))]

    def batch_total(
        self, theta: Vector, bound: float, batch: NDArray[np.int64], least: int
    ) -> NDArray[np.int64]:
        """Sum of the clipped gradients of some records, in the units of :meth:`total`.

        Parameters
        ----------
        theta : ndarray
            Where.
        bound : float
            Largest length of a record's gradient that is let through.
        batch : ndarray of int64
            Which records.
        least : int
            Compute as if there were so many: time then does not tell how many there are.

        Notes
        -----
        Whole chunks are computed, those in excess for the first record, and left out of the sum:
        what a record adds does not depend on its place in the batch.
        """
        size = batch.size
        index = np.zeros(-(-max(size, least, 1) // CHUNK) * CHUNK, dtype=np.int64)
        index[:size] = batch
        rows = self._as_inputs(self.likelihood.rows(index))
        with np.errstate(all="ignore"):
            if self.kind == "forward":
                jacobian = self._jacobian(theta, self._directions, *rows)
                return clipped_gradient_total(jacobian[:, :size], bound)
            slopes, _ = self._slopes(theta, self._directions)
            pieces, scores = (each[:, :size] for each in self._pieces(theta, *rows))
            covariates = self._covariates(*rows)
            columns = np.empty((len(covariates), self.size, size), dtype=np.float32)
            for i, slope in enumerate(self._by_predictor(slopes)):
                columns[i] = (slope @ covariates[i].T)[:, :size]
            by_value = slopes[:, : len(pieces)]
            pieces, scores = map(np.ascontiguousarray, (pieces, scores))
            return clipped_piece_total(by_value, pieces, scores, columns, bound)

    def _value_total(self) -> Callable[..., NDArray[np.int64]]:
        """Join records' pieces, slopes and clipping; once for every number of coordinates."""
        if self.size not in self._made:
            functions = [self._record, self._slopes]
            pieces, slopes = (jit_function(function) for function in functions)
            shape = (len(self.likelihood.data), self._n_values, self.size)
            key = joined_key([make_value_total], graph_key(functions), str(shape))
            self._made[self.size] = make_value_total(pieces, slopes, *shape, key=key)
        return self._made[self.size]

    def jacobians(self, theta: Vector) -> Iterator[Matrix]:
        """Gradients chunk by chunk, one coordinate a row."""
        if self.kind == "forward":
            for chunk in self._chunks:
                yield self._jacobian(theta, self._directions, *chunk.rows)[:, : chunk.number]
            return
        slopes, _ = self._slopes(theta, self._directions)
        for chunk in self._chunks:
            pieces, scores = (each[:, : chunk.number] for each in self._pieces(theta, *chunk.rows))
            jacobian = slopes[:, : len(pieces)] @ pieces
            for i, slope in enumerate(self._by_predictor(slopes)):
                if chunk.columns is None:
                    along = (slope @ chunk.covariates[i].T)[:, : chunk.number]
                    jacobian += along * scores[i]
                else:
                    jacobian += chunk.columns[i] * scores[i]
            yield jacobian

    def _by_predictor(self, slopes: Matrix) -> list[Matrix]:
        """Slopes of each predictor's coefficients, which come after those of the values."""
        ends = slopes.shape[1] - np.cumsum([0, *self._widths[::-1]])[::-1]
        return np.split(slopes, ends, axis=1)[1:-1]

    def _splits(self, size: int) -> bool:
        """Whether some records' gradients can be computed without the others."""
        twice = self.likelihood.rows(np.zeros(2, dtype=np.int64))
        some = [np.zeros(size), *self._as_inputs(twice)]
        try:
            if self.kind == "forward":
                return self._jacobian(some[0], self._directions, *some[1:]).shape[1] == 2
            return all(piece.shape[1] == 2 for piece in self._pieces(*some))
        except SHAPE_ERRORS:
            return False

    def _part(self, records: slice) -> list[NDArray[Any]]:
        """Confidential arrays of consecutive records, as the compiled functions take them."""
        return self._as_inputs(self.likelihood.part(records))

    def _as_inputs(self, arrays: list[NDArray[Any]]) -> list[NDArray[Any]]:
        return [
            np.ascontiguousarray(rows.T) if transposed else rows
            for rows, transposed in zip(arrays, self._transposed, strict=True)
        ]
