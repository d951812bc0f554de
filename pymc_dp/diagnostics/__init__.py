"""How far draws are from where they should be."""

from pymc_dp.diagnostics.mmd import mmd

__all__ = ["mmd"]
