"""Parameters given the records: families found in the graph, draws against closed forms."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import integrate, stats

import pymc_dp as pmdp
from pymc_dp.analyst.record_gibbs.parameters import describe_updates
from pymc_dp.graph.intervals import ONCE
from tests.checks import assert_same_distribution


def release(*records):
    total = sum(pmdp.clamp(r, -2, 2).sum() for r in records)
    pmdp.Privatized("released", total, pmdp.Laplace(scale=3), observed=1.0)


def naive_bayes():
    p = pm.Dirichlet("p", np.ones(3))
    table = pm.Dirichlet("theta", np.ones((3, 2, 4)))
    y = pm.Categorical("y", p, shape=5)
    x = pm.Categorical("x", table[y], shape=(5, 2))
    release(y, x)


def regression():
    beta = pm.Normal("theta", 0, 2, shape=3)
    x = pm.Normal("x", 0, 1, shape=(6, 2))
    y = pm.Normal("y", beta[0] + x @ beta[1:], 1.5, shape=6)
    release(x, y)


def variance_of_mean_and_records():
    """Theta has two children, one of them a parent of the other."""
    variance = pm.InverseGamma("theta", 3, 2)
    mean = pm.Normal("mean", 0, pt.sqrt(variance))
    release(pm.Normal("x", mean, pt.sqrt(variance), shape=4))


def conditioned(prior, child):
    def build():
        theta = prior("theta")
        release(child("x", theta))

    return build


def normal_mean(name):
    return pm.Normal(name, 0, 2)


def variance(name):
    return pm.InverseGamma(name, 3, 2)


def rate(name):
    return pm.Gamma(name, 3, 2)


def share(name):
    return pm.Beta(name, 2, 3)


@pytest.mark.parametrize(
    ("build", "family"),
    [
        (conditioned(normal_mean, lambda n, t: pm.Normal(n, t, 1, shape=4)), "normal"),
        (conditioned(normal_mean, lambda n, t: pm.Normal(n, 2 * t + 1, 1, shape=4)), "normal"),
        (conditioned(normal_mean, lambda n, t: pm.LogNormal(n, t, 1, shape=4)), "normal"),
        (conditioned(pm.Flat, lambda n, t: pm.Normal(n, t, 1, shape=4)), "normal"),
        (
            conditioned(
                lambda n: pm.MvNormal(n, np.zeros(2), np.eye(2)),
                lambda n, t: pm.MvNormal(n, t, np.eye(2), shape=(4, 2)),
            ),
            "normal",
        ),
        (regression, "normal"),
        (conditioned(variance, lambda n, t: pm.Normal(n, 0, pt.sqrt(t), shape=4)), "inverse gamma"),
        (conditioned(variance, lambda n, t: pm.Exponential(n, scale=t, shape=4)), "inverse gamma"),
        (conditioned(rate, lambda n, t: pm.Normal(n, 0, tau=t, shape=4)), "gamma"),
        (conditioned(rate, lambda n, t: pm.Poisson(n, 3 * t, shape=4)), "gamma"),
        (conditioned(rate, lambda n, t: pm.Exponential(n, t, shape=4)), "gamma"),
        (conditioned(rate, lambda n, t: pm.Gamma(n, 2, t, shape=4)), "gamma"),
        (conditioned(share, lambda n, t: pm.Bernoulli(n, t, shape=4)), "beta"),
        (conditioned(share, lambda n, t: pm.Binomial(n, 5, t, shape=4)), "beta"),
        (conditioned(share, lambda n, t: pm.Geometric(n, t, shape=4)), "beta"),
        (
            conditioned(lambda n: pm.Uniform(n, 0, 1), lambda n, t: pm.Bernoulli(n, t, shape=4)),
            "beta",
        ),
        (
            conditioned(
                lambda n: pm.Dirichlet(n, np.ones(3)),
                lambda n, t: pm.Categorical(n, t, shape=4),
            ),
            "dirichlet",
        ),
        pytest.param(naive_bayes, "dirichlet", marks=pytest.mark.wide),
        (variance_of_mean_and_records, "inverse gamma"),
    ],
)
def test_families_that_are_found(build, family):
    with pm.Model() as model:
        build()
    found = describe_updates(model, [model["theta"]])
    assert found == {"theta": f"drawn from its conditional ({family})"}
    assert pmdp.explain(model).steps["theta"] == "RecordGibbs"


@pytest.mark.parametrize(
    "build",
    [
        conditioned(lambda n: pm.HalfNormal(n), lambda n, t: pm.Normal(n, 0, t, shape=4)),
        conditioned(normal_mean, lambda n, t: pm.Normal(n, t**2, 1, shape=4)),
        # quadratic wherever one looks, but not everywhere
        conditioned(normal_mean, lambda n, t: pm.Normal(n, pt.clip(t, -99, 99), 1, shape=4)),
        conditioned(normal_mean, lambda n, t: pm.Normal(n, pt.maximum(t, -99), 1, shape=4)),
        conditioned(normal_mean, lambda n, t: pm.StudentT(n, 4, mu=t, sigma=1, shape=4)),
        conditioned(normal_mean, lambda n, t: pm.Bernoulli(n, logit_p=t, shape=4)),
        conditioned(lambda n: pm.Uniform(n, 0, 2), lambda n, t: pm.Exponential(n, t, shape=4)),
        conditioned(lambda n: pm.Uniform(n, 0, 0.5), lambda n, t: pm.Bernoulli(n, t, shape=4)),
        conditioned(rate, lambda n, t: pm.Gamma(n, t, 1, shape=4)),
        conditioned(
            lambda n: pm.Normal(
                n, 0, 1, shape=2, transform=pm.distributions.transforms.ordered, initval=[0, 1]
            ),
            lambda n, t: pm.Normal(n, t[0], 1, shape=4),
        ),
        # a transform that leaves out what a normal draw would reach
        conditioned(
            lambda n: pm.Normal(n, 0.5, 0.05, transform=pm.distributions.transforms.Interval(0, 1)),
            lambda n, t: pm.Normal(n, t, 1, shape=4),
        ),
        # of a family as long as all records have the value that they nearly always have
        conditioned(rate, lambda n, t: pm.Poisson(n, 0.001 * (1 + t), shape=2)),
        conditioned(lambda n: pm.Beta(n, 50, 1), lambda n, t: pm.Bernoulli(n, 0.99 * t, shape=1)),
        conditioned(
            lambda n: pm.Dirichlet(n, [99, 1, 1]), lambda n, t: pm.Binomial(n, 2, t[0], shape=1)
        ),
    ],
)
def test_what_is_not_of_a_family_is_slice_sampled(build):
    with pm.Model() as model:
        build()
    assert describe_updates(model, [model["theta"]]) == {"theta": "slice sampled"}


def test_a_bounded_number_of_trials_keeps_its_family():
    with pm.Model() as model:
        p = pm.Beta("p", 2, 2)
        trials = pm.Poisson("trials", 3, shape=4)
        release(trials, pm.Binomial("x", trials, p, shape=4))
    found = describe_updates(model, [model["p"]])
    assert found == {"p": "drawn from its conditional (beta)"}


def test_other_uses_of_a_parameter_count():
    def family(extra):
        with pm.Model() as model:
            theta = pm.Normal("theta", 0, 2)
            release(pm.Normal("x", theta, 1, shape=4))
            extra(theta)
        return describe_updates(model, [theta])["theta"]

    found = "drawn from its conditional (normal)"
    assert family(lambda t: pm.Normal("seen", t, 2, observed=[1.0, 2.0])) == found
    assert family(lambda t: pm.Poisson("seen", pt.exp(t), observed=[1, 2])) == "slice sampled"
    assert family(lambda t: pm.Potential("more", -(t**4))) == "slice sampled"


def test_what_is_left_to_nuts():
    with pm.Model() as model:
        above = pm.Normal("above")
        wide = pm.Normal("wide", above, 1, shape=40)
        odd = pm.StudentT("odd", 3, shape=9)
        release(pm.Normal("x", wide + pt.sum(odd), 1, shape=40))
    assert pmdp.explain(model).steps == {
        "above": "NUTS",
        "wide": "NUTS",
        "odd": "NUTS",
        "x": "RecordGibbs",
    }


def conditional_draws(build, records, draws=4000):
    """Draws of theta given records that stay, by a step that has theta alone."""
    with pm.Model() as model:
        build()
        step = pmdp.RecordGibbs([model["theta"]], cycles=1)
    point = model.initial_point()
    point.update(records)
    step.setup_chain(np.random.default_rng(3), 200, draws)
    found = []
    backward = model.compile_fn(
        model.replace_rvs_by_values([model["theta"]])[0],
        inputs=model.value_vars,
        point_fn=True,
        on_unused_input="ignore",
    )
    for i in range(200 + draws):
        if i == 200:
            step.stop_tuning()
        point, _ = step.step(point)
        if i >= 200:
            found.append(backward(point))
    return np.array(found)


X = np.array([0.5, 1.5, 1.0, 4.0])
K = np.array([0, 3, 1, 2])


@pytest.mark.parametrize(
    ("build", "records", "exact"),
    [
        (
            conditioned(normal_mean, lambda n, t: pm.Normal(n, 2 * t, 1, shape=4)),
            {"x": X},
            # prior precision 1/4, likelihood 4 * 2^2
            stats.norm(2 * X.sum() / 16.25, 1 / np.sqrt(16.25)),
        ),
        (
            variance_of_mean_and_records,
            {"x": X, "mean": np.array(0.7)},
            # prior shape 3 and rate 2, one half each for the mean and the four records
            stats.invgamma(3 + 2.5, scale=2 + (0.7**2 + ((X - 0.7) ** 2).sum()) / 2),
        ),
        (
            conditioned(rate, lambda n, t: pm.Poisson(n, 3 * t, shape=4)),
            {"x": K},
            stats.gamma(3 + K.sum(), scale=1 / (2 + 12)),
        ),
        (
            conditioned(variance, lambda n, t: pm.Normal(n, 0.5, pt.sqrt(t), shape=4)),
            {"x": X},
            stats.invgamma(3 + 2, scale=2 + np.sum((X - 0.5) ** 2) / 2),
        ),
        (
            conditioned(
                lambda n: pm.InverseGamma(n, 3, 2e16),
                lambda n, t: pm.Normal(n, 0, pt.sqrt(t), shape=4),
            ),
            {"x": 1e8 * X},
            stats.invgamma(3 + 2, scale=2e16 + np.sum((1e8 * X) ** 2) / 2),
        ),
        (
            conditioned(
                lambda n: pm.Gamma(n, 3, 1e-14), lambda n, t: pm.Exponential(n, t, shape=4)
            ),
            {"x_log__": np.log(1e-14 * X)},
            stats.gamma(3 + 4, scale=1 / (1e-14 * (1 + X.sum()))),
        ),
        (
            conditioned(share, lambda n, t: pm.Binomial(n, 5, t, shape=4)),
            {"x": K},
            stats.beta(2 + K.sum(), 3 + 20 - K.sum()),
        ),
    ],
    ids=[
        "normal",
        "variance of mean and records",
        "gamma",
        "inverse gamma",
        "large numbers",
        "small numbers",
        "beta",
    ],
)
def test_draws_follow_the_closed_form(build, records, exact):
    # draws are independent; false-alarm rate 1e-5
    draws = conditional_draws(build, records)
    assert stats.kstest(draws, exact.cdf).pvalue > 1e-5


def test_dirichlet_draws():
    build = conditioned(
        lambda n: pm.Dirichlet(n, [1.0, 2.0, 0.5]), lambda n, t: pm.Categorical(n, t, shape=4)
    )
    draws = conditional_draws(build, {"x": np.array([0, 2, 2, 1])})
    counts = np.array([2.0, 3.0, 2.5])
    for k in range(3):  # each false-alarm rate 1e-5 / 3
        exact = stats.beta(counts[k], counts.sum() - counts[k])
        assert stats.kstest(draws[:, k], exact.cdf).pvalue > 1e-5 / 3


@pytest.mark.wide
def test_dirichlet_draws_of_tables_in_tables():
    y, x = np.array([0, 0, 2, 1, 0]), np.array([[0, 1], [3, 1], [2, 2], [1, 0], [3, 3]])
    draws = conditional_draws(naive_bayes, {"y": y, "x": x})
    counts = np.ones((3, 2, 4))
    for i, j in zip(y, x, strict=True):
        counts[i, [0, 1], j] += 1
    for cell in np.ndindex(3, 2, 4):  # each false-alarm rate 1e-5 / 24
        exact = stats.beta(counts[cell], counts[cell[:2]].sum() - counts[cell])
        assert stats.kstest(draws[(slice(None), *cell)], exact.cdf).pvalue > 1e-5 / 24


def test_regression_draws_are_jointly_normal():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(6, 2)), rng.normal(size=6)
    draws = conditional_draws(regression, {"x": x, "y": y})
    design = np.column_stack([np.ones(6), x])
    precision = np.eye(3) / 4 + design.T @ design / 1.5**2
    mean = np.linalg.solve(precision, design.T @ y / 1.5**2)
    whitened = (draws - mean) @ np.linalg.cholesky(precision)
    for column in whitened.T:  # each false-alarm rate 1e-5 / 6
        assert stats.kstest(column, stats.norm.cdf).pvalue > 1e-5 / 6
    for i, j in [(0, 1), (0, 2), (1, 2)]:
        assert stats.pearsonr(whitened[:, i], whitened[:, j]).pvalue > 1e-5 / 6


def test_slice_draws_follow_the_conditional():
    # a scale with a half-normal prior, by quadrature; false-alarm rate 1e-5
    draws = conditional_draws(
        conditioned(lambda n: pm.HalfNormal(n, 2), lambda n, t: pm.Normal(n, 1, t, shape=4)),
        {"x": X},
    )
    grid = np.linspace(1e-3, 15, 4000)
    density = stats.halfnorm.pdf(grid, scale=2) * np.prod(
        stats.norm.pdf(X[:, None], 1, grid), axis=0
    )
    cdf = integrate.cumulative_simpson(density, x=grid, initial=0)
    assert_same_distribution(draws[None], lambda s: np.interp(s, grid, cdf / cdf[-1]))


def test_a_step_of_records_alone_leaves_parameters_to_another(made_only):
    with pm.Model():
        mu = pm.Normal("mu", 0, 2)
        x = pm.Normal("x", mu, 1, shape=5)
        release(x)
        quiet = {"progressbar": False, "quiet": True, "compute_convergence_checks": False}
        nuts = pm.NUTS([mu], compile_kwargs={"mode": ONCE})
        step = [nuts, pmdp.RecordGibbs([x], interweave=False)]
        idata = pm.sample(20, tune=20, chains=1, cores=1, step=step, **quiet)
        assert "step_size" in idata.sample_stats
        # and a step of records alone gets a second one for the parameters
        idata = pm.sample(20, tune=20, chains=1, cores=1, step=pmdp.RecordGibbs([x]), **quiet)
    assert "step_size" not in idata.sample_stats
