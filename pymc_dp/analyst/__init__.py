"""For analysts, who hold a release: declare it, and sample what it says."""

# a model that has releases has imported this room: pm.sample then knows the samplers
from pymc_dp.analyst import steps as steps
