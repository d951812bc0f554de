"""Mean and covariance of sums over records, as functions of the parameters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Constant
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import ExponentialRV, GammaRV, NormalRV

from pymc_dp.analyst.marginal.held import held
from pymc_dp.analyst.marginal.normal.kinks import kinks_of
from pymc_dp.analyst.marginal.normal.nodes import Table, aligned_bounds, node_table, uncensored
from pymc_dp.analyst.marginal.normal.partial_moments import (
    LARGEST_SHAPE,
    PartialMoments,
    gamma_partial_moments,
    normal_partial_moments,
)
from pymc_dp.analyst.marginal.normal.piecewise import PiecewisePolynomials, piecewise_polynomials
from pymc_dp.analyst.marginal.normal.places import TooManyNodesError
from pymc_dp.analyst.marginal.normal.simulated import simulated_table
from pymc_dp.analyst.marginal.normal.size import UnknownSize
from pymc_dp.analyst.privatized import concrete_shape
from pymc_dp.analyst.records import RecordBlock, length_of
from pymc_dp.analyst.unknown_size import presences
from pymc_dp.graph.additivity import (
    Additive,
    NotAdditiveError,
    PerRecord,
    direct_inputs,
    per_record_forms,
)
from pymc_dp.graph.rows import distinct_rows, on_rows, without_shapes
from pymc_dp.types import Variable

__all__ = ["Contributions", "Moments", "aligned_parameters"]


@dataclass(frozen=True)
class Moments:
    """Mean and covariance of the totals of a block, flat and one after the other.

    Attributes
    ----------
    means : list of scalars
        Of every total.
    covariances : list of lists of scalars
        The lower triangle.
    """

    means: list[Variable]
    covariances: list[list[Variable]]

    def __len__(self) -> int:
        return len(self.means)


class Contributions:
    """What a record of a block adds to its totals, on rows that stand for kinds of records."""

    def __init__(self, model: pm.Model, block: RecordBlock) -> None:
        self.model = model
        self.parameters = [rv for rv in model.basic_RVs if rv not in block.records]
        self.n = length_of(block.records[0])
        #: the number of records, where it is not known
        self.size: UnknownSize | None = None
        for there in presences(block.contributions, model.basic_RVs):
            self.size = UnknownSize(model, there)
            contributions = self.size.all_there(block.contributions)
            block = replace(block, contributions=contributions)
        self.block = block
        self._tables: dict[int, Table] = {}
        outputs = [(contribution, 0) for contribution in block.contributions]
        for rv in block.records:
            outputs += [(p, 0) for p in aligned_parameters(uncensored(rv))] + aligned_bounds(rv)
        #: a record of every kind, and how many there are of it
        self.index, counts = distinct_rows(outputs, block.records, self.n, self.parameters)
        self.counts = counts
        #: the same as a graph, which an unknown number enters
        self.sizes: Variable = pt.constant(counts.astype(np.float64))
        if self.size is not None:
            if len(counts) > 1:
                raise NotAdditiveError(
                    f"records of unknown number {self.size.name!r} differ in public values"
                )
            self.sizes = pt.stack([self.size.number])

    def closed_form(self) -> Moments | None:
        """Write moments in closed form: of piecewise polynomials of one normal or gamma variable.

        Gamma variables must have a shape that is known, and exponential ones have.
        """
        found = self._standardised()
        polynomials = None if found is None else self._polynomials()
        if found is None or polynomials is None:
            return None
        means, covariances = polynomials.moments(*found)
        return Moments(
            [self._total(mean) for mean in means],
            [[self._total(entry) for entry in row] for row in covariances],
        )

    def _standardised(self) -> tuple[Any, Variable, PartialMoments] | None:
        """Place and scale of the one record variable, and integrals of what is left of it."""
        [record, *more] = self.block.records
        if more or record.type.ndim != 1:
            return None
        op, aligned = record.owner.op, [(p, 0) for p in aligned_parameters(record)]
        if not isinstance(op, NormalRV | GammaRV | ExponentialRV):
            return None
        on = on_rows(aligned, {}, self.index, self.parameters)
        first, *rest = [p[0] if p.type.shape[0] == 1 else p for p in on]
        if isinstance(op, NormalRV):
            return first, rest[0], normal_partial_moments
        if isinstance(op, ExponentialRV):
            return 0.0, first, gamma_partial_moments(1.0)
        if any(v.owner is None and not isinstance(v, Constant) for v in ancestors([first])):
            return None  # the gradient by a shape takes longer than nodes
        shape = first.eval()
        if not np.all((shape > 0) & (shape <= LARGEST_SHAPE)):
            return None
        return 0.0, rest[0], gamma_partial_moments(shape)

    def _polynomials(self) -> PiecewisePolynomials | None:
        """Contributions as piecewise polynomials of the one record variable, if they are such."""
        [record] = self.block.records
        plain = without_shapes(self.block.contributions, [record], self.parameters)
        used = direct_inputs(plain, self.model.basic_RVs)
        if not set(used) <= {record}:
            return None
        kinks = kinks_of(self.block.contributions, [record], record, self.parameters, self.index)
        return piecewise_polynomials(self.block.contributions, record, kinks, self.index)

    def by_nodes(self, order: int) -> Moments:
        """Write moments as sums over nodes of the records' distribution."""
        table = self.table(order)
        columns = self.columns(table)
        d, many = columns.type.shape[1], len(table.index) // table.kinds
        means = table.mean(columns)
        numbers = table.weights * pt.repeat(self.sizes, many)
        totals = numbers @ columns
        # about a centre that gradients do not see: its own part of them is zero
        centre = held(means)
        centred = columns - pt.repeat(centre, many, axis=0)
        off = means - centre
        spread = (centred * numbers[:, None]).T @ centred - (off * self.sizes[:, None]).T @ off
        covariances = [[spread[i, j] for j in range(i + 1)] for i in range(d)]
        return Moments([totals[i] for i in range(d)], covariances)

    def table(self, order: int) -> Table:
        """Nodes of the records' distribution; simulated ones where a grid is too large."""
        if order not in self._tables:
            given = self.model, self.block, self.index
            try:
                self._tables[order] = node_table(*given, order)
            except TooManyNodesError:
                self._tables[order] = simulated_table(*given, 512 * order, seed=order)
        return self._tables[order]

    def columns(self, table: Table) -> Variable:
        """Contributions of the rows of a table, of shape (rows, totals)."""
        outputs = [(contribution, 0) for contribution in self.block.contributions]
        found = on_rows(outputs, table.values, table.index, self.parameters)
        rows = len(table.index)
        parts = [
            _table(part, rows, total) for part, total in zip(found, self.block.totals, strict=True)
        ]
        return pt.concatenate(parts, axis=1)

    def constants(self) -> list[Variable]:
        """Write what is added to the sums over records, for every total: no records enter it."""
        result = []
        for total in self.block.totals:
            constant = _constant(total, self.block.records, self.parameters)
            constant = (self.size.in_number(constant) if self.size else constant).ravel()
            size = int(np.prod(total.type.shape))
            result += [constant[i].astype("float64") for i in range(size)]
        return result

    def _total(self, one: Any) -> Variable:
        """Sum a moment over all records, given that of one of each kind."""
        one = pt.as_tensor(np.float64(one) if isinstance(one, float) else one)
        if one.type.ndim == 0:
            return one * (np.float64(self.n) if self.size is None else self.size.number)
        return (self.sizes * one).sum()


