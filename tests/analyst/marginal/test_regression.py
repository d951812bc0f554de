"""Regression statistics integrated out: densities by quadrature, draws, samplers beside."""

import numpy as np
import pymc as pm
import pytest
from scipy import integrate, stats

import pymc_dp as pmdp
from pymc_dp.analyst.marginal.regression.gram import MarginalGramRV
from pymc_dp.graph.intervals import ONCE
from pymc_dp.regression import StatisticsLayout
from tests.checks import assert_mean_and_sd

RELEASED = np.array([21.0, 3.1, 14.2, 30.0, 90.5])


def one_holder(mechanism, n=1000, parts=1):
    with pm.Model() as model:
        sigma2 = pm.InverseGamma("sigma2", 20, 0.5)
        theta = pm.Normal("theta", 0, 1, shape=2)
        x = pmdp.regression.NormalMoments(0.0, 0.02)
        s = pmdp.RegressionStatistics("s", n=n, coef=theta, sigma2=sigma2, x_moments=x)
        if parts == 1:
            pmdp.Privatized("z", s, mechanism, observed=RELEASED)
        else:
            pmdp.Privatized("a", 2 * s[:2], mechanism, observed=2 * RELEASED[:2])
            pmdp.Privatized("b", s[2:] + 1, mechanism, observed=RELEASED[2:] + 1)
    return model


@pytest.mark.parametrize("parts", [1, 2])
def test_statistics_are_integrated_out(parts):
    model = one_holder(pmdp.Gaussian(sigma=5), parts=parts)
    small = pmdp.marginalize(model)
    assert {rv.name for rv in small.free_RVs} == {"sigma2", "theta"}
    point = {"sigma2_log__": np.array(-3.0), "theta": np.array([0.3, 0.1])}
    found = small.compile_logp(vars=small.observed_RVs, mode=ONCE)(point)
    s = model["s"]
    op, params = s.owner.op, s.owner.inputs[2:]
    mean, cov = op.mean_and_cov(*params)
    given = {model["sigma2"]: np.exp(-3.0), model["theta"]: point["theta"]}
    mean, cov = mean.eval(given, mode=ONCE), cov.eval(given, mode=ONCE)
    H = np.eye(5) if parts == 1 else np.diag([2.0, 2, 1, 1, 1])
    released = H @ RELEASED + (0 if parts == 1 else np.array([0, 0, 1, 1, 1]))
    shift = 0 if parts == 1 else np.array([0, 0, 1, 1, 1])
    law = stats.multivariate_normal(H @ mean + shift, H @ cov @ H + 25 * np.eye(5))
    np.testing.assert_allclose(found, law.logpdf(released), rtol=1e-9)


def test_laplace_noise_given_its_variances():
    """The density averaged over the variances is that of the Laplace noise; error below 5 sds."""
    model = one_holder(pmdp.Laplace(scale=5))
    small = pmdp.marginalize(model)
    rng = np.random.default_rng(1)
    point = {"sigma2_log__": np.array(-3.0), "theta": np.array([0.3, 0.1])}
    fn = small.compile_logp(vars=small.observed_RVs, mode=ONCE)
    draws = []
    for _ in range(4000):
        w = rng.exponential(2, size=4)
        draws.append(np.exp(fn(point | {"z_w_log__": np.log(w)})))
    s = model["s"]
    given = {model["sigma2"]: np.exp(-3.0), model["theta"]: point["theta"]}
    mean, cov = (v.eval(given, mode=ONCE) for v in s.owner.op.mean_and_cov(*s.owner.inputs[2:]))
    totals = rng.multivariate_normal(mean, cov, size=200_000)
    direct = np.exp(stats.laplace.logpdf(RELEASED, totals, 5).sum(axis=1))
    error = np.hypot(np.std(draws) / np.sqrt(len(draws)), direct.std() / np.sqrt(len(direct)))
    assert abs(np.mean(draws) - direct.mean()) < 5 * error


