"""GibbsSS against posteriors by quadrature; false-alarm rate 1e-5 a comparison."""

import cloudpickle
import numpy as np
import pymc as pm
import pytest
from scipy import stats

import pymc_dp as pmdp
from pymc_dp.analyst.regression.conjugate_priors import normal_inverse_gamma, normal_inverse_wishart
from pymc_dp.analyst.regression.gibbs_ss import step as gibbs_step
from pymc_dp.analyst.release import releases
from pymc_dp.regression import FixedMoments, InverseWishart, NormalMoments
from tests.checks import assert_mean_and_sd, assert_same_distribution
from tests.oracles.linear import condition_normal
from tests.oracles.regression import (
    gaussian_release_posterior,
    laplace_release_posterior,
    marginal_cdf,
    normal_features_law,
    normal_log_density,
    statistics_law,
)
from tests.sampling import draw, values

N, M2, M4 = 40, 0.5, 0.9
MOMENTS = FixedMoments([[M2]], [[M4 - M2**2]], intercept=False)
SLOPES = np.linspace(-6, 8, 900)
VARIANCES = np.exp(np.linspace(np.log(0.02), np.log(30), 900))


def weigh_log_grid(posterior):
    """Turn a posterior on a logarithmic grid of variances into cell masses."""
    weights = posterior.weights * posterior.sigma2
    return type(posterior)(posterior.slope, posterior.sigma2, weights / weights.sum())


def small_model(mechanism, observed, statistic=lambda s: s):
    with pm.Model() as model:
        sigma2 = pm.InverseGamma("sigma2", 3, 2)
        slope = pm.Normal("slope", 0, 1.5 * pm.math.sqrt(sigma2), shape=1)
        s = pmdp.RegressionStatistics(
            "s", n=N, coef=slope, sigma2=sigma2, x_moments=MOMENTS, intercept=False
        )
        released = pm.Data("released", np.asarray(observed, dtype=float))
        pmdp.Privatized("z", statistic(s), mechanism, observed=released)
    return model


def test_gaussian_noise_is_exact():
    """For two releases, the second put in place of the first without compiling again."""
    sigma, first = [6.0, 9.0, 14.0], [24.0, 21.0, 70.0]
    with small_model(pmdp.Gaussian(sigma=sigma), first) as model:
        step = pmdp.GibbsSS()
        for released in (first, [15.0, -30.0, 70.0]):
            pm.set_data({"released": released})
            exact = weigh_log_grid(
                gaussian_release_posterior(
                    released, sigma, N, M2, M4, (1.5, 3, 2), SLOPES, VARIANCES
                )
            )
            posterior = draw(model, draws=1500, tune=400, step=step)
            slope = values(posterior, "slope")[..., 0]
            assert_same_distribution(slope, lambda x, exact=exact: exact.cdf("slope", x))
            sigma2 = values(posterior, "sigma2")
            assert_same_distribution(sigma2, lambda x, exact=exact: exact.cdf("sigma2", x))


@pytest.mark.wide
def test_both_signs_of_a_coefficient_are_visited():
    """Its size is known from y'y, its sign hardly: X'y is too noisy."""
    sigma, released = [6.0, 60.0, 14.0], [20.0, 20.0, 300.0]
    exact = weigh_log_grid(
        gaussian_release_posterior(released, sigma, N, M2, M4, (1.5, 3, 2), SLOPES, VARIANCES)
    )
    # two modes, the smaller of weight .1 to .4, and next to nothing between them
    assert 0.1 < exact.cdf("slope", -1.0) < 0.4
    assert exact.cdf("slope", 0.5) - exact.cdf("slope", -0.5) < 0.02
    posterior = draw(small_model(pmdp.Gaussian(sigma=sigma), released), draws=700, tune=250)
    slope = values(posterior, "slope")[..., 0]
    assert_same_distribution(slope, lambda x: exact.cdf("slope", x))


