"""What the parts of a round share: arrays in place of a PyMC point, and how parts are joined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray
from pytensor.link.numba.cache import compile_numba_function_src

from pymc_dp.kernels.compiled import cached_jit

__all__ = ["Arrays", "Part", "inner", "inner_cached", "make_rounds"]

# decorators of functions that other compiled functions alone call: no way in from Python; the
# first for what depends on the model, which is compiled once only if it is part of its caller
_hidden: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
inner: Any = numba.njit(inline="always", **_hidden)
inner_cached: Any = cached_jit(**_hidden)

#: numba-compiled ``part(rng, arrays, tune)``, which moves `theta` and `table` in place
Part = Callable[..., Any]


class Arrays(NamedTuple):
    """State of a block of records and its parameters.

    Attributes
    ----------
    theta : ndarray
        Parameters that move, unconstrained, side by side.
    given : ndarray
        Everything else that the block's functions use.
    table : ndarray
        Records as steps see them, one a column.
    released, noise, kind : ndarray
        For every component of the releases its value, its noise parameter and the position of
        its density.
    width, mean, cov, factor : ndarray
        Interweaving: width of the first bracket, moments of the parameters, and the factor that
        shapes directions.
    widths : ndarray
        Widths of the first brackets of slice updates, one a parameter.
    learned : ndarray
        Tuning rounds so far.
    report : ndarray
        Share of accepted records, summed over the rounds of a call, and the lowest log-ratio of a
        record.
    """

    theta: NDArray[np.float64]
    given: NDArray[np.float64]
    table: NDArray[np.float64]
    released: NDArray[np.float64]
    noise: NDArray[np.float64]
    kind: NDArray[np.int64]
    width: NDArray[np.float64]
    mean: NDArray[np.float64]
    cov: NDArray[np.float64]
    factor: NDArray[np.float64]
    widths: NDArray[np.float64]
    learned: NDArray[np.int64]
    report: NDArray[np.float64]


def make_rounds(parts: Sequence[Part], key: str | None) -> Callable[..., None]:
    """Compile ``rounds(rng, tune, times, *arrays)``: all parts in order, again and again.

    Parameters
    ----------
    parts : sequence of callable
        Numba-compiled parts.
    key : str or None
        Names the parts and everything they are made of, for PyTensor's cache on disk; None where
        that is not known.
    """
    calls = "".join(f"        part_{i}(rng, arrays, tune)\n" for i in range(len(parts)))
    source = _ROUNDS.format(fields=", ".join(Arrays._fields)) + calls
    names: dict[Any, Any] = {f"part_{i}": part for i, part in enumerate(parts)}
    names |= {"__name__": __name__, "Arrays": Arrays}
    function = compile_numba_function_src(source, "rounds", names, cache_key=key)
    return numba.njit(function, cache=key is not None)


# one flat function: every further layer would be optimised again in full
_ROUNDS = """
def rounds(rng, tune, times, {fields}):
    arrays = Arrays({fields})
    arrays.report[0], arrays.report[1] = 0.0, 0.0
    for _ in range(times):
        if tune:
            arrays.learned[0] += 1
"""
