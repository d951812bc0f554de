"""Simulation-based calibration of posteriors from a score release, data simulated anew every time.

Where a parameter lies in its posterior is uniform over data sets drawn from the prior (Talts et al.
2018). Records are integrated out, by simulated ones; false-alarm rate 1e-5 a parameter
(``tests.checks.rank_uniformity``). The curator's sums and the analyst's moments are those that
``score_release`` and ``marginalize`` use, compiled once for all data sets; posteriors are drawn by
importance resampling, and not by a chain.
"""

import numpy as np
import pymc as pm
import pytest
from scipy import stats

import pymc_dp as pmdp
from pymc_dp.accounting.levels import CLIPPED, GRADIENT_LEVELS
from pymc_dp.analyst.marginal.normal.expanded import _Posterior
from pymc_dp.analyst.marginal.normal.expansion import SimulatedRecords
from pymc_dp.analyst.records import record_blocks
from pymc_dp.curator.model import RecordModel
from pymc_dp.curator.score.totals import ConfidentialScores
from tests.checks import rank_uniformity

REPLICATES, DRAWS, N, CLIP = 200, 99, 1000, 1.0


def model_of(name, X=None, y=None):
    """The curator's model, or without records the analyst's."""
    with pm.Model() as model:
        kwargs = {"shape": N} if y is None else {"observed": pm.Data("labels", y)}
        if name == "hierarchical":
            mean = pm.Normal("mean", 0, 0.5)
            beta = pm.Normal("beta", mean, 0.3, shape=5)
            x = pm.Categorical("X", np.full(5, 0.2), shape=N) if X is None else pm.Data("X", X)
            pm.Normal("y", beta[x], 1.0, **kwargs)
            return model
        d = 4 if name == "logistic" else 2
        beta = pm.Normal("beta", 0, 0.3, shape=d)
        x = pm.Normal("X", 0, 1, shape=(N, d)) if X is None else pm.Data("X", X)
        eta = pm.math.dot(x, beta)
        if name == "logistic":
            pm.Bernoulli("y", logit_p=eta, **kwargs)
        else:
            pm.Poisson("y", pm.math.exp(eta), **kwargs)
    return model


def records_of(name, rng):
    """Parameters from the prior, and records with them."""
    if name == "hierarchical":
        beta = rng.normal(rng.normal(0, 0.5), 0.3, size=5)
        X = rng.integers(0, 5, size=N)
        return beta, X, rng.normal(beta[X], 1.0)
    beta = rng.normal(0, 0.3, size=4 if name == "logistic" else 2)
    X = rng.normal(size=(N, beta.size))
    eta = X @ beta
    y = rng.logistic(size=N) < eta if name == "logistic" else rng.poisson(np.exp(eta))
    return beta, X, y.astype(int)


class Study:
    """Releases and posteriors of many data sets."""

    def __init__(self, name, rng):
        self.name, self.rng = name, rng
        beta, X, y = records_of(name, rng)
        first = beta + rng.normal(0, 0.1, size=beta.size)
        self.curator, analyst = model_of(name, X, y), model_of(name)
        release = pmdp.score_release(
            self.curator, at={"beta": first}, clip=CLIP, epsilon=1, delta=1e-6
        )
        self.sigma, self.bound = release.sigma, release.looks[0].bound
        self.scores = ConfidentialScores(self.curator, RecordModel(self.curator))
        self.scores.bound(self.bound)
        with analyst:
            release.declare("score", check=False)
        [block] = record_blocks(analyst, [analyst["X"], analyst["y"]])
        self.simulated = SimulatedRecords(analyst, block)
        self.simulated.compile()
        constants = self.simulated.constants.items()
        self.places = [v for leaf, v in constants if np.array_equal(leaf.data, first)]
        self.posterior = _Posterior(analyst, block, self.simulated, np.diag(self.sigma**2))

    def rank(self):
        """Where parameters are among draws from their posterior."""
        beta, X, y = records_of(self.name, self.rng)
        pm.set_data({"X": X, "labels": y}, model=self.curator)
        self.scores.records.likelihood.load()
        place = beta + self.rng.normal(0, 0.1, size=beta.size)  # an earlier study's estimate
        total = self.scores.total(self.bound, place, np.eye(beta.size), CLIP)
        value = CLIP / CLIPPED / GRADIENT_LEVELS * np.array(total, dtype=float)
        for each in self.places:
            each.set_value(place)
        self.posterior.released = value + self.sigma * self.rng.normal(size=beta.size)
        where = self.simulated.layout.slices["beta"]
        self.posterior.start = np.zeros(self.simulated.layout.size)
        self.posterior.start[where] = place
        return (self._draws()[:, where] < beta).sum(axis=0)

    def _draws(self):
        found = self.posterior.centred()
        mode, _ = self.posterior._mode(found)
        covariance = N * found.covariance + np.diag(self.sigma**2)
        law = stats.multivariate_normal(self.posterior.released, covariance)

        def density(theta):
            return law.logpdf(N * found.at(theta - found.centre)) + self.posterior._prior(theta)[0]

        shape = np.linalg.inv(self.hessian(found, mode, covariance))
        proposal = stats.multivariate_t(mode, 1.2 * shape, df=8)
        proposed = proposal.rvs(size=2000, random_state=self.rng)
        log_weight = np.array([density(each) for each in proposed]) - proposal.logpdf(proposed)
        weight = np.exp(log_weight - log_weight.max())
        weight /= weight.sum()
        assert 1 / np.sum(weight**2) > 500  # or the draws would be too much alike
        return proposed[self.rng.choice(len(weight), size=DRAWS, p=weight)]

    def hessian(self, found, mode, covariance):
        """Precision of the posterior, roughly: the priors are normal."""
        slope = N * found.slope
        prior = [self.posterior._prior(mode)[1] - self.posterior._prior(mode + e)[1]
                 for e in np.eye(mode.size)]  # fmt: skip
        return slope.T @ np.linalg.solve(covariance, slope) + np.array(prior)


@pytest.mark.calibrate
@pytest.mark.parametrize("name", ["logistic", "poisson", "hierarchical"])
def test_ranks_are_uniform(name):
    study = Study(name, np.random.default_rng(11))
    ranks = np.array([study.rank() for _ in range(REPLICATES)])
    for column in ranks.T:
        report = rank_uniformity(column, DRAWS)
        print(name, *report.checks)
        assert report.passed, report