@pytest.mark.wide
def test_both_signs_of_a_slope_about_the_mean_of_x():
    """x is far from zero, and the sum of y is known: the other mode has another intercept."""
    n, mean, var = 400, [1.0], [[0.09]]
    sigma, released = [1.0, 1.0, 120.0, 1.0, 1.0], [436.0, 400.0, 824.0, 800.0, 1697.0]
    slope, level, log_sigma2 = np.meshgrid(
        np.linspace(-2.5, 2.5, 151),
        np.linspace(1.85, 2.15, 25),
        np.linspace(np.log(0.003), np.log(0.5), 41),
        indexing="ij",
    )
    sigma2 = np.exp(log_sigma2)
    sums, cov = normal_features_law(slope[..., None], level, sigma2, n, mean, var)
    log_density = normal_log_density(released, sums, cov + np.diag(np.square(sigma)))
    log_density += stats.norm.logpdf(slope, 0, 2) + stats.norm.logpdf(level - slope, 0, 3)
    log_density += stats.invgamma.logpdf(sigma2, 3, scale=0.1) + log_sigma2
    exact = marginal_cdf(log_density, slope[:, 0, 0], axis=0)
    assert 0.25 < exact(0.0) < 0.4  # two modes, and next to nothing between them
    assert exact(0.5) - exact(-0.5) < 0.03

    with pm.Model() as model:
        error = pm.InverseGamma("sigma2", 3, 0.1)
        theta = pm.Normal("theta", 0, [2.0, 3.0])
        x_moments = NormalMoments(mean, var)
        s = pmdp.RegressionStatistics("s", n=n, coef=theta, sigma2=error, x_moments=x_moments)
        pmdp.Privatized("z", s, pmdp.Gaussian(sigma=sigma), observed=released)
    posterior = draw(model, draws=1500, tune=300)
    assert_same_distribution(values(posterior, "theta")[..., 0], exact)


@pytest.mark.wide
def test_modes_of_two_covariates():
    """Only one sum of xy is hidden, of covariates that are correlated and far from zero.

    The modes are not related by any coefficient's sign; priors are not symmetric, and one is a
    uniform, sampled by its transform.
    """
    n, mean, cov_x = 400, np.array([1.0, -0.5]), np.array([[0.25, 0.15], [0.15, 0.36]])
    sigma = [3.0, 3.0, 3.0, 3.0, 3.0, 200.0, 10.0, 10.0, 20.0]
    released = [500.0, -140.0, 400.0, 244.0, -200.0, 542.0, -171.0, 400.0, 619.8]
    first, second, level = np.meshgrid(
        np.linspace(-3, 3, 91), np.linspace(-3, 3, 91), np.linspace(0.8, 1.2, 13), indexing="ij"
    )
    slopes = np.stack([first, second], axis=-1)
    sums, cov = normal_features_law(slopes, level, 0.25, n, mean, cov_x)
    log_density = normal_log_density(released, sums, cov + np.diag(np.square(sigma)))
    log_density += stats.norm.logpdf(level - slopes @ mean, 1, 3)  # slopes: uniform
    exact = [marginal_cdf(log_density, np.linspace(-3, 3, 91), axis=k) for k in (0, 1)]
    assert 0.15 < exact[0](-0.3) < 0.4
    assert exact[0](0.0) - exact[0](-0.6) < 0.02

    with pm.Model() as model:
        b, a = pm.Uniform("b", -5, 6, shape=2), pm.Normal("a", 1, 3)
        s = pmdp.RegressionStatistics(
            "s",
            n=n,
            coef=pm.math.concatenate([b, a[None]]),
            sigma2=0.25,
            x_moments=NormalMoments(mean, cov_x),
        )
        pmdp.Privatized("z", s, pmdp.Gaussian(sigma=sigma), observed=released)
    posterior = draw(model, draws=1500, tune=300)
    for k in (0, 1):
        assert_same_distribution(values(posterior, "b")[..., k], exact[k])


