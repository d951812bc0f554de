"""Values that a response can take given its covariates, a few of them, with their probabilities.

A response is held within a range that depends on its own law at the place alone: so many standard
deviations about the mean for counts, the same quantiles as those of a normal law for continuous
responses. What a function of the held response has for a mean is then a finite sum.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.tensor.random.type import random_generator_type
from scipy.special import ndtr

from pymc_dp.types import Variable

__all__ = ["ResponseNodes", "has_nodes", "response_nodes"]

_QUADRATURE = 12  # points between the ends of a continuous response's range
_COUNTS = 32  # of values in a count's range

_Moments = Callable[..., tuple[Variable, Variable]]
#: mean and variance of counts, from the parameters of PyTensor's random variables
_MOMENTS: dict[str, _Moments] = {
    "poisson": lambda mu: (mu, mu),
    "binomial": lambda n, p: (n * p, n * p * (1 - p)),
    "negative_binomial": lambda n, p: (n * (1 - p) / p, n * (1 - p) / p**2),
    "geometric": lambda p: (1 / p, (1 - p) / p**2),
}
_CONTINUOUS = {"normal", "t", "laplace", "logistic", "exponential", "lognormal", "gamma", "weibull"}


class ResponseNodes(NamedTuple):
    """Nodes of every record's response, one record a column.

    Attributes
    ----------
    values : Variable
        Of shape (nodes, records).
    probabilities : Variable
        Of the held response; zero where there is no such value.
    lower, upper : Variable
        The range in which it is held.
    """

    values: Variable
    probabilities: Variable
    lower: Variable
    upper: Variable


def has_nodes(name: str) -> bool:
    """Whether a response of this distribution (PyTensor's name of it) can be held in a range."""
    return name == "bernoulli" or name in _MOMENTS or name in _CONTINUOUS


def response_nodes(op: Any, parameters: list[Variable], width: float) -> ResponseNodes:
    """Nodes of a response's law.

    Parameters
    ----------
    op : RandomVariable
        Its distribution.
    parameters : list
        Of the distribution, vectors with one entry a record.
    width : float
        Half of the range, in standard deviations.
    """
    law = op.make_node(random_generator_type(), None, *parameters).outputs[1]
    if op.name in _CONTINUOUS:
        return _quantiles(law, width)
    if op.name == "bernoulli":
        lower = pt.zeros_like(parameters[0], dtype="int64")
        upper, number = lower + 1, 2
    else:
        mean, variance = _MOMENTS[op.name](*parameters)
        least, spread = (1 if op.name == "geometric" else 0), width * pt.sqrt(variance)
        lower = pt.maximum(pt.floor(mean - spread), least).astype("int64")
        upper = pt.ceil(mean + spread).astype("int64")
        number = _COUNTS
        upper = pt.clip(upper, lower + 1, lower + number - 1)
        if op.name == "binomial":
            upper = pt.minimum(upper, parameters[0].astype("int64"))
    values = lower[None, :] + pt.arange(number)[:, None]
    first = pt.exp(pm.logcdf(law, lower, warn_rvs=False))
    others = pt.exp(pm.logp(law, values[1:], warn_rvs=False))
    inside = pt.concatenate([first[None, :], others], axis=0)
    inside = pt.switch(values < upper[None, :], inside, 0.0)
    last = pt.maximum(1 - inside.sum(axis=0), 0.0)
    probabilities = pt.switch(pt.eq(values, upper[None, :]), last[None, :], inside)
    return ResponseNodes(pt.minimum(values, upper[None, :]), probabilities, lower, upper)


def _quantiles(law: Variable, width: float) -> ResponseNodes:
    """Gauss-Legendre nodes in normal scores, and the two ends with what is beyond them."""
    points, weights = np.polynomial.legendre.leggauss(_QUADRATURE)
    scores = np.concatenate([[-width], width * points, [width]])
    density = np.exp(-((width * points) ** 2) / 2) / np.sqrt(2 * np.pi)
    within = 1 - 2 * ndtr(-width)
    weights = width * weights * density
    mass = np.concatenate([[ndtr(-width)], weights * within / weights.sum(), [ndtr(-width)]])
    values = pm.icdf(law, pt.as_tensor(ndtr(scores))[:, None], warn_rvs=False)
    probabilities = pt.as_tensor(mass)[:, None] + pt.zeros_like(values)
    return ResponseNodes(values, probabilities, values[0], values[-1])
