"""Which noise was added; one module a family."""

from pymc_dp.mechanisms.base import Guarantee, Mechanism, PrivacyWarning
from pymc_dp.mechanisms.gaussian import Gaussian
from pymc_dp.mechanisms.laplace import Laplace

__all__ = ["Gaussian", "Guarantee", "Laplace", "Mechanism", "PrivacyWarning"]