def test_a_step_can_be_used_again():
    """What it learned from one release is not carried to the next chain."""
    with small_model(pmdp.Laplace(scale=8), [24.0, 21.0, 70.0]) as model:
        step = pmdp.GibbsSS()
    first, second = (values(draw(model, draws=20, tune=60, step=step), "slope") for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_statistics_are_documented_by_their_names_in_results():
    """PyMC renames some of them."""
    with small_model(pmdp.Laplace(scale=8), [24.0, 21.0, 70.0]):
        idata = pmdp.sample(
            20,
            tune=20,
            chains=1,
            random_seed=1,
            progressbar=False,
            compute_convergence_checks=False,
        )
    names = {str(name) for name in idata.sample_stats.data_vars} - {"divergences"}
    assert {"n_steps", "acceptance_rate", "redraws"} <= names
    assert [name for name in names if f"``{name}``" not in pmdp.GibbsSS.__doc__] == []


def test_sampling_state_and_copies():
    """A chain goes on from its state, and a step goes to another process, where it left off."""
    with small_model(pmdp.Laplace(scale=8), [24.0, 21.0, 70.0]) as model:
        one, two = pmdp.GibbsSS(rng=1), pmdp.GibbsSS(rng=2)
        one.setup_chain(np.random.default_rng(3), 30, 10)
        point = model.initial_point()
        for _ in range(20):
            point, _ = one.step(point)
        two.sampling_state = one.sampling_state
        copy = cloudpickle.loads(cloudpickle.dumps(one))
        (a, _), (b, _), (c, _) = (step.step(point) for step in (one, two, copy))
    for name in point:
        np.testing.assert_array_equal(a[name], b[name])
        np.testing.assert_array_equal(a[name], c[name])


def test_laplace_noise_is_exact():
    """Of the sum of xy alone: the noise of the two others says nothing.

    In the tail, where normal noise of the same variance would shift the slope's distribution
    function by .16.
    """
    exact = weigh_log_grid(
        laplace_release_posterior(100.0, 20, [0, 1, 0], N, M2, M4, (1.5, 3, 2), SLOPES, VARIANCES)
    )
    model = small_model(pmdp.Laplace(scale=[1e6, 20, 1e6]), [0.0, 100.0, 0.0])
    posterior = draw(model, draws=1500, tune=400)
    assert_same_distribution(values(posterior, "slope")[..., 0], lambda x: exact.cdf("slope", x))
    assert_same_distribution(values(posterior, "sigma2"), lambda x: exact.cdf("sigma2", x))


def test_integer_noise_becomes_its_continuous_kin():
    model = small_model(pmdp.DiscreteLaplace(scale=8), [24, 21, 70])
    [release] = releases(model)
    assert repr(release.mechanism) == "Laplace(scale=8.)"
    model = small_model(pmdp.DiscreteGaussian(sigma=[1.0, 2.0, 3.0]), [24, 21, 70])
    assert repr(releases(model)[0].mechanism) == "Gaussian(sigma=[1. 2. 3.])"


def test_statistics_follow_their_conditional():
    """Given the parameters, s is normal: compared with the closed form, parameters held fixed."""
    model = small_model(pmdp.Gaussian(sigma=[6.0, 9.0, 14.0]), [24.0, 21.0, 70.0])
    with model:
        latent = pmdp.GibbsSS().latents[0]
    point = {"sigma2_log__": np.array(0.3), "slope": np.array([0.7])}
    rng = np.random.default_rng(1)
    sample = latent.conditional(point, latent.first_variances())
    drawn = np.array([sample(rng) for _ in range(20_000)])
    mean, cov = statistics_law(np.array(0.7), np.exp(0.3), N, M2, M4)
    exact = condition_normal(mean, cov, np.eye(3), [24.0, 21.0, 70.0], np.diag([36.0, 81.0, 196.0]))
    np.testing.assert_allclose(drawn.mean(0), exact.mean, atol=5 * exact.sd().max() / 141)
    np.testing.assert_allclose(np.cov(drawn.T), exact.cov, rtol=0.1, atol=0.05 * exact.cov.max())


# tests/oracles cannot know the fixed point of the paper's loop: an independent program's run of it.
# Reference: problem "bs_update_n50_eps4" (40 chains of 10000 draws of Algorithm 1 with each unique
# statistic once), posterior mean, sd and the mean's error.
RELEASED = [13.097464137660248, 15.215834146403854, 7.150843869011276]
RELEASED += [-4.953483915660461, 10.698420521601252]
PAPER = {
    ("theta", 0): (0.43657, 0.27840, 0.0014),
    ("theta", 1): (-0.19523, 0.11626, 0.0005),
    ("sigma2", None): (0.16212, 0.05296, 0.0002),
}
# the same release with latent records, exactly (60 chains of 9000 draws)
INDIVIDUAL = {
    ("theta", 0): (0.41633, 0.27782, 0.0015),
    ("theta", 1): (-0.18838, 0.11584, 0.0005),
    ("sigma2", None): (0.16513, 0.05312, 0.0002),
}


def hierarchical_model(multivariate=False):
    with pm.Model() as model:
        sigma2 = pm.InverseGamma("sigma2", 3, 0.5)
        theta = pm.Normal("theta", 0, pm.math.sqrt(sigma2), shape=2)
        if multivariate:
            tau2 = InverseWishart("tau2", nu=6, psi=np.eye(1))
            mu_x = pm.MvNormal("mu_x", np.zeros(1), cov=tau2)
        else:
            tau2 = pm.InverseGamma("tau2", 3, 0.5)
            mu_x = pm.Normal("mu_x", 0, pm.math.sqrt(tau2))
        s = pmdp.RegressionStatistics(
            "s", n=50, coef=theta, sigma2=sigma2, x_moments=NormalMoments(mu_x, tau2)
        )
        pmdp.Privatized("z", s, pmdp.Laplace(scale=2), observed=RELEASED)
    return model


@pytest.mark.parametrize("multivariate", [False, pytest.param(True, marks=pytest.mark.calibrate)])
def test_paper_mode_agrees_with_an_independent_run(multivariate):
    with hierarchical_model(multivariate) as model:
        step = pmdp.GibbsSS(mode="paper")
    assert step.nuts is None  # both priors were recognised
    posterior = draw(model, draws=10_000, tune=500, step=step)
    for (name, k), (mean, sd, error) in PAPER.items():
        found = values(posterior, name)
        assert_mean_and_sd(
            found if k is None else found[..., k], mean, sd, mean_error=error, sd_error=0.004 * sd
        )


def test_picked_by_pm_sample():
    with hierarchical_model() as model:
        found = pmdp.explain(model)
    assert set(found.steps.values()) == {"GibbsSS"}
    assert found.problems == []
    text = repr(found)
    assert "s: sums of x0*x0, x0, x0*y, y, y*y over n = 50 records" in text
    assert "latent mean and covariance (normal-inverse-Wishart prior)" in text
    assert "theta, sigma2: normal-inverse-gamma prior" in text
    assert "z: Laplace(scale=2.) on entries of s" in text


class TestConjugacy:
    @pytest.mark.parametrize("form", ["normal", "mvnormal", "vector scale"])
    def test_normal_inverse_gamma_is_found(self, form):
        with pm.Model() as model:
            sigma2 = pm.InverseGamma("sigma2", 20, 0.5)
            if form == "normal":
                coef = pm.Normal("coef", [1.0, 2.0], 2 * pm.math.sqrt(sigma2), shape=2)
            elif form == "vector scale":
                coef = pm.Normal("coef", [1.0, 2.0], sigma=(4 * sigma2) ** 0.5 * np.ones(2))
            else:
                coef = pm.MvNormal("coef", [1.0, 2.0], cov=sigma2 * 4 * np.eye(2))
        prior = normal_inverse_gamma(model, coef, sigma2)
        np.testing.assert_allclose(prior.mean, [1, 2])
        np.testing.assert_allclose(prior.precision, np.eye(2) / 4)
        assert (prior.shape, prior.rate) == (20, 0.5)

    def test_other_priors_are_not(self):
        with pm.Model() as model:
            sigma2 = pm.InverseGamma("sigma2", 20, 0.5)
            other = pm.HalfNormal("other", 1)
            independent = pm.Normal("independent", 0, 1, shape=2)
            in_sd = pm.Normal("in_sd", 0, sigma2, shape=2)
            shifted = pm.Normal("shifted", sigma2, pm.math.sqrt(sigma2), shape=2)
            two = pm.Normal("two", 0, other * pm.math.sqrt(sigma2), shape=2)
            conjugate = pm.Normal("conjugate", 0, pm.math.sqrt(other), shape=2)
            student = pm.StudentT("student", 3, mu=0, sigma=pm.math.sqrt(sigma2), shape=2)
        for coef in (independent, in_sd, shifted, two, student):
            assert normal_inverse_gamma(model, coef, sigma2) is None
        assert normal_inverse_gamma(model, conjugate, other) is None

    def test_a_bounded_prior_is_not_conjugate(self):
        bounded = pm.distributions.transforms.Interval(-1, 1)
        with pm.Model() as model:
            sigma2 = pm.InverseGamma("sigma2", 3, 2)
            coef = pm.Normal("coef", 0, pm.math.sqrt(sigma2), shape=2, transform=bounded)
        assert normal_inverse_gamma(model, coef, sigma2) is None

    def test_normal_inverse_wishart(self):
        psi = np.array([[2.0, 0.3], [0.3, 1.0]])
        with pm.Model() as model:
            tau2 = InverseWishart("tau2", nu=7, psi=psi)
            mu = pm.MvNormal("mu", [1.0, -1.0], cov=tau2 / 3)
            wrong = pm.MvNormal("wrong", [1.0, -1.0], cov=tau2 + np.eye(2))
        prior = normal_inverse_wishart(model, mu, tau2)
        np.testing.assert_allclose(prior.scale, psi)
        assert prior.df == 7
        assert prior.weight == pytest.approx(3)
        assert normal_inverse_wishart(model, wrong, tau2) is None

    def test_a_restricted_normal_is_not(self):
        with pm.Model() as model:
            sigma2 = pm.InverseGamma("sigma2", 20, 0.5)
            scale = pm.math.sqrt(sigma2)
            transform = pm.distributions.transforms.ordered
            coef = pm.Normal("coef", 0, scale, shape=2, transform=transform, initval=[0, 1])
        assert normal_inverse_gamma(model, coef, sigma2) is None

    @pytest.mark.wide_except("observed")
    @pytest.mark.parametrize("use", ["observed", "child", "potential"])
    def test_a_parameter_that_something_else_uses_is_left_to_nuts(self, use, monkeypatch):
        """Its conditional given the statistics is another one."""
        monkeypatch.setattr(gibbs_step, "ParameterNUTS", lambda *args, **kwargs: None)
        with pm.Model():
            sigma2 = pm.InverseGamma("sigma2", 3, 0.5)
            theta = pm.Normal("theta", 0, pm.math.sqrt(sigma2), shape=2)
            tau2 = pm.InverseGamma("tau2", 3, 0.5)
            mu_x = pm.Normal("mu_x", 0, pm.math.sqrt(tau2))
            moments = pmdp.regression.NormalMoments(mu_x, tau2)
            s = pmdp.RegressionStatistics("s", n=50, coef=theta, sigma2=sigma2, x_moments=moments)
            z = [13.1, 15.2, 7.2, -5.0, 10.7]
            pmdp.Privatized("z", s, pmdp.Laplace(scale=2), observed=z)
            if use == "potential":
                pm.Potential("use", -(theta**2).sum())
            else:
                pm.Normal("use", theta, 0.1, observed=[0, 0] if use == "observed" else None)
            step = pmdp.GibbsSS([s, theta, sigma2, tau2, mu_x], mode="paper")
        assert {rv.name for rv in step.conjugate.others} == {"theta", "sigma2"}
        assert step.conjugate.names == ["mu_x", "tau2_log__"]


@pytest.mark.wide
def test_release_in_parts():
    """Parts of X'X with noise of their own, means instead of sums of xy, no y'y."""
    with pm.Model():
        sigma2 = pm.InverseGamma("sigma2", 3, 1)
        theta = pm.Normal("theta", 0, pm.math.sqrt(sigma2), shape=2)
        s = pmdp.RegressionStatistics(
            "s", n=50, coef=theta, sigma2=sigma2, x_moments=NormalMoments(0.0, 1.0)
        )
        pmdp.Privatized("xx", s[:2], pmdp.Laplace(scale=[1.0, 2.0]), observed=[50.0, 3.0])
        pmdp.Privatized("xy_mean", s[2:4] / 50, pmdp.Gaussian(sigma=0.1), observed=[0.4, 0.1])
        step = pmdp.GibbsSS()
    [latent] = step.latents
    np.testing.assert_allclose(latent.map, np.vstack([np.eye(5)[:2], np.eye(5)[2:4] / 50]))
    np.testing.assert_allclose(latent.noise, [1, 2, 0.1, 0.1])
    assert latent.laplace.tolist() == [True, True, False, False]


class TestBadInput:
    def model(self, mechanism=None, statistic=lambda s: s, observed=(1.0, 2.0, 3.0)):
        return small_model(mechanism or pmdp.Gaussian(sigma=1.0), observed, statistic)

    def test_no_statistics(self):
        with pm.Model():
            pm.Normal("x", 0, 1)
            with pytest.raises(ValueError, match="RegressionStatistics"):
                pmdp.GibbsSS()

    def test_modes(self):
        with self.model():
            with pytest.raises(ValueError, match="coherent"):
                pmdp.GibbsSS(mode="fast")
            with pytest.raises(ValueError, match="redraw"):
                pmdp.GibbsSS(invalid="ignore")

    def test_noise_without_a_mixture(self):
        with (
            self.model(pmdp.Laplace(scale=1.0).clamped(lower=0)),
            pytest.raises(ValueError, match="not normal given its variance"),
        ):
            pmdp.GibbsSS()

    def test_statistic_with_a_latent_variable_of_its_own(self):
        with (
            self.model(statistic=lambda s: s + pm.Normal("shift", 0, 30)),
            pytest.raises(ValueError, match=r"'z' depends on 'shift' besides 's'"),
        ):
            pmdp.GibbsSS()

    def test_statistic_with_data_that_can_change(self):
        with (
            self.model(statistic=lambda s: s * pm.Data("w", 1.0)),
            pytest.raises(ValueError, match=r"'z' holds 'w', which pm.set_data can change"),
        ):
            pmdp.GibbsSS()

    def test_statistic_that_is_not_linear(self):
        with (
            self.model(statistic=lambda s: s**2),
            pytest.raises(ValueError, match="not linear in 's'"),
        ):
            pmdp.GibbsSS()

    def test_no_release(self):
        with pm.Model():
            coef = pm.Normal("coef", 0, 1, shape=1)
            pmdp.RegressionStatistics(
                "s", n=N, coef=coef, sigma2=1.0, x_moments=MOMENTS, intercept=False
            )
            with pytest.raises(ValueError, match="No release reaches 's'"):
                pmdp.GibbsSS()

    def test_other_uses_of_the_statistics(self):
        with self.model() as model:
            pm.Normal("y", model["s"].sum(), 1, observed=0.0)
            with pytest.raises(ValueError, match="'y' depends on 's'"):
                pmdp.GibbsSS()

    def test_release_of_the_wrong_length(self):
        with pytest.raises(ValueError, match="has shape"):
            self.model(observed=(1.0, 2.0))

    def test_paper_mode_cannot_update_the_mean_of_x_without_an_intercept(self):
        with pm.Model():
            coef = pm.Normal("coef", 0, 1, shape=1)
            mu = pm.Normal("mu", 0, 1)
            s = pmdp.RegressionStatistics(
                "s", N, coef, 1.0, NormalMoments(mu, 1.0), intercept=False
            )
            pmdp.Privatized("z", s, pmdp.Gaussian(sigma=1.0), observed=[1.0, 2, 3])
            with pytest.raises(ValueError, match='Use mode="coherent"'):
                pmdp.GibbsSS(mode="paper")
