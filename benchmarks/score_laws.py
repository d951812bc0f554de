"""Look once: how often intervals cover, with covariates of the assumed law and of others.

    python -m benchmarks.score_laws PART [REPLICATES [LAW ...]]

PART is one of

- ``coverage``: logistic regressions with n = 5e4, epsilon 1, d = 4 and 10, the law as assumed;
- ``laws``: n = 5000, d = 4, epsilon 1 and covariates whose law is not what the analyst's model
  says, by one look and by a second one at the place that the first one found;
- ``moments``: the same where the analyst's law of covariates is normal with unknown mean and
  covariance, told by noised moments of the same look;
- ``split``: how much of the budget the first of two looks gets;
- ``shares``: how much of it moments and the first look get.

Posteriors are normal approximations at the mode, written out in ``benchmarks._score_posterior``;
``coverage`` compares them with those of ``pmdp.marginalize``. Looks go through the totals that
``score_release`` uses, with noise of the size that the guarantee asks for, drawn from a seed.
"""

import sys
import time
from functools import cache

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_dp as pmdp
from benchmarks._score_posterior import LogisticPosterior
from pymc_dp.accounting.levels import CLIPPED, GRADIENT_LEVELS
from pymc_dp.analyst.marginal.normal.expanded import _Posterior
from pymc_dp.analyst.marginal.normal.expansion import SimulatedRecords
from pymc_dp.analyst.records import record_blocks
from pymc_dp.analyst.score.looks import Look, Moments
from pymc_dp.curator.model import RecordModel
from pymc_dp.curator.score.places import read_basis
from pymc_dp.curator.score.totals import ConfidentialScores

DELTA = 1e-6
INSIDE = 1.6449  # half of a 90 % interval, in standard deviations


def logistic(n, d, X=None, y=None, moments=False):
    """The curator's model; without records the analyst's, with a law of covariates."""
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=d)
        if X is not None:
            x = pm.Data("X", X)
        elif moments:
            scale = pm.Normal("scale", 0, 0.5, shape=d)  # logarithms
            lower = np.tril_indices(d, -1)
            below = pm.Normal("below", 0, 0.5, shape=len(lower[0]))
            chol = pt.set_subtensor(pt.diag(pt.exp(scale))[lower], below)
            x = pm.MvNormal("X", pm.Normal("centre", 0, 1, shape=d), chol=chol, shape=(n, d))
        else:
            x = pm.Normal("X", 0, 1, shape=(n, d))
        records = {"shape": n} if y is None else {"observed": pm.Data("labels", y)}
        pm.Bernoulli("y", logit_p=pm.math.dot(x, beta), **records)
    return model


def second_moments(arrays, d=4):
    """Covariates and their products, one record a row."""
    x = arrays["X"]
    products = [x[:, i] * x[:, j] for i in range(d) for j in range(i + 1)]
    return pt.stack([x[:, i] for i in range(d)] + products, axis=1)


def held_moments(x):
    """Do the same in NumPy, with rows no longer than the bound."""
    products = [x[:, i] * x[:, j] for i in range(x.shape[1]) for j in range(i + 1)]
    rows = np.column_stack([x, *products])
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows * np.minimum(1, MOMENT_CLIP / np.maximum(length, 1e-300))


MOMENT_CLIP = 8.0  # length of (x, x x') for four standard normal covariates: 3.6, .99 quantile 9


def labels(X, beta, rng):
    return (rng.logistic(size=len(X)) < X @ beta).astype(int)


class Inference:
    """Posterior mode and standard deviations from looks, by graphs that are compiled once."""

    def __init__(self, study, n_looks, moments=False):
        rng, d = np.random.default_rng(0), study.d
        places = [study.beta + rng.normal(size=d) for _ in range(n_looks)]
        looks = [study.look(place, 1.0) for place in places]
        also = {"moments": second_moments} if moments else {}
        size = d + d * (d + 1) // 2
        told = (Moments(1.0, np.zeros(size), "moments", MOMENT_CLIP),) if moments else ()
        release = pmdp.ScoreRelease(
            parameters={"beta": (d,)}, observed=("y",), arrays=(), also=told, n=float(study.n),
            looks=tuple(looks), n_sigma=0.0, epsilon=1.0, delta=DELTA, neighbours="substitute",
            trial=None,
        )  # fmt: skip
        model = logistic(study.n, d, moments=moments)
        with model:
            release.declare("score", also=also)
        [block] = record_blocks(model, [model["X"], model["y"]])
        self.simulated = SimulatedRecords(model, block)
        self.simulated.compile()
        constants = self.simulated.constants.items()
        self.places = [
            next(value for leaf, value in constants if np.array_equal(leaf.data, place))
            for place in places
        ]
        self.posterior = _Posterior(model, block, self.simulated, np.eye(1))
        self.start, self.d = self.posterior.start, d

    def __call__(self, looks, moments=()):
        parts = [*looks, *moments]
        for place, look in zip(self.places, looks, strict=True):
            place.set_value(look.place)
        self.posterior.released = np.concatenate([part.value for part in parts])
        self.posterior.noise = np.diag(np.concatenate([part.noise for part in parts]) ** 2)
        start = self.start.copy()
        where = self.simulated.layout.slices["beta"]
        start[where] = looks[-1].place
        self.posterior.start = start
        mode, sd = self.posterior._mode(self.posterior.centred())
        return mode[where], sd[where]


