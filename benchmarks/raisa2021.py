"""The experiments of Räisä et al. (2021): Gaussian and banana posteriors against epsilon, clipping.

One table of all samplers. Every setting comes from synthetic data sets drawn at the centre of the
start points (``suggest_penalty``, ``suggest_hmc``, ``suggest_langevin``); the confidential data is
only sampled. Runs are simulations, so that they can be repeated, with the noise of the stated
guarantee. With a folder that holds the published problems (``dphmc_problem_gauss.npz``,
``dphmc_problem_banana.npz``: data, start points, reference draws) as argument those are used,
otherwise problems of the same kind from ``pymc_dp.datasets``.

    python -m benchmarks.raisa2021 [FOLDER [MODEL ...]] [--again METHOD ...]

Cells of the table that are done are kept in ``benchmarks/results/raisa2021``; those of each METHOD
are run again.
"""

import json
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

import pymc_dp as pmdp
from benchmarks._raisa2021_plots import plot_clipping, plot_comparison, plot_posteriors
from pymc_dp.accounting import noise
from pymc_dp.graph.vector import FlatSpace

N, DELTA, CHAINS, TWINS = 100_000, 1e-6, 4, 4
DISCARDED = 0.25  # part of a chain, from its start
MOST_KEPT = 4000  # draws of all chains together
RESULTS = Path(__file__).parent / "results"
EPSILONS = (4.0, 8.0, 15.0)
# medians of four repeats with the published settings, at epsilon 4, 8 and 15
PUBLISHED = {
    ("gauss", "DPHMC"): (0.431, 0.278, 0.258),
    ("gauss", "DPPenalty"): (0.493, 0.371, 0.342),
    ("banana", "DPHMC"): (0.288, 0.326, 0.296),
    ("banana", "DPPenalty"): (0.264, 0.205, 0.156),
    ("gauss", "DPSGLD"): (0.219, 0.167, 0.118),
    ("gauss", "DPSGNHT"): (0.381, 0.295, 0.146),
    ("banana", "DPSGLD"): (0.377, 0.303, np.nan),
    ("banana", "DPSGNHT"): (0.302, 0.280, np.nan),
}
ONE_LOOK = "score release"
METHODS = {
    ONE_LOOK: "",
    "DPSGNHT": "DPSGNHT",
    "DPSGLD": "DPSGLD",
    "DPHMC": "DPHMC",
    "DPMALA": "DPMALA",
    "DPBarker": "DPBarker",
    "DPPenalty": "DPPenalty",
    "one component": "DPPenalty",
    "guided": "DPPenalty",
}
MOST_DRAWS = {"gauss": 2_500, "banana": 40_000}  # of a chain, where gradients are followed
MOST_MOVES = 10_000  # of a chain, where they are not


class Experiment:
    """Confidential records, where chains start, draws to compare with, and a synthetic twin."""

    def __init__(self, name, folder=None, seed=0):
        rng = np.random.default_rng(seed)
        make = {"gauss": pmdp.datasets.correlated_gaussian, "banana": pmdp.datasets.banana}[name]
        problem = make(N)
        build, data, centre = problem.build, problem.data, problem.truth
        self.reference = problem.posterior(1000, random_seed=seed)
        spread = self.reference.std(axis=0).mean()
        self.starts = centre + spread * rng.normal(size=(40, centre.size))
        if folder is not None:
            kept = np.load(Path(folder) / f"dphmc_problem_{name}.npz")
            data, centre, self.starts = kept["data"], kept["theta0_center"], kept["start_points_40"]
            self.reference = kept["reference_posterior_sample"]
            if name == "gauss":
                build = _gaussian_model(kept["Sigma"])
        self.name, self.published, self.model = name, folder is not None, build(data)
        covariance = np.diag([2000.0, 2500.0])
        middle = np.array([centre[0], centre[1] + 20 * centre[0] ** 2])
        if name == "gauss":
            covariance = kept["Sigma"] if folder is not None else N * problem.covariance
            middle = centre
        self.covariance = covariance
        self.synthetic = [build(_twin(middle, covariance, rng)) for _ in range(TWINS)]
        space = FlatSpace(self.model)
        self.centre = space.unflatten(centre, self.model.initial_point())


def _twin(middle, covariance, rng):
    """Few records whose mean is as uncertain as that of all."""
    noise = rng.multivariate_normal(np.zeros(len(middle)), covariance, 4000)
    mean = rng.multivariate_normal(np.zeros(len(middle)), np.cov(noise.T) / N)
    return middle + mean + noise - noise.mean(axis=0)


def _gaussian_model(covariance):
    import pymc as pm

    whiten = np.linalg.inv(np.linalg.cholesky(covariance)).T

    def build(records):
        with pm.Model() as model:
            theta = pm.Normal("theta", 0, 100.0, shape=len(covariance))
            pm.Normal("x", theta @ whiten, 1, observed=records @ whiten)
        return model

    return build


