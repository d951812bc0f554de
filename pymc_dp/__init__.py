"""Bayesian inference from, and with, differential privacy: a PyMC plugin."""

__version__ = "0.1.0"
