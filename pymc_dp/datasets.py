"""Confidential data sets with known posteriors, to try samplers on."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pymc as pm
from numpy.typing import NDArray


@dataclass(frozen=True)
class KnownPosterior:
    """Simulated records, the model they come from, and its exact posterior.

    Attributes
    ----------
    data : ndarray
        One record a row.
    truth : ndarray
        Parameters the records were drawn with.
    build : callable
        Makes the PyMC model with the records observed.
    mean, covariance : ndarray
        Of the Gaussian that the posterior is, or that it is bent from.
    bend : float
        Curvature a of the banana, ``theta_2 = x_2 - a x_1^2``; 0 for a Gaussian.
    """

    data: NDArray[np.float64]
    truth: NDArray[np.float64]
    build: Callable[[NDArray[np.float64]], pm.Model]
    mean: NDArray[np.float64]
    covariance: NDArray[np.float64]
    bend: float = 0.0

    def model(self) -> pm.Model:
        """Make the model with the records observed."""
        return self.build(self.data)

    def posterior(self, draws: int, random_seed: int | None = None) -> NDArray[np.float64]:
        """Draw independent and exact values of the parameters, one draw a row."""
        rng = np.random.default_rng(random_seed)
        theta = rng.multivariate_normal(self.mean, self.covariance, size=draws)
        if self.bend:
            theta[:, 1] -= self.bend * theta[:, 0] ** 2
        return theta


def _gaussian_posterior(
    data: NDArray[np.float64], covariance: NDArray[np.float64], prior_variance: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    precision = np.linalg.inv(covariance)
    size = len(covariance)
    posterior = np.linalg.inv(len(data) * precision + np.eye(size) / prior_variance)
    return posterior @ precision @ data.sum(axis=0), (posterior + posterior.T) / 2


def correlated_gaussian(
    n: int = 100_000, dim: int = 10, *, prior_sd: float = 100.0, random_seed: int | None = 0
) -> KnownPosterior:
    """Make records from a Gaussian with known covariance, to learn its mean.

    Parameters
    ----------
    n, dim : int
        Number of records and of parameters, ``theta`` in the model.
    prior_sd : float
        Standard deviation of the prior.
    random_seed : int, optional
        Of the covariance and the records.

    Notes
    -----
    The Gaussian model of Räisä et al. (2021), section 4: eigenvalues of the covariance from a Gamma
    distribution of shape 0.5, eigenvectors from a matrix of uniform entries.

    Examples
    --------
    >>> from pymc_dp.datasets import correlated_gaussian
    >>> problem = correlated_gaussian(n=50, dim=3)
    >>> problem.posterior(4).shape
    (4, 3)
    """
    rng = np.random.default_rng(random_seed)
    eigenvalues = rng.gamma(0.5, 1.0, size=dim)
    basis, _ = np.linalg.qr(rng.uniform(size=(dim, dim)))
    covariance = (basis * eigenvalues) @ basis.T
    covariance = (covariance + covariance.T) / 2
    truth = np.zeros(dim)
    truth[min(1, dim - 1)] = 3.0
    data = rng.multivariate_normal(truth, covariance, size=n, method="eigh")
    whiten = np.linalg.inv(np.linalg.cholesky(covariance)).T

    def build(records: NDArray[np.float64]) -> pm.Model:
        # the covariance is public: the same likelihood, up to a constant, as of pm.MvNormal
        with pm.Model() as model:
            theta = pm.Normal("theta", 0, prior_sd, shape=dim)
            pm.Normal("x", theta @ whiten, 1, observed=records @ whiten)
        return model

    mean, posterior = _gaussian_posterior(data, covariance, prior_sd**2)
    return KnownPosterior(data, truth, build, mean, posterior)


def banana(
    n: int = 100_000,
    *,
    curvature: float = 20.0,
    prior_variance: float = 1000.0,
    variances: tuple[float, float] = (2000.0, 2500.0),
    random_seed: int | None = 0,
) -> KnownPosterior:
    """Make records whose posterior is a thin banana.

    Parameters
    ----------
    n : int
        Number of records.
    curvature : float
        The a of ``x_2 ~ N(theta_2 + a theta_1^2, variance)``.
    prior_variance : float
        Variance of the prior, before bending. Räisä et al. print a standard deviation of 1000;
        their experiments used this variance.
    variances : tuple of float
        Variances of a record's two columns.
    random_seed : int, optional
        Of the records.

    Notes
    -----
    The banana model of Räisä et al. (2021), section 4, and Theorem 5 of Räisä (2020) with
    b = m = 0; true parameters (0, 3).

    Examples
    --------
    >>> from pymc_dp.datasets import banana
    >>> problem = banana(n=50)
    >>> [rv.name for rv in problem.model().free_RVs]
    ['theta_1', 'theta_2']
    """
    rng = np.random.default_rng(random_seed)
    truth = np.array([0.0, 3.0])
    straight = np.array([truth[0], truth[1] + curvature * truth[0] ** 2])
    data = straight + rng.normal(size=(n, 2)) * np.sqrt(variances)
    prior_sd = prior_variance**0.5

    def build(records: NDArray[np.float64]) -> pm.Model:
        with pm.Model() as model:
            theta_1 = pm.Normal("theta_1", 0, prior_sd)
            theta_2 = pm.Normal("theta_2", -curvature * theta_1**2, prior_sd)
            pm.Normal("x_1", theta_1, variances[0] ** 0.5, observed=records[:, 0])
            height = theta_2 + curvature * theta_1**2
            pm.Normal("x_2", height, variances[1] ** 0.5, observed=records[:, 1])
        return model

    mean, posterior = _gaussian_posterior(data, np.diag(variances), prior_variance)
    return KnownPosterior(data, truth, build, mean, posterior, bend=curvature)
