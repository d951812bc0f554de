"""Linear regression from noisy sufficient statistics."""

from pymc_dp.regression.sensitivity import box_sensitivity, norm_sensitivity
from pymc_dp.regression.statistics import StatisticsLayout, regression_statistics

__all__ = [
    "StatisticsLayout",
    "box_sensitivity",
    "norm_sensitivity",
    "regression_statistics",
]
