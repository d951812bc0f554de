"""Simulation-based calibration of every mechanism: its draws against its density in the sampler.

A probability is drawn from its prior, records from it, a release from them (by the mechanism's own
symbolic draw); its rank among posterior draws must be uniform. Records are updated by RecordGibbs,
the probability given the records by its conjugate Beta distribution, so that one compiled step
serves all repetitions.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import special

import pymc_dp as pmdp
from pymc_dp.graph.intervals import ONCE
from tests.checks import rank_uniformity

N, REPETITIONS, DRAWS, THIN = 8, 400, 49, 4


def total(x):
    return x.sum()


def records(x):
    return x


def votes(x, candidate):
    return pt.eq(x, candidate).sum()


def balance(x, candidate):
    return (x - candidate).sum()


CASES = {
    "Laplace": (total, pmdp.Laplace(scale=1.5)),
    "Gaussian": (total, pmdp.Gaussian(sigma=1.5)),
    "discrete Laplace": (total, pmdp.DiscreteLaplace(scale=1.5)),
    "discrete Gaussian": (total, pmdp.DiscreteGaussian(sigma=1.5)),
    "clamped": (total, pmdp.Laplace(scale=2).clamped(0, 6)),
    "rounded": (total, pmdp.DiscreteGaussian(sigma=1.5).rounded(3)),
    "thresholded": (total, pmdp.Gaussian(sigma=1.5).thresholded(4, dropped=0)),
    "randomised response": (records, pmdp.RandomizedResponse(2, epsilon=1)),
    "local Laplace": (records, pmdp.Laplace(scale=0.7)),
    "exponential": (
        records,
        pmdp.ExponentialMechanism(votes, epsilon=1, sensitivity=1, candidates=[0, 1]),
    ),
    "K-norm gradient": (
        records,
        pmdp.KNormGradient(balance, epsilon=2, sensitivity=1, candidates=np.linspace(0, 1, 5)),
    ),
}


def declare(statistic, mechanism, observed=None):
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        x = pm.Bernoulli("x", p, shape=N)
        if observed is not None:
            observed = pm.Data("data", observed)
        pmdp.Privatized("released", statistic(x), mechanism, observed=observed)
    return model


def calibration_ranks(statistic, mechanism, releases, truths):
    """Rank of every true probability among draws given its release."""
    model = declare(statistic, mechanism, releases[0])
    with model:
        step = pmdp.RecordGibbs([model["x"]])
    rng = np.random.default_rng(7)
    point = model.initial_point()
    ranks = []
    for released, truth in zip(releases, truths, strict=True):
        model.set_data("data", released)
        step.setup_chain(rng, 0, DRAWS)
        below = 0
        for sweep in range(-10 * THIN, DRAWS * THIN):
            p = rng.beta(1 + point["x"].sum(), 1 + N - point["x"].sum())
            point["p_logodds__"] = np.asarray(special.logit(p))
            point, _ = step.step(point)
            below += sweep >= 0 and sweep % THIN == 0 and p < truth
        ranks.append(below)
    return ranks


@pytest.mark.calibrate
@pytest.mark.parametrize("name", CASES)
def test_calibration(name):
    statistic, mechanism = CASES[name]
    prior = declare(statistic, mechanism)
    truths, releases = pm.draw(
        [prior["p"], prior["released"]], REPETITIONS, random_seed=11, mode=ONCE
    )
    report = rank_uniformity(calibration_ranks(statistic, mechanism, releases, truths), DRAWS)
    assert report.passed, report


@pytest.mark.calibrate
def test_calibration_of_a_custom_mechanism():
    # drawn by hand: the density is all it knows
    mechanism = pmdp.CustomMechanism(
        logp=lambda r, s: pm.logp(pm.StudentT.dist(nu=3, mu=s, sigma=1.5), r)
    )
    rng = np.random.default_rng(12)
    truths = rng.uniform(size=REPETITIONS)
    releases = rng.binomial(N, truths) + 1.5 * rng.standard_t(3, size=REPETITIONS)
    report = rank_uniformity(calibration_ranks(total, mechanism, releases, truths), DRAWS)
    assert report.passed, report


@pytest.mark.calibrate
def test_calibration_of_an_exact_total():
    # the number of ones is known; odds differ between the records, their weighted sum is noisy
    weights = np.linspace(-1, 1, N)
    rng = np.random.default_rng(13)
    slopes = rng.normal(size=REPETITIONS)
    tables = rng.uniform(size=(REPETITIONS, N)) < special.expit(slopes[:, None] * weights)
    sums = tables @ weights + rng.laplace(scale=0.5, size=REPETITIONS)
    with pm.Model() as model:
        slope = pm.Normal("slope", 0, 1)
        x = pm.Bernoulli("x", logit_p=slope * weights)
        number = pm.Data("number", tables[0].sum().astype("int64"))
        weighted = pm.Data("weighted", sums[0])
        pmdp.Privatized("exact", x.sum(), pmdp.Exact(), observed=number)
        pmdp.Privatized("noisy", (x * weights).sum(), pmdp.Laplace(scale=0.5), observed=weighted)
        step = pmdp.RecordGibbs([x])
    grid = np.linspace(-6, 6, 601)
    log_odds = grid[:, None] * weights
    ranks = []
    for table, released, truth in zip(tables, sums, slopes, strict=True):
        model.set_data("number", table.sum())
        model.set_data("weighted", released)
        point = {"slope": np.array(0.0), "x": np.sort(table).astype("int64")}
        step.setup_chain(rng, 0, DRAWS)
        below = 0
        for sweep in range(-10 * THIN, DRAWS * THIN):
            log_p = special.log_expit(np.where(point["x"], 1, -1) * log_odds).sum(axis=1)
            share = special.softmax(log_p - grid**2 / 2).cumsum()
            draw = grid[np.searchsorted(share, rng.uniform())] + rng.uniform(-0.01, 0.01)
            point["slope"] = np.asarray(draw)
            point, _ = step.step(point)
            below += sweep >= 0 and sweep % THIN == 0 and draw < truth
        ranks.append(below)
    report = rank_uniformity(ranks, DRAWS)
    assert report.passed, report
