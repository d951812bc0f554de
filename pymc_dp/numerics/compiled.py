"""Compile kernels once for all processes, under a key made of the whole package's source.

numba's own cache looks at the file of a function alone, and keeps what was compiled when a function
that it calls or a constant that it uses in another file has changed: after an upgrade in place old
code would go on running, with an old clip bound under new noise for one. PyTensor's cache takes a
key instead. Kernels use nothing of this package that is not under that key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numba
from pytensor.configdefaults import config
from pytensor.link.numba.cache import CACHED_SRC_FUNCTIONS

__all__ = ["cached_jit", "graph_key", "jit", "joined_key", "source_key"]


@cache
def source_key() -> str:
    """Name the version of the compiled code of this package by its source."""
    root = Path(__file__).parents[1]
    files = sorted([*root.glob("kernels/*.py"), *root.glob("mechanisms/*.py")])
    return sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def graph_key(functions: Sequence[Any]) -> str | None:
    """Name compiled graphs as PyTensor's cache does; None where one cannot be cached."""
    keys = [CACHED_SRC_FUNCTIONS.get(function.vm.jit_fn.py_func) for function in functions]
    return None if None in keys else "".join(str(key) for key in keys)


def joined_key(what: str, functions: Sequence[Any]) -> str | None:
    """Name what this package makes of compiled graphs; None where one cannot be cached."""
    key = graph_key(functions)
    return None if key is None else sha256(f"{what} {source_key()} {key}".encode()).hexdigest()


def cached_jit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Like ``numba.njit(cache=True, **options)``, but keyed by the source of all kernels."""

    def decorate(function: Callable[..., Any]) -> Any:
        CACHED_SRC_FUNCTIONS[function] = source_key()
        return numba.njit(cache=bool(config.numba__cache), **options)(function)

    return decorate


# reassociation lets sums of products be vectorised
jit = cached_jit(error_model="numpy", fastmath={"reassoc", "nsz", "contract"})
