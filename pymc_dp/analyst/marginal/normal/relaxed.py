"""Numbers of records as continuous variables, where integrals over them are what sums are.

Where a prior ends, it ends half a number further out, so that every number is the middle of an
interval of length one. That the continuous variable has the moments of the whole number is tried on
the prior times the noise of what was released of the number alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.distributions import transforms
from pymc.distributions.discrete import DiscreteUniformRV
from pymc.distributions.distribution import support_point
from pytensor.graph.replace import clone_replace, vectorize_graph
from pytensor.tensor.random.basic import BinomialRV, GeometricRV, NegBinomialRV, PoissonRV
from pytensor.tensor.random.type import random_generator_type

from pymc_dp.analyst.marginal.normal.convolved import (
    convolved_logp,
    gaussian_variance,
    normal_logp,
)
from pymc_dp.analyst.marginal.values import starting_values
from pymc_dp.compat import (
    SymbolicRandomVariable,
    default_transform_rules,
    logprob_rules,
    support_point_rules,
)
from pymc_dp.graph.additivity import direct_inputs
from pymc_dp.graph.intervals import ONCE
from pymc_dp.mechanisms import Mechanism
from pymc_dp.types import Array

__all__ = ["SMOOTH", "RelaxedSizeRV", "integral_is_sum"]

#: priors whose formulas hold between the integers
SMOOTH = (DiscreteUniformRV, PoissonRV, NegBinomialRV, BinomialRV, GeometricRV)
#: largest error of mean and standard deviation of the number, in such deviations, and relative
#: error of the mean of its inverse
_TOLERANCE = 0.01
#: whole numbers that are added up, at the most, and where their log-probability is nothing
_MOST, _NOTHING = 4000, 30.0
#: points in every interval of length one
_POINTS = 20


class RelaxedSizeRV(SymbolicRandomVariable):
    """A number of records, its prior's formula taken between the integers too."""

    def __init__(self, *args: Any, prior: Any, **kwargs: Any) -> None:
        self.prior = prior
        super().__init__(*args, **kwargs)

    @classmethod
    def rv_op(cls, number: Any) -> Any:
        """Make the continuous form of a discrete variable."""
        op = number.owner.op
        given = list(op.dist_params(number.owner))
        inner = [random_generator_type(), *(parameter.type() for parameter in given)]
        rng, drawn = op.make_node(inner[0], None, *inner[1:]).outputs
        signature = ",".join(["[rng]", *("()" for _ in given)]) + "->[rng],()"
        made = cls(inner, [rng, drawn.astype("float64")], prior=op, extended_signature=signature)
        return made.make_node(pytensor.shared(np.random.default_rng()), *given).outputs[1]


@logprob_rules.register(RelaxedSizeRV)
def _logprob(op: RelaxedSizeRV, values: Sequence[Any], *inputs: Any, **kwargs: Any) -> Any:
    rng, *parameters = inputs
    if isinstance(op.prior, DiscreteUniformRV):  # whose formula ends at whole numbers
        [value], (lower, upper) = values, _ends(op, *inputs)
        inside = pt.and_(pt.ge(value, lower), pt.le(value, upper))
        return pt.switch(inside, -pt.log(upper - lower), -np.inf)
    return logprob_rules(op.prior, values, rng, None, *parameters)


@support_point_rules.register(RelaxedSizeRV)
def _support_point(op: RelaxedSizeRV, rv: Any, rng: Any, *parameters: Any) -> Any:
    _, prior = op.prior.make_node(rng, None, *parameters).outputs
    lower, upper = _ends(op, rng, *parameters)
    start = pt.maximum(support_point(prior).astype("float64"), lower + 0.25)
    return start if upper is None else pt.minimum(start, upper - 0.25)


@default_transform_rules.register(RelaxedSizeRV)
def _transform(op: RelaxedSizeRV, rv: Any) -> Any:
    if isinstance(op.prior, DiscreteUniformRV | BinomialRV):
        return transforms.Interval(bounds_fn=_INTERVALS[type(op.prior)])
    return transforms.log


def _uniform_ends(*inputs: Any) -> tuple[Any, Any]:
    return inputs[-2] - 0.5, inputs[-1] + 0.5


def _binomial_ends(*inputs: Any) -> tuple[Any, Any]:
    return pt.constant(0.0), inputs[-2].astype("float64")


