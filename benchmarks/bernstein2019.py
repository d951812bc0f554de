"""Bernstein & Sheldon (2019): calibration and utility (Figure 3), prediction (Figure 4), times.

`python -m benchmarks.bernstein2019 [part ...] --trials 300 --folder FOLDER --data FOLDER`; parts
are mixing, times, calibration and prediction, which needs the folder of cirrhosis_x20.csv. With
--folder every trial is written down at once and read back by the next run, and the figures are
drawn there.
"""

import argparse
import json
import time
from pathlib import Path

import arviz as az
import numpy as np
import pymc as pm
from scipy import stats

import pymc_dp as pmdp
from benchmarks import _bernstein2019_figures as figures
from benchmarks.__main__ import print_table
from benchmarks._bernstein2019_models import (
    NU,
    PRECISION,
    RATE,
    SENSITIVITY,
    SHAPE,
    RecordsRunner,
    Runner,
    conjugate_draws,
    released_moments,
    simulate,
)
from pymc_dp.regression import (
    InverseWishart,
    NormalInverseGamma,
    NormalMoments,
    regression_statistics,
)

CELLS = tuple((epsilon, n) for epsilon in (0.1, 1.0, 0.01) for n in (10, 100, 1000))
NAMES = ("slope", "intercept", "sigma2")
#: `records` are latent records (MCMC-Ind); on request also `paper`, the update variant by the
#: paper's loop, many seconds a trial
METHODS = ("update", "prior", "noisy", "records", "naive", "non-private")
#: draws and tuning of the paper's loop, as in section 4.1; of the others, draws until there are
#: enough effective ones
PAPER_LENGTH = (20_000, 5000)
TUNE, DRAWS, MOST_DRAWS, ENOUGH = 300, 400, 8000, 150
BATCH = 10


