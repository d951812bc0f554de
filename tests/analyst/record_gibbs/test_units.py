"""Another unit changes neither which family is found nor the standardised posterior."""

import numba
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import integrate, stats

import pymc_dp as pmdp
from pymc_dp.analyst.record_gibbs.conjugate_draws import make_conjugate_draw
from pymc_dp.analyst.record_gibbs.forms import FORMS, has_form
from pymc_dp.analyst.record_gibbs.parameters import describe_updates
from pymc_dp.numerics.cycles import Arrays, inner
from tests.checks import assert_same_distribution

N, UNITS = 20, (1e-6, 1.0, 1e6)


def mean_of_normals(u):
    mu = pm.Normal("theta", 0, 2 * u)
    return pm.Normal("x", mu, u, shape=N).sum() / u


def variance_of_normals(u):
    variance = pm.InverseGamma("theta", 3, 2 * u**2)
    return ((pm.Normal("x", 0, pt.sqrt(variance), shape=N) / u) ** 2).sum()


def scale_of_exponentials(u):
    scale = pm.InverseGamma("theta", 3, 2 * u)
    return pm.Exponential("x", scale=scale, shape=N).sum() / u


def rate_of_exponentials(u):
    rate = pm.Gamma("theta", 3, 2 * u)
    return pm.Exponential("x", rate, shape=N).sum() / u


def share(u):
    """Shares have no unit; what else is beside them may have."""
    p = pm.Beta("theta", 2, 3)
    return (u * pm.Bernoulli("x", p, shape=N)).sum() / u


def shares(u):
    p = pm.Dirichlet("theta", np.ones(3))
    return (u * pt.eq(pm.Categorical("x", p, shape=N), 1)).sum() / u


def sd_of_normals(u):
    sd = pm.Exponential("theta", 1 / u)
    return ((pm.Normal("x", 0, sd, shape=N) / u) ** 2).sum()


def variance_with_another_law(u):
    variance = pm.Exponential("theta", 1 / u**2)
    return ((pm.Normal("x", 0, pt.sqrt(variance), shape=N) / u) ** 2).sum()


def log_sd_of_normals(u):
    log_sd = pm.Normal("theta", np.log(u), 1)
    return ((pm.Normal("x", 0, pt.exp(log_sd), shape=N) / u) ** 2).sum()


def slope_of_log_means(u):
    slope = pm.Normal("theta", 0, u)
    z = np.linspace(0.2, 1, N) / u
    return pm.Exponential("x", pt.exp(-slope * z), shape=N).clip(0, 20).sum()


def sd_beside_another_mean(u):
    """Released sums say little of the mean, whose conditional is normal anyway."""
    mu = pm.Normal("mu", 0, u)
    sd = pm.Gamma("theta", 2, 2 / u)
    return ((pm.Normal("x", mu, sd, shape=N) / u) ** 2).sum()


def variance_with_a_background(u):
    variance = pm.InverseGamma("theta", 3, 2 * u**2)
    return ((pm.Normal("x", 0, pt.sqrt(variance + 1e-4 * u**2), shape=N) / u) ** 2).sum()


def sd_that_was_observed(u):
    """What was observed is a million times smaller than the prior expects."""
    sd = pm.Exponential("theta", 1 / u)
    pm.Normal("seen", 0, sd, observed=1e-6 * u * np.arange(-2, 3))
    return pm.Exponential("x", sd, shape=N).sum() * u


def model_of(build, u):
    with pm.Model() as model:
        pmdp.Privatized("released", build(u), pmdp.Gaussian(sigma=3), observed=25.0)
    return model


@pytest.mark.parametrize(
    ("build", "how"),
    [
        (mean_of_normals, "drawn from its conditional (normal)"),
        (variance_of_normals, "drawn from its conditional (inverse gamma)"),
        (scale_of_exponentials, "drawn from its conditional (inverse gamma)"),
        (rate_of_exponentials, "drawn from its conditional (gamma)"),
        (share, "drawn from its conditional (beta)"),
        (shares, "drawn from its conditional (dirichlet)"),
        (sd_of_normals, "slice sampled"),
        (variance_with_another_law, "slice sampled"),
        (log_sd_of_normals, "slice sampled"),
        (slope_of_log_means, "slice sampled"),
        (sd_beside_another_mean, "slice sampled"),
        (variance_with_a_background, "slice sampled"),
        (sd_that_was_observed, "slice sampled"),
    ],
)
def test_the_same_family_in_every_unit(build, how):
    for u in (1e-9, *UNITS, 1e9):
        model = model_of(build, u)
        assert describe_updates(model, [model["theta"]]) == {"theta": how}, u


