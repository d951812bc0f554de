"""What all steps on confidential data share: claims before chains, and nothing unsafe to show."""

import warnings
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
from pymc.step_methods.compound import BlockedStep, CompoundStep, flatten_steps
from pymc.util import RandomGenerator, get_random_generator

from pymc_dp.accounting.allowance import Allowance, PrivacySpent
from pymc_dp.accounting.errors import ConfidentialDataWarning
from pymc_dp.curator.likelihood import FlatSpace, RecordLikelihood, compile_prior

curated_models: weakref.WeakSet[pm.Model] = weakref.WeakSet()
"""Models whose data is confidential because a curator's step was made for them."""


class CuratorStep(BlockedStep):
    """A step method that touches confidential data and pays for it.

    Subclasses list in ``stats_dtypes_shapes`` only what is public or noised, keep in their sampling
    state only the same, and call ``self.allowance.look()`` before each look at the data.
    """

    default_tune_steps = 0
    gradients_per_iteration = 0

    def __init__(
        self,
        vars: Any,
        allowance: Allowance,
        *,
        model: pm.Model | None,
        rng: RandomGenerator,
        batch_size: int | None = None,
        independent_records: bool = False,
        public_data: Sequence[str] = (),
        compile_kwargs: dict[str, Any] | None = None,
    ) -> None:
        model = pm.modelcontext(model)
        if vars is None:
            vars = model.value_vars
        elif not isinstance(vars, list | tuple):
            vars = [vars]
        self.vars = [model.rvs_to_values.get(var, var) for var in vars]
        self.rng = get_random_generator(rng)
        self.allowance = allowance
        self.space = FlatSpace(model)
        self.likelihood = RecordLikelihood(
            model,
            self.space,
            compile_kwargs,
            independent_records=independent_records,
            public_data=public_data,
        )
        self.log_prior = compile_prior(model, self.space, compile_kwargs)
        self.fraction = _batch_fraction(self.likelihood, self.space, batch_size)
        self.batch_size = batch_size
        own = self.space.coordinates(self.vars)
        paid = np.isin(own, self.likelihood.moves_with)
        self.paid, self.free = own[paid], own[~paid]
        curated_models.add(model)

    def setup_chain(self, rng: RandomGenerator, tune: int, draws: int) -> None:
        """Claim the whole chain's budget, and only then read the data."""
        super().setup_chain(rng, tune, draws)
        queries = self.allowance.open(
            tune + draws, self.rng, self.fraction, self.gradients_per_iteration
        )
        self.noise_multiplier = queries[0].noise_multiplier
        self.grad_noise_multiplier = queries[-1].noise_multiplier
        self.likelihood.load()
        self._forget()

    def _forget(self) -> None:
        """Drop what was computed from the data."""

    @property
    def clips(self) -> dict[str, float]:
        """Bounds on a record's influence, by name."""
        return {}

    def _progressbar_config(self, n_chains: int = 1) -> Any:
        # the one method that pm.sample calls in the main process, whatever the number of cores
        others = set(self.space.names) - {str(var.name) for var in self.vars}
        unless = f" Steps for {sorted(others)} must be curators' steps too." if others else ""
        warnings.warn(
            "pm.sample's result carries the observed data. Publish pymc_dp.redact(idata) instead, "
            f"or sample by pymc_dp.sample.{unless}",
            ConfidentialDataWarning,
            stacklevel=2,
        )
        return [], {}

    @staticmethod
    def _make_progressbar_update_functions() -> Any:
        return (lambda stats: {},)

    def __getstate__(self) -> dict[str, Any]:
        self._forget()
        return self.__dict__.copy()


def _batch_fraction(
    likelihood: RecordLikelihood, space: FlatSpace, batch_size: int | None
) -> float:
    if batch_size is None:
        return 1.0
    n = likelihood.n_records
    if not 2 <= batch_size < n:
        raise ValueError(f"batch_size must be from 2 to below the {n} records, not {batch_size!r}.")
    index = np.arange(0, n, max(1, n // batch_size))[:batch_size]
    try:
        same = np.allclose(
            likelihood.batch(space.start, index), likelihood(space.start)[index], equal_nan=True
        )
    except Exception:
        same = False
    if not same:
        raise ValueError(
            "The likelihood of some records cannot be computed without the others: write the model "
            "without fixed lengths (shape=, size=) of the records, or leave batch_size out."
        )
    return batch_size / n


def curator_steps(step: Any) -> list[CuratorStep]:
    """Find the steps on confidential data among those passed to ``pm.sample(step=...)``."""
    methods = step if isinstance(step, list | tuple) else [step]
    flat: list[Any] = []
    for method in methods:
        if isinstance(method, BlockedStep | CompoundStep):
            flat.extend(flatten_steps(method))
    return [method for method in flat if isinstance(method, CuratorStep)]


def privacy_spent(step: Any) -> PrivacySpent:
    """Tell what a step has spent, over all its chains so far.

    Parameters
    ----------
    step : step method
        A curator's step such as :class:`~pymc_dp.DPPenalty`.

    Returns
    -------
    PrivacySpent
        The pair ``(epsilon, delta)`` for everything claimed from the step's budget, with
        ``details`` on mu, iterations, chains, noise, clip bounds and the neighbour relation.

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
    steps = curator_steps(step)
    if len(steps) != 1:
        raise ValueError("Pass one curator's step, such as pymc_dp.DPPenalty(...).")
    (method,) = steps
    return method.allowance.spent(step=type(method).__name__, **method.clips)
