"""What may be asked of ``pm.sample`` where a curator's step takes part, decided before any claim.

Arguments that are allowed are listed; all others, known or yet unknown, are refused by name.
"""

import inspect
import operator
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pymc as pm

from pymc_dp.accounting.budget import spent_together
from pymc_dp.accounting.errors import PrivacyError
from pymc_dp.curator.steps.base import (
    CuratorStep,
    refuse_confidential_starts,
    refuse_number_of_records,
)

_ALLOWED = frozenset(
    {
        "tune",
        "chains",
        "cores",
        "blas_cores",
        "mp_ctx",
        "random_seed",  # proposals only: noise comes from the operating system
        "progressbar",  # curators' steps show no statistics there
        "progressbar_theme",
        "quiet",
        "step",
        "var_names",
        "initvals",  # as public as the model is
        "discard_tuned_samples",
        "compute_convergence_checks",  # of draws that are published anyway
        "callback",  # sees points and statistics that are published anyway
        "backend",
        "compile_kwargs",
    }
)
_DEFAULTS = {name: known.default for name, known in inspect.signature(pm.sample).parameters.items()}
_NUTS = "is for NUTS, which reads the data without noise"
_DATA = "hands out the observed data"
_WHY = {
    "trace": _DATA,
    "return_inferencedata": _DATA,
    "idata_kwargs": "adds to the result, such as a log-likelihood, which is computed from the data "
    "without noise (labels belong in the model's coords)",
    "keep_warning_stat": "keeps what samplers that read the data without noise say of it",
    "nuts_sampler": _NUTS,
    "nuts_sampler_kwargs": _NUTS,
    "nuts": _NUTS,
    "target_accept": _NUTS,
    "init": _NUTS,
    "n_init": _NUTS,
    "jitter_max_retries": _NUTS,
}


def check_arguments(draws: int, arguments: dict[str, Any]) -> None:
    """Refuse what is not known to be safe, unless it is left as ``pm.sample`` has it."""
    for name, value in arguments.items():
        default = _DEFAULTS.get(name, inspect.Parameter.empty)
        unchanged = value is default or (isinstance(value, str) and value == default)
        if name not in _ALLOWED and not unchanged:
            why = _WHY.get(name, "is not known to be safe where data is confidential")
            raise PrivacyError(f"{name}= {why}: leave it out.")
    _whole("draws", draws, 1)
    for name, least in (("tune", 0), ("chains", 1)):
        if arguments.get(name) is not None:
            _whole(name, arguments[name], least)


def _whole(name: str, value: Any, least: int) -> None:
    try:
        fine = operator.index(value) >= least
    except TypeError:
        fine = False
    if not fine:
        raise ValueError(f"{name} must be a whole number >= {least}, not {value!r}.")


def check_steps(methods: Sequence[Any], model: pm.Model) -> list[CuratorStep]:
    """Refuse steps that are not curators', and variables without or with more than one step."""
    steps: list[CuratorStep] = []
    owner: dict[Any, CuratorStep] = {}
    for method in methods:
        if not isinstance(method, CuratorStep):
            raise PrivacyError(
                f"{_name(method)} reads the data without noise, and its draws would be published "
                "with those of the curator's step: leave it out, and let curators' steps such as "
                "pymc_dp.DPPenalty move all variables."
            )
        method.refuse_copies()
        if set(method.space.values) != set(model.value_vars):
            raise PrivacyError(
                f"{_name(method)} was made for another model, or this one has changed since: make "
                "the step anew, with the same budget=."
            )
        if method.allowance.neighbours == "add_remove":  # the model may have grown since
            refuse_number_of_records(model, method.likelihood)
        for value in set(method.vars):
            if value in owner:
                raise PrivacyError(
                    f"{str(value.name)!r} is given to {_name(owner[value])} and to "
                    f"{_name(method)}: leave it to one of them."
                )
            owner[value] = method
        steps.append(method)
    if others := [str(value.name) for value in model.value_vars if value not in owner]:
        raise PrivacyError(
            f"{', '.join(map(repr, others))} would be moved by a step that reads the data without "
            "noise. Leave vars out of the curator's step, or give each variable one."
        )
    if budgets := [step.allowance.budget for step in steps if step.allowance.budget]:
        spent_together(budgets)  # refuses those that have no common guarantee
    return steps


def check_starts(initvals: Any, model: pm.Model) -> None:
    """Refuse starting values that are computed from data."""
    given = initvals if isinstance(initvals, Sequence) else [initvals]
    for starts in (model.rvs_to_initial_values, *(one for one in given if one)):
        refuse_confidential_starts(model, starts)


def _name(method: Any) -> str:
    values = getattr(method, "vars", None) or []
    names = ", ".join(repr(str(value.name)) for value in values)
    return type(method).__name__ + (f" of {names}" if names else "")


@contextmanager
def checked_together(steps: Sequence[CuratorStep]) -> Iterator[None]:
    """Let steps that move a part of the variables run, since all others were checked."""
    for step in steps:
        step.others_checked = True
    try:
        yield
    finally:
        for step in steps:
            step.others_checked = False
