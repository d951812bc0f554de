"""Mechanisms from the libraries that made a release; optional imports only here."""

from pymc_dp.interop.opendp_measurement import from_opendp
from pymc_dp.interop.reported import from_diffprivlib, from_smartnoise, from_tumult

__all__ = ["from_diffprivlib", "from_opendp", "from_smartnoise", "from_tumult"]
