"""Bernstein & Sheldon (2019): calibration and utility (Figure 3), prediction (Figure 4), times.

`python -m benchmarks.bernstein2019 [part ...] --trials 300 --data FOLDER --figures FOLDER`; parts
are mixing, times, calibration and prediction, which needs the folder of cirrhosis_x20.csv.

As section 4.2 but for the noise: the exact l1 sensitivity of the five unique statistics of values
in [-1, 1], 16/3, where the paper has 24 and adds noise to the public n. For `prior` each record's x
is drawn from the prior by itself, since that is what the method assumes of the records; all others
get records with a common mean and variance.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import arviz as az
import numpy as np
import pymc as pm
from scipy import stats

import pymc_dp as pmdp
from benchmarks import _bernstein2019_figures as figures
from pymc_dp.regression import (
    FixedMoments,
    InverseWishart,
    NormalInverseGamma,
    NormalMoments,
    box_sensitivity,
    conjugate_posterior,
    fourth_moment_sums,
    noisy_moments,
    regression_statistics,
    student_moments,
)

SHAPE, RATE = 20, 0.5
PRECISION = RATE / (SHAPE - 1)
NU, PSI = 50, 1.0
PRIOR = NormalInverseGamma(np.zeros(2), PRECISION * np.eye(2), SHAPE, RATE)
SENSITIVITY = box_sensitivity((-1, 1), (-1, 1)).l1
MOMENT_SENSITIVITY = 6.0  # ranges of x^4, x^3, x^2 and x over [-1, 1]
SIZES, EPSILONS = (10, 100, 1000), (0.1, 1.0, 0.01)
CELLS = tuple((epsilon, n) for epsilon in EPSILONS for n in SIZES)
NAMES = ("slope", "intercept", "sigma2")
#: `paper` is the update variant by the paper's loop, `records` has latent records (MCMC-Ind)
METHODS = ("update", "prior", "noisy", "naive", "non-private", "paper", "records")
SAMPLED = ("update", "prior", "noisy", "paper", "records")
MOST_RECORDS = 100
DRAWS = 500


class SharedMoments(FixedMoments):
    """Fixed moments that can be changed without compiling again."""

    @property
    def parameters(self):
        return pm.Data("second", self.second), pm.Data("covariance", self.covariance)


def moments_of(method):
    if method == "update":
        tau2 = pm.InverseGamma("tau2", NU / 2, PSI / 2)
        return NormalMoments(pm.Normal("mu_x", 0, pm.math.sqrt(tau2)), tau2)
    marginal = student_moments(NU, 0.0, 2 * PSI / NU)
    if method == "prior":
        return marginal
    return SharedMoments(marginal.second, marginal.covariance)


def regression_model(method, n, scale, prior=PRIOR):
    with pm.Model() as model:
        sigma2 = pm.InverseGamma("sigma2", prior.shape, prior.rate)
        sd = pm.math.sqrt(sigma2 / np.diag(prior.precision))
        theta = pm.Normal("theta", prior.mean, sd, shape=2)
        s = pmdp.RegressionStatistics(
            "s", n=pm.Data("n", n), coef=theta, sigma2=sigma2, x_moments=moments_of(method)
        )
        released = pm.Data("released", np.zeros(5))
        pmdp.Privatized("z", s, pmdp.Laplace(scale=scale), observed=released)
    return model


class Runner:
    """One model and step for many releases; the step's tuning goes on from release to release."""

    def __init__(self, method, n, scale, mode="coherent", prior=PRIOR, seed=0):
        self.method, self.model = method, regression_model(method, n, scale, prior)
        with self.model:
            self.step = pmdp.GibbsSS(mode=mode)
        self.tunings = 0
        self.rng = np.random.default_rng(seed)

    def run(self, released, moments=None, draws=DRAWS, tune=150):
        """Draws of (slope, intercept, sigma2), of shape (draws, 3), and CPU seconds."""
        with self.model:
            pm.set_data({"released": released})
            if self.method == "noisy":
                pm.set_data({"second": moments.second, "covariance": moments.covariance})
        steps = self.step.methods if self.method == "records" else [self.step]
        for step in steps:
            step.setup_chain(self.rng.spawn(1)[0], tune, draws)
        start = time.process_time()
        point = self.model.initial_point()
        # the first releases teach the step its scales
        tune = tune if self.tunings >= 3 else 600
        self.tunings += 1
        for step in steps:
            step.tune = True
        if getattr(self.step, "nuts", None) is not None:
            self.step.nuts.step.tune = True
        out = np.empty((draws, 3))
        for i in range(-tune, draws):
            if i == 0:
                self.step.stop_tuning()
            point, _ = self.step.step(point)
            if i >= 0:
                out[i] = *point["theta"], np.exp(point["sigma2_log__"])
        return out, time.process_time() - start


