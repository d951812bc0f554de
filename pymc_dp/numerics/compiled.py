"""Compile once for all processes, under keys made of the code that is compiled.

numba's own cache looks at the file of a function alone, and keeps what was compiled when a function
that it calls in another file, or a constant that it takes from there, has changed: after an upgrade
in place old code would go on running. PyTensor's cache takes a key instead. Ours is made of a
module and of all modules of this package that it imports, without comments and docstrings.
"""

from __future__ import annotations

import ast
import logging
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numba
from pytensor.configdefaults import config

from pymc_dp.compat import (
    CACHED_SRC_FUNCTIONS,
    NumbaPerformanceWarning,
    compile_numba_function_src,
    jit_function,
    plain_slice_errors,
)

__all__ = [
    "cached_jit",
    "compiling",
    "density_key",
    "graph_key",
    "jit",
    "join",
    "joined_key",
    "source_key",
]

_PACKAGE = __name__.partition(".")[0]
_log = logging.getLogger(f"pymc.{_PACKAGE}")  # whose messages PyMC shows, and hides on request
#: seconds after which compiling is told
PATIENCE = 2.0


@contextmanager
def compiling(what: str) -> Iterator[None]:
    """Compile meanwhile, without numba's advice; tell once if that takes long.

    Parameters
    ----------
    what : str
        What is compiled, for people.

    Examples
    --------
    >>> from pymc_dp.numerics.compiled import compiling
    >>> with compiling("a sampler for x"):
    ...     pass
    """
    start = time.monotonic()
    message = threading.Timer(PATIENCE, _log.info, [f"Compiling {what}"])
    message.daemon = True
    message.start()
    try:
        with warnings.catch_warnings(), plain_slice_errors():
            warnings.simplefilter("ignore", NumbaPerformanceWarning)  # on code that PyTensor wrote
            yield
    finally:
        message.cancel()
    if (took := time.monotonic() - start) > PATIENCE:
        _log.info(f"Compiled {what} in {took:.0f} seconds")


@cache
def source_key(*modules: str) -> str:
    """Name the code of modules, and of all modules of this package that they import.

    Parameters
    ----------
    *modules : str
        Their names.

    Examples
    --------
    >>> from pymc_dp.numerics.compiled import source_key
    >>> source_key("pymc_dp.numerics.nuts") == source_key("pymc_dp.numerics.slice")
    False
    """
    digest = sha256()
    for name in sorted(_imported(modules)):
        digest.update(f"{name} {_module(name)[0]}".encode())
    return digest.hexdigest()


def _imported(modules: Iterable[str]) -> set[str]:
    """Names of modules and of everything they import of this package."""
    found: set[str] = set()
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(_module(name)[1])
    return found


@cache
def _module(name: str) -> tuple[str, tuple[str, ...]]:
    """Hash of a module's code, and the modules of this package that it imports."""
    path = _path(name)
    if path is None:
        raise ValueError(f"{name} is no module of {_PACKAGE}.")
    tree = ast.parse(path.read_bytes())
    imports = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef):
            if ast.get_docstring(node, clean=False):
                node.body[:1] = [] if len(node.body) > 1 else [ast.Pass(lineno=1, col_offset=0)]
        elif isinstance(node, ast.Import):
            imports += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            inside = [f"{node.module}.{alias.name}" for alias in node.names]
            imports += [node.module, *(name for name in inside if _path(name))]
    code = compile(tree, "", "exec", dont_inherit=True)
    text = "".join(_instructions(code))
    return sha256(text.encode()).hexdigest(), tuple(name for name in imports if _path(name))


def _path(name: str) -> Path | None:
    """File of a module of this package."""
    parts = name.split(".")
    if parts[0] != _PACKAGE:
        return None
    base = Path(__file__).parents[1].joinpath(*parts[1:])
    files = (base.with_suffix(".py"), base / "__init__.py")
    return next((file for file in files if file.is_file()), None)


