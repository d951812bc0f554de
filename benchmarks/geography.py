"""Nested geography of examples/geography.py in full size: do intervals hold what they say?

A state, 20 counties and 500 tracts, a histogram of 24 cells in each, discrete Gaussian noise at all
three levels and an exact total. New confidential tables and new noise in every replicate, two
chains of 1000 + 3000 draws. The tables are not drawn from the model's prior: tracts of a county
differ in size, which the model takes for spread of the cells.

Of every count (tract, county and state cells, and the people of a county) it is asked whether the
90% interval holds the confidential one. `coverage` breaks ties with the ends of an interval at
random, so that it is .9 where everything is right; `closed` counts the ends as inside, as a reader
of whole numbers does, and is above it. R-hat are the largest of a level's.
"""

import time

import arviz as az
import numpy as np

import pymc_dp as pmdp
from benchmarks._peers import QUIET, kept
from examples.geography import build, simulate

REPLICATES, TUNE, DRAWS = 2, 1000, 3000
LEVEL = 0.9


def levels(tables):
    """Counts of every level; the last three axes of tables are counties, tracts and cells."""
    return {
        "tract": tables,
        "county": tables.sum(-2),
        "county people": tables.sum((-2, -1)),
        "state": tables.sum((-3, -2)),
    }


def covered(draws, true, rng):
    """Share of counts within their intervals: ties at the ends broken at random, and all in."""
    flat = draws.reshape(-1, true.size)
    shaken = flat + rng.random(flat.shape, dtype=np.float32)
    ends = np.quantile(shaken, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    truth = true.ravel() + rng.random(true.size)
    closed = np.floor(ends)
    inside = (ends[0] <= truth) & (truth <= ends[1])
    return inside.mean(), ((closed[0] <= true.ravel()) & (true.ravel() <= closed[1])).mean()


def replicate(seed):
    public, true = simulate(seed)
    with build(public):
        start = time.process_time()
        how = {**QUIET, "random_seed": seed, "var_names": ["people"]}
        idata = pmdp.sample(DRAWS, tune=TUNE, chains=2, cores=1, **how)
        row = {"replicate": seed, "CPU seconds": time.process_time() - start}
    rng = np.random.default_rng(seed)
    drawn = levels(np.asarray(idata.posterior["people"]))
    for name, counts in levels(true).items():
        inside, closed = covered(drawn[name], counts, rng)
        row |= {f"coverage, {name}": float(inside), f"closed, {name}": float(closed)}
        by_scalar = drawn[name].reshape(2, DRAWS, -1)
        rhat = az.rhat({"counts": by_scalar})["counts"]
        row[f"R-hat, {name}"] = float(np.max(rhat))
    return row


def main():
    rows = [
        kept("geography", str(seed), lambda seed=seed: replicate(seed))
        for seed in range(1, REPLICATES + 1)
    ]
    means = {k: float(np.mean([row[k] for row in rows])) for k in rows[0] if k != "replicate"}
    worst = {k: max(row[k] for row in rows) for k in means if k.startswith("R-hat")}
    return [*rows, {"replicate": "mean (R-hat: largest)", **means, **worst}]
