"""Unknown numbers of records: models of records and marginal ones, against sums over n."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import special, stats

import pymc_dp as pmdp
from pymc_dp.graph.intervals import ONCE
from tests.checks import assert_mean_and_sd, assert_same_distribution

MOST, COUNT, TOTAL = 120, 53, 80.0
SCALES = 5.0, 10.0


def example(prior=None, noise=None):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 2)
        prior = pm.DiscreteUniform.dist(1, MOST) if prior is None else prior
        there = pmdp.unknown_size("n", prior)
        x = pm.Normal("x", mu, 1, shape=there.type.shape)
        noise = noise or pmdp.DiscreteLaplace(scale=SCALES[0])
        pmdp.Privatized("count", there.sum(), noise, observed=COUNT)
        noise = pmdp.Laplace(scale=SCALES[1])
        pmdp.Privatized("total", (there * x).sum(), noise, observed=TOTAL)
    return model


def exact(log_prior):
    """Posterior of n and mu on a grid; sums of normal records are normal."""
    n, mu = np.arange(1, MOST + 1)[:, None], np.linspace(-4, 8, 4001)[None, :]
    s, b, x = np.sqrt(n), SCALES[1], TOTAL - n * mu
    tails = np.logaddexp(
        s**2 / (2 * b**2) - x / b + special.log_ndtr(x / s - s / b),
        s**2 / (2 * b**2) + x / b + special.log_ndtr(-x / s - s / b),
    )
    log_p = log_prior(n) + stats.norm.logpdf(mu, 0, 2) - np.abs(COUNT - n) / SCALES[0] + tails
    p = np.exp(log_p - log_p.max())
    return n[:, 0], p.sum(axis=1) / p.sum(), mu[0], p.sum(axis=0) / p.sum()


def moments(values, p):
    mean = p @ values
    return mean, np.sqrt(p @ (values - mean) ** 2)


def test_sums_over_n_are_integrals():
    """The relaxed density, on a fine grid, has the moments of the sum."""
    small = pmdp.marginalize(example(pm.Poisson.dist(60)))
    assert small["n"].dtype == "float64"
    n, p_n, mu, p_mu = exact(lambda k: stats.poisson.logpmf(k, 60))
    logp = small.compile_logp(jacobian=False, mode=ONCE)
    sizes, places = np.arange(20.0, 100.0), np.linspace(-0.8, 4.2, 61)
    grid = np.array(
        [[logp({"n_log__": np.log(k), "mu": np.array(m)}) for m in places] for k in sizes]
    )
    p = np.exp(grid - grid.max())
    p /= p.sum()
    np.testing.assert_allclose(moments(sizes, p.sum(axis=1)), moments(n, p_n), rtol=0.005)
    np.testing.assert_allclose(moments(places, p.sum(axis=0)), moments(mu, p_mu), rtol=0.005)


@pytest.mark.wide
@pytest.mark.parametrize("marginal", [False, True])
def test_posterior_of_the_number(marginal):
    """False-alarm rate 1e-5 each."""
    n, p_n, mu, p_mu = exact(lambda k: 0.0 * k)
    model = pmdp.marginalize(example()) if marginal else example()
    with model:
        quick = {"quiet": True, "progressbar": False, "compute_convergence_checks": False}
        idata = pmdp.sample(4000, tune=1000, chains=2, cores=1, random_seed=2, **quick)
    cdf = lambda x: np.interp(x, mu, np.cumsum(p_mu))  # noqa: E731
    assert_same_distribution(idata.posterior["mu"].values, cdf, false_alarm=1e-5)
    draws = idata.posterior["n"].values
    if marginal:  # a value stands for what rounds to it
        smooth = lambda x: np.interp(x, n + 0.5, np.cumsum(p_n))  # noqa: E731
        assert_same_distribution(draws, smooth, false_alarm=1e-5)
    np.testing.assert_allclose(draws.mean(), p_n @ n, atol=1.0)


def test_exact_counts_keep_an_integer():
    small = pmdp.marginalize(example(noise=pmdp.DiscreteLaplace(scale=0.2)))
    assert small["n"].dtype == "int64"


def short(prior, most, count, scale):
    """A short prior; sums of normal records and Gaussian noise are normal."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 2)
        there = pmdp.unknown_size("n", prior, n_max=most)
        x = pm.Normal("x", mu, 1, shape=most)
        noise = pmdp.DiscreteLaplace(scale=scale)
        pmdp.Privatized("count", there.sum(), noise, observed=count)
        pmdp.Privatized("total", (there * x).sum(), pmdp.Gaussian(sigma=5.0), observed=4.0)
    return model


