"""One model, several samplers: draws and CPU seconds of each, and what to say about them.

Every run counts tuning and drawing, not compiling: two chains, one after the other.
"""

import gc
import json
import time
from pathlib import Path

import arviz as az
import numpy as np
import pymc as pm

import pymc_dp as pmdp
from pymc_dp.analyst.marginal.sampling import nutpie_settings
from pymc_dp.analyst.marginal.start import find_mode, scattered_start
from pymc_dp.analyst.records import record_variables

RESULTS = Path(__file__).parent / "results"
QUIET = {
    "progressbar": False,
    "quiet": True,
    "compute_convergence_checks": False,
    "random_seed": 1,
}


def by_step(model, step, tune, draws):
    """Draws and CPU seconds with a step, or steps, made by ``step()``."""
    # where nutpie is installed PyMC would take it for NUTS
    how = {"chains": 2, "cores": 1, "nuts_sampler": "pymc", **QUIET}
    with model:
        pmdp.sample(5, tune=5, step=step(), **how)  # imports and compiles what is left
        steps = step()
        gc.collect()  # not what earlier runs left
        start = time.process_time()
        idata = pmdp.sample(draws, tune=tune, step=steps, **how)
    return idata, time.process_time() - start


def by_nutpie(model, tune, draws, mode=None):
    """Draws and CPU seconds of nutpie's NUTS over all latent variables.

    With the settings that `pmdp.sample` asks for, whoever wrote the model: correlations of 3 to 50
    parameters, where they make nutpie up to ten times faster, variances elsewhere, and for one
    parameter paths of three steps.
    """
    import nutpie

    where = {} if mode is None else {"initial_points": scattered_start(mode), "jitter_rvs": set()}
    compiled = nutpie.compile_pymc_model(model, **where)
    settings = {"chains": 2, "cores": 1, "progress_bar": False, "seed": 1}
    settings |= nutpie_settings(model, {}, mode)
    nutpie.sample(compiled, tune=5, draws=5, **settings)
    gc.collect()  # not what earlier runs left
    start = time.process_time()
    idata = nutpie.sample(compiled, tune=tune, draws=draws, **settings)
    return idata, time.process_time() - start


def by_marginalize(model, tune, draws):
    """Draws and CPU seconds with the records integrated out: by nutpie, or as counts.

    Started near the mode, as `pmdp.sample` does it.
    """
    small = pmdp.marginalize(model)
    if small.discrete_value_vars:
        return by_step(small, lambda: None, tune, draws)
    return by_nutpie(small, tune, draws, find_mode(small))


def plain_gibbs(model):
    """Algorithm 1 of Ju et al. (2022), NUTS for the parameters."""
    records = record_variables(model)
    others = [rv for rv in model.free_RVs if rv not in records]
    return lambda: [pm.NUTS(others), pmdp.RecordGibbs(records, interweave=False, cycles=1)]


def columns(idata, names):
    """Draws (chain, draw) of every scalar in the variables named."""
    found = {}
    for name in names:
        draws = np.asarray(idata.posterior[name])
        flat = draws.reshape(*draws.shape[:2], -1)
        found |= {(name, i): flat[..., i] for i in range(flat.shape[-1])}
    return found


def rates(found, names):
    """For every variable the fewest effective draws a CPU second, and the largest R-hat."""
    idata, seconds = found
    worst = {}
    for (name, _), draws in columns(idata, names).items():
        worst[name] = min(worst.get(name, np.inf), float(az.ess(draws)) / seconds)
    rhat = max(float(az.rhat(draws)) for draws in columns(idata, names).values())
    return worst, rhat


def error(draws):
    """Monte Carlo standard error of a mean."""
    return float(draws.std() / np.sqrt(float(az.ess(draws))))


def apart(one, other, names):
    """Largest distance between the means of two runs, in standard errors of both."""
    pairs = zip(columns(one, names).values(), columns(other, names).values(), strict=True)
    return max(float(abs(a.mean() - b.mean()) / np.hypot(error(a), error(b))) for a, b in pairs)


def kept(benchmark, cell, run):
    """Result of a cell in an earlier run, or of this one, written down at once."""
    path = RESULTS / benchmark / f"{cell}.json"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(run(), indent=1))
    result = json.loads(path.read_text())
    print({k: round(v, 3) if isinstance(v, float) else v for k, v in result.items()}, flush=True)
    return result
