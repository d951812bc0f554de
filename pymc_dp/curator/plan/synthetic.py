"""The posterior of synthetic records, explored freely: nothing in it is confidential."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.replace import clone_replace
from scipy.optimize import minimize

from pymc_dp.compat import models_in_context
from pymc_dp.curator.confidential import shared_records
from pymc_dp.curator.gradients import RecordGradients
from pymc_dp.curator.likelihood import (
    RecordLikelihood,
    compile_prior,
    compile_prior_gradient,
    log_prior,
    rebuilt,
    records_of,
)
from pymc_dp.curator.steps.base import curated_models
from pymc_dp.graph.vector import FlatSpace
from pymc_dp.numerics.nuts_tuning import run_nuts
from pymc_dp.types import Matrix, Vector

_TUNE, _DRAWS, _TARGET_ACCEPT = 500, 4000, 0.9


def refuse_confidential(synthetic: Sequence[pm.Model]) -> None:
    """Refuse models with records of a model that is known to be confidential.

    Known are models that curators' steps were made for, and the one in context.
    """
    contexts = models_in_context()
    for model in synthetic:
        if model in contexts or model in curated_models:
            raise ValueError(
                "synthetic= is the model in context, or one that a curator's step was made for: "
                "pass another one with simulated or public records, outside of its context."
            )
    confidential = [records_of(model) for model in curated_models]
    for model in contexts:
        # one that no curator's step would take has no records in this sense
        with suppress(ValueError):
            confidential.append(records_of(model))
    for model in synthetic:
        own = records_of(model)
        if any(shared_records(*own, *other) for other in confidential):
            raise ValueError(
                "synthetic= has records of a confidential model, covariates or others, and "
                "settings would depend on them: simulate all of its arrays, or take public ones."
            )


class SyntheticPosterior:
    """Posterior of synthetic records, weighted up to the number of confidential ones."""

    def __init__(
        self, model: pm.Model, n: int, start: dict[str, Any] | None, rng: np.random.Generator
    ) -> None:
        self.space = FlatSpace(model)
        self.likelihood = RecordLikelihood(model, self.space, confidential=False)
        if self.likelihood.n_records < 100:
            raise ValueError("synthetic= needs some thousands of records, a hundred at the least.")
        self.gradients = RecordGradients(self.likelihood)
        self.log_prior = compile_prior(model, self.space)
        self.prior_gradient = compile_prior_gradient(model, self.space)
        self.n, self.weight = n, n / self.likelihood.n_records
        self.gradients.prepare(np.eye(self.space.size))
        begin = self.space.start if start is None else self.space.flatten(start)
        self.draws = self._explored(model, begin, rng)

    def _explored(self, model: pm.Model, start: Vector, rng: np.random.Generator) -> Matrix:
        """Draws of the posterior by NUTS, from its mode."""
        density, records = self._compiled_density(model)

        def surprise(theta: Vector) -> tuple[float, Vector]:
            value, gradient = density(theta, records)
            return -float(value), -gradient

        found = minimize(surprise, start, jac=True, method="BFGS")
        return run_nuts(
            density,
            found.x,
            records,
            np.linalg.cholesky(_symmetric(found.hess_inv)),
            tune=_TUNE,
            draws=_DRAWS,
            target_accept=_TARGET_ACCEPT,
            rng=rng,
        )

    def _compiled_density(self, model: pm.Model) -> tuple[Any, Vector]:
        """Log-density and gradient, a compiled function of the parameters and of all records.

        These side by side in one vector: written into the function they would have to be compiled.
        """
        theta, rows, logp = self.likelihood.graph
        records, pieces, start = pt.dvector("records"), {}, 0
        for row, data in zip(rows, self.likelihood.data, strict=True):
            piece = records[start : start + data.size].reshape(data.shape)
            pieces[row] = piece.astype(row.dtype)
            start += data.size
        other, (prior,) = self.space.on_vector([log_prior(model)])
        value = self.weight * rebuilt(logp, pieces).sum() + clone_replace(prior, {other: theta})
        function = pm.compile([theta, records], [value, pt.grad(value, theta)], mode="NUMBA")
        function.trust_input = True
        parts = [np.ravel(data) for data in self.likelihood.data]
        return function, np.concatenate(parts, dtype=np.float64)


def covariance(draws: Matrix) -> Matrix:
    """Covariance of draws, one a row, as a matrix that can be factorised."""
    return _symmetric(np.cov(draws.T).reshape(draws.shape[1], -1))


def _symmetric(matrix: Matrix) -> Matrix:
    scale = np.sqrt(np.diag(matrix))
    return (matrix + matrix.T) / 2 + 1e-9 * np.diag(scale**2)
