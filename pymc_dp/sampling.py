"""`pm.sample` for private models: the same arguments, and a result that is safe to keep."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor
from pymc.backends import NDArray
from pymc.step_methods.compound import CompoundStep

from pymc_dp.accounting.errors import PrivacyError
from pymc_dp.analyst.count_gibbs.cells import cell_variables, shape_of
from pymc_dp.analyst.count_gibbs.step import CountGibbs
from pymc_dp.analyst.marginal.sampling import (
    counted,
    hint_at_marginalize,
    integrated_holders,
    sample_marginal,
)
from pymc_dp.analyst.marginal.strategy import integrated_out
from pymc_dp.analyst.record_gibbs.step import RecordGibbs
from pymc_dp.analyst.records import record_variables
from pymc_dp.analyst.regression.normal_x.holder_model import is_statistic
from pymc_dp.curator.curated import is_curated
from pymc_dp.curator.redaction import sample_redacted
from pymc_dp.curator.steps.base import CuratorStep, flat_steps
from pymc_dp.executors.chains import sample_chains
from pymc_dp.graph.quick_mode import quick_mode
from pymc_dp.graph.rewrites import without_origins
from pymc_dp.numerics.compiled import compiling

__all__ = ["sample"]

#: tables of counts that are stored without being named
MOST_CELLS = 10_000


def sample(draws: int = 1000, *, executor: Any = None, **kwargs: Any) -> Any:
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
    is sampled is ``pmdp.marginalize(model, method="counts")``. Of several holders' statistics
    (:func:`~pymc_dp.HolderStatistics`), where a number of rows is latent and neither they
    nor a step were asked for, z and the law of the rows are integrated out; the law is drawn
    afterwards, given the rest.

    For a curator, who passes a step such as :class:`~pymc_dp.DPPenalty`: the result is redacted
    (:func:`~pymc_dp.redact`), and its attributes ``privacy_epsilon`` and ``privacy_delta`` tell the
    guarantee for all that leaves in it. Only curators' steps may then take part, each variable is
    moved by one of them, and of the arguments of :func:`pymc.sample` those are allowed that neither
    read the data without noise nor hand it out.

    Parameters
    ----------
    draws : int
        Number of draws a chain, after tuning.
    executor : object with ``submit``, optional
        Where an analyst's chains run: a client of Dask, or an executor of
        :mod:`concurrent.futures`. The draws are those of the same `random_seed` without it, and a
        chain whose worker dies is run again. The model is sent there and compiled once a worker. A
        sampler that is not PyMC's, such as nutpie, runs with all its chains in one worker. Chains
        of curators' steps stay in this process and its children, where the ledger is.
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
    if executor is not None:
        _check_can_be_sent(steps, model, kwargs)
    if any(isinstance(step, CuratorStep) for step in steps):
        return sample_redacted(draws, steps, model, **kwargs)
    if is_curated(model):
        raise PrivacyError(
            "A curator's step was made for this model, or for another one with the same records, "
            "and is not among the steps of this run, whose draws would not be private: pass step=. "
            "Draws that stay with you come from pm.sample."
        )
    cells = cell_variables(model)
    records = [rv for rv in record_variables(model) if rv not in cells]
    _check_one_step_each(kwargs.get("step"))
    large = [rv for rv in cells if np.prod(shape_of(rv)) > MOST_CELLS]
    hidden = [*records, *large, *(rv for rv in model.free_RVs if is_statistic(rv))]
    _check_densities(hidden, kwargs)
    if integrated_out(model):
        return sample_marginal(draws, model, executor, **kwargs)
    tables = counted(model, **kwargs)
    if tables is not None:
        return sample_marginal(draws, tables, executor, **kwargs)
    without_rows = integrated_holders(model, **kwargs)
    if without_rows is not None:
        return sample_marginal(draws, without_rows, executor, **kwargs)
    hint_at_marginalize(model, records)
    if kwargs.get("var_names") is None:
        others = [str(rv.name) for rv in model.unobserved_RVs if rv not in hidden]
        kwargs["var_names"] = others or None
    ours = records or cells or any(is_statistic(rv) for rv in model.free_RVs)
    plain = executor is None and kwargs.get("trace") is None
    with without_origins():
        if ours and plain and kwargs.get("var_names") is not None:
            kwargs["trace"] = _trace(model, kwargs["var_names"])
        return sample_chains(draws, model, executor, **kwargs)


def _signature() -> inspect.Signature:
    """Add to that of ``pm.sample``."""
    own = inspect.signature(sample).parameters["executor"]
    parameters = list(inspect.signature(pm.sample).parameters.values())
    return inspect.Signature([*parameters[:-1], own, parameters[-1]])


sample.__signature__ = _signature()  # type: ignore[attr-defined]


def _check_can_be_sent(steps: list[Any], model: pm.Model, kwargs: dict[str, Any]) -> None:
    """Refuse, before anything is sent, what must not or cannot run in another process."""
    if any(isinstance(step, CuratorStep) for step in steps) or is_curated(model):
        raise PrivacyError(
            "executor= would send the confidential records and the right to claim from the budget "
            "to other machines, whose copies of a ledger do not know of each other. A worker that "
            "dies has spent its claim, and a scheduler that runs its chain again would silently "
            "spend another. Leave executor= out: cores= runs a curator's chains in processes that "
            "share the ledger. Where records are spread over machines, keep them there in shards, "
            "so that this process alone claims and adds noise (docs/cluster.md)."
        )
    for name in ("callback", "trace"):
        if kwargs.get(name) is not None:
            raise ValueError(
                f"{name}= is called at every draw, in this process, and chains on an executor "
                f"come back when they are done: leave {name}= or executor= out."
            )


def _check_densities(hidden: list[Any], kwargs: dict[str, Any]) -> None:
    """Refuse, before sampling, densities that need what is not stored."""
    wanted = kwargs.get("idata_kwargs") or {}
    asked = [name for name in ("log_likelihood", "log_prior") if wanted.get(name)]
    if not asked or not hidden or kwargs.get("var_names") is not None:
        return
    names = ", ".join(repr(str(rv.name)) for rv in hidden)
    raise ValueError(
        f"idata_kwargs asks for {asked[0]}, which is a density given {names}, and pymc_dp.sample "
        f"does not store that: name all variables in var_names=, or call pm.sample. Densities of "
        "releases given the parameters alone, for arviz.loo, come from "
        "pymc_dp.compute_log_likelihood and a model of pymc_dp.marginalize."
    )


class _Storage(NDArray):
    """Room for draws, of which ``pm.sample`` makes a copy for each chain."""

    def __copy__(self) -> NDArray:
        return NDArray(
            model=self.model,
            vars=self.vars,
            fn=self.fn,
            var_shapes=self.var_shapes,
            var_dtypes=self.var_dtypes,
        )


def _trace(model: pm.Model, var_names: Sequence[str]) -> NDArray:
    """Make what stores draws, as ``pm.sample`` does for each chain; this is compiled sooner."""
    stored = [rv for rv in model.unobserved_RVs if rv.name in var_names]
    chosen = model.replace_rvs_by_values(stored)
    with compiling("what stores draws"):
        function = model.compile_fn(
            outs=[pytensor.Out(var, borrow=True) for var in chosen],
            inputs=[pytensor.In(var, borrow=True) for var in model.value_vars],
            point_fn=False,
            on_unused_input="ignore",
            trust_input=True,
            mode=quick_mode(None),
        )
        return _Storage(model=model, vars=chosen, fn=function)


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
