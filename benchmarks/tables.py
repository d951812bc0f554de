"""Records that become counts, beside the records themselves (RecordGibbs).

- a 2 x 3 x 4 table of n categorical records, cells and one-way margins with Laplace noise 40, of
  n = 50000 and n = 10^9;
- naive Bayes of Ju et al. (2022), section 4: 5 classes and 5 features of 3 values, 1215 joint
  states, n = 10^5, epsilon 1 and 0.1.

Effective draws a CPU second of the worst scalar, tuning and the way from records to counts counted,
compiling not; `first` are the CPU seconds until the first draw, with whatever caches there are.
"""

import resource
import time

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_dp as pmdp
from benchmarks._peers import QUIET, by_step, kept, rates

CLASSES, FEATURES, VALUES = 5, 5, 3


def one_hot(x, k):
    return pt.eq(x[..., None], np.arange(k))


def margins(n):
    rng = np.random.default_rng(2)
    true = rng.multinomial(n, rng.dirichlet(np.full(24, 2.0))).reshape(2, 3, 4)
    cell = np.indices((2, 3, 4)).reshape(3, 24)
    noise = pmdp.Laplace(scale=40)
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(24))
        x = pm.Categorical("x", p, shape=n)
        value = true.ravel() + rng.laplace(0, 40, 24)
        pmdp.Privatized("cells", one_hot(x, 24).sum(axis=0), noise, observed=value)
        for axis, side in enumerate((2, 3, 4)):
            total = true.sum(axis=tuple(a for a in range(3) if a != axis))
            level = pt.constant(cell[axis])[x]
            value = total + rng.laplace(0, 40, side)
            pmdp.Privatized(f"margin{axis}", one_hot(level, side).sum(0), noise, observed=value)
    return model


def naive_bayes(n, epsilon):
    rng = np.random.default_rng(1)
    shares = rng.dirichlet(np.full(CLASSES, 2.0))
    within = rng.dirichlet(np.full(VALUES, 2.0), size=(CLASSES, FEATURES))
    sizes = rng.multinomial(n, shares)
    true = np.array(
        [[rng.multinomial(m, w) for w in ws] for m, ws in zip(sizes, within, strict=True)]
    )
    scale = 2 * FEATURES / epsilon
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.full(CLASSES, 2.0))
        px = pm.Dirichlet("px", np.full((CLASSES, FEATURES, VALUES), 2.0))
        y = pm.Categorical("y", p, shape=n)
        x = pm.Categorical("x", px[y], shape=(n, FEATURES))
        cells = one_hot(y, CLASSES)[:, :, None, None] * one_hot(x, VALUES)[:, None]
        value = true + rng.laplace(0, scale, true.shape)
        pmdp.Privatized("cells", cells.sum(axis=0), pmdp.Laplace(scale=scale), observed=value)
    return model


#: name: model, its scalars, draws of RecordGibbs beside it (none where records do not fit)
CASES = {
    "2 x 3 x 4, n = 50000": (lambda: margins(50_000), ["p"], 200),
    "2 x 3 x 4, n = 10^9": (lambda: margins(10**9), ["p"], 0),
    "naive Bayes, n = 10^5, epsilon 1": (lambda: naive_bayes(10**5, 1.0), ["p", "px"], 50),
    "naive Bayes, n = 10^5, epsilon 0.1": (lambda: naive_bayes(10**5, 0.1), ["p", "px"], 0),
}


def case(name):
    build, scalars, draws = CASES[name]
    model = build()
    with model:
        start = time.process_time()
        pmdp.sample(1, tune=1, chains=1, cores=1, **QUIET)
        first = time.process_time() - start
        start = time.process_time()
        idata = pmdp.sample(4000, tune=1000, chains=2, cores=1, **QUIET)
    worst, rhat = rates((idata, time.process_time() - start), scalars)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    row = {"case": name, "counts, worst a second": min(worst.values()), "R-hat": rhat}
    row |= {"first": first, "MB": memory}
    if draws:
        run = by_step(build(), lambda: [pmdp.RecordGibbs()], draws, draws)
        row["RecordGibbs"] = min(rates(run, scalars)[0].values())
    return row


def main():
    return [kept("tables", name, lambda name=name: case(name)) for name in CASES]
