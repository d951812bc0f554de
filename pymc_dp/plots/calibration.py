"""Whether posteriors mean what they say: ranks of the truth, and coverage of intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import arviz_plots as azp
import numpy as np
from arviz_stats.ecdf_utils import ecdf_pit
from xarray import DataTree

from pymc_dp.plots.layout import figure_of_rows

__all__ = ["plot_calibration"]

#: without ArviZ's own test of uniformity: one band says it all
PLAIN: dict[Any, Any] = {"p_value_text": False, "suspicious_points": False}
#: columns, and what their axes say
COLUMNS = {
    "ranks": {"x": "place among draws", "y": "share below, less expected"},
    "coverage": {"x": "central interval, %", "y": "coverage, less promised"},
}


def plot_calibration(
    tree: DataTree,
    *,
    var_names: str | Sequence[str] | None = None,
    envelope_prob: float = 0.99,
    backend: Any = None,
    **kwargs: Any,
) -> azp.PlotCollection:
    """Draw what a calibration found: places of the truth among draws, and coverage beside it.

    Both are differences between an empirical distribution function and what it should be. If all
    is well, a line as a whole stays within its band with probability `envelope_prob`. On the left
    a slope up in the middle says that posteriors are too wide, a slope down that they are too
    narrow, and a line on one side of zero that they are shifted. On the right the line is the
    coverage of central intervals less what they promise: below zero they are too short.

    Parameters
    ----------
    tree : DataTree
        Of :func:`pymc_dp.calibrate`.
    var_names : str or sequence of str, optional
        Parameters; all by default. Every component has a row.
    envelope_prob : float
        Probability of the simultaneous bands.
    backend : {"matplotlib", "bokeh", "plotly"}, optional
        ArviZ's own default.
    **kwargs
        Passed to ``arviz_plots.PlotCollection.grid``.

    Returns
    -------
    PlotCollection

    Examples
    --------
    >>> import numpy as np
    >>> from arviz_base import from_dict
    >>> from pymc_dp.plots import plot_calibration
    >>> places = np.random.default_rng(1).uniform(size=(1, 50))
    >>> picture = plot_calibration(from_dict({"prior_sbc": {"mu": places}}), backend="none")
    >>> picture.viz["plot"]["mu"].sizes
    Frozen({'column': 2})
    """
    if "prior_sbc" not in tree.children:
        raise ValueError("There is no group 'prior_sbc': draw what pymc_dp.calibrate returns.")
    names = [var_names] if isinstance(var_names, str) else list(var_names or tree["prior_sbc"])
    data = tree["prior_sbc"].dataset[names]
    rows = sum(v.size // (v.sizes["chain"] * v.sizes["draw"]) for v in data.data_vars.values())
    figure = figure_of_rows(rows, len(COLUMNS), backend)
    kwargs["figure_kwargs"] = figure | kwargs.get("figure_kwargs", {})
    dims = [dim for dim in data.dims if dim not in ("chain", "draw")]
    own: dict[str, Any] = {"cols": ["column"], "rows": ["__variable__", *dims]}
    kwargs = own | kwargs
    both = data.expand_dims(column=list(COLUMNS))
    picture = azp.PlotCollection.grid(both, backend=backend, **kwargs)
    band = _band(data.sizes["draw"] * data.sizes["chain"], envelope_prob)
    for column, labels in COLUMNS.items():
        picture.coords = {"column": column}
        picture.map(azp.visuals.fill_between_y, f"band_{column}", data=data, **band)
        azp.plot_ecdf_pit(
            tree,
            var_names=names,
            coverage=column == "coverage",
            plot_collection=picture,
            visuals=PLAIN | {f"{axis}label": {"text": text} for axis, text in labels.items()},
        )
        picture.coords = None
    return picture


def _band(replicates: int, prob: float) -> dict[str, Any]:
    """Where a distribution function of independent uniform numbers stays, less what it should be.

    Simultaneous: by simulation, always the same (Säilynoja, Bürkner & Vehtari 2022).
    """
    places = np.linspace(0, 1, replicates)
    x, _, lower, upper = ecdf_pit(places, prob, n_simulations=4000)
    return {"x": x, "y_bottom": lower - x, "y_top": upper - x, "color": "B2", "alpha": 0.2}
