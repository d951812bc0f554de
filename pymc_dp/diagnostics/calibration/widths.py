"""Widths and coverage over a grid of cells, and how far off their means can be by chance."""

from __future__ import annotations

from typing import Any

import numpy as np
from xarray import Dataset, DataTree

from pymc_dp.diagnostics.calibration.cells import Found
from pymc_dp.diagnostics.calibration.ranks import covered
from pymc_dp.diagnostics.calibration.run import dims_and_coords

__all__ = ["DIMENSIONS", "Grid", "tree_of"]

#: what is told of every parameter
QUANTITIES = ["sd", "width", "coverage"]
#: dimensions before those of the parameters
DIMENSIONS = ["quantity", "epsilon", "n", "replicate"]

Grid = tuple[list[float], list[int]]


def tree_of(found: Found, grid: Grid, replicates: int, ci_prob: float) -> DataTree:
    """Put what fits tell into groups: means over replicates, their errors, and all of them."""
    released = {cell: own for cell, own in found.items() if not cell.with_records}
    known = {cell: own for cell, own in found.items() if cell.with_records}
    if not any(released.values()):
        raise KeyboardInterrupt
    simulated = _simulated(released, grid, replicates, ci_prob)
    parts = {
        "expected": simulated.mean("replicate"),
        "mcse": _mcse(simulated),
        "simulated": simulated,
        "fits": _lengths(released, grid, replicates),
    }
    if known and all(known.values()):
        few = max(cell.replicates for cell in known)
        epsilon = [next(iter(known)).epsilon]
        own = _simulated(known, (epsilon, grid[1]), few, ci_prob)
        own = own.isel(epsilon=0, drop=True).sel(quantity=["sd", "width"])
        parts["without_noise/expected"] = own.mean("replicate")
        parts["without_noise/mcse"] = _mcse(own)
    return DataTree.from_dict(parts)


def _simulated(found: Found, grid: Grid, replicates: int, ci_prob: float) -> Dataset:
    """Quantities of every fit; not a number where there is none."""
    from arviz_base import dict_to_dataset  # slow to import

    room = (len(QUANTITIES), len(grid[0]), len(grid[1]), replicates)
    values: dict[str, Any] = {}
    for cell, own in found.items():
        i, j = grid[0].index(cell.epsilon), grid[1].index(cell.n)
        for k, fit in own.items():
            for name, place in fit.places.items():
                held = covered(place[None], np.array([ci_prob]))[0]
                column = np.array([fit.deviations[name], fit.widths[name], held])
                values.setdefault(name, np.full((*room, *np.shape(place)), np.nan))
                values[name][:, i, j, k] = column
    dims, coords = dims_and_coords(next(iter(found)).model, list(values))
    coords |= {"quantity": QUANTITIES, "epsilon": grid[0], "n": grid[1]}
    data = dict_to_dataset(values, sample_dims=DIMENSIONS, dims=dims, coords=coords)
    return data.drop_attrs()  # which tell of draws


def _lengths(found: Found, grid: Grid, replicates: int) -> Dataset:
    """How long chains were."""
    values = np.full((2, len(grid[0]), len(grid[1]), replicates), np.nan)
    for cell, own in found.items():
        for k, fit in own.items():
            where = grid[0].index(cell.epsilon), grid[1].index(cell.n), k
            values[(slice(None), *where)] = fit.draws, fit.effective_size
    names = ["draws", "effective_size"]
    variables = {name: (DIMENSIONS[1:], one) for name, one in zip(names, values, strict=True)}
    return Dataset(variables, {"epsilon": grid[0], "n": grid[1]})


def _mcse(simulated: Dataset) -> Dataset:
    """Monte Carlo standard errors of means over replicates.

    Those of shares add two hits and two misses (Agresti & Coull 1998): shares of one have errors
    too.
    """
    count = simulated.notnull().sum("replicate")
    mean = simulated.std("replicate", ddof=1) / np.sqrt(count)
    share = (simulated.sum("replicate") + 2) / (count + 4)
    # which makes sense for shares alone
    of_share = ((share * (1 - share)).clip(min=0) / (count + 4)) ** 0.5
    is_share = simulated["quantity"] == "coverage"
    return of_share.where(is_share, mean).where(count > 0)
