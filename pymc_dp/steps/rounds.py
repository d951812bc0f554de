"""A whole round of moves of a block, records and parameters, as one compiled call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pymc.blocking import PointType
from pymc.step_methods.state import DataClassState, dataclass_state

from pymc_dp.kernels.arrays import Part, make_rounds
from pymc_dp.kernels.compiled import source_key
from pymc_dp.records import RecordBlock
from pymc_dp.steps.compiled_block import CompiledBlock
from pymc_dp.steps.interweave import Interweaving, interweaving_plan
from pymc_dp.steps.packing import Packing
from pymc_dp.steps.parameters import ParameterUpdate

__all__ = ["Rounds", "Tuning"]


@dataclass_state
class Tuning(DataClassState):
    """What a block's moves learn while tuning; frozen afterwards. See ``kernels.arrays``."""

    width: NDArray[np.float64]
    mean: NDArray[np.float64]
    cov: NDArray[np.float64]
    factor: NDArray[np.float64]
    widths: NDArray[np.float64]
    learned: NDArray[np.int64]

    @classmethod
    def start(cls, walking: int, size: int) -> Tuning:
        """Begin small; nothing is known yet."""
        return cls(
            width=np.ones(1),
            mean=np.zeros(walking),
            cov=0.01 * np.eye(walking),
            factor=0.1 * np.eye(walking),
            widths=np.ones(size),
            learned=np.zeros(1, dtype=np.int64),
        )


_LEARNED = ("width", "mean", "cov", "factor", "widths", "learned")


class Rounds:
    """Moves of one block of records and of the parameters that go with it.

    Parameters
    ----------
    model : Model
        The model.
    block : RecordBlock or None
        Records; None where parameters alone move.
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
        block: RecordBlock | None,
        parameters: Sequence[Any],
        interweave: bool,
        point: PointType,
        compile_kwargs: dict[str, Any],
    ) -> None:
        plan = interweaving_plan(model, block) if block is not None and interweave else ""
        along = [] if isinstance(plan, str) else [p for p in plan[1] if p not in parameters]
        records = [] if block is None else block.records
        numba = {**compile_kwargs, "mode": "NUMBA"}  # whose functions can be joined
        self.packing = Packing(model, [*parameters, *along], records, point, numba)
        self.records = None if block is None else CompiledBlock(model, block, self.packing)
        self.updates = [ParameterUpdate.of(model, p, self.packing, point) for p in parameters]
        self.interweaving = (
            None if isinstance(plan, str) else Interweaving(model, plan, self.packing)
        )
        self.forget()
        self.step(point, np.random.default_rng(), self.start_tuning(), False, 0)  # compiles
        self.forget()

    @cached_property
    def run(self) -> Callable[..., None]:
        """All moves, numba-compiled into one."""
        parts: list[Part] = [] if self.records is None else self.records.parts()
        parts += [update.part() for update in self.updates]
        if self.interweaving is not None:
            parts.append(self.interweaving.part())
        return make_rounds(parts, self._key())

    def _key(self) -> str | None:
        """Name of all that is compiled, for the cache on disk; None where a part has no name."""
        movers = [self.records, *self.updates, self.interweaving]
        keys = [mover.key() for mover in movers if mover is not None]
        known = [key for key in keys if key is not None]
        if known != keys:
            return None
        return sha256("".join([source_key(), *known]).encode()).hexdigest()

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "run"}

    def start_tuning(self) -> Tuning:
        """Begin a chain, before which nothing is known."""
        walking = 0 if self.interweaving is None else self.interweaving.which.size
        return Tuning.start(walking, self.packing.size)

    def forget(self) -> None:
        """Drop what is known of the current records and of the release."""
        self.last: PointType | None = None
        self.components: Any = None

    def step(
        self,
        point: PointType,
        rng: np.random.Generator,
        tuning: Tuning,
        tune: bool,
        times: int,
    ) -> tuple[PointType, NDArray[np.float64]]:
        """Move: the new point, and the report of the kernel (see ``kernels.arrays``)."""
        if self.last is not None:
            self._check_untouched(point, self.last)
        pack = self.packing
        given = pack.given_of(point)
        if self.components is None or (self.records is not None and self.records.free_release):
            self.components = (np.zeros(0), np.zeros(0), np.zeros(0, dtype=np.int64))
            if (block := self.records) is not None:
                self.components = (block.released_values(given), block.noise, block.kind)
        theta, table, report = pack.theta_of(point), pack.table_of(point), np.zeros(2)
        learning = (getattr(tuning, name) for name in _LEARNED)
        self.run(rng, tune, times, theta, given, table, *self.components, *learning, report)
        point = pack.point_of(point, theta, table)
        self.last = {name: point[name] for name in pack.records}
        return point, report

    def _check_untouched(self, point: PointType, last: PointType) -> None:
        for name, value in last.items():
            if point[name] is not value and not np.array_equal(point[name], value):
                raise ValueError(
                    f"{name!r} is moved by RecordGibbs and by another step of the same run. "
                    "Leave it to one of them: take it out of the other step's variables."
                )
