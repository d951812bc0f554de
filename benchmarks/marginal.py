"""Records integrated out: effective draws a CPU second, and whether the error told is the real one.

Rates: a normal mean from a noisy sum, and mean and standard deviation from two, at up to a billion
records, beside the same model written by hand in plain PyMC and sampled by nutpie from the same
start, and beside ``RecordGibbs`` up to 100000 records. As many tuning steps and draws for each.

Errors: five families of records, 10 to 10000 of them, little noise: posterior mean and standard
deviation by the normal law and by ``RecordGibbs``, and the error that was estimated.
``python -m benchmarks marginal`` needs nutpie. Cells that are done are kept, as in ``mixing``.
"""

import resource
import time
import warnings

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_dp as pmdp
from benchmarks._by_hand import normal_moments, one_sum, two_sums
from benchmarks._peers import apart, by_step, columns, error, kept, rates
from pymc_dp.analyst.marginal.sampling import find_mode, scattered_start

SIZES = (10**3, 10**5, 10**7, 10**9)
RECORD_GIBBS_UP_TO = 10**5
TUNE, DRAWS = 1000, 5000
FAMILY_SIZES = (10, 30, 100, 1000, 10_000)
LOW, HIGH = -5.0, 5.0


def records(n, statistic):
    noise = np.sqrt(n) / 3
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 3)
        sd = pm.HalfNormal("sd", 2) if statistic == "sum and squares" else 1.0
        x = pmdp.clamp(pm.Normal("x", mu, sd, shape=n), LOW, HIGH)
        if statistic == "sum":
            pmdp.Privatized("s", x.sum(), pmdp.Laplace(scale=noise), observed=1.0 * n)
        else:
            sums, mechanism = (
                pt.stack([x.sum(), (x**2).sum()]),
                pmdp.Laplace(scale=[noise, 5 * noise]),
            )
            pmdp.Privatized("s", sums, mechanism, observed=[1.0 * n, 2.0 * n])
    return model


def by_hand(n, statistic):
    """The same with its records integrated out in plain PyMC."""
    noise = np.sqrt(n) / 3
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 3)
        sd = pm.HalfNormal("sd", 2) if statistic == "sum and squares" else 1.0
        moments = normal_moments(mu, sd, LOW, HIGH)
        if statistic == "sum":
            one_sum(1.0 * n, n, noise, moments[:2])
        else:
            two_sums([1.0 * n, 2.0 * n], n, (noise, 5 * noise), moments)
    return model


def by_nutpie(model):
    """Draws and CPU seconds of nutpie from a start at the mode; seconds before the first draw."""
    import nutpie

    before = time.process_time()
    start = scattered_start(find_mode(model))
    compiled = nutpie.compile_pymc_model(model, initial_points=start, jitter_rvs=set())
    settings = {"chains": 2, "cores": 1, "progress_bar": False}
    nutpie.sample(compiled, tune=5, draws=5, seed=2, **settings)
    start = time.process_time()
    idata = nutpie.sample(compiled, tune=TUNE, draws=DRAWS, seed=1, **settings)
    return idata, time.process_time() - start, start - before


def rate_row(n, statistic):
    names = ["mu"] if statistic == "sum" else ["mu", "sd"]
    before = time.process_time()
    small = pmdp.marginalize(records(n, statistic))
    built = time.process_time() - before
    ours, seconds, first = by_nutpie(small)
    hand, hand_seconds, hand_first = by_nutpie(by_hand(n, statistic))
    result = {
        "what": statistic,
        "records": n,
        "marginalize, a second": min(rates((ours, seconds), names)[0].values()),
        "by hand, a second": min(rates((hand, hand_seconds), names)[0].values()),
        "R-hat": rates((ours, seconds), names)[1],
        "seconds before the first draw": built + first,
        "by hand, seconds before": hand_first,
        "apart, in errors": apart(ours, hand, names),
    }
    if n <= RECORD_GIBBS_UP_TO:
        gibbs = by_step(records(n, statistic), pmdp.RecordGibbs, TUNE, DRAWS)
        result["RecordGibbs, a second"] = min(rates(gibbs, names)[0].values())
        result["from RecordGibbs, in errors"] = apart(ours, gibbs[0], names)
    result["peak memory, MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return result


def family(name, n):
    """A model of one parameter, its data at the parameter's own mean."""
    rng = np.random.default_rng(7)
    with pm.Model() as model:
        if name == "normal, clamped":
            t = pm.Normal("t", 0, 2)
            x, value = pm.Normal("x", t, 1, shape=n), rng.normal(0.5, 1, n)
            low, high = -1.0, 1.5
        elif name == "exponential":
            t = pm.Normal("t", 0, 2)
            x, value = pm.Exponential("x", pt.exp(t), shape=n), rng.exponential(1.0, n)
            low, high = 0.0, 6.0
        elif name == "gamma, shape 0.5":
            t = pm.Normal("t", 0, 2)
            x, value = pm.Gamma("x", 0.5, pt.exp(t), shape=n), rng.gamma(0.5, 1.0, n)
            low, high = 0.0, 6.0
        elif name == "Bernoulli, one in ten":
            t = pm.Normal("t", -2, 1.5)
            x, value = pm.Bernoulli("x", logit_p=t, shape=n), rng.binomial(1, 0.1, n)
            low, high = 0, 1
        else:
            t = pm.Normal("t", 0, 2)
            x, value = pm.LogNormal("x", t, 1, shape=n), rng.lognormal(0, 1, n)
            low, high = 0.0, 10.0
        noise = pmdp.Laplace(scale=0.5)
        total = float(np.clip(value, low, high).sum()) + 0.2
        pmdp.Privatized("s", pmdp.clamp(x, low, high).sum(), noise, observed=total)
    return model


FAMILIES = (
    "normal, clamped", "exponential", "gamma, shape 0.5", "Bernoulli, one in ten", "lognormal",
)  # fmt: skip


def error_row(name, n):
    model = family(name, n)
    with pmdp.marginalize(model, method="normal"):
        ours = pmdp.sample(
            20_000, tune=1000, chains=2, cores=1, progressbar=False, quiet=True, random_seed=3
        )
    draws = int(np.clip(1e8 / n, 5_000, 50_000))
    truth, _ = by_step(model, pmdp.RecordGibbs, 2000, draws)
    [mine], [exact] = columns(ours, ["t"]).values(), columns(truth, ["t"]).values()
    sd = exact.std()
    return {
        "what": name,
        "records": n,
        "estimated error, sds": ours.attrs["normal_law_error"],
        "real error of the mean, sds": float(abs(mine.mean() - exact.mean()) / sd),
        "real error of the sd": float(abs(mine.std() / sd - 1)),
        "Monte Carlo error, sds": float(np.hypot(error(mine), error(exact)) / sd),
    }


def main() -> list[dict]:
    warnings.filterwarnings("ignore")
    rows = [
        kept("marginal", f"{s} {n}", lambda n=n, s=s: rate_row(n, s))
        for s in ("sum", "sum and squares")
        for n in SIZES
    ]
    return rows + [
        kept("marginal", f"{name} {n}", lambda n=n, name=name: error_row(name, n))
        for name in FAMILIES
        for n in FAMILY_SIZES
    ]
