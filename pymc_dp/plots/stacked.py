"""Releases side by side in one variable, as ArviZ's predictive plots take observed data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from xarray import DataArray, Dataset, DataTree

__all__ = ["stack_releases"]


def stack_releases(
    idata: DataTree,
    *,
    var_names: str | Sequence[str] | None = None,
    group: str = "posterior_predictive",
    standardize: bool = False,
) -> DataTree:
    """Put released numbers, and predictions of them, side by side along one dimension.

    ``az.plot_ppc_interval``, ``az.plot_ppc_pit`` and ``az.plot_ppc_dist`` compare many observations
    with their predictions and fail on a variable that is one number. This makes one variable,
    ``releases``, of all of them.

    Parameters
    ----------
    idata : DataTree
        With the groups ``posterior_predictive`` (of ``pm.sample_posterior_predictive``) and
        ``observed_data``.
    var_names : str or sequence of str, optional
        Releases; all that were predicted by default.
    group : str
        Or ``"prior_predictive"``.
    standardize : bool
        Whether to subtract the mean of the predictions from every number, and to divide it by their
        standard deviation: for releases of different sizes, a sum and a sum of squares say.

    Returns
    -------
    DataTree
        With the same two groups and the dimension ``release``, labelled by name and place.

    Examples
    --------
    >>> import arviz as az
    >>> import numpy as np
    >>> from arviz_base import from_dict
    >>> from pymc_dp.plots import stack_releases
    >>> rng = np.random.default_rng(1)
    >>> predicted = {"total": rng.normal(9, 1, (2, 50)), "cells": rng.normal(3, 1, (2, 50, 2))}
    >>> observed = {"total": np.array(8.7), "cells": np.array([2.0, 4.0])}
    >>> idata = from_dict({"posterior_predictive": predicted, "observed_data": observed})
    >>> stack = stack_releases(idata)
    >>> stack["observed_data"]["release"].values.tolist()
    ['total', 'cells[0]', 'cells[1]']
    >>> picture = az.plot_ppc_interval(stack, backend="none")
    """
    for needed in (group, "observed_data"):
        if needed not in idata.children:
            raise ValueError(
                f"There is no group {needed!r}. Write pm.sample_posterior_predictive(idata, "
                "extend_inferencedata=True) with the model in context."
            )
    predicted, observed = idata[group].dataset, idata["observed_data"].dataset
    names = [var_names] if isinstance(var_names, str) else list(var_names or observed.data_vars)
    names = [name for name in names if name in predicted and name in observed]
    if not names:
        raise ValueError(f"None of {', '.join(map(str, observed.data_vars))} was predicted.")
    draws, values = _side_by_side(predicted, names), _side_by_side(observed, names)
    if standardize:
        middle, spread = draws.mean(("chain", "draw")), draws.std(("chain", "draw"))
        draws, values = (draws - middle) / spread, (values - middle) / spread
    return DataTree.from_dict(
        {group: Dataset({"releases": draws}), "observed_data": Dataset({"releases": values})}
    )


def _side_by_side(data: Dataset, names: Sequence[Any]) -> DataArray:
    """All components of some variables along one dimension, which comes last."""
    arrays, labels = [], []
    sample = [dim for dim in ("chain", "draw") if dim in data.dims]
    for name in names:
        values = data[name].transpose(*sample, ...).values
        shape = values.shape[len(sample) :]
        arrays.append(values.reshape(*values.shape[: len(sample)], -1).astype(np.float64))
        places = [",".join(map(str, place)) for place in np.ndindex(shape)]
        labels += [f"{name}[{place}]" if place else str(name) for place in places]
    coords = {dim: data[dim].values for dim in sample} | {"release": labels}
    return DataArray(np.concatenate(arrays, axis=-1), coords, (*sample, "release"))
