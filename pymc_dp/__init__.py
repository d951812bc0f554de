"""Bayesian inference from, and with, differential privacy: a PyMC plugin."""

from pymc_dp.explain import explain
from pymc_dp.mechanisms import (
    CustomMechanism,
    DiscreteGaussian,
    DiscreteLaplace,
    Exact,
    ExponentialMechanism,
    Gaussian,
    Guarantee,
    KNormGradient,
    Laplace,
    Mechanism,
    PrivacyWarning,
    RandomizedResponse,
)
from pymc_dp.privatized import Privatized, clamp
from pymc_dp.sampling import sample
from pymc_dp.steps import RecordGibbs

__version__ = "0.1.0"

__all__ = [
    "CustomMechanism",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Exact",
    "ExponentialMechanism",
    "Gaussian",
    "Guarantee",
    "KNormGradient",
    "Laplace",
    "Mechanism",
    "PrivacyWarning",
    "Privatized",
    "RandomizedResponse",
    "RecordGibbs",
    "clamp",
    "explain",
    "sample",
]
