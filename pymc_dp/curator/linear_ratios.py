"""Clipped log-ratios that are linear in what is known of a record from the beginning."""

import math
from functools import cache
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.compile.mode import OPT_NONE, Mode

from pymc_dp.accounting.levels import LEVELS
from pymc_dp.curator.likelihood import RecordLikelihood
from pymc_dp.curator.separable import Separation, separated
from pymc_dp.graph.direct_call import DirectCall
from pymc_dp.graph.rewrites import rebuilt
from pymc_dp.numerics.compiled import cached_jit, join, joined_key
from pymc_dp.types import Matrix, Variable, Vector

__all__ = ["LinearRatios", "in_blocks", "linear_total"]

# a record's level is computed in the order in which it is written, whatever else is in its loop:
# it must not depend on how many records there are beside
_strict = cached_jit(error_model="numpy")
_TOP = float(LEVELS)
# records whose ratios stay in the fastest cache, and whose levels add up exactly; no power of two:
# rows of a block would compete for the same places in the cache
_CHUNK = 2000
_MOST_CONSTANT = 2.0**16
# sums of whole numbers are exact in any order; rare: some record is not a number, and says nothing
_TOTAL = """
def total(blocks, first, after, before, scale):
    change = scaled(after, before, scale)
    {factors}
    total = np.int64(0)
    for b in range(blocks.shape[0]):
        {statistics}
        part = 0.0
        for i in range(x0.size):
            part += level({ratio})
        if part != part:
            part = 0.0
            for i in range(x0.size):
                one = level({ratio})
                part += one if one == one else 0.0
        total += np.int64(part)
    return total
"""


@_strict
def _added(here: float, one: float, x: float, other: float, y: float) -> float:
    return (here + one * x) + other * y


@_strict
def _scaled(after: Vector, before: Vector, scale: float) -> Vector:
    return scale * (after - before)


@_strict
def _level(ratio: float) -> float:
    ratio = _TOP if ratio > _TOP else ratio
    ratio = -_TOP if ratio < -_TOP else ratio
    return np.rint(ratio)


@cache
def _total(width: int) -> Any:
    """Compile the sum of levels of records with so many statistics, which are read in one pass.

    A loop that adds some statistics at a time has to keep what it has so far: of ten numbers a
    record it takes half as long again.
    """
    ratio = "change[0]"
    for k in range(0, width, 2):
        ratio = f"added({ratio}, f{k}, x{k}[i], f{k + 1}, x{k + 1}[i])"
    factors = "; ".join(f"f{k} = change[1 + first + {k}]" for k in range(width))
    statistics = "; ".join(f"x{k} = blocks[b, first + {k}]" for k in range(width))
    source = _TOTAL.format(factors=factors, statistics=statistics, ratio=ratio)
    parts = {"added": _added, "level": _level, "scaled": _scaled, "np": np}
    key = joined_key([_level], source)
    return join(source, parts, key, error_model="numpy", fastmath={"reassoc", "nsz"})


