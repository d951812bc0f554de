"""DPHMC with a pilot and without, at the same budget, where the posterior is far from the start.

Without: settings by ``suggest_hmc`` from records simulated at the start, and a chain from there, of
which half is tuning. With: a tenth of the budget for ``pilot``, settings by ``suggest_hmc`` from
records simulated at the place it found, chains from there, of which a tenth is tuning. Reference is
NUTS on all records. Distances in posterior standard deviations, root mean square over
coordinates; effective draws are those of the worst coordinate, of all chains together. The noise is
the operating system's: medians of REPEATS runs.
"""

import warnings

import arviz as az
import numpy as np
import pymc as pm
from scipy.special import expit

import pymc_dp as pmdp
from pymc_dp.curator.plan.synthetic import SyntheticPosterior, covariance

SIMULATED, REPEATS, SHARE = 10_000, 1, 0.1


def logistic(dim, truth):
    def build(X, y):
        with pm.Model() as model:
            beta = pm.Normal("beta", 0, 1, shape=dim)
            pm.Bernoulli("y", logit_p=X @ beta, observed=y.astype(int))
        return model

    def simulate(values, n, rng):
        X = rng.normal(size=(n, dim))
        return build(X, rng.random(n) < expit(X @ values["beta"]))

    return simulate, {"beta": np.asarray(truth)}


def regression():
    def build(X, y):
        with pm.Model() as model:
            beta = pm.Normal("beta", 0, 1, shape=3)
            scale = pm.HalfNormal("scale", 1)
            pm.Normal("y", X @ beta, scale, observed=y)
        return model

    def simulate(values, n, rng):
        X = rng.normal(size=(n, 3))
        return build(X, X @ values["beta"] + values["scale"] * rng.normal(size=n))

    return simulate, {"beta": np.array([0.3, -0.2, 0.1]), "scale": np.array(1.1)}


def gamma():
    def build(y):
        with pm.Model() as model:
            shape = pm.HalfNormal("shape", 3)
            rate = pm.HalfNormal("rate", 3)
            pm.Gamma("y", shape, rate, observed=y)
        return model

    def simulate(values, n, rng):
        return build(rng.gamma(values["shape"], 1 / values["rate"], size=n))

    return simulate, {"shape": np.array(1.8), "rate": np.array(2.2)}


FEW, MANY = 50_000, 200_000
LOGISTIC = logistic(4, [0.4, -0.3, 0.2, 0.1])
CASES = [  # name, how to simulate and the truth, n, epsilon
    ("logistic, 4 coefficients", LOGISTIC, FEW, 4.0),
    ("logistic, 4 coefficients", LOGISTIC, FEW, 8.0),
    ("logistic, 10 coefficients", logistic(10, np.linspace(-0.35, 0.3, 10)), FEW, 4.0),
    ("logistic, 10 coefficients", logistic(10, np.linspace(-0.35, 0.3, 10)), FEW, 8.0),
    ("regression, unknown scale", regression(), FEW, 4.0),
    ("regression, unknown scale", regression(), FEW, 8.0),
    ("gamma, shape and rate", gamma(), FEW, 4.0),
    ("gamma, shape and rate", gamma(), FEW, 8.0),
    ("logistic, 4 coefficients", LOGISTIC, MANY, 8.0),
]


def reference(model, n):
    """Mean and root of the covariance of the posterior, by NUTS."""
    with np.errstate(all="ignore"):
        found = SyntheticPosterior(model, n, None, np.random.default_rng(1))
    return (
        found.records.space,
        found.draws.mean(axis=0),
        np.linalg.cholesky(covariance(found.draws)),
    )


def start_values(model):
    """Constrained values of the model's own start, where one would simulate without a pilot."""
    point = model.initial_point()
    function = model.compile_fn(
        model.replace_rvs_by_values(model.free_RVs), inputs=model.value_vars, point_fn=True
    )
    return {rv.name: v for rv, v in zip(model.free_RVs, function(point), strict=True)}


def run(model, n, budget, synthetic, point, tune_share):
    found = pmdp.suggest_hmc(*budget.remaining, n=n, synthetic=synthetic, start=point)
    with model:
        step = pmdp.DPHMC(budget=budget, **found.settings)
        tune = int(found.draws * tune_share)
        draws = max(4, found.draws - tune)
        quiet = {"cores": 1, "progressbar": False, "quiet": True}
        tree = pmdp.sample(draws, tune=tune, step=step, initvals=point, **quiet)
    return tree, found


def row(tree, found, space, mean, root):
    """Compare draws with the reference, unconstrained."""
    columns = []
    for name, shape in space.shapes.items():
        logged = name.endswith("_log__")
        values = tree.posterior[name.removesuffix("_log__")].values
        columns.append((np.log(values) if logged else values).reshape(*values.shape[:2], -1))
        assert columns[-1].shape[2] == int(np.prod(shape))
    draws = np.concatenate(columns, axis=2)
    off = np.linalg.solve(root, draws.mean(axis=(0, 1)) - mean)
    accepted = float(tree.sample_stats["accepted"].mean())
    sets = az.convert_to_datatree({"theta": draws})
    return {
        "accepted": accepted,
        "forecast": found.effective_draws,
        "effective": float(az.ess(sets)["theta"].min()) if accepted else 0.0,
        "r_hat": float(az.rhat(sets)["theta"].max()),
        "mean_off": rms(off),
        "sd_ratio": float(np.median(draws.std(axis=(0, 1)) / np.sqrt(np.diag(root @ root.T)))),
    }


def rms(x):
    return float(np.sqrt(np.mean(np.square(x))))


def compare(name, case, n, epsilon, seed=0):
    simulate, truth = case
    rng = np.random.default_rng(seed)
    model = simulate(truth, n, rng)
    space, mean, root = reference(model, n)
    found = {"without": [], "with": []}
    for _ in range(REPEATS):
        budget = pmdp.PrivacyBudget(epsilon, 1e-6)
        synthetic = simulate(start_values(model), SIMULATED, rng)
        start = model.initial_point()
        off = rms(np.linalg.solve(root, space.flatten(start) - mean))
        done = row(*run(model, n, budget, synthetic, start, 0.5), space, mean, root)
        found["without"].append({"start_off": off, "error": np.nan} | done)
        budget = pmdp.PrivacyBudget(epsilon, 1e-6)
        place = pmdp.pilot(
            budget, lambda values: simulate(values, SIMULATED, rng), share=SHARE, model=model
        )
        off = rms(np.linalg.solve(root, space.flatten(place.point) - mean))
        done = row(*run(model, n, budget, place.synthetic, place.point, 0.1), space, mean, root)
        found["with"].append({"start_off": off, "error": place.error} | done)
    rows = []
    for way, runs in found.items():
        medians = {key: float(np.median([one[key] for one in runs])) for key in runs[0]}
        rows.append({"model": name, "n": n, "epsilon": epsilon, "pilot": way} | medians)
        print(
            {k: v if isinstance(v, str) else round(v, 3) for k, v in rows[-1].items()}, flush=True
        )
    return rows


def main() -> list[dict]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [row for case in CASES for row in compare(*case)]