def one_trial(runner, method, n, epsilon, trial):
    """Quantiles of the truth, whether the central 95% hold it, MMD to the non-private posterior."""
    seed = 1000 + trial
    rng = np.random.default_rng(seed)
    truth, x, y = simulate(n, rng, common=method != "prior")
    s = regression_statistics(x, y)
    share = epsilon / 2 if method == "noisy" else epsilon
    released = s + rng.laplace(0, SENSITIVITY / share, size=5)
    exact = conjugate_draws(s, n, seed)
    row = {"n": n, "epsilon": epsilon, "method": method, "trial": trial, "s": 0.0}
    if runner is None:
        draws = conjugate_draws(s if method == "non-private" else released, n, seed + 1)
        row["ess"] = float(len(draws))
    else:
        moments = released_moments(x, share, rng) if method == "noisy" else None
        if method == "paper":
            draws, row["s"] = runner.run(released, seed, moments, *PAPER_LENGTH)
            row["ess"] = effective(draws)
        else:
            draws, row["s"], row["ess"] = run_until_enough(runner, released, seed, moments)
        row["draws"] = len(draws)
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    row["u"] = (draws < truth).mean(axis=0).tolist()
    row["covered"] = ((low <= truth) & (truth <= high)).tolist()
    row["mmd"] = pmdp.mmd(draws[:: max(1, len(draws) // 400)], exact[::5])
    return row


def effective(draws):
    """Effective draws of the worst parameter."""
    return min(float(az.ess(draws[None, :, k])) for k in range(3))


def run_until_enough(runner, released, seed, moments):
    """Draws, CPU seconds and effective draws of a chain that goes on until it has enough."""
    draws, seconds = runner.run(released, seed, moments, DRAWS, TUNE)
    while (found := effective(draws)) < ENOUGH and len(draws) < MOST_DRAWS:
        more, spent = runner.go_on(len(draws))
        draws, seconds = np.concatenate([draws, more]), seconds + spent
    return draws, seconds, found


def runner_of(method, n, epsilon):
    if method in ("naive", "non-private"):
        return None
    if method == "records":
        return RecordsRunner(n, SENSITIVITY / epsilon)
    if method == "paper":
        return Runner("update", n, SENSITIVITY / epsilon, mode="paper")
    return Runner(method, n, SENSITIVITY / (epsilon / 2 if method == "noisy" else epsilon))


def calibration(trials, folder=None, methods=METHODS, cells=CELLS):
    """KS statistic of the parameters' quantiles, coverage and MMD; every n, epsilon and method.

    In rounds of a few trials over all of them, so that a run can be cut anywhere.
    """
    kept = None if folder is None else Path(folder) / "calibration.jsonl"
    rows = figures.read(kept) if kept is not None else []
    done = {(row["epsilon"], row["n"], row["method"], row["trial"]) for row in rows}
    runners = {}
    for first in range(0, trials, BATCH):
        for method in methods:
            for epsilon, n in cells:
                for trial in range(first, min(first + BATCH, trials)):
                    if (epsilon, n, method, trial) in done:
                        continue
                    key = epsilon, n, method
                    if key not in runners:
                        runners[key] = runner_of(method, n, epsilon)
                    row = one_trial(runners[key], method, n, epsilon, trial)
                    rows.append(row)
                    if kept is not None:
                        with kept.open("a") as file:
                            file.write(json.dumps(row) + "\n")
        print(f"{min(first + BATCH, trials)} trials", flush=True)
    return summarise(rows)


def summarise(rows):
    """One row for each method, n and epsilon."""
    table = []
    for key in sorted({(row["epsilon"], row["n"], row["method"]) for row in rows}):
        own = [row for row in rows if (row["epsilon"], row["n"], row["method"]) == key]
        u, covered = (np.array([row[field] for row in own]) for field in ("u", "covered"))
        line = {"part": "calibration", "epsilon": key[0], "n": key[1], "method": key[2]}
        line["trials"] = len(own)
        for k, name in enumerate(NAMES):
            line[f"ks {name}"] = float(stats.kstest(u[:, k], "uniform").statistic)
            line[f"cover {name}"] = float(covered[:, k].mean())
        line["ks 5% point"] = float(stats.kstwo(len(own)).ppf(0.95))
        line["least ess"] = float(min(row["ess"] for row in own))
        for field in ("mmd", "ess", "s"):
            line[field] = float(np.mean([row[field] for row in own]))
        table.append({**line, "u": u})
    return table


def mixing(seeds=3):
    """Effective draws of the intercept a CPU second: the paper's loop beside the coherent step."""
    rows = []
    for n, epsilon in ((10, 0.1), (100, 0.1), (1000, 0.1), (1000, 1.0)):
        row = {"part": "mixing", "n": n, "epsilon": epsilon}
        for mode, draws in (("paper", 20_000), ("coherent", 2000)):
            runner = Runner("update", n, SENSITIVITY / epsilon, mode)
            rate, length = [], []
            for seed in range(seeds):
                rng = np.random.default_rng(seed)
                _, x, y = simulate(n, rng, common=True)
                z = regression_statistics(x, y) + rng.laplace(0, SENSITIVITY / epsilon, size=5)
                found, seconds = runner.run(z, seed, draws=draws)
                effective = float(min(az.ess(found[None, :, k]) for k in range(3)))
                rate.append(effective / seconds)
                length.append(draws / effective)
            row[f"{mode}: draws an effective one"] = float(np.median(length))
            row[f"{mode}: effective/s"] = float(np.median(rate))
        row["ratio"] = row["coherent: effective/s"] / row["paper: effective/s"]
        print(row, flush=True)
        rows.append(row)
    return rows


def large_model(d):
    """Model of d covariates whose n and release can be set, and statistics of 1000 records."""
    rng = np.random.default_rng(d)
    X = rng.normal(0, 0.2, size=(1000, d))
    y = X @ rng.normal(size=d) + rng.normal(0, 0.3, size=1000)
    s = regression_statistics(X, y)
    with pm.Model() as model:
        sigma2 = pm.InverseGamma("sigma2", SHAPE, RATE)
        theta = pm.Normal("theta", 0, pm.math.sqrt(sigma2 / PRECISION), shape=d + 1)
        tau2 = InverseWishart("tau2", nu=NU + d, psi=2 * np.eye(d))
        mu_x = pm.MvNormal("mu_x", np.zeros(d), cov=tau2)
        x_moments = NormalMoments(mu_x, tau2)
        n = pm.Data("n", 1000)
        latent = pmdp.RegressionStatistics("s", n, theta, sigma2, x_moments)
        pmdp.Privatized("z", latent, pmdp.Laplace(scale=50), observed=pm.Data("released", s))
    return model, s


def milliseconds(function, argument, repeats):
    """CPU time of a call, after two that do not count."""
    for i in range(-2, repeats):
        if i == 0:
            start = time.process_time()
        function(argument)
    return 1e3 * (time.process_time() - start) / repeats


def times(dimensions=(2, 5, 10, 20, 50), sizes=(10, 1000, 1_000_000)):
    """Milliseconds an iteration of the paper's loop, and a gradient of the coherent step."""
    rows = []
    for d in dimensions:
        model, s = large_model(d)
        with model:
            step = pmdp.GibbsSS(mode="paper", invalid="project")
        row = {"part": "times", "d": d, "statistics": s.size}
        for n in sizes:
            rng = np.random.default_rng(n)
            with model:
                noise = rng.laplace(0, 50, size=s.size)
                pm.set_data({"n": n, "released": s * n / 1000 + noise})
            step.setup_chain(rng, 0, 0)
            point, _ = step.step(model.initial_point())
            row[f"n = {n}: ms"] = milliseconds(step.step, point, 5 if d > 20 else 100)
        if d <= 20:
            with model:
                step = pmdp.GibbsSS()
            nuts = step.nuts
            point |= dict(zip(nuts.variance_names, step.variances, strict=True))
            theta, given = nuts.layout.theta_of(point), nuts.layout.given_of(point)
            row["coherent: ms a gradient"] = milliseconds(
                lambda at, f=nuts.density, g=given: f(at, g), theta, 20
            )
        print(row, flush=True)
        rows.append(row)
    return rows


def prediction(folder, splits=100):
    """Coverage of predictive intervals for held-out rows of the cirrhosis data (Figure 4)."""
    table = np.genfromtxt(Path(folder) / "cirrhosis_x20.csv", delimiter=",", names=True)
    x, y = ((v - v.min()) / (v.max() - v.min()) for v in (table["wine"], table["cirrhosis"]))
    prior = NormalInverseGamma([1.0, 0.0], 0.25 * np.eye(2), 20, 0.5)
    rows = []
    for epsilon in (0.2, 2.0):  # half of it for the statistics, half for the moments
        runner = Runner("noisy", 36, 5 / (epsilon / 2), prior=prior)
        hits = {"noisy": [], "naive": [], "non-private": []}
        for split in range(splits):
            rng = np.random.default_rng(split)
            train, test = np.split(rng.permutation(46), [36])
            s = regression_statistics(x[train], y[train])
            noise = rng.laplace(0, 1, size=(2, 5))
            aware = s + noise[0] * 5 / (epsilon / 2)
            moments = released_moments(x[train], epsilon / 2, rng, sensitivity=4.0)
            found = {
                "noisy": runner.run(aware, split, moments)[0],
                "naive": conjugate_draws(s + noise[0] * 5 / epsilon, 36, split, prior),
                "non-private": conjugate_draws(s, 36, split, prior),
            }
            for method, draws in found.items():
                slope, level, sigma2 = draws.T[..., None]
                new = rng.normal(slope * x[test] + level, np.sqrt(sigma2))
                inside = [
                    (np.quantile(new, (1 - p) / 2, axis=0) <= y[test])
                    & (y[test] <= np.quantile(new, (1 + p) / 2, axis=0))
                    for p in (0.5, 0.9)
                ]
                hits[method].append(np.mean(inside, axis=1))
        for method, shares in hits.items():
            half, most = np.mean(shares, axis=0)
            row = {"part": "prediction", "epsilon": epsilon, "method": method}
            rows.append({**row, "cover 50%": float(half), "cover 90%": float(most)})
            print(rows[-1], flush=True)
    return rows


def main(
    parts=("mixing", "times", "calibration"), trials=5, data=None, folder=None, methods=METHODS
):
    functions = {
        "mixing": mixing,
        "times": times,
        "calibration": lambda: calibration(trials, folder, methods),
        "prediction": lambda: prediction(data),
    }
    wanted = [*parts, *(["prediction"] if data is not None and "prediction" not in parts else [])]
    rows = [row for part in wanted for row in functions[part]()]
    if folder is not None:
        figures.draw(folder, rows)
    return [{name: v for name, v in row.items() if name != "u"} for row in rows]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", default=["mixing", "times", "calibration"])
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--methods", nargs="*", default=METHODS)
    parser.add_argument("--data")
    parser.add_argument("--folder")
    given = parser.parse_args()
    found = main(given.parts, given.trials, given.data, given.folder, given.methods)
    for part in given.parts:
        print_table(part, [row for row in found if row["part"] == part])
