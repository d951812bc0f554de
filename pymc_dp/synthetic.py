"""The posterior of synthetic records, explored freely: nothing in it is confidential."""

import math
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from scipy.optimize import minimize

from pymc_dp.gradients import RecordGradients
from pymc_dp.kernels.leapfrog import leapfrog
from pymc_dp.likelihood import FlatSpace, RecordLikelihood, compile_prior, compile_prior_gradient

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


class SyntheticPosterior:
    """Posterior of synthetic records, weighted up to the number of confidential ones."""

    def __init__(
        self, model: pm.Model, n: int, start: dict[str, Any] | None, rng: np.random.Generator
    ) -> None:
        self.space = FlatSpace(model)
        self.likelihood = RecordLikelihood(model, self.space)
        if self.likelihood.n_records < 100:
            raise ValueError("synthetic= needs some thousands of records, a hundred at the least.")
        self.gradients = RecordGradients(self.likelihood)
        self.log_prior = compile_prior(model, self.space)
        self.prior_gradient = compile_prior_gradient(model, self.space)
        self.weight = n / self.likelihood.n_records
        self.gradients.prepare(np.eye(self.space.size))
        self.draws = self._explored(
            self.space.start if start is None else self.space.flatten(start), rng
        )

    def log_density(self, theta: Vector) -> float:
        """Log-density of the posterior, up to a constant."""
        return self.weight * float(self.likelihood(theta).sum()) + float(self.log_prior(theta))

    def gradient(self, theta: Vector) -> Vector:
        """Gradient of the log-density."""
        total = sum(block.sum(axis=1) for block in self.gradients.jacobians(theta))
        return self.weight * total + self.prior_gradient(theta)

    def _explored(self, start: Vector, rng: np.random.Generator) -> Matrix:
        """Draws of the posterior by plain HMC, its mass learnt round by round."""
        found = minimize(
            lambda t: -self.log_density(t),
            start,
            jac=lambda t: -self.gradient(t),
            method="BFGS",
        )
        theta, root = found.x, np.linalg.cholesky(_symmetric(found.hess_inv))
        step_size, draws = 0.3, np.empty((0, theta.size))
        for length in (100, 200, 900):
            kept = []
            for _ in range(length):
                theta, accepted = self._move(theta, root, step_size, rng)
                step_size *= math.exp(0.05 * (accepted - 0.8)) if length < 900 else 1.0
                kept.append(theta)
            draws = np.array(kept[length // 4 :])
            root = np.linalg.cholesky(covariance(draws))
        return draws

    def _move(
        self, theta: Vector, root: Matrix, step_size: float, rng: np.random.Generator
    ) -> tuple[Vector, bool]:
        momentum = rng.normal(size=theta.size)

        def force(place: Vector) -> Vector:
            return root.T @ self.gradient(place)

        # steps of many sizes, for the tails of posteriors that are curved
        step_size *= 0.1 ** rng.uniform()
        end = leapfrog(force, theta, root, momentum, step_size, int(rng.integers(3, 16)))
        gain = self.log_density(end.theta) - self.log_density(theta)
        gain += float(momentum @ momentum - end.momentum @ end.momentum) / 2
        accepted = bool(-rng.standard_exponential() < gain)
        return (end.theta if accepted else theta), accepted


def covariance(draws: Matrix) -> Matrix:
    """Covariance of draws, one a row, as a matrix that can be factorised."""
    return _symmetric(np.cov(draws.T).reshape(draws.shape[1], -1))


def _symmetric(matrix: Matrix) -> Matrix:
    scale = np.sqrt(np.diag(matrix))
    return (matrix + matrix.T) / 2 + 1e-9 * np.diag(scale**2)
