"""Exact posteriors, through sampling, of a probability behind every kind of release.

Twelve Bernoulli records with a uniform prior on their probability: the number of ones is uniform
beforehand, so that given a release the probability has a mixture of Beta distributions, with the
likelihood of each number of ones for a weight. Likelihoods come from SciPy or from sums.
"""

import itertools

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import special, stats

import pymc_dp as pmdp
from tests.checks import assert_same_distribution
from tests.oracles import enumerate_posterior, posterior_from_likelihood
from tests.sampling import draw, values

N = 12
ONES = np.arange(N + 1)


def discrete_gaussian(sigma):
    k = np.arange(-400, 401)
    p = np.exp(-0.5 * (k / sigma) ** 2)
    return stats.rv_discrete(values=(k, p / p.sum()))


def student(released, statistic):
    return pm.logp(pm.StudentT.dist(nu=3, mu=statistic, sigma=1.5), released)


def votes(x, candidate):
    return pt.eq(x, candidate).sum()


def distance(total, released):
    return -pt.abs(total - released)


def staircase(x, epsilon, gamma):
    x = np.abs(x)
    return np.exp(-epsilon * (np.floor(x) + (x % 1 >= gamma)))


geometric = stats.dlaplace(1 / 1.5)
SUMS = {
    "staircase": (
        pmdp.Staircase(epsilon=0.8, sensitivity=1, gamma=0.3),
        7.4,
        staircase(7.4 - ONES, 0.8, 0.3),
    ),
    "folded Laplace": (
        pmdp.FoldedLaplace(scale=2, lower=1, upper=9),
        3.3,
        sum(
            stats.laplace(ONES, 2).pdf(3.3 + 16 * k) + stats.laplace(ONES, 2).pdf(-1.3 + 16 * k)
            for k in range(-9, 10)
        ),
    ),
    "folded discrete Laplace": (
        pmdp.FoldedDiscreteLaplace(scale=1.5, lower=4, upper=np.inf),
        6,
        geometric.pmf(6 - ONES) + geometric.pmf(2 - ONES),
    ),
    "bounded Laplace": (
        pmdp.BoundedLaplace(scale=2, lower=2, upper=8),
        3.3,
        stats.laplace(np.clip(ONES, 2, 8), 2).pdf(3.3)
        / (
            stats.laplace(np.clip(ONES, 2, 8), 2).cdf(8)
            - stats.laplace(np.clip(ONES, 2, 8), 2).cdf(2)
        ),
    ),
    "discrete Laplace": (pmdp.DiscreteLaplace(scale=1.5), 9, geometric.pmf(9 - ONES)),
    "discrete Gaussian": (
        pmdp.DiscreteGaussian(sigma=1.3),
        4,
        discrete_gaussian(1.3).pmf(4 - ONES),
    ),
    # inside the range of the sum: beyond it a Laplace tail is a multiple of the density
    "Laplace clamped": (
        pmdp.Laplace(scale=1.5).clamped(lower=4),
        4.0,
        stats.laplace(ONES, 1.5).cdf(4),
    ),
    "Gaussian rounded": (
        pmdp.Gaussian(sigma=1.5).rounded(5),
        10,
        stats.norm(ONES, 1.5).cdf(12.5) - stats.norm(ONES, 1.5).cdf(7.5),
    ),
    "Laplace truncated to whole numbers": (
        pmdp.Laplace(scale=1.5).rounded(how="trunc"),
        5,
        stats.laplace(ONES, 1.5).cdf(6) - stats.laplace(ONES, 1.5).cdf(5),
    ),
    "geometric, statistic clamped too": (
        pmdp.DiscreteLaplace(scale=1.5).clamped(3, 8, statistic_too=True),
        5,
        geometric.pmf(5 - np.clip(ONES, 3, 8)),
    ),
    "discrete Gaussian dropped": (
        pmdp.DiscreteGaussian(sigma=1.3).thresholded(5, dropped=np.nan),
        np.nan,
        discrete_gaussian(1.3).cdf(4 - ONES),
    ),
    "geometric rounded and clamped": (
        pmdp.DiscreteLaplace(scale=1.5).rounded(5).clamped(0, 10),
        10,
        geometric.sf(7 - ONES),
    ),
    "custom": (pmdp.CustomMechanism(logp=student), 8.0, stats.t(3, ONES, 1.5).pdf(8)),
    "continuous exponential mechanism": (
        pmdp.ExponentialMechanism(distance, 1.5, 1.2, log_normaliser=lambda _: np.log(2 * 1.6)),
        3.0,
        stats.laplace(ONES, 1.6).pdf(3),
    ),
}


def bernoulli_model(statistic, mechanism, observed):
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        x = pm.Bernoulli("x", p, shape=N)
        pmdp.Privatized("released", statistic(x), mechanism, observed=observed)
    return model


def mixture_cdf(likelihood):
    weight = likelihood / likelihood.sum()
    return lambda p: stats.beta.cdf(np.asarray(p)[..., None], 1 + ONES, 1 + N - ONES) @ weight


