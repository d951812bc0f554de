"""Log-likelihoods of releases, one column for each that can be left out by itself."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pymc as pm
from xarray import Dataset, DataTree

from pymc_dp.accounting.errors import PrivacyError
from pymc_dp.analyst.marginal.strategy import auxiliary_variables
from pymc_dp.analyst.release import by_name
from pymc_dp.curator.curated import is_curated
from pymc_dp.diagnostics.calibration.simulation import confidential, simulated_variables

__all__ = ["compute_log_likelihood"]


def compute_log_likelihood(
    idata: DataTree, *, model: pm.Model | None = None, progressbar: bool = False
) -> DataTree:
    """Add log-likelihoods to a result, one column for each point that ``arviz.loo`` can leave out.

    For models of :func:`~pymc_dp.marginalize`, whose releases have a law of their own given the
    parameters. A point is a release, not a record: what is left out is one data holder's number.
    Releases of the same records are one point, since their densities are a product of each given
    those before it (``pm.compute_log_likelihood`` has these factors one by one, and leaving one of
    them out does not leave a release out); so is a vector of sums. Noise on every record makes a
    point of every record's answer.

    Parameters
    ----------
    idata : DataTree
        With the group ``posterior``, as of :func:`~pymc_dp.sample`.
    model : Model, optional
        Defaults to the model in context.
    progressbar : bool
        Whether to show one.

    Returns
    -------
    DataTree
        `idata`, with a group ``log_likelihood`` that has one variable, ``releases``, with the
        dimensions ``chain``, ``draw`` and ``release``.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dp as pmdp
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 0, 1)
    ...     for place, released in {"north": 31.0, "south": 47.0, "west": 25.0}.items():
    ...         x = pm.Normal(f"x_{place}", mu, 1, shape=100)
    ...         s = pmdp.Privatized(place, x.sum(), pmdp.Gaussian(sigma=10), observed=released)
    >>> with pmdp.marginalize(model):
    ...     idata = pmdp.sample(200, tune=200, chains=1, random_seed=1, quiet=True)
    ...     idata = pmdp.compute_log_likelihood(idata)
    >>> idata["log_likelihood"]["releases"]["release"].values.tolist()
    ['north', 'south', 'west']

    and ``arviz.loo(idata)`` leaves out one place after another.
    """
    model = pm.modelcontext(model)
    _check(model)
    each = pm.compute_log_likelihood(
        idata, model=model, extend_inferencedata=False, progressbar=progressbar
    )
    columns: dict[str, Any] = {}
    for names in _of_the_same_records(model):
        columns |= _points(names, [each[name] for name in names])
    if len(columns) == 1:
        warnings.warn(
            f"{next(iter(columns))!r} is the only point: without it there is the prior and nothing "
            "else, and arviz.loo says nothing. Compare models by what they predict before the "
            "release, plots.plot_release(..., group='prior_predictive').",
            stacklevel=2,
        )
    values = np.stack(list(columns.values()), axis=-1)
    dims = ("chain", "draw", "release")
    coords = {"chain": each["chain"], "draw": each["draw"], "release": list(columns)}
    idata["log_likelihood"] = DataTree(Dataset({"releases": (dims, values)}, coords))
    return idata


def _check(model: pm.Model) -> None:
    """Refuse models in which a release is not a point."""
    if is_curated(model):
        raise PrivacyError(
            "A curator's step was made for this model: log-likelihoods of its confidential records "
            "are not private."
        )
    waiting = [str(rv.name) for rv in simulated_variables(model) if rv in model.free_RVs]
    if waiting:
        raise ValueError(f"The release {waiting[0]!r} has no value: give observed=.")
    latent = [str(rv.name) for rv in confidential(model)]
    if latent:
        added = latent[0] in [str(rv.name) for rv in auxiliary_variables(model)]
        what = "was added in place of records" if added else "is confidential and latent"
        write = (
            "There is no closed form without it."
            if added
            else "Sample pmdp.marginalize(model) instead."
        )
        raise ValueError(
            f"{latent[0]!r} {what}: densities of the releases given it are those of their noise, "
            f"and tell nothing about a release that is left out. {write}"
        )


def _of_the_same_records(model: pm.Model) -> list[list[str]]:
    """Names of observed variables, those together of which the same records were integrated out."""
    groups: dict[Any, list[str]] = {}
    for rv in by_name(model.observed_RVs):
        name = str(rv.name)
        integrated = getattr(rv.owner.op, "integrated", None)
        groups.setdefault(integrated.records if integrated else name, []).append(name)
    return list(groups.values())


def _points(names: list[str], densities: list[Any]) -> dict[str, Any]:
    """Columns by their labels; elements are points where every density has the same ones."""
    arrays = [one.transpose("chain", "draw", ...).values for one in densities]
    label = ", ".join(names)
    if len({array.shape for array in arrays}) > 1:
        return {label: sum(array.reshape(*array.shape[:2], -1).sum(-1) for array in arrays)}
    total = sum(arrays)
    places = list(np.ndindex(total.shape[2:]))
    labels = [f"{label}[{','.join(map(str, place))}]" if place else label for place in places]
    return {text: total[(..., *place)] for text, place in zip(labels, places, strict=True)}
