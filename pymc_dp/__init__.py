"""Bayesian inference from, and with, differential privacy: a PyMC plugin."""

from pymc_dp.accounting import ConfidentialDataWarning, PrivacyBudget, PrivacyError

__version__ = "0.1.0"

__all__ = ["ConfidentialDataWarning", "PrivacyBudget", "PrivacyError"]
