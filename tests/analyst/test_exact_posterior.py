"""`pm.sample`, steps picked automatically, against posteriors computed without Monte Carlo.

Every comparison has a false-alarm rate of 1e-5 (see tests/checks.py); the seeds are fixed.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats

import pymc_dp as pmdp
from tests import oracles
from tests.checks import assert_mean_and_sd, assert_same_distribution
from tests.sampling import draw, values


@pytest.mark.wide_except("100-71.0-10.0-ends2")
@pytest.mark.parametrize(
    ("n", "released", "scale", "ends"),
    [
        (1, 2.1, 2.0, (-7, 8)),
        (12, -4.0, 3.0, (-6, 4)),
        (100, 71.0, 10.0, (-1.5, 3.5)),
        (1000, 820.0, 40.0, (0.1, 1.9)),
    ],
)
def test_clamped_normal_mean(n, released, scale, ends):
    lower, upper = -1.0, 3.0
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.5, 2)
        x = pm.Normal("x", mu, 1.5, shape=n)
        pmdp.Privatized(
            "s", pmdp.clamp(x, lower, upper).sum(), pmdp.Laplace(scale=scale), observed=released
        )
    grid = np.linspace(*ends, 161)
    likelihood = oracles.sum_likelihood(
        released, n, oracles.ClampedNormal(1.5, lower, upper), oracles.Laplace(scale), grid
    )
    exact = oracles.posterior_from_likelihood(grid, stats.norm.logpdf(grid, 0.5, 2), likelihood)
    assert_same_distribution(values(draw(model), "mu"), exact.cdf)


@pytest.mark.wide
@pytest.mark.parametrize(
    ("n", "released", "mean", "sd"),
    [
        (100, 83.4741973885367, 0.8344973277090534, 0.17316568818472652),
        (1000, 929.098514916574, 0.9290925621596311, 0.03464102710452433),
    ],
)
def test_normal_mean_of_an_independent_program(n, released, mean, sd):
    """Clamped normal mean in the setting of Ju et al. (2022), computed elsewhere by FFT."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 10)
        x = pm.Normal("x", mu, 1, shape=n)
        pmdp.Privatized("s", pmdp.clamp(x, -5, 5).sum(), pmdp.Laplace(scale=10), observed=released)
    assert_mean_and_sd(values(draw(model), "mu"), mean, sd)


def test_exponential_records_with_gaussian_noise():
    # the records' values are stored as logarithms: the transform must not move the target
    n, released, sigma = 20, 21.0, 3.0
    with pm.Model() as model:
        rate = pm.Gamma("rate", 2, 1)
        x = pm.Exponential("x", rate, shape=n)
        pmdp.Privatized(
            "s", pmdp.clamp(x, 0, 4).sum(), pmdp.Gaussian(sigma=sigma), observed=released
        )
    grid = np.linspace(1e-3, 5, 800)
    likelihood = oracles.sum_likelihood(
        released, n, oracles.ClampedExponential(0, 4), oracles.Gaussian(sigma), grid
    )
    exact = oracles.posterior_from_likelihood(grid, stats.gamma.logpdf(grid, 2), likelihood)
    assert_same_distribution(values(draw(model), "rate"), exact.cdf)


@pytest.mark.wide
def test_poisson_records():
    n, upper, released, scale = 50, 6, 112.3, 6.0
    with pm.Model() as model:
        rate = pm.Gamma("rate", 2, 1)
        x = pm.Poisson("x", rate, shape=n)
        pmdp.Privatized(
            "s", pmdp.clamp(x, 0, upper).sum(), pmdp.Laplace(scale=scale), observed=released
        )
    grid = np.linspace(0.5, 5, 500)
    likelihood = oracles.lattice_likelihood(
        released, n, lambda r: oracles.clamped_poisson_pmf(r, upper), oracles.Laplace(scale), grid
    )
    exact = oracles.posterior_from_likelihood(grid, stats.gamma.logpdf(grid, 2), likelihood)
    assert_same_distribution(values(draw(model), "rate"), exact.cdf)


