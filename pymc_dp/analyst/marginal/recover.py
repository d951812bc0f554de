"""Draws of the records given draws of the parameters and the release."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import xarray as xr
from pymc.pytensorf import compile as pm_compile
from pytensor.graph.replace import clone_replace
from pytensor.tensor.variable import TensorVariable

from pymc_dp.analyst.marginal.strategy import integrated_out
from pymc_dp.analyst.record_gibbs.step import RecordGibbs
from pymc_dp.analyst.records import RecordBlock, is_record, record_blocks
from pymc_dp.analyst.release import Release, releases
from pymc_dp.graph.additivity import direct_inputs
from pymc_dp.graph.intervals import ONCE
from pymc_dp.mechanisms import RandomizedResponse
from pymc_dp.mechanisms.additive import AdditiveNoise
from pymc_dp.mechanisms.around import Around

__all__ = ["recover_records"]

#: rounds of proposals after which rejection is given up
MOST_ROUNDS = 20_000


def recover_records(
    idata: Any,
    model: pm.Model,
    *,
    draws: int | None = 100,
    sweeps: int = 20,
    random_seed: Any = None,
) -> xr.Dataset:
    """Draw records given draws of their parameters and the release.

    For those who integrated records out (:func:`~pymc_dp.marginalize`) and want them after all.

    Where noise was added to every record, the draws are independent and exact: records are drawn
    from the model given a draw of the parameters until each is accepted by the density of its own
    release. Where sums were released, the records are those of a chain of :class:`RecordGibbs`
    whose parameters are set to one draw after the other, `sweeps` sweeps each from the records of
    the draw before: right in the limit of many sweeps.

    Parameters
    ----------
    idata : DataTree
        Draws of the parameters, in its group ``posterior``, under the model's names.
    model : Model
        The model with the records, before they were integrated out.
    draws : int, optional
        Draws a chain, evenly spaced ones of those that there are; None for all of them. A draw is
        as large as the data.
    sweeps : int
        Sweeps over the records for each draw, where sums were released.
    random_seed : int, optional
        For numbers that can be drawn again.

    Returns
    -------
    xarray.Dataset
        The record variables, of dimensions chain, draw and their own.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dp as pmdp
    >>> with pm.Model() as model:
    ...     p = pm.Beta("p", 1, 1)
    ...     x = pm.Bernoulli("x", p, shape=4)
    ...     coin = pmdp.RandomizedResponse(2, keep=0.75)
    ...     reports = pmdp.Privatized("reports", x, coin, observed=[1, 0, 1, 1])
    >>> with pmdp.marginalize(model):
    ...     idata = pmdp.sample(50, tune=50, chains=1, cores=1, quiet=True)
    >>> records = pmdp.recover_records(idata, model, draws=10, random_seed=1)
    >>> records["x"].shape
    (1, 10, 4)
    """
    if integrated_out(model):
        raise ValueError(
            "This model has no records: pass the one that pmdp.marginalize was called with."
        )
    chosen = _chosen(idata.posterior, draws)
    local = [rv for rv in model.free_RVs if _released_by_itself(model, rv)]
    records = [rv for rv in model.free_RVs if rv in local or is_record(model, rv)]
    if not records:
        raise ValueError("No release reaches latent records of this model: there are none to draw.")
    blocks = record_blocks(model, records)
    rng = np.random.default_rng(random_seed)
    found: dict[str, Any] = {}
    sums = [block for block in blocks if block.releases]
    for block in blocks:
        if not block.releases:
            found |= _by_rejection(model, block, chosen, rng)
    if sums:
        found |= _by_sweeps(model, sums, chosen, sweeps, rng)
    return _dataset(model, found, chosen)


def _chosen(posterior: Any, draws: int | None) -> xr.Dataset:
    values = posterior.to_dataset() if hasattr(posterior, "to_dataset") else posterior
    total = values.sizes["draw"]
    if draws is None or draws >= total:
        return values
    return values.isel(draw=np.linspace(0, total - 1, draws).round().astype(int))


def _released_by_itself(model: pm.Model, rv: TensorVariable) -> bool:
    """Whether a latent variable has one record a row, each with a release of its own."""
    for release in releases(model):
        reached = direct_inputs([release.statistic], model.basic_RVs)
        if rv in reached and rv.type.ndim and release.mechanism.elementwise:
            return release.statistic.type.shape[:1] == rv.type.shape[:1]
    return False


def _parameters(
    model: pm.Model, blocks: Sequence[RecordBlock], chosen: xr.Dataset
) -> list[TensorVariable]:
    """Latent variables on which records and their releases depend, all of which were drawn."""
    records = [rv for block in blocks for rv in block.records]
    others = [rv for rv in model.free_RVs if rv not in records]
    graphs = [var for rv in records for var in rv.owner.inputs if hasattr(var.type, "dtype")]
    for block in blocks:
        graphs += [*block.contributions, *block.factors.values()]
    reached = direct_inputs(graphs, [*others, *records])
    found = [rv for rv in others if rv in reached]
    missing = [str(rv.name) for rv in found if str(rv.name) not in chosen]
    if missing:
        raise ValueError(
            f"There are no draws of {', '.join(map(repr, missing))}, which the records depend on: "
            "sample with var_names= that has them."
        )
    return found


def _by_rejection(
    model: pm.Model, block: RecordBlock, chosen: xr.Dataset, rng: np.random.Generator
) -> dict[str, Any]:
    """Draw records of releases that keep them apart."""
    noise: Any = sum(block.factors.values())
    params = _parameters(model, [block], chosen)
    given: dict[Any, Any] = {rv: rv.type() for rv in params}
    outputs = clone_replace([*block.records, noise], given, rebuild_strict=False)
    propose = pm_compile(
        list(given.values()),
        outputs,
        random_seed=int(rng.integers(2**31)),
        on_unused_input="ignore",
    )
    largest = sum(_largest(model, release) for release in _own(model, block))
    drawn: dict[str, list[Any]] = {str(rv.name): [] for rv in block.records}
    for point in _points(chosen, params):
        for rv, values in zip(block.records, _accepted(propose, point, largest, rng), strict=True):
            drawn[str(rv.name)].append(values)
    return {name: np.array(values) for name, values in drawn.items()}


def _accepted(propose: Any, point: Any, largest: Any, rng: np.random.Generator) -> list[Any]:
    """Propose all records again and again until each was accepted once."""
    *records, log_noise = propose(*point)
    done = np.zeros(len(log_noise), dtype=bool)
    kept = [np.array(values) for values in records]
    for _ in range(MOST_ROUNDS):
        gap = log_noise - largest
        assert np.all(gap < 1e-9), "a density above its bound"
        take = ~done & (np.log(rng.random(len(gap))) < gap)
        for own, values in zip(kept, records, strict=True):
            own[take] = values[take]
        done |= take
        if done.all():
            return kept
        *records, log_noise = propose(*point)
    raise ValueError(
        f"Record {int(np.argmin(done))} was not accepted in {MOST_ROUNDS} proposals: the noise is "
        "too narrow for the model to propose what it left open. Sample the records themselves with "
        "pmdp.sample(var_names=...)."
    )


def _own(model: pm.Model, block: RecordBlock) -> list[Release]:
    return [release for release in releases(model) if release.name in block.factors]


def _largest(model: pm.Model, release: Release) -> Any:
    """Logarithm of the largest density that each record's release has, whatever the record is."""
    mechanism = release.mechanism
    value: Any = model.rvs_to_values[release.rv]
    if isinstance(mechanism, RandomizedResponse):
        with np.errstate(divide="ignore"):
            highest = np.log(mechanism.matrix.max(axis=0))
        found = highest[np.asarray(value.eval(mode=ONCE), dtype=int)]
    elif isinstance(mechanism, AdditiveNoise) and not isinstance(mechanism, Around):
        found = mechanism.logp(value, value.astype("float64")).eval(mode=ONCE)
    else:
        raise NotImplementedError(
            f"{release.name!r} has {mechanism!r}, the largest density of which is not known. "
            "Sample the records themselves with pmdp.sample(var_names=...)."
        )
    return np.reshape(found, (len(found), -1)).sum(axis=1)


