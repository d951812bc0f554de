"""Chains of ``pm.sample`` on an executor.

``pm.sample`` assigns steps, draws starting values and seeds, and makes of the chains a result; only
its loop over chains is replaced. A worker is sent the model and the arguments, and lets its own
``pm.sample`` come as far as that loop: compiled functions that were pickled are rewritten once more
when they are unpickled, and round differently. Then it runs the chains that it is asked for.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import cloudpickle
import numpy as np
import pymc as pm
from pymc.util import get_random_generator

from pymc_dp.compat import (
    MCMCProgressBarManager,
    bare_trace,
    chains_run_by,
    fill_trace,
    garbage_seldom,
    iterate_chain,
    sample_external,
    trace_values,
)
from pymc_dp.executors.futures import check_executor, completed
from pymc_dp.executors.worker import Reporter

__all__ = ["sample_chains"]

_log = logging.getLogger("pymc.pymc_dp")


def sample_chains(draws: int, model: pm.Model, executor: Any = None, **kwargs: Any) -> Any:
    """Call ``pm.sample``, whose chains run on an executor if there is one.

    Parameters
    ----------
    draws : int
        Number of draws a chain.
    model : Model
        What to sample.
    executor : object with ``submit``, optional
        A client of Dask, or an executor of :mod:`concurrent.futures`.
    **kwargs
        Of :func:`pymc.sample`.
    """
    if executor is None:
        with garbage_seldom():
            return pm.sample(draws, model=model, **kwargs)
    check_executor(executor)
    if kwargs.get("random_seed") is None:
        kwargs["random_seed"] = int(np.random.SeedSequence().generate_state(1, np.uint64)[0])
    job = cloudpickle.dumps(ChainJob(draws, model, kwargs))  # before pm.sample changes arguments
    with chains_run_by(_Runner(executor, job)):
        return pm.sample(draws, model=model, **kwargs)


class ChainJob:
    """Run chains in a worker, one a call."""

    def __init__(self, draws: int, model: pm.Model, kwargs: dict[str, Any]) -> None:
        self.draws, self.model = draws, model
        self.kwargs = kwargs | {"progressbar": False, "quiet": True}

    @cached_property
    def prepared(self) -> dict[str, Any]:
        """All that ``pm.sample`` has made when it comes to its chains."""
        try:
            with chains_run_by(_Preparation()):
                pm.sample(self.draws, model=self.model, **self.kwargs)
        except _Prepared as prepared:
            given = prepared.arguments
        trace = bare_trace(given["traces"][0])
        return given | {"trace": trace, "state": given["step"].sampling_state}

    def __call__(self, reporter: Reporter, chain: int) -> Any:
        """Return what was recorded: all draws, or fewer after an interrupt."""
        given, trace = self.prepared, bare_trace(self.prepared["trace"])
        trace.setup(given["draws"], chain, trace.sampler_vars)
        given["step"].sampling_state = given["state"]
        iterations = iterate_chain(
            draws=given["draws"],
            step=given["step"],
            start=given["start"][chain],
            trace=trace,
            chain=chain,
            tune=given["tune"],
            rng=get_random_generator(given["rngs"][chain]),  # a copy
        )
        try:
            for done, statistics in enumerate(iterations, 1):
                if reporter.report(done, statistics):
                    break
        except KeyboardInterrupt:  # which a terminal sends to all processes
            pass
        iterations.close()
        return trace_values(trace)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "prepared"}


class _Prepared(Exception):  # noqa: N818  (nothing is wrong)
    """Leaves ``pm.sample`` with what it has made."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        super().__init__()
        self.arguments = arguments


class _Preparation:
    def run(self, **arguments: Any) -> None:
        raise _Prepared(arguments)


class _ExternalJob:
    """Run a sampler that is not PyMC's, with all its chains, in one worker."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.arguments = arguments

    def __call__(self, reporter: Reporter) -> Any:
        return sample_external(**self.arguments)


class _Runner:
    """Stands in for PyMC's loops over chains."""

    def __init__(self, executor: Any, job: bytes) -> None:
        self.executor, self.job = executor, job

    def run(
        self,
        *,
        draws: int,
        tune: int,
        step: Any,
        chains: int,
        traces: Sequence[Any],
        progressbar: Any,
        progressbar_theme: Any,
        **_: Any,
    ) -> None:
        arguments = [cloudpickle.dumps((chain,)) for chain in range(chains)]
        bars = _Bars(
            MCMCProgressBarManager(
                step_method=step,
                chains=chains,
                draws=draws - tune,
                tune=tune,
                progressbar=progressbar,
                progressbar_theme=progressbar_theme,
            ),
            chains,
            tune,
        )
        _log.info("Chains run on %s", self.executor)
        try:
            with bars.manager:
                for chain, values in completed(self.executor, self.job, arguments, bars.advance):
                    fill_trace(traces[chain], values)
                    bars.finish(chain, values)
        except KeyboardInterrupt:
            pass
        finally:
            for trace in traces:
                trace.close()

    def run_population(self, **_: Any) -> None:
        raise ValueError(
            "Chains of a population step such as DEMetropolis need each other at every draw: leave "
            "executor= out."
        )

    def run_external(self, **arguments: Any) -> Any:
        job = cloudpickle.dumps(_ExternalJob(arguments | {"progressbar": False}))
        found = dict(completed(self.executor, job, [cloudpickle.dumps(())]))
        if not found:
            raise KeyboardInterrupt
        return found[0]


class _Bars:
    """PyMC's progress bars, which go forward draw by draw."""

    def __init__(self, manager: Any, chains: int, tune: int) -> None:
        self.manager, self.tune = manager, tune
        self.done = [0] * chains

    def advance(self, chain: int, done: int, statistics: Any) -> None:
        for draw in range(self.done[chain], done):
            self.manager.update(
                chain_idx=chain, is_last=False, draw=draw, tuning=draw < self.tune, stats=statistics
            )
        self.done[chain] = max(done, self.done[chain])

    def finish(self, chain: int, values: Any) -> None:
        _, statistics, done = values
        if not done:
            return
        last = [{name: column[done - 1] for name, column in one.items()} for one in statistics]
        self.advance(chain, done, last)
        combined = self.manager.combined_progress
        if not combined or sum(1 for n in self.done if n == done) == len(self.done):
            self.manager.update(
                chain_idx=chain, is_last=True, draw=done - 1, tuning=False, stats=last
            )
