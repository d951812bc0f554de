"""Longer checks of GibbsSS: `make calibrate`. Each states its false-alarm rate."""

import numpy as np
import pymc as pm
import pytest
from pymc.pytensorf import compile as pm_compile

import pymc_dp as pmdp
from pymc_dp.regression import InverseWishart, NormalMoments, regression_statistics, student_moments
from tests.analyst.regression.gibbs_ss.test_step import (
    INDIVIDUAL,
    M2,
    M4,
    RELEASED,
    SLOPES,
    VARIANCES,
    N,
    hierarchical_model,
    small_model,
    weigh_log_grid,
)
from tests.checks import assert_mean_and_sd, assert_same_distribution, rank_uniformity
from tests.oracles.regression import laplace_release_posterior
from tests.sampling import draw, values

pytestmark = pytest.mark.calibrate

DRAWS, THIN, WARM = 99, 4, 250


def one_covariate():
    sigma2 = pm.InverseGamma("sigma2", 5, 2)
    theta = pm.Normal("theta", 0, pm.math.sqrt(sigma2), shape=2)
    tau2 = pm.InverseGamma("tau2", 5, 2)
    mu_x = pm.Normal("mu_x", 0, pm.math.sqrt(tau2))
    return 30, theta, sigma2, NormalMoments(mu_x, tau2), pmdp.Laplace(scale=[6.0, 3, 5, 3, 6])


def two_covariates_and_other_priors():
    sd = pm.Gamma("sd", 4, 4)
    theta = pm.StudentT("theta", 5, mu=0, sigma=1, shape=3)
    tau2 = InverseWishart("tau2", nu=8, psi=3 * np.eye(2))
    mu_x = pm.Normal("mu_x", 0, 1, shape=2)
    return 40, theta, sd**2, NormalMoments(mu_x, tau2), pmdp.Gaussian(sigma=8.0)


@pytest.mark.parametrize("build", [one_covariate, two_covariates_and_other_priors])
def test_simulation_based_calibration(build):
    """Ranks of the parameters that made a release are uniform; 1e-5 a parameter.

    The release comes from the model itself, normal statistics included, so that this checks the
    sampler and not the normal approximation.
    """
    with pm.Model() as model:
        n, coef, sigma2, moments, mechanism = build()
        s = pmdp.RegressionStatistics("s", n=n, coef=coef, sigma2=sigma2, x_moments=moments)
        released = pm.Data("released", np.zeros(s.type.shape))
        pmdp.Privatized("z", s, mechanism, observed=released)
        step = pmdp.GibbsSS()
        parameters = [rv for rv in model.free_RVs if rv is not s]
        simulate = pm_compile([], [*map(to_value(model), parameters), model["z"]], random_seed=1)
        names = [model.rvs_to_values[rv].name for rv in parameters]
        rng = np.random.default_rng(2)
        ranks = []
        for _ in range(120):
            *truth, z = simulate()
            pm.set_data({"released": z})
            start = model.initial_point()
            point = {**start, **dict(zip(names, truth, strict=True))}
            step.setup_chain(rng.spawn(1)[0], WARM, DRAWS)
            flat = np.concatenate([np.ravel(v) for v in truth])
            below = np.zeros(flat.size, dtype=int)
            for i in range(WARM + DRAWS * THIN):
                if i == WARM:
                    step.stop_tuning()
                point, _ = step.step(point)
                if i >= WARM and (i - WARM) % THIN == THIN - 1:
                    below += np.concatenate([np.ravel(point[name]) for name in names]) < flat
            ranks.append(below)
    for column in np.array(ranks).T:
        report = rank_uniformity(column, DRAWS)
        assert report.passed, report


def to_value(model):
    def transformed(rv):
        transform = model.rvs_to_transforms[rv]
        return rv if transform is None else transform.forward(rv, *rv.owner.inputs)

    return transformed


def test_records_in_place_of_statistics():
    """MCMC-Ind by RecordGibbs: the exact posterior of the same release, to Monte Carlo error."""
    with pm.Model() as model:
        sigma2 = pm.InverseGamma("sigma2", 3, 0.5)
        theta = pm.Normal("theta", 0, pm.math.sqrt(sigma2), shape=2)
        tau2 = pm.InverseGamma("tau2", 3, 0.5)
        mu_x = pm.Normal("mu_x", 0, pm.math.sqrt(tau2))
        x = pm.Normal("x", mu_x, pm.math.sqrt(tau2), shape=50)
        y = pm.Normal("y", theta[0] * x + theta[1], pm.math.sqrt(sigma2), shape=50)
        pmdp.Privatized("z", regression_statistics(x, y), pmdp.Laplace(scale=2), observed=RELEASED)
    posterior = draw(model, draws=15_000, tune=2000)
    for (name, k), (mean, sd, error) in INDIVIDUAL.items():
        found = values(posterior, name)
        found = found if k is None else found[..., k]
        assert_mean_and_sd(found, mean, sd, mean_error=error, sd_error=0.006 * sd)


