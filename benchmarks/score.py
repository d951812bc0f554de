"""Look once: how wide and how right posteriors from one noised score are.

    python -m benchmarks.score PART [FOLDER]

PART is one of

- ``published``: maximum mean discrepancy on the Gaussian and banana problems of Räisä et al.
  (2021), as ``benchmarks.raisa2021`` has it for private chains; the published ones with a FOLDER;
- ``coverage``: logistic regressions with n = 5e4, epsilon 1: how often 90 % intervals cover, and
  how much wider than without privacy they are;
- ``laws``: the same with n = 5000 and covariates whose law is not what the analyst's model says;
- ``seconds``: one look at 1e7 records with ten covariates, beside a plain gradient.

Noise is drawn from seeds, so that runs can be repeated, at the size that the guarantee asks for.
"""

import sys
import time

import numpy as np
import pymc as pm

import pymc_dp as pmdp
from pymc_dp.accounting import noise
from pymc_dp.accounting.levels import CLIPPED, GRADIENT_LEVELS
from pymc_dp.analyst.marginal.marginalize import _records
from pymc_dp.analyst.marginal.normal.expanded import _Posterior
from pymc_dp.analyst.marginal.normal.expansion import SimulatedRecords
from pymc_dp.analyst.records import record_blocks
from pymc_dp.analyst.score.looks import Look
from pymc_dp.curator.model import RecordModel
from pymc_dp.curator.score.places import read_basis
from pymc_dp.curator.score.totals import ConfidentialScores

DELTA = 1e-6


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


def published(folder):
    from benchmarks.raisa2021 import Experiment, N

    rows = []
    for name in ("gauss", "banana"):
        experiment = Experiment(name, folder)
        kept = None if folder is None else np.load(f"{folder}/dphmc_problem_{name}.npz")
        covariance = None
        if name == "gauss":
            covariance = kept["Sigma"] if kept is not None else N * np.cov(experiment.reference.T)
        at = experiment.centre
        for epsilon in (1.0, 4.0, 8.0, 15.0):
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
                    tree = pmdp.sample(
                        500,
                        tune=500,
                        chains=2,
                        cores=1,
                        random_seed=repeat,
                        progressbar=False,
                        quiet=True,
                        compute_convergence_checks=False,
                    )
                parts = [tree.posterior[key].values.reshape(1000, -1) for key in at]
                draws = np.concatenate(parts, axis=1)
                found.append(pmdp.mmd(draws, experiment.reference))
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


# --- logistic regression --------------------------------------------------------------------------


def logistic(n, d, X=None, y=None):
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=d)
        x = pm.Normal("X", 0, 1, shape=(n, d)) if X is None else pm.Data("X", X)
        records = {"shape": n} if y is None else {"observed": pm.Data("labels", y)}
        pm.Bernoulli("y", logit_p=pm.math.dot(x, beta), **records)
    return model


def labels(X, beta, rng):
    return (rng.logistic(size=len(X)) < X @ beta).astype(int)


