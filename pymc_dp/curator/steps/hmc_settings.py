"""Settings of DPHMC: what is accepted, and what to write instead of the rest."""

import math

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike

from pymc_dp.curator.likelihood import RecordLikelihood
from pymc_dp.graph.vector import FlatSpace
from pymc_dp.types import Matrix


def leapfrog_steps(
    step_size: float, n_leapfrog: int | None, path_length: float | None
) -> tuple[float, int]:
    """Size and number of leapfrog steps."""
    if np.ndim(step_size) or not 0 < step_size < math.inf:
        raise ValueError(
            f"step_size must be a positive, finite number, not {step_size!r}; write scales of the "
            "coordinates as inverse_mass=."
        )
    if (n_leapfrog is None) == (path_length is None):
        raise ValueError("Write one of n_leapfrog= and path_length=.")
    if path_length is not None:
        if not 0 < path_length < math.inf:
            raise ValueError(f"path_length must be positive and finite, not {path_length!r}.")
        n_leapfrog = max(1, round(path_length / float(step_size)))
    assert n_leapfrog is not None
    if n_leapfrog != int(n_leapfrog) or n_leapfrog < 1:
        raise ValueError(f"n_leapfrog must be a whole number >= 1, not {n_leapfrog!r}.")
    return float(step_size), int(n_leapfrog)


def check_numbers(clip_grad: float, grad_share: float, grad_scale: float, jitter: float) -> None:
    """Refuse what no trajectory can be made with."""
    if not 1e-100 < clip_grad < 1e100:
        raise ValueError(f"clip_grad must be positive and finite, not {clip_grad!r}.")
    if not 0 < grad_share < 1:
        raise ValueError(f"grad_share must lie in (0, 1), not {grad_share!r}.")
    if not 0 < grad_scale < math.inf:
        raise ValueError(f"grad_scale must be positive and finite, not {grad_scale!r}.")
    if not 0 <= jitter < 1:
        raise ValueError(f"jitter must lie in [0, 1), not {jitter!r}.")


def public_likelihood(
    public: pm.Model, space: FlatSpace, confidential: RecordLikelihood
) -> RecordLikelihood:
    """Log-likelihood of public records, over the same vector as that of the confidential ones."""
    own = FlatSpace(public)
    if list(own.shapes.items()) != list(space.shapes.items()):
        raise ValueError(
            f"public= must have the same variables as the model, {space.names}, not {own.names}."
        )
    likelihood = RecordLikelihood(public, own, confidential=False)
    if likelihood.has_records_of(confidential):
        raise ValueError(
            "public= has records of this model, covariates or others, which are confidential; what "
            "is published would depend on them without noise. Simulate all of its arrays, or take "
            "public ones."
        )
    return likelihood


def square_root(inverse_mass: ArrayLike | None, size: int) -> Matrix:
    """Matrix A with A A' = inverse mass."""
    mass = np.asarray(1.0 if inverse_mass is None else inverse_mass, dtype=float)
    if mass.shape not in ((), (size,), (size, size)):
        raise ValueError(
            f"inverse_mass must be a number, {size} variances or a matrix of {size} by {size}, one "
            f"for each unconstrained coordinate, not of shape {mass.shape}."
        )
    try:
        if mass.ndim == 2:
            if not np.allclose(mass, mass.T):
                raise np.linalg.LinAlgError
            return np.linalg.cholesky(mass)
        if not np.all((mass > 0) & np.isfinite(mass)):
            raise np.linalg.LinAlgError
    except np.linalg.LinAlgError:
        raise ValueError(
            "inverse_mass must be positive (definite), symmetric and finite: a covariance matrix, "
            "or variances."
        ) from None
    return np.diag(np.broadcast_to(np.sqrt(mass), (size,)))
