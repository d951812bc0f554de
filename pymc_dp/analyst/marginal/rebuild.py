"""A copy of a model in which some variables are gone and others stand in place of releases."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pymc as pm
import pytensor.tensor as pt
from pymc.model.fgraph import fgraph_from_model, model_from_fgraph
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors

from pymc_dp.analyst.marginal.strategy import Replacement
from pymc_dp.compat import ModelDeterministic, ModelFreeRV, default_transform_rules

__all__ = ["rebuilt", "without_initial_values"]

_log = logging.getLogger("pymc_dp")


def rebuilt(model: pm.Model, replacements: Sequence[Replacement]) -> pm.Model:
    """Return a new model with the replacements made; the old one is left alone.

    Names, coordinates, dimensions, transforms, initial values and observed values are kept, those
    held by ``pm.Data`` as data. Deterministics of removed variables go with them, which the log
    tells.
    """
    with without_initial_values(model) as initial_values:
        graph, memo = fgraph_from_model(model)
    known = [*model.basic_RVs, *model.data_vars, *model.dim_lengths.values()]
    moved = {var: memo[var] for var in known if var in memo}
    for replacement in replacements:
        for name, rv in replacement.latents.items():
            moved[rv] = _free(name, _moved(rv, moved))
            graph.add_output(moved[rv], import_missing=True)
        fresh: dict[Any, Any] = {}
        for old, new in replacement.releases.items():
            if new not in fresh:  # outputs of one operation stay outputs of one
                kin = [var for var in replacement.releases.values() if var.owner is new.owner]
                fresh.update(zip(kin, graph_replace(kin, moved, strict=False), strict=True))
            place, now = memo[old], fresh[new]
            _, value = place.owner.inputs
            if now.dtype == value.dtype:
                moved[new] = place.owner.op(now, value)
                graph.replace(place, moved[new], import_missing=True)
            else:  # a discrete variable that is continuous now; others go on seeing integers
                moved[new] = _free(str(old.name), now)
                graph.remove_output(graph.outputs.index(place))
                graph.add_output(moved[new], import_missing=True)
                whole = pt.round(moved[new]).astype(place.dtype)
                if place in graph.variables:
                    graph.replace(place, whole, import_missing=True)
    _remove(graph, {memo[var] for replacement in replacements for var in replacement.removed})
    result = model_from_fgraph(graph, mutate_fgraph=True)
    for rv, value in initial_values.items():
        if value is not None and rv.name in result.named_vars:
            result.set_initval(result[rv.name], value)
    return result


@contextmanager
def without_initial_values(model: pm.Model) -> Iterator[dict[Any, Any]]:
    """Set values aside that PyMC cannot copy; they are put back."""
    held = dict(model.rvs_to_initial_values)
    model.rvs_to_initial_values.update(dict.fromkeys(held))
    try:
        yield held
    finally:
        model.rvs_to_initial_values.update(held)


def _moved(variable: Any, moved: dict[Any, Any]) -> Any:
    return graph_replace([variable], moved, strict=False)[0]


def _free(name: str, rv: Any) -> Any:
    """Wrap a new latent variable for the copy, with the transform that PyMC would give it."""
    transform = default_transform_rules(rv.owner.op, rv)
    value = rv.type(name=name)
    if transform is not None:
        value = transform.forward(rv, *rv.owner.inputs).type()
        value.name = f"{name}_{transform.name}__"
    return ModelFreeRV(name=name, transform=transform)(rv, value)


def _remove(graph: FunctionGraph, gone: set[Any]) -> None:
    """Drop variables, and deterministics that are computed of them."""
    for output in list(graph.outputs):
        if output in gone or gone.isdisjoint(ancestors([output])):
            continue
        assert isinstance(output.owner.op, ModelDeterministic), output.owner.op
        _log.warning(
            "%r is computed of records that were integrated out, and is left out.", output.name
        )
        gone.add(output)
    for output in gone:
        graph.remove_output(graph.outputs.index(output))
