"""Multinomial tables whose probabilities are products of shares: both are drawn in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from math import lgamma
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pymc.blocking import PointType
from pytensor.tensor.variable import TensorVariable
from scipy import sparse

from pymc_dp.analyst.count_gibbs.cells import CountTable
from pymc_dp.analyst.count_gibbs.laws import PHI, TERMS
from pymc_dp.analyst.count_gibbs.noise import ReleasedComponents
from pymc_dp.analyst.count_gibbs.shares import Shares, known_sums, products_of_shares
from pymc_dp.analyst.count_gibbs.shares import released as is_released
from pymc_dp.analyst.count_gibbs.start import (
    known_totals,
    started,
    sweep_arrays,
    table_lattice,
)
from pymc_dp.analyst.count_gibbs.sweep import SweepArrays, make_sweep
from pymc_dp.graph.layout import PointLayout
from pymc_dp.numerics.compiled import join, joined_key
from pymc_dp.numerics.cycles import inner_cached
from pymc_dp.numerics.nuts import ACCEPT, REPORT_SIZE
from pymc_dp.numerics.nuts_tuning import NUTSTuning
from pymc_dp.types import Vector

__all__ = ["DrawnShares"]

#: acceptance that the scales of shifts are tuned to
_TARGET = 0.4
#: keeps a draw that underflows away from the edge of its support
_TINY = 1e-300
#: cells that shifts look at in one draw, at the least
_SHIFTED = 5000


class Scales(NamedTuple):
    """How far moves go, as learned while tuning: a chain carries it on."""

    units: Vector
    shifts: Vector


class State(NamedTuple):
    """What moves change and need.

    Attributes
    ----------
    x, log_x : ndarray
        The shares.
    laws : ndarray
        Terms of the cells' laws.
    counts, statistic : ndarray
        Counts, and what they add up to.
    change, change_to : ndarray
        Room for proposals: of counts, and of the statistic.
    row_of, trials : ndarray
        The multinomial row of every cell, and the rows' sums.
    arrays : SweepArrays
        What moves of cells need.
    scales : ndarray
        Of shifts, one a row of shares.
    """

    x: Vector
    log_x: Vector
    laws: NDArray[np.float64]
    counts: Vector
    statistic: Vector
    change: Vector
    change_to: Vector
    row_of: NDArray[np.int64]
    trials: Vector
    arrays: SweepArrays
    scales: Vector


@inner_cached
def draw_shares(rng, shares, counts, x, log_x, phi):  # type: ignore[no-untyped-def]
    """Draw the shares given the counts, and write the cells' log-probabilities."""
    for row in range(shares.rows.size - 1):
        first, stop, total = shares.rows[row], shares.rows[row + 1], 0.0
        for k in range(first, stop):
            a = shares.prior[k]
            for at in range(shares.by_share[k], shares.by_share[k + 1]):
                a += shares.by_share_powers[at] * counts[shares.cells[at]]
            x[k] = rng.standard_gamma(a) + _TINY
            total += x[k]
        for k in range(first, stop):
            log_x[k] = np.log(x[k]) - np.log(total)
            x[k] /= total
    for i in range(counts.size):
        phi[i] = shares.constant[i]
        for at in range(shares.starts[i], shares.starts[i + 1]):
            phi[i] += shares.powers[at] * log_x[shares.entries[at]]


@inner_cached
def add_up(counts, arrays, statistic):  # type: ignore[no-untyped-def]
    """Statistics of a table."""
    statistic[:] = arrays.constant
    for i in range(counts.size):
        if counts[i] != 0.0:
            for at in range(arrays.starts[i], arrays.starts[i + 1]):
                statistic[arrays.rows[at]] += arrays.factors[at] * counts[i]


@inner_cached
def unconstrained(shares, log_x, theta):  # type: ignore[no-untyped-def]
    """Write the shares as PyMC's transforms do."""
    j = 0
    for row in range(shares.rows.size - 1):
        first, stop = shares.rows[row], shares.rows[row + 1]
        shift = log_x[stop - 1]
        if not shares.beta[row]:
            shift = 0.0
            for k in range(first, stop):
                shift += log_x[k] / (stop - first)
        for k in range(first, stop - 1):
            theta[j] = log_x[k] - shift
            j += 1


def log_noise(kind, released, statistic, noise):  # type: ignore[no-untyped-def]
    """Log-density of one component: a place to be taken."""
    raise NotImplementedError


