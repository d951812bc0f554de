"""Look once: how wide and how right posteriors from one noised score are.

    python -m benchmarks.score PART [FOLDER [PROBLEM ...]]

PART is one of

- ``published``: maximum mean discrepancy on the Gaussian and banana problems of Räisä et al.
  (2021), as ``benchmarks.raisa2021`` has it for private chains; the published ones with a FOLDER;
- ``peers``: logistic regression, n = 5e3 and 5e4, epsilon 1: one look, variational inference and
  private chains at the same guarantee, and the posterior without privacy;
- ``seconds``: one look at 1e7 records with ten covariates, beside a plain gradient.

``benchmarks.score_laws`` counts how often intervals cover. Noise is drawn from seeds, so that runs
can be repeated, at the size that the guarantee asks for.
"""

import sys
import time
import warnings

import arviz as az
import numpy as np
import pymc as pm

import pymc_dp as pmdp
from benchmarks.score_laws import BETA, labels, logistic
from pymc_dp.accounting import noise
from pymc_dp.curator.model import RecordModel
from pymc_dp.curator.score.totals import ConfidentialScores

DELTA = 1e-6
EPSILONS = {"gauss": (1.0, 4.0, 8.0, 15.0), "banana": (4.0, 8.0, 15.0)}


def seeded(seed):
    """Draw noise that can be drawn again; nothing is promised."""
    rng = np.random.default_rng(seed)
    release = seeded.release
    noise.release = lambda totals, sd, simulation=None: release(totals, sd, rng)


seeded.release = noise.release


# --- published problems ---------------------------------------------------------------------------


def latent(name, covariance, n):
    """The problem's model with its records latent."""
    with pm.Model() as model:
        if name == "gauss":
            whiten = np.linalg.inv(np.linalg.cholesky(covariance)).T
            theta = pm.Normal("theta", 0, 100.0, shape=len(covariance))
            pm.Normal("x", theta @ whiten, 1, shape=(n, len(covariance)))
        else:
            first = pm.Normal("theta_1", 0, 1000**0.5)
            second = pm.Normal("theta_2", -20 * first**2, 1000**0.5)
            pm.Normal("x_1", first, 2000**0.5, shape=n)
            pm.Normal("x_2", second + 20 * first**2, 2500**0.5, shape=n)
    return model


def published(folder=None, *names):
    from benchmarks.raisa2021 import Experiment, N

    rows = []
    for name in names or ("gauss", "banana"):
        experiment = Experiment(name, folder)
        kept = None if folder is None else np.load(f"{folder}/dphmc_problem_{name}.npz")
        covariance = None
        if name == "gauss":
            covariance = kept["Sigma"] if kept is not None else N * np.cov(experiment.reference.T)
        at = experiment.centre
        for epsilon in EPSILONS[name]:
            found, seconds = [], []
            for repeat in range(3):
                seeded(repeat)
                start = time.process_time()
                twin = experiment.synthetic[repeat]
                settings = pmdp.suggest_score(
                    lambda values, twin=twin: twin, at, epsilon=epsilon, delta=DELTA, n=N
                )
                release = pmdp.score_release(
                    experiment.model, at=at, epsilon=epsilon, delta=DELTA, **settings.settings
                )
                model = latent(name, covariance, N)
                with model:
                    release.declare("score")
                with pmdp.marginalize(model, method="expanded"):
                    # a chain that follows the banana needs short steps: at the usual 0.8, 8000
                    # draws were worth 23
                    tree = pmdp.sample(
                        4000,
                        tune=1000,
                        chains=2,
                        cores=1,
                        random_seed=repeat,
                        target_accept=0.95,
                        progressbar=False,
                        quiet=True,
                        compute_convergence_checks=False,
                    )
                parts = [tree.posterior[key].values.reshape(8000, -1)[::8] for key in at]
                draws = np.concatenate(parts, axis=1)
                found.append(pmdp.mmd(draws, experiment.reference))
                print(name, epsilon, repeat, found[-1], flush=True)
                seconds.append(time.process_time() - start)
            rows.append(
                {
                    "problem": name,
                    "epsilon": epsilon,
                    "widening": settings.widening,
                    "MMD": float(np.median(found)),
                    "all": " ".join(f"{one:.3f}" for one in found),
                    "CPU s": float(np.mean(seconds)),
                }
            )
            print(rows[-1], flush=True)
    return rows


