"""Fisher scoring with clipped scores, calibrated on records simulated at the current place."""

import math
from typing import NamedTuple

import numpy as np
import pymc as pm

from pymc_dp.curator.model import RecordModel
from pymc_dp.types import Matrix, Vector

_QUANTILES = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 1.0)  # for the bound
_RANK = 1e-6  # relative information below which a direction is left to the prior
_UNLIKE = 0.25  # part of the clip's shift that simulated records may get wrong


class NoScoresError(ValueError):
    """Simulated records do not tell where to go."""


class ScoringStep(NamedTuple):
    """How a noised sum of clipped scores becomes a step, and how far off that may be.

    Errors are in standard deviations that the likelihood tells a coordinate to, root mean square.
    """

    bound: float
    inverse: Matrix
    offset: Vector
    noise_error: float
    clip_error: float

    @property
    def variance(self) -> float:
        """Both errors' mean square."""
        return self.noise_error**2 + self.clip_error**2

    def move(self, total: Vector) -> Vector:
        """Where the likelihood's maximum is from here, as a sum of clipped scores tells."""
        return self.inverse @ total + self.offset


class SimulatedScores:
    """Scores of simulated records at the place they were simulated at, weighted up to n.

    Parameters
    ----------
    model : pymc.Model
        With simulated records observed, which are read freely.
    theta : ndarray
        The place.
    n : int
        Number of confidential records.
    like : RecordModel, optional
        Records of the same model, perhaps: what is compiled for them serves here.

    Attributes
    ----------
    axes : ndarray
        Columns are coordinates in which the information of n records is the identity, followed by
        those the likelihood does not depend on.
    basis : ndarray
        The former.
    data_coordinates : ndarray
        Coordinates that the likelihood depends on.
    eigenvectors : ndarray
        Of the information in coordinates of which each has information 1, largest first.
    """

    def __init__(
        self, model: pm.Model, theta: Vector, n: int, like: RecordModel | None = None
    ) -> None:
        self.records = RecordModel(model, confidential=False, like=like)
        likelihood = self.records.likelihood
        if likelihood.n_records < 100:
            raise ValueError(
                f"simulate= returned a model with {likelihood.n_records} records: simulate about "
                "as many as there are confidential ones, some hundreds at the least."
            )
        self.n, self.weight = n, n / likelihood.n_records
        self.data_coordinates = likelihood.data_coordinates
        self._likelihood, self._gradients = likelihood, self.records.gradients
        self._gradients.prepare(np.eye(theta.size))
        self.theta, scores = theta, self._jacobian(theta)
        with np.errstate(all="ignore"):
            information = self.weight * scores @ scores.T
        if not np.isfinite(information).all() or not information.any():
            raise NoScoresError(
                f"Records simulated at {theta} (unconstrained) have no gradient there, or an "
                "infinite one: write another start=, or a prior that keeps away from such values."
            )
        self.eigenvectors, self.axes, rank = _standard_axes(information)
        self.basis = self.axes[:, :rank]
        self._scores = self.basis.T @ scores

    def information(self, theta: Vector) -> Matrix:
        """Information of n records at another place, as these records tell."""
        jacobian = self._jacobian(theta)
        return self.weight * jacobian @ jacobian.T

    def distance(self, theta: Vector, other: Vector) -> float:
        """How far apart two places are in standard deviations, as log-ratios of records tell.

        Root mean square over the coordinates that records identify. Unlike a difference of
        parameters, it is zero where both places give records the same likelihood.
        """
        squares = self.weight * float(np.sum(self._log_ratios(theta, other) ** 2))
        return math.sqrt(squares / self.basis.shape[1])

    def coordinates(self, theta: Vector) -> Vector:
        """Coordinates of a place in the basis, from here, as log-ratios of records tell."""
        return self.weight * self._scores @ self._log_ratios(theta, self.theta)

    def least_squares(self, theta: Vector, other: Vector) -> tuple[Matrix, Vector]:
        """Give the normal equations, at a place, for log-ratios of zero against another."""
        jacobian = self._jacobian(theta)
        gradient = self.weight * jacobian @ self._log_ratios(theta, other)
        return self.weight * jacobian @ jacobian.T, gradient

    def _jacobian(self, theta: Vector) -> Matrix:
        with np.errstate(all="ignore"):
            return np.hstack(list(self._gradients.jacobians(theta)))

    def _log_ratios(self, theta: Vector, other: Vector) -> Vector:
        """Log-likelihood ratios of the simulated records; not-a-number is a likelihood of zero."""
        new, old = (
            np.where(np.isnan(each), -math.inf, each)
            for each in (self._likelihood(theta), self._likelihood(other))
        )
        return np.where(new == old, 0.0, new - old)

    def standardised(self, move: Vector) -> Vector:
        """Coordinates of a move in the basis."""
        return np.linalg.solve(self.axes, move)[: self.basis.shape[1]]

    def log_ratio(self, move: Vector) -> float:
        """By how much a move in the basis changes log-likelihoods of records, about."""
        return float(np.linalg.norm(move)) / math.sqrt(self.n)

    def step(self, noise: float) -> ScoringStep:
        """Clip where the error of the step is least.

        Parameters
        ----------
        noise : float
            Standard deviation of the noise in the sum of clipped scores, over the bound.
        """
        lengths = np.linalg.norm(self._scores, axis=0)
        bounds = np.unique(np.quantile(lengths, _QUANTILES))
        steps = [self._clipped(float(bound), lengths, noise) for bound in bounds if bound > 0]
        return min(steps, key=lambda step: step.variance)

    def _clipped(self, bound: float, lengths: Vector, noise: float) -> ScoringStep:
        scores, size = self._scores, len(self._scores)
        clipped = scores * np.minimum(1, bound / np.maximum(lengths, 1e-300))
        inverse = np.linalg.inv(self.weight * clipped @ scores.T)
        # a record's part after clipping less that before: its mean is made up for, and depends on
        # the simulated records; its spread is that of the confidential ones and of the simulated
        changed = inverse @ clipped - scores
        offset = -self.weight * changed.sum(axis=1)
        spread = self.n * (1 + self.weight) * changed.var(axis=1).sum()
        shift = _UNLIKE * float(np.linalg.norm(offset))
        return ScoringStep(
            bound=bound,
            inverse=inverse,
            offset=offset,
            noise_error=noise * bound * float(np.linalg.norm(inverse)) / math.sqrt(size),
            clip_error=math.sqrt((spread + shift**2) / size),
        )


def _standard_axes(information: Matrix) -> tuple[Matrix, Matrix, int]:
    """Eigenvectors of scaled information, axes in which it is the identity, and its rank."""
    scale = np.sqrt(np.diag(information))
    scale[scale == 0] = 1.0
    found, vectors = np.linalg.eigh(information / np.outer(scale, scale))
    found, vectors = found[::-1], vectors[:, ::-1]
    identified = found > _RANK * found[0]
    axes = vectors / scale[:, None] / np.sqrt(np.where(identified, found, 1.0))
    return vectors, axes, int(identified.sum())
