"""Sample models from which records were integrated out, and say when that would serve."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
import pymc as pm
from pymc.blocking import DictToArrayBijection
from pymc.vartypes import continuous_types
from pytensor.tensor.variable import TensorVariable

from pymc_dp.analyst.count_gibbs.cells import cell_variables
from pymc_dp.analyst.count_gibbs.tables import RecordCountsRV
from pymc_dp.analyst.marginal.counts.tables import Counts, is_cheaper
from pymc_dp.analyst.marginal.marginalize import STRATEGIES, marginalize
from pymc_dp.analyst.marginal.normal.accuracy import NormalError, normal_error
from pymc_dp.analyst.marginal.regression.by_default import add_rows_law, holders_to_integrate
from pymc_dp.analyst.marginal.start import (
    Mode,
    find_mode,
    has_light_tails,
    scattered_start,
)
from pymc_dp.analyst.marginal.strategy import auxiliary_variables, integrated_out
from pymc_dp.analyst.marginal.values import finite_values
from pymc_dp.analyst.records import RecordBlock, length_of, record_blocks, record_variables
from pymc_dp.analyst.regression.normal_x.wishart import GramRV
from pymc_dp.compat import nutpie_takes
from pymc_dp.executors.chains import sample_chains
from pymc_dp.graph.additivity import direct_inputs
from pymc_dp.graph.quick_mode import quick_mode
from pymc_dp.graph.rewrites import without_origins
from pymc_dp.numerics.compiled import compiling

__all__ = [
    "counted",
    "counted_blocks",
    "hint_at_marginalize",
    "integrated_holders",
    "nutpie_settings",
    "sample_marginal",
    "told_of_holders",
    "warn_of_error",
]

_log = logging.getLogger("pymc_dp")

#: records from which on a sweep over them takes longer than a marginal model's whole draw
_MANY = 10_000
#: estimated error, in posterior standard deviations, from which on there is a warning
_TOO_LARGE = 0.05
#: draws by which the error is estimated
_JUDGED = 400
#: parameters of which nutpie learns correlations: two need none, and for many it takes long
_CORRELATED = range(3, 51)
#: names under which nutpie is told how long paths are
_LENGTHS = {"check_turning", "extra_doublings", "maxdepth", "mindepth", "target_integration_time"}
#: names under which nutpie is told what to learn of these, earlier ones too
_METRICS = {"adaptation", "low_rank_modified_mass_matrix", "transform_adapt"}


def counted(model: pm.Model, **kwargs: Any) -> pm.Model | None:
    """Return the model with tables of counts in place of its records, where these are cheaper.

    They are where there are many records for every cell of the table
    (:func:`~pymc_dp.analyst.marginal.counts.is_cheaper`) and nothing was asked for that needs the
    records: a step, starting values, options of :class:`~pymc_dp.RecordGibbs`, or values of records
    or of what is computed of them. None elsewhere.
    """
    if any(kwargs.get(name) is not None for name in ("step", "initvals", "record_gibbs")):
        return None
    blocks = counted_blocks(model)
    if not blocks:
        return None
    records = [rv for block in blocks for rv in block.records]
    asked = kwargs.get("var_names")
    stored = [v for v in model.deterministics if asked is None or v.name in asked]
    named = [rv for rv in records if asked is not None and rv.name in asked]
    if named or direct_inputs(stored, records):
        return None
    return marginalize(model, records, method=Counts.name)


def integrated_holders(model: pm.Model, **kwargs: Any) -> pm.Model | None:
    """Return the model without holders' z and the law of their rows, where these are not sampled.

    :func:`~pymc_dp.analyst.marginal.regression.by_default.holders_to_integrate` says where; None
    elsewhere.
    """
    return marginalize(model) if holders_to_integrate(model, **kwargs) else None


def told_of_holders(model: pm.Model) -> list[str]:
    """Say what :func:`~pymc_dp.sample` integrates out of a model of holders by itself."""
    gone = holders_to_integrate(model)
    if not gone:
        return []
    names = ", ".join(str(rv.name) for rv in gone if not isinstance(rv.owner.op, GramRV))
    return [f"{names} by method 'exact'; NUTS samples the rest, and the law of the rows is drawn"]


def counted_blocks(model: pm.Model) -> list[RecordBlock]:
    """All blocks of records of a model, where counting them is cheaper; otherwise none."""
    cells = cell_variables(model)
    records = [rv for rv in record_variables(model) if rv not in cells]
    if not records or any(finite_values(rv) is None for rv in records):
        return []
    try:
        blocks = record_blocks(model, records)
    except ValueError:  # records that a step will explain about
        return []
    return blocks if all(is_cheaper(model, block) for block in blocks) else []


def sample_marginal(draws: int, model: pm.Model, executor: Any = None, **kwargs: Any) -> Any:
    """Sample by NUTS, nutpie's where it is installed, from a start near the release.

    Tables of counts are left to :class:`~pymc_dp.CountGibbs`, and stored where they are asked for.
    """
    tables = [rv for rv in model.free_RVs if isinstance(rv.owner.op, RecordCountsRV)]
    auxiliary = [rv for rv in auxiliary_variables(model) if rv not in tables]
    asked = kwargs.get("var_names")
    if asked is None:
        hidden = [*tables, *auxiliary]
        names = [str(rv.name) for rv in model.unobserved_RVs if rv not in hidden]
        # values that the estimate of the error needs are dropped afterwards
        kwargs["var_names"] = names + [str(rv.name) for rv in auxiliary]
    if kwargs.get("step") is None and not tables:
        mode = _mode(model)
        if _by_nutpie(kwargs):
            older = kwargs.pop("nuts_sampler_kwargs", None)  # PyMC's earlier name for nuts=
            kwargs["nuts"] = nutpie_settings(model, kwargs.get("nuts") or older or {}, mode)
        if kwargs.get("initvals") is None and mode is not None:
            kwargs |= _start(model, kwargs, mode)
    with without_origins():
        kwargs |= _compiled(model, executor, kwargs)
        result = sample_chains(draws, model, executor, **kwargs)
    if hasattr(result, "posterior"):
        error = _estimated_error(model, result)
        if error is not None:
            _tell(result, error)
        if asked is None:
            add_rows_law(result, model, kwargs.get("random_seed"))
        if asked is None and auxiliary:
            own = result["posterior"]
            own.dataset = own.to_dataset().drop_vars([str(rv.name) for rv in auxiliary])
    return result


def _by_nutpie(kwargs: dict[str, Any]) -> bool:
    """Whether nutpie is asked for, or installed and nothing is asked for that it cannot do."""
    sampler = kwargs.get("nuts_sampler")
    plain = (
        kwargs.get("init", "auto") == "auto"
        and kwargs.get("return_inferencedata", True)
        and all(kwargs.get(name) is None for name in ("callback", "trace", "backend"))
        and "mode" not in (kwargs.get("compile_kwargs") or {})
    )
    return sampler == "nutpie" or (sampler is None and plain and find_spec("nutpie") is not None)


def nutpie_settings(
    model: pm.Model, asked: Mapping[str, Any], mode: Mode | None = None
) -> dict[str, Any]:
    """Add to what was asked of nutpie's sampler what serves models of few parameters.

    One parameter whose density falls off: paths of three steps, with a draw from their four points
    (multinomial Hamiltonian Monte Carlo). A path that stops where it turns back is too short there.
    Some: their correlations, not their variances alone.
    """
    size = sum(np.size(value) for value in model.initial_point().values())
    own: dict[str, Any] = {}
    if size == 1 and nutpie_takes("check_turning") and not _LENGTHS & asked.keys():
        mode = mode or find_mode(model)
        if mode is not None and has_light_tails(model, mode):
            own = {"check_turning": False, "maxdepth": 2}
    elif size in _CORRELATED and nutpie_takes("adaptation") and not _METRICS & asked.keys():
        own = {"adaptation": "low_rank"}
    return own | dict(asked)


def _mode(model: pm.Model) -> Mode | None:
    """Where chains start: near the mode, where the release tells it; None elsewhere."""
    methods = {told.method for told in integrated_out(model).values()}
    if "normal" in methods:
        return find_mode(model)
    if "expanded" in methods:  # which starts where the score was taken
        return find_mode(model, (1.0, 1.0))
    return None


def _start(model: pm.Model, kwargs: dict[str, Any], mode: Mode) -> dict[str, Any]:
    """Arguments by which ``pm.sample`` starts every chain near a mode, and nowhere else."""
    start = {k: v for k, v in scattered_start(mode).items() if k not in _relative(model)}
    if _by_nutpie(kwargs):
        compiled = {"jitter_rvs": set(), **(kwargs.get("compile_kwargs") or {})}
        return {"initvals": start, "compile_kwargs": compiled}
    return {"initvals": start, "init": kwargs.get("init", "adapt_diag")}


def _compiled(model: pm.Model, executor: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Compile the density that PyMC's NUTS takes, in less time than it would, before any chain.

    Chains find it on disk, where processes that they run in would compile it one by one.
    """
    if _by_nutpie(kwargs) or kwargs.get("step") is not None:
        return {}
    options = dict(kwargs.get("compile_kwargs") or {})
    options["mode"] = quick_mode(options.get("mode"))
    if executor is None and all(rv.dtype in continuous_types for rv in model.free_RVs):
        with compiling("the posterior's density"):
            density = model.logp_dlogp_function(ravel_inputs=True, **options)
            density.set_extra_values({})
            density(DictToArrayBijection.map(model.initial_point()))
    return {"compile_kwargs": options}