HARD_ENDS = {
    "5 values": (pm.DiscreteUniform.dist(1, 5), 5, 3, 4.0, stats.randint(1, 6), "int64"),
    "15 values": (pm.DiscreteUniform.dist(1, 15), 15, 9, 4.0, stats.randint(1, 16), "int64"),
    "far from 1": (
        pm.DiscreteUniform.dist(95, 105), 105, 103, 4.0, stats.randint(95, 106), "float64",
    ),
    "at the end": (pm.Binomial.dist(100, 0.99), 100, 98, 3.0, stats.binom(100, 0.99), "int64"),
    "start at the end": (
        pm.Binomial.dist(1000, 0.9995), 1000, 998, 3.0, stats.binom(1000, 0.9995), "int64",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HARD_ENDS)
def test_priors_with_hard_ends(name):
    """The density, summed or integrated, has the moments of the sum over n."""
    prior, most, count, scale, law, dtype = HARD_ENDS[name]
    small = pmdp.marginalize(short(prior, most, count, scale))
    assert small["n"].dtype == dtype
    n = np.arange(max(1, most - 20), most + 1)
    mu = np.linspace(-6, 6, 61) if most < 50 else np.linspace(-0.6, 0.7, 41)
    within = stats.norm.logpdf(4.0, np.outer(n, mu), np.sqrt(n + 25.0)[:, None])
    exact = law.logpmf(n)[:, None] - np.abs(count - n)[:, None] / scale
    exact = exact + stats.norm.logpdf(mu, 0, 2) + within
    value = small.rvs_to_values[small["n"]]
    tried, ends = (n, None) if dtype == "int64" else (np.arange(94.55, 105.5, 0.1), (94.5, 105.5))
    logp = small.compile_logp(jacobian=False, mode=ONCE)
    assert np.isfinite(logp(small.initial_point()))

    def place(size):
        return size if ends is None else special.logit((size - ends[0]) / (ends[1] - ends[0]))

    def point(size, m):
        return {value.name: np.asarray(place(size), value.dtype), "mu": np.array(m)}

    found = np.array([[logp(point(size, m)) for m in mu] for size in tried])
    tables = [np.exp(table - table.max()) for table in (found, exact)]
    p, q = (table / table.sum() for table in tables)
    for values, axis in (((tried, n), 1), ((mu, mu), 0)):
        (mean, sd), (true, true_sd) = (
            moments(v, table.sum(axis=axis)) for v, table in zip(values, (p, q), strict=True)
        )
        assert abs(mean - true) < 0.01 * true_sd
        assert abs(sd / true_sd - 1) < 0.01


@pytest.mark.wide
def test_a_short_prior_is_sampled():
    """False-alarm rate 1e-5 each."""
    prior, most, count, scale, _, _ = HARD_ENDS["5 values"]
    n, mu = np.arange(1, 6)[:, None], np.linspace(-12, 12, 4001)
    p = np.exp(-np.abs(count - n) / scale) * stats.norm.pdf(mu, 0, 2)
    p = p * stats.norm.pdf(4.0, n * mu, np.sqrt(n + 25.0))
    p = p / p.sum()
    with pmdp.marginalize(short(prior, most, count, scale)):
        quick = {"quiet": True, "progressbar": False, "compute_convergence_checks": False}
        idata = pmdp.sample(6000, tune=1000, chains=2, cores=1, random_seed=2, **quick)
    assert_mean_and_sd(idata.posterior["n"].values.astype(float), *moments(n[:, 0], p.sum(axis=1)))
    assert_mean_and_sd(idata.posterior["mu"].values, *moments(mu, p.sum(axis=0)))


def test_number_and_sums_in_one_release():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 2)
        there = pmdp.unknown_size("n", pm.Poisson.dist(500))
        x = pm.Normal("x", mu, 1, shape=there.type.shape)
        both = pt.stack([there.sum(), (there * pmdp.clamp(x, -1, 1)).sum()])
        pmdp.Privatized("both", both, pmdp.Gaussian(sigma=[4.0, 9.0]), observed=[480.0, 100.0])
    small = pmdp.marginalize(model)
    logp = small.compile_logp(vars=small.observed_RVs, mode=ONCE)(
        {"n_log__": np.log(470.0), "mu": np.array(0.0)}
    )
    z = np.linspace(-8, 8, 200001)
    variance = 470 * np.sum(np.clip(z, -1, 1) ** 2 * stats.norm.pdf(z)) * (z[1] - z[0])
    expected = stats.norm.logpdf(480, 470, 4) + stats.norm.logpdf(100, 0, np.sqrt(variance + 81))
    np.testing.assert_allclose(logp, expected, rtol=1e-6)


def test_rows_are_found_from_the_prior():
    with pm.Model() as model:
        there = pmdp.unknown_size("n", pm.Poisson.dist(1000))
    assert 1150 < there.type.shape[0] < 1250
    assert model["n"] in model.free_RVs


def test_bad_priors():
    with pm.Model():
        rate = pm.HalfNormal("rate", 100)
        with pytest.raises(ValueError, match=r"mass .* below 1"):
            pmdp.unknown_size("n", pm.Poisson.dist(3))
        with pytest.raises(ValueError, match="above n_max=50"):
            pmdp.unknown_size("n", pm.DiscreteUniform.dist(1, 100), n_max=50)
        with pytest.raises(ValueError, match="one whole number"):
            pmdp.unknown_size("n", pm.Normal.dist(100, 1))
        with pytest.raises(ValueError, match="say with n_max="):
            pmdp.unknown_size("n", pm.Poisson.dist(rate))
        with pytest.raises(TypeError, match="unregistered distribution"):
            pmdp.unknown_size("n", 100)


def test_refuses_records_that_add_although_they_are_not_there():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 2)
        there = pmdp.unknown_size("n", pm.DiscreteUniform.dist(1, MOST))
        x = pm.Normal("x", mu, 1, shape=MOST)
        pmdp.Privatized("total", (there * x + x**2).sum(), pmdp.Laplace(scale=1), observed=3.0)
    with pytest.raises(ValueError, match="not there add something"):
        pmdp.marginalize(model)


def test_tables_of_an_unknown_number_are_refused():
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        there = pmdp.unknown_size("n", pm.DiscreteUniform.dist(1, MOST))
        x = pm.Bernoulli("x", p, shape=MOST)
        pmdp.Privatized("count", there.sum(), pmdp.DiscreteLaplace(scale=3), observed=COUNT)
        pmdp.Privatized("ones", (there * x).sum(), pmdp.DiscreteLaplace(scale=3), observed=20)
    with pytest.raises(ValueError, match="'n', is not known"):
        pmdp.marginalize(model, method="counts")
    assert pmdp.marginalize(model)["n"].dtype == "float64"