def test_nuts_over_statistics_and_parameters_agrees():
    """The same model by PyMC's own NUTS, statistics not integrated out, Laplace not augmented."""
    with pm.Model() as model:
        n, coef, sigma2, moments, mechanism = one_covariate()
        s = pmdp.RegressionStatistics("s", n=n, coef=coef, sigma2=sigma2, x_moments=moments)
        pmdp.Privatized("z", s, mechanism, observed=[20.0, 5.0, 14.0, -6.0, 25.0])
    ours = draw(model, draws=6000, tune=800)
    with model:
        other = draw(model, draws=6000, tune=1500, step=pm.NUTS(target_accept=0.95))
    for name, k in (("theta", 0), ("theta", 1), ("sigma2", None), ("mu_x", None), ("tau2", None)):
        one, two = (
            values(p, name) if k is None else values(p, name)[..., k] for p in (ours, other)
        )
        size = 1000  # effective draws of NUTS here, cautiously
        error = two.std() / np.sqrt(size)
        assert_mean_and_sd(one, two.mean(), two.std(), mean_error=error, sd_error=error)


def test_paper_mode_with_other_priors_uses_nuts():
    with pm.Model() as model:
        sd = pm.HalfNormal("sd", 1)
        theta = pm.Normal("theta", 0, 1, shape=2)
        s = pmdp.RegressionStatistics(
            "s", n=200, coef=theta, sigma2=sd**2, x_moments=student_moments(np.inf, 0.0, 1.0)
        )
        # hardly any noise: the posterior is the regression's own
        exact = [200.0, 0.0, 120.0, 40.0, 150.0]
        pmdp.Privatized("z", s, pmdp.Gaussian(sigma=0.01), observed=exact)
        step = pmdp.GibbsSS(mode="paper")
    posterior = draw(model, draws=800, tune=500, step=step)
    slope = values(posterior, "theta")[..., 0]
    # y'y less what slope .6 and intercept .2 explain is 70: variance .35
    assert_mean_and_sd(values(posterior, "theta")[..., 1], 0.2, np.sqrt(0.35 / 200), sd_error=0.003)
    assert abs(slope.mean() - 0.6) < 0.01


def test_several_holders_share_parameters():
    """Two holders with half the records each know what one with all of them knows."""
    z = np.array([200.0, 0.0, 120.0, 40.0, 150.0])
    found = {}
    for holders in (1, 2):
        with pm.Model() as model:
            sigma2 = pm.InverseGamma("sigma2", 3, 1)
            theta = pm.Normal("theta", 0, pm.math.sqrt(sigma2), shape=2)
            for j in range(holders):
                s = pmdp.RegressionStatistics(
                    f"s{j}",
                    n=200 // holders,
                    coef=theta,
                    sigma2=sigma2,
                    x_moments=student_moments(np.inf, 0.0, 1.0),
                )
                noise = pmdp.Gaussian(sigma=5 / np.sqrt(holders))
                pmdp.Privatized(f"z{j}", s, noise, observed=z / holders)
            for mode in ("paper", "coherent"):
                step = pmdp.GibbsSS(mode=mode)
                posterior = draw(model, draws=1500, tune=400, step=step)
                found[holders, mode] = values(posterior, "theta")[..., 0]
    for mode in ("paper", "coherent"):
        one, two = found[1, mode], found[2, mode]
        # standard errors from at least 400 effective draws each
        assert abs(one.mean() - two.mean()) < 4.9 * one.std() * np.sqrt(2 / 400)


@pytest.mark.parametrize("noise", [pmdp.Laplace, pmdp.DiscreteLaplace])
def test_linear_combination_with_laplace_noise_is_exact(noise):
    weights, released = np.array([0.5, 1.0, 0.25]), 60
    exact = weigh_log_grid(
        laplace_release_posterior(released, 8, weights, N, M2, M4, (1.5, 3, 2), SLOPES, VARIANCES)
    )
    model = small_model(noise(scale=8), released, statistic=lambda s: (s * weights).sum())
    posterior = draw(model, draws=6000, tune=500)
    assert_same_distribution(values(posterior, "slope")[..., 0], lambda x: exact.cdf("slope", x))
    assert_same_distribution(values(posterior, "sigma2"), lambda x: exact.cdf("sigma2", x))


def test_coherent_mode_is_close_to_the_posterior_with_latent_records():
    """Within a tenth of a posterior sd: the error of the normal approximation at n = 50."""
    posterior = draw(hierarchical_model(), draws=2500, tune=700)
    for (name, k), (mean, sd, _) in INDIVIDUAL.items():
        found = values(posterior, name)
        found = found if k is None else found[..., k]
        assert abs(found.mean() - mean) < 0.1 * sd
        assert abs(found.std() / sd - 1) < 0.1
