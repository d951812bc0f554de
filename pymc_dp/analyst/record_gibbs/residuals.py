"""Move records along with their parameters while their residuals stay fixed.

A record x with parameters p is a function of p and of a residual whose law does not depend on p:
x = loc + scale * residual for a location-scale family, the quantile of u = F(x; p) in general, with
u uniform between F(x - 1) and F(x) for counts and categories. Given old and new parameters, the
rules here say where x goes when its residual is kept. One rule a distribution, registered by its
operation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.continuous import WeibullBetaRV
from pymc.distributions.discrete import DiscreteUniformRV
from pymc.vartypes import continuous_types
from pytensor.tensor.random import basic as rvs
from pytensor.tensor.random.op import RandomVariable

from pymc_dp.analyst.record_gibbs.gamma_residuals import (
    dirichlet_residuals,
    from_dirichlet_residuals,
)
from pymc_dp.analyst.record_gibbs.quantile import count_quantile
from pymc_dp.compat import icdf_rules, logcdf_rules, logprob_rules

__all__ = ["AnyRule", "CountRule", "DrawnRule", "Rule", "rule_for", "takes_uniform"]

#: ``rule(x, old parameters, new parameters)`` gives the moved x
Rule = Callable[[Any, Sequence[Any], Sequence[Any]], Any]
#: the same with a uniform number for every entry of x, which says where u is between F(x - 1), F(x)
CountRule = Callable[[Any, Sequence[Any], Sequence[Any], Any], Any]


class DrawnRule(NamedTuple):
    """A rule for residuals that are drawn given x, and whose law may depend on the parameters.

    Attributes
    ----------
    residuals : callable
        ``residuals(x, old parameters)`` draws them: some arrays of the shape of x.
    moved : callable
        ``moved(residuals, new parameters)`` gives the moved x and the log-density of the residuals
        at the new parameters, summed, up to a constant.
    """

    residuals: Callable[[Any, Sequence[Any]], list[Any]]
    moved: Callable[[list[Any], Sequence[Any]], tuple[Any, Any]]


AnyRule = Rule | CountRule | DrawnRule


def _location_scale(loc: int, scale: int) -> Rule:
    def moved(x: Any, old: Sequence[Any], new: Sequence[Any]) -> Any:
        return new[loc] + (new[scale] / old[scale]) * (x - old[loc])

    return moved


def _scale(position: int) -> Rule:
    return lambda x, old, new: x * (new[position] / old[position])


def _uniform(x: Any, old: Sequence[Any], new: Sequence[Any]) -> Any:
    return new[0] + (new[1] - new[0]) / (old[1] - old[0]) * (x - old[0])


def _power(alpha: int, scale: int) -> Rule:
    """Families with u a function of (x / scale)^alpha."""

    def moved(x: Any, old: Sequence[Any], new: Sequence[Any]) -> Any:
        return new[scale] * (x / old[scale]) ** (old[alpha] / new[alpha])

    return moved


def _log_normal(x: Any, old: Sequence[Any], new: Sequence[Any]) -> Any:
    return pt.exp(_location_scale(0, 1)(pt.log(x), old, new))


def _mv_normal(x: Any, old: Sequence[Any], new: Sequence[Any]) -> Any:
    """Keep the residual of the Cholesky factor, L^-1 (x - mean)."""
    old_factor, new_factor = pt.linalg.cholesky(old[1]), pt.linalg.cholesky(new[1])
    residual = pt.linalg.solve_triangular(old_factor, (x - old[0])[..., None], lower=True, b_ndim=2)
    return new[0] + (new_factor @ residual)[..., 0]


#: in place of a generator and a size, which densities do not use
_ANY = (None, None)


def _cdf(op: Any, x: Any, params: Sequence[Any]) -> Any:
    return pt.exp(logcdf_rules(op, x, *_ANY, *params))


def _pmf(op: Any, x: Any, params: Sequence[Any]) -> Any:
    return pt.exp(logprob_rules(op, [x], *_ANY, *params))


def _through_cdf(op: Any) -> Rule:
    """Keep u = F(x), where PyMC knows the distribution function and its inverse."""

    def moved(x: Any, old: Sequence[Any], new: Sequence[Any]) -> Any:
        return icdf_rules(op, _cdf(op, x, old), *_ANY, *new)

    return moved


def _bernoulli(x: Any, old: Sequence[Any], new: Sequence[Any], v: Any) -> Any:
    [p], [new_p] = old, new
    u = pt.switch(pt.eq(x, 0), v * (1 - p), (1 - p) + v * p)
    return pt.gt(u, 1 - new_p)


def _discrete_uniform(x: Any, old: Sequence[Any], new: Sequence[Any], v: Any) -> Any:
    u = (x - old[0] + v) / (old[1] - old[0] + 1)
    return pt.minimum(new[0] + pt.floor(u * (new[1] - new[0] + 1)), new[1])


def _categorical(x: Any, old: Sequence[Any], new: Sequence[Any], v: Any) -> Any:
    [p], [new_p] = old, new
    k = pt.arange(p.shape[-1])
    u = pt.sum(p * ((k < x[..., None]) + v[..., None] * pt.eq(k, x[..., None])), axis=-1)
    return pt.sum(pt.cumsum(new_p, axis=-1)[..., :-1] < u[..., None], axis=-1)


def _geometric(x: Any, old: Sequence[Any], new: Sequence[Any], v: Any) -> Any:
    # the survival function is (1 - p)^x, on 1, 2, ...
    log_survival = (x - 1) * pt.log1p(-old[0]) + pt.log1p(-v * old[0])
    return pt.maximum(pt.ceil(log_survival / pt.log1p(-new[0])), 1)


def _count(op: Any, family: Callable[..., tuple[Any, ...]]) -> CountRule:
    """Keep u of a count whose masses follow p(k) = p(k - 1) (a + b / k).

    ``family(*parameters)`` gives a, b, mean, variance and the largest count.
    """

    def moved(x: Any, old: Sequence[Any], new: Sequence[Any], v: Any) -> Any:
        u = _cdf(op, x, old) - (1 - v) * _pmf(op, x, old)
        a, b, mean, variance, largest = family(*new)
        # start where a normal distribution has its quantile; 1 - u is resolved up to 8.3 sd
        score = pt.minimum(-(2**0.5) * pt.erfcinv(2 * u), 8.3)
        near = pt.clip(pt.floor(mean + pt.sqrt(variance) * score), 0.0, largest)
        return count_quantile(u, near, _cdf(op, near, new), _pmf(op, near, new), a, b)

    return moved


def _poisson(mu: Any) -> tuple[Any, ...]:
    return pt.zeros_like(mu), mu, mu, mu, np.inf


def _binomial(n: Any, p: Any) -> tuple[Any, ...]:
    odds = p / (1 - p)
    return -odds, (n + 1) * odds, n * p, n * p * (1 - p), n


def _negative_binomial(n: Any, p: Any) -> tuple[Any, ...]:
    return 1 - p, (n - 1) * (1 - p), n * (1 - p) / p, n * (1 - p) / p**2, np.inf


def _multinomial(x: Any, old: Sequence[Any], new: Sequence[Any], v: Any) -> Any:
    """Keep u of every category given the ones before: these are binomial."""
    (left, p), (new_left, new_p) = old, new
    binomial = _count(rvs.binomial, _binomial)
    moved = []
    for k in range(p.type.shape[-1] - 1):
        share, new_share = (q[..., k] / pt.sum(q[..., k:], axis=-1) for q in (p, new_p))
        moved.append(binomial(x[..., k], [left, share], [new_left, new_share], v[..., k]))
        left, new_left = left - x[..., k], new_left - moved[-1]
    return pt.stack([*moved, pt.broadcast_to(new_left, x.shape[:-1])], axis=-1)


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
    rvs.ParetoRV: (_power(0, 1), ()),
    rvs.StudentTRV: (_location_scale(1, 2), (0,)),
    rvs.UniformRV: (_uniform, ()),
    WeibullBetaRV: (_power(0, 1), ()),
}
#: the same for counts and categories: ``make(op)`` gives the rule
_COUNT_RULES: dict[type, Callable[[Any], CountRule]] = {
    rvs.BernoulliRV: lambda op: _bernoulli,
    rvs.BinomialRV: lambda op: _count(op, _binomial),
    rvs.CategoricalRV: lambda op: _categorical,
    DiscreteUniformRV: lambda op: _discrete_uniform,
    rvs.GeometricRV: lambda op: _geometric,
    rvs.MultinomialRV: lambda op: _multinomial,
    rvs.NegBinomialRV: lambda op: _count(op, _negative_binomial),
    rvs.PoissonRV: lambda op: _count(op, _poisson),
}


#: the same for residuals that are drawn
_DRAWN_RULES: dict[type, DrawnRule] = {
    rvs.DirichletRV: DrawnRule(dirichlet_residuals, from_dirichlet_residuals),
}


def takes_uniform(rv: Any) -> bool:
    """Whether the rule of a record variable needs a uniform number for every entry."""
    return type(rv.owner.op) in _COUNT_RULES


def rule_for(rv: Any, moving: Callable[[Any], bool]) -> AnyRule | None:
    """Return the rule of a record variable, or None where its residual cannot be kept.

    Parameters
    ----------
    rv : TensorVariable
        A record variable.
    moving : callable
        Whether a parameter of it may move.
    """
    op = rv.owner.op
    if type(op) in _DRAWN_RULES:
        return _DRAWN_RULES[type(op)]
    rule: Any = None
    if isinstance(op, rvs.MultinomialRV) and rv.type.shape[-1] is None:
        return None
    if type(op) in _COUNT_RULES:
        rule = _COUNT_RULES[type(op)](op)
    elif type(op) in _RULES:
        known, fixed = _RULES[type(op)]
        params = op.dist_params(rv.owner)
        rule = None if any(moving(params[i]) for i in fixed) else known
    if rule is None and _has_functions(rv):
        rule = _through_cdf(op)
    if rule is None:
        return None

    def in_double(x: Any, old: Sequence[Any], new: Sequence[Any], *v: Any) -> Any:
        # constants may be of lower precision, in which u would not be kept
        doubled = [[pt.cast(p, "float64") for p in params] for params in (old, new)]
        return rule(pt.cast(x, "float64"), *doubled, *v)

    return in_double


def _has_functions(rv: Any) -> bool:
    """Whether PyMC knows the distribution function of a continuous variable, and its inverse."""
    op = rv.owner.op
    known = type(op) in logcdf_rules.registry and type(op) in icdf_rules.registry
    if not known or rv.dtype not in continuous_types:
        return False
    signature = getattr(op, "extended_signature", None) or ""
    return isinstance(op, RandomVariable) or signature.startswith("[rng],[size],")
