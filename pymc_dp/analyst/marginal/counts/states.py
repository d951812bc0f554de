"""Every state that a record may be in, its probability, and what it adds to releases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.random.basic import BernoulliRV, BinomialRV, CategoricalRV
from scipy import sparse
from scipy.special import comb

from pymc_dp.analyst.marginal.normal.moments import aligned_parameters
from pymc_dp.analyst.marginal.values import finite_values
from pymc_dp.graph.additivity import direct_inputs
from pymc_dp.graph.intervals import ONCE
from pymc_dp.graph.rows import on_rows
from pymc_dp.types import Variable

__all__ = ["JointStates", "number_of_states", "same_rows"]

#: numbers that are evaluated at once
_CHUNK = 2_000_000


def number_of_states(records: Sequence[Any]) -> float:
    """Count the states of a record: combinations of all its values. Nothing is allocated."""
    return float(np.prod([float(len(_values(rv))) ** _columns(rv) for rv in records]))


def _values(rv: Any) -> range:
    found = finite_values(rv)
    assert found is not None
    return found


def _columns(rv: Any) -> int:
    """Count the numbers that one record has in a variable."""
    return int(np.prod(rv.type.shape[1:], dtype=float))


def _sides(columns: dict[Any, list[int]]) -> list[int]:
    return [len(_values(rv)) for rv, used in columns.items() for _ in used]


@dataclass(frozen=True)
class JointStates:
    """States of a record, for every kind of record (a distinct row of public covariates).

    Attributes
    ----------
    records : list of TensorVariable
        Record variables, parents before children.
    parameters : list of TensorVariable
        The model's other variables.
    index : array of int, shape (kinds,)
        A record of every kind.
    values : dict
        Value of every record variable in each state, of shape (states, ...).
    columns : dict
        Numbers of each variable that are part of the state. Others sum to one, whatever they are.
    """

    records: list[Any]
    parameters: list[Any]
    index: NDArray[np.int64]
    values: dict[Any, NDArray]
    columns: dict[Any, list[int]]

    @classmethod
    def of(cls, records: list[Any], parameters: list[Any], index: NDArray[np.int64]) -> JointStates:
        """List the states of records with finitely many values."""
        columns = {rv: list(range(_columns(rv))) for rv in records}
        sides = _sides(columns)
        digits = np.unravel_index(np.arange(int(np.prod(sides))), sides)
        values, start = {}, 0
        for rv in records:
            stop = start + _columns(rv)
            whole = np.stack(digits[start:stop], axis=1) + _values(rv).start
            values[rv] = whole.reshape(-1, *rv.type.shape[1:]).astype(rv.dtype)
            start = stop
        return cls(records, parameters, index, values, columns)

    @property
    def size(self) -> int:
        """Number of states."""
        return len(self.values[self.records[0]])

    @property
    def kinds(self) -> int:
        """Number of kinds of records."""
        return len(self.index)

    def kept(self, chosen: NDArray[np.int64]) -> JointStates:
        """Keep some of the states."""
        values = {rv: value[chosen] for rv, value in self.values.items()}
        return replace(self, values=values)

    def without_unused(self, group: NDArray[np.int64]) -> tuple[JointStates, NDArray[np.int64]]:
        """Leave out what neither releases nor other variables depend on.

        Parameters
        ----------
        group : array of int, shape (states,)
            Which of all states releases do not tell apart.

        Returns
        -------
        states : JointStates
            Those that are left: one of each that differ in nothing but what is left out.
        chosen : array of int
            Which of all states they are.
        """
        grid = group.reshape(_sides(self.columns))
        places = np.arange(grid.size).reshape(grid.shape)
        kept: dict[Any, list[int]] = {}
        for rv in reversed(self.records):  # children first
            before = sum(len(self.columns[r]) for r in self.records[: self.records.index(rv)])
            children = [c for c in kept if rv in direct_inputs(c.owner.inputs, self.records)]
            kept[rv] = []
            for i, column in enumerate(self.columns[rv]):
                first = np.take(grid, [0], axis=before + i)
                if np.all(grid == first) and not any(kept[child] for child in children):
                    grid, places = first, np.take(places, [0], axis=before + i)
                else:
                    kept[rv].append(column)
        chosen = places.ravel()
        return replace(self.kept(chosen), columns={rv: kept[rv] for rv in self.records}), chosen

    def log_probabilities(self) -> Variable:
        """Log-probability of every state given the parameters, of shape (kinds, states).

        A factor for each record variable, from the distribution that the model gives it: computed
        for distinct values of its parents, and then looked up for every state.
        """
        total: Any = None
        for rv in (rv for rv in self.records if self.columns[rv]):
            factor = self._factor(rv)
            total = factor if total is None else total + factor
        if total is None:
            total = pt.zeros(self.kinds * self.size)
        return pt.specify_shape(total.reshape((self.kinds, self.size)), (self.kinds, self.size))

    def _factor(self, rv: Any) -> Variable:
        """Log-probability of a variable's value in every state, given its parents': flat."""
        parents = direct_inputs(rv.owner.inputs, self.records)
        coded = [self.values[p].reshape(self.size, -1) for p in parents]
        coded = [np.zeros((self.size, 1), dtype=np.int64), *coded]
        _, first, which = np.unique(
            np.concatenate(coded, axis=1), axis=0, return_index=True, return_inverse=True
        )
        rows = np.repeat(self.index, len(first))
        given = {
            p: pt.constant(np.tile(self.values[p][first], (self.kinds, *[1] * (p.type.ndim - 1))))
            for p in parents
        }
        table = self._log_table(rv, given, rows)
        values, columns = _values(rv), _columns(rv)
        used = np.array(self.columns[rv])
        own = self.values[rv].reshape(self.size, columns).astype(np.int64)[:, used] - values.start
        row = (np.arange(self.kinds)[:, None] * len(first) + which.ravel()).ravel()
        place = row[:, None] * columns + used
        place = place * len(values) + np.tile(own, (self.kinds, 1))
        return table.ravel()[pt.constant(place)].sum(axis=1)

    def _log_table(self, rv: Any, given: dict[Any, Any], rows: NDArray[np.int64]) -> Variable:
        """Log-probabilities of a variable's values, of shape (rows, columns, values)."""
        outputs = [(parameter, 0) for parameter in aligned_parameters(rv)]
        found = on_rows(outputs, given, rows, self.parameters)
        values, op = _values(rv), rv.owner.op
        shape = (len(rows), *rv.type.shape[1:], len(values))
        if isinstance(op, CategoricalRV):
            return pt.alloc(pt.log(found[0].astype("float64")), *shape)
        if isinstance(op, BernoulliRV):
            p = found[0].astype("float64")
            return pt.alloc(pt.stack([pt.log1p(-p), pt.log(p)], axis=-1), *shape)
        if isinstance(op, BinomialRV) and np.all(found[0].eval(mode=ONCE) == values[-1]):
            k, p = np.array(values, dtype=np.float64), found[1].astype("float64")[..., None]
            ways = np.log(comb(values[-1], k))
            return pt.alloc(ways + k * pt.log(p) + k[::-1].copy() * pt.log1p(-p), *shape)
        rng = rv.owner.inputs[0]
        one: Any = op.make_node(rng, None, *[p[..., None] for p in found]).outputs[1]
        value = pt.constant(np.array(values, dtype=rv.dtype))
        return pt.alloc(pm.logp(one, value, warn_rvs=False), *shape)

    def contributions(self, graph: Variable, size: int) -> Any:
        """Evaluate what a record in each state adds to a total.

        The result is a sparse matrix, one row a kind and state.

        Parameters
        ----------
        graph : TensorVariable
            What each record of the model adds, of shape (n, ...).
        size : int
            Number of entries of the total.
        """
        rows, step = self.kinds * self.size, max(1, _CHUNK // max(size, 1))
        parts = []
        for start in range(0, rows, step):
            place = np.arange(start, min(start + step, rows))
            kind, state = np.divmod(place, self.size)
            given = {rv: pt.constant(value[state]) for rv, value in self.values.items()}
            [found] = on_rows([(graph, 0)], given, self.index[kind], self.parameters)
            _check_public(found, self.parameters)
            value = pytensor.function([], found.astype("float64"), mode=ONCE)()
            flat = np.broadcast_to(value, (len(place), *value.shape[1:]))
            parts.append(sparse.csr_array(flat.reshape(len(place), size)))
        return sparse.csr_array(sparse.vstack(parts, format="csr"))


def _check_public(graph: Variable, parameters: Sequence[Any]) -> None:
    """Refuse contributions that anything but constants and the records enters."""
    used = direct_inputs([graph], parameters)
    used = used or [var for var in graph_inputs([graph]) if not isinstance(var, Constant)]
    if used:
        names = ", ".join(repr(var.name) for var in used)
        raise ValueError(f"what one record adds also depends on {names}, which may change")


def same_rows(matrix: Any, blocks: int) -> NDArray[np.int64]:
    """Tell which rows of a sparse matrix are alike in all of its blocks of rows.

    Returns
    -------
    array of int
        For every row of a block the number of its group, in order of appearance.
    """
    matrix.sort_indices()
    matrix.eliminate_zeros()
    size, ends = matrix.shape[0] // blocks, matrix.indptr
    known: dict[Any, int] = {}
    group = np.empty(size, dtype=np.int64)
    for i in range(size):
        spans = [slice(ends[r], ends[r + 1]) for r in range(i, matrix.shape[0], size)]
        alike = tuple((matrix.indices[s].tobytes(), matrix.data[s].tobytes()) for s in spans)
        group[i] = known.setdefault(alike, len(known))
    return group
