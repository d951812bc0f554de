r"""Residuals of gamma variables, and of records that are made of gammas.

A gamma variable's quantile at another shape takes long to compute. Cheaper residuals have a law
that hardly depends on the shape a, and whose density then enters the ratio of a move:

* Adding an exponential number gives a gamma of shape a + 1, of which the first is a share with the
  Beta(a, 1) law, independent of it: share :sup:`a` is uniform. This is repeated
  :data:`ADDED` times, for the sake of small shapes.
* A gamma of shape a is d (1 + z / (3 sqrt(d)))^3, d = a - 1/3, with z nearly standard normal
  (Wilson & Hilferty 1931; the map of Marsaglia & Tsang 2000). Given z, all of the dependence on a
  that is left is in the density of z.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt

from pymc_dp.analyst.record_gibbs.drawing import draw_from

__all__ = [
    "dirichlet_residuals",
    "from_dirichlet_residuals",
    "from_gamma_residuals",
    "gamma_residuals",
]

#: exponential numbers that are added to a gamma: z is normal enough from shape 4 on
ADDED = 4
#: of shares that are numbers in double precision
LARGEST_LOG_ODDS = 700.0


def gamma_residuals(g: Any, shape: Any) -> list[Any]:
    """Draw residuals of gammas g given their shapes: z, and logarithms of uniform numbers."""
    logs, log_g = [], pt.log(g)
    for added in range(ADDED):
        g = g + draw_from(pt.random.exponential, 1.0, size=g.shape)
        log_larger = pt.log(g)
        logs.append((shape + added) * (log_g - log_larger))
        log_g = log_larger
    d = shape + ADDED - 1 / 3
    return [3 * pt.sqrt(d) * pt.expm1((log_g - pt.log(d)) / 3), *logs]


def from_gamma_residuals(residuals: list[Any], shape: Any) -> tuple[Any, Any]:
    """Logarithms of the gammas that have these residuals, and the log-densities of the latter."""
    z, *logs = residuals
    top = shape + ADDED
    d = top - 1 / 3
    root = 1 + z / (3 * pt.sqrt(d))
    log_root = pt.log(root)  # no gamma has a residual for which this is not a number
    log_g = pt.log(d) + 3 * log_root
    log_g += sum(log / (shape + added) for added, log in enumerate(logs))
    constant = top * pt.log(d) - 0.5 * pt.log(d) - pt.gammaln(top)
    return log_g, constant + d * (3 * log_root - root**3)


def dirichlet_residuals(x: Any, old: Any) -> list[Any]:
    """Draw the gammas behind shares x, whose sum is independent of x, and their residuals."""
    [shape] = old
    total = pt.broadcast_to(pt.sum(shape, axis=-1), x.shape[:-1])
    size = draw_from(pt.random.gamma, total, scale=1.0, size=x.shape[:-1])
    return gamma_residuals(x * size[..., None], shape)


def from_dirichlet_residuals(residuals: list[Any], new: Any) -> tuple[Any, Any]:
    """Shares whose gammas have these residuals, and the sum of the residuals' log-densities."""
    log_g, log_density = from_gamma_residuals(residuals, new[0])
    spread = pt.max(log_g, axis=-1) - pt.min(log_g, axis=-1)
    # a share that is too small for a number has no value on the way back
    possible = pt.all(spread < LARGEST_LOG_ODDS)
    shares = pt.special.softmax(log_g, axis=-1)
    return shares, pt.switch(possible, pt.sum(log_density), -np.inf)
