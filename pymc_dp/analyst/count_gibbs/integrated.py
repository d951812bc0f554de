"""Noise on every cell: NUTS over the parameters with the cells summed out, then exact cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.blocking import PointType
from pytensor.graph.replace import graph_replace
from pytensor.tensor.variable import TensorVariable

from pymc_dp.analyst.count_gibbs.cells import CountTable
from pymc_dp.analyst.count_gibbs.graphs import (
    gamma_terms,
    law_terms,
    log_density_at,
    own_terms,
    references,
)
from pymc_dp.analyst.count_gibbs.laws import TERMS
from pymc_dp.analyst.count_gibbs.noise import ReleasedComponents
from pymc_dp.analyst.count_gibbs.start import check_start
from pymc_dp.analyst.count_gibbs.sums import draw_cells, log_sums
from pymc_dp.analyst.count_gibbs.windows import HEADER, PEAK, windows_of
from pymc_dp.compat import jit_function
from pymc_dp.graph.layout import PointLayout
from pymc_dp.numerics.compiled import graph_key, join, joined_key
from pymc_dp.numerics.nuts import DIVERGING, LEAPS, REPORT_SIZE, make_nuts
from pymc_dp.numerics.nuts_tuning import NUTSTuning
from pymc_dp.types import Vector

__all__ = ["IntegratedCells"]

_DRAW = """
def draw(rng, theta, given, size, metric, step_size, doublings, report, laws, counts):
    if theta.size:
        nuts(rng, theta, given, metric, step_size, doublings, report)
    {names} = terms(theta, given)
{keep}
    cells = counts.size
    stop = size + {header} * cells
    windows = given[size:stop].reshape((cells, {header}))
    draw_cells(rng, laws, windows, given[stop:], counts)
"""


class IntegratedCells:
    """Parameters with cells summed out, and cells drawn from their conditional.

    A cell that is seen by noise on itself alone has a marginal likelihood that is a sum over the
    counts which the noise leaves possible. The parameters move by NUTS on these sums, and then
    every cell is drawn exactly: parameters never wait for cells.

    Parameters
    ----------
    model : Model
        The model.
    table : CountTable
        Its cells.
    parameters : sequence of TensorVariable
        What moves besides the cells.
    released : ReleasedComponents
        What was released.
    point, compile_kwargs
        A point of the model, for shapes; passed to the compilation.
    """

    def __init__(
        self,
        model: pm.Model,
        table: CountTable,
        parameters: Sequence[TensorVariable],
        released: ReleasedComponents,
        point: PointType,
        compile_kwargs: dict[str, Any],
    ) -> None:
        self.table, self.released = table, released
        numba = {**compile_kwargs, "mode": "NUMBA"}  # whose functions can be joined
        self.layout = layout = PointLayout(model, parameters, [], point, numba)
        terms = law_terms(table)
        self.terms = list(terms)
        windows: Any = pt.dvector("windows")
        peaks = windows[HEADER * np.arange(table.size) + PEAK]
        total = log_density_at(table).sum() + gamma_terms(table, terms, peaks)
        total += log_sums(windows, terms, table.size)
        total, *laws = model.replace_rvs_by_values([total, *terms.values()])
        cost = total + model.logp(vars=own_terms(model, parameters, table))
        cost, *laws = layout.on_arrays([cost, *laws], keep=[windows])
        #: numbers of `given` before the windows
        self.size = layout.given_size
        [cost] = graph_replace([cost], {windows: layout.given[self.size :]})
        gradient: Any = pt.grad(cost, layout.theta) if layout.size else pt.zeros(0)
        self.density = layout.compiled([layout.theta, layout.given], [cost, gradient])
        self.laws = layout.compiled([layout.theta, layout.given], laws)
        self.read_release()
        self._laws = np.repeat(np.array(list(TERMS.values()))[:, np.newaxis], table.size, axis=1)

    @staticmethod
    def windows_of(table: CountTable, released: ReleasedComponents) -> Vector | None:
        """Find counts that the release leaves possible; None where cells cannot be summed out."""
        if not table.separate:
            return None
        components = released.components()
        found = windows_of(
            table.matrix,
            components,
            lambda which, statistic: released.log_density(components, which, statistic),
            table.bounds,
            table.trials,
            references(table),
        )
        return None if found is None else np.concatenate([found.header.ravel(), found.steps])

    def read_release(self) -> None:
        """Take the released values as they are now."""
        found = self.windows_of(self.table, self.released)
        if found is None:
            raise ValueError(
                f"The release of {self.table.names} leaves more counts possible than when this "
                "step was made. Make a new step after pm.set_data."
            )
        self.windows, self._fresh = found, True

    def begin(
        self, rng: np.random.Generator, theta: Vector, given: Vector, counts: Vector
    ) -> tuple[Vector, Vector, None, Vector]:
        """Return where a chain starts: here, with scales of one."""
        self._fresh = True
        return theta, counts, None, np.ones(theta.size)

    def move(
        self,
        rng: np.random.Generator,
        theta: Vector,
        given: Vector,
        counts: Vector,
        tuning: NUTSTuning,
        carried: None,
    ) -> tuple[Vector, Vector]:
        """Move parameters and cells in place; gives NUTS's coordinates and report."""
        whole = self.windows if not given.size else np.concatenate([given, self.windows])
        report, here = np.zeros(REPORT_SIZE), theta.copy() if self._fresh else theta
        self.draw(
            rng, theta, whole, self.size, tuning.metric, tuning.step.step_size, tuning.doublings,
            report, self._laws, counts,
        )  # fmt: skip
        if theta.size and not report[LEAPS]:  # the density is no number here: nothing can move
            report[DIVERGING] = 1.0
        if self._fresh and report[DIVERGING] and report[LEAPS] <= 1:
            # looked at only where it may be so: this compiles the density once more
            check_start(self.table, self.density(here, whole))
        self._fresh = False
        return theta, report

    @cached_property
    def draw(self) -> Callable[..., None]:
        """Compiled move of parameters and cells.

        ``draw(rng, theta, given, size, metric, step_size, doublings, report, laws, counts)``, with
        `given` the layout's followed by the windows, `size` the length of the first; `theta`,
        `report`, `laws` and `counts` change.
        """
        names = [f"law_{term}" for term in self.terms]
        rows = [list(TERMS).index(term) for term in self.terms]
        keep = [f"    laws[{row}] = {name}" for row, name in zip(rows, names, strict=True)]
        source = _DRAW.format(names=", ".join([*names, ""]), keep="\n".join(keep), header=HEADER)
        makers = [make_nuts, draw_cells, IntegratedCells]
        key = joined_key(makers, graph_key([self.density, self.laws]), str(self.terms))
        parts = {
            "nuts": make_nuts(jit_function(self.density), None if key is None else f"{key} nuts"),
            "terms": jit_function(self.laws),
            "draw_cells": draw_cells,
        }
        compiled: Callable[..., None] = join(source, parts, key)
        return compiled

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "draw"}
