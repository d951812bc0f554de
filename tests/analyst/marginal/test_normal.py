"""The normal law of released sums: densities, draws, the error it tells, and bad input."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import integrate, stats

import pymc_dp as pmdp
from pymc_dp.analyst.marginal.normal import sums
from pymc_dp.analyst.marginal.normal.accuracy import laplace_draws, normal_error
from pymc_dp.analyst.marginal.normal.edgeworth import edgeworth_terms, standard_cumulants
from pymc_dp.analyst.marginal.start import find_mode
from pymc_dp.analyst.marginal.strategy import auxiliary_variables, integrated_out
from pymc_dp.graph.intervals import ONCE

MU, SD, N = 0.4, 1.2, 300


def two_sums(noise, together=False, observed=(100.0, 500.0)):
    """A model of sums of normal records and of their squares, which have known moments."""
    with pm.Model() as model:
        mu, sd = pm.Normal("mu", 0, 1), pm.HalfNormal("sd", 1)
        x = pm.Normal("x", mu, sd, shape=N)
        if together:
            sums = pt.stack([x.sum(), (x**2).sum()])
            pmdp.Privatized("r", sums, noise[0], observed=observed)
        else:
            pmdp.Privatized("a", x.sum(), noise[0], observed=observed[0])
            pmdp.Privatized("b", (x**2).sum(), noise[1], observed=observed[1])
    return model


MEAN = np.array([N * MU, N * (MU**2 + SD**2)])
COVARIANCE = N * np.array(
    [[SD**2, 2 * MU * SD**2], [2 * MU * SD**2, 2 * SD**4 + 4 * MU**2 * SD**2]]
)


def likelihood(small):
    """Log-density of the releases at MU and SD, as a function of the other variables."""
    logp = small.compile_logp(vars=small.observed_RVs, mode=ONCE)

    def at(**more):
        values = {"mu": MU, "sd_log__": np.log(SD), **more}
        return float(logp({name: np.asarray(value, float) for name, value in values.items()}))

    return at


def log_likelihood(small, **more):
    return likelihood(small)(**more)


@pytest.mark.parametrize("together", [True, False])
def test_gaussian_noise_gives_one_normal_law(together):
    noise = (
        [pmdp.Gaussian(sigma=[5.0, 9.0])]
        if together
        else [pmdp.Gaussian(sigma=5.0), pmdp.Gaussian(sigma=9.0)]
    )
    small = pmdp.marginalize(two_sums(noise, together))
    expected = stats.multivariate_normal(MEAN, COVARIANCE + np.diag([25.0, 81.0])).logpdf(
        [100, 500]
    )
    np.testing.assert_allclose(log_likelihood(small), expected)
    assert not auxiliary_variables(small)


@pytest.mark.parametrize("together", [True, False])
def test_laplace_noise_on_two_sums_is_a_mixture_of_one_w(together):
    scales = [15.0, 60.0]
    noise = [pmdp.Laplace(scale=s) for s in scales]
    small = pmdp.marginalize(
        two_sums([pmdp.Laplace(scale=scales)] if together else noise, together)
    )
    [w] = auxiliary_variables(small)
    assert w.type.shape == (1,)
    name, logp = f"{w.name}_log__", likelihood(small)
    own = small.compile_logp(vars=[w], jacobian=False, mode=ONCE)
    place = small.initial_point() | {name: np.log([3.0])}
    np.testing.assert_allclose(own(place), stats.expon(scale=2).logpdf(3.0))

    def integrand(v):
        return np.exp(logp(**{name: [np.log(v)]}) - v / 2) / 2

    total, _ = integrate.quad(integrand, 0, 60, limit=200, epsrel=1e-6)
    # the same over the totals, on a grid
    t = [MEAN[i] + np.sqrt(COVARIANCE[i, i]) * np.linspace(-8, 8, 1601) for i in range(2)]
    grid = np.stack(np.meshgrid(*t, indexing="ij"), axis=-1)
    law = np.exp(stats.multivariate_normal(MEAN, COVARIANCE).logpdf(grid))
    for i, (released, scale) in enumerate(zip((100, 500), scales, strict=True)):
        law = law * np.exp(-np.abs(grid[..., i] - released) / scale) / (2 * scale)
    expected = law.sum() * np.prod([np.diff(s)[0] for s in t])
    np.testing.assert_allclose(np.log(total), np.log(expected), atol=1e-4)


def test_normal_and_laplace_noise_need_no_other_latents():
    small = pmdp.marginalize(two_sums([pmdp.Laplace(scale=15.0), pmdp.Gaussian(sigma=60.0)]))
    assert not auxiliary_variables(small)
    t = np.linspace(-200, 500, 20001)
    wide = COVARIANCE + np.diag([0, 3600.0])
    rest = wide[0, 0] - wide[0, 1] ** 2 / wide[1, 1]
    centre = MEAN[0] + wide[0, 1] / wide[1, 1] * (500 - MEAN[1])
    law = stats.norm.pdf(t, centre, np.sqrt(rest)) * np.exp(-np.abs(t - 100) / 15) / 30
    expected = stats.norm.logpdf(500, MEAN[1], np.sqrt(wide[1, 1])) + np.log(
        law.sum() * (t[1] - t[0])
    )
    np.testing.assert_allclose(log_likelihood(small), expected, atol=1e-6)


def test_other_noise_keeps_standardised_totals():
    noise = pmdp.Staircase(epsilon=0.2, sensitivity=1.0)
    small = pmdp.marginalize(two_sums([noise, pmdp.Gaussian(sigma=60.0)]))
    [z] = auxiliary_variables(small)
    total = MEAN[0] + np.sqrt(COVARIANCE[0, 0]) * 0.7
    rest = COVARIANCE[1, 1] - COVARIANCE[0, 1] ** 2 / COVARIANCE[0, 0] + 3600
    centre = MEAN[1] + COVARIANCE[0, 1] / COVARIANCE[0, 0] * (total - MEAN[0])
    expected = stats.norm.logpdf(500, centre, np.sqrt(rest))
    expected += float(noise.logp(np.float64(100), pt.constant(np.float64(total))).eval(mode=ONCE))
    np.testing.assert_allclose(log_likelihood(small, **{z.name: [0.7]}), expected)


def test_gradients_by_differences():
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1)
        x = pm.Gamma("x", pt.exp(a), 2, shape=N)
        y = pm.Bernoulli("y", logit_p=a * x)
        sums = pt.stack([pmdp.clamp(x, 0.1, 2).sum(), (y * pmdp.clamp(x, 0.1, 2)).sum()])
        pmdp.Privatized("r", sums, pmdp.Laplace(scale=5.0), observed=[200.0, 120.0])
    small = pmdp.marginalize(model)
    logp, dlogp = small.compile_logp(mode=ONCE), small.compile_dlogp(mode=ONCE)
    for place in (-0.5, 0.3):
        at = {"a": np.array(place), "r_w_log__": np.array([0.4])}
        order = [value.name for value in small.value_vars]
        for i, name in enumerate(order):
            up, down = ({**at, name: at[name] + h} for h in (1e-5, -1e-5))
            np.testing.assert_allclose(
                dlogp(at)[i], (logp(up) - logp(down)) / 2e-5, rtol=1e-4, atol=1e-4
            )


MODELS = {}


def register(function):
    MODELS[function.__name__] = function
    return function


@register
def clamped_sums(n):
    mu, sd = pm.Normal("mu", 1, 1), pm.HalfNormal("sd", 1)
    x = pm.Normal("x", mu, sd + 0.5, shape=n)
    sums = pt.stack([pmdp.clamp(x, -1, 2).sum(), (pmdp.clamp(x, -1, 2) ** 2).sum()])
    pmdp.Privatized("r", sums, pmdp.Laplace(scale=[20.0, 40.0]))


@register
def counted(n):
    rate = pm.Gamma("rate", 3, 1)
    x = pm.Poisson("x", rate, shape=n)
    pmdp.Privatized(
        "r", pmdp.clamp(x, 0, 5).sum(), pmdp.DiscreteLaplace(scale=30.0).clamped(lower=0)
    )


@register
def regression(n):
    design = np.stack([np.ones(n), np.arange(n) % 3], axis=1)
    b = pm.Normal("b", 0, 1, shape=2)
    y = pm.Bernoulli("y", logit_p=design @ b)
    pmdp.Privatized("r", design.T @ y, pmdp.Gaussian(sigma=10.0))


@pytest.mark.wide_except("clamped_sums", "regression")
@pytest.mark.parametrize("name", MODELS)
def test_prior_predictive_is_that_of_the_records(name):
    """Kolmogorov-Smirnov on every component and their sum: false alarms below 1e-5."""
    with pm.Model() as model:
        MODELS[name](200)
    small = pmdp.marginalize(model, method="normal")
    draws = [
        np.asarray(pm.draw(m["r"], 3000, random_seed=seed, mode=ONCE), float).reshape(3000, -1)
        for seed, m in enumerate((model, small))
    ]
    for i in range(draws[0].shape[1]):
        assert stats.ks_2samp(draws[0][:, i], draws[1][:, i]).pvalue > 1e-6
    assert stats.ks_2samp(draws[0].sum(axis=1), draws[1].sum(axis=1)).pvalue > 1e-6


def test_a_billion_records_cost_nothing():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 10)
        x = pm.Normal("x", mu, 1, shape=10**9)
        pmdp.Privatized("r", pmdp.clamp(x, -5, 5).sum(), pmdp.Laplace(scale=1e4), observed=1.3e9)
    small = pmdp.marginalize(model)
    mode = find_mode(small)
    np.testing.assert_allclose(mode.point["mu"], 1.30002592, atol=1e-6)
    np.testing.assert_allclose(np.sqrt(mode.covariance[0, 0]), 1 / np.sqrt(1e9), rtol=0.2)


def test_edgeworth_series_of_a_gamma_sum():
    """Sums of exponentials are gamma: the series takes the error from 1/sqrt(n) to below 1/n."""
    n = 40
    z = np.array([-1.5, 0.3, 1.7])
    third, fourth = np.full((1,) * 3, 2 / np.sqrt(n)), np.full((1,) * 4, 6 / n)
    exact = stats.gamma.pdf(n + z * np.sqrt(n), n) * np.sqrt(n) / stats.norm.pdf(z)
    series = [1 + sum(edgeworth_terms(np.array([v]), third, fourth)) for v in z]
    np.testing.assert_allclose(series, exact, atol=0.005)
    assert np.max(np.abs(exact - 1)) > 0.04


def test_edgeworth_series_of_two_sums():
    """The same for two gamma sums, mixed: rotating them leaves the series as it is."""
    turn = np.array([[0.8, 0.6], [-0.6, 0.8]])
    rng = np.random.default_rng(1)
    x = rng.exponential(size=(5000, 2)) - 1
    w, counts = np.full(5000, 1 / 5000), np.array([40.0])
    x = (x - x.mean(axis=0)) @ np.linalg.inv(np.linalg.cholesky(np.cov(x.T, ddof=0))).T
    y = np.array([0.8, -1.1])
    plain = edgeworth_terms(y, *standard_cumulants(40 * np.eye(2), x, w, counts)[:2])
    turned = edgeworth_terms(
        turn @ y, *standard_cumulants(40 * np.eye(2), x @ turn.T, w, counts)[:2]
    )
    np.testing.assert_allclose(plain, turned)
    one = [standard_cumulants(40 * np.eye(1), x[:, [i]], w, counts)[:2] for i in range(2)]
    separate = [edgeworth_terms(y[[i]], *c) for i, c in enumerate(one)]
    # nearly independent: first order adds up
    np.testing.assert_allclose(plain[0], separate[0][0] + separate[1][0], atol=0.05)


def skewed(n):
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1)
        x = pm.Exponential("x", pt.exp(a), shape=n)
        pmdp.Privatized("r", pmdp.clamp(x, 0, 10).sum(), pmdp.Gaussian(sigma=0.3), observed=0.7 * n)
    return model


@pytest.mark.wide
def test_estimated_error_falls_with_the_number_of_records():
    errors = []
    for n in (5, 100, 10_000):
        small = pmdp.marginalize(skewed(n))
        errors.append(normal_error(small, laplace_draws(small, 200), ["a"]).worst)
    assert errors[0] > 0.05 > errors[2]
    assert errors[2] < 0.005


def test_sampling_tells_the_error_and_hides_what_was_added(caplog):
    small = pmdp.marginalize(two_sums([pmdp.Laplace(scale=15.0), pmdp.Laplace(scale=60.0)]))
    with small:
        quick = {"quiet": True, "progressbar": False, "compile_kwargs": {"mode": ONCE}}
        idata = pmdp.sample(20, tune=40, chains=1, cores=1, random_seed=1, **quick)
    assert set(idata.posterior.data_vars) == {"mu", "sd"}
    assert idata.attrs["normal_law_error"] < 0.2
    assert idata.attrs["normal_law_error_of"] in ("mu", "sd")


@pytest.mark.wide
def test_warns_where_records_are_few():
    with (
        pmdp.marginalize(skewed(5)),
        pytest.warns(UserWarning, match="RecordGibbs, which is exact"),
    ):
        pmdp.sample(200, tune=200, chains=1, cores=1, quiet=True, random_seed=1)


def test_explains_what_was_integrated_out():
    text = str(pmdp.explain(pmdp.marginalize(skewed(100))))
    assert "Integrated out" in text
    assert "x (n = 100) by method 'normal'" in text
    assert "estimated error in posterior sds: a:" in text


def test_hints_at_marginalize_once(caplog, made_only):
    with pm.Model():
        mu = pm.Normal("mu", 0, 1)
        x = pm.Normal("x", mu, 1, shape=20_000)
        pmdp.Privatized("r", x.sum(), pmdp.Laplace(scale=5), observed=13_000.0)
        with caplog.at_level("INFO", "pymc_dp"):
            pmdp.sample(2, tune=2, chains=1, cores=1, quiet=True, progressbar=False)
    assert caplog.text.count("pmdp.marginalize(model) integrates 'x' out") == 1


def test_refuses_what_has_no_normal_law():
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        x = pm.Bernoulli("x", p, shape=50)
        pmdp.Privatized("r", x, pmdp.RandomizedResponse(2, keep=0.8), observed=np.zeros(50, int))
    with pytest.raises(ValueError, match="every record by itself"):
        pmdp.marginalize(model, method="normal")


def test_refuses_families_without_quantiles():
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1)
        x = pm.SkewNormal("x", mu=a, sigma=1, alpha=2, shape=50)
        pmdp.Privatized("r", pmdp.clamp(x, -1, 1).sum(), pmdp.Laplace(scale=1), observed=3.0)
    with pytest.raises(ValueError, match="'x' has a distribution without known quantiles"):
        pmdp.marginalize(model, method="normal")


def test_refuses_integrals_that_are_not_accurate_enough(monkeypatch):
    """A clamp that moves with a parameter is not found, and steps of it are too small to see."""
    monkeypatch.setattr(sums, "ORDERS", sums.ORDERS[-1:])  # fewer nodes have larger errors
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1)
        x = pm.Gamma("x", 2, 1, shape=10**9)
        pmdp.Privatized(
            "r", (pt.sin(400 * x * pt.exp(a)) > 0).sum(), pmdp.Laplace(scale=1), observed=5e8
        )
    with pytest.raises(ValueError, match="accurately enough"):
        pmdp.marginalize(model, method="normal")


def test_integrated_out_is_read_from_the_graph():
    [what] = integrated_out(pmdp.marginalize(skewed(100))).values()
    assert (what.method, what.records, what.n) == ("normal", ("x",), 100)
