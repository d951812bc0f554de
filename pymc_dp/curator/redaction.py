"""Results safe to publish: what may leave a run on confidential data, and what may not."""

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import pymc as pm
from xarray import DataTree

from pymc_dp.accounting.errors import ConfidentialDataWarning, PrivacyError
from pymc_dp.compat import ParallelSamplingError
from pymc_dp.curator.likelihood import is_public
from pymc_dp.curator.steps.base import CuratorStep, curated_models, privacy_spent

_GROUPS = ("posterior", "warmup_posterior", "sample_stats", "warmup_sample_stats")
_ATTRIBUTES = ("inference_library", "inference_library_version", "tuning_steps")


def redact(idata: DataTree, model: pm.Model | None = None) -> DataTree:
    """Keep of a result only what was computed from noised quantities.

    Draws of free variables stay, and so do the noised statistics of curators' steps. Everything
    else goes: observed and constant data, log-likelihoods, other statistics, elapsed time, and
    every Deterministic that is computed from arrays (such as fitted values, which show the
    covariates): compute those afterwards from the published draws.

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
    names = public_variables(model or _model_of(idata))
    noised = {stat for step in _kinds(CuratorStep) for stat in step.stats_dtypes_shapes}
    if "sample_stats" not in idata or "noise_sd" not in idata["sample_stats"]:
        warnings.warn(
            "These draws do not come from a curator's step such as pymc_dp.DPPenalty: redact "
            "removes the data but cannot make the draws themselves private.",
            ConfidentialDataWarning,
            stacklevel=2,
        )
    kept = {}
    for group in _GROUPS:
        if group in idata:
            wanted = names if group.endswith("posterior") else noised
            dataset = idata[group].to_dataset()
            dataset = dataset[[name for name in dataset.data_vars if name in wanted]]
            dataset.attrs = _safe_attributes(dataset.attrs)
            kept[group] = dataset
    tree = DataTree.from_dict(kept)
    tree.attrs = _safe_attributes(idata.attrs)
    return tree


def _safe_attributes(attributes: Any) -> dict[Any, Any]:
    return {
        name: value
        for name, value in attributes.items()
        if name in _ATTRIBUTES or str(name).startswith("privacy_")
    }


def _kinds(cls: type[CuratorStep]) -> Iterable[type[CuratorStep]]:
    yield cls
    for kind in cls.__subclasses__():
        yield from _kinds(kind)


def public_variables(model: pm.Model) -> list[str]:
    """Names of the model's variables whose draws may be published."""
    variables = [*model.free_RVs, *(v for v in model.deterministics if is_public(v, model))]
    return [str(variable.name) for variable in variables]


def _model_of(idata: DataTree) -> pm.Model:
    try:
        return pm.modelcontext(None)
    except TypeError:
        names = set(idata["posterior"].data_vars) if "posterior" in idata else set()
        found = [
            model
            for model in curated_models
            if names <= {str(variable.name) for variable in model.unobserved_RVs}
        ]
        if not found:
            raise ValueError(
                "redact must know which variables are computed from the data: call it inside the "
                "model's context, or write redact(idata, model=model)."
            ) from None
        return min(found, key=lambda model: len(public_variables(model)))


def sample_redacted(
    draws: int, steps: Sequence[CuratorStep], model: pm.Model, **kwargs: Any
) -> DataTree:
    """Run ``pm.sample`` for curators' steps and return only what is safe to publish."""
    _check_request(steps, model, kwargs)
    public = public_variables(model)
    names = kwargs.pop("var_names", None) or public
    if hidden := sorted(set(names) - set(public)):
        raise PrivacyError(
            f"{', '.join(map(repr, hidden))} is computed from arrays that may be confidential: "
            "leave it out of var_names, and compute it from the published draws and public data."
        )
    chains = kwargs.pop("chains", None) or min(step.allowance.chains for step in steps)
    for step in steps:
        step.allowance.check_chains(chains)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConfidentialDataWarning)
            idata = pm.sample(draws, chains=chains, var_names=names, model=model, **kwargs)
    except ParallelSamplingError as error:
        if refusal := _refusal(error):
            raise refusal from None
        raise
    tree = redact(idata, model)
    for number, step in enumerate(steps):
        prefix = "privacy_" if len(steps) == 1 else f"privacy_{number}_"
        tree.attrs.update(_guarantee(step, prefix))
    return tree


def _guarantee(step: CuratorStep, prefix: str) -> dict[str, Any]:
    spent = privacy_spent(step)
    told = {"epsilon": spent.epsilon, "delta": spent.delta, **spent.details}
    # attributes of stored trees hold numbers and text, not truth values
    return {
        prefix + name: int(value) if isinstance(value, bool) else value
        for name, value in told.items()
    }


def _check_request(steps: Sequence[CuratorStep], model: pm.Model, kwargs: dict[str, Any]) -> None:
    owned = {value for step in steps for value in step.vars}
    others = [str(value.name) for value in model.value_vars if value not in owned]
    if others:
        raise PrivacyError(
            f"{', '.join(map(repr, others))} would be moved by a step that reads the data without "
            "noise. Leave vars out of the curator's step, or give each variable one."
        )
    if kwargs.get("trace") is not None or kwargs.get("return_inferencedata") is False:
        raise PrivacyError(
            "trace= and return_inferencedata=False hand out the observed data: leave them out."
        )
    if (kwargs.get("idata_kwargs") or {}).get("log_likelihood"):
        raise PrivacyError(
            "A log-likelihood is computed from the data without noise: leave it out."
        )


def _refusal(error: BaseException) -> PrivacyError | None:
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, PrivacyError):
            return seen
        seen = seen.__cause__ or seen.__context__
    return None
