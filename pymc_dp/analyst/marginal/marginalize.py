"""Integrate the records out of a model: which ones, and by which strategy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pymc as pm
from pytensor.tensor.variable import TensorVariable

from pymc_dp.analyst.marginal.counts.tables import Counts
from pymc_dp.analyst.marginal.exact.each_record import Exact
from pymc_dp.analyst.marginal.normal.expanded import Expanded
from pymc_dp.analyst.marginal.normal.sums import Normal
from pymc_dp.analyst.marginal.rebuild import rebuilt
from pymc_dp.analyst.marginal.regression.statistics import (
    integrated_statistics,
    regression_variables,
)
from pymc_dp.analyst.marginal.strategy import Replacement, Strategy
from pymc_dp.analyst.records import (
    RecordBlock,
    form_of_statistic,
    is_record,
    length_of,
    record_blocks,
)
from pymc_dp.analyst.release import releases
from pymc_dp.graph.additivity import direct_inputs
from pymc_dp.graph.rewrites import without_origins

__all__ = ["STRATEGIES", "marginalize"]

#: ways to integrate records out, the exact and cheap ones first
STRATEGIES: list[Strategy] = [Exact(), Counts(), Normal(), Expanded()]


def marginalize(
    model: pm.Model, vars: Sequence[Any] | None = None, *, method: str | None = None
) -> pm.Model:
    """Return a model from which the confidential records are integrated out.

    Its cost does not grow with their number, and it is an ordinary PyMC model: NUTS, nutpie, SMC,
    ``pm.compute_log_likelihood`` and predictive draws take it. Parameters keep their names; the
    model that is passed is left alone.

    Parameters
    ----------
    model : Model
        A model with latent records and releases of them (:func:`~pymc_dp.Privatized`).
    vars : sequence of variables or str, optional
        Record variables to integrate out; by default all that a release reaches. Variables of the
        same records go together.
    method : str, optional
        How; by default the first of these that applies, see :func:`~pymc_dp.explain` for which it
        was.

        ``"exact"``: noise is on every record, and each record is summed or integrated out by
        itself; nothing is approximated but by a quadrature whose error is told.

        ``"counts"``: records with finitely many states become the table of their counts, of which
        releases of sums are linear maps; nothing is approximated, and
        :class:`~pymc_dp.CountGibbs` samples the table.

        ``"normal"``: the sums that were released are taken to be normal, with the mean and
        covariance that the model gives them; right to O(1/sqrt(n)).

        ``"expanded"``: the same for Gaussian noise on sums over records of many dimensions, with
        moments from simulated records, expanded to second order about the posterior's mode.

    Returns
    -------
    Model
        A new one.

    Raises
    ------
    ValueError
        Where there is nothing to integrate out, where other terms of the model depend on the
        records, or where a method does not apply; it says why.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dp as pmdp
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 0, 10)
    ...     x = pm.Normal("x", mu, 1, shape=1_000_000_000)
    ...     released = pmdp.Privatized("released", x.sum(), pmdp.Gaussian(sigma=100), observed=3e6)
    >>> small = pmdp.marginalize(model)
    >>> [rv.name for rv in small.free_RVs]
    ['mu']
    """
    if method is not None and method not in [strategy.name for strategy in STRATEGIES]:
        names = ", ".join(repr(strategy.name) for strategy in STRATEGIES)
        raise ValueError(f"method={method!r} is not a way to integrate records out: write {names}.")
    asked = _asked(model, vars)
    with without_origins():
        found = integrated_statistics(model, asked, method)
        for block in record_blocks(model, _records(model, asked, bool(found))):
            _check_block(model, block)
            found.append(_integrated(model, block, method))
        return rebuilt(model, found)


def _asked(model: pm.Model, vars: Sequence[Any] | None) -> list[TensorVariable] | None:
    """Latent variables that were named, None where none were."""
    if vars is None:
        return None
    given = [vars] if isinstance(vars, str) or not isinstance(vars, Sequence) else vars
    asked = [model[var] if isinstance(var, str) else var for var in given]
    for rv in asked:
        if rv not in model.free_RVs:
            raise ValueError(
                f"{rv} is not a latent variable of the model: pass record variables, vars=[x]."
            )
    return asked


def _records(
    model: pm.Model, asked: Sequence[TensorVariable] | None, others: bool
) -> list[TensorVariable]:
    """Record variables to integrate out: those asked for, or all that a release reaches.

    `others` tells whether statistics of a regression are integrated out, so that there need be no
    records.
    """
    if asked is not None:
        statistics = regression_variables(model)
        return [rv for rv in asked if rv not in statistics]
    found = [rv for rv in model.free_RVs if is_record(model, rv) or _has_population(model, rv)]
    if not found and not others:
        raise ValueError(
            "There is nothing to integrate out: no release reaches latent records. Declare one "
            'with pmdp.Privatized("released", x.sum(), mechanism, observed=...), x a latent '
            "variable with one record a row."
        )
    return found


def _has_population(model: pm.Model, rv: TensorVariable) -> bool:
    """Whether a release has noise on each entry of a variable whose own parameters are latent."""
    if not direct_inputs(rv.owner.inputs, model.free_RVs):
        return False
    return any(rv in form_of_statistic(release.statistic, model)[0] for release in releases(model))


def _check_block(model: pm.Model, block: RecordBlock) -> None:
    """Refuse records that are none, or that anything but releases depends on."""
    if length_of(block.records[0]) == 0:
        raise ValueError(f"{block.names} has no records (n = 0): there is nothing to integrate.")
    released = {release.name for release in releases(model)}
    others = [name for name in block.factors if name not in released]
    if others:
        names = ", ".join(map(repr, others))
        raise ValueError(
            f"{names} depends on the records {block.names}, which can only be integrated out where "
            "nothing but releases does. Sample them with pmdp.sample(), which picks RecordGibbs."
        )


def _integrated(model: pm.Model, block: RecordBlock, method: str | None) -> Replacement:
    """Integrate one block by the strategy that was asked for, or the first that applies."""
    reasons = []
    for strategy in STRATEGIES:
        if method not in (None, strategy.name):
            continue
        reason = strategy.refusal(model, block)
        if reason is not None:
            reasons.append(f"{strategy.name!r}: {reason}")
        elif method is not None or strategy.preferred(model, block):
            return strategy.integrate(model, block)
    raise ValueError(
        f"{block.names} cannot be integrated out. " + " ".join(reasons) + " pmdp.sample() samples "
        "the records (RecordGibbs); vars= integrates others out."
    )
