"""Hyperparameters at their marginal mode, with the likelihood of simulated records held.

Records may identify fewer combinations of the parameters than there are parameters: group means
and not their common mean and spread, coefficients and not the scale of their prior. Along what is
left the prior decides. The way there is curved where a hyperparameter enters the likelihood, as in
``m0 + s * z[group]``: z must follow s, or the group means move.
"""

import math
from collections.abc import Callable

import numpy as np
import scipy
from scipy.linalg import cho_factor, cho_solve, qr

from pymc_dp.curator.plan.scoring import SimulatedScores
from pymc_dp.types import Matrix, Vector

_ITERATIONS = 12  # of Gauss and Newton, which double the digits from some distance on
_HELD = 0.01  # standard deviations at which the likelihood counts as held
_MOST_CHANGE = 0.1  # standard deviations beyond which the move is not made
_DIFFERENCE = 1e-3  # of unconstrained coordinates, for derivatives of the information


def marginal_mode(
    theta: Vector,
    scores: SimulatedScores,
    log_prior: Callable[[Vector], float],
    prior_gradient: Callable[[Vector], Vector],
) -> tuple[Vector, float]:
    """Move along what records do not identify to the mode of its marginal posterior.

    Parameters
    ----------
    theta : ndarray
        The place, whose likelihood is held.
    scores : SimulatedScores
        Of simulated records, at the place or near it.
    log_prior, prior_gradient : callable
        Log-density of the prior and its gradient.

    Returns
    -------
    theta : ndarray
        The new place, or the old one where no move was found that holds the likelihood.
    change : float
        How far the likelihood has moved all the same, in its standard deviations.

    Notes
    -----
    Coordinates are split into v, which records identify given the others, and hyperparameters u.
    For given u, v is where log-likelihoods of the simulated records are those at the place, by
    Gauss and Newton's method. Laplace's approximation of the integral over v gives the marginal
    posterior of u, the prior there over the root of the determinant of v's information. Without the
    determinant, the spread of non-centred effects would end at the upper end of its prior.
    """
    search = _MarginalPosterior(theta, scores, log_prior, prior_gradient)
    if search.u.size == 0:
        return theta, 0.0
    with np.errstate(all="ignore"):
        before, _ = search(theta[search.u])
        found = scipy.optimize.minimize(
            search, theta[search.u], jac=True, method="BFGS", options={"gtol": 1e-3}
        )
        after, _ = search(found.x)
        change = scores.distance(search.theta, theta)
    if after <= before and np.isfinite(search.theta).all() and change < _MOST_CHANGE:
        return search.theta, change
    return theta, 0.0


class _MarginalPosterior:
    """Negative log-density of u, and its gradient; ``theta`` is the last place looked at."""

    def __init__(
        self,
        theta: Vector,
        scores: SimulatedScores,
        log_prior: Callable[[Vector], float],
        prior_gradient: Callable[[Vector], Vector],
    ) -> None:
        self.place, self.theta = theta, theta.copy()
        self._scores, self._log_prior, self._prior_gradient = scores, log_prior, prior_gradient
        identified = scores.basis.shape[1]
        # the best conditioned choice: coordinates that reach least into the unidentified space
        *_, order = qr(scores.eigenvectors[:, :identified].T, mode="economic", pivoting=True)
        self.v, self.u = np.sort(order[:identified]), np.sort(order[identified:])
        #: coordinates of u that the likelihood depends on
        self._entering = np.flatnonzero(np.isin(self.u, scores.data_coordinates))

    def __call__(self, u: Vector) -> tuple[float, Vector]:
        self.theta[self.u] = u
        try:
            self._hold_likelihood()
            value, slope = self._density()
        except np.linalg.LinAlgError:
            self.theta = self.place.copy()  # to set out from the next time
            return math.inf, np.zeros(u.size)
        if not (math.isfinite(value) and np.isfinite(slope).all()):
            return math.inf, np.zeros(u.size)
        return value, slope

    def _density(self) -> tuple[float, Vector]:
        gradient = self._prior_gradient(self.theta)
        value, slope = -float(self._log_prior(self.theta)), -gradient[self.u]
        if self._entering.size == 0:
            return value, slope
        information = self._scores.information(self.theta)
        follow = -cho_solve(self._factor(information), information[np.ix_(self.v, self.u)])
        half = self._half_log_determinant(information)
        value, slope = value + half, slope - follow.T @ gradient[self.v]
        for k in self._entering:
            near = self.theta.copy()
            near[self.u[k]] += _DIFFERENCE
            near[self.v] += _DIFFERENCE * follow[:, k]
            there = self._half_log_determinant(self._scores.information(near))
            slope[k] += (there - half) / _DIFFERENCE
        return value, slope

    def _hold_likelihood(self) -> None:
        """Solve for v, from where it was."""
        if self._entering.size == 0:
            return
        for _ in range(_ITERATIONS):
            if self._scores.distance(self.theta, self.place) < _HELD:
                return
            information, gradient = self._scores.least_squares(self.theta, self.place)
            self.theta[self.v] -= cho_solve(self._factor(information), gradient[self.v])
            if not np.isfinite(self.theta).all():
                break
        raise np.linalg.LinAlgError("The likelihood cannot be held.")

    def _factor(self, information: Matrix) -> tuple[Matrix, bool]:
        part = information[np.ix_(self.v, self.v)]
        if not np.isfinite(part).all():
            raise np.linalg.LinAlgError("The information is not finite.")
        return cho_factor(part)

    def _half_log_determinant(self, information: Matrix) -> float:
        return float(np.log(np.diag(self._factor(information)[0])).sum())
