"""Gibbs over confidential records: Ju et al. (2022), Algorithm 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import pymc as pm
from pymc.blocking import PointType, StatsType
from pymc.step_methods.compound import BlockedStep, Competence, StepMethodState
from pymc.step_methods.state import dataclass_state
from pymc.util import RandomGenerator, get_random_generator
from pytensor.tensor.variable import TensorVariable
from rich.progress import TextColumn
from rich.table import Column

from pymc_dp.additivity import NotAdditiveError
from pymc_dp.records import is_record, record_blocks, record_variables
from pymc_dp.steps.compiled_block import CompiledBlock
from pymc_dp.steps.interweave import Interweaving, RandomWalk, interweaving_plan

__all__ = ["RecordGibbs"]


@dataclass_state
class RecordGibbsState(StepMethodState):
    """What a chain carries on besides its point."""

    walks: list[RandomWalk]
    tune: bool


class RecordGibbs(BlockedStep):
    r"""Sample latent confidential records given releases of sums over them.

    Every record in turn is offered a draw from the model, given the parameters, and accepts it
    with probability

    .. math:: \min\left\{1, \frac{\eta(s_{dp} \mid x_i^*, x_{-i})}{\eta(s_{dp} \mid x)}\right\},

    :math:`\eta` the mechanism's density (Ju, Awan, Gong & Rao 2022, Algorithm 1 and equation 5);
    other terms of the model that depend on the record enter the ratio too. What one record adds to
    the statistic is read from its graph, so that a sweep costs O(n).

    ``pm.sample`` picks this step by itself for the record variables that a
    :func:`~pymc_dp.Privatized` reaches.

    Parameters
    ----------
    vars : list of variables, optional
        Record variables, one record a row. Defaults to all that a release reaches.
    model : Model, optional
        Defaults to the model in context.
    rng : RandomGenerator, optional
        Source of randomness outside ``pm.sample``, which seeds each chain itself.
    initial_point : dict, optional
        Where the contributions are checked numerically. Defaults to the model's initial point.
    compile_kwargs : dict, optional
        Passed to the compilation of the step's functions.
    interweave : bool
        After each sweep, also move the records' parameters together with the records, the
        records' residuals held fixed (:mod:`pymc_dp.steps.interweave`), where that is possible:
        see :func:`~pymc_dp.explain`. Without it the sampler slows down under strong privacy.
    blocked : bool
        Must be true: records move together.

    Notes
    -----
    Sampler statistics: ``accept``, the share of records that took their proposal, and
    ``accept_min``, the lowest acceptance probability of a record in the sweep. Under pure
    epsilon-DP with the declared sensitivity it is at least exp(-epsilon) (Proposition 3.1);
    ``interweave_accept``, the acceptance probability of the parameters' move. High acceptance of
    records does not mean good mixing: look at R-hat and the effective sample size.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dp as pmdp
    >>> with pm.Model():
    ...     p = pm.Beta("p", 1, 1)
    ...     x = pm.Bernoulli("x", p, shape=50)
    ...     total = pmdp.Privatized("total", x.sum(), pmdp.Laplace(scale=2), observed=31.4)
    ...     step = pmdp.RecordGibbs([x])
    """

    name = "record_gibbs"
    default_blocked = True
    stats_dtypes_shapes: ClassVar[Any] = {
        "accept": (np.float64, []),
        "accept_min": (np.float64, []),
        "interweave_accept": (np.float64, []),
    }
    _state_class = RecordGibbsState

    def __init__(
        self,
        vars: Sequence[TensorVariable] | None = None,
        *,
        model: pm.Model | None = None,
        rng: RandomGenerator = None,
        initial_point: PointType | None = None,
        compile_kwargs: dict[str, Any] | None = None,
        interweave: bool = True,
        blocked: bool = True,
    ) -> None:
        model = pm.modelcontext(model)
        records = _resolve(vars, model)
        self.vars = [model.rvs_to_values[rv] for rv in records]
        self.rng = get_random_generator(rng)
        found = record_blocks(model, records)
        self.blocks = [CompiledBlock(model, block, compile_kwargs) for block in found]
        point = model.initial_point() if initial_point is None else initial_point
        for block, compiled in zip(found, self.blocks, strict=True):
            # a guard against a rule for an operation that does not hold: far above rounding
            if compiled.deviation(point, np.random.default_rng(0)) > 1e-6:
                raise NotAdditiveError(
                    f"Moving one record of {block.names} changes the released statistic by "
                    "something else than that record's contribution. Please report this model; "
                    "step=pm.NUTS() samples it where all latent variables are continuous."
                )

        plans = [interweaving_plan(model, block) if interweave else "" for block in found]
        self.interweavings = [
            None if isinstance(plan, str) else Interweaving(model, plan, compile_kwargs)
            for plan in plans
        ]
        self._start_walks(tune=True)

    def _start_walks(self, tune: bool) -> None:
        self.tune = tune
        self.walks = [RandomWalk.start(i.size) for i in self.interweavings if i is not None]

    def setup_chain(self, rng: RandomGenerator, tune: int, draws: int) -> None:
        """Start a chain: take its generator and forget the last chain's records."""
        super().setup_chain(rng, tune, draws)
        for block in self.blocks:
            block.forget()
        self._start_walks(tune=tune > 0)

    def step(self, point: PointType) -> tuple[PointType, StatsType]:
        """Offer every record one proposal, then the parameters one with residuals kept."""
        rates, lowest, moves = [], 0.0, []
        walks = iter(self.walks)
        for block, interweaving in zip(self.blocks, self.interweavings, strict=True):
            point, rate, low = block.sweep(point, self.rng)
            rates.append(rate)
            lowest = min(lowest, low)
            if interweaving is not None:
                before = point
                point, accept = interweaving.step(point, self.rng, next(walks), self.tune)
                moves.append(accept)
                if point is not before:
                    block.follow(point)
        stats = {
            "accept": float(np.mean(rates)),
            "accept_min": float(np.exp(lowest)),
            "interweave_accept": float(np.mean(moves)) if moves else np.nan,
        }
        return point, [stats]

    @staticmethod
    def competence(var: TensorVariable, has_grad: bool = False) -> Competence:
        """Ideal for records that a release reaches, and for nothing else."""
        return Competence.IDEAL if is_record(var) else Competence.INCOMPATIBLE

    @staticmethod
    def _progressbar_config(n_chains: int = 1) -> tuple[list[TextColumn], dict[str, list]]:
        columns = [
            TextColumn("{task.fields[accept]:0.2f}", table_column=Column("Accept", ratio=1)),
            TextColumn("{task.fields[accept_min]:0.2f}", table_column=Column("Lowest", ratio=1)),
        ]
        return columns, {"accept": [0.0] * n_chains, "accept_min": [0.0] * n_chains}

    @staticmethod
    def _make_progressbar_update_functions() -> tuple[Callable[[dict], dict], ...]:
        def update_stats(step_stats: dict) -> dict:
            return {key: step_stats[key] for key in ("accept", "accept_min")}

        return (update_stats,)


def _resolve(vars: Any, model: pm.Model) -> list[TensorVariable]:
    """Record variables from what the user passed: random variables or their values."""
    if vars is None:
        found = record_variables(model)
        if not found:
            raise ValueError(
                "The model has no records: declare a release of a sum over a latent variable's "
                "first axis with pmdp.Privatized(name, x.sum(), mechanism, observed=...)."
            )
        return found
    given = list(vars) if isinstance(vars, list | tuple) else [vars]
    resolved = [model.values_to_rvs.get(var, var) for var in given]
    for rv in resolved:
        if rv in model.observed_RVs:
            raise ValueError(
                f"{rv.name!r} has observed values. Confidential records are latent: drop observed= "
                f"where {rv.name!r} is declared, or leave it out of RecordGibbs."
            )
        if rv not in model.free_RVs:
            raise ValueError(f"{rv} is not a variable of the model. Pass record variables, [x, y].")
    return resolved
