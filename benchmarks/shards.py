"""Records in shards: overhead of a question, speed with workers, memory, and workers that die.

``python -m benchmarks.shards overhead|scaling|memory|kills`` runs a part of it.
"""

import os
import pickle
import resource
import signal
import sys
import time
import warnings

import numpy as np

D = 10
PENALTY = {"clip_logp": 1.0, "step_size": 0.002, "noise_multiplier": 3.0}


def load(seed, n):
    """Records of a partition, made where they are to be."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, D))
    p = 1 / (1 + np.exp(-X @ np.linspace(-0.5, 0.5, D)))
    return X, (rng.random(n) < p).astype(np.int64)


def build(X, y):
    import pymc as pm

    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=D)
        pm.Bernoulli("y", logit_p=X @ beta, observed=y)
    return model


def cluster(n_workers):
    from distributed import Client, LocalCluster

    return Client(
        LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            dashboard_address=":0",
            silence_logs=50,
            memory_limit=0,
        )
    )


def sharded(client, sizes, **kwargs):
    import dask

    import pymc_dp as pmdp

    parts = [dask.delayed(load)(seed, n) for seed, n in enumerate(sizes)]
    return pmdp.shard(build, parts, client=client, **kwargs)


def asked(client, records, question, repeats):
    """Wall and CPU milliseconds of one question: the driver's, and the busiest worker's."""
    from pymc_dp.curator.model import record_model

    of = record_model(records.model)
    rng = np.random.default_rng(1)
    points = 0.01 * rng.normal(size=(repeats + 3, D))
    if question == "gradient":
        of.gradients.prepare(np.eye(D))

    def ask(i):
        if question == "gradient":
            return of.gradients.total(points[i], 1.0)
        return of.ratios.total(points[i], points[i + 1], 1.0)

    for i in range(2):
        ask(i)
    workers = client.run(time.process_time)
    wall, cpu = time.perf_counter(), time.process_time()
    for i in range(2, repeats + 2):
        ask(i)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    after = client.run(time.process_time)
    busiest = max(after[worker] - workers[worker] for worker in workers)
    return [1e3 * each / repeats for each in (wall, cpu, busiest)]


def overhead():
    """Ask workers that have next to nothing to do; and send them arrays."""
    from pymc_dp.curator.model import record_model

    rows = []
    for n_workers in (1, 2, 4):
        with cluster(n_workers) as client:
            records = sharded(client, [100] * n_workers)
            for question in ("ratio", "gradient"):
                wall, cpu, worker = min(asked(client, records, question, 300) for _ in range(3))
                rows.append(
                    {
                        "what": f"{question}, {n_workers} workers, 100 records each",
                        "ms": wall,
                        "driver's CPU ms": cpu,
                        "busiest worker's CPU ms": worker,
                    }
                )
            if n_workers == 2:
                hosts = record_model(records.model).shards._hosts
                for size in (10**3, 10**5, 10**6):
                    sent = np.zeros(size // 8)
                    start = time.perf_counter()
                    for _ in range(20):
                        for future in [a.ask("ratio", (sent,), {}) for a in hosts._actors.values()]:
                            future.result()
                    took = (time.perf_counter() - start) / 20
                    rows.append({"what": f"{size} bytes to each of 2 workers", "ms": 1e3 * took})
    rows.append({"what": "bytes of an answer", "bytes": len(pickle.dumps([2**40] * D))})
    return rows


def scaling(total=4_000_000):
    """Ask for sums over all records, in one shard and in two."""
    rows = []
    for n_workers in (1, 2):
        with cluster(n_workers) as client:
            for n in (total // 40, total):
                records = sharded(client, [n // n_workers] * n_workers)
                for question, repeats in (("ratio", 12), ("gradient", 12)):
                    found = [asked(client, records, question, repeats) for _ in range(3)]
                    wall, cpu, worker = np.min(found, axis=0)
                    rows.append(
                        {
                            "what": f"{question}, n = {n}, {n_workers} workers",
                            "ms": float(wall),
                            "driver's CPU ms": float(cpu),
                            "busiest worker's CPU ms": float(worker),
                            "load": os.getloadavg()[0],
                        }
                    )
                del records
    return rows


def _peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def memory(total=20_000_000, n_workers=10, parts=40):
    """Tell the largest memory that a process ever had, MB, against that of all records."""
    import pymc_dp as pmdp

    whole = total * (8 * D + 8) / 1e6
    with cluster(n_workers) as client:
        base = max(client.run(_peak).values())
        records = sharded(client, [total // parts] * parts)
        rows = [{"what": f"all {total} records", "MB": whole}]
        rows.append({"what": "a worker before it has any", "MB": base})
        for kind, settings in (
            (pmdp.DPPenalty, PENALTY),
            (pmdp.DPSGLD, {"clip_grad": 1.0, "noise_multiplier": 3.0, "step_size": 1e-9}),
        ):
            with records.model, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                step = kind(simulation=True, rng=1, chains=1, **settings)
                start = time.perf_counter()
                pmdp.sample(10, tune=0, chains=1, step=step, progressbar=False, quiet=True)
            peak = max(client.run(_peak).values())
            rows.append(
                {
                    "what": f"largest of {n_workers} workers, {kind.__name__}",
                    "MB": peak,
                    "of all records": peak / whole,
                    "seconds, 10 draws": time.perf_counter() - start,
                }
            )
        rows.append({"what": "the driver", "MB": _peak(), "of all records": _peak() / whole})
    return rows


def kills(times=50, draws=40):
    """Kill a worker at a random iteration, again and again."""
    import pymc_dp as pmdp

    def run(model, callback=None, **kwargs):
        with model, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            step = pmdp.DPPenalty(chains=1, clip_logp=1.0, step_size=0.02, **kwargs)
            tree = pmdp.sample(
                draws,
                tune=0,
                chains=1,
                cores=1,
                step=step,
                random_seed=5,
                progressbar=False,
                quiet=True,
                callback=callback,
            )
        return tree.posterior["beta"].to_numpy()

    sizes = [700, 0, 1, 301, 998]
    arrays = [load(seed, n) for seed, n in enumerate(sizes)]
    simulation = {"simulation": True, "rng": 3, "noise_multiplier": 3.0}
    expected = run(
        build(*(np.concatenate(each) for each in zip(*arrays, strict=True))), **simulation
    )
    rng = np.random.default_rng(0)
    different = overspent = 0
    longest = 0.0
    with cluster(2) as client:
        records = sharded(client, sizes, timeout=120)
        for i in range(times):
            at = int(rng.integers(draws - 1))

            def kill(trace, draw, at=at):
                if draw.draw_idx == at:
                    pids = client.run(os.getpid, on_error="ignore")
                    os.kill(sorted(pids.values())[rng.integers(len(pids))], signal.SIGKILL)

            # Dask gives up a worker that is killed just when it had come back: start another
            try:
                client.wait_for_workers(2, timeout=10)
            except TimeoutError:
                client.cluster.scale(len(client.cluster.worker_spec) + 1)
                client.wait_for_workers(2, timeout=60)
            start = time.perf_counter()
            if i % 2:
                budget = pmdp.PrivacyBudget(epsilon=2, delta=1e-6)
                run(records.model, kill, budget=budget, share=0.5)
                overspent += len(budget.claims()) != 1 or abs(budget.unspent - 0.5) > 1e-9
            else:
                different += not np.array_equal(run(records.model, kill, **simulation), expected)
            longest = max(longest, time.perf_counter() - start)
            print(f"{i + 1}: {time.perf_counter() - start:.1f} s", flush=True)
    return [
        {
            "what": f"{times} kills, {draws} draws each",
            "other draws": different,
            "other claims": int(overspent),
            "longest run, s": longest,
            "load": os.getloadavg()[0],
        }
    ]


PARTS = {"overhead": overhead, "scaling": scaling, "memory": memory, "kills": kills}


def main():
    """All of it."""
    return [row for part in PARTS.values() for row in part()]


if __name__ == "__main__":
    for name in sys.argv[1:] or PARTS:
        for row in PARTS[name]():
            print(row, flush=True)
