"""What the parts of a cycle share: arrays in place of a PyMC point, and how parts are joined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from pymc_dp.compat import HIDDEN
from pymc_dp.numerics.compiled import cached_jit, join

__all__ = ["Arrays", "Part", "Place", "inner", "inner_cached", "make_cycles"]

# decorators of functions that other compiled functions alone call: no way in from Python; the
# first for what depends on the model, which is compiled once only if it is part of its caller
inner: Any = numba.njit(**HIDDEN)
inner_cached: Any = cached_jit(**HIDDEN)

#: numba-compiled ``part(rng, arrays, tune)``, which moves `theta` and `table` in place
Part = Callable[..., Any]


class Place(NamedTuple):
    """Where the records of one block are in the arrays.

    Attributes
    ----------
    rows : tuple of int
        First of their rows in `table`, and the one after the last.
    length : int
        Number of records, which are in the first columns.
    components : tuple of int
        First component of their releases, and the one after the last.
    report : int
        Position of their part of the report.
    """

    rows: tuple[int, int]
    length: int
    components: tuple[int, int]
    report: int


class Arrays(NamedTuple):
    """State of a block of records and its parameters.

    Attributes
    ----------
    theta : ndarray
        Parameters that move, unconstrained, side by side.
    given : ndarray
        Everything else that the block's functions use.
    table : ndarray
        Records as steps see them, one a column.
    released, noise, kind : ndarray
        For every component of the releases its value, its noise parameter and the position of
        its density.
    width, mean, cov, factor : ndarray
        Interweaving: width of the first bracket, moments of the parameters, and the factor that
        shapes directions.
    widths : ndarray
        Widths of the first brackets of slice updates, one a parameter.
    learned, turn : ndarray
        Cycles so far, of tuning and in all.
    report : ndarray
        For every block the share of accepted records and the lowest log-ratio of a record, of the
        last sweep.
    """

    theta: NDArray[np.float64]
    given: NDArray[np.float64]
    table: NDArray[np.float64]
    released: NDArray[np.float64]
    noise: NDArray[np.float64]
    kind: NDArray[np.int64]
    width: NDArray[np.float64]
    mean: NDArray[np.float64]
    cov: NDArray[np.float64]
    factor: NDArray[np.float64]
    widths: NDArray[np.float64]
    learned: NDArray[np.int64]
    turn: NDArray[np.int64]
    report: NDArray[np.float64]


def make_cycles(
    record_moves: Sequence[Part], others: Sequence[Part], key: str | None
) -> Callable[..., None]:
    """Compile ``cycles(rng, tune, times, every, thetas, tables, reports, *arrays)``.

    It makes parts in order, again and again, `times` for each of the draws that `thetas`, `tables`
    and `reports` have room for and take. Moves of records are made in one cycle of `every`.

    Parameters
    ----------
    record_moves, others : sequence of callable
        Numba-compiled parts.
    key : str or None
        Names the parts and everything they are made of, for PyTensor's cache on disk; None where
        that is not known.
    """
    names: dict[str, Any] = {"Arrays": Arrays}
    source = _ROUNDS.format(fields=", ".join(Arrays._fields))
    for i, part in enumerate([*record_moves, *others]):
        when = "if sweeping: " if i < len(record_moves) else ""
        source += f"            {when}part_{i}(rng, arrays, tune)\n"
        names[f"part_{i}"] = part
    source += _KEEP
    cycles: Callable[..., None] = join(source, names, key)
    return cycles


# one flat function: every further layer would be optimised again in full
_ROUNDS = """
def cycles(rng, tune, times, every, thetas, tables, reports, {fields}):
    arrays = Arrays({fields})
    for draw in range(len(thetas)):
        for _ in range(times):
            if tune:
                arrays.learned[0] += 1
            sweeping = arrays.turn[0] % every == 0
            arrays.turn[0] += 1
"""
_KEEP = """
        thetas[draw] = arrays.theta
        tables[draw] = arrays.table
        reports[draw] = arrays.report
"""
