"""One module a sampler; a step builds graphs and compiles, and hands arrays to a kernel."""

from pymc.step_methods import STEP_METHODS

from pymc_dp.steps.dp_hmc import DPHMC, DPMALA
from pymc_dp.steps.dp_penalty import DPPenalty
from pymc_dp.steps.gibbs_ss import GibbsSS
from pymc_dp.steps.normal_x import NormalX
from pymc_dp.steps.record_gibbs import RecordGibbs

__all__ = ["DPHMC", "DPMALA", "DPPenalty", "GibbsSS", "NormalX", "RecordGibbs"]

# first, because PyMC gives ties to the earlier one and its own Gibbs steps are IDEAL for discrete
# variables; RecordGibbs is IDEAL for records and parameters of theirs, the others for released
# regression statistics
for step in (RecordGibbs, GibbsSS, NormalX):
    if step not in STEP_METHODS:
        STEP_METHODS.insert(0, step)