def _relative(model: pm.Model) -> set[str]:
    """Names of values in coordinates that other latents move, which PyMC starts by itself."""
    found = set()
    for rv in model.free_RVs:
        value, transform = model.rvs_to_values[rv], model.rvs_to_transforms[rv]
        if transform is not None:
            natural = transform.backward(value, *rv.owner.inputs)
            if direct_inputs([natural], model.free_RVs):
                found.add(str(value.name))
    return found


def _estimated_error(model: pm.Model, result: Any) -> NormalError | None:
    """Judge the normal law at draws of the posterior."""
    posterior = result.posterior.to_dataset()
    names = [str(rv.name) for rv in model.free_RVs]
    if any(name not in posterior for name in names):
        return None
    flat = posterior[names].stack(sample=("chain", "draw"))
    size = flat.sizes["sample"]
    number = min(_JUDGED, size)
    judged = [n for n in names if n not in {str(rv.name) for rv in auxiliary_variables(model)}]
    order = np.arange(size)
    if len(judged) == 1 and flat[judged[0]].ndim == 1:
        # at quantiles of the one parameter: a few draws far out would decide otherwise
        order = np.argsort(flat[judged[0]].values)
    chosen = order[((np.arange(number) + 0.5) * size / number).astype(int)]
    columns = {name: np.moveaxis(flat[name].values, -1, 0)[chosen] for name in names}
    points = [{name: values[i] for name, values in columns.items()} for i in range(len(chosen))]
    return normal_error(model, points, judged, natural=True)


