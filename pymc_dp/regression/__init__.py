"""Linear regression from noisy sufficient statistics."""

from pymc_dp.regression.bounds import BoxBounds, NormBounds
from pymc_dp.regression.conjugate import (
    NormalInverseGamma,
    NormalInverseWishart,
    conjugate_posterior,
)
from pymc_dp.regression.distribution import RegressionStatistics
from pymc_dp.regression.fixed_s import adassp, fixed_s, fixed_s_fast
from pymc_dp.regression.holder_release import RegressionRelease, regression_release
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
from pymc_dp.regression.sensitivity import averaged_sensitivity, box_sensitivity, norm_sensitivity
from pymc_dp.regression.statistics import StatisticsLayout, regression_statistics

__all__ = [
    "BoxBounds",
    "FixedMoments",
    "HolderStatistics",
    "InverseWishart",
    "NormBounds",
    "NormalInverseGamma",
    "NormalInverseWishart",
    "NormalMoments",
    "RegressionRelease",
    "RegressionStatistics",
    "StatisticsLayout",
    "adassp",
    "averaged_sensitivity",
    "box_sensitivity",
    "conjugate_posterior",
    "fixed_s",
    "fixed_s_fast",
    "fourth_moment_sums",
    "noisy_moments",
    "norm_sensitivity",
    "regression_release",
    "regression_statistics",
    "sample_moments",
    "student_moments",
]
