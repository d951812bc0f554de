"""Which latent counts of a model are cells, and what was released of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pymc.vartypes import discrete_types
from pytensor.graph.traversal import ancestors
from pytensor.tensor.variable import TensorVariable
from scipy import sparse

from pymc_dp.analyst.count_gibbs.laws import UNBOUNDED, CellLaw, law_of
from pymc_dp.analyst.count_gibbs.tables import RecordCountsRV
from pymc_dp.analyst.release import Release, by_name, releases
from pymc_dp.graph.additivity import direct_inputs
from pymc_dp.graph.intervals import ONCE
from pymc_dp.graph.linear_map import LinearMap, NotLinearError, linear_map
from pymc_dp.graph.support import has_whole_support
from pymc_dp.mechanisms import Exact
from pymc_dp.mechanisms.additive import AdditiveNoise
from pymc_dp.types import Vector

__all__ = [
    "CountTable",
    "cell_parameters",
    "cell_variables",
    "check_cell_totals",
    "count_table",
    "describe_cells",
    "describe_releases",
    "linear_release",
    "sums_rows",
]


#: entries of variables up to which maps of them are read: longer ones are tables of records
MOST_LISTED = 5_000_000


@dataclass(frozen=True)
class CountTable:
    """All cells of a model side by side, and their releases.

    Attributes
    ----------
    cells : list of TensorVariable
        The variables, by name.
    laws : list of CellLaw
        One for each.
    releases : list of Release
        Releases of linear maps of the cells, by name.
    maps : list of LinearMap
        One for each.
    """

    cells: list[TensorVariable]
    laws: list[CellLaw]
    releases: list[Release]
    maps: list[LinearMap]

    @cached_property
    def shapes(self) -> list[tuple[int, ...]]:
        """Shapes of the variables."""
        return [shape_of(rv) for rv in self.cells]

    @property
    def size(self) -> int:
        """Number of cells."""
        return sum(int(np.prod(shape)) for shape in self.shapes)

    @cached_property
    def bounds(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Lowest and highest count of every cell."""
        low = [_spread(law.low, shape) for law, shape in zip(self.laws, self.shapes, strict=True)]
        high = [_spread(law.high, shape) for law, shape in zip(self.laws, self.shapes, strict=True)]
        return np.concatenate(low), np.concatenate(high)

    @cached_property
    def settled(self) -> NDArray[np.bool_]:
        """Cells that are out of all densities, because their parameters leave them no choice."""
        pairs = zip(self.laws, self.shapes, strict=True)
        return np.concatenate([_spread(law.settled, shape) > 0 for law, shape in pairs])

    @property
    def fixed(self) -> NDArray[np.bool_]:
        """Cells with one possible count."""
        low, high = self.bounds
        return np.asarray(low == high)

    @cached_property
    def matrix(self) -> Any:
        """All releases' maps, one below the other."""
        return sparse.vstack([found.matrix for found in self.maps], format="csr")

    @cached_property
    def constant(self) -> NDArray[np.float64]:
        """What each component is where all cells are zero."""
        return np.concatenate([found.constant for found in self.maps])

    @property
    def exact_releases(self) -> list[bool]:
        """Which releases have no noise."""
        return [isinstance(release.mechanism, Exact) for release in self.releases]

    @cached_property
    def trials(self) -> Vector:
        """Number of trials m in every cell's law; zero where it has none."""
        parts = [
            _spread(0 if law.trials is None or law.known_sum else law.trials, shape)
            for law, shape in zip(self.laws, self.shapes, strict=True)
        ]
        return np.concatenate(parts).astype(float)

    @cached_property
    def exact(self) -> NDArray[np.bool_]:
        """Which components were released without noise."""
        return np.repeat(self.exact_releases, [found.constant.size for found in self.maps])

    @cached_property
    def separate(self) -> bool:
        """Whether every component sees one cell, and cells are independent given parameters."""
        alone = bool(np.all(np.diff(self.matrix.indptr) <= 1))
        return alone and not any(law.known_sum for law in self.laws)

    @property
    def names(self) -> str:
        """The variables' names, for messages."""
        return ", ".join(repr(rv.name) for rv in self.cells)


