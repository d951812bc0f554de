"""`pm.sample` for private models: the same arguments, and a result that is safe to keep."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pymc as pm
from pymc.step_methods.compound import CompoundStep

from pymc_dp.accounting.errors import PrivacyError
from pymc_dp.analyst.count_gibbs.cells import cell_variables, shape_of
from pymc_dp.analyst.count_gibbs.step import CountGibbs
from pymc_dp.analyst.marginal.sampling import counted, hint_at_marginalize, sample_marginal
from pymc_dp.analyst.marginal.strategy import integrated_out
from pymc_dp.analyst.record_gibbs.step import RecordGibbs
from pymc_dp.analyst.records import record_variables
from pymc_dp.analyst.regression.normal_x.holder_model import is_statistic
from pymc_dp.curator.redaction import sample_redacted
from pymc_dp.curator.steps.base import CuratorStep, curated_models, flat_steps

__all__ = ["sample"]

#: tables of counts that are stored without being named
MOST_CELLS = 10_000


def sample(draws: int = 1000, **kwargs: Any) -> Any:
    """Draw posterior samples as ``pm.sample`` does, without records or data in the result.

    For an analyst: ``pm.sample`` stores every latent variable at every draw, and n = 100000 records
    and 4000 draws take 3 GB. Here record variables, the matrices of
    :func:`~pymc_dp.HolderStatistics` and what :func:`~pymc_dp.marginalize` has added are stored
    only where `var_names` names them. Models from :func:`~pymc_dp.marginalize` start near what was
    released, and are sampled by nutpie where it is installed (``pip install pymc_dp[nutpie]``). The
    result's attributes ``normal_law_error`` and ``normal_law_error_of`` tell the largest error
    of a posterior mean or standard deviation that taking sums for normal is estimated to make, in
    posterior standard deviations, and of which parameter. Tables of counts are stored up to 10000
    cells. Categorical records, and others with finitely many states, are counted: where there are
    1000 or more of them and ten for every state, and neither they nor a step were asked for, what
    is sampled is ``pmdp.marginalize(model, method="counts")``.

    For a curator, who passes a step such as :class:`~pymc_dp.DPPenalty`: the result is redacted
    (:func:`~pymc_dp.redact`), and its attributes ``privacy_epsilon`` and ``privacy_delta`` tell the
    guarantee for all that leaves in it. Only curators' steps may then take part, each variable is
    moved by one of them, and of the arguments of :func:`pymc.sample` those are allowed that neither
    read the data without noise nor hand it out.

    Parameters
    ----------
    draws : int
        Number of draws a chain, after tuning.
    **kwargs
        As for :func:`pymc.sample`. With a curator's step, `chains` is the step's own by default.

    Returns
    -------
    DataTree
        As of :func:`pymc.sample`, less what must not or need not be kept.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dp as pmdp
    >>> with pm.Model():
    ...     p = pm.Beta("p", 1, 1)
    ...     x = pm.Bernoulli("x", p, shape=20)
    ...     total = pmdp.Privatized("total", x.sum(), pmdp.Laplace(scale=2), observed=13.1)
    ...     idata = pmdp.sample(50, tune=50, chains=1, cores=1, quiet=True)
    >>> list(idata.posterior.data_vars)
    ['p']
    """
    model = pm.modelcontext(kwargs.pop("model", None))
    steps = flat_steps(kwargs.get("step"))
    if any(isinstance(step, CuratorStep) for step in steps):
        return sample_redacted(draws, steps, model, **kwargs)
    if model in curated_models:
        raise PrivacyError(
            "A curator's step was made for this model, and is not among the steps of this run, "
            "whose draws would not be private: pass step=. Draws that stay with you come from "
            "pm.sample."
        )
    cells = cell_variables(model)
    records = [rv for rv in record_variables(model) if rv not in cells]
    _check_one_step_each(kwargs.get("step"))
    if integrated_out(model):
        return sample_marginal(draws, model, **kwargs)
    tables = counted(model, **kwargs)
    if tables is not None:
        return sample_marginal(draws, tables, **kwargs)
    hint_at_marginalize(model, records)
    if kwargs.get("var_names") is None:
        large = [rv for rv in cells if np.prod(shape_of(rv)) > MOST_CELLS]
        hidden = [*records, *large, *(rv for rv in model.free_RVs if is_statistic(rv))]
        others = [str(rv.name) for rv in model.unobserved_RVs if rv not in hidden]
        kwargs["var_names"] = others or None
    return pm.sample(draws, model=model, **kwargs)


sample.__signature__ = inspect.signature(pm.sample)  # type: ignore[attr-defined]


def _check_one_step_each(step: Any) -> None:
    """Refuse records and cells that two provided steps would move."""
    steps = step if isinstance(step, list | tuple) else [step]
    flat = [s for one in steps for s in (one.methods if isinstance(one, CompoundStep) else [one])]
    for gibbs in (s for s in flat if isinstance(s, RecordGibbs | CountGibbs)):
        for other in (s for s in flat if s is not gibbs and s is not None):
            for var in gibbs.vars:
                if var in other.vars:
                    raise ValueError(
                        f"{var.name!r} is given to {type(gibbs).__name__} and to "
                        f"{type(other).__name__}. Leave it to one of them."
                    )
