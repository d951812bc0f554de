"""The leapfrog integrator, for noised gradients and plain ones alike."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pymc_dp.numerics.compiled import cached_jit

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


class Trajectory(NamedTuple):
    """Where a trajectory ended."""

    theta: Vector
    displacement: Vector
    momentum: Vector
    finite: bool


def leapfrog(
    force: Callable[[Vector], Vector],
    start: Vector,
    basis: Matrix,
    momentum: Vector,
    step_size: float,
    n_steps: int,
) -> Trajectory:
    """Follow Hamiltonian dynamics with unit mass in the coordinates q of ``start + basis @ q``.

    Parameters
    ----------
    force : callable
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
    A full kick between two moves takes one gradient. Räisä et al. (2021), section 3, print the
    noisy kick with the wrong sign.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_dp.numerics.leapfrog import leapfrog
    >>> end = leapfrog(lambda theta: -theta, np.array([1.0]), np.eye(1), np.zeros(1), 0.01, 157)
    >>> np.round(end.theta, 2), np.round(end.momentum, 2)  # a quarter of a turn
    (array([0.]), array([-1.]))
    """
    displacement, theta = np.zeros(momentum.size), start
    momentum, kick = momentum.copy(), step_size / 2
    for _ in range(n_steps):
        theta, finite = _advance(
            start, basis, displacement, momentum, force(theta), kick, step_size
        )
        if not finite:
            return Trajectory(theta, displacement, momentum, finite=False)
        kick = step_size
    momentum += step_size / 2 * force(theta)
    return Trajectory(theta, displacement, momentum, bool(np.all(np.isfinite(momentum))))


@cached_jit()
def _advance(
    start: Vector,
    basis: Matrix,
    displacement: Vector,
    momentum: Vector,
    gradient: Vector,
    kick: float,
    step_size: float,
) -> tuple[Vector, bool]:
    """Kick and move in place: the new point, and whether it is finite.

    Compiled, because numpy takes longer to start than these few numbers take.
    """
    for j in range(momentum.size):
        momentum[j] += kick * gradient[j]
        displacement[j] += step_size * momentum[j]
    theta, finite = start.copy(), True
    for i in range(theta.size):
        for j in range(displacement.size):
            theta[i] += basis[i, j] * displacement[j]
        finite = finite and np.isfinite(theta[i])
    return theta, finite
