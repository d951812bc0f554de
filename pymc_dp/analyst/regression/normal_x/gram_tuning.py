"""What NormalX learns while tuning: coordinates and step size of the Gram matrices' moves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pymc_dp.analyst.regression.normal_x.gram import Rows
from pymc_dp.analyst.regression.normal_x.gram_moves import whitening
from pymc_dp.analyst.regression.normal_x.iteration import (
    Priors,
    Proposal,
    Releases,
    State,
    whitened_place,
)
from pymc_dp.numerics.dual_averaging import DualAveraging, window_closes
from pymc_dp.numerics.normal_mixture import mean_variances
from pymc_dp.numerics.positive import nearest_positive, positive_root
from pymc_dp.numerics.wishart import bartlett
from pymc_dp.types import Array

__all__ = ["GramTuning", "pooled"]


#: length of a trajectory: a quarter turn where coordinates are standard normal
TRAJECTORY = 1.6
MOST_LEAPFROG = 64


#: shares of tuning after which the coordinates' axes, or their scales, are learned anew
AXES = (0.1, 0.2, 0.4)
SCALES = (0.65, 0.85)


@dataclass
class GramTuning:
    """Coordinates B, whitening W and step size, and the averages they are learned from."""

    B: Array
    B_inverse: Array
    W: Array
    degrees: Array
    moments: Array  # sum of all S_j in this window
    sums: Array  # of the whitened coordinates, and of their squares
    tune: int
    active: bool
    step: DualAveraging
    count: int = 0
    window_start: int = 0
    seen: int = 0  # coordinates in the sums

    @classmethod
    def start(cls, releases: Releases, priors: Priors, tune: int) -> GramTuning:
        """Begin from the released matrices, made positive."""
        holders, p = releases.z_hat.shape
        B, W = _coordinates(pooled(releases), releases, priors)
        return cls(
            B=B,
            B_inverse=np.linalg.inv(B),
            W=W,
            degrees=np.maximum(releases.n, 10.0 * p),
            moments=np.zeros((p, p)),
            sums=np.zeros((2, holders + 1, p, p)),
            tune=tune,
            active=tune > 0,
            step=DualAveraging(step_size=0.5, longest=TRAJECTORY),
        )

    def first_matrices(self, rng: np.random.Generator, releases: Releases) -> Array:
        """Draw Gram matrices to start a chain from, as if the released ones were the rows' law."""
        p = len(self.B)
        S = np.empty((releases.n.size, p, p))
        for j, n in enumerate(releases.n):
            A = bartlett(rng, p, n)
            if releases.first:
                A[0, 0] = np.sqrt(n)
            root = self.B @ A
            S[j] = root @ root.T
        return S

    def freeze(self) -> None:
        """End of tuning."""
        self.step.freeze()
        self.active = False

    def n_leapfrog(self, rng: np.random.Generator) -> int:
        """Random number of leapfrog steps, about a quarter turn."""
        longest = TRAJECTORY / self.step.step_size
        return int(np.clip(np.ceil(longest * rng.uniform(0.5, 1.0)), 1, MOST_LEAPFROG))

    def proposal(self, rng: np.random.Generator, hamiltonian: bool = True) -> Proposal:
        """Return the next move, its step size and length a little random."""
        return Proposal(
            self.B,
            self.B_inverse,
            self.W,
            self.step.step_size * rng.uniform(0.9, 1.1),
            self.n_leapfrog(rng),
            None if hamiltonian else self.degrees,
        )

    def learn(
        self,
        state: State,
        accept: Array,
        hamiltonian: bool,
        target: float,
        releases: Releases,
        priors: Priors,
    ) -> None:
        """Adapt to one more iteration; never called after tuning."""
        self.count += 1
        if not hamiltonian:
            pull = (target - accept) * 5 / self.count**0.6
            self.degrees = np.maximum(self.degrees * np.exp(pull), len(self.B) + 1.0)
            return
        self.step.learn(float(accept[0]), target)
        self.moments += state.S.sum(axis=0)
        where = (state.S, state.mean, state.cov, releases.n, releases.first)
        xi = whitened_place(*where, self.B_inverse, self.W)
        if np.all(np.isfinite(xi)):
            self.sums += xi, xi**2
            self.seen += 1
        for shares, learn in ((AXES, self._learn_axes), (SCALES, self._learn_scales)):
            if window_closes(self.count, self.tune, shares):
                learn(releases, priors)
                self.moments, self.sums = np.zeros_like(self.moments), np.zeros_like(self.sums)
                self.seen = 0
                self.window_start = self.count
                self.step.restart(near=2 * self.step.step_size)

    def _learn_axes(self, releases: Releases, priors: Priors) -> None:
        length = self.count - self.window_start
        moments = self.moments / (length * releases.n.sum())
        self.B, self.W = _coordinates(moments, releases, priors)
        self.B_inverse = np.linalg.inv(self.B)

    def _learn_scales(self, releases: Releases, priors: Priors) -> None:
        length = self.seen
        mean, square = self.sums / max(length, 1)
        variance = square - mean**2
        # shrunk towards what the curvature says, as Stan does for its metric
        variance = (length * variance + 5) / (length + 5)
        scaled = self.W * np.sqrt(np.moveaxis(variance, 0, -1))[:, :, None, :]
        self.W = np.ascontiguousarray(scaled)


def pooled(releases: Releases) -> Array:
    """Second moments of the rows from the released matrices, made positive definite."""
    total = releases.n.sum()
    moments = releases.S_hat.sum(axis=0) / total
    spread = np.sqrt(np.max(np.sum(releases.S_noise**2, axis=0))) / total
    if releases.first:
        moments[0, 0] = 1.0
        mean = moments[1:, 0]
        moments[1:, 1:] = _lifted(moments[1:, 1:] - np.outer(mean, mean), spread)
        moments[1:, 1:] += np.outer(mean, mean)
        return moments
    return _lifted(moments, spread)


def _lifted(matrix: Array, spread: float) -> Array:
    """Raise eigenvalues to what the noise leaves undecided."""

    def floor(values: Array) -> float:
        return max(0.5 * spread, 1e-8 * float(np.abs(values).max()), 1e-300)

    return nearest_positive(matrix, floor)[0]


def _coordinates(moments: Array, releases: Releases, priors: Priors) -> tuple[Array, Array]:
    """Coordinates B along the principal axes of the rows, and their whitening."""
    first = releases.first
    B = np.eye(len(moments))
    inner = moments[first:, first:]
    if first:
        B[1:, 0] = moments[1:, 0]
        inner = inner - np.outer(moments[1:, 0], moments[1:, 0])
    # large eigenvalues first: a factor's later entries are conditional on its earlier ones
    B[first:, first:] = positive_root(inner, lambda values: 1e-12 * float(values[-1]))[:, ::-1]
    variance = mean_variances(releases.S_noise, releases.S_laplace)
    with np.errstate(divide="ignore"):
        weight = np.where(variance > 0, 1 / variance, 0.0)
    z_variance = mean_variances(releases.z_noise, releases.z_laplace)
    rows = Rows(releases.n, first, releases.S_hat, weight, releases.z_hat, z_variance)
    B_inverse = np.linalg.inv(B)
    scale = B_inverse @ priors.rows_scale @ B_inverse.T
    return B, whitening(B, scale, priors.rows_nu, rows)