class Study:
    """Noised looks at many data sets of one model."""

    def __init__(self, n, beta, epsilon, bound, rng):
        self.n, self.beta, self.d, self.rng, self.bound = n, beta, beta.size, rng, bound
        X = rng.normal(size=(n, self.d))
        self.model = logistic(n, self.d, X, labels(X, beta, rng))
        self.scores = ConfidentialScores(self.model, RecordModel(self.model))
        self.scores.bound(bound)
        self._moments = self.scores.statistic("moments", second_moments, MOMENT_CLIP)

        def simulate(values):
            X = rng.normal(size=(20_000, self.d))
            return logistic(20_000, self.d, X, labels(X, values["beta"], rng))

        self.settings = pmdp.suggest_score(
            simulate, {"beta": beta}, epsilon=epsilon, delta=DELTA, n=n, bound=bound
        )
        self.basis = read_basis(self.settings.inverse_mass, self.scores)
        budget = pmdp.PrivacyBudget(epsilon, DELTA)
        self.noise = 2 * budget.gaussian_queries(1).noise_multiplier / CLIPPED
        self.load(X)

    def load(self, X):
        """Take other covariates, with labels for them; sds are those without privacy."""
        pm.set_data({"X": X, "labels": labels(X, self.beta, self.rng)}, model=self.model)
        self.scores.records.likelihood.load()
        p = 1 / (1 + np.exp(-X @ self.beta))
        information = (X.T * (p * (1 - p))) @ X + np.eye(self.d)
        self.sd = np.sqrt(np.diag(np.linalg.inv(information)))

    def _noised(self, total, clip, share):
        sigma = self.noise / np.sqrt(share) * clip
        value = clip / CLIPPED / GRADIENT_LEVELS * np.array(total, dtype=float)
        return sigma, value + sigma * self.rng.normal(size=value.size)

    def look(self, place, share=1.0):
        """Noised score at a place, for a share of the budget."""
        clip = self.settings.clip
        total = self.scores.total(self.bound, place, self.basis, clip)
        sigma, value = self._noised(total, clip, share)
        return Look(sigma, value, place, self.basis, clip, self.bound)

    def moments(self, share):
        """Noised moments of the covariates."""
        return Moments(*self._noised(self._moments(), MOMENT_CLIP, share), "moments", MOMENT_CLIP)

    def judged(self, mode, sd):
        """Share of coefficients in 90 % intervals; errors and widths in sds without privacy."""
        off = mode - self.beta
        inside = np.mean(np.abs(off / sd) < INSIDE)
        return inside, np.mean((off / self.sd) ** 2), np.mean(sd / self.sd)


def summary(found):
    cover, square, ratio = np.mean(found, axis=0)
    return {"covers": float(cover), "rms error": float(np.sqrt(square)), "sd ratio": float(ratio)}


def coverage(replicates=100, compared=5):
    rows = []
    for d in (4, 10):
        rng = np.random.default_rng(d)
        beta = np.resize([0.5, -0.4, 0.3, 0.0, 0.2], d)
        study = Study(50_000, beta, 1.0, "covariates", rng)
        infer = LogisticPosterior(study.n, d, points=2**14)
        again = Inference(study, 1) if compared else None
        found, off, taken = [], [], 0.0
        for i in range(replicates):
            study.load(rng.normal(size=(study.n, d)))
            # where an earlier study may have been: three standard deviations off
            look = study.look(beta + 3 * study.sd * rng.normal(size=d))
            start = time.process_time()
            mode, sd = infer([look])
            taken += (time.process_time() - start) / replicates
            found.append(study.judged(mode, sd))
            if again is not None and i < compared:
                other, width = again([look])
                off.append([np.abs(other - mode).max() / sd.max(), np.abs(width / sd - 1).max()])
        about = {"d": d, "data sets": replicates, "forecast": study.settings.widening}
        of_marginalize = (
            {}
            if again is None
            else dict(
                zip(("modes off by sds", "sds off by"), np.max(off, axis=0).tolist(), strict=True)
            )
        )
        rows.append(about | summary(found) | {"CPU s each": taken} | of_marginalize)
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
BETA = np.array([0.5, -0.4, 0.3, 0.0])


