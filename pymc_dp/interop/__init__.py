"""Mechanisms and releases of other libraries; optional imports only here."""

from pymc_dp.interop.diffprivlib_mechanism import from_diffprivlib
from pymc_dp.interop.opendp_measurement import from_opendp
from pymc_dp.interop.opendp_release import opendp_release, opendp_summary_releases
from pymc_dp.interop.reported import from_smartnoise, from_tumult
from pymc_dp.interop.reported_release import (
    diffprivlib_release,
    smartnoise_release,
    tumult_release,
)

__all__ = [
    "diffprivlib_release",
    "from_diffprivlib",
    "from_opendp",
    "from_smartnoise",
    "from_tumult",
    "opendp_release",
    "opendp_summary_releases",
    "smartnoise_release",
    "tumult_release",
]
