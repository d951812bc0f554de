"""Linear regression from noisy sufficient statistics."""

from pymc_dp.regression.conjugate import (
    NormalInverseGamma,
    NormalInverseWishart,
    conjugate_posterior,
)
from pymc_dp.regression.distribution import RegressionStatistics
from pymc_dp.regression.holders import HolderStatistics
from pymc_dp.regression.moments import (
    FixedMoments,
    NormalMoments,
    fourth_moment_sums,
    noisy_moments,
    sample_moments,
    student_moments,
)
from pymc_dp.regression.priors import InverseWishart
from pymc_dp.regression.sensitivity import box_sensitivity, norm_sensitivity
from pymc_dp.regression.statistics import StatisticsLayout, regression_statistics

__all__ = [
    "FixedMoments",
    "HolderStatistics",
    "InverseWishart",
    "NormalInverseGamma",
    "NormalInverseWishart",
    "NormalMoments",
    "RegressionStatistics",
    "StatisticsLayout",
    "box_sensitivity",
    "conjugate_posterior",
    "fourth_moment_sums",
    "noisy_moments",
    "norm_sensitivity",
    "regression_statistics",
    "sample_moments",
    "student_moments",
]
