"""Gibbs over confidential records: Ju et al. (2022), Algorithm 1."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import pymc as pm
from pymc.blocking import PointType, StatsType
from pymc.step_methods.compound import BlockedStep, Competence, StepMethodState
from pymc.util import RandomGenerator, get_random_generator
from pymc.vartypes import continuous_types
from pytensor.tensor.variable import TensorVariable

from pymc_dp.analyst.assignment import model_of
from pymc_dp.analyst.precision import check_double
from pymc_dp.analyst.record_gibbs.compiled_records import check_records
from pymc_dp.analyst.record_gibbs.cycles import Cycles, Tuning
from pymc_dp.analyst.record_gibbs.interweave import (
    advice_on_held,
    held_discrete,
    interweaving_plan,
    together,
)
from pymc_dp.analyst.record_gibbs.parameters import takes
from pymc_dp.analyst.records import (
    RecordBlock,
    is_parent,
    is_record,
    length_of,
    record_blocks,
    record_variables,
)
from pymc_dp.analyst.release import by_name
from pymc_dp.compat import ProgressHooks, dataclass_state
from pymc_dp.graph.additivity import direct_inputs
from pymc_dp.numerics.compiled import compiling

__all__ = ["RecordGibbs"]

_log = logging.getLogger(__name__)


@dataclass_state
class RecordGibbsState(StepMethodState):
    """What a chain carries on besides its point."""

    tunings: list[Tuning]
    tune: bool


class RecordGibbs(ProgressHooks, BlockedStep):
    r"""Sample latent confidential records given releases of sums over them.

    Every record in turn is offered a draw from the model, given the parameters, and accepts it
    with probability

    .. math:: \min\left\{1, \frac{\eta(s_{dp} \mid x_i^*, x_{-i})}{\eta(s_{dp} \mid x)}\right\},

    :math:`\eta` the mechanism's density (Ju, Awan, Gong & Rao 2022, Algorithm 1 and equation 5);
    other terms of the model that depend on the record enter the ratio too. What one record adds to
    the statistic is read from its graph, so that a sweep costs O(n).

    Parameters of the records are moved too, given the records: drawn from their conditional where
    it is of a known family (normal, gamma, inverse gamma, beta, Dirichlet), found from the graph,
    and slice sampled otherwise. A whole cycle is one compiled call.

    ``pm.sample`` picks this step by itself for the record variables that a
    :func:`~pymc_dp.Privatized` reaches, and for parameters of theirs that are continuous and few or
    may be drawn from a conditional; :func:`~pymc_dp.explain` tells which. Other steps keep what is
    given to them, as in ``step=[pm.NUTS([mu]), pmdp.RecordGibbs([x])]``.

    Parameters
    ----------
    vars : list of variables, optional
        Record variables, one record a row, and parameters of theirs. Defaults to all records that
        a release reaches and the parameters that this step takes.
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
        records' residuals held fixed (:mod:`pymc_dp.analyst.record_gibbs.interweave`), where that
        is possible: see :func:`~pymc_dp.explain`. Without it the sampler slows down under
        strong privacy.
    cycles : int, optional
        Cycles a draw, each a sweep over the records, an update of the parameters and interweaving.
        By default 1, and up to 4 where there are fewer than 300 records, so that cycles cost less
        than a draw's other work, and a cycle is not enough.
    blocked : bool
        Must be true: records move together.

    Notes
    -----
    Where interweaving moves at least as many parameters as the release has components, they get
    anywhere without new records, and with 500 records or more only one cycle in five sweeps over
    them (``cycles=5`` for a sweep every draw).

    Sampler statistics: ``accept``, the share of records that took their proposal, and
    ``accept_min``, the lowest acceptance probability of a record in the last sweep. Under pure
    epsilon-DP with the declared sensitivity it is at least exp(-epsilon) (Proposition 3.1). High
    acceptance does not mean good mixing: look at R-hat and the effective sample size.

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
    progress_statistics: ClassVar[dict[str, str]] = {"accept": "Accept", "accept_min": "Lowest"}
    stats_dtypes_shapes: ClassVar[Any] = {
        "accept": (np.float64, []),
        "accept_min": (np.float64, []),
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
        cycles: int | None = None,
        blocked: bool = True,
    ) -> None:
        model = pm.modelcontext(model)
        blocks = self.plan(vars, model)
        records, parameters = _resolve(vars, model)
        self.vars = [model.rvs_to_values[rv] for rv in [*parameters, *records]]
        self.rng = get_random_generator(rng)
        point = model.initial_point() if initial_point is None else initial_point
        with compiling(f"RecordGibbs for {', '.join(str(var.name) for var in self.vars)}"):
            self.blocks = list(
                self._compiled(model, blocks, parameters, interweave, point, compile_kwargs or {})
            )
        longest = max([length_of(rv) for rv in records], default=1)
        enough = all(block.reaches for block in self.blocks)
        self.cycles = cycles or (1 if enough else min(4, max(1, 300 // longest)))
        self._start_tuning(tune=True)

    @staticmethod
    def _compiled(
        model: pm.Model,
        blocks: list[RecordBlock],
        parameters: Sequence[TensorVariable],
        interweave: bool,
        point: PointType,
        compile_kwargs: dict[str, Any],
    ) -> Iterator[Cycles]:
        """Compile the moves of blocks that share parameters, and of parameters left over."""
        left = list(parameters)
        for group in together(model, blocks):
            inputs = [inp for block in group for rv in block.records for inp in rv.owner.inputs]
            parents = direct_inputs(inputs, model.basic_RVs)
            own = [p for p in left if p in parents]
            left = [p for p in left if p not in own]
            _tell_of_held(model, group, interweave)
            yield Cycles(model, group, own, interweave, point, compile_kwargs)
        if left:
            yield Cycles(model, [], left, False, point, compile_kwargs)

    @staticmethod
    def plan(vars: Sequence[TensorVariable] | None, model: pm.Model) -> list[RecordBlock]:
        """Return the blocks of the records, or raise what keeps them from being sampled."""
        check_double(model.free_RVs)
        records, _ = _resolve(vars, model)
        blocks = record_blocks(model, records)
        for block in blocks:
            check_records(model, block)
        return blocks

    def _start_tuning(self, tune: bool) -> None:
        self.tune = tune
        self.tunings = [block.start_tuning() for block in self.blocks]

    def setup_chain(self, rng: RandomGenerator, tune: int, draws: int) -> None:
        """Start a chain: take its generator and forget the last chain's records."""
        super().setup_chain(rng, tune, draws)
        for block in self.blocks:
            block.forget()
        self._start_tuning(tune=tune > 0)

    def step(self, point: PointType) -> tuple[PointType, StatsType]:
        """Move the records, their parameters, and both together."""
        accept, lowest, tables = 0.0, 0.0, 0
        for block, tuning in zip(self.blocks, self.tunings, strict=True):
            point = block.step(point, self.rng, tuning, self.tune, self.cycles)
            for share, log_ratio in tuning.report.reshape(-1, 2).tolist():
                accept, lowest, tables = accept + share, min(lowest, log_ratio), tables + 1
        accept = accept / tables if tables else math.nan
        return point, [{"accept": accept, "accept_min": math.exp(lowest)}]

    @staticmethod
    def competence(var: TensorVariable, has_grad: bool = False) -> Competence:
        """Ideal for records that a release reaches, and for parameters of theirs that it takes."""
        model = model_of(var)
        taken = model is not None and (is_record(model, var) or takes(model, var))
        return Competence.IDEAL if taken else Competence.INCOMPATIBLE


def _tell_of_held(model: pm.Model, group: list[RecordBlock], interweave: bool) -> None:
    """Warn of discrete parameters that the records hold where they are."""
    plan = interweaving_plan(model, *group) if interweave else ""
    held = held_discrete(model, plan, group)
    if held:
        _log.warning("%s.", advice_on_held(held))


def _resolve(vars: Any, model: pm.Model) -> tuple[list[TensorVariable], list[TensorVariable]]:
    """Sort what the user passed, random variables or values, into records and parameters."""
    if vars is None:
        found = record_variables(model)
        if not found:
            raise ValueError(
                "The model has no records: declare a release of a sum over a latent variable's "
                "first axis with pmdp.Privatized(name, x.sum(), mechanism, observed=...)."
            )
        return found, by_name(rv for rv in model.free_RVs if takes(model, rv))
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
    parameters = by_name(rv for rv in resolved if is_parent(model, rv))
    for rv in parameters:
        if rv.dtype not in continuous_types:
            raise ValueError(
                f"{rv.name!r} is discrete, and no record: leave it out of RecordGibbs. PyMC's own "
                "step moves it, and where it has few values it moves along with the records."
            )
    return [rv for rv in resolved if rv not in parameters], parameters
