"""Sizes of figures with several panels."""

from __future__ import annotations

from math import ceil, prod
from typing import Any

from arviz_base import rcParams
from xarray import Dataset

__all__ = ["figure_of_rows", "with_size"]

#: dots of a panel, a hundred of which are an inch, and panels in a row
WIDTH, HEIGHT, IN_A_ROW = 360, 320, 3


def with_size(kwargs: dict[str, Any], data: Dataset, *sample_dims: str) -> dict[str, Any]:
    """Arguments of a ``PlotCollection``, with a size where none was asked for.

    Parameters
    ----------
    kwargs : dict
        What the user wrote.
    data : Dataset
        Variables, each of whose components has a panel.
    *sample_dims : str
        Dimensions that have no panels.
    """
    panels = sum(
        prod(n for dim, n in variable.sizes.items() if dim not in sample_dims)
        for variable in data.data_vars.values()
    )
    wrap = kwargs.get("col_wrap", IN_A_ROW)
    size = (WIDTH * min(panels, wrap) + 100, HEIGHT * ceil(panels / wrap))
    figure = {"figsize": size, "figsize_units": "dots"} | kwargs.get("figure_kwargs", {})
    return kwargs | {"col_wrap": wrap, "figure_kwargs": figure}


def figure_of_rows(rows: int, columns: int, backend: str | None) -> dict[str, Any]:
    """Arguments of a figure with rows of panels, whose axes have labels.

    Parameters
    ----------
    rows, columns : int
        Panels.
    backend : str or None
        Of which matplotlib has to be told to leave room for labels.
    """
    size = (WIDTH * columns + 100, HEIGHT * rows)
    named = backend or rcParams["plot.backend"]
    room = {"layout": "constrained"} if named == "matplotlib" else {}
    return {"figsize": size, "figsize_units": "dots"} | room
