"""Shards in this process: for tests, and for data that is loaded part by part."""

from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

from pymc_dp.curator.shards.host import Failure, Host, install
from pymc_dp.curator.shards.partition import Layout, layout_of
from pymc_dp.curator.shards.shard import Recipe, Report

__all__ = ["LocalHosts"]


class LocalHosts:
    """Holds shards, and asks them one after the other.

    Parameters
    ----------
    partitions : sequence
        Arrays, tables, tuples of them, or functions without arguments that load such.
    """

    def __init__(self, partitions: Sequence[Any]) -> None:
        self._partitions: list[Any] | None = list(partitions)
        self._host = Host(uuid4().hex)
        self.number = len(self._partitions)

    def layout(self) -> tuple[Layout, ...]:
        """Tell what is public of the first partition."""
        assert self._partitions is not None
        return layout_of(_loaded(self._partitions[0]))

    def install(self, recipe: Recipe) -> list[Report]:
        """Make a shard of every partition."""
        assert self._partitions is not None
        reports = []
        for number, partition in enumerate(self._partitions):
            reports.append(install(self._host.name, number, recipe, _loaded(partition)))
        self._partitions = None  # the shards have them now
        return reports

    def ask(
        self, question: str, common: tuple[Any, ...], own: dict[int, tuple[Any, ...]]
    ) -> list[int]:
        """Add up the answers of some shards."""
        answer = self._host.ask(question, common, own)
        if isinstance(answer, Failure):
            raise RuntimeError(f"A shard could not answer: {answer.message}.")
        return answer

    @property
    def release(self) -> Callable[[], None]:
        """What lets the shards go."""
        return self._host.forget


def _loaded(partition: Any) -> Any:
    if not callable(partition):
        return partition
    try:
        return partition()
    except Exception as error:
        raise ValueError(f"A partition could not be loaded ({type(error).__name__}).") from None
