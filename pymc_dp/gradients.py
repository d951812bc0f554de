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
from pytensor.scalar import basic as ps
from pytensor.tensor.elemwise import Elemwise

from pymc_dp.entries import Entries, find_entries
from pymc_dp.kernels.gradient import (
    clipped_gradient_total,
    clipped_product_total,
    clipped_score_total,
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
                outputs = [*entries.value_gradients, *entries.scores]
                if self.kind == "values":
                    outputs = [pt.stack([column[:, 0] for column in entries.value_gradients])]
                self._scores = compiled([theta, *rows], outputs)
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
        self._predictors: list[Matrix] = []
        self._lengths: Vector | None = None

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for name in ("_jacobian", "_slopes", "_scores", "_covariates"):
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
        if np.array_equal(slopes[:, first:], again[:, first:]):  # coefficients are parameters
            parts = np.split(slopes, first + np.cumsum([0, *self._widths]), axis=1)[1:]
            pairs = zip(parts[:-1], rows, strict=True)
            self._predictors = [np.ascontiguousarray(part @ each.T) for part, each in pairs]
            if self.kind == "rows":
                self._lengths = column_lengths(self._predictors[0])
        else:
            self._rows = rows

    def total(self, theta: Vector, bound: float) -> NDArray[np.int64]:
        """Sum of the gradients at `theta`, each clipped, in units of ``bound / LEVELS``."""
        total = np.zeros(self.size, dtype=np.int64)
        with np.errstate(all="ignore"):
            if self._lengths is not None:
                (predictors,), lengths = self._predictors, self._lengths
                for part, rows in self._blocks():
                    (scores,) = self._scores(theta, *rows)
                    columns = predictors[:, part]
                    total += clipped_score_total(scores, columns, lengths[part], bound)
            elif self.kind == "values":
                slopes = self._slopes(theta, self._directions)
                for _, rows in self._blocks():
                    (pieces,) = self._scores(theta, *rows)
                    total += clipped_product_total(slopes, pieces, bound)
            else:
                for jacobian in self.jacobians(theta):
                    total += clipped_gradient_total(jacobian, bound)
        return total

    def jacobians(self, theta: Vector) -> Iterator[Matrix]:
        """Gradients block by block, one coordinate a row."""
        if self.kind == "forward":
            for _, rows in self._blocks():
                yield self._jacobian(theta, self._directions, *rows)
            return
        slopes = self._slopes(theta, self._directions)
        if self.kind == "values":
            for _, rows in self._blocks():
                yield slopes @ self._scores(theta, *rows)[0]
            return
        for part, rows in self._blocks():
            yield self._assembled(slopes, part, self._scores(theta, *rows))

    def _splits(self, size: int) -> bool:
        """Whether some records' gradients can be computed without the others."""
        some = [np.zeros(size), *self.likelihood.part(slice(0, 2))]
        try:
            if self.kind == "forward":
                return self._jacobian(some[0], self._directions, *some[1:]).shape[1] == 2
            return all(2 in piece.shape for piece in self._scores(*some))
        except Exception:  # the number of records is written into the graph
            return False

    def _assembled(self, slopes: Matrix, part: slice, pieces: list[NDArray[Any]]) -> Matrix:
        """Chain rule: pieces by the values and predictors, times their slopes."""
        count = len(pieces) - len(self._widths)
        parts, place = [], 0
        for piece in pieces[:count]:
            parts.append(slopes[:, place : place + len(piece.T)] @ piece.T)
            place += len(piece.T)
        for number, (scores, width) in enumerate(zip(pieces[count:], self._widths, strict=True)):
            if self._predictors:
                columns = self._predictors[number][:, part]
            else:
                columns = slopes[:, place : place + width] @ self._rows[number][part].T
            parts.append(columns * scores)
            place += width
        return sum(parts[1:], start=parts[0])

    def _blocks(self) -> Iterator[tuple[slice, list[NDArray[Any]]]]:
        for start in range(0, self.likelihood.n_records, self._block):
            part = slice(start, min(start + self._block, self.likelihood.n_records))
            yield part, self.likelihood.part(part)


def _along(outputs: Variable, theta: Variable, directions: Variable) -> Variable:
    """Differentiate along directions, one a row, in one vectorised forward-mode pass."""
    direction = pt.dvector("direction")
    pushed: Any = pushforward(outputs, theta, direction, disconnected_outputs="ignore")
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
