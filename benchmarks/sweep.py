"""One sweep over n records, one clamped sum, against a hand-written numba loop of the same."""

import resource
import time

import numba
import numpy as np
import pymc as pm

import pymc_dp as pmdp

SIZES = (100, 1000, 10_000, 100_000, 1_000_000)
LOWER, UPPER, SCALE = -2.0, 2.0, 10.0


@numba.njit
def hand_written(x, mu, total, released, rng):
    for i in range(len(x)):
        proposal = mu + rng.standard_normal()
        change = min(max(proposal, LOWER), UPPER) - min(max(x[i], LOWER), UPPER)
        log_ratio = (abs(released - total) - abs(released - total - change)) / SCALE
        if log_ratio >= 0 or np.log(rng.random()) < log_ratio:
            x[i] = proposal
            total += change
    return total


def cpu_seconds(function, repeats):
    start = time.process_time()
    for _ in range(repeats):
        function()
    return (time.process_time() - start) / repeats


def row(n):
    released, rng = 0.3 * n, np.random.default_rng(1)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        x = pm.Normal("x", mu, 1, shape=n)
        pmdp.Privatized(
            "s", pmdp.clamp(x, LOWER, UPPER).sum(), pmdp.Laplace(scale=SCALE), observed=released
        )
        sweep = pmdp.RecordGibbs([x], rng=rng, interweave=False)
        full = pmdp.RecordGibbs([x], rng=rng)
    start = model.initial_point()
    state = {sweep: start, full: start, "x": np.zeros(n), "total": 0.0}

    def advance(step):
        state[step], _ = step.step(state[step])

    def by_hand():
        state["total"] = hand_written(state["x"], 0.0, state["total"], released, rng)

    times = {}
    for name, function in (
        ("ours", lambda: advance(sweep)),
        ("with interweaving", lambda: advance(full)),
        ("by hand", by_hand),
    ):
        cpu_seconds(function, 3)
        times[name] = min(cpu_seconds(function, max(3, 400_000 // n)) for _ in range(5))
    return {
        "n": n,
        "ours ns a record": 1e9 * times["ours"] / n,
        "by hand ns a record": 1e9 * times["by hand"] / n,
        "ratio": times["ours"] / times["by hand"],
        "with interweaving": 1e9 * times["with interweaving"] / n,
        "peak memory MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main() -> list[dict]:
    return [row(n) for n in SIZES]
