"""Results safe to publish: what may leave a run on confidential data, and what may not."""

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pymc as pm
from pytensor.graph.basic import Constant
from xarray import Dataset, DataTree

from pymc_dp.accounting.budget import PrivacyBudget, spent_together
from pymc_dp.accounting.errors import ConfidentialDataWarning, PrivacyError
from pymc_dp.compat import ParallelSamplingError
from pymc_dp.curator.confidential import refuse_gaps
from pymc_dp.curator.curated import curated_models
from pymc_dp.curator.gate import check_arguments, check_starts, check_steps, checked_together
from pymc_dp.curator.likelihood import is_public
from pymc_dp.curator.steps.base import CuratorStep, privacy_spent
from pymc_dp.graph.inner_graphs import may_hide_arrays

_GROUPS = ("posterior", "warmup_posterior", "sample_stats", "warmup_sample_stats")
_ATTRIBUTES = ("inference_library", "inference_library_version", "tuning_steps")


def redact(idata: DataTree, model: pm.Model | None = None) -> DataTree:
    """Keep of a result only what was computed from noised quantities.

    Draws of free variables stay, and so do the noised statistics of curators' steps. Everything
    else goes: observed and constant data, log-likelihoods, predictions, other statistics, elapsed
    time, variables with one value a record (with their labels, which may be names), and every
    Deterministic that is computed from arrays (such as fitted values, which show the covariates):
    compute those afterwards from the published draws.

    Parameters
    ----------
    idata : DataTree
        What ``pm.sample`` returned for a curator's step.
    model : pymc.Model, optional
        The model; found by itself inside its context, or where a curator's step was made for it.

    Returns
    -------
    DataTree
        A new tree. The old one still carries the data.

    Raises
    ------
    PrivacyError
        If another step took part in the run beside the curator's.

    Notes
    -----
    Functions of PyMC that are given a redacted tree and the model put data back into it, without a
    word: ``pm.sample_posterior_predictive(tree, extend_inferencedata=True)`` adds ``observed_data``
    and ``constant_data``, and its predictions are made with the records' own covariates;
    ``pm.compute_log_likelihood(tree)`` adds one number a record, without noise. Call them on a copy
    that stays with you, or call ``redact`` again on what they made, last of all: it takes out all
    of that and leaves the guarantee.

    Labels of other dimensions (groups, features) stay: they are part of the model, which is taken
    to be public.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dp as pmdp
    >>> with pm.Model():
    ...     mu = pm.Normal("mu", 0, 1)
    ...     _ = pm.Normal("y", mu, 1, observed=[0.3, -0.2, 1.1])
    ...     step = pmdp.DPPenalty(epsilon=1, delta=1e-6, chains=1, clip_logp=3, step_size=0.5)
    ...     idata = pmdp.sample(10, step=step, chains=1, cores=1, progressbar=False, quiet=True)
    >>> "observed_data" in pmdp.redact(idata)
    False
    """
    models = [model] if model is not None else _models_of(idata)
    names = set.intersection(*(set(public_variables(one)) for one in models))
    lengths = set.union(*(_numbers_of_records(one) for one in models))
    noised = {stat for step in _kinds(CuratorStep) for stat in step.stats_dtypes_shapes}
    _check_statistics(idata, noised)
    kept = {}
    for group in _GROUPS:
        if group in idata:
            wanted = names if group.endswith("posterior") else noised
            kept[group] = _rebuilt(idata[group].to_dataset(), wanted, lengths)
    tree = DataTree.from_dict(kept)
    tree.attrs = _safe_attributes(idata.attrs)
    return tree


def _check_statistics(idata: DataTree, noised: set[str]) -> None:
    """Tell by the statistics which steps took part."""
    statistics = {
        str(name)
        for group in ("sample_stats", "warmup_sample_stats")
        if group in idata
        for name in idata[group].data_vars
    }
    if "noise_sd" not in statistics:
        warnings.warn(
            "These draws do not come from a curator's step such as pymc_dp.DPPenalty: redact "
            "removes the data but cannot make the draws themselves private.",
            ConfidentialDataWarning,
            stacklevel=3,
        )
    elif others := sorted(statistics - noised):
        raise PrivacyError(
            f"The statistics {', '.join(map(repr, others))} are not of a curator's step: a step "
            "that reads the data without noise took part, and no draw of this run is private. "
            "Sample by pymc_dp.sample, with curators' steps for all variables."
        )


def _rebuilt(dataset: Dataset, wanted: set[str], lengths: set[int]) -> Dataset:
    """Only the values asked for, and the labels of their dimensions."""
    kept = {
        name: (variable.dims, variable.values)
        for name, variable in dataset.data_vars.items()
        if name in wanted and lengths.isdisjoint(variable.shape[2:])  # after chain and draw
    }
    dims = {dim for of_one, _ in kept.values() for dim in of_one}
    labels = {dim: dataset.coords[dim].values for dim in dims if dim in dataset.coords}
    return Dataset(kept, labels, _safe_attributes(dataset.attrs))


def _safe_attributes(attributes: Any) -> dict[Any, Any]:
    return {
        name: value
        for name, value in attributes.items()
        if np.ndim(value) == 0 and (name in _ATTRIBUTES or str(name).startswith("privacy_"))
    }