def _spread(value: Any, shape: tuple[int, ...]) -> NDArray[np.int64]:
    return np.broadcast_to(value, shape).ravel().astype(np.int64)


def shape_of(var: TensorVariable) -> tuple[int, ...]:
    """Shape of a variable."""
    if None not in var.type.shape:
        return tuple(int(n) for n in var.type.shape)
    return tuple(int(n) for n in var.shape.eval(mode=ONCE))


def cell_variables(model: pm.Model) -> list[TensorVariable]:
    """Latent counts of which noise was added to cells or to linear maps of them, by name.

    Read from the graph. Families are those of :mod:`~pymc_dp.analyst.count_gibbs.laws`; noise is
    added to components, or there is none (``Exact``). Counts that are only ever summed over the
    whole first axis with noise are records, and stay :class:`~pymc_dp.RecordGibbs`'s.
    """
    return _read(model)[0]


def count_table(model: pm.Model, cells: Sequence[TensorVariable]) -> CountTable:
    """Read the releases of cells."""
    _, found = _read(model)
    known = {rv: law_of(rv, model.basic_RVs) for rv in by_name(cells)}
    chosen = [release for release in by_name(found) if _uses(release, model, known)]
    maps = [linear_map(release.statistic, list(known), model.basic_RVs) for release in chosen]
    laws = [law for law in known.values() if law is not None]
    return CountTable(list(known), laws, chosen, maps)


def cell_parameters(model: pm.Model, cells: Sequence[TensorVariable]) -> list[TensorVariable]:
    """Continuous latent variables that the law of cells depends on, by name."""
    reached = set(ancestors(cells))
    return by_name(
        rv
        for rv in model.free_RVs
        if rv in reached and rv not in cells and rv.dtype not in discrete_types
    )


def linear_release(
    statistic: TensorVariable, model: pm.Model
) -> tuple[list[TensorVariable], list[CellLaw], LinearMap] | None:
    """Cells that a statistic is a linear map of, their laws and the map; None for others."""
    used = [rv for rv in direct_inputs([statistic], model.basic_RVs) if rv in model.free_RVs]
    if sum(np.prod(shape_of(rv)) for rv in used) > MOST_LISTED:
        return None
    laws = [law_of(rv, model.basic_RVs) for rv in used]
    if not used or None in laws:
        return None
    try:
        found = linear_map(statistic, used, model.basic_RVs)
    except NotLinearError:
        return None
    return used, [law for law in laws if law is not None], found


def describe_cells(table: CountTable) -> dict[str, str]:
    """Tell how tables of counts are sampled, for people."""
    how = (
        "summed out of the parameters' density, then drawn"
        if table.separate
        else "moved with the parameters and by units"
    )
    numbers = [int(np.prod(shape)) for shape in table.shapes]
    return {
        str(rv.name): f"{number} {'cell' if number == 1 else 'cells'}, {how}"
        for rv, number in zip(table.cells, numbers, strict=True)
    }


def describe_releases(table: CountTable) -> dict[str, str]:
    """Tell what was released of tables of counts, for people."""
    described = {}
    for release, found in zip(table.releases, table.maps, strict=True):
        size = found.constant.size
        alone = bool(np.all(np.diff(found.matrix.indptr) <= 1))
        what = "cells" if alone else "sums of cells"
        described[release.name] = f"{release.mechanism!r} on {size} {what} of {table.names}"
    return described


