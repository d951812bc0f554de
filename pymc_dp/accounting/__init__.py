"""Calibrate noise to a guarantee, and keep account of what was spent."""

from pymc_dp.accounting.budget import PrivacyBudget
from pymc_dp.accounting.composition import (
    GaussianQueries,
    batch_noise_multiplier,
    composed_epsilon,
    pure_queries,
)
from pymc_dp.accounting.errors import ConfidentialDataWarning, PrivacyError
from pymc_dp.accounting.gaussian import (
    gaussian_delta,
    gaussian_epsilon,
    gaussian_iterations,
    gaussian_mu,
    gaussian_sigma,
)
from pymc_dp.accounting.renyi import (
    poisson_gaussian_rdp,
    rdp_epsilon,
    subsampled_gaussian_rdp,
    zcdp_epsilon,
    zcdp_rho,
)

__all__ = [
    "ConfidentialDataWarning",
    "GaussianQueries",
    "PrivacyBudget",
    "PrivacyError",
    "batch_noise_multiplier",
    "composed_epsilon",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_iterations",
    "gaussian_mu",
    "gaussian_sigma",
    "poisson_gaussian_rdp",
    "pure_queries",
    "rdp_epsilon",
    "subsampled_gaussian_rdp",
    "zcdp_epsilon",
    "zcdp_rho",
]