def _table(part: Variable, rows: int, total: Variable) -> Variable:
    size = int(np.prod(total.type.shape))
    flat = part.astype("float64").reshape((part.shape[0], size))
    whole: Any = pt.alloc(flat, rows, size)
    return pt.specify_shape(whole, (rows, size))


def aligned_parameters(rv: Any) -> list[Variable]:
    """Parameters of a record variable's distribution, records along their first axes."""
    op = rv.owner.op
    if not hasattr(op, "dist_params"):
        return []
    found = []
    for parameter, core in zip(op.dist_params(rv.owner), op.ndims_params, strict=True):
        missing = rv.type.ndim - op.ndim_supp - (parameter.type.ndim - core)
        found.append(pt.expand_dims(parameter, tuple(range(missing))) if missing else parameter)
    return found


def _constant(total: Variable, records: list[Any], fixed: list[Any]) -> Variable:
    """Statistic of no records: sums over them are left out."""
    [total] = without_shapes([total], records, fixed)
    forms = per_record_forms(total, dict.fromkeys(records, 0), fixed=fixed)
    sums = {
        var: pt.zeros(concrete_shape(var), dtype=var.dtype)
        for var, form in forms.items()
        if isinstance(form, Additive)
        and any(isinstance(forms.get(inp), PerRecord) for inp in var.owner.inputs)
    }
    return graph_replace([total], sums, strict=False)[0]