@pytest.mark.wide
def test_bernoulli_records_released_twice():
    # two mechanisms on the same records multiply; a mean is a scaled sum
    n, total, mean = 30, 22.5, 0.66
    with pm.Model() as model:
        p = pm.Beta("p", 2, 2)
        x = pm.Bernoulli("x", p, shape=n)
        pmdp.Privatized("total", x.sum(), pmdp.Laplace(scale=2), observed=total)
        pmdp.Privatized("mean", x.mean(), pmdp.Gaussian(sigma=0.15), observed=mean)

    def noise(residual):
        both = np.asarray(residual)
        return np.stack(
            [oracles.Laplace(2.0)(both[..., 0]), oracles.Gaussian(0.15)(both[..., 1])], axis=-1
        )

    grid = np.linspace(1e-3, 1 - 1e-3, 801)
    exact = oracles.enumerate_posterior(
        [0, 1],
        oracles.bernoulli_pmf,
        n,
        lambda x: [x, x / n],
        [total, mean],
        noise,
        grid,
        stats.beta.logpdf(grid, 2, 2),
    )
    assert_same_distribution(values(draw(model), "p"), exact.cdf)


@pytest.mark.wide
def test_categorical_histogram_with_a_scale_for_every_cell():
    n, released, scale = 8, [3.6, 0.2, 5.5], np.array([0.5, 1.0, 2.0])
    with pm.Model() as model:
        p = pm.Dirichlet("p", [1.0, 2.0, 1.5])
        x = pm.Categorical("x", p, shape=n)
        counts = pt.eq(x[:, None], np.arange(3)).sum(axis=0)
        pmdp.Privatized("counts", counts, pmdp.Laplace(scale=scale), observed=released)
    [exact] = oracles.conjugate_posterior(
        n, np.eye(3), released, oracles.Laplace(scale), [([1.0, 2.0, 1.5], np.eye(3))]
    )
    posterior = draw(model)
    for k in range(3):
        assert_same_distribution(values(posterior, "p")[..., k], lambda q, k=k: exact.cdf(k, q))


@pytest.mark.wide
def test_features_given_a_class():
    # two record variables in one block, one the parent of the other, with a matrix release
    n, released = 4, np.array([[1.5, 0.2, -0.3], [0.1, 2.2, 1.1]])
    with pm.Model() as model:
        p = pm.Dirichlet("p", [1.0, 2.0])
        px = pm.Dirichlet("px", [1.0, 1.0, 2.0], shape=(2, 3))
        y = pm.Categorical("y", p, shape=n)
        x = pm.Categorical("x", px[y], shape=n)
        cells = pt.eq(y[:, None, None], np.arange(2)[:, None]) * pt.eq(
            x[:, None, None], np.arange(3)
        )
        pmdp.Privatized("cells", cells.sum(axis=0), pmdp.Laplace(scale=1), observed=released)
    by_class = np.repeat(np.eye(2), 3, axis=0)
    given_class = [np.kron(np.eye(2)[:, [k]], np.eye(3)) for k in (0, 1)]
    exact = oracles.conjugate_posterior(
        n,
        np.eye(6),
        released.ravel(),
        oracles.Laplace(1.0),
        [([1.0, 2.0], by_class), *(([1.0, 1.0, 2.0], m) for m in given_class)],
    )
    posterior = draw(model)
    assert_same_distribution(values(posterior, "p")[..., 0], lambda q: exact[0].cdf(0, q))
    for k in (0, 1):
        for j in (0, 2):
            assert_same_distribution(
                values(posterior, "px")[..., k, j], lambda q, k=k, j=j: exact[1 + k].cdf(j, q)
            )


