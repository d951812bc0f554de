"""Tasks on executors: results, errors, workers that die, interrupts. Nothing is compiled."""

import _thread
import os
import signal
import threading
import time
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import cloudpickle
import pytest
from dask.distributed import Client
from pytensor.configdefaults import config

from pymc_dp.executors import futures, worker
from pymc_dp.executors.futures import check_executor, completed
from pymc_dp.executors.worker import free_directory
from pymc_dp.numerics import leapfrog


class Inline:
    """Runs tasks where they are submitted; `fates` are errors to end the first ones with."""

    def __init__(self, *fates):
        self.fates, self.submitted = list(fates), 0

    def submit(self, function, *arguments):
        self.submitted += 1
        future = Future()
        fate = self.fates.pop(0) if self.fates else None
        if fate is not None:
            future.set_exception(fate)
            return future
        try:
            future.set_result(function(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future


class Squares:
    unpickled = 0

    def __call__(self, reporter, number):
        return 1 / 0 if number is None else number**2

    def __setstate__(self, state):
        Squares.unpickled += 1

    def __getstate__(self):
        return {"name": "squares"}


def squares(executor, numbers):
    job = cloudpickle.dumps(Squares())
    return dict(completed(executor, job, [cloudpickle.dumps((n,)) for n in numbers]))


def test_results_come_by_their_number_and_the_job_is_unpickled_once():
    worker._jobs.clear()
    before = Squares.unpickled
    assert squares(Inline(), range(5)) == {n: n**2 for n in range(5)}
    assert squares(Inline(), range(3)) == {n: n**2 for n in range(3)}
    assert Squares.unpickled == before + 1


def test_errors_are_raised_as_they_are():
    with pytest.raises(ZeroDivisionError):
        squares(Inline(), [1, None, 3])
    with pytest.raises(TypeError, match=r"no submit.*Client"):
        check_executor(3)


def test_task_of_a_dead_worker_runs_again():
    executor = Inline(None, BrokenProcessPool("died"), BrokenProcessPool("died"))
    assert squares(executor, [1, 2, 3]) == {0: 1, 1: 4, 2: 9}
    assert executor.submitted == 5


def test_task_that_kills_every_worker_is_given_up():
    executor = Inline(*(BrokenProcessPool("died") for _ in range(9)))
    with pytest.raises(BrokenProcessPool) as raised:
        squares(executor, [1])
    assert executor.submitted == 1 + futures.RETRIES
    assert "same random_seed" in raised.value.__notes__[0]


class Dies:
    def __call__(self, reporter):
        os._exit(1)


def test_pool_that_starts_no_other_worker_says_so():
    with ProcessPoolExecutor(1) as pool, pytest.raises(BrokenProcessPool) as raised:
        list(completed(pool, cloudpickle.dumps(Dies()), [cloudpickle.dumps(())]))
    assert "Make a new one" in raised.value.__notes__[0]


class Endless:
    def __call__(self, reporter):
        for done in range(10**9):
            if reporter.report(done, [{"accept": 0.5, "warning": None}]):
                return "as far as it came"
            time.sleep(0.01)


@pytest.fixture
def interruptible():
    """Python's own answer to an interrupt, which jobs in the background are started without."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_interrupted_tasks_hand_in_what_they_have(monkeypatch):
    monkeypatch.setattr(worker, "INTERVAL", 0.05)
    told = []
    threading.Timer(0.4, _thread.interrupt_main).start()
    with ThreadPoolExecutor(1) as pool:
        arguments = [cloudpickle.dumps(())] * 2
        found = dict(
            completed(pool, cloudpickle.dumps(Endless()), arguments, lambda *a: told.append(a))
        )
    assert found == {0: "as far as it came"}  # the second one had not begun
    index, done, statistics = told[-1]
    assert index == 0
    assert done > 0
    assert statistics == [{"accept": 0.5}]


def test_directories_are_taken_by_one_process_and_used_again(tmp_path):
    first, lock = free_directory(tmp_path)
    second, other = free_directory(tmp_path)
    assert first != second
    lock.release()
    third, again = free_directory(tmp_path)
    assert third == first
    other.release()
    again.release()


def test_directory_is_temporary_where_none_can_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    directory, lock = free_directory(tmp_path / "file" / "workers")
    assert lock is None
    assert directory.is_dir()
    directory.rmdir()


class Where:
    """Where a process keeps what it compiles: PyTensor, and a kernel of this package."""

    def __call__(self, reporter):
        return [
            str(worker.config.base_compiledir),
            str(worker.config.compiledir),
            KERNEL._cache.cache_path,
        ]


KERNEL = next(value for value in vars(leapfrog).values() if hasattr(value, "py_func"))


def test_every_process_compiles_into_a_directory_of_its_own():
    own = str(config.base_compiledir)
    with ProcessPoolExecutor(1) as one, ProcessPoolExecutor(1) as two:
        job, nothing = cloudpickle.dumps(Where()), cloudpickle.dumps(())
        found = [dict(completed(pool, job, [nothing]))[0] for pool in (one, two)]
    for paths in found:
        base = Path(paths[0])
        assert base.parent == Path(own) / "workers"
        assert all(Path(path).is_relative_to(base) for path in paths)
    assert found[0][0] != found[1][0]
    assert str(config.base_compiledir) == own
    with ThreadPoolExecutor(1) as pool:
        here = dict(completed(pool, job, [nothing]))[0]
    assert here[0] == own


@pytest.mark.usefixtures("interruptible")
def test_dask_tells_how_far_tasks_are_and_reaches_them(monkeypatch):
    monkeypatch.setattr(worker, "INTERVAL", 0.05)
    told = []
    with Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0") as here:
        assert squares(here, range(3)) == {0: 0, 1: 1, 2: 4}
        with pytest.raises(ZeroDivisionError):
            squares(here, [None])
        threading.Timer(1.0, _thread.interrupt_main).start()
        job, nothing = cloudpickle.dumps(Endless()), cloudpickle.dumps(())
        found = dict(completed(here, job, [nothing], lambda *report: told.append(report)))
    assert found == {0: "as far as it came"}
    index, done, statistics = told[-1]
    assert index == 0
    assert done > 0
    assert list(statistics) == [{"accept": 0.5}]