def _kinds(cls: type[CuratorStep]) -> Iterable[type[CuratorStep]]:
    yield cls
    for kind in cls.__subclasses__():
        yield from _kinds(kind)


def public_variables(model: pm.Model) -> list[str]:
    """Names of the model's variables whose draws may be published."""
    lengths, shapes = _numbers_of_records(model), model.eval_rv_shapes()
    free = [rv for rv in model.free_RVs if lengths.isdisjoint(shapes[rv.name])]
    made = [
        variable
        for variable in model.deterministics
        if is_public(variable, model) and not may_hide_arrays(variable, model.free_RVs)
    ]
    return [str(variable.name) for variable in [*free, *made]]


def _numbers_of_records(model: pm.Model) -> set[int]:
    values = [model.rvs_to_values[rv] for rv in model.observed_RVs]
    return {_length(value) for value in values if value.type.ndim}


def _length(value: Any) -> int:
    if isinstance(value, Constant):
        return len(value.data)
    return int(value.shape[0].eval())


def _models_of(idata: DataTree) -> list[pm.Model]:
    """Models the result may be of: a variable must be public in each to be published."""
    try:
        context = [pm.modelcontext(None)]
    except TypeError:
        context = []
    names = set(idata["posterior"].data_vars) if "posterior" in idata else set()
    found = [
        model
        for model in curated_models
        if names <= {str(variable.name) for variable in model.unobserved_RVs}
    ]
    if not [*found, *context]:
        raise ValueError(
            "redact must know which variables are computed from the data: call it inside the "
            "model's context, or write redact(idata, model=model)."
        )
    return [*found, *context]


@np.errstate(all="ignore")  # a warning would tell that some record is out of range
def sample_redacted(draws: int, methods: Sequence[Any], model: pm.Model, **kwargs: Any) -> DataTree:
    """Run ``pm.sample`` for curators' steps and return only what is safe to publish."""
    check_arguments(draws, kwargs)
    refuse_gaps(model)
    steps = check_steps(methods, model)
    check_starts(kwargs.get("initvals"), model)
    names = _check_names(kwargs.pop("var_names", None), public_variables(model))
    chains = kwargs.pop("chains", None) or min(step.allowance.chains for step in steps)
    for step in steps:
        step.allowance.check_chains(chains)
    if any(step.records.sharded for step in steps):
        kwargs["cores"] = _one_core(kwargs.get("cores"))
    others = _other_budgets(steps, model)
    kwargs["step"] = steps[0] if len(steps) == 1 else steps  # what was checked, and nothing around
    try:
        with checked_together(steps), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConfidentialDataWarning)
            idata = pm.sample(draws, chains=chains, var_names=names, model=model, **kwargs)
    except ParallelSamplingError as error:
        if refusal := _refusal(error):
            raise refusal from None
        raise
    tree = redact(idata, model)
    tree.attrs.update(_guarantee(steps, others))
    return tree


def _one_core(cores: Any) -> int:
    """Run chains in this process, where shards are asked from."""
    if cores not in (None, 1):
        raise ValueError(
            "Chains on sharded records run one after the other in this process, and the work is "
            "done where the shards are: leave cores= out."
        )
    return 1


def _check_names(names: Any, public: list[str]) -> list[str]:
    if not names:
        return public
    asked = [names] if isinstance(names, str) else list(names)
    if hidden := sorted(set(asked) - set(public)):
        raise PrivacyError(
            f"{', '.join(map(repr, hidden))} has one value a record, or is computed from arrays "
            "that may be confidential: leave it out of var_names, and compute it from the "
            "published draws and public data."
        )
    return asked


def _other_budgets(steps: Sequence[CuratorStep], model: pm.Model) -> list[PrivacyBudget]:
    """Budgets that earlier steps on this model have claimed from, apart from those of this run."""
    own = {step.allowance.budget.ledger for step in steps if step.allowance.budget is not None}
    budgets = curated_models.get(model, {}).values()
    return [budget for budget in budgets if budget.ledger not in own and budget.claims()]


def _guarantee(steps: Sequence[CuratorStep], others: Sequence[PrivacyBudget]) -> dict[str, Any]:
    """Tell what holds for all that leaves together, and how it was made."""
    spent = privacy_spent(steps)
    attributes = {"epsilon": spent.epsilon, "delta": spent.delta, **spent.details}
    if others:
        attributes["other_budgets"] = len(others)
        mine = [step.allowance.budget for step in steps if step.allowance.budget is not None]
        if not spent.details["simulation"] and len({b.neighbours for b in [*mine, *others]}) == 1:
            pair = spent_together([*mine, *others])
            attributes |= {"all_budgets_epsilon": pair[0], "all_budgets_delta": pair[1]}
    # attributes of stored trees hold numbers and text, not truth values
    return {
        "privacy_" + name: int(value) if isinstance(value, bool) else value
        for name, value in attributes.items()
    }


def _refusal(error: BaseException) -> PrivacyError | None:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, PrivacyError):
            return cause
        cause = cause.__cause__ or cause.__context__
    return None
