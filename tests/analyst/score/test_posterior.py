"""Posteriors from a score release, against ones that are known without sampling.

Every comparison of draws is at a false-alarm rate of 1e-5 (``tests.checks``).
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats

import pymc_dp as pmdp
from pymc_dp.analyst.marginal.start import find_mode
from pymc_dp.graph.intervals import ONCE
from tests.checks import assert_mean_and_sd
from tests.curator.score.models import seeded_noise
from tests.sampling import draw, values


@pytest.mark.wide
def test_an_exponential_family_from_anywhere(monkeypatch):
    """The score of a normal mean is a linear map of the sum, wherever it is taken."""
    seeded_noise(monkeypatch, 1)
    n, tau, prior = 50, 1.3, 2.0
    y = np.random.default_rng(3).normal(-4, tau, size=n)

    def build(**records):
        with pm.Model() as model:
            mu = pm.Normal("mu", 1, prior)
            pm.Normal("y", mu, tau, **records)
        return model

    place, clip = 7.0, 40.0  # above all scores
    release = pmdp.score_release(
        build(observed=y), at={"mu": place}, clip=clip, epsilon=200, delta=1e-6
    )
    model = build(shape=n)
    with model:
        pmdp.ScoreRelease.from_json(release.to_json()).declare("score")
    # released = (sum y - n place) / tau**2 + noise, so it is normal about n (mu - place) / tau**2
    variance = n / tau**2 + release.sigma[0] ** 2
    precision = 1 / prior**2 + (n / tau**2) ** 2 / variance
    mean = (
        1 / prior**2 + n / tau**2 * (release.value[0] + n * place / tau**2) / variance
    ) / precision
    assert_mean_and_sd(values(draw(model), "mu"), mean, precision**-0.5)


def logistic(n, **records):
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1)
        x = records.pop("x", None)
        x = pm.Normal("x", 0, 1, shape=n) if x is None else x
        pm.Bernoulli("y", logit_p=b * x, **(records or {"shape": n}))
    return model


def released_coefficient(bound, n, public=False):
    """A release of one coefficient's score, and the model for it."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=n)
    y = (rng.logistic(size=n) < 0.6 * x).astype(int)
    release = pmdp.score_release(
        logistic(n, x=x, observed=y), at={"b": 0.4}, clip=CLIP, bound=bound, epsilon=1, delta=1e-6
    )
    model = logistic(n, x=x, shape=n) if public else logistic(n)
    with model:
        release.declare("score")
    return release, model, x


def by_quadrature(release, bound, grid, nodes=None):
    """Posterior on a grid: sums of thousands of records are normal, their moments known."""
    n = int(release.n)
    node = np.linspace(-8, 8, 4001) if nodes is None else nodes
    weight = stats.norm.pdf(node) if nodes is None else np.ones(n)
    weight = weight / weight.sum()
    p = 1 / (1 + np.exp(-0.4 * node))
    score = np.array([-p * node, (1 - p) * node])
    if bound == "length":
        held = np.clip(score, -CLIP, CLIP)
    else:
        held = score * np.minimum(1, CLIP / np.abs(score).max(axis=0).clip(1e-300))
    log_density = []
    for b in grid:
        q = 1 / (1 + np.exp(-b * node))
        first, second = ((1 - q) * held[0] ** k + q * held[1] ** k for k in (1, 2))
        spread = weight @ second - (weight @ first) ** 2
        if nodes is not None:  # public covariates do not vary
            spread = weight @ (second - first**2)
        sd = np.sqrt(n * spread + release.sigma[0] ** 2)
        log_density.append(stats.norm.logpdf(release.value[0], n * (weight @ first), sd) - b**2 / 2)
    return moments(grid, np.array(log_density))


def moments(grid, log_density):
    density = np.exp(log_density - log_density.max())
    density /= density.sum()
    mean = density @ grid
    return mean, np.sqrt(density @ (grid - mean) ** 2)


CLIP = 0.8
GRID = np.linspace(0.1, 1.1, 401)


@pytest.mark.wide
@pytest.mark.parametrize("bound", ["length", "covariates"])
def test_one_coefficient_by_quadrature(bound, monkeypatch):
    """The sum over 5000 records is normal to a hundredth of a posterior standard deviation."""
    seeded_noise(monkeypatch, 2)
    release, model, _ = released_coefficient(bound, 5000)
    mean, sd = by_quadrature(release, bound, GRID)
    posterior = draw(model, draws=1000, tune=500)
    assert_mean_and_sd(values(posterior, "b"), mean, sd, mean_error=0.01 * sd, sd_error=0.01 * sd)


