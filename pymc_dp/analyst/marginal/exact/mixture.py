"""Log-density of each record's releases: a sum over the values that the record may have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.vartypes import continuous_types
from pytensor.graph.replace import graph_replace, vectorize_graph
from pytensor.tensor.random.basic import BernoulliRV, CategoricalRV
from pytensor.tensor.variable import TensorVariable

from pymc_dp.analyst.factors import per_record_factor
from pymc_dp.analyst.marginal.exact.closed_forms import closed_form, has_closed_form
from pymc_dp.analyst.marginal.exact.logs import log_sum
from pymc_dp.analyst.marginal.exact.quadrature import Rule, corners_of, nodes
from pymc_dp.analyst.marginal.exact.shared_grid import SharedGrid, grid_log_density
from pymc_dp.analyst.marginal.exact.shares import weighted_shares
from pymc_dp.analyst.marginal.exact.windows import Window, window
from pymc_dp.analyst.marginal.values import combinations, finite_values
from pymc_dp.analyst.records import length_of
from pymc_dp.analyst.release import Release

__all__ = ["record_log_density"]


def record_log_density(
    records: Sequence[Any],
    releases: Sequence[Release],
    released: Sequence[Any],
    given: Sequence[Any],
    rule: Rule,
    grid: SharedGrid | None = None,
) -> TensorVariable:
    r"""Log-density of all releases of each record, the record integrated out.

    .. math:: \log \sum_x p(x_i = x \mid \theta) \prod_r \eta_r(\text{released}_{ri} \mid t_r(x))

    for the noise densities :math:`\eta_r` of the mechanisms. All record variables but the last take
    every combination of their values; the last is a sum or a quadrature, all values at once.

    Parameters
    ----------
    records : sequence of TensorVariable
        Record variables, parents first.
    releases : sequence of Release
        Releases that keep the records apart.
    released : sequence of TensorVariable
        Their values.
    given : sequence of Variable
        What records and releases depend on otherwise.
    rule : Rule
        Nodes and weights of a piece, where the last record variable is continuous.
    grid : SharedGrid, optional
        To be used instead where the releases are known numbers.

    Returns
    -------
    TensorVariable of shape (n,)
    """
    if has_closed_form(records, releases):
        return closed_form(records[0], releases[0], released[0])
    noise = [
        per_record_factor(
            release.name, release.mechanism.logp(value, release.statistic), records, given
        )
        for release, value in zip(releases, released, strict=True)
    ]
    simple = weighted_shares(records, noise)
    if simple is not None:
        return simple
    if grid is not None:
        corners = corners_of(records[0], releases, released)
        on_grid = grid_log_density(records[0], sum(noise), corners, grid)
        if on_grid is not None:
            return on_grid
    last: Any = records[-1] if records[-1].type.ndim == 1 else None
    outer = [rv for rv in records if rv is not last]
    laws = [log_law(rv, records, given) for rv in outer]
    total: Any = sum([*laws, *noise])
    if last is None:
        terms = total[None, :]
    else:
        law = log_law(last, records, given)
        terms = _terms_of(last, total, law, releases, released, rule)
    columns = [
        graph_replace([terms], _known(outer, tables), strict=False)[0]
        for tables in combinations(outer)
    ]
    return log_sum(pt.concatenate(columns, axis=0))


def _known(records: Sequence[Any], tables: Sequence[Any]) -> dict[Any, Any]:
    return dict(zip(records, tables, strict=True))


def log_law(rv: TensorVariable, records: Sequence[Any], given: Sequence[Any]) -> TensorVariable:
    """Log-density of each record of one variable given the others, at the variable itself."""
    others = [var for var in (*records, *given) if var is not rv]
    return per_record_factor(str(rv.name), pm.logp(rv, rv, warn_rvs=False), [rv], others)


def _terms_of(
    rv: Any,
    total: Any,
    law: Any,
    releases: Sequence[Release],
    released: Sequence[Any],
    rule: Rule,
) -> TensorVariable:
    """Log of what every value of a record adds to the sum, of shape (number of values, n).

    `law` is the record's own log-density, `total` all else that depends on it.
    """
    values, masses = finite_values(rv), _log_masses(rv)
    if values is not None and masses is not None:
        tables = [pt.constant(np.full(length_of(rv), value, rv.dtype)) for value in values]
        columns = [graph_replace([total], {rv: table}, strict=False)[0] for table in tables]
        return pt.stack(columns, axis=0) + masses
    if values is not None:
        listed = np.broadcast_to(np.asarray(values)[:, None], (len(values), length_of(rv)))
        return vectorize_graph(total + law, {rv: pt.constant(listed, dtype=rv.dtype)})
    if rv.dtype in continuous_types:
        places, log_weights = nodes(rv, releases, released, rule)
        at_nodes: Any = vectorize_graph(total + law, {rv: places})
        return at_nodes + log_weights
    found = window(rv, releases, released)
    assert isinstance(found, Window)
    laws: Any = vectorize_graph(law, {rv: found.values})
    if found.lumped:
        rest = pt.log1mexp(pt.minimum(log_sum(laws[:-1]), -1e-300))
        laws = pt.concatenate([laws[:-1], rest[None, :]], axis=0)
    rest_of_terms: Any = vectorize_graph(total, {rv: found.values})
    return rest_of_terms + laws + found.log_weights


def _log_masses(rv: TensorVariable) -> TensorVariable | None:
    """Log-probabilities of a category or a yes or no, of shape (number of values, n or 1).

    In one piece, so that PyTensor finds the log of a softmax or of a sigmoid.
    """
    if rv.type.ndim != 1 or not isinstance(rv.owner.op, BernoulliRV | CategoricalRV):
        return None
    p: Any = rv.owner.op.dist_params(rv.owner)[0]
    if isinstance(rv.owner.op, CategoricalRV):
        return pt.log(pt.atleast_2d(p)).T
    p = pt.atleast_1d(p)
    return pt.stack([pt.log1p(-p), pt.log(p)], axis=0)
