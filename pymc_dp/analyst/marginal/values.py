"""The values that a record may have, and how a statistic clamps them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.discrete import DiscreteUniformRV
from pymc.distributions.distribution import support_point
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import graph_inputs
from pytensor.scalar import basic as ps
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.random.basic import BetaBinomialRV, BinomialRV
from pytensor.tensor.variable import TensorVariable

from pymc_dp.analyst.records import length_of
from pymc_dp.graph.intervals import ONCE
from pymc_dp.graph.support import small_support

__all__ = ["clamp_of", "combinations", "finite_values", "prior_draws", "starting_values"]


def finite_values(rv: Any) -> range | None:
    """All values that some record of a discrete variable may have, or None where there is no end.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_dp.analyst.marginal.values import finite_values
    >>> finite_values(pm.Binomial.dist(n=[3, 5, 4], p=0.5)), finite_values(pm.Poisson.dist(2))
    (range(0, 6), None)
    """
    op, few = rv.owner.op, small_support(rv)
    if few is not None:
        return few
    if isinstance(op, BinomialRV | BetaBinomialRV):
        most = _number(op.dist_params(rv.owner)[0], np.max)
        return None if most is None else range(most + 1)
    if isinstance(op, DiscreteUniformRV):
        lower, upper = op.dist_params(rv.owner)
        low, high = _number(lower, np.min), _number(upper, np.max)
        return None if low is None or high is None else range(low, high + 1)
    return None


def combinations(records: Sequence[TensorVariable]) -> list[tuple[Any, ...]]:
    """Every combination of values of record variables with few of them, as whole tables."""
    tables = []
    for rv in records:
        n, *rest = (length_of(rv), *(int(side or 0) for side in rv.type.shape[1:]))
        cells = itertools.product(finite_values(rv) or (), repeat=int(np.prod(rest, dtype=int)))
        rows = (np.reshape(cell, rest).astype(rv.dtype) for cell in cells)
        tables.append([pt.constant(np.broadcast_to(row, (n, *rest)).copy()) for row in rows])
    return list(itertools.product(*tables))


def _number(param: Any, extreme: Any) -> int | None:
    """Largest or smallest entry of a parameter that is known."""
    if not all(isinstance(var, Constant) for var in graph_inputs([param])):
        return None
    return int(extreme(param.eval(mode=ONCE)))


def clamp_of(statistic: Any, record: Any) -> tuple[Any, Any] | None:
    """Bounds between which a statistic clamps a record, (None, None) where it is the record."""
    if statistic is record:
        return None, None
    node = statistic.owner
    scalar = node.op.scalar_op if node is not None and isinstance(node.op, Elemwise) else None
    if isinstance(scalar, ps.Cast):
        return clamp_of(node.inputs[0], record)
    if isinstance(scalar, ps.Clip) and node.inputs[0] is record:
        low, high = map(_known_bound, node.inputs[1:])
        return None if low is None or high is None else (low, high)
    return None


def _known_bound(var: Any) -> Any:
    """Constant behind added axes of length one, as a variable that broadcasts; else None."""
    inner = var
    while inner.owner is not None and isinstance(inner.owner.op, DimShuffle):
        inner = inner.owner.inputs[0]
    return var.astype("float64") if isinstance(inner, Constant) else None


def prior_draws(params: Sequence[Any], number: int) -> list[tuple[Any, ...]]:
    """Draws of some parameters, or their starting values where the prior cannot be drawn from."""
    if not params:
        return [()]
    try:
        drawn = pm.draw(list(params), number, random_seed=1, mode=ONCE)
    except NotImplementedError:  # a flat prior
        return [starting_values(params)]
    return list(zip(*drawn, strict=True))


def starting_values(params: Sequence[Any]) -> tuple[Any, ...]:
    """Give values from which PyMC would start some parameters."""
    return tuple(support_point(rv).eval(mode=ONCE) for rv in params)
