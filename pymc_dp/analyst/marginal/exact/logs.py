"""Sums and normal probabilities as logarithms, with gradients that stay finite."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt

from pymc_dp.analyst.marginal.held import held

__all__ = ["log_interval", "log_ndtr", "log_sum"]


def log_sum(terms: Any) -> Any:
    """Logarithm of a sum of exponentials along the first axis.

    The largest term is taken out before, and gradients do not see it: differentiated as it stands,
    exp(-800) / exp(-800) would be 0 / 0.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_dp.analyst.marginal.exact.logs import log_sum
    >>> float(log_sum(np.array([-1000.0, -1000.0])).eval().round(4))
    -999.3069
    """
    terms = pt.as_tensor(terms)
    largest = pt.max(terms, axis=0)
    largest = held(pt.switch(pt.isinf(largest), 0.0, largest))
    return pt.log(pt.sum(pt.exp(terms - largest[None]), axis=0)) + largest


def log_ndtr(z: Any) -> Any:
    """Logarithm of the standard normal distribution function.

    PyMC's overflows to NaN in the branch that is not taken, and with it the gradient.
    """
    below, above = pt.minimum(z, -1.0), pt.maximum(z, -1.0)
    tail = pt.log(pt.erfcx(-below / np.sqrt(2)) / 2) - below**2 / 2
    return pt.switch(z < -1.0, tail, pt.log1p(-pt.erfc(above / np.sqrt(2)) / 2))


def log_interval(low: Any, high: Any) -> Any:
    """Logarithm of the probability that a standard normal number is between two bounds.

    None stands for no bound; intervals that are empty have probability zero.
    """
    if low is None and high is None:
        return pt.as_tensor(0.0)
    if low is None:
        return log_ndtr(high)
    if high is None:
        return log_ndtr(-low)
    right = low + high > 0  # turned to the left, where probabilities keep their digits
    start, end = pt.switch(right, -high, low), pt.switch(right, -low, high)
    some = start < end
    end = pt.switch(some, end, start + 1.0)  # the branch that is not taken must stay finite
    larger, smaller = log_ndtr(end), log_ndtr(start)
    inside = larger + pt.log1mexp(pt.minimum(smaller - larger, -1e-300))
    return pt.switch(some, inside, -np.inf)