def _shift(rng, shares, row, state, rate):  # type: ignore[no-untyped-def]
    """Offer two shares of a row others, and the cells what this changes in their expectation.

    Counts change by n (q' - q), rounded along the table so that its rows keep their sums. The
    change depends on the shares alone and is the opposite the other way round, so that the ratio is
    that of the densities.
    """
    arrays, counts, phi = state.arrays, state.counts, state.laws[PHI]
    first, size = shares.rows[row], shares.rows[row + 1] - shares.rows[row]
    one = int(rng.random() * size)
    two = (one + 1 + int(rng.random() * (size - 1))) % size
    one, two = first + one, first + two
    step = state.scales[row] * rng.normal()
    new_one, new_two = state.x[one] + step, state.x[two] - step
    possible, gain = min(new_one, new_two) > 0.0, 0.0
    if possible:
        more_one, more_two = np.log(new_one / state.x[one]), np.log(new_two / state.x[two])
        gain = (shares.prior[one] - 1.0) * more_one + (shares.prior[two] - 1.0) * more_two
        a, a_stop = shares.by_share[one], shares.by_share[one + 1]
        b, b_stop = shares.by_share[two], shares.by_share[two + 1]
        moved, behind, last = 0.0, 0.0, -1
        state.change_to[:] = state.statistic
        while a < a_stop or b < b_stop:  # cells that have either share, in order
            i = counts.size
            if a < a_stop:
                i = shares.cells[a]
            if b < b_stop:
                i = min(i, shares.cells[b])
            more = 0.0
            if a < a_stop and shares.cells[a] == i:
                more += shares.by_share_powers[a] * more_one
                a += 1
            if b < b_stop and shares.cells[b] == i:
                more += shares.by_share_powers[b] * more_two
                b += 1
            if state.row_of[i] != last:
                possible = possible and behind == 0.0
                moved, behind, last = 0.0, 0.0, state.row_of[i]
            moved += state.trials[last] * (np.exp(phi[i] + more) - np.exp(phi[i]))
            ahead = np.rint(moved)
            k = ahead - behind
            behind = ahead
            state.change[i] = k
            if counts[i] + k < 0.0:
                possible = False
                break
            gain += counts[i] * more
            if k != 0.0:
                gain += k * (phi[i] + more)
                gain -= lgamma(counts[i] + k + 1.0) - lgamma(counts[i] + 1.0)
                for at in range(arrays.starts[i], arrays.starts[i + 1]):
                    state.change_to[arrays.rows[at]] += arrays.factors[at] * k
        possible = possible and behind == 0.0
    if possible:
        for r in range(state.statistic.size):
            if state.change_to[r] != state.statistic[r]:
                kind, released, noise = arrays.kind[r], arrays.released[r], arrays.noise[r]
                gain += log_noise(kind, released, state.change_to[r], noise)
                gain -= log_noise(kind, released, state.statistic[r], noise)
    accepted = possible and -rng.standard_exponential() < gain
    if accepted:
        state.statistic[:] = state.change_to
        for k, value, more in ((one, new_one, more_one), (two, new_two, more_two)):
            state.x[k] = value
            state.log_x[k] += more
            for at in range(shares.by_share[k], shares.by_share[k + 1]):
                i = shares.cells[at]
                phi[i] += shares.by_share_powers[at] * more
                counts[i] += state.change[i]
                state.change[i] = 0.0
    if rate > 0.0:
        chance = min(1.0, np.exp(gain)) if possible else 0.0
        state.scales[row] = min(state.scales[row] * np.exp(rate * (chance - _TARGET)), 0.5)
    return accepted


def shift(rng, shares, row, state, rate):  # type: ignore[no-untyped-def]
    """See :func:`_shift`: a place to be taken."""
    raise NotImplementedError


def sweep(rng, arrays, laws, counts, statistic, times, rate):  # type: ignore[no-untyped-def]
    """Move cells: a place to be taken."""
    raise NotImplementedError


def _draw(rng, theta, shares, state, times, shifts, rate):  # type: ignore[no-untyped-def]
    """Draw shares given cells, move cells by some units, then both together."""
    draw_shares(rng, shares, state.counts, state.x, state.log_x, state.laws[PHI])
    add_up(state.counts, state.arrays, state.statistic)
    accepted = sweep(rng, state.arrays, state.laws, state.counts, state.statistic, times, rate)
    for _ in range(shifts):
        shift(rng, shares, int(rng.random() * (shares.rows.size - 1)), state, rate)
    unconstrained(shares, state.log_x, theta)
    return accepted


