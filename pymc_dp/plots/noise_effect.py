"""Prior, the posterior that ignores the noise, and the one that has it, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import arviz_plots as azp
import numpy as np
from xarray import DataArray, Dataset, DataTree, concat

from pymc_dp.plots.layout import with_size

__all__ = ["plot_noise_effect"]


def plot_noise_effect(
    aware: DataTree,
    *,
    ignoring: DataTree | None = None,
    prior: DataTree | None = None,
    var_names: str | Sequence[str] | None = None,
    backend: Any = None,
    **kwargs: Any,
) -> azp.PlotCollection:
    """Compare a posterior that has the noise in its model with one that ignores it, and the prior.

    The picture is as wide as the posteriors ask for; a prior that is much wider is cut off.

    Parameters
    ----------
    aware : DataTree
        Result of :func:`pymc_dp.sample` on the model with :func:`~pymc_dp.Privatized`.
    ignoring : DataTree, optional
        Result on a model that takes the released value for the statistic itself.
    prior : DataTree, optional
        With a group ``prior``, as of ``pm.sample_prior_predictive``; `aware` is looked at where
        it is not given, and without one no prior is drawn.
    var_names : str or sequence of str, optional
        Variables, of those that all of them have.
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
    >>> from pymc_dp.plots import plot_noise_effect
    >>> rng = np.random.default_rng(1)
    >>> aware = from_dict({"posterior": {"mu": rng.normal(size=(2, 100))}})
    >>> ignoring = from_dict({"posterior": {"mu": 0.3 * rng.normal(size=(2, 100))}})
    >>> picture = plot_noise_effect(aware, ignoring=ignoring, backend="none")
    >>> picture.aes["color"].ds["model"].values.tolist()
    ['noise ignored', 'noise in the model']
    """
    prior = aware if prior is None and "prior" in aware.children else prior
    draws = {}
    if prior is not None:
        draws["prior"] = prior["prior"].dataset
    if ignoring is not None:
        draws["noise ignored"] = ignoring["posterior"].dataset
    draws["noise in the model"] = aware["posterior"].dataset
    common = [
        name for name in aware["posterior"].data_vars if all(name in d for d in draws.values())
    ]
    names = [var_names] if isinstance(var_names, str) else list(var_names or common)
    if missing := [name for name in names if name not in common]:
        have = ", ".join(map(str, common))
        raise ValueError(f"{missing[0]!r} is not in all of them; in common they have {have}.")
    trees = _of_equal_length({label: data[names] for label, data in draws.items()})
    visuals: Any = {"point_estimate_text": False, "credible_interval": len(trees) == 1}
    visuals |= {"point_estimate": len(trees) == 1} | kwargs.pop("visuals", {})
    sizes = aware["posterior"].dataset[names]
    kwargs = with_size(kwargs, sizes, "chain", "draw")
    picture = azp.plot_dist(trees, backend=backend, visuals=visuals, **kwargs)
    if prior is not None:
        picture.map(_cut, data=_window(trees), ignore_aes="all", store_artist=False)
    if len(trees) > 1 and backend != "none":
        picture.add_legend("model")
    return picture


def _window(trees: dict[str, DataTree]) -> Dataset:
    """Where the posteriors are, and as much again, as far as there are draws."""

    def ends(labels: list[str]) -> tuple[Dataset, Dataset]:
        data = concat([trees[label]["posterior"].dataset for label in labels], dim="model")
        return data.min(("model", "chain", "draw")), data.max(("model", "chain", "draw"))

    first, last = ends(list(trees))
    low, high = ends([label for label in trees if label != "prior"])
    low, high = low - (high - low) / 2, high + (high - low) / 2
    return concat([low.where(low > first, first), high.where(high < last, last)], dim="end")


def _cut(da: DataArray, target: Any, **kwargs: Any) -> None:
    """Show the part of a plot between two ends."""
    low, high = da.values.tolist()
    if low < high:
        azp.visuals.set_xlim(da, target, limits=(low, high), **kwargs)


def _of_equal_length(draws: dict[str, Dataset]) -> dict[str, DataTree]:
    """As many draws of each, evenly taken, so that they can be put side by side."""
    length = min(data.sizes["chain"] * data.sizes["draw"] for data in draws.values())
    trees = {}
    for label, data in draws.items():
        flat = data.stack(sample=("chain", "draw")).drop_vars(("sample", "chain", "draw"))
        flat = flat.isel(sample=np.linspace(0, flat.sizes["sample"] - 1, length).astype(int))
        flat = flat.rename(sample="draw").assign_coords(draw=np.arange(length))
        trees[label] = DataTree.from_dict({"posterior": flat.expand_dims(chain=[0])})
    return trees