@pytest.mark.wide_except("length-False")
@pytest.mark.parametrize("public", [False, True])
@pytest.mark.parametrize("bound", ["length", "covariates"])
def test_the_same_without_records(bound, public, monkeypatch):
    """By simulated records, expanded about the mode: within a tenth of a standard deviation."""
    seeded_noise(monkeypatch, 2)
    release, model, x = released_coefficient(bound, 5000, public)
    mean, sd = by_quadrature(release, bound, GRID, x if public else None)
    small = pmdp.marginalize(model, method="expanded")
    assert [rv.name for rv in small.free_RVs] == ["b"]
    density = small.compile_logp(mode=ONCE)
    found = moments(GRID, np.array([density({"b": np.array(b)}) for b in GRID]))
    assert abs(found[0] - mean) < 0.1 * sd
    assert abs(found[1] / sd - 1) < 0.05
    # and nowhere else: moments that are expanded to second order come back, at about 2.5 here
    inside = density({"b": np.array(mean)})
    for b in np.concatenate([np.linspace(-6, 0, 25), np.linspace(1.2, 8, 29)]):
        assert density({"b": np.array(b)}) < inside - 30


def test_the_statistic_written_by_hand_has_the_same_density():
    """Then every sampler has the same posterior: the model's log-density is one function."""
    n = 40
    rng = np.random.default_rng(8)
    x, y = rng.normal(size=n), rng.integers(0, 2, size=n)
    release = pmdp.score_release(
        logistic(n, x=x, observed=y), at={"b": 0.3}, clip=0.5, epsilon=1, delta=1e-6
    )
    by_hand, declared = logistic(n), logistic(n)
    with declared:
        release.declare("score")
    with by_hand:
        X, Y = by_hand["x"], by_hand["y"]
        p = pm.math.sigmoid(0.3 * X)
        weight = pt.minimum(1, 0.5 / (pt.abs(X) * pt.maximum(p, 1 - p)))
        statistic = (weight * (Y - p) * X).sum()[None]
        pmdp.Privatized(
            "score", statistic, pmdp.Gaussian(sigma=release.sigma), observed=release.value
        )
    points = [{"b": np.array(0.2), "x": 2 * x, "y": 1 - y}, {"b": np.array(-1.0), "x": x, "y": y}]
    densities = [model.compile_logp(mode=ONCE) for model in (by_hand, declared)]
    for point in points:
        one, other = (density(point) for density in densities)
        assert one == pytest.approx(other, rel=1e-10)


def test_two_looks_multiply(monkeypatch):
    """Both are of the same records: exact for a normal mean, where they are the same statistic.

    Its score is a linear map of the sum, wherever it is taken: here at 1, and far from all records.
    """
    seeded_noise(monkeypatch, 4)
    n, tau, prior, places = 30, 1.3, 2.0, np.array([7.0, 1.0])
    y = np.random.default_rng(3).normal(-4, tau, size=n)

    def build(**records):
        with pm.Model() as model:
            mu = pm.Normal("mu", 1, prior)
            pm.Normal("y", mu, tau, **records)
        return model

    release = pmdp.score_release(
        build(observed=y), at=[{"mu": p} for p in places], clip=40.0, epsilon=100, delta=1e-6
    )
    model = build(shape=n)
    with model:
        pmdp.ScoreRelease.from_json(release.to_json()).declare("score")
    # released = (sum y - n place) / tau**2 + noise
    total = release.value + n * places / tau**2
    covariance = n / tau**2 + np.diag(release.sigma**2)
    weights = np.linalg.solve(covariance, np.full(2, n / tau**2))
    precision = 1 / prior**2 + n / tau**2 * weights.sum()
    mean = (1 / prior**2 + weights @ total) / precision
    assert_mean_and_sd(values(draw(model), "mu"), mean, precision**-0.5)


def test_two_variables_of_a_record_are_drawn_apart(monkeypatch):
    """A normal mean each: the score is linear in the sums, and the posterior is known."""
    seeded_noise(monkeypatch, 6)
    n = 4000
    rng = np.random.default_rng(3)

    def build(**records):
        with pm.Model() as model:
            a, b = pm.Normal("a", 0, 1), pm.Normal("b", 0, 1)
            pm.Normal("x", a, 1, **(records.get("x") or {"shape": n}))
            pm.Normal("y", a + b, 2, **(records.get("y") or {"shape": n}))
        return model

    x, y = rng.normal(0.3, 1, size=n), rng.normal(0.5, 2, size=n)
    release = pmdp.score_release(
        build(x={"observed": x}, y={"observed": y}),
        at={"a": 0.2, "b": 0.2},
        clip=50,
        epsilon=50,
        delta=1e-6,
    )
    model = build()
    with model:
        release.declare("score")
    small = pmdp.marginalize(model, method="expanded")
    information = n * np.array([[1.25, 0.25], [0.25, 0.25]])
    told = information @ np.linalg.solve(information + np.diag(release.sigma**2), information)
    covariance = np.linalg.inv(told + np.eye(2))
    pull = information @ np.linalg.solve(
        information + np.diag(release.sigma**2), release.value + information @ [0.2, 0.2]
    )
    mean, sd = covariance @ pull, np.sqrt(np.diag(covariance))
    mode = find_mode(small)
    found = [float(mode.point[name]) for name in ("a", "b")]
    np.testing.assert_allclose(found, mean, atol=0.1 * sd.min())
    deviations = np.sort(np.sqrt(np.diag(mode.covariance)))
    np.testing.assert_allclose(deviations, np.sort(sd), rtol=0.05)