_INTERVALS: dict[type, Callable[..., tuple[Any, Any]]] = {
    DiscreteUniformRV: _uniform_ends,
    BinomialRV: _binomial_ends,
}


def _ends(op: RelaxedSizeRV, *inputs: Any) -> tuple[Any, Any]:
    """Where the continuous variable ends, None where nowhere."""
    ends = _INTERVALS.get(type(op.prior))
    return (pt.constant(0.0), None) if ends is None else ends(*inputs)


def relaxed_noise(mechanism: Mechanism, released: Any, number: Any) -> Any:
    """Log-density of a count whose number of records is continuous."""
    variance = gaussian_variance(mechanism)
    if variance is not None:
        return normal_logp(released - number, pt.as_tensor(variance))
    return convolved_logp(mechanism, released, number, pt.constant(0.0))


def integral_is_sum(
    discrete: Any, counts: Sequence[tuple[Mechanism, Any, Any]], latents: Sequence[Any]
) -> bool:
    """Whether the continuous form of a number of records has the number's own moments.

    Parameters
    ----------
    discrete : TensorVariable
        The number, scalar.
    counts : sequence of tuple
        What was released of it alone: the noise, the released value and the statistic.
    latents : sequence of TensorVariable
        Variables of the model. Where the prior depends on some, they are where PyMC starts them.
    """
    relaxed = RelaxedSizeRV.rv_op(discrete)
    n = pt.dscalar("n")
    whole, between = pm.logp(discrete, n, warn_rvs=False), pm.logp(relaxed, n, warn_rvs=False)
    for mechanism, released, statistic in counts:
        here = clone_replace([statistic], {discrete: n}, rebuild_strict=False)[0]
        whole += mechanism.logp(released, here)
        between += relaxed_noise(mechanism, released, here)
    fixed = direct_inputs([whole, between], latents)
    values = dict(zip(fixed, map(pt.as_tensor, starting_values(fixed)), strict=True))
    known = [end for end in _ends(relaxed.owner.op, *relaxed.owner.inputs) if end is not None]
    whole, between, *ends = clone_replace([whole, between, *known], values, rebuild_strict=False)
    many = pt.dvector("n")
    at = [
        pytensor.function([many], vectorize_graph(graph, {n: many}), mode=ONCE)
        for graph in (whole, between)
    ]
    lower, *upper = [float(end.eval(mode=ONCE)) for end in ends]
    found = _where(at[0], int(np.ceil(lower)), int(upper[0]) if upper else None)
    if found is None:
        return True
    steps = (np.arange(_POINTS) + 0.5) / _POINTS - 0.5
    fine = (found[:, None] + steps).ravel()
    with np.errstate(all="ignore"):
        sums, integrals = _moments(at[0](found), found), _moments(at[1](fine), fine)
    (_, sd, inverse), errors = sums, np.abs(np.subtract(integrals, sums))
    return bool(np.all(errors <= _TOLERANCE * np.array([sd, sd, inverse])) and sd > 0)


def _moments(log_p: Array, values: Array) -> Array:
    """Mean, standard deviation and mean inverse under some log-probabilities."""
    p = np.exp(np.where(np.isnan(log_p) | (values <= 0), -np.inf, log_p) - np.nanmax(log_p))
    p = p / p.sum()
    mean = p @ values
    inverse = p @ np.where(values > 0, 1 / np.where(values > 0, values, 1.0), 0.0)
    return np.array([mean, np.sqrt(p @ (values - mean) ** 2), inverse])


def _where(log_p: Callable[[Array], Array], low: int, high: int | None) -> Array | None:
    """Whole numbers that have some probability; None where there are more than are added up."""
    low = max(low, 1)
    high = 2**40 if high is None else max(high, low)
    while high - low >= _MOST:
        tried = np.unique(np.round(np.geomspace(low, high, _MOST)))
        tried = np.unique([*tried, *np.round(np.linspace(low, high, _MOST))])
        with np.errstate(all="ignore"):
            found = np.nan_to_num(log_p(tried), nan=-np.inf)
        some = np.flatnonzero(found > found.max() - _NOTHING)
        first, last = max(some[0] - 1, 0), min(some[-1] + 1, tried.size - 1)
        if tried[last] - tried[first] > 0.9 * (high - low):
            return None
        low, high = int(tried[first]), int(tried[last])
    return np.arange(low, high + 1.0)
