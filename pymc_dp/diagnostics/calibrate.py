"""Simulation-based calibration of a model with releases."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import cloudpickle
import numpy as np
import pymc as pm
from xarray import Dataset, DataTree

from pymc_dp.compat import create_simple_progress
from pymc_dp.diagnostics.calibration.fits import Fit, FitJob
from pymc_dp.diagnostics.calibration.ranks import covered
from pymc_dp.diagnostics.calibration.run import (
    check_whole_numbers,
    dims_and_coords,
    fits,
    replicates_of,
)
from pymc_dp.diagnostics.calibration.simulation import (
    check_model,
    first_values,
    ranked_names,
    simulate,
)
from pymc_dp.executors.futures import check_executor

__all__ = ["calibrate"]

#: probabilities of the central intervals whose coverage is told
LEVELS = np.array([0.5, 0.8, 0.9, 0.95])


def calibrate(
    model: pm.Model,
    replicates: int = 200,
    *,
    executor: Any = None,
    var_names: Sequence[str] | None = None,
    draws: int = 99,
    tune: int = 500,
    most_draws: int = 20_000,
    simulator: pm.Model | None = None,
    random_seed: int | None = None,
    progressbar: bool = True,
    quiet: bool = False,
    **step_kwargs: Any,
) -> DataTree:
    r"""Check by simulation that posteriors of a model mean what they say.

    Parameters are drawn from the prior, records from the model and releases from the mechanisms;
    then the model is fitted to these. If sampler and model are right, each parameter's rank among
    posterior draws is uniform (Talts et al. 2018, Theorem 1). What is ranked are parameters, not
    the records. The steps are those that :func:`~pymc_dp.sample` picks, compiled once for all
    replicates; PyMC's NUTS also where nutpie is installed.

    Parameters
    ----------
    model : Model
        With at least one release (:func:`~pymc_dp.Privatized`), or of
        :func:`~pymc_dp.marginalize`. Released values are not read; they may be missing
        (``observed=None``), or held by ``pm.Data``. The model is left as it is.
    replicates : int
        Simulated releases, each of which is fitted.
    executor : object with ``submit``, optional
        Where to fit: a client of Dask, or an executor of :mod:`concurrent.futures`. The result is
        that of the same `random_seed` without it.
    var_names : sequence of str, optional
        Parameters, or Deterministics of parameters. Defaults to all parameters.
    draws : int
        Nearly independent draws that a parameter is ranked among: a chain goes on until all
        parameters have that many effective draws, and is thinned to that many.
    tune : int
        Tuning iterations of every chain.
    most_draws : int
        Where a chain ends at the latest. How many replicates had fewer effective draws by then is
        told and warned of: their ranks lean to the ends.
    simulator : Model, optional
        Another model to draw parameters and releases from, with the same names: the model of the
        records, where `model` is an approximation of it.
    random_seed : int, optional
        Seed of everything.
    progressbar, quiet : bool
        As of :func:`pymc.sample`.
    **step_kwargs
        Arguments of steps by their names, as of :func:`pymc.sample`, such as
        ``nuts={"target_accept": 0.9}``.

    Returns
    -------
    DataTree
        Group ``prior_sbc``: for each parameter and replicate the place ``(rank + u) / (draws + 1)``
        with `u` uniform, which is uniform on (0, 1), as ``arviz.plot_ecdf_pit`` expects it. Group
        ``coverage``: share of replicates whose central intervals have the parameter in them. Group
        ``fits``: draws and effective draws (the fewest of a parameter) of each fit. The attributes
        tell what was run.

    References
    ----------
    Talts, Betancourt, Simpson, Vehtari & Gelman (2018). Validating Bayesian inference algorithms
    with simulation-based calibration.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dp as pmdp
    >>> with pm.Model() as model:
    ...     p = pm.Beta("p", 1, 1)
    ...     x = pm.Bernoulli("x", p, shape=20)
    ...     total = pmdp.Privatized("total", x.sum(), pmdp.Laplace(scale=2), observed=13.1)
    >>> tree = pmdp.calibrate(model, replicates=10, tune=50, random_seed=1, quiet=True)
    >>> tree["prior_sbc"]["p"].shape
    (1, 10)
    """
    source = model if simulator is None else simulator
    for one in {model, source}:
        check_model(one)
    check_whole_numbers(replicates=replicates, draws=draws, most_draws=most_draws)
    if executor is not None:
        check_executor(executor)
    # drawing leaves traces in a model: its generators, and what was compiled
    fitted, source = cloudpickle.loads(cloudpickle.dumps((model, source)))
    names = ranked_names(fitted, var_names)
    seeds = np.random.SeedSequence(random_seed)
    simulating, fitting = seeds.spawn(2)
    simulated = simulate(source, names, replicates, int(simulating.generate_state(1)[0]))
    _check_simulator(fitted, simulated.released)
    most = max(most_draws, draws)
    first = first_values(fitted, simulated.released)
    job = FitJob(model, first, names, draws, tune, most, step_kwargs)
    tasks = replicates_of(simulated, fitting.spawn(replicates))
    found: dict[int, Fit] = {}
    bar = create_simple_progress(progressbar=progressbar and not quiet)
    with bar:
        task = bar.add_task("Fitting", total=replicates)
        for i, fit in fits(executor, job, tasks):
            found[i] = fit
            bar.update(task, advance=1)
    tree = _tree(model, found)
    short = sum(fit.effective_size < draws for fit in found.values())
    tree.attrs = {
        "inference_library": "pymc_dp",
        "replicates": len(found),
        "draws": draws,
        "tuning_steps": tune,
        "most_draws": most,
        "entropy": str(seeds.entropy),
        "short_replicates": short,
    }
    _tell(replicates, len(found), short, draws, most)
    return tree


def _check_simulator(model: pm.Model, released: dict[str, Any]) -> None:
    """Refuse a simulator that releases other things than the model."""
    for name in released:
        if name not in model.named_vars:
            raise ValueError(f"simulator= releases {name!r}, of which the model knows nothing.")
    for rv in model.observed_RVs:
        if str(rv.name) not in released:
            raise ValueError(f"simulator= has no {str(rv.name)!r}, which the model observes.")


def _tree(model: pm.Model, found: dict[int, Fit]) -> DataTree:
    from arviz_base import dict_to_dataset  # slow to import

    if not found:
        raise KeyboardInterrupt
    order = sorted(found)
    places = {
        name: np.array([found[i].places[name] for i in order]) for name in found[order[0]].places
    }
    dims, coords = dims_and_coords(model, list(places))
    sbc = dict_to_dataset(
        {name: values[None] for name, values in places.items()}, dims=dims, coords=coords
    )
    shares = dict_to_dataset(
        {name: covered(values, LEVELS) for name, values in places.items()},
        sample_dims=["level"],
        dims=dims,
        coords={**coords, "level": LEVELS},
    )
    each = Dataset(
        {
            "draws": ("replicate", [found[i].draws for i in order]),
            "effective_size": ("replicate", [found[i].effective_size for i in order]),
        },
        {"replicate": order},
    )
    return DataTree.from_dict({"prior_sbc": sbc, "coverage": shares, "fits": each})


def _tell(asked: int, done: int, short: int, draws: int, most: int) -> None:
    if done < asked:
        warnings.warn(f"Interrupted: {done} of {asked} replicates were fitted.", stacklevel=3)
    if short:
        warnings.warn(
            f"{short} of {done} replicates have fewer than {draws} effective draws among "
            f"{most}: their ranks lean to the ends. Raise most_draws=, or lower draws=.",
            stacklevel=3,
        )