def _tell(result: Any, error: NormalError) -> None:
    worst = error.worst
    of = max(error.means, key=lambda name: max(error.means[name], error.deviations[name]))
    result.attrs["normal_law_error"] = worst
    result.attrs["normal_law_error_of"] = of
    if worst > _TOO_LARGE:
        warn_of_error(worst, of)


def warn_of_error(worst: float, name: str) -> None:
    """Warn that sums are not normal enough, and say what else there is."""
    shift = "an unknown part" if worst == np.inf else f"{worst:.2g}"
    warnings.warn(
        f"Taking sums of records for normal is estimated to shift the posterior of {name!r} by "
        f"{shift} of its standard deviation. With so few records, or records so skewed, sample "
        "the model that was marginalized: pmdp.sample() picks RecordGibbs, which is exact.",
        stacklevel=4,
    )


def hint_at_marginalize(model: pm.Model, records: Sequence[TensorVariable]) -> None:
    """Say, once a run, that records need not be sampled where there are many."""
    many = [rv for rv in records if length_of(rv) >= _MANY]
    if not many:
        return
    try:
        blocks = record_blocks(model, records)
        serves = all(
            any(strategy.refusal(model, block) is None for strategy in STRATEGIES)
            for block in blocks
        )
    except ValueError:
        return
    if serves:
        _log.info(
            "A sweep over %s records takes longer than a draw without them: "
            "pmdp.marginalize(model) integrates %s out.",
            max(length_of(rv) for rv in many),
            ", ".join(repr(rv.name) for rv in many),
        )
