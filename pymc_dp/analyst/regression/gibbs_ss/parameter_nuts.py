"""NUTS for the parameters of a regression, with its statistics integrated out or given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.blocking import PointType
from pytensor.graph.traversal import ancestors
from pytensor.tensor.variable import TensorVariable

from pymc_dp.analyst.regression.gibbs_ss.coefficient_reflections import reflections_of
from pymc_dp.analyst.regression.gibbs_ss.latent_statistics import LatentStatistics
from pymc_dp.analyst.release import by_name
from pymc_dp.compat import DataClassState, WithSamplingState, dataclass_state
from pymc_dp.graph.layout import PointLayout
from pymc_dp.numerics.nuts import (
    ACCEPT,
    DIVERGING,
    DOUBLINGS,
    LEAPS,
    LOG_DENSITY,
    REPORT_SIZE,
)
from pymc_dp.numerics.nuts_tuning import NUTSTuning, compiled_nuts
from pymc_dp.types import Array

__all__ = ["ParameterNUTS"]

#: where only a density is evaluated
_UNUSED_RNG = np.random.default_rng(0)


@dataclass_state
class ParameterNUTSState(DataClassState):
    """What was learned while tuning."""

    tuning: NUTSTuning


class ParameterNUTS(WithSamplingState):
    """NUTS on the parameters' conditional density, and reflections of coefficients.

    A move is one compiled call. Where X'y is noisier than y'y and the sum of y, the size of
    coefficients is known better than their signs: the posterior has several modes between which no
    trajectory passes. With the statistics integrated out, each move is followed by Metropolis steps
    that reflect the coefficients (:mod:`pymc_dp.analyst.regression.gibbs_ss.reflections`).

    Parameters
    ----------
    model : Model
        The model.
    parameters : list of TensorVariable
        What to move.
    latents : list of LatentStatistics
        The statistics that depend on them.
    collapsed : bool
        Integrate the statistics out, given the variances of the noise; or take them as given, with
        the likelihood of the records they summarise.
    target_accept, initial_point, compile_kwargs
        As for PyMC's steps.
    """

    _state_class = ParameterNUTSState

    def __init__(
        self,
        model: pm.Model,
        parameters: list[TensorVariable],
        latents: Sequence[LatentStatistics],
        *,
        collapsed: bool,
        target_accept: float,
        initial_point: PointType | None,
        compile_kwargs: dict[str, Any] | None,
    ) -> None:
        self.target_accept = target_accept
        self.variance_names = [latent.variance_name for latent in latents]
        point = dict(model.initial_point() if initial_point is None else initial_point)
        likelihood = []
        for latent in latents:
            variance = pt.vector(latent.variance_name, shape=(len(latent.noise),), dtype="float64")
            point[latent.variance_name] = latent.first_variances()
            if collapsed:
                likelihood.append(latent.log_marginal(variance))
            else:
                likelihood.append(latent.log_likelihood(model.rvs_to_values[latent.rv]))
        skipped = {latent.rv for latent in latents}
        reached = [
            var
            for var in by_name([*model.basic_RVs, *model.potentials])
            if var in parameters or set(ancestors([var])) & set(parameters)
        ]
        own = [v for v in reached if v not in skipped and not set(ancestors([v])) & skipped]
        cost = model.logp(vars=own) + sum(model.replace_rvs_by_values(likelihood))
        numba = {**(compile_kwargs or {}), "mode": "NUMBA"}  # whose functions can be joined
        self.layout = PointLayout(model, parameters, [], point, numba)
        [log_density] = self.layout.on_arrays([cost])
        inputs = [self.layout.theta, self.layout.given]
        gradient: Any = pt.grad(log_density, self.layout.theta)
        self.density = self.layout.compiled(inputs, [log_density, gradient])
        self.reflections = (
            reflections_of(model, parameters, latents, self.layout, point) if collapsed else []
        )
        self.tuning = NUTSTuning.start(self.layout.size, 0)

    @cached_property
    def run(self) -> Callable[..., None]:
        """One move, numba-compiled."""
        return compiled_nuts(self.density)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "run"}

    def move(
        self, point: PointType, variances: Sequence[Array], rng: np.random.Generator
    ) -> tuple[PointType, dict[str, Any]]:
        """Move the parameters once."""
        full = {**point, **dict(zip(self.variance_names, variances, strict=True))}
        theta, given = self.layout.theta_of(full), self.layout.given_of(full)
        tuning = self.tuning
        step_size, doublings = tuning.step.step_size, tuning.doublings
        report = tuning.move(self.run, rng, theta, given)
        log_density = float(report[LOG_DENSITY])
        for reflect in self.reflections:
            theta, log_density = reflect.move(rng, theta, given, log_density, self._evaluated)
        if tuning.active:
            tuning.learn(theta, float(report[ACCEPT]), self.target_accept)
        stats = {
            "diverging": bool(report[DIVERGING]),
            "reached_max_treedepth": report[DOUBLINGS] == doublings,
            "tree_size": report[LEAPS],
            "step_size": step_size,
            "mean_tree_accept": report[ACCEPT],
        }
        return self.layout.point_of(point, theta, np.empty((0, 0))), stats

    def _evaluated(self, theta: Array, given: Array) -> tuple[float]:
        """Log-density, by a move that ends where it starts: no machine code of its own."""
        report = np.empty(REPORT_SIZE)
        self.run(_UNUSED_RNG, theta.copy(), given, self.tuning.metric, 1.0, 0, report)
        return (float(report[LOG_DENSITY]),)

    def start_tuning(self, tune: int) -> None:
        """Start a chain, tuned afresh where it is tuned: it may be another release's."""
        if tune:
            self.tuning = NUTSTuning.start(self.layout.size, tune)

    def stop_tuning(self) -> None:
        """Stop adapting."""
        self.tuning.freeze()
