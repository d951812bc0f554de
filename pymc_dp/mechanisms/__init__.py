"""Which noise was added; one module a family."""

from pymc_dp.mechanisms.base import Guarantee, Mechanism, PrivacyWarning
from pymc_dp.mechanisms.bounded_laplace import BoundedLaplace
from pymc_dp.mechanisms.custom import CustomMechanism
from pymc_dp.mechanisms.discrete_gaussian import DiscreteGaussian
from pymc_dp.mechanisms.discrete_laplace import DiscreteLaplace
from pymc_dp.mechanisms.exact import Exact
from pymc_dp.mechanisms.exponential import ExponentialMechanism, KNormGradient
from pymc_dp.mechanisms.gaussian import Gaussian
from pymc_dp.mechanisms.laplace import Laplace
from pymc_dp.mechanisms.randomized_response import RandomizedResponse
from pymc_dp.mechanisms.staircase import Staircase
from pymc_dp.mechanisms.within_bounds import FoldedDiscreteLaplace, FoldedLaplace

__all__ = [
    "BoundedLaplace",
    "CustomMechanism",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Exact",
    "ExponentialMechanism",
    "FoldedDiscreteLaplace",
    "FoldedLaplace",
    "Gaussian",
    "Guarantee",
    "KNormGradient",
    "Laplace",
    "Mechanism",
    "PrivacyWarning",
    "RandomizedResponse",
    "Staircase",
]
