"""Possible values of random variables."""

from __future__ import annotations

from typing import Any

import pymc as pm
from pytensor.tensor.random.basic import BernoulliRV, CategoricalRV
from pytensor.tensor.variable import TensorVariable

from pymc_dp.compat import default_transform_rules

__all__ = ["has_whole_support", "small_support"]


def small_support(rv: TensorVariable) -> range | None:
    """Values of a discrete variable that has few, all known."""
    if isinstance(rv.owner.op, BernoulliRV):
        return range(2)
    if isinstance(rv.owner.op, CategoricalRV):
        k = rv.owner.op.dist_params(rv.owner)[0].type.shape[-1]
        return None if k is None else range(k)
    return None


def has_whole_support(model: pm.Model, rv: Any) -> bool:
    """Whether a variable may have every value of its distribution.

    A transform that its user gave it (``transform=``) may leave a part of them out.
    """
    transform = model.rvs_to_transforms.get(rv)
    return transform is None or type(transform) is type(default_transform_rules(rv.owner.op, rv))
