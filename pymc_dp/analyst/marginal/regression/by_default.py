"""Holders' statistics in ``pmdp.sample``: z and the rows' law are integrated out by default."""

from __future__ import annotations

from typing import Any

import numpy as np
import pymc as pm
import pytensor
import xarray as xr

from pymc_dp.analyst.marginal.regression.gram import MarginalGramRV, rows_law_given
from pymc_dp.analyst.marginal.regression.statistics import regression_variables
from pymc_dp.analyst.records import record_variables
from pymc_dp.analyst.regression.gibbs_ss.latent_statistics import latent_statistics
from pymc_dp.analyst.regression.normal_x.wishart import GramRV
from pymc_dp.graph.additivity import direct_inputs
from pymc_dp.graph.intervals import ONCE

__all__ = ["add_rows_law", "holders_to_integrate"]


def holders_to_integrate(model: pm.Model, **kwargs: Any) -> list[Any]:
    """Statistics of holders that ``pmdp.sample`` integrates out by itself; none elsewhere.

    It does where a number of rows is latent, which :class:`~pymc_dp.NormalX` does not take, and
    where nothing was asked for that is gone then: a step, starting values, or the statistics and
    what is computed of them. Elsewhere that step gives a first result much sooner than nutpie,
    which compiles anew for every model.
    """
    grams = [rv for rv in model.free_RVs if isinstance(rv.owner.op, GramRV)]
    if len(grams) != 1 or latent_statistics(model) or record_variables(model):
        return []
    [S] = grams
    if not direct_inputs([S.owner.inputs[1]], model.basic_RVs):
        return []
    if any(kwargs.get(name) is not None for name in ("step", "initvals", "trace")):
        return []
    if kwargs.get("return_inferencedata") is False:
        return []
    gone = regression_variables(model)
    asked = kwargs.get("var_names")
    stored = [var for var in model.deterministics if asked is None or var.name in asked]
    named = [rv for rv in gone if asked is not None and rv.name in asked]
    return [] if named or direct_inputs(stored, gone) else gone


def add_rows_law(result: Any, model: pm.Model, seed: Any) -> None:
    """Draw the law of holders' rows, which was integrated out, for every draw of a posterior."""
    posterior = result["posterior"]
    for S in (rv for rv in model.free_RVs if isinstance(rv.owner.op, MarginalGramRV)):
        if str(S.name) not in posterior:
            continue
        data = posterior.to_dataset()
        shape = data.sizes["chain"], data.sizes["draw"]
        grams = data[str(S.name)].values.sum(axis=2)
        flat = grams.reshape(-1, *grams.shape[2:])
        totals = _totals(S, model, data, shape)
        drawn = rows_law_given(S.owner.op, flat, totals, np.random.default_rng(seed))
        for (name, dims), values in zip(S.owner.op.rows, drawn, strict=True):
            axes = dims or tuple(f"{name}_dim_{i}" for i in range(values.ndim - 1))
            whole = values.reshape(*shape, *values.shape[1:])
            data[name] = xr.DataArray(whole, dims=("chain", "draw", *axes))
        posterior.dataset = data


def _totals(S: Any, model: pm.Model, data: xr.Dataset, shape: tuple[int, int]) -> Any:
    """Rows of all holders at every draw."""
    total = S.owner.inputs[1].sum()
    inputs: list[Any] = direct_inputs([total], model.free_RVs)
    evaluate = pytensor.function(inputs, total, mode=ONCE)
    if not inputs:
        return np.full(shape[0] * shape[1], evaluate())
    columns = [data[str(rv.name)].values.reshape(-1) for rv in inputs]
    rows = zip(*columns, strict=True)
    return np.array([evaluate(*map(np.asarray, row)) for row in rows])
