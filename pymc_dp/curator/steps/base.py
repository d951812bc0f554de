"""What all steps on confidential data share: claims before chains, and nothing unsafe to show."""

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
from pymc.blocking import PointType
from pymc.step_methods.compound import BlockedStep, CompoundStep
from pymc.util import RandomGenerator, get_random_generator
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors

from pymc_dp.accounting.allowance import Allowance, PrivacySpent
from pymc_dp.accounting.budget import spent_together
from pymc_dp.accounting.composition import FIXED_SIZES, GaussianQueries, Sampling
from pymc_dp.accounting.door import Door, closed
from pymc_dp.accounting.errors import ConfidentialDataWarning, PrivacyError
from pymc_dp.compat import ProgressHooks
from pymc_dp.curator.confidential import (
    count_records,
    lengths_of_records,
)
from pymc_dp.curator.curated import mark_confidential, read_freely
from pymc_dp.curator.forecast import tell_if_few
from pymc_dp.curator.likelihood import SHAPE_ERRORS, RecordLikelihood, is_public, records_of
from pymc_dp.curator.model import RecordModel, record_model
from pymc_dp.types import Vector


class CuratorStep(ProgressHooks, BlockedStep):
    """A step method that touches confidential data and pays for it.

    Subclasses list in ``stats_dtypes_shapes`` only what is public or noised, keep in their sampling
    state only the same, let numbers computed from the data out through ``self.door`` alone, take
    the point by ``self._arrive`` and give it back by ``self._leave``.
    """

    default_tune_steps = 0
    gradients_per_iteration = 0

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Refuse what would make several steps of one, each with the whole guarantee."""
        if not kwargs.get("blocked", True):
            raise ValueError(
                "blocked=False makes a step for each variable, each of which would claim all of "
                "epsilon: leave it out, or write one step a variable with budget= and share=."
            )
        return super().__new__(cls, *args, **kwargs)

    def __init__(
        self,
        vars: Any,
        allowance: Allowance,
        *,
        model: pm.Model | None,
        rng: RandomGenerator,
        batch_size: int | None = None,
        batch_fraction: float | None = None,
        independent_records: bool = False,
        public_data: Sequence[str] = (),
        compile_kwargs: dict[str, Any] | None = None,
    ) -> None:
        if batch_size is not None and allowance.neighbours != "substitute":
            raise ValueError(FIXED_SIZES)
        model = pm.modelcontext(model)
        if vars is None:
            vars = model.value_vars
        elif not isinstance(vars, list | tuple):
            vars = [vars]
        self.vars = [model.rvs_to_values.get(var, var) for var in vars]
        if strange := [var for var in self.vars if var not in model.value_vars]:
            raise ValueError(f"{strange[0]} is not a free variable of the model.")
        self.rng = get_random_generator(rng)
        self.allowance = allowance
        self.records = record_model(
            model,
            compile_kwargs,
            independent_records=independent_records,
            public_data=public_data,
        )
        self.space, self.likelihood = self.records.space, self.records.likelihood
        self.log_prior = self.records.log_prior
        #: a record's chance to be in a batch, and how these are drawn
        self.fraction = _batch_fraction(self.records, batch_size, batch_fraction)
        self.sampling: Sampling = "fixed" if batch_fraction is None else "poisson"
        self.batch_size = batch_size
        refuse_confidential_starts(model, model.rvs_to_initial_values)
        if allowance.neighbours == "add_remove":
            refuse_number_of_records(model, self.likelihood)
        self.own = self.space.coordinates(self.vars)
        by_data = np.isin(self.own, self.likelihood.data_coordinates)
        #: those the likelihood depends on, which cost, and those the prior alone does
        self.data_coordinates, self.prior_coordinates = self.own[by_data], self.own[~by_data]
        self.others_checked, self._copied = False, False
        self._left_at: bytes | None = None
        self._door: Door | None = None
        if not allowance.simulation:
            refuse_read_freely(self.likelihood)
        paid = None if allowance.simulation else allowance.budget
        mark_confidential(model, self.likelihood, paid)

    def setup_chain(self, rng: RandomGenerator, tune: int, draws: int) -> None:
        """Claim the whole chain's budget before the first look whose answer leaves."""
        if self.own.size < self.space.size and not (
            self.others_checked or self.allowance.simulation
        ):
            raise PrivacyError(
                f"This {type(self).__name__} moves {[str(var.name) for var in self.vars]} and not "
                "all variables, and a step that moves the others may read the data without noise: "
                "run it by pymc_dp.sample, which checks all steps of a run."
            )
        super().setup_chain(rng, tune, draws)
        # no chain has more effective draws than iterations
        tell_if_few(self.allowance.chains * (tune + draws), type(self).__name__)
        self._left_at = None
        self._door = self.allowance.open(
            tune + draws,
            self.rng,
            self.fraction,
            self.gradients_per_iteration,
            self.sampling,
            self._check_noise,
        )
        self.likelihood.load()
        self._forget()

    @property
    def door(self) -> Door:
        """The way out for numbers computed from the data, open in a chain that claimed."""
        return self._door if self._door is not None else closed()

    def _check_noise(self, looks: Sequence[GaussianQueries]) -> None:
        """Refuse, before it is claimed, noise that this step can do nothing with."""

    def _forget(self) -> None:
        """Drop what was computed from the data."""

    def _arrive(self, point: PointType) -> Vector:
        """Take a point in, unless someone else moved this step's variables since it left them.

        A chain is one path: what another step, or a callback, made of its variables may depend on
        the data without noise, and would be published with the draws.
        """
        theta = self.space.flatten(point)
        moved = self._left_at is not None and theta[self.own].tobytes() != self._left_at
        if moved and not self.allowance.simulation:
            raise PrivacyError(
                f"{[str(var.name) for var in self.vars]} were moved by something else than this "
                f"{type(self).__name__} in the middle of a chain (another step for the same "
                "variables, or a callback that writes to the point), perhaps by the data without "
                "noise: leave each variable to one step."
            )
        return theta

    def _leave(self, theta: Vector, point: PointType) -> PointType:
        new = self.space.unflatten(theta, point)
        for name in self.space.slices:
            if new[name].dtype != theta.dtype:  # rounded
                theta = self.space.flatten(new)
                break
        self._left_at = theta[self.own].tobytes()
        return new

    @property
    def clips(self) -> dict[str, float]:
        """Bounds on a record's influence, by name."""
        return {}

    def refuse_copies(self) -> None:
        """Refuse to start a run with a step that was copied; PyMC's workers have copies of it."""
        if self._copied:
            raise PrivacyError(
                f"This {type(self).__name__} is a copy (deep-copied or unpickled), which does not "
                "belong to the model any more and has claimed nothing: make a step anew inside the "
                "model. With budget=PrivacyBudget(..., ledger=...) it goes on with what is left."
            )

    def before_sampling(self) -> None:
        """Refuse a step that was copied, and warn where the result will carry the data."""
        self.refuse_copies()
        warnings.warn(
            "pm.sample's result carries the observed data. Publish pymc_dp.redact(idata) instead, "
            "or sample by pymc_dp.sample.",
            ConfidentialDataWarning,
            stacklevel=3,
        )

    def __getstate__(self) -> dict[str, Any]:
        self._forget()
        return self.__dict__ | {"_door": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._copied = True


def refuse_confidential_starts(model: pm.Model, starts: Mapping[Any, Any]) -> None:
    """Refuse starting values that are computed from data: a chain's first draws show them."""
    for name, start in starts.items():
        if isinstance(start, Variable) and not is_public(start, model):
            raise PrivacyError(
                f"The starting value of {str(getattr(name, 'name', name))!r} is computed from "
                "arrays that may be confidential, and would be published with the first draws: "
                "write numbers that are known from elsewhere."
            )


def refuse_read_freely(likelihood: RecordLikelihood) -> None:
    """Refuse records that settings were computed from: these are not public then."""
    for other in read_freely:
        if likelihood.shares(*records_of(other)):
            raise PrivacyError(
                f"Records of {likelihood.names} were passed as synthetic=, to suggest or "
                "suggest_hmc, and settings that were computed from them would be published: "
                "simulate records for that. For a dry run on synthetic records write "
                "simulation=True."
            )


def refuse_number_of_records(model: pm.Model, likelihood: RecordLikelihood) -> None:
    """Refuse what would tell, or change with, the number of records where it is confidential."""
    if likelihood.by_place:
        raise ValueError(
            f"The log-likelihood of {likelihood.names} uses records' places in the order (arange "
            "of their number, or the like). One record less, and others are in other places, so "
            'that neighbours="add_remove" cannot be promised: pass what belongs to each record as '
            'an array, or use neighbours="substitute".'
        )
    n_records = count_records(model)
    for name, shape in model.eval_rv_shapes().items():
        if n_records in shape:
            raise ValueError(
                f"{name!r} has one value for each of the records, whose number is confidential "
                'with neighbours="add_remove": integrate it out (write the distribution of a '
                'record without it), or use neighbours="substitute".'
            )
    number = lengths_of_records(model, n_records)
    published = [var for var in model.deterministics if is_public(var, model)]
    for variable in [*model.free_RVs, *model.potentials, *published]:
        others = set(model.free_RVs) - {variable}
        if not number.isdisjoint(ancestors([variable], others)):
            raise ValueError(
                f"{str(variable.name)!r} is made of the number of records (the length of a named "
                'dimension), which is confidential with neighbours="add_remove": write a number '
                'that is public in its place, or use neighbours="substitute".'
            )


def _batch_fraction(
    records: RecordModel, batch_size: int | None, batch_fraction: float | None
) -> float:
    """Check how batches are asked for, and that the model's likelihood can be taken apart."""
    if batch_size is None and batch_fraction is None:
        return 1.0
    likelihood, start = records.likelihood, records.space.start
    n = likelihood.n_records
    if batch_size is not None and batch_fraction is not None:
        raise ValueError(
            "Write batch_size= for batches of a fixed size or batch_fraction= for Poisson ones, "
            "not both."
        )
    if batch_fraction is not None and not 0 < batch_fraction < 1:
        raise ValueError(f"batch_fraction must lie in (0, 1), not {batch_fraction!r}.")
    if batch_size is not None and (batch_size != int(batch_size) or not 2 <= batch_size < n):
        raise ValueError(f"batch_size must be from 2 to below the {n} records, not {batch_size!r}.")
    fraction = batch_size / n if batch_size is not None else float(batch_fraction or 0)
    if records.sharded:  # refused already if it cannot be taken apart
        return fraction
    index = np.arange(0, n, max(1, round(1 / fraction)))[:1000]
    try:
        same = np.allclose(likelihood.batch(start, index), likelihood(start)[index], equal_nan=True)
    except SHAPE_ERRORS:
        same = False
    if not same:
        raise ValueError(
            "The likelihood of some records cannot be computed without the others: write the model "
            "without fixed lengths (shape=, size=) of the records, or leave batches out."
        )
    return fraction


def flat_steps(step: Any) -> list[Any]:
    """Everything passed to ``pm.sample(step=...)``, however lists and compound steps are nested."""
    if step is None:
        return []
    if isinstance(step, CompoundStep):
        return [one for method in step.methods for one in flat_steps(method)]
    if isinstance(step, Sequence) and not isinstance(step, str):
        return [one for method in step for one in flat_steps(method)]
    return [step]


def privacy_spent(step: Any) -> PrivacySpent:
    """Tell what a step has spent, over all its chains so far.

    Parameters
    ----------
    step : step method, or several
        Curators' steps such as :class:`~pymc_dp.DPPenalty`.

    Returns
    -------
    PrivacySpent
        The pair ``(epsilon, delta)`` for everything claimed from the step's budget, with
        ``details`` on mu, iterations, chains, noise, clip bounds and the neighbour relation. Of
        several steps: the pair for everything claimed from all their budgets, with the details of
        each under its number. It is at the largest of their deltas, or at their sum where looks of
        different kinds, some at random batches, come from several budgets, whose epsilons then add.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dp as pmdp
    >>> with pm.Model():
    ...     mu = pm.Normal("mu", 0, 1)
    ...     _ = pm.Normal("y", mu, 1, observed=[0.3, -0.2, 1.1])
    ...     step = pmdp.DPPenalty(epsilon=1, delta=1e-6, chains=1, clip_logp=3, step_size=0.5)
    >>> pmdp.privacy_spent(step).epsilon
    0.0
    """
    steps = flat_steps(step)
    if not steps or not all(isinstance(one, CuratorStep) for one in steps):
        raise ValueError("Pass a curator's step, such as pymc_dp.DPPenalty(...), or several.")
    each = [one.allowance.spent(step=type(one).__name__, **one.clips) for one in steps]
    if len(each) == 1:
        return each[0]
    simulation = any(one.allowance.simulation for one in steps)
    budgets = [one.allowance.budget for one in steps if one.allowance.budget is not None]
    pair = (math.inf, 1.0) if simulation else spent_together(budgets)
    details = {
        f"{i}_{name}": value for i, one in enumerate(each) for name, value in one.details.items()
    }
    return PrivacySpent(
        *pair, neighbours=steps[0].allowance.neighbours, simulation=simulation, **details
    )