def test_explain_says_the_same_in_every_unit():
    for u in UNITS:
        assert "theta: RecordGibbs, slice sampled" in str(pmdp.explain(model_of(sd_of_normals, u)))


def test_a_vague_prior_whose_draws_overflow_keeps_its_family():
    with pm.Model() as model:
        variance = pm.InverseGamma("theta", 0.001, 0.001)
        x = pm.Normal("x", 0, pt.sqrt(variance), shape=5)
        pmdp.Privatized("released", pmdp.clamp(x, -2, 2).sum(), pmdp.Laplace(scale=3), observed=1.0)
    found = describe_updates(model, [model["theta"]])
    assert found == {"theta": "drawn from its conditional (inverse gamma)"}


class TestForms:
    """Gradients as plain functions."""

    @pytest.mark.parametrize("u", [1e-20, *UNITS, 1e20])
    def test_each_unit(self, u):
        size = np.array([1.3, 0.4]) * u
        prior = lambda x: 2 / x - 3 / u  # noqa: E731
        assert has_form("gamma", lambda x: np.array([prior(x), 5 / x]), size)
        assert has_form("gamma", lambda x: np.array([prior(x), 0 * x]), size)
        # the prior alone is steep in every unit but one
        assert not has_form("gamma", lambda x: np.array([prior(x), u**2 / x**3]), size)
        assert not has_form("gamma", lambda x: np.array([prior(x), 5 / (x + 1e-3 * u)]), size)
        inverse = lambda x: -4 / x + 2 * u / x**2  # noqa: E731
        assert has_form("inverse gamma", lambda x: np.array([inverse(x), -5 / x]), size)
        assert not has_form("inverse gamma", lambda x: np.array([inverse(x), -5 / u + 0 * x]), size)

    def test_a_steep_term_or_entry_hides_no_other(self):
        size = np.ones(2)
        steep = np.array([1e12, 1.0])
        assert has_form("gamma", lambda x: np.array([steep / x, 1 / x]), size)
        assert not has_form("gamma", lambda x: np.array([1e12 / x, x]), size)
        assert not has_form("gamma", lambda x: np.array([1e12 / x[0] + 0 * x, x[1] * x]), size)

    def test_entries_that_go_together_have_no_form(self):
        size = np.ones(2)
        assert not has_form("gamma", lambda x: np.array([1 / x, 3 / x.sum() + 0 * x]), size)

    def test_shares(self):
        size = np.array([0.2, 0.8])
        assert has_form("beta", lambda x: np.array([4 / x - 7 / (1 - x)]), size)
        assert not has_form("beta", lambda x: np.array([1e9 / x, 1 / (x + 1e-4)]), size)
        assert has_form("dirichlet", lambda x: np.array([4 / x, 0 / x]), size)
        assert not has_form("dirichlet", lambda x: np.array([1e9 / x, 1 / (x + 1e-3)]), size)

    def test_a_draw_s_own_place_is_looked_at(self):
        """No multiple of the prior's size is near the draws; where these go the form breaks."""
        breaks = lambda x: np.where(np.abs(np.log(x / 1e-14)) < 4, 2.0, 1.0) / x  # noqa: E731
        narrow = lambda x: 3 / x - 4e14 + 0 * x  # noqa: E731
        assert has_form("gamma", lambda x: np.array([narrow(x), 1 / x]), np.ones(1))
        assert not has_form("gamma", lambda x: np.array([narrow(x), breaks(x)]), np.ones(1))

    def test_what_overflows_has_no_form(self):
        for family in FORMS:
            assert not has_form(family, lambda x: np.array([x * np.inf]), np.full(2, 0.5))
        assert not has_form("gamma", lambda x: np.array([1 / x]), np.array([np.inf]))


@inner
def _gamma_slope(x, theta, given, table):
    return (given[0] / x - given[1],)


@inner
def _inverse_gamma_slope(x, theta, given, table):
    return (-given[0] / x + given[1] / x**2,)


@inner
def _normal_slope(x, theta, given, table):
    return ((given[0] - x) / given[1] ** 2,)


@inner
def _beta_slope(x, theta, given, table):
    return (given[0] / x - given[1] / (1 - x),)


