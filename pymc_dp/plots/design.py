"""Posterior width and coverage of a planned release, against epsilon."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import arviz_plots as azp
import numpy as np
from arviz_base.labels import BaseLabeller
from arviz_plots.plot_collection import backend_from_object
from pandas import Index
from xarray import Dataset, DataTree, concat

from pymc_dp.plots.layout import figure_of_rows

__all__ = ["plot_design"]

GROUPS = ("expected", "mcse")


def plot_design(
    tree: DataTree,
    *,
    var_names: str | Sequence[str] | None = None,
    quantities: Sequence[str] = ("width", "coverage"),
    backend: Any = None,
    **kwargs: Any,
) -> azp.PlotCollection:
    """Draw posterior width and coverage against epsilon, one line for each number of records.

    Bands are two Monte Carlo standard errors to each side. Dashed lines are the widths that the
    records themselves would give, and the coverage that intervals promise.

    Parameters
    ----------
    tree : DataTree
        Of :func:`pymc_dp.design`.
    var_names : str or sequence of str, optional
        Parameters; all by default. Every component has a row.
    quantities : sequence of {"sd", "width", "coverage"}
        Columns.
    backend : {"matplotlib", "bokeh", "plotly"}, optional
        ArviZ's own default.
    **kwargs
        Passed to ``arviz_plots.PlotCollection.grid``.

    Returns
    -------
    PlotCollection

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dp as pmdp
    >>> from pymc_dp.plots import plot_design
    >>> def build(epsilon, n):
    ...     with pm.Model() as model:
    ...         x = pm.Bernoulli("x", pm.Beta("p", 1, 1), shape=n)
    ...         noise = pmdp.Laplace(epsilon=epsilon, sensitivity=1)
    ...         total = pmdp.Privatized("total", x.sum(), noise)
    ...     return model
    >>> few = {"replicates": 2, "tune": 20, "without_noise": False, "quiet": True}
    >>> tree = pmdp.design(build, [0.1, 1], n=20, random_seed=1, **few)
    >>> picture = plot_design(tree, backend="none")
    >>> picture.viz["plot"]["p"]["quantity"].values.tolist()
    ['width', 'coverage']
    """
    for needed in GROUPS:
        if needed not in tree.children:
            raise ValueError(f"There is no group {needed!r}: draw what pymc_dp.design returns.")
    names = [var_names] if isinstance(var_names, str) else list(var_names or tree["expected"])
    shown, lower, upper = _lines(tree, names, list(quantities))
    epsilons = shown["epsilon"].values
    rows = ["__variable__", *(d for d in shown.dims if d not in ("quantity", "epsilon", "n"))]
    own: dict[str, Any] = {"cols": ["quantity"], "rows": rows, "aes": {"color": ["n"]}}
    kwargs = own | kwargs
    components = [prod(v.sizes[d] for d in rows if d in v.dims) for v in shown.data_vars.values()]
    figure = figure_of_rows(sum(components), shown.sizes["quantity"], backend)
    kwargs["figure_kwargs"] = figure | kwargs.get("figure_kwargs", {})
    picture = azp.PlotCollection.grid(shown, backend=backend, **kwargs)
    parts = [0 * shown + shown["place"], lower, upper]
    bands = concat(parts, dim=Index(["x", "y_bottom", "y_top"], name="kwarg"))
    picture.map(azp.visuals.fill_between_y, "error", data=bands, alpha=0.15)
    picture.map(azp.visuals.line, "line", xname="place")
    for name, data in _references(tree, names, list(quantities)).items():
        plain = {"ignore_aes": "all", "color": "B2"} if name == "promised" else {}
        picture.map(azp.visuals.hline, name, data=data, linestyle="C1", **plain)
    labels = [f"{epsilon:g}" for epsilon in epsilons]
    every: Any = {"ignore_aes": "all", "store_artist": False}
    picture.map(azp.visuals.set_xticks, values=shown["place"].values, labels=labels, **every)
    picture.map(azp.visuals.labelled_x, "xlabel", text="epsilon", ignore_aes="all")
    words = _words(tree.attrs["ci_prob"])
    picture.map(_labelled_y, words=words, subset_info=True, **every)
    picture.map(_titled, subset_info=True, **every)
    if shown.sizes["n"] > 1 and backend != "none":
        picture.add_legend("n")
    return picture


def _drawn(data: Dataset) -> Dataset:
    """Where values are drawn: widths by their logarithms, shares as they are.

    Places and tick labels rather than a scale: not all backends have logarithmic ones.
    """
    return data.where(data["quantity"] == "coverage", np.log10(data))


def _lines(tree: DataTree, names: list[str], quantities: list[str]) -> tuple[Dataset, ...]:
    """Lines, and two standard errors to each side."""
    expected, errors = (tree[group].dataset[names].sel(quantity=quantities) for group in GROUPS)
    place = {"place": ("epsilon", np.log10(expected["epsilon"].values))}
    expected, errors = expected.assign_coords(place), errors.assign_coords(place)
    share = expected["quantity"] == "coverage"
    lower, upper = (
        (expected + sign * errors)
        .clip(0, 1)
        .where(share, expected * np.exp(sign * errors / expected))
        for sign in (-2, 2)
    )
    return _drawn(expected), _drawn(lower), _drawn(upper)


def _references(tree: DataTree, names: list[str], quantities: list[str]) -> dict[str, Dataset]:
    """Widths that records themselves would give, and the coverage that was promised."""
    lines = {}
    if "without_noise" in tree.children:
        known = tree["without_noise/expected"].dataset[names]
        there = [quantity for quantity in quantities if quantity in known["quantity"]]
        if there:
            lines["without_noise"] = _drawn(known.sel(quantity=there))
    if "coverage" in quantities:
        shares = tree["expected"].dataset[names].isel(epsilon=0, n=0, drop=True)
        lines["promised"] = 0 * shares.sel(quantity=["coverage"]) + tree.attrs["ci_prob"]
    return lines


def _words(prob: float) -> dict[str, str]:
    intervals = f"{100 * prob:g}% intervals"
    return {
        "sd": "posterior sd",
        "width": f"width of {intervals}",
        "coverage": f"coverage of {intervals}",
    }


def _labelled_y(da: Any, target: Any, *, words: dict[str, str], sel: Any, **_: Any) -> None:
    """Name the axis of a panel, and label it by values where their logarithms are drawn."""
    quantity = str(sel["quantity"])
    azp.visuals.labelled_y(da, target, text=words[quantity])
    if quantity != "coverage":
        ticks = nice_numbers(10 ** float(da.min()), 10 ** float(da.max()))
        backend = backend_from_object(target)
        backend.yticks(np.log10(ticks), [f"{tick:g}" for tick in ticks], target)


def nice_numbers(low: float, high: float) -> list[float]:
    """Round numbers from about `low` to about `high`, evenly spread by their logarithms.

    Examples
    --------
    >>> from pymc_dp.plots.design import nice_numbers
    >>> nice_numbers(0.18, 3.8)
    [0.2, 0.5, 1.0, 2.0, 5.0]
    """
    decades = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    found: list[float] = []
    for steps in ([1], [1, 2, 5], [1, 1.5, 2, 3, 4, 5, 7], [1 + i / 10 for i in range(90)]):
        found = [
            value
            for decade in decades
            for step in steps
            if 0.7 * low <= (value := float(f"{step:g}e{decade}")) <= 1.4 * high
        ]
        if len(found) >= 4:
            break
    return found


def _titled(da: Any, target: Any, *, var_name: Any, sel: Any, **_: Any) -> None:
    own = {dim: value for dim, value in sel.items() if dim != "quantity"}
    labeller: Any = BaseLabeller()
    azp.visuals.labelled_title(da, target, text=labeller.make_label_flat(var_name, own, own))