def _by_sweeps(
    model: pm.Model,
    blocks: Sequence[RecordBlock],
    chosen: xr.Dataset,
    sweeps: int,
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Let records follow the parameters, draw after draw."""
    records = [rv for block in blocks for rv in block.records]
    params = _parameters(model, blocks, chosen)
    with model:
        step = RecordGibbs(records, interweave=False, cycles=1, rng=rng)
    forward = _on_the_sampler_scale(model, params)
    names = [str(model.rvs_to_values[rv].name) for rv in params]
    point = model.initial_point(random_seed=int(rng.integers(2**31)))
    drawn: dict[str, list[Any]] = {str(rv.name): [] for rv in records}
    back = _on_the_natural_scale(model, records)
    for natural in _points(chosen, params):
        point = {**point, **dict(zip(names, forward(*natural), strict=True))}
        for _ in range(sweeps):
            point, _ = step.step(point)
        for rv, values in zip(records, back(point), strict=True):
            drawn[str(rv.name)].append(np.array(values))
    return {name: np.array(values) for name, values in drawn.items()}


def _on_the_sampler_scale(model: pm.Model, params: Sequence[Any]) -> Any:
    """Compile values of parameters, as steps see them, from natural ones."""
    given: dict[Any, Any] = {rv: rv.type() for rv in params}
    outputs = []
    for rv in params:
        transform = model.rvs_to_transforms.get(rv)
        outputs.append(rv if transform is None else transform.forward(rv, *rv.owner.inputs))
    graphs = clone_replace(outputs, given, rebuild_strict=False)
    return pm_compile(list(given.values()), graphs, mode=ONCE, on_unused_input="ignore")


def _on_the_natural_scale(model: pm.Model, records: Sequence[Any]) -> Any:
    """Compile natural values of records from a point."""
    outputs = model.replace_rvs_by_values([pt.as_tensor(rv) for rv in records])
    options = {"mode": ONCE, "on_unused_input": "ignore", "point_fn": True}
    return model.compile_fn(outputs, inputs=model.value_vars, **options)


def _points(chosen: xr.Dataset, params: Sequence[Any]) -> Any:
    """Values of the parameters, chain by chain and draw by draw."""
    columns = [
        chosen[str(rv.name)].transpose("chain", "draw", ...).values.astype(rv.dtype)
        for rv in params
    ]
    for chain in range(chosen.sizes["chain"]):
        for draw in range(chosen.sizes["draw"]):
            yield [np.asarray(column[chain, draw]) for column in columns]


def _dataset(model: pm.Model, found: dict[str, Any], chosen: xr.Dataset) -> xr.Dataset:
    shape = chosen.sizes["chain"], chosen.sizes["draw"]
    variables = {}
    for name, values in found.items():
        own = model.named_vars_to_dims.get(name)
        dims = own or [f"{name}_dim_{axis}" for axis in range(values.ndim - 1)]
        variables[name] = (("chain", "draw", *dims), values.reshape(*shape, *values.shape[1:]))
    coords: dict[str, Any] = {"chain": chosen["chain"], "draw": chosen["draw"]}
    used = {dim for dims, _ in variables.values() for dim in dims}
    coords |= {k: list(v) for k, v in model.coords.items() if k in used and v is not None}
    return xr.Dataset(variables, coords=coords)
