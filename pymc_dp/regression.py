"""Linear regression from noisy sufficient statistics."""

from pymc_dp.analyst.regression.conjugate import (
    NormalInverseGamma,
    NormalInverseWishart,
    conjugate_posterior,
)
from pymc_dp.analyst.regression.distribution import RegressionStatistics
from pymc_dp.analyst.regression.fixed_s import adassp, fixed_s, fixed_s_fast
from pymc_dp.analyst.regression.moments import (
    FixedMoments,
    NormalMoments,
    fourth_moment_sums,
    noisy_moments,
    sample_moments,
    student_moments,
)
from pymc_dp.analyst.regression.normal_x.holders import HolderStatistics
from pymc_dp.analyst.regression.priors import InverseWishart
from pymc_dp.holder.bounds import BoxBounds, NormBounds
from pymc_dp.holder.regression_release import RegressionRelease, regression_release
from pymc_dp.holder.regression_sensitivity import (
    averaged_sensitivity,
    box_sensitivity,
    norm_sensitivity,
)
from pymc_dp.holder.regression_statistics import StatisticsLayout, regression_statistics

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