@cache
def small_study(bound="covariates"):
    return Study(5000, BETA, 1.0, bound, np.random.default_rng(7))


FIRST, MOMENTS = 0.3, 0.2  # parts of the budget


def two_looks(study, infer, sds=3.0, first=FIRST, told=0.0):
    """Look `sds` standard deviations off, then where that finds the mode; perhaps at moments too.

    Returns what is inferred from the first, from the second and from both.
    """
    also = [[study.moments(told)]] if told else []
    place = study.beta + sds * study.sd * study.rng.normal(size=study.d)
    one = study.look(place, first * (1 - told))
    found = infer([one], *also)
    two = study.look(found[0], (1 - first) * (1 - told))
    return found, infer([two], *also), infer([one, two], *also)


def chosen(names):
    """Laws whose names begin with one of `names`; all by default."""
    return {law: draw for law, draw in LAWS.items() if not names or law.startswith(names)}


def replicated(study, law, replicates, *ways):
    """Judge ways to infer on the same data sets; one list of judgements for each result."""
    found = []
    for i in range(replicates):
        study.rng = np.random.default_rng([7, i])
        study.load(LAWS[law](study.rng, study.n, study.d))
        found.append([study.judged(*each) for way in ways for each in way()])
    return list(zip(*found, strict=True))


def laws(replicates=100, *names):
    """By the law of covariates: a look three sds off; a second one, alone and with the first."""
    rows = []
    for bound in ("covariates", "length"):
        study = small_study(bound)
        infer = LogisticPosterior(study.n, study.d)
        for law in chosen(names):
            found = replicated(
                study,
                law,
                replicates,
                lambda study=study, infer=infer: [
                    infer([study.look(BETA + 3 * study.sd * study.rng.normal(size=4))])
                ],
                lambda study=study, infer=infer: two_looks(study, infer)[1:],
            )
            for what, each in zip(("one", "second alone", "both"), found, strict=True):
                rows.append({"bound": bound, "law": law, "looks": what} | summary(each))
                print(rows[-1], flush=True)
    return rows


def moments(replicates=100, *names):
    """A normal law with unknown moments, which are released too, and two looks."""
    rows, study = [], small_study()
    infer = LogisticPosterior(study.n, study.d, held_moments)
    for law in chosen(names):
        found = replicated(study, law, replicates, lambda: two_looks(study, infer, told=MOMENTS))
        for what, each in zip(("first", "second alone", "both"), found, strict=True):
            rows.append({"law": law, "looks": what, "data sets": replicates} | summary(each))
            print(rows[-1], flush=True)
    return rows


def split(replicates=100):
    """How much of the budget the first of two looks gets, by how far off it is taken."""
    rows, study = [], small_study()
    infer = LogisticPosterior(study.n, study.d)
    for law in chosen(("normal", "1.5", "shifted")):
        for sds in (3, 10):
            for first in (0.1, 0.2, 0.3, 0.5):
                found = replicated(
                    study,
                    law,
                    replicates,
                    lambda sds=sds, first=first: two_looks(study, infer, sds, first)[2:],
                )
                cell = {"law": law, "first is off by": sds, "its share": first}
                rows.append(cell | summary(found[0]))
                print(rows[-1], flush=True)
    return rows


def shares(replicates=40):
    """How much of the budget goes to moments, and how much of the rest to the first look."""
    rows, study = [], small_study()
    infer = LogisticPosterior(study.n, study.d, held_moments)
    for law in chosen(("normal", "correlated")):
        for told in (0.1, 0.2, 0.4):
            for first in (0.15, 0.3, 0.5):
                found = replicated(
                    study,
                    law,
                    replicates,
                    lambda told=told, first=first: two_looks(study, infer, first=first, told=told)[
                        2:
                    ],
                )
                cell = {"law": law, "moments": told, "first of the rest": first}
                rows.append(cell | summary(found[0]))
                print(rows[-1], flush=True)
    return rows


PARTS = {each.__name__: each for each in (coverage, laws, moments, split, shares)}


def main(quick=False):
    return laws(replicates=5 if quick else 100)


if __name__ == "__main__":
    PARTS[sys.argv[1]](*map(int, sys.argv[2:3]), *sys.argv[3:])
