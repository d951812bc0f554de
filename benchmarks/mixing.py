"""Effective draws a CPU second, over records and noise: ours beside NUTS over all latents.

Normal records with a clamped sum released, or a clamped sum and sum of squares, with Laplace noise.
Every run counts tuning and drawing, not compiling. ``python -m benchmarks mixing`` takes about
twenty minutes; it writes docs/mixing.png. nutpie is used where it is installed.
"""

import time
import warnings
from pathlib import Path

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy import stats

import pymc_dp as pmdp
from tests import oracles

SIZES = (100, 1000, 10_000, 100_000)
NOISES = (1, 10, 100, 1000)
STATISTICS = ("sum", "sum and squares")
#: (records at the most, tuning, draws) of every peer, two chains each
PEERS = {
    "nutpie centred": (10_000, 400, 600),
    "nutpie non-centred": (10_000, 400, 600),
    "PyMC NUTS": (1000, 400, 400),
    "plain record Gibbs, NUTS for theta": (1000, 300, 1000),
}
#: above this many records peers run at the noise 100 alone
EVERY_NOISE_UP_TO = 1000


def build(n, noise, statistic, centred=True):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 3)
        sd = pm.HalfNormal("sd", 2) if statistic != "sum" else 1.0
        records = pm.Normal("x", *((mu, sd) if centred else (0, 1)), shape=n)
        x = pmdp.clamp(records if centred else mu + sd * records, -5, 5)
        if statistic == "sum":
            pmdp.Privatized("s", x.sum(), pmdp.Laplace(scale=noise), observed=float(n))
        else:
            pmdp.Privatized(
                "s",
                pt.stack([x.sum(), (x**2).sum()]),
                pmdp.Laplace(scale=[noise, 5 * noise]),
                observed=[1.0 * n, 2.0 * n],
            )
    return model


def ours(n, noise, statistic):
    draws = int(np.clip(4e6 / n, 1000, 10_000))
    with build(n, noise, statistic):
        step = pmdp.RecordGibbs()
        start = time.process_time()
        idata = pmdp.sample(draws, tune=1000, chains=2, cores=1, step=step, **QUIET)
    return idata, time.process_time() - start


def by_nutpie(n, noise, statistic, centred, tune, draws):
    import nutpie

    compiled = nutpie.compile_pymc_model(build(n, noise, statistic, centred))
    settings = {"chains": 2, "cores": 1, "progress_bar": False, "seed": 1}
    nutpie.sample(compiled, tune=5, draws=5, **settings)
    start = time.process_time()
    idata = nutpie.sample(compiled, tune=tune, draws=draws, **settings)
    return idata, time.process_time() - start


def by_pymc(n, noise, statistic, plain, tune, draws):
    with build(n, noise, statistic) as model:
        parameters = [rv for rv in model.free_RVs if rv.name != "x"]
        if plain:
            step = [
                pm.NUTS(parameters),
                pmdp.RecordGibbs([model["x"]], interweave=False, rounds=1),
            ]
        else:
            step = pm.NUTS()
        start = time.process_time()
        idata = pmdp.sample(draws, tune=tune, chains=2, cores=1, step=step, **QUIET)
    return idata, time.process_time() - start


QUIET = {
    "progressbar": False,
    "quiet": True,
    "compute_convergence_checks": False,
    "random_seed": 1,
}


def effective(idata, seconds, statistic):
    names = ["mu"] if statistic == "sum" else ["mu", "sd"]
    found = {name: float(az.ess(np.asarray(idata.posterior[name]))) for name in names}
    rhat = max(float(az.rhat(np.asarray(idata.posterior[name]))) for name in names)
    return {name: ess / seconds for name, ess in found.items()}, rhat


def deviation(idata, n, noise):
    """Distance of the mean of mu from the exact one, in Monte Carlo standard errors."""
    draws = np.asarray(idata.posterior["mu"])
    mean, sd = draws.mean(), draws.std()
    grid = np.linspace(mean - 9 * sd, mean + 9 * sd, 241)
    likelihood = oracles.sum_likelihood(
        float(n), n, oracles.ClampedNormal(1.0, -5, 5), oracles.Laplace(float(noise)), grid
    )
    exact = oracles.posterior_from_likelihood(grid, stats.norm.logpdf(grid, 0, 3), likelihood)
    error = sd / np.sqrt(float(az.ess(draws)))
    return abs(mean - exact.mean()) / error, sd / exact.sd()


def row(n, noise, statistic):
    idata, seconds = ours(n, noise, statistic)
    rates, rhat = effective(idata, seconds, statistic)
    result = {"records": n, "noise": noise, "statistic": statistic}
    result |= {f"ours, {name} a second": rate for name, rate in rates.items()} | {"R-hat": rhat}
    if statistic == "sum" and n <= 10_000:
        result["mean off, in errors"], result["sd over exact"] = deviation(idata, n, noise)
    best = 0.0
    for peer, (largest, tune, draws) in PEERS.items():
        if n > largest or (n > EVERY_NOISE_UP_TO and noise != 100):
            continue
        try:
            if peer.startswith("nutpie"):
                centred = peer.endswith(" centred")
                found = by_nutpie(n, noise, statistic, centred, tune, draws)
            else:
                found = by_pymc(n, noise, statistic, peer.startswith("plain"), tune, draws)
        except ImportError:
            continue
        peer_rates, _ = effective(*found, statistic)
        result[peer] = min(peer_rates.values())
        best = max(best, result[peer])
        if "sd" in rates and peer == "nutpie non-centred":
            result["mean off, in errors"] = max(difference(idata, found[0], name) for name in rates)
    if best:
        result["times the best peer"] = min(rates.values()) / best
    print(
        {k: v if isinstance(v, str) else round(float(v), 3) for k, v in result.items()}, flush=True
    )
    return result


def difference(one, other, name):
    """Distance of two means in standard errors of both."""
    a, b = (np.asarray(idata.posterior[name]) for idata in (one, other))
    error = np.hypot(*(x.std() / np.sqrt(float(az.ess(x))) for x in (a, b)))
    return float(abs(a.mean() - b.mean()) / error)


def plot(rows, path):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    for axis, statistic in zip(axes, STATISTICS, strict=True):
        for i, n in enumerate(SIZES):
            cells = [r for r in rows if r["records"] == n and r["statistic"] == statistic]
            worst = [min(v for k, v in r.items() if k.startswith("ours")) for r in cells]
            axis.plot([r["noise"] for r in cells], worst, "o-", color=f"C{i}", label=f"n = {n}")
            best = [
                (r["noise"], max(r[p] for p in PEERS if p in r))
                for r in cells
                if any(p in r for p in PEERS)
            ]
            if best:
                axis.plot(*zip(*best, strict=True), "x--", color=f"C{i}", alpha=0.6)
        axis.set(xscale="log", yscale="log", xlabel="scale of the noise", title=statistic)
    axes[0].set_ylabel("effective draws per CPU second")
    axes[1].legend(title="ours (o), best peer (x)", fontsize="small")
    figure.savefig(path, dpi=120)


def main() -> list[dict]:
    warnings.filterwarnings("ignore")
    rows = [row(n, noise, s) for s in STATISTICS for n in SIZES for noise in NOISES]
    plot(rows, Path(__file__).parents[1] / "docs" / "mixing.png")
    return rows
