"""One definition serves both sides: what the curator sums is what the analyst's graph says."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import special, stats

from pymc_dp.accounting import noise
from pymc_dp.accounting.levels import CLIPPED, GRADIENT_LEVELS
from pymc_dp.curator.model import RecordModel
from pymc_dp.curator.score.totals import ConfidentialScores
from tests.curator.score.models import (
    AT,
    FAMILIES,
    N,
    analysts_sum,
    build,
    records,
    released,
    without_noise,
)

MASS = np.array([[0.5, 0.1, 0.0], [0.1, 0.4, 0.0], [0.0, 0.0, 2.0]])


@pytest.mark.wide_except("logistic-length", "normal-covariates")
@pytest.mark.parametrize("bound", ["length", "covariates"])
@pytest.mark.parametrize("name", FAMILIES)
def test_sums_agree(name, bound, monkeypatch):
    without_noise(monkeypatch)
    X, y = records(name)
    size = len(FAMILIES[name]) + 1
    mass = np.eye(size)
    mass[:3, :3] = MASS
    clip = 0.8  # in the middle of the lengths
    with build(name, X, y):
        release = released(None, at=FAMILIES[name], clip=clip, bound=bound, inverse_mass=mass)
    model = build(name)
    with model:
        release.declare("score")
    # every component of every record is rounded to a whole number of units, 2**-20 of the bound
    rounding = N * clip * 2.0**-19
    np.testing.assert_allclose(analysts_sum(model, X, y), release.value, rtol=0, atol=rounding)
    assert np.abs(release.value).max() > 100 * rounding


def test_the_noise_that_is_told_is_the_noise_that_was_added(monkeypatch):
    added = []

    def zero(totals, sd, simulation=None):
        added.append(sd)
        return [0] * len(totals)

    monkeypatch.setattr(noise, "release", zero)
    clip = 0.8
    with build("normal", *records("normal")):
        release = released(None, at=FAMILIES["normal"], clip=clip, bound="length")
    [sd] = added
    # a release of whole numbers, of which CLIPPED times GRADIENT_LEVELS make the bound
    assert release.sigma == pytest.approx(sd * clip / CLIPPED / GRADIENT_LEVELS, rel=1e-3)
    # Balle and Wang (2018), Theorem 8: what noise of this size costs, at epsilon 1
    half, ratio = clip / release.sigma[0], release.sigma[0] / (2 * clip)
    delta = stats.norm.cdf(half - ratio) - np.e * stats.norm.cdf(-half - ratio)
    assert 0.9e-6 < delta <= 1e-6


def parts(name, bound, clip, X, y, basis=None):
    """Held scores of some records."""
    model = build(name, X, y)
    scores = ConfidentialScores(model, RecordModel(model))
    scores.bound(bound)
    place = np.concatenate([np.ravel(value) for value in FAMILIES[name].values()])
    if name != "logistic" and name not in ("poisson", "gamma"):
        place[-1] = np.log(place[-1])
    return scores.parts(bound, place, np.eye(place.size) if basis is None else basis, clip)


@pytest.mark.wide_except("logistic", "normal")
@pytest.mark.parametrize("name", FAMILIES)
def test_covariates_leave_the_mean_at_zero_given_each_record(name):
    # false alarm: four components at 5.5 standard errors, 7 families, below 1e-6
    rng = np.random.default_rng(5)
    n, x = 100_000, np.array([1.3, -2.0])
    X = np.tile(x, (n, 1))
    at = FAMILIES[name]
    eta = x @ at["b"] + at["a"]
    mu = np.exp(eta)
    law = {
        "logistic": stats.bernoulli(1 / (1 + np.exp(-eta))),
        "poisson": stats.poisson(mu),
        "negative binomial": stats.nbinom(2.5, 2.5 / (2.5 + mu)),
        "normal": stats.norm(eta, 1.3),
        "gamma": stats.gamma(2, scale=mu / 2),
        "student": stats.t(4, eta, 1.2),
        "slopes": stats.norm(eta, 1.2),
    }[name]
    held = parts(name, "covariates", 0.7, X, law.rvs(size=n, random_state=rng))
    error = held.std(axis=1) / np.sqrt(n)
    assert (np.abs(held.mean(axis=1)) < 5.5 * error).all()
    by_length = parts(name, "length", 0.7, X, law.rvs(size=n, random_state=rng))
    if name == "poisson":  # the test would see a mean that is not zero
        assert (np.abs(by_length.mean(axis=1)) > 8 * by_length.std(axis=1) / np.sqrt(n)).any()


def test_scores_of_two_values_are_scaled_and_not_changed():
    X, y = records("logistic")
    X[:2] = [3000, 0], [-3000, 0]  # y of which has probability 0, in numbers
    held, free = (parts("logistic", "covariates", clip, X, y) for clip in (0.5, np.inf))
    slope = np.column_stack([X, np.ones(N)])
    p = special.expit(slope @ [0.4, -0.4, 0.1])
    weight = np.minimum(1, 0.5 / np.linalg.norm(slope, axis=1) / np.maximum(p, 1 - p))
    np.testing.assert_allclose(held.T, ((y - p) * weight)[:, None] * slope, atol=1e-12)
    assert (np.linalg.norm(held[:, :2], axis=0) > 0.49).all()
    raw = parts("logistic", "length", np.inf, X, y)
    np.testing.assert_allclose(free, raw, atol=1e-12)
    factor = np.linalg.norm(held, axis=0) / np.linalg.norm(raw, axis=0)
    np.testing.assert_allclose(held, raw * factor, atol=1e-12)
    # of the covariates alone: the same for the other response
    other = parts("logistic", "covariates", 0.5, X, 1 - y)
    others = parts("logistic", "length", np.inf, X, 1 - y)
    np.testing.assert_allclose(other[:, 2:], (others * factor)[:, 2:], atol=1e-12)
    assert factor.min() < 0.3


@pytest.mark.wide
def test_a_hierarchy_with_groups_and_hyperparameters(monkeypatch):
    without_noise(monkeypatch)
    rng = np.random.default_rng(2)
    group, y = rng.integers(0, 4, size=N), rng.normal(1, 1, size=N)

    def hierarchy(group=None, **kwargs):
        with pm.Model() as model:
            scale = pm.HalfNormal("scale", 1)
            mean = pm.Normal("mean", 0, 2)
            effect = pm.Normal("effect", mean, scale, shape=4)
            if group is None:
                group = pm.Categorical("X", np.full(4, 0.25), shape=N)
            pm.Normal("y", effect[group], 1, **kwargs)
        return model

    at = {"effect": [0.5, 1, 1.5, 0.7], "mean": 1.0}
    for bound in ("covariates", "length"):
        release = released(hierarchy(group, observed=y), at=at, clip=1.0, bound=bound)
        assert list(release.parameters) == ["effect"]  # what no record informs is left out
        model = hierarchy(shape=N)
        with model:
            release.declare("score")
        found = analysts_sum(model, group, y)
        np.testing.assert_allclose(found, release.value, rtol=0, atol=N * 2.0**-19)


@pytest.mark.wide
def test_mixtures_and_censoring_are_clipped_by_length(monkeypatch):
    without_noise(monkeypatch)
    rng = np.random.default_rng(2)
    y = np.minimum(rng.exponential(2, size=N), 3.0)
    x = rng.normal(size=N)

    def survival(**kwargs):
        with pm.Model() as model:
            b = pm.Normal("b", 0, 1)
            covariate = x if "observed" in kwargs else pm.Normal("X", 0, 1, shape=N)
            life = pm.Exponential.dist(scale=pm.math.exp(0.5 + b * covariate), shape=N)
            pm.Censored("y", life, lower=None, upper=3.0, **kwargs)
        return model

    release = released(survival(observed=y), at={"b": 0.3}, clip=1.0)
    assert release.looks[0].bound == "length"
    model = survival(shape=N)
    with model:
        release.declare("score")
    np.testing.assert_allclose(analysts_sum(model, x, y), release.value, rtol=0, atol=N * 2.0**-19)

    def mixture(**kwargs):
        with pm.Model() as model:
            mu = pm.Normal("mu", 0, 3, shape=2)
            pm.NormalMixture("y", w=[0.4, 0.6], mu=mu, sigma=1.0, **kwargs)
        return model

    release = released(mixture(observed=y), at={"mu": [0.0, 2.0]}, clip=1.0)
    model = mixture(shape=N)
    with model:
        release.declare("score")
    np.testing.assert_allclose(
        analysts_sum(model, None, y), release.value, rtol=0, atol=N * 2.0**-19
    )
    with pytest.raises(ValueError, match="cannot be held by their covariates"):
        released(survival(observed=y), at={"b": 0.3}, clip=1.0, bound="covariates")


def test_moments_in_the_same_look(monkeypatch):
    without_noise(monkeypatch)
    X, y = records("logistic")

    def moments(arrays):
        x = arrays["X"]
        pairs = [x[:, i] * x[:, j] for i in range(2) for j in range(i + 1)]
        return pt.stack([x[:, 0], x[:, 1], *pairs, arrays["y"] * x[:, 0]], axis=1)

    with build("logistic", None, y, named=X):
        release = released(None, at=AT, clip=1.0, also={"moments": (moments, 2.5)})
    model = build("logistic")
    with model:
        with pytest.raises(ValueError, match=r"also= with the same functions"):
            release.declare("score")
        release.declare("score", also={"moments": moments})
    assert release.also[0].value.size == 6
    np.testing.assert_allclose(
        analysts_sum(model, X, y), release.value, rtol=0, atol=3 * N * 2.0**-19
    )


def test_a_pilots_looks_are_kept(monkeypatch):
    without_noise(monkeypatch)
    y = np.random.default_rng(1).normal(2.0, 1.0, size=500)

    def mean(**kwargs):
        with pm.Model() as model:
            pm.Normal("y", pm.Normal("mu", 0, 10), 1, **kwargs)
        return model

    def simulate(values):
        rng = np.random.default_rng(3)
        return mean(observed=rng.normal(values["mu"], 1, size=500))

    release = released(mean(observed=y), simulate=simulate, epsilon=8)
    assert len(release.looks) == 11
    assert abs(release.looks[-1].place[0] - y.mean()) < 0.2
    model = mean(shape=500)
    with model:
        release.declare("score")
    found = analysts_sum(model, None, y)
    clips = np.array([look.clip for look in release.looks])
    assert (np.abs(found - release.value) < 500 * clips * 2.0**-19).all()
