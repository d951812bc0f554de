"""The posterior of synthetic records, explored freely: nothing in it is confidential."""

import gc
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import scipy
from pytensor.graph.replace import clone_replace

from pymc_dp.compat import models_in_context
from pymc_dp.curator.common_rows import shared_records
from pymc_dp.curator.curated import confidential_arrays, curated_models, read_freely
from pymc_dp.curator.likelihood import records_of
from pymc_dp.curator.model import RecordModel, record_model, sharded_models
from pymc_dp.curator.plan.clipping import Move
from pymc_dp.graph.rewrites import rebuilt
from pymc_dp.numerics.nuts_tuning import run_nuts
from pymc_dp.types import Matrix, Vector

_TUNE, _DRAWS, _TARGET_ACCEPT = 500, 4000, 0.9
_RECORDS = 4000  # that are made up where none are given


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
    known = [model for model in curated_models if model not in sharded_models]
    confidential = [confidential_arrays[model] for model in known if model in confidential_arrays]
    for model in [*known, *contexts]:
        # one that no curator's step would take, or no longer, has no records in this sense
        with suppress(ValueError):
            confidential.append(records_of(model))
    if sharded_models:
        gc.collect()  # of models that were let go: their cluster may be closed, and cannot be asked
    shards = [record_model(other).likelihood for other in sharded_models]
    for model in synthetic:
        own = records_of(model)
        shared = any(shared_records(*own, *other) for other in confidential)
        if shared or any(likelihood.shares(*own) for likelihood in shards):
            raise ValueError(
                "synthetic= has records of a confidential model, covariates or others, and "
                "settings would depend on them: simulate all of its arrays, or take public ones."
            )
    read_freely.update(synthetic)


def synthetic_models(
    synthetic: pm.Model | Sequence[pm.Model] | None, dim: int | None, prior_sd: float
) -> list[pm.Model]:
    """List the models to try settings on, or make one of normal records.

    Parameters
    ----------
    synthetic : pymc.Model, list of them or None
        What the caller passed; refused where it has confidential records.
    dim, prior_sd : int or None, float
        Without, parameters and their prior's standard deviation, which is a record's too.
    """
    if isinstance(synthetic, pm.Model):
        synthetic = [synthetic]
    if synthetic:
        refuse_confidential(synthetic)
        return list(synthetic)
    if dim is None:
        raise ValueError("Write synthetic=, a model with simulated records, or dim=.")
    records = prior_sd * np.random.default_rng(0).normal(size=(_RECORDS, dim))
    with pm.Model(model=None) as model:  # not a part of the one in context
        theta = pm.Normal("theta", 0, prior_sd, shape=dim)
        pm.Normal("y", theta, prior_sd, observed=records)
    return [model]


class SyntheticPosterior:
    """Posterior of synthetic records, weighted up to the number of confidential ones."""

    def __init__(
        self, model: pm.Model, n: int, start: dict[str, Any] | None, rng: np.random.Generator
    ) -> None:
        self.records = RecordModel(model, confidential=False)
        n_records, space = self.records.likelihood.n_records, self.records.space
        if n_records < 100:
            raise ValueError("synthetic= needs some thousands of records, a hundred at the least.")
        self.n, self.weight = n, n / n_records
        self.draws = self._explored(space.start if start is None else space.flatten(start), rng)

    def use_basis(self, basis: Matrix) -> None:
        """Choose the sampler's coordinates, the columns, for gradients and ``posterior_gradient``.

        Parameters
        ----------
        basis : ndarray
            As of :meth:`~pymc_dp.curator.model.RecordModel.posterior_gradient`.
        """
        self.data_columns = self.records.data_columns(basis)
        self.posterior_gradient = self.records.posterior_gradient(basis)
        self.records.gradients.prepare(basis[:, self.data_columns])

    def _explored(self, start: Vector, rng: np.random.Generator) -> Matrix:
        """Draws of the posterior by NUTS, from its mode."""
        density, records = self._compiled_density()

        def surprise(theta: Vector) -> tuple[float, Vector]:
            value, gradient = density(theta, records)
            return -float(value), -gradient

        found = scipy.optimize.minimize(surprise, start, jac=True, method="BFGS")
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

    def _compiled_density(self) -> tuple[Any, Vector]:
        """Log-density and gradient, a compiled function of the parameters and of all records.

        These side by side in one vector: written into the function they would have to be compiled.
        """
        likelihood = self.records.likelihood
        theta, rows, logp = likelihood.graph
        records, pieces, start = pt.dvector("records"), {}, 0
        for row, data in zip(rows, likelihood.data, strict=True):
            piece = records[start : start + data.size].reshape(data.shape)
            pieces[row] = piece.astype(row.dtype)
            start += data.size
        other, prior = self.records.prior_graph
        value = self.weight * rebuilt(logp, pieces).sum() + clone_replace(prior, {other: theta})
        function = pm.compile([theta, records], [value, pt.grad(value, theta)], mode="NUMBA")
        function.trust_input = True
        parts = [np.ravel(data) for data in likelihood.data]
        return function, np.concatenate(parts, dtype=np.float64)


def moves_between_draws(
    targets: Sequence[SyntheticPosterior],
    length: Callable[[SyntheticPosterior, Vector, Vector], float],
    rng: np.random.Generator,
) -> list[Move]:
    """Log-ratios of records between some draws of each posterior, over the lengths of the moves."""
    moves = []
    for target in targets:
        for one, other in target.draws[rng.integers(len(target.draws), size=(60, 2))]:
            if (apart := length(target, one, other)) > 0:
                logp = target.records.likelihood
                moves.append(Move((logp(one) - logp(other)) / apart, apart, target.weight))
    return moves


def covariance(draws: Matrix) -> Matrix:
    """Covariance of draws, one a row, as a matrix that can be factorised."""
    return _symmetric(np.cov(draws.T).reshape(draws.shape[1], -1))


def _symmetric(matrix: Matrix) -> Matrix:
    scale = np.sqrt(np.diag(matrix))
    return (matrix + matrix.T) / 2 + 1e-9 * np.diag(scale**2)