def _instructions(code: CodeType) -> Iterator[str]:
    """Tell what code does, not where it is written."""
    yield f"{code.co_code!r}{code.co_names}{code.co_varnames}{code.co_freevars}"
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _instructions(const)
        else:  # sets have no order of their own
            yield repr(sorted(const, key=repr) if isinstance(const, frozenset) else const)


def graph_key(functions: Sequence[Any]) -> str | None:
    """Name compiled graphs as PyTensor's cache does; None where one cannot be cached."""
    keys = [CACHED_SRC_FUNCTIONS.get(jit_function(function).py_func) for function in functions]
    return None if None in keys else "".join(str(key) for key in keys)


def density_key(density: Any) -> str | None:
    """Name a compiled density of this package with all that it closes over; None for others."""
    function = density.py_func
    if _path(str(function.__module__)) is None:
        return None
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    inside = [str(density_key(c)) if hasattr(c, "py_func") else repr(c) for c in cells]
    return f"{function.__module__}.{function.__qualname__}({', '.join(inside)})"


def join(
    written: Callable[..., Any] | str, parts: dict[str, Any], key: str | None, **options: Any
) -> Any:
    """Compile a function together with compiled ones that it calls.

    These are put in the place of global names: of what is in a closure numba keeps nothing on disk.

    Parameters
    ----------
    written : callable or str
        A function of Python; or the text of one, where parts or loops are to be written out.
    parts : dict
        What it calls, by name.
    key : str or None
        Names all of it, see :func:`joined_key`; None for no cache on disk.
    **options
        Of :func:`numba.njit`.

    Examples
    --------
    >>> import numba
    >>> from pymc_dp.numerics.compiled import join
    >>> double = numba.njit(lambda x: 2 * x)
    >>> join("def more(x): return double(x) + 1", {"double": double}, None)(3)
    7
    """
    if isinstance(written, str):
        name = written.partition("def ")[2].partition("(")[0]
        made = compile_numba_function_src(
            written, name, {"__name__": __name__, **parts}, cache_key=key
        )
    else:
        names = {**written.__globals__, **parts}
        made = FunctionType(written.__code__, names, written.__name__.lstrip("_"))
        if key is not None:
            CACHED_SRC_FUNCTIONS[made] = key
    return numba.njit(made, cache=key is not None, **options)


def joined_key(makers: Iterable[Any], graphs: str | None, what: str = "") -> str | None:
    """Name what this package makes of compiled graphs.

    Parameters
    ----------
    makers : iterable of callable
        Functions of this package that are joined with the graphs or write what is; those that they
        close over are found by themselves.
    graphs : str or None
        Key of the graphs; None where one cannot be cached.
    what : str
        Whatever else tells apart what is made.
    """
    if graphs is None:
        return None
    modules = {name for maker in makers for name in _modules(maker)}
    return sha256(f"{what} {source_key(*sorted(modules))} {graphs}".encode()).hexdigest()


def _modules(function: Any) -> Iterator[str]:
    """Modules of this package in which a function, and what it closes over, was written."""
    function = getattr(function, "py_func", function)
    if _path(str(function.__module__)):
        yield function.__module__
    for cell in getattr(function, "__closure__", None) or ():
        inside = cell.cell_contents
        for value in inside if isinstance(inside, tuple | list) else [inside]:
            if hasattr(value, "py_func"):
                yield from _modules(value)


def cached_jit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Like ``numba.njit(cache=True, **options)``, with a key that sees other files."""

    def decorate(function: Callable[..., Any]) -> Any:
        CACHED_SRC_FUNCTIONS[function] = source_key(function.__module__)
        return numba.njit(cache=bool(config.numba__cache), **options)(function)

    return decorate


# reassociation lets sums of products be vectorised
jit = cached_jit(error_model="numpy", fastmath={"reassoc", "nsz", "contract"})
