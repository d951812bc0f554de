"""Pictures of posteriors from releases, of releases, budgets and models.

They take and return ArviZ's own objects (``DataTree`` in, ``PlotCollection`` out) and draw with any
of its backends: matplotlib (extra ``plots``), bokeh or plotly. Not imported by ``import pymc_dp``:
write ``from pymc_dp import plots``.
"""

from pymc_dp.plots.budget import plot_budget
from pymc_dp.plots.calibration import plot_calibration
from pymc_dp.plots.design import plot_design
from pymc_dp.plots.model_graph import model_graph
from pymc_dp.plots.noise_effect import plot_noise_effect
from pymc_dp.plots.release import plot_release
from pymc_dp.plots.stacked import stack_releases

__all__ = [
    "model_graph",
    "plot_budget",
    "plot_calibration",
    "plot_design",
    "plot_noise_effect",
    "plot_release",
    "stack_releases",
]
