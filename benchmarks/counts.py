"""Tables of counts: CountGibbs beside PyMC's Metropolis, NUTS on a relaxation, RecordGibbs and GLS.

- 200 counties, Poisson-lognormal, discrete Gaussian noise of sigma 2 on every count;
- 40 binomial cells, dropped below a threshold;
- a 2 x 3 x 4 table, Dirichlet and multinomial, cells and one-way margins with Laplace noise 40, of
  n = 50000 and n = 10^9;
- naive Bayes of `tables`, n = 10^5 records that become 1215 counts.

Effective draws a CPU second of the worst scalar, two chains, tuning counted and compiling not: ours
with 1000 + 10000 draws, then ours and all peers with 1000 + 2000. `first` are the CPU seconds until
the first draw, with whatever caches there are, and `MB` the most memory of the process so far. The
relaxation has counts as real numbers with the law's normal approximation: another posterior, and it
refuses thresholds. "stock PyMC" is Metropolis for the counts and NUTS for the rest; counts with a
known sum it cannot move. Generalised least squares (GLS) gives one estimate and no draws: errors
are root mean squares over the cells.
"""

import resource
import time

import numpy as np
import pymc as pm

import pymc_dp as pmdp
from benchmarks._peers import QUIET, by_step, kept, rates
from benchmarks.tables import naive_bayes

#: draws of tuning, of ours, and of all others
TUNE, DRAWS, PEER_DRAWS = 1000, 10_000, 2000


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


def table(n):
    """The confidential 2 x 3 x 4 table, and noisy sums over axes."""
    rng = np.random.default_rng(3)
    true = rng.multinomial(n, rng.dirichlet(np.full(24, 2.0))).reshape(2, 3, 4)
    released = {}
    for axes in ((), (1, 2), (0, 2), (0, 1)):
        value = true.sum(axis=axes) if axes else true
        released[axes] = value + rng.laplace(0, 40, value.shape)
    return true, released


def margins(n, relaxed=False):
    noise = pmdp.Laplace(scale=40)
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(24))
        if relaxed:
            counts = n * p + pm.Normal("off", 0, 1, shape=24) * (n * p) ** 0.5
        else:
            counts = pm.Multinomial("counts", n, p)
        cells = counts.reshape((2, 3, 4))
        for axes, value in table(n)[1].items():
            statistic = cells.sum(axis=axes) if axes else cells
            pmdp.Privatized(f"over{axes}", statistic, noise, observed=value)
    return model


def errors(n, idata):
    """Root mean square errors of the cells: posterior mean, and least squares with sum n."""
    true, released = table(n)
    eye = np.eye(24).reshape(24, 2, 3, 4)
    rows = [(eye.sum(axis=tuple(a + 1 for a in axes)) if axes else eye) for axes in released]
    matrix = np.concatenate([row.reshape(24, -1).T for row in rows])
    seen = np.concatenate([value.ravel() for value in released.values()])
    # the last cell is what the others leave of n
    free, rest = matrix[:, :-1] - matrix[:, -1:], seen - n * matrix[:, -1]
    cells = np.linalg.lstsq(free, rest, rcond=None)[0]
    found = {
        "error, ours": np.asarray(idata.posterior["counts"].mean(("chain", "draw"))),
        "error, GLS": np.append(cells, n - cells.sum()),
    }
    return {k: float(np.sqrt(np.mean((v - true.ravel()) ** 2))) for k, v in found.items()}


#: name: model, its scalars, peers that are run with it and with its relaxation
CASES = {
    "200 counties": (counties, ["mu", "tau", "rate"], ["stock PyMC", "RecordGibbs", "relaxed"]),
    "binomial, threshold": (thresholded, ["mean", "spread", "p"], ["stock PyMC"]),
    "2 x 3 x 4, n = 50000": (lambda **k: margins(50_000, **k), ["p"], ["stock PyMC", "relaxed"]),
    "2 x 3 x 4, n = 10^9": (lambda **k: margins(10**9, **k), ["p"], ["relaxed"]),
    "naive Bayes, n = 10^5": (lambda: naive_bayes(10**5, 1.0), ["p", "px"], []),
}


def ours(model):
    """Draws and CPU seconds of a long and a short run, and the seconds before the first draw."""
    with model:
        start = time.process_time()
        pmdp.sample(1, tune=1, chains=1, cores=1, **QUIET)
        first = time.process_time() - start
        if "x" in model.named_vars:  # records, which pmdp.sample counts
            start = time.process_time()
            idata = pmdp.sample(DRAWS, tune=TUNE, chains=2, cores=1, **QUIET)
            return first, (idata, time.process_time() - start), None
    found = by_step(model, pmdp.CountGibbs, TUNE, DRAWS)
    return first, found, by_step(model, pmdp.CountGibbs, TUNE, PEER_DRAWS)


def stock(model):
    cells = [rv for rv in model.free_RVs if rv.dtype.startswith("int")]
    others = [rv for rv in model.free_RVs if rv not in cells]
    return by_step(model, lambda: [pm.Metropolis(cells), pm.NUTS(others)], TUNE, PEER_DRAWS)


def records(model):
    taken = [rv for rv in model.free_RVs if rv.name != "mu" and rv.name != "tau"]
    others = [rv for rv in model.free_RVs if rv not in taken]
    return by_step(model, lambda: [pmdp.RecordGibbs(taken), pm.NUTS(others)], TUNE, PEER_DRAWS)


def relaxed(model):
    return by_step(model, lambda: pm.NUTS(model.free_RVs), TUNE, PEER_DRAWS)


def case(name):
    build, scalars, peers = CASES[name]
    first, found, short = ours(build())
    worst, rhat = rates(found, scalars)
    row = {"case": name, "ours, worst a second": min(worst.values()), "R-hat": rhat, "first": first}
    row["MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    if short is not None:
        row["ours, short"] = min(rates(short, scalars)[0].values())
    if name.startswith("2 x"):
        row |= errors(50_000 if "50000" in name else 10**9, found[0])
    for peer in peers:
        run = {"stock PyMC": stock, "RecordGibbs": records, "relaxed": relaxed}[peer](
            build(relaxed=True) if peer == "relaxed" else build()
        )
        known = [s for s in scalars if s in run[0].posterior]
        rate, apart = rates(run, known)
        row[peer] = min(rate.values())
        row[f"R-hat, {peer}"] = apart
    return row


def main():
    return [kept("counts", name, lambda name=name: case(name)) for name in CASES]
