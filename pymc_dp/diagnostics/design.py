"""How wide posteriors will be, before anything is released: simulated releases over a grid."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pymc as pm
from xarray import DataTree

from pymc_dp.analyst.count_gibbs.cells import shape_of
from pymc_dp.analyst.marginal.strategy import integrated_out
from pymc_dp.analyst.release import releases
from pymc_dp.analyst.unknown_size import presences
from pymc_dp.compat import create_simple_progress, no_model_context
from pymc_dp.diagnostics.calibration.cells import Cell, Found, Study
from pymc_dp.diagnostics.calibration.run import check_whole_numbers
from pymc_dp.diagnostics.calibration.simulation import (
    check_model,
    confidential,
    fixed_parameters,
    ranked_names,
    records_or_counts,
)
from pymc_dp.diagnostics.calibration.widths import DIMENSIONS, tree_of
from pymc_dp.executors.futures import check_executor

__all__ = ["design"]

#: one in so many replicates is fitted to the records themselves: their widths vary little
SELDOM = 5

Build = Callable[[float, int], pm.Model]


def design(
    build: Build,
    epsilon: float | Sequence[float],
    n: int | Sequence[int],
    *,
    truth: Mapping[str, Any] | None = None,
    var_names: Sequence[str] | None = None,
    replicates: int = 100,
    ci_prob: float = 0.9,
    without_noise: bool = True,
    executor: Any = None,
    draws: int = 99,
    tune: int = 500,
    most_draws: int = 20_000,
    random_seed: int | None = None,
    progressbar: bool = True,
    quiet: bool = False,
    **step_kwargs: Any,
) -> DataTree:
    r"""Tell how wide posteriors will be, over a grid of epsilon and n, from simulated releases.

    For whoever decides on epsilon. For every epsilon and number of records parameters are drawn
    from the prior (or are those of `truth`), records from the model and a release from its
    mechanism, and the model is fitted to that release: what an analyst will do, done before
    anything is released. Nothing confidential is read, and nothing is spent: releases are made up.
    Arrays that `build` puts into the model (covariates, say) are used as they are: give it made-up
    or public ones.

    Parameters
    ----------
    build : callable
        ``build(epsilon, n)`` returns the model of a release with that epsilon and n records, with
        at least one :func:`~pymc_dp.Privatized` or from :func:`~pymc_dp.marginalize`. Released
        values are not read: leave ``observed=`` out, or give any value. All that is observed is
        simulated.
    epsilon, n : number or sequence of numbers
        The grid; passed to `build` and not looked at.
    truth : mapping, optional
        Values of parameters by their names, in place of draws from the prior; parameters that are
        not named are drawn. Coverage is then that of intervals at this truth, which is not exactly
        `ci_prob` even if all is well, and the widths are those to expect there.
    var_names : sequence of str, optional
        Parameters, or Deterministics of parameters, of the same shape for all of the grid. Defaults
        to all parameters.
    replicates : int
        Simulated releases for every epsilon and n.
    ci_prob : float
        Probability of the central intervals.
    without_noise : bool
        Whether to fit the models, for some of the replicates (one in five), to the simulated
        records themselves too: what is lost by not having them. Not where records were integrated
        out, their number is unknown, or statistics stand in their place
        (:func:`~pymc_dp.RegressionStatistics`); attribute ``without_noise`` of the result says so.
        A very large epsilon in the grid serves there.
    executor : object with ``submit``, optional
        Where to fit: a client of Dask, or an executor of :mod:`concurrent.futures`. The result is
        that of the same `random_seed` without it.
    draws : int
        Effective draws of a fit: a chain goes on until all parameters have that many.
    tune : int
        Tuning iterations of every chain.
    most_draws : int
        Where a chain ends at the latest. How many fits had fewer effective draws by then is told
        and warned of.
    random_seed : int, optional
        Seed of everything. Cells of the grid are simulated from the same one, so that they differ
        by epsilon and n more than by chance; their Monte Carlo errors are not independent.
    progressbar, quiet : bool
        As of :func:`pymc.sample`.
    **step_kwargs
        Arguments of steps by their names, as of :func:`pymc.sample`.

    Returns
    -------
    DataTree
        Group ``expected``: of each parameter the posterior standard deviation (``quantity="sd"``),
        the width of its interval (``"width"``) and the share of intervals with the truth in them
        (``"coverage"``), by ``epsilon`` and ``n``. Group ``mcse``: Monte Carlo standard errors of
        these. Group ``simulated``: the same of each replicate. Group ``fits``: draws and effective
        draws. Groups ``without_noise/expected`` and ``without_noise/mcse``: ``sd`` and ``width`` by
        ``n``, where the records themselves are known. :func:`pymc_dp.plots.plot_design` draws it.

    See Also
    --------
    calibrate : whether posteriors of one model mean what they say.
    suggest_score : settings of a score release, with a forecast of the posterior's width.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dp as pmdp
    >>> def build(epsilon, n):
    ...     with pm.Model() as model:
    ...         p = pm.Beta("p", 1, 1)
    ...         x = pm.Bernoulli("x", p, shape=n)
    ...         noise = pmdp.Laplace(epsilon=epsilon, sensitivity=1)
    ...         total = pmdp.Privatized("total", x.sum(), noise)
    ...     return model
    >>> few = {"replicates": 5, "tune": 50, "without_noise": False, "quiet": True}
    >>> tree = pmdp.design(build, [0.1, 1], n=20, random_seed=1, **few)
    >>> sd = tree["expected"]["p"].sel(quantity="sd", n=20)
    >>> bool(sd.sel(epsilon=0.1) > sd.sel(epsilon=1))
    True
    """
    grid = _axis("epsilon", epsilon, float), _axis("n", n, int)
    check_whole_numbers(replicates=replicates, draws=draws, most_draws=most_draws)
    if not 0 < ci_prob < 1:
        raise ValueError(f"ci_prob must be between 0 and 1, not {ci_prob!r}.")
    if executor is not None:
        check_executor(executor)
    models = {cell: _built(build, *cell) for cell in product(*grid)}
    names = _names(models, var_names, truth)
    seeds = np.random.SeedSequence(random_seed)
    most = max(most_draws, draws)
    study = Study(names, truth, seeds, (draws, tune, most), step_kwargs, ci_prob)
    missing = _not_to_be_had(models) if without_noise else "not asked for"
    cells = [Cell(*cell, model, replicates, False) for cell, model in models.items()]
    if not missing:
        few = -(-replicates // SELDOM)
        cells += [Cell(grid[0][-1], size, models[grid[0][-1], size], few, True) for size in grid[1]]
    bar = create_simple_progress(progressbar=progressbar and not quiet)
    with bar:
        task = bar.add_task("Fitting", total=sum(cell.replicates for cell in cells))
        found = study.run(executor, cells, lambda: bar.update(task, advance=1))
    tree = tree_of(found, grid, replicates, ci_prob)
    short = sum(fit.effective_size < draws for own in found.values() for fit in own.values())
    tree.attrs = {
        "inference_library": "pymc_dp",
        "replicates": replicates,
        "draws": draws,
        "tuning_steps": tune,
        "most_draws": most,
        "ci_prob": ci_prob,
        "entropy": str(seeds.entropy),
        "truth": repr(dict(truth or {})),
        "short_fits": short,
        "without_noise": missing or "fits to the simulated records",
    }
    _tell(cells, found, short, draws, most)
    return tree


def _axis(name: str, values: Any, kind: type) -> list[Any]:
    """One side of the grid, in ascending order."""
    flat = np.atleast_1d(np.asarray(values))
    if flat.ndim != 1 or not flat.size or not np.all(flat > 0):
        raise ValueError(f"{name} must be a positive number or some of them, not {values!r}.")
    if kind is int and not np.all(flat == np.floor(flat)):
        raise ValueError(f"{name} must be whole numbers, not {values!r}.")
    return [kind(value) for value in np.unique(flat)]


def _built(build: Build, epsilon: float, n: int) -> pm.Model:
    with no_model_context():
        model = build(epsilon, n)
    if not isinstance(model, pm.Model):
        raise TypeError(
            f"build({epsilon}, {n}) gave {model!r}, which is not a model: end it with return model."
        )
    check_model(model)
    return model


def _names(
    models: dict[tuple[float, int], pm.Model],
    var_names: Sequence[str] | None,
    truth: Mapping[str, Any] | None,
) -> list[str]:
    """Names of what is told, which must be alike in all models."""
    names: list[str] | None = None
    shapes: dict[str, tuple[int, ...]] = {}
    for (epsilon, n), model in models.items():
        where = f"build({epsilon}, {n})"
        own = ranked_names(model, var_names)
        names = own if names is None else names
        if set(own) != set(names):
            raise ValueError(f"{where} has the parameters {own}, others have {names}.")
        if truth:
            fixed_parameters(model, truth)
        for name in names:
            if name in DIMENSIONS:
                raise ValueError(
                    f"{name!r} is the name of a dimension of the result: give the variable another "
                    "name, or leave it out of var_names."
                )
            shape = shape_of(model[name])
            if shapes.setdefault(name, shape) != shape:
                raise ValueError(
                    f"{name!r} has the shape {shape} in {where} and {shapes[name]} elsewhere: "
                    "leave it out of var_names."
                )
    assert names is not None
    return names


def _not_to_be_had(models: dict[tuple[float, int], pm.Model]) -> str:
    """Why models cannot be fitted to the records themselves; empty where they can."""
    for model in models.values():
        if integrated_out(model):
            return "not to be had: records were integrated out"
        if presences([release.statistic for release in releases(model)], ()):
            return "not to be had: the number of records is unknown"
        if any(rv not in records_or_counts(model) for rv in confidential(model)):
            return "not to be had: statistics stand in place of the records"
    return ""


def _tell(cells: list[Cell], found: Found, short: int, draws: int, most: int) -> None:
    done, asked = sum(map(len, found.values())), sum(cell.replicates for cell in cells)
    if done < asked:
        warnings.warn(f"Interrupted: {done} of {asked} fits were made.", stacklevel=3)
    if short:
        where = {
            f"({cell.epsilon:g}, {cell.n})": None
            for cell, own in found.items()
            if any(fit.effective_size < draws for fit in own.values())
        }
        warnings.warn(
            f"{short} of {done} fits have fewer than {draws} effective draws among {most}, at "
            f"(epsilon, n) = {', '.join(where)}: what is told of them is less certain than its "
            "error says. Raise most_draws=, or let build return pmdp.marginalize(model).",
            stacklevel=3,
        )