# --- logistic regression beside other ways --------------------------------------------------------


def variational(X, y, epsilon, rng, steps=300, batch=0.3, clip=3.0, rate=0.02):
    """Differentially private variational inference: a normal law with a full covariance.

    Clipped gradients of random batches with noise, at drawn parameters, followed by Adam; steps
    and batches are accounted for as a chain's are. It does not know that its gradients are noisy.
    """
    n, d = X.shape
    size = int(batch * n)
    budget = pmdp.PrivacyBudget(epsilon, DELTA)
    sigma = 2 * clip * budget.gaussian_queries(steps, fraction=size / n).noise_multiplier
    lower = np.tril_indices(d)
    at = np.concatenate([np.zeros(d), np.eye(d)[lower] * np.log(0.1)])
    first, second, kept = np.zeros(at.size), np.zeros(at.size), []
    for step in range(1, steps + 1):
        L = np.zeros((d, d))
        L[lower] = at[d:]
        diagonal = np.exp(np.diag(L))
        L[np.diag_indices(d)] = diagonal
        z = rng.normal(size=d)
        beta = at[:d] + L @ z
        chosen = rng.choice(n, size=size, replace=False)
        score = (y[chosen] - 1 / (1 + np.exp(-X[chosen] @ beta)))[:, None] * X[chosen]
        score /= np.maximum(1, np.linalg.norm(score, axis=1) / clip)[:, None]
        pull = n / size * (score.sum(axis=0) + sigma * rng.normal(size=d)) - beta
        by_L = np.outer(pull, z)
        by_L[np.diag_indices(d)] = np.diag(by_L) * diagonal + 1  # with the entropy's own
        gradient = np.concatenate([pull, by_L[lower]])
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        slow = rate / (1 + 10 * step / steps)
        at = at + slow * (first / (1 - 0.9**step)) / np.sqrt(second / (1 - 0.999**step) + 1e-12)
        if step > steps // 2:
            kept.append(at)
    at = np.mean(kept, axis=0)
    L = np.zeros((d, d))
    L[lower] = at[d:]
    L[np.diag_indices(d)] = np.exp(np.diag(L))
    return at[:d], np.sqrt(np.diag(L @ L.T))


def without_privacy(X, y):
    """Mode and standard deviations there."""
    beta = np.zeros(X.shape[1])
    for _ in range(20):
        p = 1 / (1 + np.exp(-X @ beta))
        information = (X.T * (p * (1 - p))) @ X + np.eye(beta.size)
        beta = beta + np.linalg.solve(information, X.T @ (y - p) - beta)
    return beta, np.sqrt(np.diag(np.linalg.inv(information)))


def private_chain(X, y, epsilon, kind):
    """Run a private chain as docs/curator.md says: a pilot, settings tried there, the chain."""
    n, rng = len(X), np.random.default_rng(5)

    def simulate(values):
        covariates = rng.normal(size=X.shape)
        return logistic(n, X.shape[1], covariates, labels(covariates, values["beta"], rng))

    budget = pmdp.PrivacyBudget(epsilon=epsilon, delta=DELTA)
    with warnings.catch_warnings(), logistic(n, X.shape[1], X, y):
        warnings.simplefilter("ignore")  # which say that the budget is small
        place = pmdp.pilot(budget, simulate, share=0.1)
        known = {"n": n, "synthetic": place.synthetic}
        if kind == "DPHMC":
            found = pmdp.suggest_hmc(*budget.remaining, start=place.point, **known)
            step = pmdp.DPHMC(budget=budget, chains=4, **found.settings)
        else:
            found = pmdp.suggest(*budget.remaining, dim=X.shape[1], **known)
            step = pmdp.DPPenalty(
                budget=budget, chains=4, clip_logp=found.clip_logp, step_size=found.step_size
            )
        tune, quiet = found.draws // 10, {"cores": 1, "progressbar": False, "quiet": True}
        tree = pmdp.sample(
            found.draws - tune, tune=tune, step=step, initvals=place.point, random_seed=1, **quiet
        )
    return tree


