"""One iteration of DP-HMC: a trajectory along noised gradients, judged by a noised log-ratio.

The step runs it with noise that is paid for, the search for settings with simulated noise on
synthetic records.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from pymc_dp.curator.penalty_kernels import NoisyRatio, log_acceptance, ratio_scale
from pymc_dp.numerics.leapfrog import leapfrog
from pymc_dp.types import Matrix, Vector


class HMCProposal(NamedTuple):
    """Where a trajectory ended, and whether to stay there.

    Attributes
    ----------
    theta, displacement : ndarray
        The end, and the way there in the sampler's coordinates.
    log_prior : float
        Log-density of the prior at the end; minus infinity where the trajectory diverged.
    ratio : NoisyRatio
        What was asked of the records; not a number where the trajectory diverged.
    log_acceptance : float
        Logarithm of the acceptance probability, before the minimum with 0.
    """

    theta: Vector
    displacement: Vector
    log_prior: float
    ratio: NoisyRatio
    log_acceptance: float

    @property
    def diverged(self) -> bool:
        """Whether the trajectory left the floating-point numbers, or the prior's support."""
        return not math.isfinite(self.log_prior)

    @property
    def acceptance(self) -> float:
        """Probability to stay at the end; none where it is not a number."""
        gain = self.log_acceptance
        return 0.0 if math.isnan(gain) else math.exp(min(0.0, gain))


def hmc_iteration(
    theta: Vector,
    momentum: Vector,
    step_size: float,
    n_leapfrog: int,
    *,
    basis: Matrix,
    gradient: Callable[[Vector], Vector],
    noisy_log_ratio: Callable[[Vector, Vector, float], NoisyRatio],
    log_prior: Callable[[Vector], float],
    log_prior_here: float,
    length: Callable[[Vector, Vector, Vector], float],
) -> HMCProposal:
    """Follow a trajectory, and ask the records for the log-likelihood ratio of its ends.

    Parameters
    ----------
    theta, momentum : ndarray
        At the start.
    step_size, n_leapfrog : float, int
        Size and number of leapfrog steps.
    basis : ndarray
        Columns are the sampler's coordinates, in those of `theta`.
    gradient : callable
        Noised gradient of the log-density at a point, by the sampler's coordinates.
    noisy_log_ratio : callable
        Noised log-likelihood ratio, of the start, the end and the length of the move.
    log_prior, log_prior_here : callable, float
        Log-density of the prior, and its value at the start.
    length : callable
        Length of a move, of the start, the end and the displacement: any symmetric function of the
        ends that no confidential record enters.

    Notes
    -----
    A trajectory that diverges is rejected before the records are asked, which only public numbers
    decide.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_dp.curator.hmc_iteration import hmc_iteration
    >>> from pymc_dp.curator.penalty_kernels import NoisyRatio
    >>> found = hmc_iteration(
    ...     np.zeros(1),
    ...     np.ones(1),
    ...     0.1,
    ...     5,
    ...     basis=np.eye(1),
    ...     gradient=lambda theta: -2 * theta,
    ...     noisy_log_ratio=lambda theta, end, length: NoisyRatio(-(end @ end) / 2, 0.0, 1.0),
    ...     log_prior=lambda theta: -(theta @ theta) / 2,
    ...     log_prior_here=0.0,
    ...     length=lambda theta, end, displacement: 1.0,
    ... )
    >>> round(found.acceptance, 2), found.diverged
    (1.0, False)
    """
    end = leapfrog(gradient, theta, basis, momentum, step_size, n_leapfrog)
    after = float(log_prior(end.theta)) if end.finite else -math.inf
    if not math.isfinite(after):
        nothing = NoisyRatio(math.nan, math.nan, 1.0)
        return HMCProposal(end.theta, end.displacement, -math.inf, nothing, -math.inf)
    ratio = noisy_log_ratio(theta, end.theta, length(theta, end.theta, end.displacement))
    kinetic = float(momentum @ momentum - end.momentum @ end.momentum) / 2
    public = after - log_prior_here + kinetic
    gain = log_acceptance(ratio.log_ratio, public, ratio.sd, ratio.tempering)
    return HMCProposal(end.theta, end.displacement, after, ratio, gain)


def move_length(
    start: Vector, end: Vector, displacement: Vector, public: Callable[[Vector], Vector] | None
) -> float:
    """Length of a move in the sampler's coordinates, or as public records tell it.

    Parameters
    ----------
    start, end : ndarray
        The ends.
    displacement : ndarray
        The way, in those coordinates that the likelihood depends on.
    public : callable or None
        Log-likelihood of public records.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_dp.curator.hmc_iteration import move_length
    >>> move_length(np.zeros(2), np.ones(2), np.array([3.0, 4.0]), None)
    5.0
    """
    if public is not None:
        return ratio_scale(public(end), public(start))
    return math.sqrt(displacement.dot(displacement))
