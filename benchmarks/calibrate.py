"""Fits for simulation-based calibration: one compilation, one and two workers, and a loop.

The README's model, 200 replicates. Beside it `pm.observe` and `pm.sample` for every replicate, as
simuk does it, with PyMC's default chains and with chains as short as those of `calibrate`. All
times are CPU seconds, of the driver and of the workers, and wall-clock seconds beside them: workers
are warm (a calibration of four replicates ran before), as is the cache of compiled code.

Run: python -m benchmarks.calibrate
"""

import time

import numpy as np
import pymc as pm
from dask.distributed import Client, LocalCluster

import pymc_dp as pmdp

REPLICATES, LOOPED, SEED = 200, 6, 20261118


def readme_model():
    with pm.Model() as model:
        mu = pm.Normal("mu", 7, 2)
        x = pm.Normal("x", mu, 1.2, shape=200)
        pmdp.Privatized(
            "released",
            pmdp.clamp(x, 3, 12).sum(),
            pmdp.Laplace(epsilon=0.5, sensitivity=9),
            observed=1423.7,
        )
    return model


def timed(run, client=None):
    """CPU seconds here and of each worker, wall-clock seconds, and the result."""
    before = client.run(time.process_time) if client else {}
    wall, cpu = time.perf_counter(), time.process_time()
    result = run()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    after = client.run(time.process_time) if client else {}
    workers = [after[address] - before[address] for address in before]
    return cpu, workers, wall, result


def row(name, cpu, workers, wall):
    each = " + ".join(f"{seconds:.2f}" for seconds in workers)
    return {"200 fits": name, "CPU s, driver": cpu, "CPU s, workers": each, "wall s": wall}


def looped(model, replicates, **run):
    """What simuk does for each replicate."""
    with model:
        prior = pm.sample_prior_predictive(replicates, random_seed=SEED)
    for i in range(replicates):
        released = prior["prior_predictive"]["released"].values[0, i]
        with pm.observe(model, {"released": released}):
            pm.sample(
                progressbar=False, compute_convergence_checks=False, quiet=True, cores=1, **run
            )


def main():
    model = readme_model()
    run = {"random_seed": SEED, "quiet": True}
    pmdp.calibrate(model, 4, **run)  # what is compiled is on disk from here on
    cpu, _, wall, here = timed(lambda: pmdp.calibrate(model, REPLICATES, **run))
    rows = [row("this process", cpu, [], wall)]
    for n_workers in (1, 2):
        cluster = LocalCluster(
            n_workers=n_workers, threads_per_worker=1, dashboard_address=None, processes=True
        )
        with cluster, Client(cluster) as client:
            for name in ("first run", "second run", "third run"):
                cpu, workers, wall, there = timed(
                    lambda client=client: pmdp.calibrate(model, REPLICATES, executor=client, **run),
                    client,
                )
                rows.append(row(f"{n_workers} worker(s), {name}", cpu, workers, wall))
                assert np.array_equal(here["prior_sbc"]["mu"], there["prior_sbc"]["mu"])
    for name, chains in (
        ("PyMC's default chains", {"chains": 2}),
        ("chains of 896 iterations", {"chains": 1, "draws": 396, "tune": 500}),
    ):
        cpu, _, wall, _ = timed(lambda chains=chains: looped(model, LOOPED, **chains))
        scale = REPLICATES / LOOPED
        rows.append(row(f"loop of pm.sample, {name}, {LOOPED} run", cpu * scale, [], wall * scale))
    return rows


if __name__ == "__main__":
    for line in main():
        print(line)
