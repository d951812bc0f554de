"""Settings of DPHMC: what is accepted, and what to write instead of the rest."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike

from pymc_dp.curator.likelihood import RecordLikelihood
from pymc_dp.curator.model import RecordModel
from pymc_dp.curator.steps.penalty import check_penalty
from pymc_dp.types import Matrix


@dataclass(frozen=True, kw_only=True, eq=False)
class HMCSettings:
    """How :class:`~pymc_dp.DPHMC` moves, under the names of its arguments.

    ``DPHMC(settings=found)`` and ``DPHMC(**found)`` are the same.

    Examples
    --------
    >>> from pymc_dp.curator.steps.hmc_settings import HMCSettings
    >>> found = HMCSettings(clip_logp=3, clip_grad=2, step_size=0.1, n_leapfrog=5)
    >>> found.jitter, dict(found)
    (0.25, {'clip_logp': 3.0, 'clip_grad': 2.0, 'step_size': 0.1, 'n_leapfrog': 5})
    """

    clip_logp: float
    clip_grad: float
    step_size: float
    n_leapfrog: int
    inverse_mass: ArrayLike | None = None
    public: pm.Model | None = None
    grad_share: float = 0.5
    grad_scale: float = 1.0
    jitter: float = 0.25
    tempering: float = 1.0

    def __post_init__(self) -> None:
        check_penalty(self.clip_logp, self.tempering)
        if not 1e-100 < self.clip_grad < 1e100:
            raise ValueError(f"clip_grad must be positive and finite, not {self.clip_grad!r}.")
        _check_step_size(self.step_size)
        if self.n_leapfrog != int(self.n_leapfrog) or self.n_leapfrog < 1:
            raise ValueError(f"n_leapfrog must be a whole number >= 1, not {self.n_leapfrog!r}.")
        if not 0 < self.grad_share < 1:
            raise ValueError(f"grad_share must lie in (0, 1), not {self.grad_share!r}.")
        if not 0 < self.grad_scale < math.inf:
            raise ValueError(f"grad_scale must be positive and finite, not {self.grad_scale!r}.")
        if not 0 <= self.jitter < 1:
            raise ValueError(f"jitter must lie in [0, 1), not {self.jitter!r}.")
        for field in fields(self):
            if field.type in (float, int):
                object.__setattr__(self, field.name, field.type(getattr(self, field.name)))

    @classmethod
    def of(cls, settings: "HMCSettings | None", **changes: Any) -> "HMCSettings":
        """Change settings, or make them anew; ``path_length`` may stand for ``n_leapfrog``."""
        path_length = changes.pop("path_length", None)
        if settings is not None:
            kept = dict(settings)
            if path_length is not None:
                del kept["n_leapfrog"]
            changes = kept | changes
        if (changes.get("n_leapfrog") is None) == (path_length is None):
            raise ValueError("Write one of n_leapfrog= and path_length=.")
        if path_length is not None:
            if not 0 < path_length < math.inf:
                raise ValueError(f"path_length must be positive and finite, not {path_length!r}.")
            _check_step_size(step_size := changes.get("step_size", math.nan))
            changes["n_leapfrog"] = max(1, round(path_length / float(step_size)))
        return cls(**changes)

    def keys(self) -> Iterator[str]:
        """Names of the settings that are not at their default."""
        for field in fields(self):
            value = getattr(self, field.name)
            if np.ndim(value) or value != field.default:
                yield field.name

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)


def _check_step_size(step_size: float) -> None:
    if np.ndim(step_size) or not 0 < step_size < math.inf:
        raise ValueError(
            f"step_size must be a positive, finite number, not {step_size!r}; write scales of the "
            "coordinates as inverse_mass=."
        )


def public_likelihood(
    public: pm.Model | None, model: pm.Model, confidential: RecordModel
) -> RecordLikelihood | None:
    """Log-likelihood of public records, over the same vector as that of the confidential ones."""
    if public is None:
        return None
    if public is model:
        raise ValueError("public= is this model, whose records are confidential.")
    own, space = RecordModel(public, confidential=False), confidential.space
    if list(own.space.shapes.items()) != list(space.shapes.items()):
        raise ValueError(
            "public= must have the same variables as the model, "
            f"{space.names}, not {own.space.names}."
        )
    if own.likelihood.has_records_of(confidential.likelihood):
        raise ValueError(
            "public= has records of this model, covariates or others, which are confidential; what "
            "is published would depend on them without noise. Simulate all of its arrays, or take "
            "public ones."
        )
    return own.likelihood


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
