"""What runs in a worker: a job is unpickled once and kept, and compiles into its own directory.

PyTensor's compilation is not safe between threads, and its files are not safe between processes.
So one job runs at a time in a process, and every process has a directory for what it compiles: one
of some that stay on the machine, so that workers of the next run find it filled.
"""

from __future__ import annotations

import os
import platform
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import cloudpickle
from filelock import FileLock, Timeout
from pytensor.configdefaults import config

from pymc_dp.executors.links import Link
from pymc_dp.numerics.compiled import compile_into

__all__ = ["Reporter", "call", "process_name"]

#: jobs that a worker keeps, the ones last used
MOST_JOBS = 4
#: seconds between reports
INTERVAL = 0.5

_running = threading.Lock()
_jobs: OrderedDict[str, Any] = OrderedDict()
_directories: dict[str, FileLock | None] = {}


class Reporter:
    """How a job tells, now and then, how far it is, and learns that it should stop."""

    def __init__(self, link: Link, index: int) -> None:
        self.link, self.index = link, index
        self._next = time.monotonic() + INTERVAL

    def stopped(self) -> bool:
        """Whether nobody waits for more."""
        return self.link.stopped()

    def report(self, done: int, statistics: Sequence[dict[str, Any]] = ()) -> bool:
        """Tell how much is done, if it is time to; whether to stop."""
        if time.monotonic() < self._next:
            return False
        self.link.report(self.index, done, [_plain(one) for one in statistics])
        self._next = time.monotonic() + INTERVAL
        return self.link.stopped()


def _plain(statistics: dict[str, Any]) -> dict[str, Any]:
    """Keep numbers, as Python's own: they may travel as text."""
    plain = {
        name: value.item() if hasattr(value, "item") and getattr(value, "size", 0) == 1 else value
        for name, value in statistics.items()
    }
    return {name: value for name, value in plain.items() if isinstance(value, bool | int | float)}


def process_name() -> str:
    """Name of this process among those of all machines."""
    return f"{platform.node()} {os.getpid()}"


def call(job: bytes, driver: str, link: Link, index: int, arguments: bytes) -> Any:
    """Call a pickled job, which is kept for the next call, with pickled arguments.

    Parameters
    ----------
    job : bytes
        A callable, whose first argument is a :class:`Reporter`.
    driver : str
        :func:`process_name` of the process that waits, whose own directory is left alone.
    link : Link
        How to tell that process how far this is.
    index : int
        Number of the task there.
    arguments : bytes
        A tuple of further arguments, unpickled anew every time: whoever runs a task again starts
        from the same generator.
    """
    with _running:
        _own_directory(driver)
        return _kept(job)(Reporter(link, index), *cloudpickle.loads(arguments))


def _kept(job: bytes) -> Any:
    key = sha256(job).hexdigest()
    if key not in _jobs:
        _jobs[key] = cloudpickle.loads(job)
        while len(_jobs) > MOST_JOBS:
            _jobs.popitem(last=False)
    _jobs.move_to_end(key)
    return _jobs[key]


def _own_directory(driver: str) -> None:
    """Compile, from now on, into a directory that no other process uses meanwhile."""
    here = process_name()
    if here != driver and here not in _directories:  # a forked process is another one
        directory, lock = free_directory(config.base_compiledir / "workers")
        compile_into(directory)
        _directories[here] = lock


def free_directory(root: Path) -> tuple[Path, FileLock | None]:
    """Take the first directory of this machine that no living process has, until it ends.

    Homes may be shared between machines, so their names are part of the path. Where nothing can be
    written or locked there, the directory is a temporary one.
    """
    try:
        for slot in count():
            directory = root / f"{platform.node()}-{slot}"
            directory.mkdir(parents=True, exist_ok=True)
            lock = FileLock(directory / "taken", timeout=0)
            try:
                lock.acquire()
            except Timeout:
                continue
            return directory, lock
    except (OSError, NotImplementedError):
        pass
    return Path(tempfile.mkdtemp(prefix="pymc_dp_")), None
