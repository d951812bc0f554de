"""Let pairs of records exchange their categories, where totals of these are known exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pymc as pm
from pytensor.tensor.variable import TensorVariable

from pymc_dp.analyst.factors import own_log_density
from pymc_dp.analyst.record_gibbs.swap_sweep import make_swap_move
from pymc_dp.analyst.records import RecordBlock
from pymc_dp.analyst.release import Release
from pymc_dp.compat import jit_function
from pymc_dp.graph.additivity import direct_inputs
from pymc_dp.graph.layout import PointLayout
from pymc_dp.mechanisms.exact import Exact
from pymc_dp.numerics.cycles import Part, Place

__all__ = ["Swaps"]


class Swaps:
    r"""Metropolis moves that exchange one variable's values between two records.

    The proposal is symmetric, so that a pair (i, j) accepts with the ratio of
    :math:`p(x_i) p(x_j)\,\eta(s_{dp} \mid x)`, records' own densities times the releases'. The
    counts of the exchanged variable stay as they are. Together with the ordinary sweep, in which a
    record may move within its group, every table with the same totals can be reached.
    """

    def __init__(
        self, model: pm.Model, block: RecordBlock, columns: TensorVariable, layout: PointLayout
    ) -> None:
        exact = self.check(block)
        [swapped] = direct_inputs([exact.statistic], block.records)
        self.rows = layout.rows_of(str(model.rvs_to_values[swapped].name))
        graphs = model.replace_rvs_by_values(
            [columns, own_log_density(model, block.records, block.factors.values())]
        )
        self.evaluate = layout.compiled(
            [layout.theta, layout.given, layout.table],
            layout.on_arrays([g.astype("float64") for g in graphs]),
        )

    @staticmethod
    def check(block: RecordBlock) -> Release:
        """Return the one exact release of a block, or say what must not be beside it."""
        exact = [r for r in block.releases if isinstance(r.mechanism, Exact)]
        if len(exact) > 1 or not all(r.mechanism.elementwise for r in block.releases):
            names = ", ".join(repr(release.name) for release in exact)
            raise ValueError(
                f"Besides one exact release ({names}) the records {block.names} may have releases "
                "with noise added to components, and no other."
            )
        return exact[0]

    @staticmethod
    def needed(block: RecordBlock) -> bool:
        """Whether a block has a release without noise."""
        return any(isinstance(release.mechanism, Exact) for release in block.releases)

    def part(self, evaluate: Callable[..., Any], densities: tuple[Any, ...], place: Place) -> Part:
        """Offer every record an exchange with a random partner, numba-compiled."""
        place = place._replace(rows=self.rows)
        return make_swap_move(jit_function(self.evaluate), evaluate, densities, place)
