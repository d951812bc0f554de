"""The normal law of regression statistics: against moments by enumeration and Monte Carlo."""

import itertools

import numpy as np
import pymc as pm
import pytest
from scipy import stats

import pymc_dp as pmdp
from pymc_dp.analyst.regression.conjugate import nearest_valid
from pymc_dp.graph.intervals import ONCE
from pymc_dp.regression import (
    FixedMoments,
    InverseWishart,
    NormalInverseGamma,
    NormalInverseWishart,
    NormalMoments,
    StatisticsLayout,
    conjugate_posterior,
    fourth_moment_sums,
    noisy_moments,
    sample_moments,
    student_moments,
)


def law(n, coef, sigma2, moments, intercept=True):
    rv = pmdp.RegressionStatistics.dist(n, coef, sigma2, moments, intercept=intercept)
    mean, cov = rv.owner.op.mean_and_cov(*rv.owner.inputs[2:])
    return mean.eval(mode=ONCE), cov.eval(mode=ONCE)


def by_quadrature(x, p_x, coef, sigma2, intercept):
    """Exact moments of one record's statistics where x has finitely many values.

    The error by Gauss-Hermite quadrature, exact for polynomials of degree below 20.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(10)
    weights = weights / weights.sum()
    rows, probabilities = [], []
    for value, p in zip(x, p_x, strict=True):
        features = np.append(value, 1.0) if intercept else value
        for node, weight in zip(nodes, weights, strict=True):
            rows.append(np.append(features, features @ coef + np.sqrt(sigma2) * node))
            probabilities.append(p * weight)
    u, p = np.array(rows), np.array(probabilities)
    i, j = StatisticsLayout(len(x[0]), intercept).pairs.T
    t = u[:, i] * u[:, j]
    mean = p @ t
    return mean, (t - mean).T @ ((t - mean) * p[:, None])


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("d", [1, 3])
def test_any_distribution_of_x(d, intercept):
    rng = np.random.default_rng(d)
    x, p_x = rng.normal(1, 2, size=(6, d)), rng.dirichlet(np.ones(6))
    coef, sigma2 = rng.normal(size=d + intercept), 0.7
    features = np.column_stack([x, np.ones(6)]) if intercept else x
    fourth = np.einsum("a,ai,aj,ak,al->ijkl", p_x, *[features] * 4)
    second = np.einsum("a,ai,aj->ij", p_x, features, features)
    moments = FixedMoments.from_fourth(fourth, None if intercept else second)
    mean, cov = law(7, coef, sigma2, moments, intercept)
    exact_mean, exact_cov = by_quadrature(x, p_x, coef, sigma2, intercept)
    np.testing.assert_allclose(mean, 7 * exact_mean)
    np.testing.assert_allclose(cov, 7 * exact_cov, atol=1e-9 * np.abs(cov).max())


@pytest.mark.parametrize("intercept", [True, False])
def test_normal_x(intercept):
    """A normal vector by a product of Gauss-Hermite rules."""
    rng = np.random.default_rng(5)
    root, mu = rng.normal(size=(2, 2)), np.array([3.0, -1.0])
    nodes, weights = np.polynomial.hermite_e.hermegauss(6)
    grid = np.array(list(itertools.product(nodes, nodes)))
    p_x = np.outer(weights, weights).ravel() / weights.sum() ** 2
    coef, sigma2 = rng.normal(size=2 + intercept), 0.3
    mean, cov = law(5, coef, sigma2, NormalMoments(mu, root @ root.T), intercept)
    exact_mean, exact_cov = by_quadrature(mu + grid @ root.T, p_x, coef, sigma2, intercept)
    np.testing.assert_allclose(mean, 5 * exact_mean)
    np.testing.assert_allclose(cov, 5 * exact_cov, atol=1e-10 * np.abs(cov).max())
    if intercept:
        other = law(5, coef, sigma2, student_moments(np.inf, mu, root @ root.T), intercept)
        np.testing.assert_allclose(other[1], cov, rtol=1e-9, atol=1e-9)


def test_large_means_lose_no_precision():
    _, cov = law(100, [0.5, 1.0], 1.0, NormalMoments(2000.0, 1.0))
    # the variance of sum x^2 given sum x is 2 n
    left = cov[0, 0] - cov[0, 1] ** 2 / cov[1, 1]
    assert left == pytest.approx(200, rel=1e-5)
    assert np.all(np.isfinite(np.linalg.cholesky(cov)))


def test_student_moments():
    """Of a normal with an inverse gamma variance; 1e-5 false alarms by four standard errors."""
    df, scale = 12.0, 0.8
    moments = student_moments(df, 0.5, scale)
    exact = [stats.t(df, 0.5, np.sqrt(scale)).moment(k) for k in (1, 2, 3, 4)]
    np.testing.assert_allclose(moments.second, [[exact[1], exact[0]], [exact[0], 1]])
    products = [[exact[3], exact[2]], [exact[2], exact[1]]]
    np.testing.assert_allclose(
        moments.covariance, np.array(products) - np.outer(exact[1::-1], exact[1::-1])
    )


def test_sample_moments():
    given = np.array([[0.0], [1.0], [2.0]])
    moments = sample_moments(given)
    np.testing.assert_allclose(moments.second, [[5 / 3, 1], [1, 1]])
    np.testing.assert_allclose(moments.covariance, np.cov([[0, 1, 4], [0, 1, 2]], bias=True))


def test_noisy_moments_without_noise_are_those_of_the_sample():
    x = np.random.default_rng(1).normal(size=(30, 2))
    noisy = noisy_moments(fourth_moment_sums(x), 30, n_covariates=2)
    exact = sample_moments(x)
    np.testing.assert_allclose(noisy.second, exact.second)
    np.testing.assert_allclose(noisy.covariance, exact.covariance, atol=1e-12)


def test_impossible_noisy_moments_are_repaired_with_a_warning():
    # the noisy moments of the cirrhosis problem, m4 = -.028 below the square of m2 = .28
    released = 36 * np.array([-0.0282917654754852, 0.1756263420921117, 0.2825120152455376, 0.20687])
    with pytest.warns(UserWarning, match="those of no distribution"):
        moments = noisy_moments(released, 36)
    assert np.linalg.eigvalsh(moments.covariance)[0] > 0
    # the variance of x in one and in the other
    assert moments.second[0, 0] - 0.20687**2 == pytest.approx(moments.covariance[1, 1])
    np.testing.assert_allclose(moments.second[0, 1], 0.20687)


def test_density_and_draws():
    mean, cov = law(20, [0.5, 1.0], 0.4, NormalMoments(0.3, 1.2))
    rv = pmdp.RegressionStatistics.dist(20, [0.5, 1.0], 0.4, NormalMoments(0.3, 1.2))
    value = mean + np.arange(5.0)
    exact = stats.multivariate_normal(mean, cov).logpdf(value)
    assert pm.logp(rv, value).eval(mode=ONCE) == pytest.approx(exact)
    draws = pm.draw(rv, 4000, random_seed=1, mode=ONCE)
    # five standard errors: below 1e-5
    assert np.all(np.abs(draws.mean(0) - mean) < 5 * np.sqrt(np.diag(cov) / 4000))
    root = np.linalg.cholesky(cov)
    whitened = np.linalg.solve(root, (draws - mean).T)
    np.testing.assert_allclose(np.cov(whitened), np.eye(5), atol=5 * np.sqrt(2 / 4000))


def test_singular_law_can_be_drawn():
    """x of 0 or 1: x^2 and x are the same number."""
    moments = sample_moments(np.array([[0.0], [1.0]]))
    rv = pmdp.RegressionStatistics.dist(20, [0.5, 1.0], 0.4, moments)
    draws = pm.draw(rv, 5, random_seed=1, mode=ONCE)
    assert np.all(np.isfinite(draws))
    np.testing.assert_allclose(draws[:, 0], draws[:, 1], atol=1e-6)


def test_inverse_wishart():
    psi, nu = np.array([[2.0, 0.5], [0.5, 1.0]]), 7.5
    rv = InverseWishart.dist(nu, psi)
    value = np.array([[1.0, 0.2], [0.2, 0.5]])
    exact = stats.invwishart(nu, psi)
    assert pm.logp(rv, value).eval(mode=ONCE) == pytest.approx(exact.logpdf(value))
    draws = pm.draw(rv, 4000, random_seed=1, mode=ONCE)
    # its first entry is inverse gamma
    marginal = stats.invgamma((nu - 1) / 2, scale=psi[0, 0] / 2)
    assert stats.kstest(draws[:, 0, 0], marginal.cdf).pvalue > 1e-5
    # and so is the inverse of the last entry of the precision
    given = 1 / np.linalg.inv(draws)[:, 1, 1]
    schur = psi[1, 1] - psi[0, 1] ** 2 / psi[0, 0]
    assert stats.kstest(given, stats.invgamma(nu / 2, scale=schur / 2).cdf).pvalue > 1e-5


@pytest.mark.parametrize("nu", [1, 1.0, -3, np.nan, np.inf])
def test_inverse_wishart_needs_degrees_of_freedom(nu):
    """In every way it can be built, and not only where its density is asked for."""
    with pytest.raises(ValueError, match=r"above p - 1 = 1"):
        InverseWishart.dist(nu, np.eye(2))
    with pm.Model(), pytest.raises(ValueError, match="nu=3"):
        InverseWishart("cov", nu=nu, psi=np.eye(2))
    InverseWishart.dist(1.01, np.eye(2))


@pytest.mark.parametrize(
    "psi", [np.ones((2, 2)), -np.eye(2), [[1.0, 0.5], [0.2, 1.0]], np.ones((2, 3))]
)
def test_inverse_wishart_needs_a_covariance(psi):
    with pytest.raises(ValueError, match="psi must be"):
        InverseWishart.dist(7, psi)


class TestConjugate:
    def test_normal_inverse_gamma(self):
        """Against the density: log prior + log likelihood - log posterior is constant."""
        rng = np.random.default_rng(2)
        X = np.column_stack([rng.normal(size=8), np.ones(8)])
        y = rng.normal(size=8)
        prior = NormalInverseGamma([0.3, -0.2], [[2.0, 0.4], [0.4, 1.0]], 3.0, 0.7)
        posterior = prior.updated(X.T @ X, X.T @ y, y @ y, 8)

        def log_p(law, coef, sigma2):
            cov = sigma2 * np.linalg.inv(law.precision)
            normal = stats.multivariate_normal(law.mean, cov).logpdf(coef)
            return normal + stats.invgamma(law.shape, scale=law.rate).logpdf(sigma2)

        rest = [
            log_p(prior, c, v)
            + stats.norm(X @ c, np.sqrt(v)).logpdf(y).sum()
            - log_p(posterior, c, v)
            for c, v in [([0.0, 0], 1.0), ([1.0, -2], 0.3), ([-3.0, 0.5], 4.0)]
        ]
        assert np.ptp(rest) < 1e-9
        coef, sigma2 = posterior.draw(np.random.default_rng(1), 4000)
        exact = stats.invgamma(posterior.shape, scale=posterior.rate)
        assert stats.kstest(sigma2, exact.cdf).pvalue > 1e-5
        spread = np.linalg.inv(posterior.precision) * posterior.rate / posterior.shape
        student = stats.t(2 * posterior.shape, posterior.mean[0], np.sqrt(spread[0, 0]))
        assert stats.kstest(coef[:, 0], student.cdf).pvalue > 1e-5

    def test_normal_inverse_wishart(self):
        rng = np.random.default_rng(3)
        x = rng.normal(size=(9, 2))
        prior = NormalInverseWishart(
            np.array([0.5, -1]), 2.0, np.array([[1.0, 0.2], [0.2, 2]]), 5.0
        )
        posterior = prior.updated(9, x.sum(0), x.T @ x)

        def log_p(law, mean, cov):
            normal = stats.multivariate_normal(law.mean, cov / law.weight).logpdf(mean)
            return normal + stats.invwishart(law.df, law.scale).logpdf(cov)

        rest = [
            log_p(prior, m, c)
            + stats.multivariate_normal(m, c).logpdf(x).sum()
            - log_p(posterior, m, c)
            for m, c in [
                ([0.0, 0], np.eye(2)),
                ([1.0, 2], np.array([[2, 0.5], [0.5, 0.6]])),
                ([-1.0, 0.3], np.array([[0.4, -0.3], [-0.3, 1.6]])),
            ]
        ]
        assert np.ptp(rest) < 1e-9
        source = np.random.default_rng(4)
        draws = [posterior.draw(source) for _ in range(3000)]
        cov = np.array([c for _, c in draws])
        exact = stats.invgamma((posterior.df - 1) / 2, scale=posterior.scale[0, 0] / 2)
        assert stats.kstest(cov[:, 0, 0], exact.cdf).pvalue > 1e-5
        df = posterior.df - 1
        student = stats.t(
            df,
            posterior.mean[1],
            np.sqrt(posterior.scale[1, 1] / (posterior.weight * df)),
        )
        assert stats.kstest([m[1] for m, _ in draws], student.cdf).pvalue > 1e-5

    def test_posterior_is_a_tree(self):
        prior = NormalInverseGamma(np.zeros(2), np.eye(2), 3, 0.5)
        tree = conjugate_posterior([13.0, 15, 7, -5, 10], 50, prior, draws=30, random_seed=1)
        assert tree.posterior["coef"].shape == (1, 30, 2)
        assert np.all(tree.posterior["sigma2"] > 0)

    @pytest.mark.parametrize("intercept", [True, False])
    def test_impossible_statistics_are_moved(self, intercept):
        layout = StatisticsLayout(2, intercept)
        s = np.random.default_rng(1).normal(size=layout.size)
        moved = nearest_valid(s, 10, layout)
        assert np.linalg.eigvalsh(layout.gram(moved, 10))[0] > -1e-9
        np.testing.assert_allclose(nearest_valid(moved, 10, layout), moved, atol=1e-9)


def build(**changes):
    arguments = {"n": 10, "coef": [0.5, 1.0], "sigma2": 1.0, "x_moments": NormalMoments(0.0, 1.0)}
    return pmdp.RegressionStatistics.dist(**(arguments | changes))


def naive(n=10, prior=None):
    prior = prior or NormalInverseGamma(np.zeros(2), np.eye(2), 3, 1)
    return conjugate_posterior([5.0, 2, 3, 1, 4], n, prior)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: build(n=0), "positive whole number"),
        (lambda: build(n=9.5), "positive whole number"),
        (lambda: build(n=-3), "positive whole number"),
        (lambda: build(n=None), "positive whole number"),
        (lambda: build(n=np.inf), "positive whole number"),
        (lambda: build(coef=[1.0]), r"need \(2,\)"),
        (lambda: build(sigma2=[1.0, 2.0]), "one number"),
        (lambda: build(sigma2=-1.0), "zero or negative"),
        (lambda: build(sigma2=pm.Normal.dist(0, 1)), "zero or negative"),
        (lambda: build(sigma2=pm.Normal.dist(9, 1)), "zero or negative"),
        (lambda: build(sigma2=pm.Flat.dist()), "zero or negative"),
        (lambda: build(x_moments=student_moments(9, 0, 1, intercept=False)), "intercept=False"),
        (lambda: NormalMoments([0.0, 1], np.eye(3)), r"\(d,\) and \(d, d\)"),
        (lambda: NormalMoments([0.0, 1], [[1.0, 2], [2, 1]]), "negative eigenvalue"),
        (lambda: NormalMoments(0.0, -1.0), "negative eigenvalue"),
        (lambda: NormalMoments(np.nan, 1.0), "finite"),
        (lambda: student_moments(4, 0, 1), "4 degrees"),
        # E[x^4] = .5 below E[x^2]^2 = 1
        (lambda: FixedMoments([[1.0]], [[0.5 - 1]], intercept=False), "negative eigenvalue"),
        (lambda: FixedMoments([[1.0, 2], [2, 1]], np.eye(2)), "negative eigenvalue"),
        (lambda: FixedMoments([[1.0, 0], [0, 2]], np.eye(2)), "must be 1"),
        (lambda: FixedMoments([[1.0, 0], [0, 1]], np.eye(3)), "one row for each"),
        (lambda: FixedMoments([[1.0, 0], [0, 1]], 2 * np.eye(2)), "disagree"),
        (lambda: FixedMoments.from_fourth(np.ones((2, 2, 2))), "p, p, p, p"),
        (lambda: FixedMoments.from_fourth(np.arange(16.0).reshape(2, 2, 2, 2)), "not symmetric"),
        (lambda: noisy_moments([1.0, 2], 3), "4 sums are expected"),
        (lambda: noisy_moments([np.nan] * 4, 3), "finite"),
        (lambda: noisy_moments([1.0, 0, 1, 0], 3.5), "positive whole number"),
        (lambda: naive(n=0), "positive whole number"),
        (lambda: naive(prior=NormalInverseGamma([0.0, 0], -np.eye(2), 3, 1)), "positive definite"),
        (lambda: NormalInverseGamma([0.0], [[1.0]], 0, 1), "positive"),
        (lambda: NormalInverseGamma([0.0], np.eye(2), 1, 1), "precision"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(("given", "hint"), [(np.eye(2), "from_fourth"), (3.0, "NormalMoments")])
def test_moments_of_another_kind(given, hint):
    with pytest.raises(TypeError, match=hint):
        build(x_moments=given)
