"""Clipped sums of per-record gradients of a model's log-likelihood."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.gradient import pushforward
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import ancestors
from pytensor.scalar import basic as ps
from pytensor.tensor.elemwise import Elemwise

from pymc_dp.entries import Entries, find_entries
from pymc_dp.kernels.gradient import (
    clipped_entry_total,
    clipped_gradient_total,
    clipped_score_total,
    clipped_value_total,
    column_lengths,
)
from pymc_dp.likelihood import RecordLikelihood

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Variable = Any  # of a PyTensor graph

_BLOCK_BYTES = 2**20  # of a block's gradients: stays in the processor's cache
_STEPS = (ps.Floor, ps.Ceil, ps.Trunc, ps.RoundHalfToEven, ps.RoundHalfAwayFromZero, ps.IntDiv)


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
    Where parameters meet the records elementwise or in linear predictors (:mod:`pymc_dp.entries`),
    a record's gradient costs no more than in plain reverse mode, and where it is a score times a
    row of covariates it is never made. Otherwise one vectorised forward-mode pass gives the
    gradients. Records are worked through in blocks, so that memory does not grow with their number
    times the number of coordinates.
    """

    def __init__(
        self, likelihood: RecordLikelihood, compile_kwargs: dict[str, Any] | None = None
    ) -> None:
        self.likelihood = likelihood
        theta, rows, logp = likelihood.graph
        _refuse_steps(logp, theta)
        directions = pt.dmatrix("directions")
        options = {"on_unused_input": "ignore"} | (compile_kwargs or {})

        def compiled(inputs: Sequence[Variable], outputs: Any) -> Callable[..., Any]:
            function = pytensor.function(inputs, outputs, **options)
            function.trust_input = True
            return function

        try:
            entries = find_entries(logp, theta, rows, likelihood.axes)
            self.kind = _kind(entries)
            if entries is None:
                spread = _along(logp, theta, directions)
                self._jacobian = compiled([theta, directions, *rows], spread)
            else:
                values = pt.concatenate([*entries.values, *entries.coefficients])
                self._slopes = compiled([theta, directions], _along(values, theta, directions))
                self._pieces = compiled([theta, *rows], _pieces(entries, self.kind))
                self._covariates = compiled(rows, entries.covariates)
        except (NotImplementedError, TypeError, ValueError) as error:
            raise ValueError(
                f"The log-likelihood of {likelihood.names} has no gradient ({error}): write it "
                "with differentiable operations, or use pymc_dp.DPPenalty, which needs none."
            ) from error
        self.forget()

    def forget(self) -> None:
        """Drop what was computed from the data."""
        self._rows: list[Matrix] = []
        self._columns: NDArray[np.float32] | None = None
        self._lengths: Vector | None = None

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        return state | {"_rows": [], "_columns": None, "_lengths": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for name in ("_jacobian", "_slopes", "_pieces", "_covariates"):
            if name in state:
                state[name].trust_input = True

    def prepare(self, basis: Matrix) -> None:
        """Choose coordinates, and compute from the data what stays the same over a chain.

        Parameters
        ----------
        basis : ndarray
            Gradients are by the coordinates q of ``theta = constant + basis @ q``.
        """
        with np.errstate(all="ignore"):  # a warning would tell that some record is out of range
            self._prepare(basis)

    def _prepare(self, basis: Matrix) -> None:
        self.forget()
        self._directions = np.ascontiguousarray(basis.T)
        self.size = len(self._directions)
        self._block = max(256, _BLOCK_BYTES // (8 * self.size))
        if not self._splits(len(basis)):
            self._block = self.likelihood.n_records
        if self.kind == "forward":
            return
        points = np.random.default_rng(0).normal(size=(2, len(basis)))
        slopes, again = (self._slopes(point, self._directions) for point in points)
        rows = self._covariates(*self.likelihood.data)
        self._widths = [len(each.T) for each in rows]
        first = slopes.shape[1] - sum(self._widths)
        if not np.array_equal(slopes[:, first:], again[:, first:]):
            self._rows = rows
            return
        # coefficients are parameters, and the predictors' gradients stay the same over a chain
        shape = (len(rows), self.size, self.likelihood.n_records)
        self._columns = np.empty(shape, dtype=np.float32)
        for part in self._parts():
            for columns, slope, each in zip(
                self._columns, self._by_predictor(slopes), rows, strict=True
            ):
                columns[:, part] = slope @ each[part].T
        if self.kind == "rows":
            self._lengths = column_lengths(self._columns[0])

    def total(self, theta: Vector, bound: float) -> NDArray[np.int64]:
        """Sum of the gradients at `theta`, each clipped, in units of ``bound / LEVELS``."""
        total = np.zeros(self.size, dtype=np.int64)
        with np.errstate(all="ignore"):
            if self._columns is None and self.kind != "values":
                for jacobian in self.jacobians(theta):
                    total += clipped_gradient_total(jacobian, bound)
                return total
            slopes = self._slopes(theta, self._directions)
            for part, rows in self._blocks():
                pieces = [np.ascontiguousarray(piece) for piece in self._pieces(theta, *rows)]
                total += self._block_total(slopes, part, pieces, bound)
        return total

    def _block_total(
        self, slopes: Matrix, part: slice, pieces: list[Any], bound: float
    ) -> NDArray[np.int64]:
        if self.kind == "values":
            return clipped_value_total(slopes, tuple(pieces), bound)
        assert self._columns is not None
        if self._lengths is not None:
            columns, scores = self._columns[0, :, part], pieces[1][0]
            return clipped_score_total(scores, columns, self._lengths[part], bound)
        by_value, scores = pieces
        slopes = slopes[:, : by_value.shape[1]]
        return clipped_entry_total(slopes, by_value, scores, self._columns[:, :, part], bound)

    def jacobians(self, theta: Vector) -> Iterator[Matrix]:
        """Gradients block by block, one coordinate a row."""
        if self.kind == "forward":
            for _, rows in self._blocks():
                yield self._jacobian(theta, self._directions, *rows)
            return
        slopes = self._slopes(theta, self._directions)
        for part, rows in self._blocks():
            pieces = self._pieces(theta, *rows)
            if self.kind == "values":
                yield slopes @ np.stack(pieces)
            else:
                yield self._assembled(slopes, part, *pieces)

    def _assembled(self, slopes: Matrix, part: slice, pieces: Matrix, scores: Matrix) -> Matrix:
        """Chain rule: pieces by the values and predictors, times their slopes."""
        jacobian = slopes[:, : pieces.shape[1]] @ pieces.T
        for number, slope in enumerate(self._by_predictor(slopes)):
            if self._columns is not None:
                columns = self._columns[number][:, part]
            else:
                columns = slope @ self._rows[number][part].T
            jacobian += columns * scores[number]
        return jacobian

    def _by_predictor(self, slopes: Matrix) -> list[Matrix]:
        """Slopes of each predictor's coefficients, which come after those of the values."""
        ends = slopes.shape[1] - np.cumsum([0, *self._widths[::-1]])[::-1]
        return np.split(slopes, ends, axis=1)[1:-1]

    def _splits(self, size: int) -> bool:
        """Whether some records' gradients can be computed without the others."""
        some = [np.zeros(size), *self.likelihood.part(slice(0, 2))]
        try:
            if self.kind == "forward":
                return self._jacobian(some[0], self._directions, *some[1:]).shape[1] == 2
            pieces = self._pieces(*some)
            return all(len(np.moveaxis(p, i % p.ndim, 0)) == 2 for i, p in enumerate(pieces))
        except Exception:  # the number of records is written into the graph
            return False

    def _parts(self) -> Iterator[slice]:
        for start in range(0, self.likelihood.n_records, self._block):
            yield slice(start, min(start + self._block, self.likelihood.n_records))

    def _blocks(self) -> Iterator[tuple[slice, list[NDArray[Any]]]]:
        for part in self._parts():
            yield part, self.likelihood.part(part)


def _pieces(entries: Entries, kind: str) -> list[Variable]:
    """One vector for every value; or a column for every value, and a row for every predictor."""
    if kind == "values":
        return [column[:, 0].astype("float32") for column in entries.value_gradients]
    number = [*entries.value_gradients, *entries.scores][0].shape[0]
    pieces, scores = pt.zeros((number, 0), dtype="float32"), pt.zeros((0, number))
    if entries.value_gradients:
        pieces = pt.concatenate(entries.value_gradients, axis=1).astype("float32")
    if entries.scores:
        scores = pt.stack(entries.scores)
    return [pieces, scores]


def _along(outputs: Variable, theta: Variable, directions: Variable) -> Variable:
    """Differentiate along directions, one a row, in one vectorised forward-mode pass."""
    direction = pt.dvector("direction")
    pushed: Any = pushforward(outputs, theta, direction, disconnected_outputs="ignore")
    if direction not in set(ancestors([pushed])):
        raise ValueError("it is zero everywhere")
    return vectorize_graph(pushed, {direction: directions})


def _kind(entries: Entries | None) -> str:
    if entries is None:
        return "forward"
    if not entries.values and len(entries.scores) == 1:
        return "rows"
    if not entries.scores and all(value.type.shape == (1,) for value in entries.values):
        return "values"
    return "entries"


def _refuse_steps(logp: Variable, theta: Variable) -> None:
    """Refuse parameters that are rounded on their way to the likelihood."""
    moving = {theta}
    for node in FunctionGraph(outputs=[logp], clone=False).toposort():
        if moving.isdisjoint(node.inputs):
            continue
        scalar = node.op.scalar_op if isinstance(node.op, Elemwise) else None
        if isinstance(scalar, _STEPS):
            raise ValueError(
                f"The likelihood rounds a parameter (`{type(scalar).__name__}`), so that its "
                "gradient is zero: leave the rounding out, or use pymc_dp.DPPenalty, which needs "
                "no gradient."
            )
        moving.update(node.outputs)
