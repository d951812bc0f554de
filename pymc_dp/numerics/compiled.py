"""Compile once for all processes, under keys made of the code that is compiled.

numba's own cache looks at the file of a function alone, and keeps what was compiled when a function
that it calls in another file, or a constant that it takes from there, has changed: after an upgrade
in place old code would go on running. PyTensor's cache takes a key instead. Ours is made of a
module and of all modules of this package that it imports, without comments and docstrings.
"""

from __future__ import annotations

import logging
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dis import opmap
from functools import cache
from hashlib import sha256
from importlib.machinery import SourceFileLoader
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CellType, CodeType, FunctionType
from typing import Any

import numba
from pytensor.configdefaults import config

from pymc_dp.compat import (
    CACHED_SRC_FUNCTIONS,
    HIDDEN,
    Kernel,
    NumbaPerformanceWarning,
    compile_numba_function_src,
    jit_function,
    keep_compiled_in,
    machine_code_once,
    operations_once,
    plain_slice_errors,
)

__all__ = [
    "cached_jit",
    "compile_into",
    "compiling",
    "compiling_silently",
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
#: functions of this package that numba keeps on disk
_made: list[Any] = []


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
        with compiling_silently():
            yield
    finally:
        message.cancel()
    if (took := time.monotonic() - start) > PATIENCE:
        _log.info(f"Compiled {what} in {took:.0f} seconds")


@contextmanager
def compiling_silently() -> Iterator[None]:
    """Compile meanwhile in less time, and tell nothing: messages are part of what a curator shows.

    Examples
    --------
    >>> from pymc_dp.numerics.compiled import compiling_silently
    >>> with compiling_silently():
    ...     pass
    """
    with (
        warnings.catch_warnings(),
        plain_slice_errors(),
        operations_once(),
        machine_code_once(),
        # where in our own code a node was made helps nobody, and takes a tenth of making graphs
        config.change_flags(traceback__limit=0),
    ):
        warnings.simplefilter("ignore", NumbaPerformanceWarning)  # on code that PyTensor wrote
        yield


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
    """Hash of a module's code, and the modules of this package that it imports.

    Of the code that Python keeps, so that nothing is parsed. A name after ``from package import``
    is taken for a module where there is one of that name, wherever the name stands.
    """
    path = _paths().get(name)
    if path is None:
        raise ValueError(f"{name} is no module of {_PACKAGE}.")
    code = SourceFileLoader(name, path).get_code(name)
    assert code is not None
    parts = list(_nested(code))
    names = {name for part in parts for name in part.co_names}
    bases = {name for name in names if name.partition(".")[0] == _PACKAGE}
    imports = bases | {f"{base}.{name}" for base in bases for name in names}
    text = "".join(map(_instructions, parts))
    return sha256(text.encode()).hexdigest(), tuple(imports & _paths().keys())


@cache
def _paths() -> dict[str, str]:
    """Files of all modules of this package."""
    root = Path(__file__).parents[1]
    files = {path.relative_to(root.parent).with_suffix(""): path for path in root.rglob("*.py")}
    return {
        ".".join(parts.parts).removesuffix(".__init__"): str(path) for parts, path in files.items()
    }


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _nested(const)


def _instructions(code: CodeType) -> str:
    """Tell what code does, not where it is written, nor what it tells people."""
    docstring = _docstring(code)
    consts = [const for const in code.co_consts if not isinstance(const, CodeType)]
    told = [  # sets have no order of their own
        repr(sorted(const, key=repr) if isinstance(const, frozenset) else const)
        for const in consts
        if const is not docstring or const is None
    ]
    shape = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount)
    return f"{code.co_code!r}{shape}{code.co_names}{code.co_varnames}{code.co_freevars}{told}"


def _docstring(code: CodeType) -> Any:
    """Docstring of a function, or what a module or a class assigns to its own."""
    if code.co_flags & CO_OPTIMIZED:
        if code.co_name.startswith("<"):  # lambdas and comprehensions
            return None
        cells = tuple(CellType() for _ in code.co_freevars)
        return FunctionType(code, {}, closure=cells).__doc__
    if "__doc__" not in code.co_names:
        return None
    assignment = bytes([opmap["STORE_NAME"], code.co_names.index("__doc__")])
    return code.co_consts[code.co_code[code.co_code.index(assignment) - 1]]


def graph_key(functions: Sequence[Any]) -> str | None:
    """Name compiled graphs as PyTensor's cache does; None where one cannot be cached."""
    keys = [CACHED_SRC_FUNCTIONS.get(jit_function(function).py_func) for function in functions]
    return None if None in keys else "".join(str(key) for key in keys)


def density_key(density: Any) -> str | None:
    """Name a compiled density of this package with all that it closes over; None for others."""
    function = density.py_func
    if function.__module__ not in _paths():
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
    return Kernel.of(numba.njit(made, cache=key is not None, **options))


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
    if function.__module__ in _paths():
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
        made = numba.njit(cache=bool(config.numba__cache), **options)(function)
        _made.append(made)
        return made if HIDDEN.items() <= options.items() else Kernel.of(made)

    return decorate


def compile_into(directory: Path) -> None:
    """Keep what this process compiles from now on in a directory of its own.

    numba's files tell nobody when two processes write them at once, and what one has compiled for
    some types can end up under the name of what the other has compiled for others.
    """
    keep_compiled_in(directory)
    if config.numba__cache:
        for function in _made:
            function.enable_caching()  # which asks for the directory anew
            if "inner" in vars(function):
                function.inner.enable_caching()


# reassociation lets sums of products be vectorised
jit = cached_jit(error_model="numpy", fastmath={"reassoc", "nsz", "contract"})
