"""Submit tasks, wait for them, and run those again whose worker died."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from typing import Any

from pymc_dp.executors.links import link_for
from pymc_dp.executors.worker import call, process_name

__all__ = ["check_executor", "completed"]

#: times that a task is run again after its worker died; Dask counts for itself
RETRIES = 2
#: seconds in which interrupted tasks may hand in what they have
PATIENCE = 10.0

Told = Callable[[int, int, list[dict[str, Any]]], None]


def check_executor(executor: Any) -> None:
    """Refuse what cannot run tasks."""
    if not callable(getattr(executor, "submit", None)):
        raise TypeError(
            f"executor= is {executor!r}, which has no submit. Pass a client of Dask, as in "
            "dask.distributed.Client(), or an executor of concurrent.futures."
        )


def completed(
    executor: Any, job: bytes, arguments: Sequence[bytes], told: Told | None = None
) -> Iterator[tuple[int, Any]]:
    """Run a job once for each arguments, and give out results as they come.

    A task whose worker died is run again, with the same arguments and so the same draws. Errors of
    tasks are raised as they are, and the rest is cancelled. After an interrupt, tasks that can be
    reached hand in what they have, and there may be fewer results than arguments.

    Parameters
    ----------
    executor : object with ``submit``
        Whose futures have ``add_done_callback``, as those of Dask and concurrent.futures.
    job : bytes
        A pickled callable (see :func:`~pymc_dp.executors.worker.call`).
    arguments : sequence of bytes
        Pickled tuples, one a task.
    told : callable, optional
        Called with a task's number, how much of it is done, and statistics, now and then.

    Yields
    ------
    tuple
        A task's number and its result.
    """
    tasks = _Tasks(executor, job, arguments, told)
    try:
        for index in range(len(arguments)):
            tasks.submit(index)
        yield from tasks.results()
    except KeyboardInterrupt:
        yield from tasks.handed_in()
    finally:
        tasks.close()


class _Tasks:
    def __init__(
        self, executor: Any, job: bytes, arguments: Sequence[bytes], told: Told | None
    ) -> None:
        self.executor, self.arguments, self.told = executor, arguments, told
        self.link = link_for(executor)
        self.on_dask = hasattr(executor, "subscribe_topic")
        # a task of Dask's own: computed again where the worker that has it dies
        self.job = executor.submit(bytes, job, pure=False) if self.on_dask else job
        self.futures: dict[int, Any] = {}
        self.tries = [0] * len(arguments)
        self.inbox: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        self.link.listen(lambda *report: self.inbox.put(report))

    def submit(self, index: int) -> None:
        options = {"pure": False} if self.on_dask else {}
        self.tries[index] += 1
        future = self.executor.submit(
            call, self.job, process_name(), self.link, index, self.arguments[index], **options
        )
        self.futures[index] = future
        future.add_done_callback(lambda done: self.inbox.put((index, done)))

    def results(self, until: float = float("inf")) -> Iterator[tuple[int, Any]]:
        """Results as they come, until all are there or it is too late."""
        while self.futures and time.monotonic() < until:
            try:
                message = self.inbox.get(timeout=0.2)
            except queue.Empty:
                continue
            if len(message) == 3:
                if self.told is not None:
                    self.told(*message)
                continue
            index, future = message
            if index not in self.futures:
                continue
            try:
                result = future.result()
            except BrokenExecutor as error:
                self._again(index, error)
                continue
            del self.futures[index]
            yield index, result

    def _again(self, index: int, error: BrokenExecutor) -> None:
        """Run a task again; what is broken for good is raised."""
        try:
            if self.tries[index] > RETRIES:
                raise error
            self.submit(index)
        except BrokenExecutor as final:
            final.add_note(
                "A worker died, perhaps for want of memory, and this executor starts no other. "
                "Make a new one and run again: the same random_seed gives the same draws."
            )
            raise final from None

    def handed_in(self) -> Iterator[tuple[int, Any]]:
        """Ask for what there is."""
        self.link.stop()
        if not self.on_dask:  # whose cancelling takes results from tasks that run
            for index, future in list(self.futures.items()):
                if future.cancel():
                    del self.futures[index]
        yield from self.results(until=time.monotonic() + PATIENCE)

    def close(self) -> None:
        for future in self.futures.values():
            future.cancel()
        self.link.close()
