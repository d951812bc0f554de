"""Clipped log-ratios that are linear in what is known of a record from the beginning."""

import math
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.compile.mode import OPT_NONE, Mode

from pymc_dp.accounting.levels import LEVELS
from pymc_dp.curator.likelihood import RecordLikelihood
from pymc_dp.curator.separable import Separation, separated
from pymc_dp.graph.rewrites import rebuilt
from pymc_dp.numerics.compiled import cached_jit
from pymc_dp.types import Matrix, Variable, Vector

__all__ = ["LinearRatios", "linear_total"]

# a record's level is computed in the order in which it is written, whatever else is in its loop:
# it must not depend on how many records there are beside
_strict = cached_jit(error_model="numpy")
# sums of whole numbers are exact in any order
_jit = cached_jit(error_model="numpy", fastmath={"reassoc", "nsz"})
_TOP = float(LEVELS)
_CHUNK = 1024  # records whose ratios stay in the fastest cache, and whose levels add up exactly
_MOST_CONSTANT = 2.0**16


@_strict
def _added(here: float, one: float, x: float, other: float, y: float) -> float:
    return (here + one * x) + other * y


@_strict
def _level(ratio: float) -> float:
    ratio = _TOP if ratio > _TOP else ratio
    ratio = -_TOP if ratio < -_TOP else ratio
    return np.rint(ratio)


@_jit
def _pair_total(
    constant: float, one: float, x: NDArray[np.float64], other: float, y: NDArray[np.float64]
) -> np.int64:
    """Levels of two numbers a record."""
    total = np.int64(0)
    for start in range(0, x.size, _CHUNK):
        # slices, whose indices start at 0: numba would have to allow for negative ones
        xs, ys = x[start : start + _CHUNK], y[start : start + _CHUNK]
        part = 0.0
        for i in range(xs.size):
            part += _level(_added(constant, one, xs[i], other, ys[i]))
        if part != part:  # rare: some record is not a number, and says nothing
            part = 0.0
            for i in range(xs.size):
                level = _level(_added(constant, one, xs[i], other, ys[i]))
                part += level if level == level else 0.0
        total += np.int64(part)
    return total


@_jit
def _linear_total(
    columns: NDArray[np.float64], factors: NDArray[np.float64], constant: float
) -> np.int64:
    last, n = columns.shape[0] - 2, columns.shape[1]
    if last == 0:
        return _pair_total(constant, factors[0], columns[0], factors[1], columns[1])
    total = np.int64(0)
    ratios = np.empty(_CHUNK)
    for start in range(0, n, _CHUNK):
        stop = min(start + _CHUNK, n)
        here = ratios[: stop - start]
        here[:] = constant
        for k in range(0, last + 2, 2):
            x, y = columns[k, start:stop], columns[k + 1, start:stop]
            one, other = factors[k], factors[k + 1]
            if one == 0.0 and other == 0.0 and k < last:
                continue  # moves of one coordinate; what is no number is none in the last ones too
            for i in range(here.size):
                here[i] = _added(here[i], one, x[i], other, y[i])
        part = 0.0
        for i in range(here.size):
            part += _level(here[i])
        if part != part:
            part = 0.0
            for i in range(here.size):
                level = _level(here[i])
                part += level if level == level else 0.0
        total += np.int64(part)
    return total


def linear_total(columns: Matrix, factors: Vector, constant: float, bound: float) -> int:
    """Sum of ``constant + factors @ columns``, each clipped to +-bound, in units of bound / LEVELS.

    Parameters
    ----------
    columns : ndarray
        Records in columns; an even number of rows.
    factors, constant : ndarray, float
        What is multiplied with a row, and added.
    bound : float
        Largest absolute log-ratio of a record that is let through.

    Notes
    -----
    Whole numbers of at most ``LEVELS`` a record, from its own column alone, in arithmetic that is
    the same wherever it stands: sums over parts of the records add up to the sum over all. Factors
    and constant of the other sign give the sum with the other sign.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_dp.accounting.levels import LEVELS
    >>> from pymc_dp.curator.linear_ratios import linear_total
    >>> records = np.array([[0.5, 9.0, np.nan], [0.0, 0.0, 0.0]])
    >>> linear_total(records, np.array([1.0, 0.0]), -0.25, bound=1.0) / LEVELS
    1.25
    """
    scale = LEVELS / bound
    return int(_linear_total(columns, scale * factors, scale * constant))


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
        self._natural = pytensor.function(
            [theta], separation.natural, on_unused_input="ignore", **likelihood.compile_kwargs
        )
        self._natural.trust_input = True
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
        self._columns: Matrix | None = None
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
        factors = after - before
        return linear_total(self._of_records(), factors[1:], factors.item(0), bound)

    def _of(self, theta: Vector) -> Vector | None:
        """Factors of the parameters, in an even number after the constant."""
        natural = self._natural(theta)
        if not (abs(natural.item(0)) <= _MOST_CONSTANT and natural.dot(natural) < math.inf):
            return None
        return natural if natural.size % 2 else np.append(natural, 0.0)

    def _of_records(self) -> Matrix:
        if self._columns is None or self._data is not self._likelihood.data:
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
            n, width = self._likelihood.n_records, statistics.shape[1]
            if len(statistics) != n:
                raise AssertionError("Statistics of another number of records.")
            self._columns = np.zeros((width + width % 2, n))
            self._columns[:width] = statistics.T
        return self._columns

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_columns": None, "_data": None, "_kept": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._natural.trust_input = True


def _shapes(likelihood: RecordLikelihood) -> list[tuple[int | None, ...]]:
    """Shapes of the records' arrays, their number left open."""
    return [
        (*rows.shape[:axis], None, *rows.shape[axis + 1 :])
        for rows, axis in zip(likelihood.data, likelihood.axes, strict=True)
    ]
