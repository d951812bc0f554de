"""The user's function that simulates records, and a look at what it returns."""

from collections.abc import Callable
from typing import Any

import pymc as pm
from numpy.typing import NDArray

from pymc_dp.compat import no_model_context
from pymc_dp.curator.model import RecordModel
from pymc_dp.curator.plan.scoring import NoScoresError, SimulatedScores
from pymc_dp.graph.quick_mode import quick_mode
from pymc_dp.graph.vector import FlatSpace
from pymc_dp.types import Vector

Values = dict[str, NDArray[Any]]


class Simulator:
    """The user's function over the model's vector, its answers checked.

    Parameters
    ----------
    simulate : callable
        Takes values by name and returns a model with records simulated there.
    model : pymc.Model
        The confidential one.
    records : RecordModel
        Its records, whose arrays the answers must not hold.
    n : int
        Number of records that the simulated ones stand for.
    """

    def __init__(
        self,
        simulate: Callable[[Values], pm.Model],
        model: pm.Model,
        records: RecordModel,
        n: int,
    ) -> None:
        self._simulate, self._model = simulate, model
        self._records, self.n = records, n
        self._names = [str(rv.name) for rv in model.free_RVs]
        theta, values = records.space.on_vector(model.replace_rvs_by_values(model.free_RVs))
        self._values = pm.compile([theta], values, mode=quick_mode(None))
        #: what is compiled for the confidential records serves simulated ones
        self.like = None if records.sharded else records

    def __call__(self, theta: Vector) -> pm.Model:
        """Model with records simulated at a place."""
        values = dict(zip(self._names, self._values(theta), strict=True))
        with no_model_context():
            model = self._simulate(values)
        if not isinstance(model, pm.Model):
            raise TypeError(f"simulate= must return a pymc.Model, not {type(model).__name__}.")
        if model is self._model:
            raise ValueError("simulate= returned the model whose records are confidential.")
        spaces = (self._records.space, FlatSpace(model))
        own, other = (list(space.shapes.items()) for space in spaces)
        if own != other:
            raise ValueError(
                "simulate= must return the same model with other records, with the variables (and "
                f"shapes, unconstrained) {own}, not {other}."
            )
        return model

    def scores(self, theta: Vector) -> SimulatedScores:
        """Scores of records simulated at a place."""
        scores = SimulatedScores(self(theta), theta, self.n, self.like)
        if scores.records.likelihood.has_records_of(self._records.likelihood):
            raise ValueError(
                "simulate= puts records of the confidential model in its own: simulate covariates "
                "too, or take public ones."
            )
        return scores

    def reach(self, theta: Vector, end: Vector) -> tuple[Vector, SimulatedScores]:
        """Go to the end of a step, or halve it while records' likelihoods change too much."""
        for _ in range(20):
            try:
                there = self.scores(end)
                if there.log_ratio(there.standardised(end - theta)) < 2:
                    return end, there
            except NoScoresError:
                pass
            end = (theta + end) / 2
        return theta, self.scores(theta)
