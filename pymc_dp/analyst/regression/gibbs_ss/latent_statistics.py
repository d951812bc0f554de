"""One latent vector of regression statistics and its releases, ready to be drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.blocking import PointType
from pymc.pytensorf import compile as pm_compile
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors, explicit_graph_inputs
from pytensor.tensor.variable import TensorVariable
from scipy.linalg import lapack

from pymc_dp.analyst.regression.distribution import RegressionStatisticsRV
from pymc_dp.analyst.regression.known_maps import check_known
from pymc_dp.analyst.release import Release, by_name, releases
from pymc_dp.graph.intervals import ONCE
from pymc_dp.holder.regression_statistics import checked_count
from pymc_dp.mechanisms import Gaussian, Laplace
from pymc_dp.numerics.normal_mixture import laplace_variances, mean_variances
from pymc_dp.numerics.positive import positive_root
from pymc_dp.types import Array

__all__ = ["LatentStatistics", "check_only_released", "latent_statistics", "linear_map"]


def latent_statistics(model: pm.Model) -> list[TensorVariable]:
    """Latent regression statistics of a model, in the order of declaration."""
    return [rv for rv in model.free_RVs if isinstance(rv.owner.op, RegressionStatisticsRV)]


class LatentStatistics:
    """Regression statistics s with linear releases z = H s + c + noise.

    Parameters
    ----------
    model : Model
        The model.
    s : TensorVariable
        The latent statistics.
    compile_kwargs : dict, optional
        Passed to the compilation.
    """

    def __init__(self, model: pm.Model, s: TensorVariable, compile_kwargs: Any = None) -> None:
        self.rv = s
        self.op: RegressionStatisticsRV = s.owner.op
        self.layout = self.op.layout
        self.params = s.owner.inputs[2:]
        self.value_name = str(model.rvs_to_values[s].name)
        found = by_name(r for r in releases(model) if s in ancestors([r.statistic]))
        check_only_released(model, s, found)
        maps = [linear_map(release, s, self.layout.size) for release in found]
        self.map = np.concatenate([rows for rows, _ in maps])
        self.offset = np.concatenate([offset for _, offset in maps])
        self.whole = np.array_equal(self.map, np.eye(self.layout.size))
        sizes = [len(offset) for _, offset in maps]
        self.noise = np.concatenate(
            [_noise_of(r, size) for r, size in zip(found, sizes, strict=True)]
        )
        self.laplace = np.concatenate(
            [
                np.full(size, isinstance(r.mechanism, Laplace))
                for r, size in zip(found, sizes, strict=True)
            ]
        )
        self.variance_name = f"{s.name}_noise_variance__"
        self.observed: Any = pt.concatenate(
            [pt.as_tensor(model.rvs_to_values[r.rv]).astype("float64").ravel() for r in found]
        )
        mean, cov = self.op.mean_and_cov(*self.params)
        outputs = model.replace_rvs_by_values([mean, cov])
        needed = set(explicit_graph_inputs(outputs))
        inputs = [v for v in model.value_vars if v in needed]
        self.input_names = [str(v.name) for v in inputs]
        self._moments = pm_compile(inputs, outputs, **(compile_kwargs or {}))
        self._moments.trust_input = True
        n = self.params[0]
        if any(v in model.basic_RVs for v in ancestors([n])):
            n = pt.as_tensor(np.nan)  # latent: enters the normal law alone
        self._released = pytensor.function([], [self.observed, n], mode=ONCE)
        self.read_release()

    def read_release(self) -> None:
        """Take released values and number of records, which ``pm.set_data`` may have changed."""
        released, n = self._released()
        self.released = released - self.offset
        self.n = float(n) if np.isnan(n) else checked_count(float(n))

    def first_variances(self) -> Array:
        """Return the noise's variances to start from."""
        return mean_variances(self.noise, self.laplace)

    def conditional(
        self, point: PointType, variances: Array
    ) -> Callable[[np.random.Generator], Array]:
        """Return a function that draws the statistics given parameters and release.

        A draw of (s, z) from the model is moved by the difference of the real and the drawn
        release, regressed on it: one Cholesky factor of a well-conditioned matrix, no inverse.
        """
        mean, cov = self._moments(*(point[name] for name in self.input_names))
        root = _root(cov)
        seen = cov if self.whole else cov @ self.map.T
        spread = seen.copy() if self.whole else self.map @ seen
        spread[np.diag_indices_from(spread)] += variances
        factor, failed = lapack.dpotrf(spread, lower=True)
        if failed:
            raise np.linalg.LinAlgError(f"The covariance of the release of {self.rv.name!r}.")
        sd = np.sqrt(variances)

        def draw(rng: np.random.Generator) -> Array:
            s = mean + root @ rng.standard_normal(len(mean))
            noise = sd * rng.standard_normal(len(sd))
            gap = self.released - (s if self.whole else self.map @ s) - noise
            weights, _ = lapack.dpotrs(factor, gap, lower=True)
            return s + seen @ weights

        return draw

    def draw_variances(self, s: Array, rng: np.random.Generator) -> Array:
        """Draw the variances of the noise given the statistics."""
        residual = self.released - self.map @ s
        return np.where(self.laplace, laplace_variances(rng, residual, self.noise), self.noise**2)

    def is_valid(self, s: Array) -> bool:
        """Whether [X, y]'[X, y] is positive definite."""
        _, failed = lapack.dpotrf(self.layout.gram(s, self.n), lower=True)
        return not failed

    def log_marginal(self, variances: TensorVariable) -> TensorVariable:
        """Symbolic log-density of the release with the statistics integrated out."""
        mean, cov = self.op.mean_and_cov(*self.params)
        if not self.whole:
            mean, cov = self.map @ mean, self.map @ cov @ self.map.T
        law = pm.MvNormal.dist(mean, cov=cov + pt.diag(variances))
        return pm.logp(law, self.observed - self.offset)

    def log_likelihood(self, value: TensorVariable) -> TensorVariable:
        """Symbolic log-likelihood of the parameters as if the records were normal and seen."""
        n, coef, sigma2, mean, cov = self.params
        d, p = self.layout.n_covariates, self.layout.n_features
        i, j = self.layout.pairs.T
        gram = pt.zeros((p + 1, p + 1))[i, j].set(value)
        gram = gram[j, i].set(value)
        if self.layout.intercept:
            gram = gram[p - 1, p - 1].set(n)
        contrast = pt.concatenate([-coef, np.ones(1)])
        total = -0.5 * n * pt.log(sigma2) - contrast @ gram @ contrast / (2 * sigma2)
        if not self.op.normal:
            return total
        sums = gram[:d, p - 1] if self.layout.intercept else pt.zeros(d)
        cross = pt.outer(sums, mean)
        squares = gram[:d, :d] - cross - cross.T + n * pt.outer(mean, mean)
        factor = pt.linalg.cholesky(cov)
        trace = pt.trace(pt.linalg.cho_solve((factor, True), squares))
        return total - n * pt.log(pt.diagonal(factor)).sum() - 0.5 * trace