@pytest.mark.wide_except("bounded Laplace", "custom")
@pytest.mark.parametrize("name", SUMS)
def test_release_of_a_sum(name):
    mechanism, observed, likelihood = SUMS[name]
    model = bernoulli_model(lambda x: x.sum(), mechanism, observed)
    found = draw(model, draws=2000, tune=300)
    assert_same_distribution(values(found, "p"), mixture_cdf(likelihood))


def test_choice_by_votes():
    # the normaliser depends on the records
    winner = pmdp.ExponentialMechanism(votes, epsilon=0.8, sensitivity=1, candidates=[0, 1])
    found = draw(bernoulli_model(lambda x: x, winner, 1), draws=2000, tune=300)
    likelihood = special.expit(0.4 * (ONES - (N - ONES)))
    assert_same_distribution(values(found, "p"), mixture_cdf(likelihood))


@pytest.mark.wide
def test_private_median_of_categories():
    candidates = np.array([0.0, 0.5, 1.0, 2.0])
    median = pmdp.KNormGradient(
        lambda x, r: pt.sign(r - x).sum(), epsilon=3, sensitivity=2, candidates=candidates
    )
    with pm.Model() as model:
        tilt = pm.Normal("tilt", 0, 1)
        p = pm.math.softmax(tilt * np.arange(3.0))
        x = pm.Categorical("x", p, shape=7)
        pmdp.Privatized("median", x, median, observed=2.0)

    def log_likelihood(minus_counts):
        signs = np.sign(candidates[:, None] - np.arange(3))
        scores = -0.75 * np.abs(-minus_counts @ signs.T)
        return special.log_softmax(scores, axis=-1)[..., 3, None]

    grid = np.linspace(-5, 5, 401)
    exact = enumerate_posterior(
        range(3),
        lambda t: special.softmax(t * np.arange(3.0)),
        7,
        lambda value: np.eye(3)[value],
        np.zeros(3),
        log_likelihood,
        grid,
        stats.norm.logpdf(grid),
    )
    assert_same_distribution(values(draw(model, draws=2000, tune=300), "tilt"), exact.cdf)


REPORTS = np.repeat([0, 1, 2], [3, 2, 7])
GRID = np.linspace(0, 1, 2001)


@pytest.mark.wide
def test_randomised_response_with_an_asymmetric_matrix():
    matrix = np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])
    model = bernoulli_model(lambda x: x, pmdp.RandomizedResponse(matrix=matrix), REPORTS)
    shares = GRID[:, None] * matrix[1] + (1 - GRID[:, None]) * matrix[0]
    log_likelihood = np.log(shares) @ np.bincount(REPORTS)
    exact = posterior_from_likelihood(GRID, np.zeros(GRID.size), log_likelihood)
    assert_same_distribution(values(draw(model, draws=2000, tune=300), "p"), exact.cdf)


def test_noise_on_every_record_and_on_their_sum():
    # local and central releases of the same records
    noisy = np.array([-0.4, 1.3, 0.2, 2.0, 0.9, 1.1, -1.5, 0.4, 1.7, 0.0, 0.6, 1.4])
    model = bernoulli_model(lambda x: x, pmdp.Laplace(scale=0.8), noisy)
    with model:
        pmdp.Privatized("total", model["x"].sum(), pmdp.Gaussian(sigma=1.0), observed=9.0)
    ratio = np.exp((np.abs(noisy) - np.abs(noisy - 1)) / 0.8)
    # sum over tables with k ones of their likelihood: elementary symmetric polynomials
    by_ones = np.polynomial.polynomial.polyfromroots(-1 / ratio)
    likelihood = by_ones * stats.norm(ONES, 1.0).pdf(9) / special.comb(N, ONES)
    assert_same_distribution(
        values(draw(model, draws=2000, tune=300), "p"), mixture_cdf(likelihood)
    )


@pytest.mark.wide
def test_objective_perturbation_of_a_logistic_coefficient():
    # the released r solves gradient(y, r) + ridge r + b = 0: density of b times the Hessian
    z, released, ridge, scale = np.linspace(-2, 1.5, 6), 0.8, 1.0, 0.6
    fitted = special.expit(released * z)

    def log_density(r, totals):
        return -pt.abs(totals[0] + ridge * r) / scale + pt.log(totals[1] + ridge)

    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 2)
        y = pm.Bernoulli("y", logit_p=beta * z)
        hessian = (fitted * (1 - fitted) * z**2).sum()
        totals = pt.stack([((fitted - y) * z).sum(), hessian])
        mechanism = pmdp.CustomMechanism(logp=log_density, shape=())
        pmdp.Privatized("coefficient", totals, mechanism, observed=released)
    grid = np.linspace(-12, 12, 1601)
    tables = np.array(list(itertools.product([0, 1], repeat=6)))
    noise = -np.abs((fitted - tables) @ z + ridge * released) / scale
    by_table = special.log_expit((2 * tables[:, None] - 1) * (grid[:, None] * z)).sum(axis=2)
    log_likelihood = special.logsumexp(by_table + noise[:, None], axis=0)
    exact = posterior_from_likelihood(grid, stats.norm.logpdf(grid, scale=2), log_likelihood)
    assert_same_distribution(values(draw(model, draws=2000, tune=300), "beta"), exact.cdf)
