"""Releases of every record by itself, with the records summed or integrated out.

Where noise was added to every record, one record's release depends on that record and the
parameters alone, so that its marginal density is a sum over the values that the record may have, or
a one-dimensional integral. The variable made here draws its releases as the model that it came from
does, records first, and has that marginal density.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytensor.tensor as pt
from pymc.distributions.distribution import support_point
from pytensor.graph.basic import Constant
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import truncated_graph_inputs
from pytensor.tensor.variable import TensorVariable

from pymc_dp.analyst.marginal.exact.distinct import over_distinct_rows
from pymc_dp.analyst.marginal.exact.mixture import record_log_density
from pymc_dp.analyst.marginal.exact.quadrature import gauss_legendre
from pymc_dp.analyst.marginal.exact.shared_grid import SharedGrid
from pymc_dp.analyst.marginal.strategy import Integrated, MarginalRV
from pymc_dp.analyst.release import Release
from pymc_dp.compat import collect_default_updates, logprob_rules, support_point_rules

__all__ = ["RecordMarginalRV", "without_records"]


class RecordMarginalRV(MarginalRV):
    """Released values of records that were integrated out.

    Its outputs are the releases, the records behind them and the generators' next states; the first
    alone are variables of a model.
    """

    _ndim_supp = 0  # a release has one number a record, independent of the others

    def __init__(
        self,
        *args: Any,
        n_releases: int,
        n_records: int,
        order: int,
        grid: SharedGrid | None,
        **kwargs: Any,
    ) -> None:
        self.n_releases = n_releases
        self.n_records = n_records
        self.order = order
        self.grid = grid
        super().__init__(*args, **kwargs)

    def joint(self, inputs: Sequence[Any]) -> tuple[list[TensorVariable], list[TensorVariable]]:
        """Releases and records as functions of the operation's inputs."""
        graphs = self.fgraph.bind(dict(zip(self.fgraph.inputs, inputs, strict=True)))
        last = self.n_releases + self.n_records
        return graphs[: self.n_releases], graphs[self.n_releases : last]


def without_records(
    releases: Sequence[TensorVariable],
    records: Sequence[TensorVariable],
    given: Sequence[TensorVariable],
    integrated: Integrated,
    order: int = 8,
    grid: SharedGrid | None = None,
) -> list[TensorVariable]:
    """Releases of the same records as one random variable without these.

    Parameters
    ----------
    releases : sequence of TensorVariable
        Privatized values of statistics that keep the records apart.
    records : sequence of TensorVariable
        The record variables behind them, parents first.
    given : sequence of TensorVariable
        Other random variables of the model, which stay.
    integrated : Integrated
        What to tell of it.
    order : int
        Nodes a piece of a quadrature, where there is one.
    grid : SharedGrid, optional
        For all records, where it serves.

    Returns
    -------
    list of TensorVariable
        One for each release.
    """
    shown = [*releases, *records]
    inputs = [
        var
        for var in truncated_graph_inputs(shown, ancestors_to_include=list(given))
        if not isinstance(var, Constant)
    ]
    updates = collect_default_updates(outputs=shown, inputs=inputs, must_be_shared=False)
    op = RecordMarginalRV(
        inputs,
        [*shown, *updates.values()],
        n_releases=len(releases),
        n_records=len(records),
        integrated=integrated,
        order=order,
        grid=grid,
    )
    return list(op.make_node(*inputs).outputs[: len(releases)])


@logprob_rules.register(RecordMarginalRV)
def _record_marginal_logprob(
    op: RecordMarginalRV, values: Sequence[TensorVariable], *inputs: Any, **kwargs: Any
) -> TensorVariable | list[TensorVariable]:
    """Joint density of a record's releases, one number a record, under the first of them."""
    releases, records = op.joint(inputs)
    rule = gauss_legendre(op.order)
    found = [Release(rv) for rv in releases]
    density = record_log_density(records, found, values, inputs, rule, op.grid)
    density = over_distinct_rows(density, inputs)
    if len(values) == 1:
        return density
    return [density, *(pt.zeros_like(density) for _ in values[1:])]


@support_point_rules.register(RecordMarginalRV)
def _record_marginal_support_point(op: RecordMarginalRV, rv: Any, *inputs: Any) -> TensorVariable:
    """Start a release that was not observed where its records' starting values put it."""
    releases: list[Any]
    releases, records = op.joint(inputs)
    which = rv.owner.outputs.index(rv)
    for record in reversed(records):
        releases = graph_replace(releases, {record: support_point(record)}, strict=False)
    return support_point(releases[which])