def one_look(X, y, epsilon):
    """Release a score at a place that a pilot finds, and sample from it."""
    n, rng = len(X), np.random.default_rng(5)

    def simulate(values):
        covariates = rng.normal(size=(5000, X.shape[1]))
        return logistic(5000, X.shape[1], covariates, labels(covariates, values["beta"], rng))

    release = pmdp.score_release(
        logistic(n, X.shape[1], X, y), simulate=simulate, epsilon=epsilon, delta=DELTA
    )
    with logistic(n, X.shape[1]) as model:
        release.declare("score")
    with pmdp.marginalize(model):
        return pmdp.sample(chains=2, cores=1, progressbar=False, quiet=True, random_seed=1)


def summarised(tree):
    draws = tree.posterior["beta"].values
    worth = float(az.ess(az.convert_to_datatree({"beta": draws}))["beta"].min())
    return draws.mean(axis=(0, 1)), draws.std(axis=(0, 1)), worth


def peers(folder=None, epsilon=1.0, numbers=(5000, 50_000), replicates=20, sampled_replicates=3):
    """Error of the mean and width, in sds without privacy, of ways at one guarantee.

    Those that sample take fewer data sets, the first of the others'; their CPU seconds are the
    least, without compilation.
    """
    sampled = {
        "score release": one_look,
        "DPHMC": lambda X, y, epsilon: private_chain(X, y, epsilon, "DPHMC"),
        "DPPenalty": lambda X, y, epsilon: private_chain(X, y, epsilon, "DPPenalty"),
    }
    rows = []
    for n in numbers:
        for name in ("without privacy", "variational", *sampled):
            rng, found, worth, taken = np.random.default_rng(4), [], [], []
            for _ in range(sampled_replicates if name in sampled else replicates):
                X = rng.normal(size=(n, 4))
                y = labels(X, BETA, rng)
                mode, sd = without_privacy(X, y)
                start = time.process_time()
                if name in sampled:
                    mean, width, draws = summarised(sampled[name](X, y, epsilon))
                    worth.append(draws)
                elif name == "variational":
                    mean, width = variational(X, y, epsilon, np.random.default_rng(6))
                else:
                    mean, width = without_privacy(X, y)
                taken.append(time.process_time() - start)
                found.append([np.mean(((mean - mode) / sd) ** 2), np.mean(width / sd)])
                if name in sampled:
                    print(n, name, *found[-1], *worth[-1:], taken[-1], flush=True)
            square, ratio = np.mean(found, axis=0)
            row = {"n": n, "way": name, "data sets": len(found), "error": float(np.sqrt(square))}
            row |= {"sd ratio": float(ratio), "effective draws": min(worth, default=None)}
            rows.append(row | {"CPU s": min(taken)})
            print(rows[-1], flush=True)
    return rows


def seconds(folder=None, n=10_000_000, d=10):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, d))
    y = labels(X, np.full(d, 0.2), rng)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=d)
        pm.Bernoulli("y", logit_p=pm.math.dot(X, beta), observed=y)
    scores = ConfidentialScores(model, RecordModel(model, confidential=False))
    rows, place = [], np.full(d, 0.2)
    for bound in ("length", "covariates"):
        scores.bound(bound)
        taken = []
        for _ in range(2):
            start = time.process_time()
            scores.total(bound, place, np.eye(d), 2.0)
            taken.append(time.process_time() - start)
        rows.append({"what": f"one look, {bound}", "n": n, "CPU s": min(taken)})
    gradient = model.compile_dlogp()
    taken = []
    for _ in range(2):
        start = time.process_time()
        gradient({"beta": place})
        taken.append(time.process_time() - start)
    rows.append({"what": "plain gradient, PyMC", "n": n, "CPU s": min(taken)})
    return rows


PARTS = {"published": published, "peers": peers, "seconds": seconds}


def main(quick=False):
    return peers(numbers=(5000,) if quick else (5000, 50_000))


if __name__ == "__main__":
    for row in PARTS[sys.argv[1]](*sys.argv[2:] or [None]):
        print(row)