@pytest.mark.wide
@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_sum_and_sum_of_squares_of_few_records(n, kind):
    released, noise, lower, upper = np.array([1.3, 3.7]), np.array([1.0, 2.0]), -2.0, 3.0
    mechanism = pmdp.Laplace(scale=noise) if kind == "laplace" else pmdp.Gaussian(sigma=noise)
    oracle = oracles.Laplace(noise) if kind == "laplace" else oracles.Gaussian(noise)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 2)
        x = pmdp.clamp(pm.Normal("x", mu, 1.2, shape=n), lower, upper)
        pmdp.Privatized("s", pt.stack([x.sum(), (x**2).sum()]), mechanism, observed=released)
    grid = np.linspace(-8, 8, 321)
    likelihood = oracles.moments_likelihood(
        released, n, oracles.ClampedNormal(1.2, lower, upper), oracle, grid
    )
    exact = oracles.posterior_from_likelihood(grid, stats.norm.logpdf(grid, 0, 2), likelihood)
    assert_same_distribution(values(draw(model), "mu"), exact.cdf)


@pytest.mark.wide
def test_unknown_mean_and_scale():
    n, released, sigma = 10, 6.0, 2.0
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        sd = pm.Gamma("sd", 4, 4)
        x = pm.Normal("x", mu, sd, shape=n)
        pmdp.Privatized(
            "s", pmdp.clamp(x, -2, 2).sum(), pmdp.Gaussian(sigma=sigma), observed=released
        )

    def column(sd, means):
        record = oracles.ClampedNormal(sd, -2, 2)
        return oracles.sum_likelihood(released, n, record, oracles.Gaussian(sigma), means)

    exact = oracles.normal_plane_posterior(
        column,
        np.linspace(-4, 5, 121),
        np.linspace(0.05, 4, 80),
        lambda mean, sd: stats.norm.logpdf(mean) + stats.gamma.logpdf(sd, 4, scale=1 / 4),
    )
    posterior = draw(model, draws=6000)
    assert_same_distribution(values(posterior, "mu"), exact.first.cdf)
    assert_same_distribution(values(posterior, "sd"), exact.second.cdf)


@pytest.mark.wide
def test_weighted_sums_with_public_covariates():
    # Z'x with fixed Z: closed form
    n, record_sd, sigma = 15, 1.0, np.array([2.0, 3.0])
    rng = np.random.default_rng(3)
    weights = rng.normal(1, 0.5, size=(2, n))
    released = np.array([12.0, 20.0])
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 2)
        x = pm.Normal("x", mu, record_sd, shape=n)
        pmdp.Privatized("s", weights @ x, pmdp.Gaussian(sigma=sigma), observed=released)
    exact = oracles.normal_sums_posterior(released, weights, record_sd, 0, 2, sigma)
    assert_same_distribution(values(draw(model), "mu"), lambda m: exact.cdf(0, m))


@pytest.mark.wide
def test_hierarchy_of_groups():
    # group indices are public, group means have a common parent, one sum a group is released
    sizes, released, sigma = np.array([4, 8, 6]), np.array([6.0, -3.0, 8.0]), 2.0
    group = np.repeat(np.arange(3), sizes)
    with pm.Model() as model:
        overall = pm.Normal("overall", 0, 2)
        means = pm.Normal("means", overall, 1, shape=3)
        x = pm.Normal("x", means[group], 1, shape=len(group))
        sums = pt.zeros(3)[group].inc(x)
        pmdp.Privatized("sums", sums, pmdp.Gaussian(sigma=sigma), observed=released)
    exact = oracles.group_means_posterior(released, sizes, 1, 1, 0, 2, sigma)
    posterior = draw(model)
    assert_same_distribution(values(posterior, "overall"), lambda m: exact.cdf(0, m))
    for k in range(3):
        assert_same_distribution(
            values(posterior, "means")[..., k], lambda m, k=k: exact.cdf(1 + k, m)
        )


