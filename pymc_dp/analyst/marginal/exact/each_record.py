"""Noise on every record: each record summed or integrated out by itself, without approximation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.vartypes import continuous_types
from pytensor.graph.basic import Constant
from pytensor.tensor.variable import TensorVariable

from pymc_dp.analyst.marginal.exact.closed_forms import has_closed_form
from pymc_dp.analyst.marginal.exact.mixture import record_log_density
from pymc_dp.analyst.marginal.exact.quadrature import gauss_legendre
from pymc_dp.analyst.marginal.exact.record_marginal import without_records
from pymc_dp.analyst.marginal.exact.shared_grid import SharedGrid, shared_grid
from pymc_dp.analyst.marginal.exact.windows import LARGEST_LOG_TAIL, window
from pymc_dp.analyst.marginal.strategy import Integrated, Replacement
from pymc_dp.analyst.marginal.values import finite_values, prior_draws
from pymc_dp.analyst.records import RecordBlock, batch_ndim, length_of
from pymc_dp.analyst.release import Release, by_name, releases
from pymc_dp.compat import icdf_rules
from pymc_dp.graph.additivity import direct_inputs
from pymc_dp.graph.intervals import ONCE

__all__ = ["Exact"]

#: combinations of values that one record may have, at the most
MOST_COMBINATIONS = 512
#: nodes a piece that are tried, and the number that these are compared with
ORDERS, REFERENCE = (4, 6, 8, 12, 16), 32
#: error of the log-likelihood that a quadrature may have, as a share of it
TOLERANCE = 1e-7
#: draws of the parameters at which it is looked at, and others by which a grid is laid out
TRIALS, SHAPING = 10, 400


class Exact:
    """Strategy: where noise is on every record, a sum over its values or an integral."""

    name = "exact"

    def refusal(self, model: pm.Model, block: RecordBlock) -> str | None:
        """Say what keeps the records from being integrated out one by one."""
        if block.releases:
            sums = ", ".join(repr(release.name) for release in block.releases)
            return f"it takes noise on every record, and {sums} released sums over them."
        several = [rv for rv in block.records if batch_ndim(rv) < rv.type.ndim]
        if several:
            return f"{several[0].name!r} has dependent columns: declare each by itself."
        found = _local_releases(model, block)
        if has_closed_form(block.records, found):
            return None
        endless = [rv for rv in block.records if finite_values(rv) is None]
        if len(endless) > 1:
            names = " and ".join(repr(rv.name) for rv in endless)
            return f"{names} would make an integral of {len(endless)} dimensions a record."
        combinations = int(np.prod([_number_of_rows(rv) for rv in block.records], dtype=float))
        if combinations > MOST_COMBINATIONS:
            return (
                f"a record of {block.names} has {combinations} combinations of values, and it "
                f"takes {MOST_COMBINATIONS}."
            )
        return _endless_refusal(model, endless[0], found) if endless else None

    def preferred(self, model: pm.Model, block: RecordBlock) -> bool:
        """Prefer it: nothing is approximated."""
        return True

    def integrate(self, model: pm.Model, block: RecordBlock) -> Replacement:
        """Give the releases of these records their joint marginal law."""
        found = _local_releases(model, block)
        records = sorted(block.records, key=lambda rv: finite_values(rv) is None)
        old = [release.rv for release in found]
        given = [rv for rv in model.basic_RVs if rv not in (*records, *old)]
        order, grid, how = _numerics(model, records, found)
        names = tuple(str(rv.name) for rv in block.records)
        told = Integrated(self.name, names, length_of(records[0]), how)
        new = without_records(old, records, given, told, order, grid)
        return Replacement(records, dict(zip(old, new, strict=True)))


def _local_releases(model: pm.Model, block: RecordBlock) -> list[Release]:
    return [release for release in by_name(releases(model)) if release.name in block.factors]


def _number_of_rows(rv: TensorVariable) -> float:
    """How many values one record of a variable may have; 1 where it is integrated."""
    values = finite_values(rv)
    cells = np.prod([side or 0 for side in rv.type.shape[1:]], dtype=float)
    return 1.0 if values is None else float(len(values)) ** cells


def _endless_refusal(model: pm.Model, record: Any, found: Sequence[Release]) -> str | None:
    """Say why a record without a finite number of values cannot be integrated out."""
    if record.type.ndim != 1:
        return f"{record.name!r} has several columns: declare each by itself, of shape n."
    if record.dtype in continuous_types:
        if type(record.owner.op) not in icdf_rules.registry:
            return f"the distribution of {record.name!r} has no quantile function (icdf) in PyMC."
        return None
    listed = window(record, found, [model.rvs_to_values[release.rv] for release in found])
    return listed if isinstance(listed, str) else None


def _numerics(
    model: pm.Model, records: Sequence[Any], found: Sequence[Release]
) -> tuple[int, SharedGrid | None, str]:
    """Nodes a piece of a quadrature (any where there is none), a grid, and how it is summed."""
    last = records[-1]
    if has_closed_form(records, found):
        return 1, None, "in closed form"
    if finite_values(last) is not None:
        number = int(np.prod([_number_of_rows(rv) for rv in records]))
        return 1, None, f"summed over {number} values of a record"
    if last.dtype not in continuous_types:
        listed = window(last, found, [model.rvs_to_values[release.rv] for release in found])
        assert not isinstance(listed, str)
        if listed.lumped:
            return 1, None, f"summed over {listed.values.type.shape[0]} values of a record"
        width = listed.values.type.shape[0]
        left = f"the noise beyond is below {np.exp(LARGEST_LOG_TAIL):.0e}"
        return 1, None, f"summed over {width} values around each release; {left}"
    trial = _Trial(model, records, found)
    order, error = trial.order()
    nodes = f"{order} nodes a piece"
    grid, off = trial.grid()
    if grid is not None:
        nodes, error = f"{len(grid.nodes()[0])} nodes for all records", off
    return (
        order,
        grid,
        f"by quadrature with {nodes}; at {TRIALS} draws of the prior its "
        f"log-likelihood is off by at most {error:.0e} of its size",
    )


class _Trial:
    """Quadrature over a record of a model, at draws of the prior."""

    def __init__(self, model: pm.Model, records: Sequence[Any], found: Sequence[Release]) -> None:
        self.given = [rv for rv in model.basic_RVs if rv not in records]
        self.records, self.found = records, found
        self.values = [
            model.rvs_to_values[release.rv] if release.rv in model.observed_RVs else release.rv
            for release in found
        ]
        rule = pt.dvector(), pt.dvector()
        density = self._density(rule)
        self.params = direct_inputs([density], self.given)
        self.draws = prior_draws(self.params, TRIALS + SHAPING)
        evaluate = pytensor.function([*rule, *self.params], density.sum(), mode=ONCE)
        self._totals = lambda order: self._at_draws(evaluate, *gauss_legendre(order))
        self.truth = self._totals(REFERENCE)

    def _density(self, rule: Any, grid: SharedGrid | None = None) -> Any:
        return record_log_density(self.records, self.found, self.values, self.given, rule, grid)

    def _at_draws(self, evaluate: Any, *rule: Any) -> Any:
        return np.array([evaluate(*rule, *draw) for draw in self.draws[:TRIALS]])

    def _error(self, totals: Any) -> float:
        """Largest error as a share of the log-likelihood; infinite where none is possible."""
        possible = np.isfinite(self.truth)
        truth = self.truth[possible]
        off = np.abs(totals[possible] - truth) / (1 + np.abs(truth))
        return float(np.nan_to_num(off, nan=np.inf).max(initial=0.0)) if off.size else np.inf

    def order(self) -> tuple[int, float]:
        """Choose the smallest number of nodes a piece that is accurate, and tell its error."""
        for order in ORDERS:
            error = self._error(self._totals(order))
            if error <= TOLERANCE:
                return order, error
        names = ", ".join(repr(rv.name) for rv in self.records)
        raise ValueError(
            f"The integral over a record of {names} is not accurate with {ORDERS[-1]} nodes a "
            f"piece (the log-likelihood is off by {error:.0e} of its size). Its statistic may have "
            "corners or jumps that are not seen: clamp the record itself, pmdp.clamp(x, lower, "
            "upper), or sample the records with pmdp.sample()."
        )

    def grid(self) -> tuple[SharedGrid | None, float]:
        """Find one for all records, shaped by other draws of the prior, and its error."""
        if len(self.records) > 1 or len(self.draws) <= TRIALS:
            return None, np.inf
        [record] = self.records
        grid = shared_grid(record, self.params, self.draws[TRIALS:])
        if grid is None or not all(isinstance(value, Constant) for value in self.values):
            return None, np.inf
        density = self._density(gauss_legendre(ORDERS[0]), grid)
        evaluate = pytensor.function(self.params, density.sum(), mode=ONCE)
        error = self._error(self._at_draws(evaluate))
        return (grid, error) if error <= TOLERANCE else (None, error)