def run(experiment, step, draws, repeat):
    """Four chains from their start on, thinned, and how many moves were accepted."""
    every = max(1, CHAINS * draws // MOST_KEPT)
    chains, accepted, start = [], [], experiment.model.initial_point()
    for chain in range(CHAINS):
        tune = int(DISCARDED * draws)
        step.setup_chain(np.random.default_rng(100 * repeat + chain), tune, draws - tune)
        point = step.space.unflatten(experiment.starts[CHAINS * repeat + chain], start)
        path = []
        for i in range(draws):
            point, (stats,) = step.step(point)
            accepted.append(stats.get("accepted", np.nan))
            if (i + 1) % every == 0:
                path.append(step.space.flatten(point))
        chains.append(path)
    return np.array(chains), float(np.mean(accepted))


def settled(chains):
    """Draws of all chains together, without those on the way from the start."""
    kept = chains[:, int(DISCARDED * chains.shape[1]) :] if len(chains) > 1 else chains
    return kept.reshape(-1, chains.shape[-1])


def looked_once(experiment, epsilon, repeat):
    """Draws given one noised score at the centre of the start points."""
    from benchmarks.score import latent, seeded

    twin, at = experiment.synthetic[repeat % TWINS], experiment.centre
    found = pmdp.suggest_score(lambda values: twin, at, epsilon=epsilon, delta=DELTA, n=N)
    seeded(repeat)
    release = pmdp.score_release(
        experiment.model, at=at, epsilon=epsilon, delta=DELTA, **found.settings
    )
    noise.release = seeded.release
    model = latent(experiment.name, experiment.covariance, N)
    with model:
        release.declare("score")
    with pmdp.marginalize(model, method="expanded"):
        tree = pmdp.sample(
            4000,
            tune=1000,
            chains=2,
            cores=1,
            random_seed=repeat,
            target_accept=0.95,  # along the banana steps must be short
            progressbar=False,
            quiet=True,
            compute_convergence_checks=False,
        )
    parts = [tree.posterior[key].values.reshape(1, 8000, -1) for key in at]
    return np.concatenate(parts, axis=2)[:, ::3]


def settings_of(experiment, method, epsilon):
    """Settings and draws of a chain, from the synthetic twins alone."""
    common = {"n": N, "chains": CHAINS, "synthetic": experiment.synthetic}
    if method in ("DPHMC", "DPMALA"):
        found = suggested_hmc(experiment, epsilon)
        settings = dict(found.settings)
        if method == "DPHMC":
            return settings, found.draws
        # as many gradients, each of which moves
        steps = settings.pop("n_leapfrog")
        return settings, max(2, found.draws * (steps + 1) // 2)
    if method in ("DPSGLD", "DPSGNHT"):
        found = pmdp.suggest_langevin(
            epsilon,
            DELTA,
            dynamics=method[2:].lower(),
            start=experiment.centre,
            most_draws=MOST_DRAWS[experiment.name],
            **common,
        )
        return found.settings, found.draws
    found = pmdp.suggest_penalty(
        epsilon,
        DELTA,
        acceptance="barker" if method == "DPBarker" else "penalty",
        proposal={"one component": "component", "guided": "guided"}.get(method, "joint"),
        start=experiment.centre,
        most_draws=MOST_MOVES,
        **common,
    )
    return found.settings, found.draws


@cache
def suggested_hmc(experiment, epsilon):
    """Share one search between HMC and MALA."""
    return pmdp.suggest_hmc(
        epsilon,
        DELTA,
        n=N,
        chains=CHAINS,
        synthetic=experiment.synthetic,
        start=experiment.centre,
    )


def compared(experiment, method, epsilon, repeats, again):
    """Row and draws of an earlier run, or of this one, written down at once."""
    folder = RESULTS / "raisa2021" / ("published" if experiment.published else "own")
    cell = f"{experiment.name}_{method}_{epsilon:g}".replace(" ", "_")
    path, draws = folder / f"{cell}.json", folder / f"{cell}.npz"
    if again or not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        facts, chains = compare(experiment, method, epsilon, repeats)
        np.savez_compressed(draws, *chains)
        path.write_text(json.dumps(facts, indent=1))
    samples = [settled(chains) for chains in np.load(draws).values()]
    row = {"model": experiment.name, "method": method, "epsilon": epsilon}
    row |= figures(experiment, method, epsilon, samples)
    return row | json.loads(path.read_text()), samples


def figures(experiment, method, epsilon, samples):
    """Medians over repeats of how far draws are from exact ones."""
    exact = experiment.reference
    values = [pmdp.mmd(draw, exact) for draw in samples]
    published = PUBLISHED.get((experiment.name, method), (np.nan,) * 3)[EPSILONS.index(epsilon)]
    off = [np.linalg.norm(draw.mean(axis=0) - exact.mean(axis=0)) for draw in samples]
    ratios = [np.median(draw.var(axis=0) / exact.var(axis=0)) for draw in samples]
    return {
        "mmd": float(np.median(values)),
        "mmd_min": min(values),
        "mmd_max": max(values),
        "published": published,
        "over_published": float(np.median(values)) / published,
        "mean_error": float(np.median(off)),
        "variance_ratio": float(np.median(ratios)),
    }


class Method(NamedTuple):
    """How draws are had: ``run(repeat)`` returns them, and the share of moves accepted."""

    run: Callable[[int], tuple[np.ndarray, float]]
    iterations: int
    n_leapfrog: int = 0


def method_of(experiment, method, epsilon):
    """Settings from the synthetic twins, and the step with them."""
    if method == ONE_LOOK:
        return Method(lambda repeat: (looked_once(experiment, epsilon, repeat), np.nan), 1)
    settings, draws = settings_of(experiment, method, epsilon)
    with experiment.model:
        step = getattr(pmdp, METHODS[method])(
            epsilon=epsilon, delta=DELTA, chains=CHAINS, simulation=True, **settings
        )
    leapfrog = settings.get("n_leapfrog", 1 if method == "DPMALA" else 0)
    return Method(lambda repeat: run(experiment, step, draws, repeat), draws * CHAINS, leapfrog)


def compare(experiment, method, epsilon, repeats):
    """Facts about some repeats at one epsilon, and their chains."""
    cpu = time.process_time()
    how = method_of(experiment, method, epsilon)
    settings_cpu = time.process_time() - cpu
    chains, accepted = [], []
    cpu = time.process_time()
    for repeat in range(repeats):
        found, rate = how.run(repeat)
        accepted.append(rate)
        chains.append(found)
    facts = {
        "acceptance": float(np.median(accepted)),
        "iterations": how.iterations,
        "n_leapfrog": how.n_leapfrog,
        "cpu_s": (time.process_time() - cpu) / repeats,
        "settings_cpu_s": settings_cpu,
    }
    return facts, chains


def clipping(experiment, iterations, factors=(0.15, 0.3, 0.5, 1.0, 2.0)):
    """Figure 3: no noise, clipped log-ratios."""
    hmc, _ = settings_of(experiment, "DPHMC", 15.0)
    hmc = hmc | {"grad_scale": 1.0, "clip_grad": 20 * hmc["clip_grad"]}
    # a random walk in the same coordinates: one step without force
    walk = {name: hmc[name] for name in ("clip_logp", "inverse_mass", "public")}
    walk |= {"step_size": 2.0 / experiment.reference.shape[1] ** 0.5, "n_leapfrog": 1}
    walk |= {"clip_grad": 1e-90}
    for method, settings in (("HMC", hmc), ("random walk", walk)):
        for factor in factors:
            bound = factor * settings["clip_logp"]
            with experiment.model:
                step = pmdp.DPHMC(
                    simulation=True,
                    noise_multiplier=0.0,
                    grad_noise_multiplier=0.0,
                    **settings | {"clip_logp": bound},
                )
            chains, _ = run(experiment, step, iterations, 0)
            draw = settled(chains)
            pairs = np.random.default_rng(0).integers(len(draw), size=(20, 2))
            share = [clipped_share(step, draw[a], draw[b]) for a, b in pairs]
            ratio = np.median(draw.var(axis=0) / experiment.reference.var(axis=0))
            yield {
                "model": experiment.name,
                "method": method,
                "clip_logp": bound,
                "clipped": float(np.nanmean(share)),
                "mmd": pmdp.mmd(draw, experiment.reference),
                "variance_ratio": float(ratio),
            }


def clipped_share(step, one, other):
    if np.array_equal(one, other):
        return np.nan
    ratio = np.abs(step.likelihood(one) - step.likelihood(other))
    return float(np.mean(ratio > step.bound(step.move_length(one, other))))


def main(folder=None, *models, repeats=4, clip_iterations=400, again=()) -> list[dict]:
    """Rows of all experiments; figures and JSON go to ``benchmarks/results`` as they come."""
    RESULTS.mkdir(exist_ok=True)
    rows, clipped = [], []

    def tell(row, kept):
        kept.append(row)
        print({k: v if isinstance(v, str) else round(v, 5) for k, v in row.items()}, flush=True)
        everything = {"comparison": rows, "clipping": clipped}
        (RESULTS / "raisa2021_rows.json").write_text(json.dumps(everything, indent=1))

    experiments = [Experiment(name, folder) for name in models or ("banana", "gauss")]
    for experiment in experiments:
        samples = {}
        for method in METHODS:
            for epsilon in EPSILONS:
                row, samples[method] = compared(
                    experiment, method, epsilon, repeats, method in again
                )
                tell(row, rows)
        if experiment.name == "banana":
            plot_posteriors(samples, experiment.reference, RESULTS / "raisa2021_figure2.png")
        plot_comparison(rows, RESULTS / "raisa2021_figure1.png")
    for experiment in experiments if clip_iterations else ():
        for row in clipping(experiment, clip_iterations):
            tell(row, clipped)
        plot_clipping(clipped, RESULTS / "raisa2021_figure3.png")
    return [*rows, *clipped]


if __name__ == "__main__":
    arguments = sys.argv[1:]
    cut = arguments.index("--again") if "--again" in arguments else len(arguments)
    main(*arguments[:cut], again=arguments[cut + 1 :])