@pytest.mark.wide
def test_records_in_groups_that_are_records_themselves():
    # two tables of different lengths, one the parent of the other, a release of each: closed form
    sizes, sigma = np.array([3, 2, 4]), np.array([1.0, 2.0])
    group, released = np.repeat(np.arange(3), sizes), np.array([2.0, 9.0])
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 2)
        z = pm.Normal("z", mu, 1, shape=3)
        x = pm.Normal("x", z[group], 1, shape=9)
        pmdp.Privatized("groups", z.sum(), pmdp.Gaussian(sigma=sigma[0]), observed=released[0])
        pmdp.Privatized("people", x.sum(), pmdp.Gaussian(sigma=sigma[1]), observed=released[1])
    # (mu, z) is normal; the two sums are noisy sights of it, the second with the records' spread
    loads = np.hstack([np.ones((4, 1)), np.vstack([np.zeros(3), np.eye(3)])])
    cov = loads @ np.diag([4.0, 1.0, 1.0, 1.0]) @ loads.T
    design = np.vstack([[0, 1, 1, 1], np.r_[0, sizes]])
    exact = oracles.condition_normal(
        np.zeros(4), cov, design, released, np.diag([sigma[0] ** 2, sigma[1] ** 2 + 9])
    )
    posterior = draw(model, var_names=["mu", "z"])
    assert_same_distribution(values(posterior, "mu"), lambda m: exact.cdf(0, m))
    assert_same_distribution(values(posterior, "z")[..., 2], lambda m: exact.cdf(3, m))


def test_other_terms_of_a_record_enter_the_ratio():
    # each record is also seen with error, and pulled by a potential: closed form
    n, seen_sd, sigma, released = 6, 0.8, 2.0, 9.0
    seen = np.array([0.3, 1.9, -0.4, 1.1, 2.5, 0.9])
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 2)
        x = pm.Normal("x", mu, 1, shape=n)
        pm.Normal("seen", x, seen_sd, observed=seen)
        pm.Potential("pull", -0.5 * ((x - 1.0) ** 2).sum())
        pmdp.Privatized("s", x.sum(), pmdp.Gaussian(sigma=sigma), observed=released)
    # (mu, x_1, ..., x_n) is normal; the terms are noisy sights of it
    loads = np.hstack([np.ones((n + 1, 1)), np.vstack([np.zeros(n), np.eye(n)])])
    cov = loads @ np.diag([4.0] + [1.0] * n) @ loads.T
    rows = np.hstack([np.zeros((n, 1)), np.eye(n)])
    design = np.vstack([rows, rows, np.r_[0, np.ones(n)]])
    noise_cov = np.diag([seen_sd**2] * n + [1.0] * n + [sigma**2])
    exact = oracles.condition_normal(
        np.zeros(n + 1), cov, design, np.r_[seen, np.ones(n), released], noise_cov
    )
    posterior = draw(model, var_names=["mu", "x"])
    assert_same_distribution(values(posterior, "mu"), lambda m: exact.cdf(0, m))
    assert_same_distribution(values(posterior, "x")[..., 1], lambda m: exact.cdf(2, m))


@pytest.mark.wide
def test_a_latent_child_whose_transform_depends_on_the_record():
    # integrating the child out leaves the model without it; its value moves on an interval that
    # the record sets, so that the Jacobian belongs to the ratio
    released, sigma = 3.0, 1.0
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        x = pm.Normal("x", mu, 1, shape=2)
        pm.Uniform("child", 0, pt.exp(x), shape=2)
        pmdp.Privatized("s", x.sum(), pmdp.Gaussian(sigma=sigma), observed=released)
    exact = oracles.normal_sums_posterior([released], np.ones((1, 2)), 1, 0, 1, sigma)
    assert_same_distribution(values(draw(model), "mu"), lambda m: exact.cdf(0, m))


@pytest.mark.wide
def test_records_themselves_have_their_exact_posterior():
    # with known parameters: P(sum of records | release), by convolution
    n, p, released, scale = 12, 0.3, 7.2, 1.0
    with pm.Model() as model:
        pm.Normal("unrelated")
        x = pm.Bernoulli("x", p, shape=n)
        pmdp.Privatized("s", x.sum(), pmdp.Laplace(scale=scale), observed=released)
    totals = np.arange(n + 1)
    log_weight = stats.binom.logpmf(totals, n, p) - np.abs(released - totals) / scale
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    mean = weight @ totals
    total = values(draw(model, var_names=["x"]), "x").sum(axis=-1)
    assert_mean_and_sd(total, mean, np.sqrt(weight @ (totals - mean) ** 2))
