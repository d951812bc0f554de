"""Possible values of random variables that have few."""

from __future__ import annotations

from pytensor.tensor.random.basic import BernoulliRV, CategoricalRV
from pytensor.tensor.variable import TensorVariable

__all__ = ["small_support"]


def small_support(rv: TensorVariable) -> range | None:
    """Values of a discrete variable that has few, all known."""
    if isinstance(rv.owner.op, BernoulliRV):
        return range(2)
    if isinstance(rv.owner.op, CategoricalRV):
        k = rv.owner.op.dist_params(rv.owner)[0].type.shape[-1]
        return None if k is None else range(k)
    return None
