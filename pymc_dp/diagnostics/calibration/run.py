"""Fit simulated releases one after another, here or on an executor, and name what comes out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import cloudpickle
import numpy as np
import pymc as pm

from pymc_dp.diagnostics.calibration.fits import Fit, FitJob, Replicate
from pymc_dp.diagnostics.calibration.simulation import Simulated
from pymc_dp.executors.futures import completed

__all__ = ["check_whole_numbers", "dims_and_coords", "fits", "replicates_of"]

#: tasks at most that replicates are sent in
MOST_TASKS = 50


def check_whole_numbers(**numbers: int) -> None:
    """Refuse arguments that are not whole numbers of at least one."""
    for name, value in numbers.items():
        if value < 1 or value != int(value):
            raise ValueError(f"{name} must be a whole number >= 1, not {value!r}.")


def replicates_of(simulated: Simulated, seeds: Sequence[np.random.SeedSequence]) -> list[Replicate]:
    """Take simulated values apart, one replicate for each seed."""

    def of(i: int, columns: dict[str, Any]) -> dict[str, Any]:
        return {name: column[i] for name, column in columns.items()}

    return [
        Replicate(of(i, simulated.truths), of(i, simulated.starts), of(i, simulated.released), seed)
        for i, seed in enumerate(seeds)
    ]


def fits(executor: Any, job: FitJob, tasks: list[Replicate]) -> Iterator[tuple[int, Fit]]:
    """Fits as they come, perhaps not all of them after an interrupt."""
    if executor is None:
        try:
            for i, replicate in enumerate(tasks):
                yield i, job.fit(replicate)
        except KeyboardInterrupt:
            pass
        return
    size = -(-len(tasks) // MOST_TASKS)
    parts = [range(i, min(i + size, len(tasks))) for i in range(0, len(tasks), size)]
    arguments = [cloudpickle.dumps(([tasks[i] for i in part],)) for part in parts]
    for which, done in completed(executor, job.packed(), arguments):
        yield from zip(parts[which], done, strict=False)


def dims_and_coords(model: pm.Model, names: Sequence[str]) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Names of the parameters' axes, and values along these, as the model has them."""
    dims = {
        name: [str(dim) for dim in model.named_vars_to_dims[name]]
        for name in names
        if name in model.named_vars_to_dims
    }
    coords = {
        dim: np.asarray(model.coords[dim])
        for of_one in dims.values()
        for dim in of_one
        if model.coords.get(dim) is not None
    }
    return dims, coords
