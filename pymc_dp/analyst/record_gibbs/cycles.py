"""A whole cycle of moves, of records and of their parameters, as one compiled call."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pymc.blocking import PointType

from pymc_dp.analyst.invariants import ExactTotals
from pymc_dp.analyst.record_gibbs.compiled_records import CompiledRecords
from pymc_dp.analyst.record_gibbs.interweave import Interweaving, interweaving_plan
from pymc_dp.analyst.record_gibbs.parameters import ParameterUpdate
from pymc_dp.analyst.records import RecordBlock
from pymc_dp.compat import DataClassState, dataclass_state
from pymc_dp.graph.layout import PointLayout
from pymc_dp.numerics.compiled import joined_key
from pymc_dp.numerics.cycles import Arrays, Part, Place, make_cycles

__all__ = ["Cycles", "Tuning"]

_log = logging.getLogger(__name__)

#: records are swept in one cycle of this many where the other moves get anywhere by themselves: a
#: sweep costs as much as five of these
SWEEP_EVERY = 5
#: up to this many records a sweep costs less than a draw's fixed costs
FEW_RECORDS = 500
#: draws made in one call at the most, and entries of the records in them
MOST_DRAWS, MOST_ENTRIES = 16, 20_000


@dataclass_state
class Tuning(DataClassState):
    """What a block's moves learn while tuning, and where they are. See ``numerics.cycles``."""

    width: NDArray[np.float64]
    mean: NDArray[np.float64]
    cov: NDArray[np.float64]
    factor: NDArray[np.float64]
    widths: NDArray[np.float64]
    learned: NDArray[np.int64]
    turn: NDArray[np.int64]
    report: NDArray[np.float64]

    @classmethod
    def start(cls, walking: int, size: int, blocks: int) -> Tuning:
        """Begin small; nothing is known yet."""
        return cls(
            width=np.ones(1),
            mean=np.zeros(walking),
            cov=0.01 * np.eye(walking),
            factor=0.1 * np.eye(walking),
            widths=np.ones(size),
            learned=np.zeros(1, dtype=np.int64),
            turn=np.zeros(1, dtype=np.int64),
            report=np.zeros(2 * blocks),
        )


_LEARNED = ("width", "mean", "cov", "factor", "widths", "learned", "turn", "report")


