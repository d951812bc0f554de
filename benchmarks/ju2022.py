"""The experiments of Ju, Awan, Gong & Rao (2022): Table 1, Figures 1a, 1b and 2.

``python -m benchmarks ju2022`` writes docs/ju2022.png. What is finished is kept in
benchmarks/results/ju2022/, one file for every experiment and epsilon: a run that was stopped goes
on from there. Delete that folder to start anew.
"""

import time
from pathlib import Path

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

import pymc_dp as pmdp
from examples import naive_bayes, regression

EPSILONS = (0.1, 0.3, 1, 3, 10)
#: Table 1 of the paper: coverage of p_1 to p_5
TABLE_1 = {
    0.1: (1.00, 1.00, 1.00, 0.36, 1.00),
    0.3: (0.97, 1.00, 1.00, 0.59, 1.00),
    1: (0.94, 0.99, 0.97, 0.83, 0.98),
    3: (0.95, 0.91, 0.97, 0.89, 0.93),
    10: (0.92, 0.88, 0.94, 0.92, 0.90),
}
#: true values of the published experiments
SHARES = np.array([0.0979, 0.1481, 0.1447, 0.4463, 0.1630])
BETA = np.array([-1.79, -2.89, -0.66])
#: rounds of tuning and draws of every experiment
EXPERIMENTS = {"coverage": (1000, 4000), "shares": (300, 1500), "coefficients": (500, 3000)}
RESULTS = Path(__file__).parent / "results" / "ju2022"
REPLICATES = 100
TITLES = (
    "Figure 1a: class shares, one table, 100 releases (line: without noise; dots: prior)",
    "Figure 1b: acceptance in the same runs",
    "Figure 2: regression coefficients, one table, 100 releases",
)


class Sampler:
    """A model compiled once, run on one release after the other without pm.sample's fixed cost."""

    def __init__(self, build, parameter, released, epsilon):
        self.model = build(released, epsilon)
        with self.model:
            self.step = pmdp.RecordGibbs(cycles=1)
        rv = self.model[parameter]
        self.value = self.model.rvs_to_values[rv].name
        transform = self.model.rvs_to_transforms[rv]
        draws = pt.dmatrix()
        self.natural = pytensor.function(
            [draws], draws if transform is None else transform.backward(draws, *rv.owner.inputs)
        )

    def run(self, released, seed, experiment):
        """Posterior draws, mean and lowest acceptance."""
        with self.model:
            pm.set_data({"released": released})
        point, found, accept = self.model.initial_point(), [], []
        tune, draws = EXPERIMENTS[experiment]
        self.step.setup_chain(np.random.default_rng(seed), tune, draws)
        for i in range(tune + draws):
            if i == tune:
                self.step.stop_tuning()
            point, stats = self.step.step(point)
            if i >= tune:
                found.append(point[self.value])
                accept.append((stats[0]["accept"], stats[0]["accept_min"]))
        accept = np.array(accept)
        return self.natural(np.array(found)), accept[:, 0].mean(), accept[:, 1].min()


def kept(experiment, epsilon, run):
    """Results of an earlier run, or of this one, written down; arrays by name."""
    path = RESULTS / f"{experiment}_{epsilon}.npz"
    if not path.exists():
        seed = [2022, list(EXPERIMENTS).index(experiment), EPSILONS.index(epsilon)]
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, **run(np.random.default_rng(seed), epsilon))
    return dict(np.load(path))


def coverage(rng, epsilon):
    """Table 1: do 90% intervals hold the true shares? New people every time, one true table."""
    table = np.random.default_rng(2022).dirichlet(np.full(naive_bayes.VALUES, 2.0), size=(5, 5))
    sampler, inside = None, []
    start = time.process_time()
    for seed in range(REPLICATES):
        counts = naive_bayes.simulate(rng, SHARES, table)
        released = counts + rng.laplace(0, 10 / epsilon, counts.shape)
        if sampler is None:
            sampler = Sampler(naive_bayes.build, "p", released, epsilon)
            start = time.process_time()
        draws, *_ = sampler.run(released, seed, "coverage")
        low, high = np.quantile(draws, [0.05, 0.95], axis=0)
        inside.append((low <= SHARES) & (high >= SHARES))
    seconds = (time.process_time() - start) / REPLICATES
    return {"inside": np.array(inside), "seconds": seconds}


