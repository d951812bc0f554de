"""Exact posteriors of small private-release problems, computed without Monte Carlo.

Every function answers the same question in a different setting: records ``x_i`` are independent
given ``theta``, a sum over them is released with noise, and only the release is seen. Numpy and
scipy only; nothing here may import the package under test.

==========================================  ======================================================
one sum of clamped continuous records       `sum_likelihood` (Fourier series, atoms apart)
one sum of integer records                  `lattice_likelihood` (convolution power)
sum and sum of squares, one or two records  `moments_likelihood` (quadrature)
few records with finitely many values       `enumerate_likelihood`, `conjugate_posterior`
unclamped normal records, Gaussian noise    `normal_sums_posterior`, `group_means_posterior`
==========================================  ======================================================
"""

from tests.oracles.continuous import (
    ClampedExponential,
    ClampedNormal,
    Record,
    sum_likelihood,
    sum_likelihood_on_lattice,
)
from tests.oracles.finite import (
    DirichletMixture,
    conjugate_posterior,
    count_vectors,
    enumerate_likelihood,
    enumerate_posterior,
)
from tests.oracles.integers import (
    bernoulli_pmf,
    clamped_poisson_pmf,
    convolution_power,
    lattice_likelihood,
)
from tests.oracles.linear import (
    NormalPosterior,
    condition_normal,
    group_means_posterior,
    normal_sums_posterior,
)
from tests.oracles.moments import moments_likelihood, normal_plane_posterior
from tests.oracles.noise import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace
from tests.oracles.posteriors import GridPosterior, PlanePosterior, posterior_from_likelihood

__all__ = [
    "ClampedExponential",
    "ClampedNormal",
    "DirichletMixture",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Gaussian",
    "GridPosterior",
    "Laplace",
    "NormalPosterior",
    "PlanePosterior",
    "Record",
    "bernoulli_pmf",
    "clamped_poisson_pmf",
    "condition_normal",
    "conjugate_posterior",
    "convolution_power",
    "count_vectors",
    "enumerate_likelihood",
    "enumerate_posterior",
    "group_means_posterior",
    "lattice_likelihood",
    "moments_likelihood",
    "normal_plane_posterior",
    "normal_sums_posterior",
    "posterior_from_likelihood",
    "sum_likelihood",
    "sum_likelihood_on_lattice",
]