def _root(cov: Array) -> Array:
    """Return a square root of a covariance, which may be singular."""
    factor, failed = lapack.dpotrf(cov, lower=True, clean=True)
    return positive_root(cov) if failed else factor


def _noise_of(release: Release, size: int) -> Array:
    shape = release.rv.type.shape
    known = shape if None not in shape else (size,)
    return np.broadcast_to(release.mechanism.noise, known).ravel().astype(np.float64)


def linear_map(release: Release, s: TensorVariable, size: int) -> tuple[Array, Array]:
    """Matrix and offset of a statistic that is linear in s."""
    # integer noise on regression statistics was declared as its continuous counterpart
    if type(release.mechanism) not in (Laplace, Gaussian):
        raise ValueError(
            f"The noise of {release.name!r}, {release.mechanism!r}, is not normal given its "
            "variance, as is needed here: Laplace, Gaussian, DiscreteLaplace and DiscreteGaussian "
            "are. Sample this model with step=pm.NUTS()."
        )
    given = s.type()
    replacements: dict[Any, Any] = {s: given}
    graph: Any = clone_replace(release.statistic.ravel(), replacements, rebuild_strict=False)
    if any(
        rv.owner is not None and rv is not s and isinstance(rv.owner.op, RegressionStatisticsRV)
        for rv in ancestors([graph])
    ):
        raise ValueError(
            f"The statistic of {release.name!r} mixes several latent statistics: release each."
        )
    check_known(release, [s])
    evaluate = pytensor.function([given], graph, mode=ONCE)
    offset = evaluate(np.zeros(size))
    rows = np.stack([evaluate(row) - offset for row in np.eye(size)], axis=1)
    probe = np.random.default_rng(0).normal(size=size) * 3
    if not np.allclose(evaluate(probe), rows @ probe + offset):
        raise ValueError(
            f"The statistic of {release.name!r} is not linear in {s.name!r}: release its entries "
            "or linear combinations of them, or sample with step=pm.NUTS()."
        )
    return rows, offset


def check_only_released(model: pm.Model, s: TensorVariable, found: list[Release]) -> None:
    """Insist that all that depends on the statistics are releases with known values."""
    if not found:
        raise ValueError(
            f"No release reaches {s.name!r}. Declare one with pmdp.Privatized(name, {s.name}, "
            "mechanism, observed=...)."
        )
    known = {release.rv for release in found}
    for release in found:
        if release.rv not in model.observed_RVs:
            raise ValueError(f"{release.name!r} has no observed value: write observed=.")
    users = [rv for rv in model.basic_RVs if rv is not s and rv not in known]
    for var in [*users, *model.potentials]:
        if s in ancestors([var]):
            raise ValueError(
                f"{var.name!r} depends on {s.name!r}, which is integrated out. Sample this "
                "model with step=pm.NUTS()."
            )
