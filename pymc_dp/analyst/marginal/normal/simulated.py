"""Rows that stand for records of many dimensions: quasi-random, with moments that are right.

A grid over ten covariates is too large. Here one set of standard normal points, Sobol's scrambled,
is made symmetric and given its exact covariance, so that linear, quadratic and odd functions of
normal records have no error at all and others little; the same points serve at every parameter, so
that what error there is does not jump. Finite variables are still summed over, given the others.
The error is stated as everywhere: a second set of points, of another scrambling, is compared with
the first at the posterior.

Normal variables move with their parameters. Others stay at quantiles that follow the parameters,
and their densities carry the gradient.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import scipy
from numpy.typing import NDArray
from pymc.vartypes import continuous_types
from pytensor.tensor.random.basic import MvNormalRV, NormalRV
from scipy import special

from pymc_dp.analyst.factors import per_record_factor
from pymc_dp.analyst.marginal.held import held
from pymc_dp.analyst.marginal.normal.nodes import Table
from pymc_dp.analyst.marginal.normal.places import NoNodesError, parameters_on
from pymc_dp.analyst.records import RecordBlock, batch_ndim
from pymc_dp.graph.rows import on_rows
from pymc_dp.graph.support import small_support
from pymc_dp.types import Matrix, Variable

__all__ = ["simulated_table", "standard_points"]


def standard_points(number: int, dimensions: int, seed: int) -> Matrix:
    """Draw standard normal points: symmetric, with exactly the unit covariance.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_dp.analyst.marginal.normal.simulated import standard_points
    >>> z = standard_points(64, 3, seed=1)
    >>> bool(np.allclose(z.mean(axis=0), 0)), bool(np.allclose(z.T @ z / 64, np.eye(3)))
    (True, True)
    """
    sobol = scipy.stats.qmc.Sobol(dimensions, scramble=True, rng=np.random.default_rng(seed))
    half = special.ndtri(sobol.random(number // 2))
    points = np.concatenate([half, -half])
    factor = np.linalg.cholesky(points.T @ points / number)
    return np.linalg.solve(factor, points.T).T


def simulated_table(
    model: pm.Model, block: RecordBlock, index: NDArray[np.int64], number: int, seed: int
) -> Table:
    """Lay out so many points for every kind of record, times all values of finite variables."""
    parameters = [rv for rv in model.basic_RVs if rv not in block.records]
    kinds = len(index)
    moved = [rv for rv in block.records if small_support(rv) is None]
    sizes = [int(np.prod(rv.type.shape[1:])) for rv in moved]
    starts = dict(zip(moved, np.cumsum([0, *sizes[:-1]]), strict=True))
    z = np.tile(standard_points(number, max(sum(sizes), 1), seed), (kinds, 1))
    index = np.repeat(index, number)
    values: dict[Any, Any] = {}
    log_weights: Any = pt.zeros(len(index))
    for rv in block.records:
        support = small_support(rv)
        if support is not None:
            many = len(support)
            values = {var: pt.repeat(value, many, axis=0) for var, value in values.items()}
            rows = len(index)
            index, z = np.repeat(index, many), np.repeat(z, many, axis=0)
            log_weights = pt.repeat(log_weights, many)
            values[rv] = pt.constant(np.tile(np.array(support), rows).astype(rv.dtype))
            log_weights = log_weights + _log_density(model, block, rv, values, index, parameters)
            continue
        own = z[:, starts[rv] : starts[rv] + int(np.prod(rv.type.shape[1:]))]
        if isinstance(rv.owner.op, NormalRV | MvNormalRV):
            values[rv] = _moved(rv, own, values, index, parameters)
        else:
            values[rv] = _quantiles(rv, own, values, index, parameters)
            logp = _log_density(model, block, rv, values, index, parameters)
            log_weights = log_weights + logp - held(logp)
    weights = pt.exp(log_weights).reshape((kinds, -1))
    weights = weights / weights.sum(axis=1, keepdims=True)
    return Table(index, values, weights.ravel(), kinds, f"over {number} quasi-random points")


def _log_density(
    model: pm.Model, block: RecordBlock, rv: Any, values: Any, index: Any, parameters: Any
) -> Variable:
    logp = pm.logp(rv, rv, warn_rvs=False)
    density = per_record_factor(str(rv.name), logp, block.records, parameters)
    return on_rows([(density, 0)], values, index, parameters)[0]


def _moved(rv: Any, z: Matrix, values: Any, index: Any, parameters: Any) -> Variable:
    """Put normal variables where standard normal points take them."""
    first, second = parameters_on(rv, values, index, parameters)
    if isinstance(rv.owner.op, NormalRV):
        points = z.reshape(len(index), *rv.type.shape[1:])
        return first + second * points
    if batch_ndim(rv) != 1:
        raise NoNodesError(f"{rv.name!r} has several vectors a record.")
    factor = pt.linalg.cholesky(second)
    return first + (factor * pt.constant(z)[:, None, :]).sum(axis=-1)


def _quantiles(rv: Any, z: Matrix, values: Any, index: Any, parameters: Any) -> Variable:
    """Put other variables at quantiles, which follow the parameters without a gradient."""
    if rv.dtype not in continuous_types or rv.type.ndim != 1:
        raise NoNodesError(f"{rv.name!r} is neither normal, nor finite, nor one continuous number.")
    u = pt.vector("u", shape=(rv.type.shape[0],))
    try:
        quantile = pm.icdf(rv, u, warn_rvs=False)
    except NotImplementedError:
        raise NoNodesError(f"{rv.name!r} has a distribution without known quantiles.") from None
    given = {**values, u: pt.constant(special.ndtr(z[:, 0]))}
    [found] = on_rows([(quantile, 0)], given, index, parameters)
    return held(found)