class Study:
    """Releases of one model for many data sets, by functions that are compiled once."""

    def __init__(self, n, beta, epsilon, bound, rng):
        self.n, self.beta, self.d, self.rng, self.bound = n, beta, beta.size, rng, bound
        X = rng.normal(size=(n, self.d))
        self.model = logistic(n, self.d, X, labels(X, beta, rng))
        self.scores = ConfidentialScores(self.model, RecordModel(self.model))
        self.scores.bound(bound)

        def simulate(values):
            X = rng.normal(size=(20_000, self.d))
            return logistic(20_000, self.d, X, labels(X, values["beta"], rng))

        self.settings = pmdp.suggest_score(
            simulate, {"beta": beta}, epsilon=epsilon, delta=DELTA, n=n, bound=bound
        )
        self.basis = read_basis(self.settings.inverse_mass, self.scores)
        budget = pmdp.PrivacyBudget(epsilon, DELTA)
        self.noise = 2 * budget.gaussian_queries(1).noise_multiplier
        # standard deviations without privacy
        p = 1 / (1 + np.exp(-X @ beta))
        self.sd = np.sqrt(np.diag(np.linalg.inv((X.T * (p * (1 - p))) @ X + np.eye(self.d))))

    def load(self, X):
        pm.set_data({"X": X, "labels": labels(X, self.beta, self.rng)}, model=self.model)
        self.scores.records.likelihood.load()

    def look(self, place, share=1.0):
        """Noised score at a place, as ``score_release`` has it, and posterior from it alone."""
        clip = self.settings.clip
        total = self.scores.total(self.bound, place, self.basis, clip)
        sigma = self.noise / np.sqrt(share) * clip / CLIPPED
        value = clip / CLIPPED / GRADIENT_LEVELS * np.array(total)
        value = value + sigma * self.rng.normal(size=self.d)
        release = pmdp.ScoreRelease(
            parameters={"beta": (self.d,)}, observed=("y",), arrays=(), also=(), n=float(self.n),
            looks=(Look(sigma, value, place, self.basis, clip, self.bound),),
            n_sigma=0.0, epsilon=1.0, delta=DELTA, neighbours="substitute", trial=None,
        )  # fmt: skip
        model = logistic(self.n, self.d)
        with model:
            release.declare("score")
        [block] = record_blocks(model, _records(model, None))
        simulated = SimulatedRecords(model, block)
        posterior = _Posterior(model, block, simulated, np.diag(np.full(self.d, sigma**2)))
        return posterior._mode(posterior.centred())

    def covered(self, mode, sd):
        """How many coefficients are in their 90 % intervals, and how wide these are."""
        off = (mode - self.beta) / sd
        return float(np.mean(np.abs(off) < 1.6449)), off, float(np.mean(sd / self.sd))


def coverage(folder=None, replicates=100):
    rows = []
    for d in (4, 10):
        rng = np.random.default_rng(d)
        beta = np.resize([0.5, -0.4, 0.3, 0.0, 0.2], d)
        study = Study(50_000, beta, 1.0, "covariates", rng)
        found = []
        for _ in range(replicates):
            study.load(rng.normal(size=(study.n, d)))
            # where an earlier study may have been: three standard deviations off
            found.append(study.covered(*study.look(beta + 3 * study.sd * rng.normal(size=d))))
        rows.append(
            {
                "d": d,
                "data sets": replicates,
                "forecast": study.settings.widening,
                "sd ratio": float(np.mean([one[2] for one in found])),
                "coverage of 90%": float(np.mean([one[0] for one in found])),
                "sd of standardised error": float(np.std([one[1] for one in found])),
            }
        )
        print(rows[-1], flush=True)
    return rows


LAWS = {
    "normal, as assumed": lambda rng, n, d: rng.normal(size=(n, d)),
    "t, 5 degrees": lambda rng, n, d: rng.standard_t(5, size=(n, d)),
    "1.5 times as wide": lambda rng, n, d: 1.5 * rng.normal(size=(n, d)),
    "shifted by .5": lambda rng, n, d: 0.5 + rng.normal(size=(n, d)),
    "correlated .5": lambda rng, n, d: rng.multivariate_normal(
        np.zeros(d), 0.5 * np.eye(d) + 0.5, size=n
    ),
    "skewed": lambda rng, n, d: rng.exponential(size=(n, d)) - 1,
}


def laws(folder=None, replicates=40):
    rows, beta = [], np.array([0.5, -0.4, 0.3, 0.0])
    for bound in ("length", "covariates"):
        for law, draw in LAWS.items():
            rng = np.random.default_rng(7)
            study = Study(5000, beta, 1.0, bound, rng)
            one, two = [], []
            for _ in range(replicates):
                study.load(draw(rng, study.n, 4))
                place = beta + 3 * study.sd * rng.normal(size=4)
                one.append(study.covered(*study.look(place)))
                first, _ = study.look(place, 0.3)
                two.append(study.covered(*study.look(first, 0.7)))
            rows.append(
                {
                    "bound": bound,
                    "law": law,
                    "one look": float(np.mean([each[0] for each in one])),
                    "second look": float(np.mean([each[0] for each in two])),
                    "sd ratio, one": float(np.mean([each[2] for each in one])),
                    "sd ratio, second": float(np.mean([each[2] for each in two])),
                }
            )
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


PARTS = {"published": published, "coverage": coverage, "laws": laws, "seconds": seconds}


def main(quick=False):
    return coverage(replicates=5 if quick else 100)


if __name__ == "__main__":
    for row in PARTS[sys.argv[1]](*sys.argv[2:3] or [None]):
        print(row)
