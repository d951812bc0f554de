"""Between whoever waits and the workers: how far a task is, and that nobody waits any more."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from typing import Any, Protocol

__all__ = ["DaskLink", "Link", "ThreadLink", "link_for"]

Handler = Callable[[int, int, list[dict[str, Any]]], None]
_listeners: dict[str, tuple[Handler, threading.Event]] = {}


class Link(Protocol):
    """Pickled with every task: the first three are for the driver, the others for workers."""

    def listen(self, handler: Handler) -> None:
        """Have reports handled."""

    def stop(self) -> None:
        """Ask tasks to end early and return what they have."""

    def close(self) -> None:
        """Listen no more."""

    def report(self, index: int, done: int, statistics: list[dict[str, Any]]) -> None:
        """Tell how far a task is."""

    def stopped(self) -> bool:
        """Whether tasks are asked to end early."""


class ThreadLink:
    """Between threads of one process. Tasks in other processes are not heard, nor reached."""

    def __init__(self) -> None:
        self.token = uuid.uuid4().hex

    def listen(self, handler: Handler) -> None:
        """Have reports handled."""
        _listeners[self.token] = (handler, threading.Event())

    def stop(self) -> None:
        """Ask tasks to end early and return what they have."""
        _listeners[self.token][1].set()

    def close(self) -> None:
        """Listen no more."""
        _listeners.pop(self.token, None)

    def report(self, index: int, done: int, statistics: list[dict[str, Any]]) -> None:
        """Tell how far a task is."""
        if self.token in _listeners:
            _listeners[self.token][0](index, done, statistics)

    def stopped(self) -> bool:
        """Whether tasks are asked to end early."""
        return self.token in _listeners and _listeners[self.token][1].is_set()


class DaskLink:
    """Through Dask's scheduler: events on a topic, and a flag of the same name."""

    def __init__(self, client: Any) -> None:
        self.client: Any = client
        self.topic = f"pymc_dp-{uuid.uuid4().hex}"

    def listen(self, handler: Handler) -> None:
        """Have reports handled."""
        self.client.subscribe_topic(self.topic, lambda event: handler(*event[1]))

    def stop(self) -> None:
        """Ask tasks to end early and return what they have."""
        self._flag(self.client).set()

    def close(self) -> None:
        """Listen no more."""
        self.client.unsubscribe_topic(self.topic)

    def report(self, index: int, done: int, statistics: list[dict[str, Any]]) -> None:
        """Tell how far a task is."""
        from distributed import get_worker

        get_worker().log_event(self.topic, [index, done, statistics])

    def stopped(self) -> bool:
        """Whether tasks are asked to end early."""
        return bool(self._flag(None).is_set())

    def _flag(self, client: Any) -> Any:
        from distributed import Event

        return Event(self.topic, client=client)

    def __getstate__(self) -> dict[str, Any]:
        return {"client": None, "topic": self.topic}


def link_for(executor: Any) -> Link:
    """Choose by what an executor can do."""
    return DaskLink(executor) if hasattr(executor, "subscribe_topic") else ThreadLink()
