"""The analyst's samplers, offered to ``pm.sample``, which asks each what it is good for."""

from pymc_dp.analyst.count_gibbs.step import CountGibbs
from pymc_dp.analyst.record_gibbs.step import RecordGibbs
from pymc_dp.analyst.regression.gibbs_ss.step import GibbsSS
from pymc_dp.analyst.regression.normal_x.step import NormalX
from pymc_dp.compat import STEP_METHODS

__all__ = ["CountGibbs", "GibbsSS", "NormalX", "RecordGibbs"]

# first, because PyMC gives ties to the earlier one and its own Gibbs steps are IDEAL for discrete
# variables; RecordGibbs is IDEAL for records and parameters of theirs, GibbsSS and NormalX for
# released regression statistics, CountGibbs for cells, which may look like records: it comes first
for step in (RecordGibbs, GibbsSS, NormalX, CountGibbs):
    if step not in STEP_METHODS:
        STEP_METHODS.insert(0, step)
