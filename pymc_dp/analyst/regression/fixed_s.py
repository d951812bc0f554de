"""Quick answers from several holders' releases: X'X taken as known, and a point estimate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pymc_dp.analyst.regression.conjugate import nearest_valid, posterior_tree
from pymc_dp.analyst.regression.normal_x.gram import Rows, z_terms
from pymc_dp.analyst.regression.normal_x.iteration import fixed_gram_chain
from pymc_dp.holder.regression_release import RegressionRelease
from pymc_dp.holder.regression_statistics import StatisticsLayout
from pymc_dp.mechanisms.base import positive
from pymc_dp.types import Array

__all__ = ["adassp", "fixed_s", "fixed_s_fast"]


NOTE = (
    "X'X is taken to be the nearest positive semidefinite matrix to its release, and its noise is "
    "ignored; intervals are too short where that noise matters"
)


def fixed_s(
    releases: Sequence[RegressionRelease],
    *,
    coef_mean: ArrayLike = 0.0,
    coef_cov: ArrayLike,
    sigma2_shape: float,
    sigma2_scale: float,
    draws: int = 1000,
    tune: int = 200,
    chains: int = 4,
    random_seed: int | None = None,
) -> Any:
    """Posterior of a regression with every X'X held at its release: MCMC-fixedS.

    Alparslan, Yildirim & Birbil (2023), Algorithm 2: no assumption about the features, and an
    approximation. The projection to the nearest positive semidefinite matrix is not the maximum
    likelihood estimate that the paper takes it for, since off-diagonal entries were released once.

    Parameters
    ----------
    releases : sequence of RegressionRelease
        One a holder. Laplace noise is taken for normal noise of the same variance.
    coef_mean, coef_cov : array_like
        Mean and covariance of the normal prior of the coefficients; a number stands for all means.
    sigma2_shape, sigma2_scale : float
        Inverse-gamma prior of the error variance.
    draws, tune, chains : int
        Length and number of chains.
    random_seed : int, optional
        For these.

    Returns
    -------
    DataTree
        With ``coef`` and ``sigma2``; its attribute ``approximation`` says what it is.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_dp as pmdp
    >>> X = np.random.default_rng(1).normal(0, 0.3, (500, 2))
    >>> bounds = pmdp.regression.NormBounds(x_norm=1, y_bound=1)
    >>> release = pmdp.regression_release(X, X @ [1, -0.5], bounds, epsilon=1, delta=1e-4)
    >>> idata = pmdp.regression.fixed_s(
    ...     [release], coef_cov=np.eye(2), sigma2_shape=3, sigma2_scale=0.3, draws=10
    ... )
    >>> idata.posterior.coef.shape
    (4, 10, 2)
    """
    S, rows = _fixed(releases)
    prior, shift = _normal(coef_mean, coef_cov, S.shape[1])
    a, b = (float(positive(n, v)) for n, v in (("shape", sigma2_shape), ("scale", sigma2_scale)))
    runs = [
        fixed_gram_chain(rng, S, rows, prior, shift, a, b, int(tune), int(draws))
        for rng in np.random.default_rng(random_seed).spawn(chains)
    ]
    coef, sigma2 = (np.stack(parts) for parts in zip(*runs, strict=True))
    return _tree({"coef": coef, "sigma2": sigma2})


def fixed_s_fast(
    releases: Sequence[RegressionRelease],
    *,
    coef_mean: ArrayLike = 0.0,
    coef_cov: ArrayLike,
    sigma2: float,
    draws: int = 1000,
    random_seed: int | None = None,
) -> Any:
    """Posterior in closed form with every X'X and the error variance fixed: Bayes-fixedS-fast.

    Alparslan, Yildirim & Birbil (2023), Algorithm 3. Where y is within +-Y and nothing better is
    known, ``sigma2=(Y / 3)**2``; the paper's Y / 3 is a standard deviation.

    Parameters
    ----------
    releases, coef_mean, coef_cov, random_seed
        As for :func:`fixed_s`.
    sigma2 : float
        The error variance.
    draws : int
        Number of independent draws.

    Returns
    -------
    DataTree
        With draws of ``coef``; the attributes ``approximation``, ``mean`` and ``cov`` of its
        posterior say what it is, and its exact moments.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_dp as pmdp
    >>> X = np.random.default_rng(1).normal(0, 0.3, (500, 2))
    >>> bounds = pmdp.regression.NormBounds(x_norm=1, y_bound=1)
    >>> release = pmdp.regression_release(X, X @ [1, -0.5], bounds, epsilon=1, delta=1e-4)
    >>> idata = pmdp.regression.fixed_s_fast([release], coef_cov=np.eye(2), sigma2=0.1)
    >>> len(idata.posterior.attrs["mean"])
    2
    """
    S, rows = _fixed(releases)
    prior, shift = _normal(coef_mean, coef_cov, S.shape[1])
    _, _, _, _, precision, weighted = z_terms(S, float(positive("sigma2", sigma2)), rows)
    cov = np.linalg.inv(precision + prior)
    mean = cov @ (weighted + shift)
    rng = np.random.default_rng(random_seed)
    coef = rng.multivariate_normal(mean, cov, size=(1, draws), method="cholesky")
    return _tree({"coef": coef}, mean=mean.tolist(), cov=cov.tolist())


def adassp(releases: Sequence[RegressionRelease], *, failure: float = 0.05) -> Array:
    """Ridge estimate of the coefficients from releases: adaSSP, a frequentist baseline.

    Wang (2018), Algorithm 2, extended to several holders (Alparslan, Yildirim & Birbil 2023,
    equation 15). Every holder adds what its noise may take from the smallest eigenvalue.

    Parameters
    ----------
    releases : sequence of RegressionRelease
        Made with ``smallest_eigenvalue=True``.
    failure : float
        Probability with which the noise may be larger than allowed for.

    Returns
    -------
    array (d,)

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_dp as pmdp
    >>> X = np.random.default_rng(1).normal(0, 0.3, (500, 2))
    >>> bounds = pmdp.regression.NormBounds(x_norm=1, y_bound=1)
    >>> release = pmdp.regression_release(
    ...     X, X @ [1, -0.5], bounds, epsilon=1, delta=1e-4, smallest_eigenvalue=True
    ... )
    >>> pmdp.regression.adassp([release]).shape
    (2,)
    """
    _same_features(releases)
    d = releases[0].n_covariates
    total, shift = np.zeros((d, d)), np.zeros(d)
    for j, release in enumerate(releases):
        if release.smallest_eigenvalue is None:
            raise ValueError(
                f"Release {j} has no smallest eigenvalue, which adaSSP needs. Ask the holder for "
                "regression_release(..., smallest_eigenvalue=True)."
            )
        S, z, _ = release.layout.unpack(release.released, release.n)
        largest = max(release.noise_sd) * np.sqrt(d * np.log(2 * d**2 / failure))
        total += S + max(0.0, largest - release.smallest_eigenvalue) * np.eye(d)
        shift += z
    return np.linalg.solve(total, shift)


def _same_features(releases: Sequence[RegressionRelease]) -> None:
    if not releases:
        raise ValueError("No releases were given.")
    kinds = {(r.n_covariates, r.intercept) for r in releases}
    if len(kinds) > 1:
        sizes = ", ".join(
            f"release {j} has {r.n_covariates} features{' and an intercept' if r.intercept else ''}"
            for j, r in enumerate(releases)
        )
        raise ValueError(f"All holders must release the same features: {sizes}.")


def _fixed(releases: Sequence[RegressionRelease]) -> tuple[Array, Rows]:
    """Gram matrices made positive semidefinite, and what was released about X'y."""
    _same_features(releases)
    layout = releases[0].layout
    alone = StatisticsLayout(layout.n_covariates, layout.intercept, ("xx",))
    p = layout.n_features
    S = np.empty((len(releases), p, p))
    z_hat, z_var = np.empty((len(releases), p)), np.empty((len(releases), p))
    for j, release in enumerate(releases):
        valid = nearest_valid(release.released[: layout.n_xx], release.n, alone)
        S[j] = alone.unpack(valid, release.n)[0]
        z_hat[j] = release.released[layout.n_xx :]
        z_var[j] = np.square(release.noise_sd[layout.n_xx :])
    n = np.array([float(r.n) for r in releases])
    return S, Rows(n, 0, S, np.zeros_like(S), z_hat, z_var)


def _normal(mean: ArrayLike, cov: ArrayLike, p: int) -> tuple[Array, Array]:
    matrix = np.asarray(cov, dtype=np.float64)
    if matrix.shape != (p, p):
        raise ValueError(
            f"coef_cov has shape {matrix.shape}, and the releases have {p} coefficients: write a "
            f"covariance matrix ({p}, {p}), e.g. 4 * np.eye({p}) for a standard deviation of 2."
        )
    precision = np.linalg.inv(matrix)
    return precision, precision @ np.broadcast_to(np.asarray(mean, dtype=np.float64), p)


def _tree(posterior: dict[str, Array], **attributes: Any) -> Any:
    tree = posterior_tree(posterior)
    tree.posterior.attrs |= {"approximation": NOTE, **attributes}
    return tree
