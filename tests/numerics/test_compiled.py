"""Compiled code on disk never outlives the source that it was made of."""

import importlib
import inspect
import pkgutil
import shutil
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
from numba.core.dispatcher import Dispatcher
from pytensor.link.numba.cache import CACHED_SRC_FUNCTIONS

import pymc_dp
from pymc_dp.numerics.compiled import source_key


def kept():
    """All functions that numba keeps on disk."""
    for info in pkgutil.walk_packages(pymc_dp.__path__, "pymc_dp."):
        if "opendp" in info.name:
            continue
        module = importlib.import_module(info.name)
        for function in vars(module).values():
            if not isinstance(function, Dispatcher):
                continue
            own = function.py_func.__module__ == module.__name__
            if own and type(function._cache).__name__ != "NullCache":
                yield function.py_func


def test_what_is_kept_is_keyed_by_its_module_and_what_that_imports():
    found = list(kept())
    assert len(found) > 20
    for function in found:
        assert CACHED_SRC_FUNCTIONS.get(function) == source_key(function.__module__), function


@pytest.fixture(scope="module")
def changed(tmp_path_factory):
    """Key of a module in a copy of the package with some text in it replaced."""
    root = Path(pymc_dp.__file__).parent

    def key(module, path="", old="", new=""):
        here = tmp_path_factory.mktemp("copy")
        shutil.copytree(root, here / "pymc_dp", ignore=shutil.ignore_patterns("__pycache__"))
        if path:
            text = (here / "pymc_dp" / path).read_text()
            assert old in text
            (here / "pymc_dp" / path).write_text(text.replace(old, new))
            with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
                return pool.submit(key_there, here, module).result()
        code = f"{inspect.getsource(key_there)}print(key_there('.', {module!r}))"
        run = [sys.executable, "-c", code]
        found = subprocess.run(run, cwd=here, capture_output=True, check=True, text=True).stdout
        return found.strip()

    return key


def key_there(folder, module):
    """Key of a module of the package in some folder, in a process that ends after it."""
    import sys
    import types

    for name in [name for name in sys.modules if name.split(".")[0] == "pymc_dp"]:
        del sys.modules[name]
    sys.path.insert(0, str(folder))
    for name in ("pymc_dp", "pymc_dp.numerics"):  # without importing all of it
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = [f"{folder}/{name.replace('.', '/')}"]
    from pymc_dp.numerics.compiled import source_key

    return source_key(module)


SLICE = "pymc_dp.numerics.slice"


def test_key_is_the_same_in_another_process_and_place(changed):
    assert changed(SLICE) == source_key(SLICE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""Cholesky', '"""Another word, and Cholesky'),
        ("import numpy as np\n", "import numpy as np  # a comment\n\n\n"),
    ],
)
def test_comments_and_docstrings_do_not_count(changed, old, new):
    assert changed(SLICE, "numerics/cholesky.py", old, new) == source_key(SLICE)


def test_code_of_what_is_imported_counts(changed):
    assert changed(SLICE, "numerics/cholesky.py", "np.sqrt", "np.cbrt") != source_key(SLICE)


def test_code_that_is_not_imported_does_not_count(changed):
    same = changed(SLICE, "numerics/nuts.py", "np.logaddexp", "np.maximum")
    assert same == source_key(SLICE)


def test_constants_of_the_privacy_argument_count(changed):
    module = "pymc_dp.curator.penalty_kernels"
    other = changed(module, "accounting/levels.py", "LEVELS = 2**32", "LEVELS = 2**31")
    assert other != source_key(module)
