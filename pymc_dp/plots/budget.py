"""What a private run has spent, by kind of look."""

from __future__ import annotations

from functools import partial
from typing import Any

import arviz_plots as azp
import numpy as np
from xarray import Dataset

from pymc_dp.accounting.allowance import PrivacySpent
from pymc_dp.accounting.composition import GaussianQueries, composed_epsilon, renyi_divergence
from pymc_dp.accounting.renyi import filter_epsilon
from pymc_dp.curator.steps.base import privacy_spent

__all__ = ["plot_budget"]

#: places along the run at which the guarantee is computed
PLACES = 41


def plot_budget(
    spent: Any, *, backend: str | None = None, places: int = PLACES, **kwargs: Any
) -> azp.PlotCollection:
    """Draw how the epsilon of a private chain grows with its iterations, by kind of look.

    Every iteration looks at one log-ratio, and with gradients at several of them. Their lines are
    what each kind would cost alone; both together cost less than the sum, since looks compose.

    Parameters
    ----------
    spent : PrivacySpent or step
        What :func:`pymc_dp.privacy_spent` tells, or a step after its run.
    backend : {"matplotlib", "bokeh", "plotly"}, optional
        ArviZ's own default.
    places : int
        Places along the run at which the guarantee is computed.
    **kwargs
        Passed to ``arviz_plots.PlotCollection.wrap``.

    Returns
    -------
    PlotCollection

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dp as pmdp
    >>> from pymc_dp.plots import plot_budget
    >>> with pm.Model():
    ...     mu = pm.Normal("mu", 0, 1)
    ...     _ = pm.Normal("y", mu, 1, observed=[0.3, -0.2, 1.1])
    ...     step = pmdp.DPPenalty(epsilon=1, delta=1e-6, chains=1, clip_logp=3, step_size=0.5)
    >>> plot_budget(step)
    Traceback (most recent call last):
    ...
    ValueError: Nothing was spent yet: draw this after the run.
    """
    if not isinstance(spent, PrivacySpent):
        spent = privacy_spent(spent)
    data = budget_by_look(spent, places)
    kwargs.setdefault("cols", ["__variable__"])
    kwargs.setdefault("aes", {"color": ["look"], "linestyle": ["look"]})  # lines may coincide
    picture = azp.PlotCollection.wrap(data, backend=backend, **kwargs)
    picture.map(azp.visuals.line, "line", xname="iteration")
    for axis in ("x", "y"):
        text = {"x": "iterations, of all chains", "y": f"epsilon at delta {spent.delta:g}"}[axis]
        label = getattr(azp.visuals, f"labelled_{axis}")
        picture.map(label, f"{axis}label", text=text, ignore_aes="all", subset_info=True)
    if data.sizes["look"] > 1 and backend != "none":
        picture.add_legend("look")
    return picture


def budget_by_look(spent: PrivacySpent, places: int = PLACES) -> Dataset:
    """Epsilon after so many iterations, by kind of look and of all looks.

    Parameters
    ----------
    spent : PrivacySpent
        Of one step.
    places : int
        How many numbers of iterations, from none to all.

    Returns
    -------
    Dataset
        ``epsilon`` with the dimensions ``look`` and ``iteration``.
    """
    details = spent.details
    if details.get("simulation"):
        raise ValueError("A simulation promises nothing, so that it has no budget to draw.")
    if not details.get("iterations"):
        raise ValueError("Nothing was spent yet: draw this after the run.")
    total = details["iterations"]
    looks = {"log ratios": (1.0, details["noise_multiplier"])}
    if details.get("gradients"):
        looks["gradients"] = (details["gradients"] / total, details["grad_noise_multiplier"])
        if not np.isfinite(details["noise_multiplier"]) or details["noise_multiplier"] == 0:
            del looks["log ratios"]
    fraction, sampling = details.get("batch_fraction", 1.0), details.get("sampling", "fixed")
    iterations = np.unique(np.linspace(0, total, places).round().astype(int))

    def epsilon(kinds: list[str], done: int) -> float:
        queries = [
            GaussianQueries(looks[kind][1], round(done * looks[kind][0]), fraction, None, sampling)
            for kind in kinds
        ]
        if done == 0:
            return 0.0
        neighbours = details["neighbours"]
        if details.get("accountant") == "rdp":
            divergence = partial(renyi_divergence, queries, neighbours=neighbours)
            return filter_epsilon(divergence, spent.epsilon, spent.delta)
        return composed_epsilon(queries, spent.delta, "pld", neighbours)

    lines = {kind: [kind] for kind in looks} | ({"all": list(looks)} if len(looks) > 1 else {})
    values = [[epsilon(kinds, int(done)) for done in iterations] for kinds in lines.values()]
    return Dataset(
        {"epsilon": (("look", "iteration"), values)},
        coords={"look": list(lines), "iteration": iterations},
    )
