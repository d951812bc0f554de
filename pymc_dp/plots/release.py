"""A released value against what the model predicts for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import arviz_plots as azp
from xarray import DataTree

from pymc_dp.plots.layout import with_size

__all__ = ["plot_release"]


def plot_release(
    idata: DataTree,
    *,
    var_names: str | Sequence[str] | None = None,
    group: str = "posterior_predictive",
    backend: Any = None,
    **kwargs: Any,
) -> azp.PlotCollection:
    """Draw the predictive distribution of each released number, with the released one as a line.

    A release that lies far out says that model, mechanism or bounds are not those of the data
    holder.

    Parameters
    ----------
    idata : DataTree
        With the groups ``posterior_predictive`` (of ``pm.sample_posterior_predictive``) and
        ``observed_data``.
    var_names : str or sequence of str, optional
        Releases; all that were predicted by default. Every component has a panel.
    group : str
        ``"prior_predictive"`` compares with what was expected before the release.
    backend : {"matplotlib", "bokeh", "plotly"}, optional
        ArviZ's own default.
    **kwargs
        Passed to ``arviz_plots.plot_dist``.

    Returns
    -------
    PlotCollection

    Examples
    --------
    >>> import numpy as np
    >>> from arviz_base import from_dict
    >>> from pymc_dp.plots import plot_release
    >>> draws = np.random.default_rng(1).normal(1400, 30, size=(2, 100))
    >>> idata = from_dict(
    ...     {"posterior_predictive": {"released": draws}, "observed_data": {"released": 1423.7}}
    ... )
    >>> picture = plot_release(idata, backend="none")
    >>> "dist" in picture.viz and "ref_line" in picture.viz
    True
    """
    for needed in (group, "observed_data"):
        if needed not in idata.children:
            raise ValueError(
                f"There is no group {needed!r}. Write pm.sample_posterior_predictive(idata, "
                "extend_inferencedata=True) with the model in context, then plot idata."
            )
    predicted, observed = idata[group].dataset, idata["observed_data"].dataset
    names = [var_names] if isinstance(var_names, str) else list(var_names or observed.data_vars)
    names = [name for name in names if name in predicted and name in observed]
    if not names:
        raise ValueError(f"None of {', '.join(map(str, observed.data_vars))} was predicted.")
    visuals: Any = {
        "point_estimate": False,
        "point_estimate_text": False,
        "credible_interval": False,
    }
    visuals |= kwargs.pop("visuals", {})
    kwargs = with_size(kwargs, observed[names])
    picture = azp.plot_dist(
        idata, group=group, var_names=names, backend=backend, visuals=visuals, **kwargs
    )
    line = {"color": "C1", "width": 2} if backend != "none" else {}
    lines = {"ref_line": line, "ref_text": False}
    return azp.add_lines(picture, observed[names].expand_dims("ref_dim"), visuals=lines)