def holders(n, d=1, intercept=False, mechanism=None):
    rng = np.random.default_rng(2)
    layout = StatisticsLayout(d, intercept, ("xx", "xy"))
    with pm.Model() as model:
        coef = pm.Normal("coef", 0, 2, shape=d + intercept)
        sigma2 = pm.InverseGamma("sigma2", 3, 1)
        cov = pmdp.regression.InverseWishart("cov_x", nu=d + 3, psi=2 * np.eye(d))
        mean = {"mean_x": pm.MvNormal("mean_x", 0.5 * np.ones(d), cov=cov / 2)} if intercept else {}
        found = pmdp.HolderStatistics("h", n=n, coef=coef, sigma2=sigma2, cov_x=cov, **mean)
        for j, count in enumerate(n):
            X = rng.normal(size=(count, d))
            X = np.column_stack([X, np.ones(count)]) if intercept else X
            y = X @ np.arange(1, d + intercept + 1) + rng.normal(size=count)
            pairs = layout.pairs[: layout.n_xx].T
            values = np.concatenate([(X.T @ X)[tuple(pairs)], X.T @ y])
            noise = pmdp.Gaussian(sigma=4.0) if mechanism is None else mechanism
            observed = values + 4 * rng.normal(size=values.size)
            pmdp.Privatized(f"r{j}", found[j], noise, observed=observed)
    return model


def test_gram_matrices_without_the_rows_law():
    prior, nu, n = np.array([[2.0]]), 4.0, np.array([7.0, 11.0])
    rv = MarginalGramRV.rv_op(n, prior, nu, np.array([[1.3]]), 0)
    S = np.array([5.0, 14.0])
    found = pm.logp(rv, S[:, None, None]).eval(mode=ONCE)

    def density(v):
        rows = stats.gamma.pdf(S, n / 2, scale=2 * v).prod()
        return rows * stats.invgamma.pdf(v, nu / 2, scale=prior[0, 0] / 2)

    expected = integrate.quad(density, 0, 40, epsrel=1e-10)[0]
    np.testing.assert_allclose(found, np.log(expected), rtol=1e-7)


def test_gram_matrices_with_an_intercept():
    """Sums and sums of squares of two holders: mean and variance of the rows by quadrature."""
    weight, centre, psi, nu = 2.0, 0.5, 3.0, 4.0
    prior = np.array([[weight, weight * centre], [weight * centre, psi + weight * centre**2]])
    n = np.array([7.0, 11.0])
    rv = MarginalGramRV.rv_op(n, prior, nu, np.array([[1.0, 0.2], [0.2, 1.3]]), 1)
    sums, squares = np.array([2.0, -1.0]), np.array([9.0, 13.0])
    S = np.array([[[q, s], [s, k]] for q, s, k in zip(squares, sums, n, strict=True)])
    found = pm.logp(rv, S).eval(mode=ONCE)

    # trapezoids, which are exact where nothing is left at the ends
    mean = np.linspace(-6, 7, 1001)[:, None]
    log_v = np.linspace(np.log(0.01), np.log(1e4), 1001)

    def density(mean, v):
        law = stats.norm.pdf(mean, centre, np.sqrt(v / weight))
        law *= stats.invgamma.pdf(v, nu / 2, scale=psi / 2)
        rows = [stats.norm.pdf(s, k * mean, np.sqrt(k * v)) for s, k in zip(sums, n, strict=True)]
        rest = zip(squares - sums**2 / n, n, strict=True)
        rows += [stats.gamma.pdf(r, (k - 1) / 2, scale=2 * v) for r, k in rest]
        return law * rows[0] * rows[1] * rows[2] * rows[3]

    expected = integrate.trapezoid(
        integrate.trapezoid(density(mean, np.exp(log_v)) * np.exp(log_v), log_v), mean[:, 0]
    )
    np.testing.assert_allclose(found, np.log(expected), rtol=1e-6)


@pytest.mark.parametrize("intercept", [False, True])
def test_cross_products_are_integrated_out(intercept):
    n = [30, 40]
    model = holders(n, d=2, intercept=intercept)
    small = pmdp.marginalize(model)
    assert {rv.name for rv in small.free_RVs} == {"coef", "sigma2", "h_S"}
    p = 2 + intercept
    rng = np.random.default_rng(3)
    S = []
    for count in n:
        X = rng.normal(size=(count, 2))
        X = np.column_stack([X, np.ones(count)]) if intercept else X
        S.append(X.T @ X)
    coef, sigma2 = rng.normal(size=p), 1.7
    layout = StatisticsLayout(2, intercept, ("xx", "xy"))
    expected = 0.0
    for j, gram in enumerate(S):
        value = model.rvs_to_values[model[f"r{j}"]].eval(mode=ONCE)
        entries = gram[tuple(layout.pairs[: layout.n_xx].T)]
        expected += stats.norm.logpdf(value[: layout.n_xx], entries, 4).sum()
        spread = sigma2 * gram + 16 * np.eye(p)
        expected += stats.multivariate_normal.logpdf(value[layout.n_xx :], gram @ coef, spread)
    terms = sum(term.sum() for term in small.logp(vars=small.observed_RVs, sum=False))
    values = {small.rvs_to_values[small["coef"]]: coef}
    values[small.rvs_to_values[small["sigma2"]]] = np.log(sigma2)
    transform = small.rvs_to_transforms[small["h_S"]]
    inside = transform.forward(np.array(S), *small["h_S"].owner.inputs).eval(mode=ONCE)
    values[small.rvs_to_values[small["h_S"]]] = inside
    np.testing.assert_allclose(terms.eval(values, mode=ONCE), expected, rtol=1e-8)
    drawn = pm.draw([small["r0"], model["r0"]], 10, random_seed=1, mode=ONCE)
    assert drawn[0].shape == drawn[1].shape


