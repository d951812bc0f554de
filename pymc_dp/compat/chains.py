"""Chains of ``pm.sample`` run by others, and what they bring along: traces, places to compile."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from pathlib import Path
from typing import Any

import pymc.sampling.mcmc as mcmc  # who runs the chains of pm.sample
import pytensor.link.numba.cache as numba_cache  # where compiled code is kept
from pymc.backends.ndarray import NDArray  # draws of a chain
from pytensor.configdefaults import config  # where else it is kept

__all__ = [
    "bare_trace",
    "chains_run_by",
    "fill_trace",
    "keep_compiled_in",
    "sample_external",
    "trace_values",
]


def keep_compiled_in(directory: Path) -> None:
    """Have PyTensor keep compiled code elsewhere, which it decides when it is imported."""
    numba_cache.NUMBA_CACHE_PATH = directory / "numba"
    numba_cache.NUMBA_CACHE_PATH.mkdir(parents=True, exist_ok=True)
    by_platform = directory / config.compiledir.name
    by_platform.mkdir(exist_ok=True)
    settings = config._config_var_dict  # which PyTensor does not let change by their names
    settings["base_compiledir"].val = directory
    settings["compiledir"].val = by_platform


def bare_trace(trace: Any) -> Any:
    """Copy what records a chain's draws, without draws and model, to be sent elsewhere."""
    if not isinstance(trace, NDArray):
        raise ValueError(
            "Chains on an executor come back as one result, kept in memory: leave trace= out."
        )
    bare = copy(trace)
    bare.model, bare.samples, bare._stats, bare.draw_idx = None, {}, None, 0
    return bare


def trace_values(trace: Any) -> tuple[Any, Any, int]:
    """Take what was recorded out of a trace."""
    return trace.samples, trace._stats, trace.draw_idx


def fill_trace(trace: Any, values: tuple[Any, Any, int]) -> None:
    """Put what was recorded elsewhere into a trace."""
    trace.samples, trace._stats, trace.draw_idx = values


#: what runs the chains of ``pm.sample`` in this context, in place of PyMC's own loops
_runner: ContextVar[Any] = ContextVar("_runner", default=None)
#: PyMC's functions that run chains, and the runner's methods that take their place
_RUNS = {
    "_mp_sample": "run",
    "_sample_many": "run",
    "_sample_population": "run_population",
    "_sample_external_nuts": "run_external",
}
_originals: dict[str, Callable[..., Any]] = {}


@contextmanager
def chains_run_by(runner: Any) -> Iterator[None]:
    """Let a runner take the place of PyMC's loops over chains, in this thread and meanwhile.

    All that ``pm.sample`` does before and after goes on as it is: steps, starting values, seeds,
    results, warnings.
    """
    for name in _RUNS:
        if name not in _originals:
            _originals[name] = getattr(mcmc, name)
            setattr(mcmc, name, _dispatching(name))
    token = _runner.set(runner)
    try:
        yield
    finally:
        _runner.reset(token)


def _dispatching(name: str) -> Callable[..., Any]:
    def dispatch(**arguments: Any) -> Any:
        runner = _runner.get()
        if runner is None:
            return _originals[name](**arguments)
        return getattr(runner, _RUNS[name])(**arguments)

    return dispatch


def sample_external(**arguments: Any) -> Any:
    """Run a sampler that is not PyMC's, here, as ``pm.sample`` does."""
    with chains_run_by(None):
        return mcmc._sample_external_nuts(**arguments)
