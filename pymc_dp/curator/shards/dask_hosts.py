"""Shards on the workers of a Dask cluster: placed, asked, and made again where a worker dies.

A worker's shards live in its process. One actor a worker answers for them: a question travels to it
without a task of its own, and one message a worker is enough for any number of partitions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from uuid import uuid4

import cloudpickle

from pymc_dp.curator.shards.host import Failure, Host, Loader, install, loaded
from pymc_dp.curator.shards.partition import Layout, layout_of
from pymc_dp.curator.shards.shard import Recipe, Report

__all__ = ["DaskHosts", "delayed_partitions"]

_LOOK = 2.0  # seconds after which a worker that does not answer is looked for
_INSTEAD = (
    "What was claimed for this run stays spent. Start another one with what is left of the budget, "
    "or find out on the workers what went wrong."
)


class _LostError(Exception):
    """A worker is gone, and its shards with it."""


class _Place(NamedTuple):
    """A worker that holds shards, and the actor that answers for them."""

    address: str
    actor: Any


class DaskHosts:
    """Shards on the workers of a client.

    Parameters
    ----------
    client : distributed.Client
        Connected to the cluster.
    partitions : sequence of tuple of Delayed
        Each partition's arrays, to be computed on a worker.
    timeout : float
        Seconds that an answer may take, other workers' loading of lost partitions included.
    """

    def __init__(self, client: Any, partitions: Sequence[tuple[Any, ...]], timeout: float) -> None:
        self._client, self._timeout = client, timeout
        self._partitions, self.number = list(partitions), len(partitions)
        self._name = uuid4().hex
        self._actors: dict[str, Any] = {}
        self._where: dict[int, str] = {}
        self._reports: list[Report] = []
        self._recipe: Recipe | None = None
        self._broken = ""
        self._compiled: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    def layout(self) -> tuple[Layout, ...]:
        """Tell what is public of the first partition."""
        future = self._client.submit(_layout, *self._given(0), pure=False)
        return self._result(future, 0, self._deadline())

    def install(self, recipe: Recipe) -> list[Report]:
        """Make a shard of every partition, where it lives or on all workers by turns."""
        self._recipe = recipe
        workers = self._workers()
        if not workers:
            raise ValueError("The client has no workers: start some, and wait for them.")
        wanted = {
            number: self._lives(number) or workers[number * len(workers) // self.number]
            for number in range(self.number)
        }
        try:
            self._reports = list(self._install(wanted, self._deadline()).values())
        except _LostError:
            raise RuntimeError(
                "A worker died while shards were made. Nothing was claimed: try again."
            ) from None
        return self._reports

    def ask(
        self, question: str, common: tuple[Any, ...], own: dict[int, tuple[Any, ...]]
    ) -> list[int]:
        """Add up the answers of some shards; those that are lost are made again elsewhere.

        A sum enters once for each shard, by whichever worker answered. Nothing has been released
        before all have, so that a shard may be asked again.
        """
        self._refuse_broken()
        deadline, left, total = self._deadline(), dict(own), None
        while left:
            asked = []
            for address in sorted({self._where[number] for number in left}):
                some = {n: args for n, args in left.items() if self._where[n] == address}
                asked.append((address, some, self._sent(address, question, common, some)))
            lost: list[int] = []
            for address, some, future in asked:
                try:
                    answer = self._answer(address, future, deadline)
                except _LostError:
                    self._actors.pop(address, None)
                    lost.extend(some)
                    continue
                total = answer if total is None else _added(total, answer)
                for number in some:
                    del left[number]
            if lost:
                self._restore(lost, deadline)
        assert total is not None
        if question.startswith("compile"):
            names = [name for part in common if isinstance(part, dict) for name in part]
            self._compiled[question, *common[:1], *names] = common
        return total

    @property
    def release(self) -> Callable[[], None]:
        """What lets the shards go."""
        actors = self._actors

        def release() -> None:
            for actor in actors.values():
                with suppress(Exception):
                    actor.forget()

        return release

    def _deadline(self) -> float:
        return time.monotonic() + self._timeout

    def _workers(self) -> list[str]:
        if self._client.status in ("closing", "closed"):
            raise RuntimeError(
                "The cluster that holds the shards of a model is closed, and they cannot be asked "
                "any more: let go of that model (del), and make it anew on another cluster."
            )
        return sorted(self._client.scheduler_info(n_workers=-1)["workers"])

    def _lives(self, number: int) -> str | None:
        """Where a partition is held in memory, if it is."""
        held = [future for part in self._partitions[number] for future in _held(part)]
        places = self._client.who_has(held[:1]).values() if held else []
        return next((address for some in places for address in some), None)

    def _given(self, number: int) -> list[Any]:
        """Tell a worker's task how to come by a partition.

        What is in memory on some worker is sent by Dask. What is to be loaded is loaded inside the
        task, so that it belongs to no other: a task of its own might still be bound to a worker
        that died.
        """
        parts = list(self._partitions[number])
        if any(_held(part) for part in parts):
            return list(self._client.compute(parts))
        return [Loader(cloudpickle.dumps(parts))]

    def _install(self, wanted: dict[int, str], deadline: float) -> dict[int, Report]:
        """Make shards on workers and the actors that answer for them."""
        futures = {}
        for number, address in wanted.items():
            futures[number] = self._client.submit(
                install,
                self._name,
                number,
                self._recipe,
                *self._given(number),
                workers=[address],
                allow_other_workers=False,
                pure=False,
                retries=0,
            )
        made = {}
        for number, future in futures.items():
            made[number] = self._result(future, number, deadline, wanted[number])
            if self._reports and made[number] != self._reports[number]:
                self._broken = (
                    f"Partition {number} was lost with its worker, and cannot be made again as it "
                    f"was ({made[number].refusal or 'other records'})."
                )
                self._refuse_broken()
            self._where[number] = wanted[number]
        for address in sorted(set(wanted.values()) - self._actors.keys()):
            actor = self._client.submit(
                Host,
                self._name,
                actor=True,
                workers=[address],
                allow_other_workers=False,
                pure=False,
            )
            with self._client.as_current():
                self._actors[address] = self._result(actor, None, deadline, address)
        return made

    def _result(
        self, future: Any, number: int | None, deadline: float, address: str | None = None
    ) -> Any:
        """Wait for a task; while its worker lives, where it must run on one."""
        while True:
            try:
                return future.result(timeout=_LOOK)
            except TimeoutError:
                pass
            except Exception as error:
                if address is not None and _is_of_dask(error):
                    raise _LostError from None
                what = "A shard" if number is None else f"Partition {number}"
                raise ValueError(
                    f"{what} could not be loaded ({type(error).__name__}): try its loader, or "
                    "compute it, on a worker. What its message says may be confidential."
                ) from None
            if address is not None and address not in self._workers():
                future.cancel()
                raise _LostError
            self._refuse_late(deadline)

    def _refuse_late(self, deadline: float) -> None:
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"Workers did not answer within timeout={self._timeout:g} seconds "
                f"({len(self._workers())} are connected). {_INSTEAD}"
            )

    def _sent(
        self,
        address: str,
        question: str,
        common: tuple[Any, ...],
        own: dict[int, tuple[Any, ...]],
    ) -> Any:
        """Send a question; None where the worker is known to be gone."""
        actor = self._actors.get(address)
        if actor is None:
            return None
        try:
            return actor.ask(question, common, own)
        except RuntimeError:  # Dask has noticed
            return None

    def _answer(self, address: str, future: Any, deadline: float) -> list[int]:
        if future is None:
            raise _LostError
        while True:
            try:
                answer = future.result(timeout=_LOOK)
                break
            except TimeoutError:
                if address not in self._workers():
                    raise _LostError from None
                self._refuse_late(deadline)
            except OSError:
                raise _LostError from None
        if isinstance(answer, Failure):
            if answer.missing:
                raise _LostError
            raise RuntimeError(f"A shard could not answer: {answer.message}. {_INSTEAD}")
        return answer

    def _refuse_broken(self) -> None:
        """Refuse to go on with other records than those that were counted, now and later."""
        if self._broken:
            raise RuntimeError(f"{self._broken} {_INSTEAD}")

    def _restore(self, lost: Iterable[int], deadline: float) -> None:
        """Make lost shards again, on workers that are left or new, with what they had compiled."""
        numbers = list(lost)
        gone = {self._where[number] for number in numbers}
        while True:
            self._refuse_late(deadline)
            # a worker that is started again in the same place holds nothing
            workers = [w for w in self._workers() if w not in gone]
            if not workers:
                gone = set()
                time.sleep(0.2)
                continue
            wanted = {n: workers[i % len(workers)] for i, n in enumerate(numbers)}
            try:
                self._install(wanted, deadline)
            except _LostError:
                gone = set(wanted.values()) - set(self._workers())
                for address in gone:
                    self._actors.pop(address, None)
                continue
            except ValueError as error:
                raise RuntimeError(
                    f"A worker died, and its shards with it. {error} {_INSTEAD}"
                ) from None
            break
        for (question, *_), common in list(self._compiled.items()):
            self.ask(question, common, dict.fromkeys(numbers, ()))


def _is_of_dask(error: BaseException) -> bool:
    """Whether a task failed because of its worker, and not by itself."""
    room = type(error).__module__.partition(".")[0]
    return room in ("distributed", "asyncio", "concurrent", "tornado")


def _layout(*given: Any) -> tuple[Layout, ...]:
    return layout_of(loaded(given))


def _added(total: list[int], answer: list[int]) -> list[int]:
    return [a + b for a, b in zip(total, answer, strict=True)]


def delayed_partitions(partitions: Any) -> list[tuple[Any, ...]]:
    """Partitions as tuples of what Dask computes, without computing any.

    Parameters
    ----------
    partitions : collection, tuple of collections, or sequence
        Dask arrays or a Dask dataframe; or partitions one by one, each a delayed object, a function
        that loads it, or arrays.
    """
    import dask

    if hasattr(partitions, "to_delayed"):
        partitions = (partitions,)
    if isinstance(partitions, tuple) and all(hasattr(part, "to_delayed") for part in partitions):
        parts = [_row_blocks(part) for part in partitions]
        if len({len(blocks) for blocks in parts}) > 1:
            raise ValueError(
                "The arrays have different numbers of partitions: rechunk them so that the same "
                "rows are together."
            )
        return list(zip(*parts, strict=True))
    made: list[tuple[Any, ...]] = []
    for part in partitions:
        if isinstance(part, tuple | list):
            made.append(tuple(dask.delayed(each, traverse=False) for each in part))
        elif callable(part) and not dask.is_dask_collection(part):
            made.append((dask.delayed(part)(),))
        else:
            made.append((dask.delayed(part, traverse=False),))
    return made


def _held(part: Any) -> list[Any]:
    """Futures of a delayed object or collection that is in the workers' memory; its own first."""
    from distributed import futures_of

    key = getattr(part, "key", None)
    return sorted(futures_of(part), key=lambda future: future.key != key)


def _row_blocks(collection: Any) -> list[Any]:
    if any(number > 1 for number in getattr(collection, "numblocks", (1,))[1:]):
        raise ValueError(
            "Rows of a Dask array are split: write rechunk({1: -1}), so that a record is in one "
            "partition."
        )
    # Dask's optimisation drops what is in memory already
    blocks = collection.to_delayed(optimize_graph=not _held(collection))
    return list(blocks.ravel()) if hasattr(blocks, "ravel") else list(blocks)