def test_the_rows_law_is_kept_where_it_is_not_asked_for():
    model = holders([30])
    small = pmdp.marginalize(model, ["h_z"])
    assert {rv.name for rv in small.free_RVs} == {"coef", "sigma2", "cov_x", "h_S"}
    with pytest.raises(ValueError, match="integrated out by method 'exact'"):
        pmdp.marginalize(model, method="normal")


@pytest.mark.wide
@pytest.mark.parametrize("noise", [pmdp.Gaussian(sigma=4), pmdp.Laplace(scale=4)])
def test_same_posterior_as_normal_x(noise):
    """Means and sds of a short run of either; false alarms 1e-5 each."""
    model = holders([60], d=1, intercept=False, mechanism=noise)
    options = {"chains": 2, "cores": 1, "progressbar": False, "random_seed": 1}
    with model:
        gibbs = pmdp.sample(6000, tune=1000, **options)
    with pmdp.marginalize(model):
        nuts = pm.sample(2000, tune=1000, **options)
    for name in ("coef", "sigma2"):
        draws = (
            np.log(nuts.posterior[name].values) if name == "sigma2" else nuts.posterior[name].values
        )
        other = (
            np.log(gibbs.posterior[name].values)
            if name == "sigma2"
            else gibbs.posterior[name].values
        )
        draws, other = draws.reshape(2, -1), other.reshape(2, -1)
        size = float(np.asarray(other.size)) / 10
        assert_mean_and_sd(
            draws, other.mean(), other.std(),
            mean_error=other.std() / np.sqrt(size), sd_error=other.std() / np.sqrt(2 * size),
        )  # fmt: skip


def test_the_number_of_records_may_be_latent():
    with pm.Model() as model:
        n = pm.TruncatedNormal("n", 100, 20, lower=2)
        pm.Normal("count", n, 5, observed=93.0)
        sigma2 = pm.InverseGamma("sigma2", 20, 0.5)
        theta = pm.Normal("theta", 0, 1, shape=2)
        x = pmdp.regression.NormalMoments(0.0, 0.02)
        s = pmdp.RegressionStatistics("s", n=n, coef=theta, sigma2=sigma2, x_moments=x)
        pmdp.Privatized("z", s, pmdp.Gaussian(sigma=5), observed=RELEASED)
    small = pmdp.marginalize(model)
    known = pmdp.marginalize(one_holder(pmdp.Gaussian(sigma=5), n=97))
    at = {"sigma2_log__": np.array(-3.0), "theta": np.array([0.3, 0.1])}
    expected = known.compile_logp(vars=[known["z"]], mode=ONCE)(at)
    at["n_interval__"] = np.log(np.array(97.0 - 2))
    found = small.compile_logp(vars=[small["z"]], mode=ONCE)(at)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_statistics_under_large_laplace_noise_are_standardised():
    model = one_holder(pmdp.Laplace(scale=500), n=100)
    small = pmdp.marginalize(model)
    assert {rv.name for rv in small.free_RVs} == {"sigma2", "theta", "s_z"}
    at = {"sigma2_log__": np.array(-3.0), "theta": np.array([0.3, 0.1])}
    z = np.linspace(-1, 1, 5)
    found = small.compile_logp(vars=small.observed_RVs, mode=ONCE)(at | {"s_z": z})
    s = model["s"]
    given = {model["sigma2"]: np.exp(-3.0), model["theta"]: at["theta"]}
    mean, cov = (v.eval(given, mode=ONCE) for v in s.owner.op.mean_and_cov(*s.owner.inputs[2:]))
    totals = mean + np.linalg.cholesky(cov) @ z
    np.testing.assert_allclose(found, stats.laplace.logpdf(RELEASED, totals, 500).sum(), rtol=1e-8)
