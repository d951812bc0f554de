"""The leapfrog integrator: its compiled pieces, and a trajectory by gradients from Python.

All move with unit mass in coordinates q of ``constant + metric @ q``. The metric is block-diagonal,
an array (blocks, rows, columns): a vector has entry i of block b at ``i * blocks + b``. One block
is an ordinary matrix. :mod:`pymc_dp.numerics.nuts` and the Hamiltonian move of ``NormalX`` put the
pieces together in compiled code, around densities that are compiled too. Noisy gradients come from
Python, where the budget is counted: they need :func:`leapfrog`.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pymc_dp.numerics.compiled import cached_jit
from pymc_dp.types import Matrix, Vector

__all__ = ["Trajectory", "drift", "kick", "leapfrog", "pull_back"]


@cached_jit()
def kick(momentum, gradient, step):  # type: ignore[no-untyped-def]
    """Change the momentum by a gradient by q."""
    for i in range(momentum.size):
        momentum[i] += step * gradient[i]


@cached_jit()
def drift(place, metric, momentum, step):  # type: ignore[no-untyped-def]
    """Move the place by a momentum."""
    blocks, rows, columns = metric.shape
    for b in range(blocks):
        for i in range(rows):
            for j in range(columns):
                place[i * blocks + b] += step * metric[b, i, j] * momentum[j * blocks + b]


@cached_jit()
def pull_back(metric, gradient, out):  # type: ignore[no-untyped-def]
    """Turn a gradient by the place into one by q."""
    blocks, rows, columns = metric.shape
    for b in range(blocks):
        for j in range(columns):
            total = 0.0
            for i in range(rows):
                total += metric[b, i, j] * gradient[i * blocks + b]
            out[j * blocks + b] = total


class Trajectory(NamedTuple):
    """Where a trajectory ended."""

    theta: Vector
    displacement: Vector
    momentum: Vector
    finite: bool


def leapfrog(
    gradient: Callable[[Vector], Vector],
    start: Vector,
    basis: Matrix,
    momentum: Vector,
    step_size: float,
    n_steps: int,
) -> Trajectory:
    """Follow Hamiltonian dynamics with unit mass in the coordinates q of ``start + basis @ q``.

    Parameters
    ----------
    gradient : callable
        Gradient of the log-density by q at a point, perhaps noised; called ``n_steps + 1`` times.
    start : ndarray
        Point that the trajectory leaves.
    basis : ndarray
        Columns are the coordinates, in those of the point.
    momentum : ndarray
        At the start.
    step_size, n_steps : float, int
        Size and number of the steps.

    Returns
    -------
    Trajectory
        It ends early, and is marked, where the point leaves the floating-point numbers.

    Notes
    -----
    Both half kicks between two moves are one, by one gradient: each noisy one is paid for from the
    budget. Räisä et al. (2021), section 3, print the noisy kick with the wrong sign.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_dp.numerics.leapfrog import leapfrog
    >>> end = leapfrog(lambda theta: -theta, np.array([1.0]), np.eye(1), np.zeros(1), 0.01, 157)
    >>> np.round(end.theta, 2), np.round(end.momentum, 2)  # a quarter of a turn
    (array([0.]), array([-1.]))
    """
    displacement, theta = np.zeros(momentum.size), start
    momentum, kick_size = momentum.copy(), step_size / 2
    for _ in range(n_steps):
        theta, finite = _advance(
            start, basis, displacement, momentum, gradient(theta), kick_size, step_size
        )
        if not finite:
            return Trajectory(theta, displacement, momentum, finite=False)
        kick_size = step_size
    momentum += step_size / 2 * gradient(theta)
    return Trajectory(theta, displacement, momentum, bool(np.all(np.isfinite(momentum))))


@cached_jit()
def _advance(
    start: Vector,
    basis: Matrix,
    displacement: Vector,
    momentum: Vector,
    gradient: Vector,
    kick_size: float,
    step_size: float,
) -> tuple[Vector, bool]:
    """Kick and move in place: the new point, and whether it is finite.

    Compiled, because numpy takes longer to start than these few numbers take.
    """
    kick(momentum, gradient, kick_size)
    for j in range(momentum.size):
        displacement[j] += step_size * momentum[j]
    # from the start again, so that place and displacement agree
    theta, finite = start.copy(), True
    drift(theta, basis[np.newaxis], displacement, 1.0)
    for i in range(theta.size):
        finite = finite and np.isfinite(theta[i])
    return theta, finite
