"""Tables of counts: CountGibbs beside PyMC's Metropolis, NUTS on a relaxation and RecordGibbs.

- 200 counties, Poisson-lognormal, discrete Gaussian noise of sigma 2 on every count;
- 40 binomial cells, dropped below a threshold;
- a 2 x 3 x 4 table, Dirichlet and multinomial, cells and one-way margins with Laplace noise 40, of
  n = 50000 and n = 10^9.

Effective draws a CPU second of the worst scalar, tuning counted and compiling not; `first` are the
CPU seconds until the first draw. The relaxation has counts as real numbers with the law's normal
approximation: another posterior, and it refuses thresholds.
"""

import time

import numpy as np
import pymc as pm

import pymc_dp as pmdp
from benchmarks._peers import QUIET, by_step, kept, rates


def counties(relaxed=False):
    rng = np.random.default_rng(21)
    y = rng.poisson(np.exp(rng.normal(2.0, 0.9, 200)))
    y = y + np.round(rng.normal(0, 2, 200)).astype(int)
    with pm.Model() as model:
        mu, tau = pm.Normal("mu", 2, 1), pm.HalfNormal("tau", 1)
        rate = pm.LogNormal("rate", mu, tau, shape=200)
        if relaxed:
            counts = pm.Normal("counts", rate, rate**0.5)
            pmdp.Privatized("cells", counts, pmdp.Gaussian(sigma=2), observed=y)
        else:
            counts = pm.Poisson("counts", rate)
            pmdp.Privatized("cells", counts, pmdp.DiscreteGaussian(sigma=2), observed=y)
    return model


def thresholded():
    rng = np.random.default_rng(22)
    trials = rng.integers(20, 400, 40)
    y = rng.binomial(trials, rng.beta(2, 18, 40)) + np.round(rng.normal(0, 5, 40))
    with pm.Model() as model:
        mean, spread = pm.Beta("mean", 1, 1), pm.Gamma("spread", 2, 0.1)
        p = pm.Beta("p", mean * spread, (1 - mean) * spread, shape=40)
        counts = pm.Binomial("counts", trials, p)
        noise = pmdp.DiscreteGaussian(sigma=5).thresholded(15, dropped=np.nan)
        pmdp.Privatized("cells", counts, noise, observed=np.where(y < 15, np.nan, y))
    return model


def margins(n, relaxed=False):
    rng = np.random.default_rng(3)
    true = rng.multinomial(n, rng.dirichlet(np.full(24, 2.0))).reshape(2, 3, 4)
    noise = pmdp.Laplace(scale=40)
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(24))
        if relaxed:
            counts = n * p + pm.Normal("off", 0, 1, shape=24) * (n * p) ** 0.5
        else:
            counts = pm.Multinomial("counts", n, p)
        table = counts.reshape((2, 3, 4))
        for axes in ((), (1, 2), (0, 2), (0, 1)):
            value = true.sum(axis=axes) if axes else true
            value = value + rng.laplace(0, 40, value.shape)
            statistic = table.sum(axis=axes) if axes else table
            pmdp.Privatized(f"over{axes}", statistic, noise, observed=value)
    return model


#: name: model, its scalars, peers that are run with it and with its relaxation
CASES = {
    "200 counties": (counties, ["mu", "tau", "rate"], ["stock PyMC", "RecordGibbs", "relaxed"]),
    "binomial, threshold": (thresholded, ["mean", "spread", "p"], ["stock PyMC"]),
    "2 x 3 x 4, n = 50000": (lambda **k: margins(50_000, **k), ["p"], ["stock PyMC", "relaxed"]),
    "2 x 3 x 4, n = 10^9": (lambda **k: margins(10**9, **k), ["p"], []),
}


def ours(model):
    """Draws and CPU seconds, and the seconds before the first draw."""
    with model:
        start = time.process_time()
        pmdp.sample(1, tune=1, chains=1, cores=1, **QUIET)
        first = time.process_time() - start
        start = time.process_time()
        idata = pmdp.sample(10_000, tune=1000, chains=2, cores=1, **QUIET)
    return first, (idata, time.process_time() - start)


def stock(model):
    cells = [rv for rv in model.free_RVs if rv.dtype.startswith("int")]
    others = [rv for rv in model.free_RVs if rv not in cells]
    return by_step(model, lambda: [pm.Metropolis(cells), pm.NUTS(others)], 1000, 1000)


def records(model):
    taken = [rv for rv in model.free_RVs if rv.name != "mu" and rv.name != "tau"]
    others = [rv for rv in model.free_RVs if rv not in taken]
    return by_step(model, lambda: [pmdp.RecordGibbs(taken), pm.NUTS(others)], 1000, 1000)


def case(name):
    build, scalars, peers = CASES[name]
    first, found = ours(build())
    worst, rhat = rates(found, scalars)
    row = {"case": name, "ours, worst a second": min(worst.values()), "R-hat": rhat, "first": first}
    for peer in peers:
        if peer == "relaxed":
            model = build(relaxed=True)
            run = by_step(model, lambda model=model: pm.NUTS(model.free_RVs), 1000, 1000)
        else:
            run = (stock if peer == "stock PyMC" else records)(build())
        row[peer] = min(rates(run, [s for s in scalars if s in run[0].posterior])[0].values())
    return row


def main():
    return [kept("counts", name, lambda name=name: case(name)) for name in CASES]