DRAWN = {
    "gamma": (_gamma_slope, lambda u: (1.5, 2 / u), lambda u: stats.gamma(2.5, scale=u / 2)),
    "inverse gamma": (
        _inverse_gamma_slope,
        lambda u: (3.5, 2 * u),
        lambda u: stats.invgamma(2.5, scale=2 * u),
    ),
    "normal": (_normal_slope, lambda u: (3 * u, 0.5 * u), lambda u: stats.norm(3 * u, 0.5 * u)),
    # of shares those that are alike far from one half
    "beta": (_beta_slope, lambda u: (1.0, 4 + u), lambda u: stats.beta(2, 5 + u)),
}


@pytest.mark.parametrize("family", DRAWN)
def test_draws_in_every_unit_from_wherever_they_start(family):
    """Independent draws against closed forms; false-alarm rate 1e-5 over all units."""
    slope, coefficients, exact = DRAWN[family]
    part = make_conjugate_draw(family, (slope,), (0, 2), (2,))

    @numba.njit
    def run(rng, arrays, start, found):
        for i in range(len(found)):
            arrays.theta[:] = start
            part(rng, arrays, False)
            found[i] = arrays.theta

    units = UNITS if family == "beta" else (1e-100, 1e-30, *UNITS, 1e30, 1e100)
    rng = np.random.default_rng(7)
    empty, nothing = np.zeros(1), np.zeros(1, dtype=np.int64)
    for u in units:
        # a mean that is a sum of a start and a shift is as exact as the start
        for start in (0.3, 0.3 * u) if "gamma" in family else (0.3 * min(u, 1), -1e8 * u):
            given = np.array(coefficients(u))
            arrays = Arrays(
                np.zeros(2), given, np.zeros((1, 1)), empty, empty, nothing, empty, empty,
                np.zeros((1, 1)), np.zeros((1, 1)), empty, nothing, nothing, empty,
            )  # fmt: skip
            found = np.empty((1000, 2))
            run(rng, arrays, start, found)
            level = 1e-5 / (4 * len(units))
            for column in found.T:
                assert stats.kstest(column, exact(u).cdf).pvalue > level, (u, start)


def by_quadrature(grid, prior, total):
    """Distribution function on a grid; the total has density ``total(t, theta)``."""
    t = np.linspace(0.01, 60, 3000)
    noise = stats.norm.pdf(25.0, t, 3)
    likelihood = [integrate.simpson(total(t, theta) * noise, x=t) for theta in grid]
    cdf = integrate.cumulative_simpson(prior(grid) * likelihood, x=grid, initial=0)
    return lambda s: np.interp(s, grid, cdf / cdf[-1])


GRID = np.linspace(0.05, 12, 800)
POSTERIORS = {
    # n theta + a normal one of variance n, beside a prior of variance 4
    "normal": (
        mean_of_normals,
        lambda u: u,
        stats.norm(
            25 * N / (N + 9) / (1 / 4 + N**2 / (N + 9)), (1 / 4 + N**2 / (N + 9)) ** -0.5
        ).cdf,
    ),
    "inverse gamma": (
        variance_of_normals,
        lambda u: u**2,
        by_quadrature(
            GRID,
            lambda v: stats.invgamma.pdf(v, 3, scale=2),
            lambda t, v: stats.chi2.pdf(t, N, scale=v),
        ),
    ),
    "gamma": (
        rate_of_exponentials,
        lambda u: 1 / u,
        by_quadrature(
            GRID,
            lambda r: stats.gamma.pdf(r, 3, scale=1 / 2),
            lambda t, r: stats.gamma.pdf(t, N, scale=1 / r),
        ),
    ),
    "slice": (
        sd_of_normals,
        lambda u: u,
        by_quadrature(GRID, stats.expon.pdf, lambda t, s: stats.chi2.pdf(t, N, scale=s**2)),
    ),
}


@pytest.mark.wide_except("inverse gamma", "slice")
@pytest.mark.wide_except("inverse gamma")
@pytest.mark.parametrize("which", POSTERIORS)
def test_the_same_posterior_in_every_unit(which):
    """False-alarm rate 1e-5 for each of three units, 3e-5 in all."""
    build, size, exact = POSTERIORS[which]
    for u in UNITS:
        with model_of(build, u):
            idata = pm.sample(
                2000, tune=500, chains=2, cores=1, random_seed=11, progressbar=False, quiet=True,
                compute_convergence_checks=False,
            )  # fmt: skip
        draws = idata.posterior["theta"].to_numpy() / size(u)
        assert_same_distribution(draws, exact, false_alarm=1e-5)
