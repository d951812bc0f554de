"""Numbers of records behind regression statistics, where they are variables of the model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.distribution import support_point
from pymc.vartypes import discrete_types
from pytensor.tensor.basic import MakeVector

from pymc_dp.analyst.marginal.normal.size import UnknownNumber
from pymc_dp.analyst.marginal.strategy import Replacement
from pymc_dp.graph.additivity import direct_inputs
from pymc_dp.graph.intervals import ONCE
from pymc_dp.graph.rewrites import rebuilt
from pymc_dp.types import Variable

__all__ = ["Numbers", "names_of_numbers"]


def names_of_numbers(model: pm.Model, n: Variable) -> str:
    """Names of the variables that tell how many records there are."""
    return ", ".join(str(rv.name) for rv in direct_inputs([n], model.basic_RVs))


class Numbers:
    """Unknown numbers of records of a model's regression statistics.

    Attributes
    ----------
    unknown : dict
        For every discrete variable that is such a number, how it enters the marginal model.
    """

    def __init__(self, model: pm.Model) -> None:
        self.model = model
        self.unknown: dict[Any, UnknownNumber] = {}

    def of(self, n: Variable) -> Variable:
        """Write a number of records, or several, in terms of the marginal model's variables."""
        reached = direct_inputs([n], self.model.basic_RVs)
        if not reached:
            return n
        for rv in reached:
            if rv not in self.unknown and rv.dtype in discrete_types and not rv.type.ndim:
                self.unknown[rv] = UnknownNumber(self.model, rv)
        if n.owner is not None and isinstance(n.owner.op, MakeVector):
            return pt.stack([self._of_one(entry) for entry in n.owner.inputs])
        return self._of_one(n)

    def _of_one(self, n: Variable) -> Variable:
        for number in self.unknown.values():
            if number.discrete in direct_inputs([n], self.model.basic_RVs):
                n = number.in_number(n)
        return n.astype("float64")

    def roughly(self, n: Variable) -> NDArray[np.float64]:
        """Put numbers of records where noisy counts are, elsewhere at the prior's centre."""
        reached = direct_inputs([n], self.model.basic_RVs)
        known: dict[Any, Any] = {rv: pt.constant(self._rough(rv)) for rv in reached}
        graph = rebuilt(n, known)
        return np.asarray(graph.eval(mode=ONCE), dtype=np.float64)

    def _rough(self, rv: Any) -> NDArray[np.int64]:
        counts = UnknownNumber(self.model, rv).counts
        for release in counts:
            if release.rv in self.model.observed_RVs and release.statistic.type.ndim == 0:
                at = [_evaluated(release.statistic, rv, number) for number in (1, 2)]
                value = float(np.asarray(self.model.rvs_to_values[release.rv].eval(mode=ONCE)))
                if at[0] != at[1]:
                    found = 1 + (value - at[0]) / (at[1] - at[0])
                    return np.asarray(max(round(found), 1), dtype=rv.dtype)
        return np.asarray(support_point(rv).eval(mode=ONCE), dtype=rv.dtype)

    def replacement(self) -> Replacement:
        """Tell what stands in place of the numbers and of releases of them alone."""
        return Replacement(
            [], {old: new for one in self.unknown.values() for old, new in one.releases.items()}
        )


def _evaluated(graph: Variable, rv: Variable, number: int) -> float:
    value = pt.constant(np.asarray(number, dtype=rv.dtype))
    return float(np.asarray(rebuilt(graph, {rv: value}).eval(mode=ONCE)))