class RecordsRunner(Runner):
    """The same model with latent records, by RecordGibbs and NUTS."""

    def __init__(self, n, scale, seed=0):
        self.method, self.tunings, self.rng = "records", 0, np.random.default_rng(seed)
        with pm.Model() as self.model:
            sigma2 = pm.InverseGamma("sigma2", SHAPE, RATE)
            theta = pm.Normal("theta", 0, pm.math.sqrt(sigma2 / PRECISION), shape=2)
            tau2 = pm.InverseGamma("tau2", NU / 2, PSI / 2)
            mu_x = pm.Normal("mu_x", 0, pm.math.sqrt(tau2))
            x = pm.Normal("x", mu_x, pm.math.sqrt(tau2), shape=n)
            y = pm.Normal("y", theta[0] * x + theta[1], pm.math.sqrt(sigma2), shape=n)
            released = pm.Data("released", np.zeros(5))
            noise = pmdp.Laplace(scale=scale)
            pmdp.Privatized("z", regression_statistics(x, y), noise, observed=released)
            nuts = pm.NUTS([sigma2, theta, tau2, mu_x], target_accept=0.9)
            self.step = pm.CompoundStep([pmdp.RecordGibbs([x, y]), nuts])


def simulate(n, rng, common):
    """Parameters and data from the priors of section 4.2."""
    sigma2 = RATE / rng.gamma(SHAPE)
    theta = rng.normal(0, np.sqrt(sigma2 / PRECISION), size=2)
    tau2 = PSI / 2 / rng.gamma(NU / 2, size=1 if common else n)
    x = rng.normal(rng.normal(0, np.sqrt(tau2)), np.sqrt(tau2), size=n)
    y = rng.normal(theta[0] * x + theta[1], np.sqrt(sigma2))
    return np.array([*theta, sigma2]), x, y


