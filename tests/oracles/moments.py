"""Two parameters, and the first two moments of one or two records."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tests.oracles.continuous import Record, _panels
from tests.oracles.posteriors import PlanePosterior

Array = NDArray[np.float64]
LogDensity = Callable[[ArrayLike], NDArray[np.float64]]


def normal_plane_posterior(
    log_likelihood: Callable[[float, Array], Array],
    mean_grid: Array,
    sd_grid: Array,
    log_prior: Callable[[Array, Array], Array],
) -> PlanePosterior:
    """Posterior of a normal's mean and sd; ``log_likelihood(sd, mean_grid)`` is one column.

    Examples
    --------
    >>> def column(sd, means):
    ...     return sum_likelihood(3.0, 10, ClampedNormal(sd, -5, 5), Laplace(1.0), means)
    """
    columns = np.stack([log_likelihood(float(sd), mean_grid) for sd in sd_grid], axis=1)
    values = columns + log_prior(mean_grid[:, None], sd_grid[None, :])
    return PlanePosterior.from_log_density(mean_grid, sd_grid, values)


def _split_quadrature(
    record: Record, residual: Array, panels: int, order: int
) -> tuple[Array, Array]:
    """Nodes and weights that break where x or x^2 meets the residual, shape (..., nodes)."""
    root = np.sqrt(np.clip(residual[..., 1], 0.0, None))
    breaks = np.stack([residual[..., 0], root, -root], axis=-1)
    fixed = np.linspace(record.lower, record.upper, panels + 1)
    edges = np.concatenate([np.broadcast_to(fixed, (*breaks.shape[:-1], panels + 1)), breaks], -1)
    return _panels(np.sort(np.clip(edges, record.lower, record.upper), axis=-1), order)


def moments_likelihood(
    released: ArrayLike,
    n: int,
    record: Record,
    noise: LogDensity,
    theta: ArrayLike,
    panels: int = 10,
    order: int = 10,
) -> Array:
    """Log density of noisy (sum x, sum x^2) of one or two clamped records, at each theta.

    The last record is integrated on panels that break where the Laplace density has a kink. With
    noise much narrower than a panel, raise `panels` until nothing changes.
    """
    if n not in (1, 2):
        raise ValueError("quadrature is for n = 1 or 2")
    target = np.asarray(released, float)
    ends = np.array([record.lower, record.upper])

    def moments(x: Array) -> Array:
        return np.stack([x, x**2], axis=-1)

    outer, outer_weight = _panels(_outer_edges(record, target, panels), order)
    residual = target[None, :] if n == 1 else target - moments(np.append(ends, outer))
    inner, inner_weight = _split_quadrature(record, residual, panels, order)

    def kernel(x: Array) -> Array:
        return np.exp(noise(residual[:, None, :] - moments(x)).sum(axis=-1))

    smooth = kernel(inner) * inner_weight
    at_ends = kernel(np.broadcast_to(ends, (len(residual), 2)))

    def density(value: float) -> float:
        mass = np.array(record.atoms(value))
        last = (smooth * record.density(inner, value)).sum(axis=1) + at_ends @ mass
        if n == 1:
            return float(last[0])
        return float(np.append(mass, outer_weight * record.density(outer, value)) @ last)

    return np.log([density(float(v)) for v in np.atleast_1d(np.asarray(theta, float))])


def _outer_edges(record: Record, target: Array, panels: int) -> Array:
    """Panels for the first record, broken where the second record's kinks reach a bound."""
    root = np.sqrt(np.clip(target[1] - np.array([0, record.lower**2, record.upper**2]), 0, None))
    corners = target[0] - np.array([record.lower, record.upper])
    edges = np.concatenate(
        [np.linspace(record.lower, record.upper, panels + 1), corners, root, -root]
    )
    return np.unique(np.clip(edges, record.lower, record.upper))
