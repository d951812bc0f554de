"""Move records along with their parameters while their residuals stay fixed.

A record x with parameters p is a function of p and of a residual whose law does not depend on p:
x = loc + scale * residual for a location-scale family. Given old and new parameters, the rules here
say where x goes when its residual is kept. One rule a distribution, registered by its operation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.tensor.random import basic as rvs

__all__ = ["Rule", "rule_for"]

#: ``rule(x, old parameters, new parameters)`` gives the moved x
Rule = Callable[[Any, Sequence[Any], Sequence[Any]], Any]


def _location_scale(loc: int, scale: int) -> Rule:
    def moved(x: Any, old: Sequence[Any], new: Sequence[Any]) -> Any:
        return new[loc] + new[scale] * ((x - old[loc]) / old[scale])

    return moved


def _scale(position: int) -> Rule:
    return lambda x, old, new: x * (new[position] / old[position])


def _uniform(x: Any, old: Sequence[Any], new: Sequence[Any]) -> Any:
    return new[0] + (new[1] - new[0]) * ((x - old[0]) / (old[1] - old[0]))


def _log_normal(x: Any, old: Sequence[Any], new: Sequence[Any]) -> Any:
    return pt.exp(_location_scale(0, 1)(pt.log(x), old, new))


def _mv_normal(x: Any, old: Sequence[Any], new: Sequence[Any]) -> Any:
    """Keep the residual of the Cholesky factor, L^-1 (x - mean)."""
    old_factor, new_factor = pt.linalg.cholesky(old[1]), pt.linalg.cholesky(new[1])
    residual = pt.linalg.solve_triangular(old_factor, (x - old[0])[..., None], lower=True, b_ndim=2)
    return new[0] + (new_factor @ residual)[..., 0]


#: for every operation its rule and the parameters that must stay as they are
_RULES: dict[type, tuple[Rule, tuple[int, ...]]] = {
    rvs.CauchyRV: (_location_scale(0, 1), ()),
    rvs.ExponentialRV: (_scale(0), ()),
    rvs.GammaRV: (_scale(1), (0,)),
    rvs.GumbelRV: (_location_scale(0, 1), ()),
    rvs.HalfNormalRV: (_location_scale(0, 1), ()),
    rvs.LaplaceRV: (_location_scale(0, 1), ()),
    rvs.LogisticRV: (_location_scale(0, 1), ()),
    rvs.LogNormalRV: (_log_normal, ()),
    rvs.MvNormalRV: (_mv_normal, ()),
    rvs.NormalRV: (_location_scale(0, 1), ()),
    rvs.StudentTRV: (_location_scale(1, 2), (0,)),
    rvs.UniformRV: (_uniform, ()),
}


def rule_for(rv: Any, moving: Callable[[Any], bool]) -> Rule | None:
    """Return the rule of a record variable, or None where its residual cannot be kept.

    Parameters
    ----------
    rv : TensorVariable
        A record variable.
    moving : callable
        Whether a parameter of it may move.
    """
    found = _RULES.get(type(rv.owner.op))
    if found is None:
        return None
    rule, fixed = found
    params = rv.owner.op.dist_params(rv.owner)
    if any(moving(params[i]) for i in fixed):
        return None

    def in_double(x: Any, old: Sequence[Any], new: Sequence[Any]) -> Any:
        # constants may be of lower precision, in which u would not be kept
        doubled = [[pt.cast(p, "float64") for p in params] for params in (old, new)]
        return rule(pt.cast(x, "float64"), *doubled)

    return in_double