class DrawnShares:
    """Shares drawn from their conditional given a multinomial table, which moves by units.

    Where noise is strong, counts and shares hold each other: a move of both together then helps,
    which keeps counts as far from their expectation as they are. None of this depends on the model
    but by arrays, so that it is compiled once for all models with the same noise.

    Parameters
    ----------
    table : CountTable
        The cells.
    shares : Shares
        What their probabilities are products of.
    layout : PointLayout
        Of the parameters.
    released : ReleasedComponents
        What was released.
    """

    def __init__(
        self,
        table: CountTable,
        shares: Shares,
        layout: PointLayout,
        released: ReleasedComponents,
    ) -> None:
        self.table, self.shares, self.layout, self.released = table, shares, layout, released
        self.row_of = sparse.csc_array(known_sums(table)).indices.astype(np.int64)
        self.lattice = table_lattice(table, known_totals(table, released.components()))
        self.read_release()
        seen = 2 * shares.cells.size / shares.prior.size  # cells that a shift looks at
        shifts = int(np.clip(max(table.size, _SHIFTED) / max(seen, 1), 1, 4 * shares.prior.size))
        #: a shift does not keep exact totals
        self.shifts = 0 if np.any(table.exact) else shifts

    @classmethod
    def of(
        cls,
        model: pm.Model,
        table: CountTable,
        parameters: Sequence[TensorVariable],
        released: ReleasedComponents,
        point: PointType,
        compile_kwargs: dict[str, Any],
    ) -> DrawnShares | None:
        """Make it, where cells are products of shares that the release sees; None elsewhere."""
        shares = products_of_shares(model, table, parameters)
        if shares is None or not is_released(table, shares):
            return None
        return cls(table, shares, PointLayout(model, parameters, [], point, {}), released)

    def read_release(self) -> None:
        """Take the released values as they are now; totals must not contradict each other."""
        self.components = self.released.components()
        self.totals = known_totals(self.table, self.components)
        self.arrays = sweep_arrays(self.table, self.components, self.lattice)

    def begin(
        self, rng: np.random.Generator, theta: Vector, given: Vector, counts: Vector
    ) -> tuple[Vector, Vector, Scales, Vector]:
        """Return where a chain starts: parameters, counts, and how far moves go."""
        counts = started(rng, self.table, self.lattice, self.totals, self.components, counts)
        scales = np.full(len(self.shares.rows) - 1, 0.01)
        return theta, counts, Scales(np.ones_like(self.arrays.scales), scales), np.ones(theta.size)

    def move(
        self,
        rng: np.random.Generator,
        theta: Vector,
        given: Vector,
        counts: Vector,
        tuning: NUTSTuning,
        carried: Scales,
    ) -> tuple[Vector, Vector]:
        """Move parameters and cells in place."""
        size, components = counts.size, len(self.arrays.kind)
        state = State(
            np.empty(self.shares.prior.size), np.empty(self.shares.prior.size),
            np.repeat(np.array(list(TERMS.values()))[:, np.newaxis], size, axis=1),
            counts, np.empty(components), np.zeros(size), np.empty(components),
            self.row_of, self.totals.values[: self.row_of[-1] + 1],
            self.arrays._replace(scales=carried.units), carried.shifts,
        )  # fmt: skip
        rate = (1.0 + tuning.count) ** -0.5 if tuning.active else 0.0
        times = int(np.clip(200 // size, 1, 8))
        report = np.zeros(REPORT_SIZE)
        report[ACCEPT] = self.draw(rng, theta, self.shares, state, times, self.shifts, rate)
        return theta, report

    @cached_property
    def draw(self) -> Callable[..., float]:
        """Compiled ``draw(rng, theta, shares, state, times, shifts, rate)``."""
        key = joined_key([make_sweep, DrawnShares], self.released.key)

        def named(part: str) -> str | None:
            return None if key is None else f"{key} {part}"

        noise = {"log_noise": self.released.log_noise}
        parts = {
            "shift": join(_shift, noise, named("shift")),
            "sweep": make_sweep(self.released.log_noise, named("sweep")),
        }
        made: Callable[..., float] = join(_draw, parts, key)
        return made

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "draw"}
