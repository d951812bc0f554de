"""Cells of a grid of models, each fitted to releases that were simulated from the same seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import cloudpickle
import numpy as np
import pymc as pm

from pymc_dp.diagnostics.calibration.fits import Fit, FitJob
from pymc_dp.diagnostics.calibration.run import fits, replicates_of
from pymc_dp.diagnostics.calibration.simulation import (
    Simulated,
    confidential,
    first_values,
    simulate,
)

__all__ = ["Cell", "Found", "Study"]


@dataclass(frozen=True, eq=False)
class Cell:
    """A model to be fitted to so many simulated releases, or to the records behind them."""

    epsilon: float
    n: int
    model: pm.Model
    replicates: int
    with_records: bool


Found = dict[Cell, dict[int, Fit]]


@dataclass(frozen=True)
class Study:
    """What all cells have in common."""

    names: list[str]
    truth: Mapping[str, Any] | None
    seeds: np.random.SeedSequence
    lengths: tuple[int, int, int]
    step_kwargs: dict[str, Any]
    ci_prob: float

    def run(self, executor: Any, cells: list[Cell], advance: Callable[[], None]) -> Found:
        """Fit cell after cell, until all are done or there is an interrupt."""
        # the same seeds for all cells
        simulating, fitting = self.seeds.spawn(2)
        seed = int(simulating.generate_state(1)[0])
        chains = fitting.spawn(max(cell.replicates for cell in cells))
        found: Found = {}
        for cell in cells:
            job, simulated = self._job(cell, seed)
            # of which fits spawn others, and they count those
            tasks = replicates_of(simulated, deepcopy(chains[: cell.replicates]))
            found[cell] = {}
            for i, fit in fits(executor, job, tasks):
                found[cell][i] = fit
                advance()
            if len(found[cell]) < cell.replicates:
                break
        return found

    def _job(self, cell: Cell, seed: int) -> tuple[FitJob, Simulated]:
        source = _copied(cell.model)
        also = confidential(source) if cell.with_records else []
        simulated = simulate(source, self.names, cell.replicates, seed, truth=self.truth, also=also)
        first = first_values(source, simulated.released)
        # where the records are known no step is left for them
        options = self.step_kwargs
        if cell.with_records:
            options = {name: value for name, value in options.items() if name == "nuts"}
        job = FitJob(cell.model, first, self.names, *self.lengths, options, self.ci_prob)
        return job, simulated


def _copied(model: pm.Model) -> pm.Model:
    """Copy a model: drawing leaves traces, its generators and what was compiled."""
    return cloudpickle.loads(cloudpickle.dumps(model))
