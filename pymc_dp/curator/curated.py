"""Which models' records are confidential: those that a curator's step was made for, and copies."""

import weakref
from typing import Any

import numpy as np
import pymc as pm

from pymc_dp.accounting.budget import PrivacyBudget
from pymc_dp.curator.common_rows import shared_records
from pymc_dp.curator.confidential import array_leaves, leaf_value
from pymc_dp.curator.likelihood import RecordLikelihood, records_of
from pymc_dp.curator.model import sharded_models
from pymc_dp.graph.inner_graphs import inner_constants

curated_models: weakref.WeakKeyDictionary[pm.Model, dict[str, PrivacyBudget]]
curated_models = weakref.WeakKeyDictionary()
"""Models whose data is confidential because a curator's step was made for them, and the budgets of
these steps by ledger."""

confidential_arrays: weakref.WeakKeyDictionary[pm.Model, tuple[list[Any], list[int]]]
confidential_arrays = weakref.WeakKeyDictionary()
"""Arrays that hold the records of these models, and which of their axes these are."""

read_freely: weakref.WeakSet[pm.Model] = weakref.WeakSet()
"""Models whose records were taken for synthetic ones, and read without noise."""


def mark_confidential(
    model: pm.Model, likelihood: RecordLikelihood, budget: PrivacyBudget | None
) -> None:
    """Remember that a model's records are confidential, and a budget that was spent on them."""
    budgets = curated_models.setdefault(model, {})
    if budget is not None:
        budgets[budget.ledger] = budget
    confidential_arrays[model] = list(likelihood.data), list(likelihood.axes)


def uses_records(model: pm.Model) -> bool:
    """Whether some array of a model, observed or in its graphs, has records of a curated one.

    A copy of that model, or one with its covariates, reads them without a curator's step.
    """
    if model in curated_models:
        return True
    graphs = [*model.basic_RVs, *model.deterministics, *model.potentials]
    graphs += model.rvs_to_values.values()
    leaves = [*array_leaves(graphs), *inner_constants(graphs)]
    arrays = [np.asarray(leaf_value(leaf)) for leaf in leaves]
    own = [(a, axis) for a in arrays for axis in range(a.ndim) if a.shape[axis] > 1]
    own = [(a, axis) for a, axis in own if a.dtype.kind in "biuf"]
    return any(
        shared_records([a for a, _ in own], [axis for _, axis in own], *known)
        for known in list(confidential_arrays.values())
    )


def is_curated(model: pm.Model) -> bool:
    """Whether a curator's step was made for a model, or for another one with the same records."""
    if model in curated_models:
        return True
    if not curated_models or not model.observed_RVs:
        return False
    own = _records_or_none(model)
    return own is not None and any(
        shared_records(*own, *known)
        for other in list(curated_models)
        if other not in sharded_models and (known := _known_records(other)) is not None
    )


def _known_records(model: pm.Model) -> tuple[list[Any], list[int]] | None:
    """Tell a curated model's records: as they are, or as they were when its step was made."""
    return _records_or_none(model) or confidential_arrays.get(model)


def _records_or_none(model: pm.Model) -> tuple[list[Any], list[int]] | None:
    try:
        return records_of(model)
    except (ValueError, NotImplementedError):  # no rows that could be records
        return None