class Cycles:
    """Moves of blocks of records and of the parameters that go with them.

    Parameters
    ----------
    model : Model
        The model.
    blocks : sequence of RecordBlock
        Records that share parameters; none where parameters alone move.
    parameters : sequence of TensorVariable
        Parameters to move given the records.
    interweave : bool
        Whether to move parameters with the records' residuals kept, too.
    point : dict
        A point of the model.
    compile_kwargs : dict
        Passed to the compilation.
    """

    def __init__(
        self,
        model: pm.Model,
        blocks: Sequence[RecordBlock],
        parameters: Sequence[Any],
        interweave: bool,
        point: PointType,
        compile_kwargs: dict[str, Any],
    ) -> None:
        plan = interweaving_plan(model, *blocks) if blocks and interweave else ""
        if isinstance(plan, str) and plan.startswith("no rule"):
            _log.warning(
                "RecordGibbs does not interweave: %s. Under strong privacy parameters may mix "
                "slowly: look at R-hat and the effective sample size.",
                plan,
            )
        carried = [] if isinstance(plan, str) else [p for p in plan[1] if p not in parameters]
        records = [rv for block in blocks for rv in block.records]
        numba = {**compile_kwargs, "mode": "NUMBA"}  # whose functions can be joined
        self.layout = PointLayout(model, [*parameters, *carried], records, point, numba)
        self.tables = [CompiledRecords(model, block, self.layout) for block in blocks]
        self.updates = [ParameterUpdate.of(model, p, self.layout, point) for p in parameters]
        self.interweaving = (
            None if isinstance(plan, str) else Interweaving(model, plan, self.layout)
        )
        #: totals without noise, with which a chain's first records are made to agree
        self.exact = [ExactTotals.of(model, block) for block in blocks]
        self.reaches = self._reaches(carried)
        many = self.layout.table.type.shape[1] >= FEW_RECORDS
        #: in how many cycles the records are swept once
        self.every = SWEEP_EVERY if self.reaches and many else 1
        entries = int(np.prod(self.layout.table.type.shape))
        self._most_at_once = int(np.clip(MOST_ENTRIES // max(entries, 1), 1, MOST_DRAWS))
        self.forget()
        self.step(point, np.random.default_rng(), self.start_tuning(), False, 0)  # compiles
        self.forget()

    @cached_property
    def run(self) -> Callable[..., None]:
        """All moves, numba-compiled into one."""
        moves: list[Part] = []
        for table, place in zip(self.tables, self._places(), strict=True):
            moves += table.parts(place)
        others = [update.part() for update in self.updates]
        if self.interweaving is not None:
            others.append(self.interweaving.part())
        key = joined_key([make_cycles, *moves, *others], self._key())
        return make_cycles(moves, others, key)

    def _places(self) -> list[Place]:
        """Where the kernel finds the records and releases of every block."""
        stops = np.cumsum([0, *(table.noise.size for table in self.tables)]).tolist()
        return [
            Place(table.where[:2], table.where[2], (stops[i], stops[i + 1]), 2 * i)
            for i, table in enumerate(self.tables)
        ]

    def _reaches(self, carried: Sequence[Any]) -> bool:
        """Whether parameters and interweaving move all that is known of the records.

        They then get anywhere by themselves, and sweeps only refresh the residuals. Not so where
        other steps move some of the parameters or the model has other terms of the records, and
        of no use where drawn residuals cost more than a sweep.
        """
        if self.interweaving is None or carried:
            return False
        components = sum(int(np.prod(s)) for table in self.tables for s in table.shapes)
        weighted = any(table.weighted for table in self.tables)
        move = self.interweaving
        return move.which.size >= components and not (move.draw is not None or weighted)

    def _key(self) -> str | None:
        """Name of all graphs in the moves, for the cache on disk; None where one has no name."""
        movers = [*self.tables, *self.updates, self.interweaving]
        keys = [mover.key() for mover in movers if mover is not None]
        known = [key for key in keys if key is not None]
        return "".join([*known, str(self._places())]) if known == keys else None

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "run"}

    def start_tuning(self) -> Tuning:
        """Begin a chain, before which nothing is known."""
        walking = 0 if self.interweaving is None else self.interweaving.which.size
        return Tuning.start(walking, self.layout.size, len(self.tables))

    def forget(self) -> None:
        """Drop what is known of the current records and of the release."""
        self.last: PointType | None = None
        self.components: Any = None
        self._ahead = _Ahead.none()
        self._at_once = 1

    def step(
        self,
        point: PointType,
        rng: np.random.Generator,
        tuning: Tuning,
        tune: bool,
        times: int,
    ) -> PointType:
        """Move: the new point.

        Draws are made some at once and given out one by one as long as nothing else moves: most of
        the time of a call with few records is spent on the way into compiled code.
        """
        if self.last is None:
            point = self._agreeing(point)
        untouched = self._check_untouched(point)
        if not (untouched and self._ahead.left and tune == self._ahead.tune):
            self._at_once = min(2 * self._at_once, self._most_at_once) if untouched else 1
            arrays = self._arrays(point, tuning)
            self._ahead = _Ahead.room(self._at_once, arrays, tune)
            self.run(rng, tune, times, self.every, *self._ahead.arrays, *arrays)
        theta, table, tuning.report[:] = self._ahead.next()
        new = self.layout.point_of(point, theta, table)
        self.last = dict(new)  # the caller may change the other
        return new

    def _agreeing(self, point: PointType) -> PointType:
        """Return where to start a chain: at records that agree with exact totals."""
        for table, exact in zip(self.tables, self.exact, strict=True):
            if exact is not None:
                released = table.released(self.layout.given_of(point))
                point = exact.start(point, released[table.release_names.index(exact.name)])
        return point

    def _arrays(self, point: PointType, tuning: Tuning) -> Arrays:
        """Lay a point out for the kernel."""
        pack = self.layout
        given = pack.given_of(point)
        if self.components is None or any(table.free_release for table in self.tables):
            parts = [(t.released_values(given), t.noise, t.kind) for t in self.tables]
            parts.append((np.zeros(0), np.zeros(0), np.zeros(0, dtype=np.int64)))
            self.components = [np.concatenate(part) for part in zip(*parts, strict=True)]
        learned = [getattr(tuning, name) for name in _LEARNED]
        return Arrays(pack.theta_of(point), given, pack.table_of(point), *self.components, *learned)

    def _check_untouched(self, point: PointType) -> bool:
        """Whether nothing moved since the last step; records must not have."""
        if self.last is None:
            return False
        # in a chain of its own process points are copies
        moved = [
            name
            for name, value in self.last.items()
            if point[name] is not value and not np.array_equal(point[name], value)
        ]
        if both := [name for name in moved if name in self.layout.records]:
            raise ValueError(
                f"{both[0]!r} is moved by RecordGibbs and by another step of the same run. "
                "Leave it to one of them: take it out of the other step's variables."
            )
        return not moved


class _Ahead:
    """Draws made in one call, given out one by one."""

    def __init__(self, arrays: tuple[NDArray[np.float64], ...], tune: bool) -> None:
        self.arrays, self.tune, self.given_out = arrays, tune, 0

    @classmethod
    def none(cls) -> _Ahead:
        return cls((np.zeros(0),), False)

    @classmethod
    def room(cls, draws: int, of: Arrays, tune: bool) -> _Ahead:
        shapes = (of.theta.shape, of.table.shape, of.report.shape)
        return cls(tuple(np.empty((draws, *shape)) for shape in shapes), tune)

    @property
    def left(self) -> bool:
        return self.given_out < len(self.arrays[0])

    def next(self) -> list[NDArray[np.float64]]:
        self.given_out += 1
        return [array[self.given_out - 1] for array in self.arrays]
