"""NUTS for the parameters of a regression, with its statistics integrated out or given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.blocking import PointType
from pymc.model.core import ValueGradFunction
from pymc.step_methods.state import DataClassState, WithSamplingState, dataclass_state
from pytensor.graph.traversal import ancestors, explicit_graph_inputs
from pytensor.tensor.variable import TensorVariable

from pymc_dp.steps.statistics_block import StatisticsBlock

__all__ = ["ParameterNUTS"]


@dataclass_state
class ParameterNUTSState(DataClassState):
    """State of the step inside."""

    step: Any


class ParameterNUTS(WithSamplingState):
    """PyMC's NUTS on the parameters' conditional density, and changes of coefficients' signs.

    Where X'y is noisier than y'y, the size of a coefficient is known better than its sign: the
    posterior has several modes between which no trajectory passes. With the statistics integrated
    out, each move is followed by a Metropolis step that turns one coefficient round, or all.

    Parameters
    ----------
    model : Model
        The model.
    parameters : list of TensorVariable
        What to move.
    blocks : list of StatisticsBlock
        The statistics that depend on them.
    collapsed : bool
        Integrate the statistics out, given the variances of the noise; or take them as given, with
        the likelihood of the records they summarise.
    target_accept, initial_point, compile_kwargs, rng
        As for PyMC's steps.
    """

    _state_class = ParameterNUTSState

    def __init__(
        self,
        model: pm.Model,
        parameters: list[TensorVariable],
        blocks: Sequence[StatisticsBlock],
        *,
        collapsed: bool,
        target_accept: float,
        initial_point: PointType | None,
        compile_kwargs: dict[str, Any] | None,
        rng: np.random.Generator,
    ) -> None:
        self.variance_names = [block.variance_name for block in blocks]
        point = dict(model.initial_point() if initial_point is None else initial_point)
        variances = {}
        terms = []
        for block in blocks:
            variance = pt.vector(block.variance_name, shape=(len(block.noise),), dtype="float64")
            variances[variance] = block.first_variances()
            given = model.rvs_to_values[block.rv]
            terms.append(block.log_marginal(variance) if collapsed else block.log_likelihood(given))
        skipped = {block.rv for block in blocks}
        reached = [
            var
            for var in [*model.basic_RVs, *model.potentials]
            if var in parameters or set(ancestors([var])) & set(parameters)
        ]
        own = [v for v in reached if v not in skipped and not set(ancestors([v])) & skipped]
        cost = model.logp(vars=own) + sum(model.replace_rvs_by_values(terms))
        values: list[Any] = [model.rvs_to_values[rv] for rv in parameters]
        needed = set(explicit_graph_inputs([cost]))
        extra = {v: point[v.name] for v in model.value_vars if v in needed and v not in values}
        extra |= {v: start for v, start in variances.items() if v in needed}
        function = ValueGradFunction(
            [cost],
            values,
            extra,
            initial_point=point,
            ravel_inputs=True,
            model=model,
            **(compile_kwargs or {}),
        )
        function.set_extra_values({**point, **{v.name: x for v, x in variances.items()}})
        function.trust_input = True
        self.names = [str(v.name) for v in [*values, *extra]]
        self.moved = [str(v.name) for v in values]
        signed = [block.params[1] for block in blocks] if collapsed else []
        self.signed = [
            str(model.rvs_to_values[rv].name)
            for rv in parameters
            if rv in signed and model.rvs_to_transforms[rv] is None
        ]
        self.step = pm.NUTS(
            values,
            model=model,
            logp_dlogp_func=function,
            initial_point=point,
            target_accept=target_accept,
            rng=rng,
        )

    def move(
        self, point: PointType, variances: Sequence[NDArray[np.float64]]
    ) -> tuple[PointType, dict[str, Any]]:
        """Move the parameters once."""
        full = {**point, **dict(zip(self.variance_names, variances, strict=True))}
        new, [stats] = self.step.step({name: full[name] for name in self.names})
        kept = ("diverging", "reached_max_treedepth", "tree_size", "step_size", "mean_tree_accept")
        moved = {name: new[name] for name in self.moved}
        for name in self.signed:
            moved = self._turned(moved, name)
        return {**point, **moved}, {name: stats[name] for name in kept}

    def _turned(self, moved: PointType, name: str) -> PointType:
        """Offer another sign of one coefficient, or of all; NUTS has set what else is given."""
        coef = moved[name]
        which = self.step.rng.integers(coef.size + 1)
        signs = np.where((np.arange(coef.size) == which) | (which == coef.size), -1.0, 1.0)
        turned = {**moved, name: coef * signs}
        old, new = (
            self.step._logp_dlogp_func([np.concatenate([np.ravel(at[v]) for v in self.moved])])[0]
            for at in (moved, turned)
        )
        return turned if np.log(self.step.rng.random()) < new - old else moved

    def setup_chain(self, rng: np.random.Generator, tune: int, draws: int) -> None:
        """Start a chain, tuned afresh where it is tuned: it may be another release's."""
        if tune:
            self.step.reset_tuning()
        self.step.tune = tune > 0
        self.step.setup_chain(rng, tune, draws)

    def stop_tuning(self) -> None:
        """Stop adapting."""
        self.step.stop_tuning()