def in_blocks(statistics: Matrix) -> NDArray[np.float64]:
    """Lay records out as they are read fastest: some at a time, one statistic after the other.

    Parameters
    ----------
    statistics : ndarray
        A row a record.

    Returns
    -------
    ndarray
        Block, statistic (an even number of them), record. What fills up the last block is no
        number, and says nothing.
    """
    n, width = statistics.shape
    blocks = np.full((-(-n // _CHUNK), width + width % 2, _CHUNK), np.nan)
    for block, start in zip(blocks, range(0, n, _CHUNK), strict=True):
        part = statistics[start : start + _CHUNK]
        block[:, : len(part)] = 0.0
        block[:width, : len(part)] = part.T
    return blocks


def linear_total(blocks: NDArray[np.float64], after: Vector, before: Vector, bound: float) -> int:
    """Sum of log-ratios that are linear in records' statistics, each clipped to +-bound.

    Parameters
    ----------
    blocks : ndarray
        The records' statistics, :func:`in_blocks`.
    after, before : ndarray
        Of the two points, a constant and what each statistic is multiplied with: a record's ratio
        is the difference of the constants and, for each statistic, that of its factors times it.
    bound : float
        Largest absolute log-ratio of a record that is let through.

    Returns
    -------
    int
        In units of ``bound / LEVELS``.

    Notes
    -----
    Whole numbers of at most ``LEVELS`` a record, from its own statistics alone, in arithmetic that
    is the same wherever it stands: sums over parts of the records add up to the sum over all. The
    points the other way round give the sum with the other sign.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_dp.accounting.levels import LEVELS
    >>> from pymc_dp.curator.linear_ratios import in_blocks, linear_total
    >>> records = in_blocks(np.array([[0.5, 0.0], [9.0, 0.0], [np.nan, 0.0]]))
    >>> linear_total(records, np.array([0.0, 1.0, 0.0]), np.array([0.25, 0, 0]), 1.0) / LEVELS
    1.25
    """
    first, width = 0, blocks.shape[1]
    if width > 2:
        # a move of one coordinate; what is no number is none in every statistic
        moved = (after[1:] != before[1:]).nonzero()[0]
        if moved.size and moved[0] // 2 == moved[-1] // 2:
            first, width = int(moved[0]) // 2 * 2, 2
    return int(_total(width)(blocks, first, after, before, LEVELS / bound))


class LinearRatios:
    """Ratios of a likelihood of an exponential family.

    Parameters
    ----------
    likelihood : RecordLikelihood
        The log-likelihood, whose data is used.
    rows : list of Variable
        Arrays of records, as they are in ``separation``.
    separation : Separation
        The log-likelihood as a sum of products.
    """

    def __init__(
        self, likelihood: RecordLikelihood, rows: list[Variable], separation: Separation
    ) -> None:
        self._likelihood, self._shapes = likelihood, _shapes(likelihood)
        theta = likelihood.graph[0]
        self._natural = DirectCall(
            pytensor.function(
                [theta], separation.natural, on_unused_input="ignore", **likelihood.compile_kwargs
            )
        )
        # asked for once a chain, which is not worth the time to compile it
        self._statistics = pytensor.function(
            rows, separation.statistics, on_unused_input="ignore", mode=Mode("py", OPT_NONE)
        )
        self.forget()

    @classmethod
    def of(cls, likelihood: RecordLikelihood) -> "LinearRatios | None":
        """Read the likelihood's graph; None where parameters and records do not separate."""
        if not likelihood.apart:
            return None
        theta, rows, logp = likelihood.graph
        known = [
            pt.tensor(dtype=row.type.dtype, shape=shape)
            for row, shape in zip(rows, _shapes(likelihood), strict=True)
        ]
        logp = rebuilt(logp, dict(zip(rows, known, strict=True)))
        separation = separated(theta, known, logp)
        return None if separation is None else cls(likelihood, known, separation)

    def forget(self) -> None:
        """Drop what was computed from the data."""
        self._blocks: NDArray[np.float64] | None = None
        self._data: Any = None
        self._kept: dict[bytes, Vector | None] = {}

    def total(self, theta: Vector, proposal: Vector, bound: float) -> int | None:
        """Sum over all records, or None where numbers of the parameters are too large for it.

        Notes
        -----
        The constant of a ratio is the same for all records, and so is its rounding: of n records
        n times 2^-53 of it, which must stay far below one. It is known without the data.
        """
        places = self._likelihood.data_coordinates
        here, there = theta[places].tobytes(), proposal[places].tobytes()
        before = self._kept[here] if here in self._kept else self._of(theta)
        after = self._of(proposal)
        self._kept = {here: before, there: after}
        if before is None or after is None:
            return None
        return linear_total(self._of_records(), after, before, bound)

    def _of(self, theta: Vector) -> Vector | None:
        """Factors of the parameters, in an even number after the constant."""
        natural = self._natural(theta)
        if not (abs(natural.item(0)) <= _MOST_CONSTANT and natural.dot(natural) < math.inf):
            return None
        return natural if natural.size % 2 else np.append(natural, 0.0)

    def _of_records(self) -> NDArray[np.float64]:
        if self._blocks is None or self._data is not self._likelihood.data:
            self._data = self._likelihood.data
            if _shapes(self._likelihood) != self._shapes:
                raise ValueError(
                    "pm.set_data changed the shape of a record since the step was made: make a new "
                    "step."
                )
            with np.errstate(all="ignore"):
                statistics = self._statistics(*self._data)
            # of such a record both likelihoods are zero, or none is a number
            statistics[~np.isfinite(statistics).all(axis=1)] = np.nan
            if len(statistics) != self._likelihood.n_records:
                raise AssertionError("Statistics of another number of records.")
            self._blocks = in_blocks(statistics)
        return self._blocks

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_blocks": None, "_data": None, "_kept": {}}


def _shapes(likelihood: RecordLikelihood) -> list[tuple[int | None, ...]]:
    """Shapes of the records' arrays, their number left open."""
    return [
        (*rows.shape[:axis], None, *rows.shape[axis + 1 :])
        for rows, axis in zip(likelihood.data, likelihood.axes, strict=True)
    ]
