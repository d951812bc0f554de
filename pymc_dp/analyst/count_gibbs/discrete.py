"""Discrete latent parameters of counts: what cannot move, and what may not."""

from __future__ import annotations

import logging
from typing import Any

import pymc as pm
from pymc.distributions.multivariate import DirichletMultinomialRV
from pymc.vartypes import discrete_types
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import MultinomialRV

from pymc_dp.analyst.count_gibbs.cells import CountTable
from pymc_dp.analyst.release import by_name, releases
from pymc_dp.graph.additivity import direct_inputs

__all__ = ["check_numbers", "tell_of_switches"]

_log = logging.getLogger(__name__)


def check_numbers(model: pm.Model) -> None:
    """Refuse multinomial counts of a number that is random: neither could move.

    Every change of the number, the counts held, makes these impossible, and every change of the
    counts too: PyMC's own steps would stay where they start and say nothing of it.
    """
    for rv in model.free_RVs:
        if type(rv.owner.op) not in (MultinomialRV, DirichletMultinomialRV):
            continue
        numbers = by_name(direct_inputs([rv.owner.inputs[-2]], model.basic_RVs))
        if numbers and _is_released(rv, model):
            number = ", ".join(repr(other.name) for other in numbers)
            raise ValueError(
                f"The counts {rv.name!r} are of {number}, which is random: counts and their sum "
                "cannot move one without the other. Where the sum is Poisson write independent "
                f'counts, which is the same: pm.Poisson("{rv.name}", rate * p), their sum as a '
                "Deterministic. A number of records that is not known is pmdp.unknown_size; a "
                "known one is written as a number."
            )


def _is_released(rv: Any, model: pm.Model) -> bool:
    return any(
        rv in direct_inputs([release.statistic], model.basic_RVs)
        for release in releases(model)
        if release.rv in model.observed_RVs
    )


def tell_of_switches(model: pm.Model, table: CountTable) -> None:
    """Tell of discrete latent parameters, which move given the cells and cells given them."""
    above = set(ancestors(table.cells)) - set(table.cells)
    found = by_name(rv for rv in model.free_RVs if rv in above and str(rv.dtype) in discrete_types)
    if found:
        _log.warning(
            "The counts %s depend on the discrete %s. Each moves while the other is held, so that "
            "%s may stay where a chain starts: compare chains from different values. Better, sum "
            "it out: fit a model for each of its values and weigh them, or write pm.Mixture for "
            "what depends on it.",
            table.names,
            ", ".join(repr(rv.name) for rv in found),
            " and ".join(repr(rv.name) for rv in found),
        )