def posterior_means(build, parameter, exact, scale):
    """Figures 1 and 2: one table of people, many releases of it."""

    def run(rng, epsilon):
        releases = exact + rng.laplace(0, scale / epsilon, (REPLICATES, *exact.shape))
        sampler = Sampler(build, parameter, releases[0], epsilon)
        experiment = "shares" if parameter == "p" else "coefficients"
        runs = [sampler.run(released, seed, experiment) for seed, released in enumerate(releases)]
        means, average, lowest = zip(*((d.mean(axis=0), a, b) for d, a, b in runs), strict=True)
        return {"means": np.array(means), "average": average, "lowest": lowest}

    return run


def table_1(found):
    """Rows of Table 1, the paper's figures in brackets."""
    rows = []
    for epsilon, result in found.items():
        ours = result["inside"].mean(axis=0)
        row = {"epsilon": epsilon, "CPU seconds a chain": float(result["seconds"])}
        for i, (own, paper) in enumerate(zip(ours, TABLE_1[epsilon], strict=True)):
            row[f"p{i + 1}"] = f"{own:.2f} ({paper:.2f})"
        rows.append(row)
    return rows


def plot(shares, nonprivate, coefficients, without_noise, path):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(3, 1, figsize=(8, 9), layout="constrained")
    positions = np.arange(len(EPSILONS))

    def means(axis, found, solid, dashed, names, title):
        for i, name in enumerate(names):
            at = i * (len(EPSILONS) + 1) + positions
            for x, epsilon in zip(at, EPSILONS, strict=True):
                jitter = np.linspace(-0.3, 0.3, REPLICATES)
                axis.plot(x + jitter, found[epsilon]["means"][:, i], ".", ms=2, color=f"C{i}")
            axis.hlines(solid[i], at[0] - 0.5, at[-1] + 0.5, color="k", lw=1)
            axis.text(at.mean(), 1.01, name, ha="center", transform=axis.get_xaxis_transform())
        axis.axhline(dashed, color="k", ls=":", lw=1)
        ticks = [i * (len(EPSILONS) + 1) + p for i in range(len(names)) for p in positions]
        axis.set_xticks(ticks, [str(e) for _ in names for e in EPSILONS], fontsize=7)
        axis.set(xlabel="epsilon", ylabel="posterior mean")
        axis.set_title(title, loc="left", fontsize="medium", pad=18)

    means(axes[0], shares, nonprivate, 0.2, [f"p{i + 1}" for i in range(5)], TITLES[0])
    for x, epsilon in zip(positions, EPSILONS, strict=True):
        jitter = np.linspace(-0.3, 0.3, REPLICATES)
        average, lowest = shares[epsilon]["average"], shares[epsilon]["lowest"]
        axes[1].plot(x + jitter, average, ".", ms=3, color="C0", label="mean" if x == 0 else None)
        axes[1].plot(x + jitter, lowest, ".", ms=3, color="C1", label="lowest" if x == 0 else None)
    bound = np.exp(-np.array(EPSILONS))
    axes[1].plot(positions, bound, "k_-", label="bound exp(-epsilon)")
    axes[1].set_xticks(positions, [str(e) for e in EPSILONS])
    axes[1].set(xlabel="epsilon", ylabel="acceptance of a record", ylim=(0, 1.02))
    axes[1].set_title(TITLES[1], loc="left", fontsize="medium")
    axes[1].legend()
    means(axes[2], coefficients, without_noise, 0.0, [f"b{i}" for i in range(3)], TITLES[2])
    figure.savefig(path, dpi=120)


def main() -> list[dict]:
    def all_of(experiment, run):
        found = {}
        for epsilon in EPSILONS:
            found[epsilon] = kept(experiment, epsilon, run)
            print(experiment, epsilon, flush=True)
        return found

    rows = table_1(all_of("coverage", coverage))
    rng = np.random.default_rng(2022)
    table = rng.dirichlet(np.full(naive_bayes.VALUES, 2.0), size=(5, 5))
    counts = naive_bayes.simulate(rng, SHARES, table)
    shares = all_of("shares", posterior_means(naive_bayes.build, "p", counts, 10))
    nonprivate = (counts[0].sum(axis=1) + 2) / (counts[0].sum() + 10)

    x = rng.normal(regression.MEAN, 1, size=(100, 2))
    y = BETA[0] + x @ BETA[1:] + rng.normal(0, np.sqrt(2), size=100)
    exact = regression.sums(pt.as_tensor(x), pt.as_tensor(y)).eval()
    run = posterior_means(regression.build, "beta", exact, regression.SENSITIVITY)
    coefficients = all_of("coefficients", run)
    design = np.column_stack([np.ones(100), x])
    without_noise = np.linalg.solve(design.T @ design / 2 + np.eye(3) / 4, design.T @ y / 2)
    path = Path(__file__).parents[1] / "docs" / "ju2022.png"
    plot(shares, nonprivate, coefficients, without_noise, path)
    return rows
