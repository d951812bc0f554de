"""Compiled code on disk never outlives the source that it was made of."""

import ast
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest
from numba.core.caching import NullCache
from numba.core.dispatcher import Dispatcher
from pytensor.link.numba.cache import CACHED_SRC_FUNCTIONS

import pymc_dp.kernels
from pymc_dp.numerics.compiled import source_key


def dispatchers():
    for info in pkgutil.iter_modules(pymc_dp.kernels.__path__):
        module = importlib.import_module(f"pymc_dp.kernels.{info.name}")
        for function in vars(module).values():
            if isinstance(function, Dispatcher) and function.py_func.__module__ == module.__name__:
                yield function


def test_what_is_kept_on_disk_is_keyed_by_the_whole_source():
    found = 0
    for function in dispatchers():
        if not isinstance(function._cache, NullCache):
            assert CACHED_SRC_FUNCTIONS[function.py_func] == source_key(), function
            found += 1
    assert found > 40


def test_kernels_use_nothing_that_is_not_in_the_key():
    # a constant from elsewhere would be compiled in, and an old one would go on
    root = Path(pymc_dp.__file__).parent
    for path in root.glob("kernels/*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("pymc_dp"):
                assert str(node.module).startswith("pymc_dp.kernels."), (path.name, node.module)


@pytest.mark.parametrize("changed", ["cholesky.py", "levels.py"])
def test_a_change_in_any_kernel_is_another_key(tmp_path, changed):
    root = Path(pymc_dp.__file__).parent
    for folder in ("kernels", "mechanisms"):
        (tmp_path / folder).mkdir()
        for path in (root / folder).glob("*.py"):
            (tmp_path / folder / path.name).write_bytes(path.read_bytes())
    code = "from compiled import source_key; print(source_key())"
    keys = []
    for line in ("", "# another line\n"):
        with (tmp_path / "kernels" / changed).open("a") as file:
            file.write(line)
        run = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path / "kernels", capture_output=True, check=True
        )
        keys.append(run.stdout.decode().strip())
    assert keys[0] == source_key() != keys[1]
