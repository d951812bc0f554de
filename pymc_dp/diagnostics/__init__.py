"""How far draws are from where they should be, and how wide posteriors will be."""

from pymc_dp.diagnostics.calibrate import calibrate
from pymc_dp.diagnostics.design import design
from pymc_dp.diagnostics.log_likelihood import compute_log_likelihood
from pymc_dp.diagnostics.mmd import mmd

__all__ = ["calibrate", "compute_log_likelihood", "design", "mmd"]