def released_moments(x, epsilon, rng, sensitivity=MOMENT_SENSITIVITY):
    noise = rng.laplace(0, sensitivity / epsilon, size=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return noisy_moments(fourth_moment_sums(x) + noise, len(x))


def conjugate_draws(statistics, n, seed, prior=PRIOR):
    tree = conjugate_posterior(statistics, n, prior, draws=2000, random_seed=seed).posterior
    return np.column_stack([tree["coef"].to_numpy()[0], tree["sigma2"].to_numpy()[0]])


def one_trial(runner, method, n, epsilon, seed, draws_a_trial):
    """Quantiles of the truth, whether the central 95% hold it, MMD to the non-private posterior."""
    rng = np.random.default_rng(seed)
    truth, x, y = simulate(n, rng, common=method != "prior")
    s = regression_statistics(x, y)
    share = epsilon / 2 if method == "noisy" else epsilon
    released = s + rng.laplace(0, SENSITIVITY / share, size=5)
    exact = conjugate_draws(s, n, seed)
    effective, seconds = float(len(exact)), 0.0
    if method == "non-private":
        draws = exact
    elif method == "naive":
        draws = conjugate_draws(released, n, seed)
    else:
        moments = released_moments(x, share, rng) if method == "noisy" else None
        # the paper's loop: 20000 draws after 5000, as in section 4.1
        length = 20_000 if method == "paper" else draws_a_trial
        draws, seconds = runner.run(released, moments, length, length // 4)
        effective = min(float(az.ess(draws[None, :, k])) for k in range(3))
    u = (draws < truth).mean(axis=0)
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    distance = pmdp.mmd(draws[:: max(1, len(draws) // 500)], exact[::4])
    return u, (low <= truth) & (truth <= high), distance, effective, seconds


def runner_of(method, n, epsilon):
    if method == "records":
        return RecordsRunner(n, SENSITIVITY / epsilon)
    if method == "paper":
        return Runner("update", n, SENSITIVITY / epsilon, mode="paper")
    return Runner(method, n, SENSITIVITY / (epsilon / 2 if method == "noisy" else epsilon))


def calibration(trials, out=None, draws=DRAWS, methods=METHODS, cells=CELLS):
    """KS statistic of the parameters' quantiles, coverage and MMD; every n, epsilon and method."""
    rows = []
    for epsilon, n in cells:
        for method in methods:
            if method == "records" and n > MOST_RECORDS:
                continue
            runner = runner_of(method, n, epsilon) if method in SAMPLED else None
            found = [one_trial(runner, method, n, epsilon, 1000 + t, draws) for t in range(trials)]
            u, covered, distance, effective, seconds = (
                np.array(v) for v in zip(*found, strict=True)
            )
            row = {"part": "calibration", "n": n, "epsilon": epsilon, "method": method}
            for k, name in enumerate(NAMES):
                row[f"ks {name}"] = float(stats.kstest(u[:, k], "uniform").statistic)
                row[f"cover {name}"] = float(covered[:, k].mean())
            row["ks 5% point"] = float(stats.kstwo(trials).ppf(0.95))
            row["mmd"] = float(distance.mean())
            row["least ess"], row["mean ess"] = float(effective.min()), float(effective.mean())
            row["s a trial"] = float(seconds.mean())
            rows.append(row)
            print(
                {k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()}, flush=True
            )
            if out is not None:
                kept = {**row, "u": u.tolist()}
                with Path(out).open("a") as file:
                    file.write(json.dumps(kept) + "\n")
    return rows


def mixing(seeds=3):
    """Effective draws of the intercept a CPU second: the paper's loop beside the coherent step."""
    rows = []
    for n, epsilon in ((10, 0.1), (100, 0.1), (1000, 0.1), (1000, 1.0)):
        row = {"part": "mixing", "n": n, "epsilon": epsilon}
        for mode, draws in (("paper", 20_000), ("coherent", 2000)):
            rate, length = [], []
            for seed in range(seeds):
                rng = np.random.default_rng(seed)
                _, x, y = simulate(n, rng, common=True)
                z = regression_statistics(x, y) + rng.laplace(0, SENSITIVITY / epsilon, size=5)
                runner = Runner("update", n, SENSITIVITY / epsilon, mode, seed=seed)
                runner.run(z, draws=10)
                found, seconds = runner.run(z, draws=draws)
                effective = float(min(az.ess(found[None, :, k]) for k in range(3)))
                rate.append(effective / seconds)
                length.append(draws / effective)
            row[f"{mode}: draws an effective one"] = float(np.median(length))
            row[f"{mode}: effective/s"] = float(np.median(rate))
        row["ratio"] = row["coherent: effective/s"] / row["paper: effective/s"]
        print(row, flush=True)
        rows.append(row)
    return rows


def large_model(d, n):
    rng = np.random.default_rng(d)
    X = rng.normal(0, 0.2, size=(1000, d))
    y = X @ rng.normal(size=d) + rng.normal(0, 0.3, size=1000)
    s = regression_statistics(X, y) * n / 1000
    with pm.Model() as model:
        sigma2 = pm.InverseGamma("sigma2", SHAPE, RATE)
        theta = pm.Normal("theta", 0, pm.math.sqrt(sigma2 / PRECISION), shape=d + 1)
        tau2 = InverseWishart("tau2", nu=NU + d, psi=2 * np.eye(d))
        mu_x = pm.MvNormal("mu_x", np.zeros(d), cov=tau2)
        latent = pmdp.RegressionStatistics(
            "s", n=n, coef=theta, sigma2=sigma2, x_moments=NormalMoments(mu_x, tau2)
        )
        noise = rng.laplace(0, 50, size=s.size)
        pmdp.Privatized("z", latent, pmdp.Laplace(scale=50), observed=s + noise)
    return model


def times(dimensions=(2, 5, 10, 20, 50), sizes=(10, 1000, 1_000_000)):
    """Milliseconds an iteration of the paper's loop, and of one gradient of the coherent step."""
    rows = []
    for d in dimensions:
        for n in sizes:
            row = {"part": "times", "d": d, "n": n}
            with large_model(d, n) as model:
                step = pmdp.GibbsSS(mode="paper", invalid="project")
                row["statistics"] = step.blocks[0].layout.size
                repeats = 5 if d > 20 else 100
                point = model.initial_point()
                for i in range(-2, repeats):
                    if i == 0:
                        start = time.process_time()
                    point, _ = step.step(point)
                row["paper ms"] = 1e3 * (time.process_time() - start) / repeats
                if d <= 20 and n == 1000:
                    nuts = pmdp.GibbsSS().nuts.step
                    q = np.concatenate([np.ravel(point[v.name]) for v in nuts.vars])
                    for i in range(-2, 20):
                        if i == 0:
                            start = time.process_time()
                        nuts._logp_dlogp_func([q])
                    row["coherent: ms a gradient"] = 1e3 * (time.process_time() - start) / 20
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
                "noisy": runner.run(aware, moments)[0],
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
    parts=("mixing", "times", "calibration"),
    trials=100,
    data=None,
    out=None,
    draws=DRAWS,
    methods=METHODS,
):
    functions = {
        "mixing": mixing,
        "times": times,
        "calibration": lambda: calibration(trials, out, draws, methods),
        "prediction": lambda: prediction(data),
    }
    wanted = [*parts, *(["prediction"] if data is not None and "prediction" not in parts else [])]
    return [row for part in wanted for row in functions[part]()]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", default=["mixing", "times", "calibration"])
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--methods", nargs="*", default=METHODS)
    parser.add_argument("--data")
    parser.add_argument("--figures")
    given = parser.parse_args()
    kept = Path(given.figures) / "calibration.jsonl" if given.figures else None
    result = main(given.parts, given.trials, given.data, kept, given.draws, given.methods)
    if given.figures:
        figures.draw(given.figures, result)
