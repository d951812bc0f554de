"""Fit one simulated release after another with one step: chains as long as their draws ask for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import cloudpickle
import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pymc.step_methods.compound import CompoundStep
from pymc.step_methods.hmc.nuts import NUTS
from pytensor.graph.traversal import ancestors

from pymc_dp.analyst.marginal.sampling import counted
from pymc_dp.analyst.marginal.strategy import integrated_out
from pymc_dp.compat import (
    assign_step_methods,
    flatten_steps,
    instantiate_steppers,
    iterate_chain,
    make_initial_point_fn,
)
from pymc_dp.diagnostics.calibration.ranks import (
    deviation,
    effective_size,
    interval_width,
    pit,
    thinned,
)
from pymc_dp.diagnostics.calibration.simulation import taking_inputs
from pymc_dp.executors.worker import Reporter
from pymc_dp.graph.state import model_state

__all__ = ["Fit", "FitJob", "Replicate"]

Array = NDArray[np.float64]

_packed: WeakKeyDictionary[pm.Model, tuple[Any, bytes]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Replicate:
    """What one fit is given: parameters, these as samplers see them, and what they made."""

    truths: dict[str, Any]
    starts: dict[str, Any]
    released: dict[str, Any]
    seed: np.random.SeedSequence


@dataclass(frozen=True)
class Fit:
    """What came of it: places of the parameters among their draws, and how many it took.

    Beside them the draws' standard deviations, and widths of central intervals.
    """

    places: dict[str, Array]
    deviations: dict[str, Array]
    widths: dict[str, Array]
    draws: int
    effective_size: float


class FitJob:
    """Fit replicates, in this process or in a worker, where the step is compiled once.

    Parameters
    ----------
    given : Model
        What to fit.
    first : dict
        Observed values to begin with.
    names : list of str
        What is ranked.
    draws : int
        Nearly independent draws that a parameter is ranked among.
    tune, most : int
        Tuning iterations, and draws at most.
    step_kwargs : dict
        Of steps, by their names, as for ``pm.sample``.
    ci_prob : float
        Probability of the intervals.
    """

    def __init__(
        self,
        given: pm.Model,
        first: dict[str, Any],
        names: list[str],
        draws: int,
        tune: int,
        most: int,
        step_kwargs: dict[str, Any],
        ci_prob: float = 0.9,
    ) -> None:
        self.given, self.first, self.names, self.step_kwargs = given, first, names, step_kwargs
        self.draws, self.tune, self.most, self.ci_prob = draws, tune, most, ci_prob

    @cached_property
    def model(self) -> pm.Model:
        """What ``pymc_dp.sample`` would sample, with observed values as inputs."""
        taking = taking_inputs(self.given, self.first)
        return counted(taking, **self.step_kwargs) or taking

    @cached_property
    def step(self) -> Any:
        """The steps that ``pm.sample`` would pick, compiled."""
        _, selected = assign_step_methods(self.model)
        steps = instantiate_steppers(
            self.model,
            [],
            selected,
            step_kwargs=self.step_kwargs,
            initial_point=self.model.initial_point(),
            compile_kwargs={},
        )
        return CompoundStep(steps) if isinstance(steps, list) else steps

    @cached_property
    def _state(self) -> Any:
        return self.step.sampling_state

    @cached_property
    def _start(self) -> Any:
        """Starting values as ``pm.sample`` draws them."""
        exclusive = all(isinstance(one, NUTS) for one in flatten_steps(self.step))
        jitter = set(self.model.free_RVs) if exclusive else set()
        return make_initial_point_fn(model=self.model, jitter_rvs=jitter, return_transformed=True)

    @cached_property
    def _steep(self) -> bool:
        told = integrated_out(self.model).values()
        return any(one.method == "normal" for one in told)

    def __call__(self, reporter: Reporter, replicates: list[Replicate]) -> list[Fit]:
        """Fit some replicates, one after another."""
        fits: list[Fit] = []
        for replicate in replicates:
            if fits and reporter.report(len(fits)):
                break
            fits.append(self.fit(replicate))
        return fits

    def fit(self, replicate: Replicate) -> Fit:
        """Sample the posterior until parameters have as many effective draws as are ranked."""
        starting, chain, ranking = replicate.seed.spawn(3)
        for name, value in replicate.released.items():
            observed = self.model.rvs_to_values[self.model[name]]
            observed.set_value(np.asarray(value, dtype=observed.dtype))
        self.step.sampling_state = self._state  # as it was before the first chain
        point = self._start(starting.generate_state(1)[0])
        if self._steep:  # chains that start from the prior hardly arrive
            point |= {
                name: _within(start, point[name])
                for name, start in replicate.starts.items()
                if name in point
            }
        kept = _Kept([str(var.name) for var in self._inputs])
        iterations = iterate_chain(
            draws=self.tune + self.most,
            step=self.step,
            start=point,
            trace=kept,
            tune=self.tune,
            rng=np.random.default_rng(chain),
        )
        wanted, size = min(4 * self.draws, self.most), 0.0
        for _ in iterations:
            if len(kept.rows) < wanted:
                continue
            size = effective_size(kept.columns())
            if size >= self.draws or wanted >= self.most:
                break
            wanted = min(2 * wanted, self.most)
        iterations.close()
        columns, rng = self._thinned(kept), np.random.default_rng(ranking)
        return Fit(
            {name: pit(np.asarray(replicate.truths[name]), c, rng) for name, c in columns.items()},
            {name: deviation(column) for name, column in columns.items()},
            {name: interval_width(column, self.ci_prob) for name, column in columns.items()},
            len(kept.rows),
            size,
        )

    def _thinned(self, kept: _Kept) -> dict[str, Array]:
        """As many draws of what is ranked as are nearly independent."""
        values = [self._values(*kept.rows[row]) for row in thinned(len(kept.rows), self.draws)]
        columns = zip(*values, strict=True)
        return {name: np.array(c) for name, c in zip(self.names, columns, strict=True)}

    @cached_property
    def _outputs(self) -> list[Any]:
        return self.model.replace_rvs_by_values([self.model[name] for name in self.names])

    @cached_property
    def _inputs(self) -> list[Any]:
        """Value variables that ranked ones are computed of."""
        reached = set(ancestors(self._outputs))
        return [var for var in self.model.value_vars if var in reached]

    @cached_property
    def _values(self) -> Any:
        """Compute what is ranked, of value variables."""
        return self.model.compile_fn(self._outputs, inputs=self._inputs, point_fn=False)

    def packed(self) -> bytes:
        """Pickle this; to the same bytes as long as the model is the same.

        Workers find what they compiled by these bytes, and pickles of a model may differ from one
        call to the next.
        """
        own = {name: value for name, value in self.__getstate__().items() if name != "given"}
        signature = (model_state(self.given), repr(own))
        known, pickled = _packed.get(self.given, (None, b""))
        if signature != known:
            pickled = cloudpickle.dumps(self)
            _packed[self.given] = signature, pickled
        return pickled

    def __getstate__(self) -> dict[str, Any]:
        own = ("given", "first", "names", "step_kwargs", "draws", "tune", "most", "ci_prob")
        return {name: self.__dict__[name] for name in own}


def _within(start: Any, inside: Any) -> Any:
    """Move a start off the edge of its prior, where a whole number without records may be."""
    start = np.asarray(start)
    return start if start.dtype.kind in "iub" else start + 1e-6 * (np.asarray(inside) - start)


class _Kept:
    """Draws of some value variables after tuning: what a trace is to a chain."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.rows: list[list[Any]] = []

    def record(self, point: dict[str, Any], stats: Any, *, in_warmup: bool) -> None:
        """Keep a draw."""
        if not in_warmup:
            self.rows.append([np.array(point[name]) for name in self.names])

    def close(self) -> None:
        """Nothing is left to be done."""

    def columns(self) -> Array:
        """One row a draw, one column a number."""
        parts = zip(*self.rows, strict=True)
        flat = [np.array(part, dtype=np.float64).reshape(len(self.rows), -1) for part in parts]
        return np.concatenate(flat, axis=1)
