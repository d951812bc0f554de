"""Compiled code on disk never outlives the source that it was made of."""

import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pymc_dp.kernels
from numba.core.dispatcher import Dispatcher
from pytensor.link.numba.cache import CACHED_SRC_FUNCTIONS

from pymc_dp.numerics.compiled import source_key


def dispatchers():
    for info in pkgutil.iter_modules(pymc_dp.kernels.__path__):
        module = importlib.import_module(f"pymc_dp.kernels.{info.name}")
        for function in vars(module).values():
            if isinstance(function, Dispatcher) and function.py_func.__module__ == module.__name__:
                yield function.py_func


def test_what_calls_other_files_is_keyed_by_the_whole_source():
    found = 0
    for function in dispatchers():
        called = [function.__globals__.get(name) for name in function.__code__.co_names]
        files = {f.py_func.__module__ for f in called if isinstance(f, Dispatcher)}
        if files - {function.__module__}:
            assert CACHED_SRC_FUNCTIONS[function] == source_key(), function
            found += 1
    assert found > 10


def test_a_change_in_any_kernel_is_another_key(tmp_path):
    root = Path(pymc_dp.__file__).parent
    for folder in ("kernels", "mechanisms"):
        (tmp_path / folder).mkdir()
        for path in (root / folder).glob("*.py"):
            (tmp_path / folder / path.name).write_bytes(path.read_bytes())
    code = "from compiled import source_key; print(source_key())"
    keys = []
    for line in ("", "# another line\n"):
        with (tmp_path / "kernels/cholesky.py").open("a") as file:
            file.write(line)
        run = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path / "kernels", capture_output=True, check=True
        )
        keys.append(run.stdout.decode().strip())
    assert keys[0] == source_key() != keys[1]
