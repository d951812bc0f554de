"""Let pairs of records exchange their categories, where totals of these are known exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm
from pymc.blocking import PointType
from pytensor.tensor.variable import TensorVariable

from pymc_dp.additivity import direct_inputs
from pymc_dp.kernels.swap_sweep import make_swap_sweep
from pymc_dp.mechanisms.exact import Exact
from pymc_dp.records import RecordBlock
from pymc_dp.terms import own_log_density

__all__ = ["Swaps"]


class Swaps:
    r"""Metropolis moves that exchange one variable's values between two records.

    The proposal is symmetric, so that a pair (i, j) accepts with the ratio of
    :math:`p(x_i) p(x_j)\,\eta(s_{dp} \mid x)`, records' own densities times the releases'. The
    counts of the exchanged variable stay as they are. Together with the ordinary sweep, in which a
    record may move within its group, every table with the same totals can be reached.
    """

    def __init__(
        self,
        model: pm.Model,
        block: RecordBlock,
        columns: TensorVariable,
        compile_graphs: Callable[..., tuple[list[str], Callable[..., Any]]],
    ) -> None:
        exact = [r for r in block.releases if isinstance(r.mechanism, Exact)]
        if len(exact) > 1 or not all(r.mechanism.elementwise for r in block.releases):
            names = ", ".join(repr(release.name) for release in exact)
            raise ValueError(
                f"Besides one exact release ({names}) the records {block.names} may have releases "
                "with noise added to components, and no other."
            )
        [swapped] = direct_inputs([exact[0].statistic], block.records)
        self.name = str(model.rvs_to_values[swapped].name)
        graphs = model.replace_rvs_by_values(
            [columns, own_log_density(model, block.records, block.terms.values())]
        )
        self.inputs, self.evaluate = compile_graphs([g.astype("float64") for g in graphs])

    @staticmethod
    def needed(block: RecordBlock) -> bool:
        """Whether a block has a release without noise."""
        return any(isinstance(release.mechanism, Exact) for release in block.releases)

    def move(self, block: Any, point: PointType, rng: np.random.Generator) -> PointType:
        """Offer every record an exchange with a random partner."""
        value = point[self.name]
        order = rng.permutation(len(value))
        half = len(value) // 2
        first, second = order[:half], order[half : 2 * half]
        exchanged = value.copy()
        exchanged[first], exchanged[second] = value[second], value[first]
        trial = {**point, self.name: exchanged}
        contributions, log_p = self.evaluate(*(point[name] for name in self.inputs))
        swapped, swapped_log_p = self.evaluate(*(trial[name] for name in self.inputs))
        accepted = make_swap_sweep(block.densities)(
            first,
            second,
            contributions,
            swapped,
            log_p,
            swapped_log_p,
            -rng.standard_exponential(half),
            block.offset + contributions.sum(axis=0),
            block.released,
            block.noise,
            block.kind,
        )
        new = value.copy()
        new[first[accepted]] = value[second[accepted]]
        new[second[accepted]] = value[first[accepted]]
        return {**point, self.name: new}