def check_cell_totals(
    name: str,
    cells: Sequence[TensorVariable],
    laws: Sequence[CellLaw],
    found: LinearMap,
    released: NDArray,
) -> None:
    """Refuse exact totals that no counts can have, or that are not totals of counts."""
    names = ", ".join(repr(rv.name) for rv in cells)
    matrix = sparse.csr_array(found.matrix)
    if np.any(matrix.data != np.round(matrix.data)):
        raise ValueError(
            f"The statistic of {name!r} was released exactly, and gives cells of {names} weights "
            "that are not whole numbers. Release sums of counts exactly; write small noise for "
            "amounts."
        )
    low, high = (
        np.concatenate(
            [_spread(getattr(law, end), shape_of(rv)) for rv, law in zip(cells, laws, strict=True)]
        ).astype(float)
        for end in ("low", "high")
    )
    up, down = matrix.maximum(0), matrix.minimum(0)
    least = up @ low + down @ high + found.constant
    most = up @ high + down @ low + found.constant
    value = np.ravel(released)
    wrong = np.flatnonzero((value < least) | (value > most))
    if wrong.size:
        at = wrong[0]
        ends = [f"at least {least[at]:.0f}"] if least[at] > -UNBOUNDED else []
        ends += [f"at most {most[at]:.0f}"] if most[at] < UNBOUNDED else []
        raise ValueError(
            f"The exact total {value[at]} in {name!r} cannot be that of {names}: it is "
            f"{' and '.join(ends)}. Check the released value."
        )


def _read(model: pm.Model) -> tuple[list[TensorVariable], list[Release]]:
    """Cells, and releases that are linear in them."""
    observed = [release for release in releases(model) if release.rv in model.observed_RVs]
    read = {release: linear_release(release.statistic, model) for release in observed}
    good = {r: f for r, f in read.items() if f is not None and _adds_noise(r)}
    cells = {rv for used, _, _ in good.values() for rv in used}
    cells -= {rv for rv in cells if _used_elsewhere(rv, model, good) or _summed_only(rv, good)}
    while True:  # what shares a release with other latents is not for this step
        mixed = {rv for used, _, _ in good.values() if not set(used) <= cells for rv in used}
        if not mixed & cells:
            return by_name(cells), [r for r, f in good.items() if set(f[0]) & cells]
        cells -= mixed


def _adds_noise(release: Release) -> bool:
    return isinstance(release.mechanism, AdditiveNoise | Exact)


def _uses(release: Release, model: pm.Model, cells: Any) -> bool:
    return any(rv in cells for rv in direct_inputs([release.statistic], model.basic_RVs))


def _used_elsewhere(rv: TensorVariable, model: pm.Model, good: Any) -> bool:
    """Whether a variable is used by something else than releases that are linear in it."""
    known = {release.rv for release in good}
    users = [
        other
        for other in model.basic_RVs
        if other not in known and rv in direct_inputs(other.owner.inputs, model.basic_RVs)
    ]
    users += [p for p in model.potentials if rv in direct_inputs([p], model.basic_RVs)]
    return bool(users) or not has_whole_support(model, rv)


def _summed_only(rv: TensorVariable, good: Any) -> bool:
    """Whether all that was released of a variable are noisy sums over its whole first axis."""
    return all(
        sums_rows(rv, used, found) and not isinstance(release.mechanism, Exact)
        for release, (used, _, found) in good.items()
        if rv in used
    )


def sums_rows(rv: TensorVariable, used: Sequence[TensorVariable], found: LinearMap) -> bool:
    """Whether a map takes all entries along a variable's first axis alike, as those of records."""
    shape = shape_of(rv)
    if rv.type.ndim == rv.owner.op.ndim_supp or shape[0] < 2:
        return False
    if isinstance(rv.owner.op, RecordCountsRV):
        return False
    start = sum(int(np.prod(shape_of(other))) for other in used[: used.index(rv)])
    size = int(np.prod(shape))
    columns = sparse.csr_array(found.matrix[:, start : start + size])
    first = columns[:, : size // shape[0]]
    if columns.nnz != shape[0] * first.nnz:
        return False
    alike = sparse.kron(np.ones((1, shape[0])), first, format="csr")
    return not abs(columns - alike).max() > 0
