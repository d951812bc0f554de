"""Interweaving: residuals are kept, the posterior stays exact, strong privacy does not slow it."""

from itertools import pairwise

import arviz as az
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import integrate, special, stats

import pymc_dp as pmdp
from pymc_dp.analyst.record_gibbs.gamma_residuals import (
    dirichlet_residuals,
    from_dirichlet_residuals,
    from_gamma_residuals,
)
from pymc_dp.analyst.record_gibbs.interweave import Interweaving, interweaving_plan, together
from pymc_dp.analyst.record_gibbs.residuals import rule_for
from pymc_dp.analyst.records import record_blocks, record_variables
from pymc_dp.graph.intervals import ONCE
from pymc_dp.graph.layout import PointLayout
from tests import oracles
from tests.checks import assert_same_distribution
from tests.sampling import draw, fewest_effective, values


@pytest.mark.parametrize(
    ("family", "old", "new"),
    [
        (pm.Normal, (0.5, 2.0), (-1.0, 0.3)),
        (pm.Laplace, (0.5, 2.0), (-1.0, 0.3)),
        (pm.Logistic, (0.5, 2.0), (-1.0, 0.3)),
        (pm.Cauchy, (0.5, 2.0), (-1.0, 0.3)),
        (pm.Gumbel, (0.5, 2.0), (-1.0, 0.3)),
        (pm.Uniform, (0.5, 2.0), (-1.0, 4.0)),
        (pm.Exponential, (0.5,), (3.0,)),
        (pm.HalfNormal, (0.5,), (3.0,)),
        (pm.Gamma, (2.5, 1.0), (2.5, 4.0)),
        (pm.LogNormal, (0.5, 2.0), (-1.0, 0.3)),
        (pm.Weibull, (0.5, 2.0), (1.5, 0.3)),
        (pm.Pareto, (2.0, 1.0), (3.0, 2.0)),
        (lambda: None, (), ()),
    ],
    ids=lambda v: getattr(v, "__name__", None),
)
def test_rules_keep_the_distribution_function(family, old, new):
    # u = F(x; old) = F(x'; new)
    if not old:
        family = pm.StudentT
        before, after = family.dist(4, mu=0.5, sigma=2.0), family.dist(4, mu=-1.0, sigma=0.3)
    else:
        before, after = family.dist(*old), family.dist(*new)
    x = pm.draw(before, draws=50, random_seed=1, mode=ONCE)
    rule = rule_for(before, lambda param: False)
    moved = rule(
        x, before.owner.op.dist_params(before.owner), after.owner.op.dist_params(after.owner)
    )
    u_before = pm.logcdf(before, x).eval(mode=ONCE)
    u_after = pm.logcdf(after, moved).eval(mode=ONCE)
    np.testing.assert_allclose(u_after, u_before, atol=1e-6)  # constants are in single precision


def test_rule_of_the_multivariate_normal_keeps_the_whitened_residual():
    rng = np.random.default_rng(0)
    a, b = (np.cov(rng.normal(size=(3, 9))) for _ in range(2))
    mean_a, mean_b = rng.normal(size=(2, 3))
    before, after = pm.MvNormal.dist(mean_a, a), pm.MvNormal.dist(mean_b, b)
    x = rng.normal(size=(6, 3))
    rule = rule_for(before, lambda param: False)
    params = [rv.owner.op.dist_params(rv.owner) for rv in (before, after)]
    moved = rule(pt.as_tensor(x), *params).eval(mode=ONCE)

    def residual(x, mean, cov):
        return np.linalg.solve(np.linalg.cholesky(cov), (x - mean).T)

    np.testing.assert_allclose(residual(moved, mean_b, b), residual(x, mean_a, a), atol=1e-10)


@pytest.mark.parametrize(
    ("family", "old", "new"),
    [
        (pm.Gamma, (2.5, 1.0), (4.0, 2.0)),  # a shape that moves goes through the quantile
        (pm.Beta, (2.5, 1.0), (4.0, 2.0)),
        (pm.HalfCauchy, (2.0,), (3.0,)),
        (pm.Kumaraswamy, (2.0, 1.0), (3.0, 2.0)),
        (pm.InverseGamma, (3.0, 1.0), (4.0, 2.0)),
    ],
)
def test_other_families_go_through_the_distribution_function(family, old, new):
    before, after = family.dist(*old), family.dist(*new)
    x = pm.draw(before, draws=50, random_seed=1, mode=ONCE)
    rule = rule_for(before, lambda param: True)
    moved = rule(
        x, before.owner.op.dist_params(before.owner), after.owner.op.dist_params(after.owner)
    )
    np.testing.assert_allclose(
        pm.logcdf(after, moved).eval(mode=ONCE), pm.logcdf(before, x).eval(mode=ONCE), atol=1e-6
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (stats.poisson(3.0), stats.poisson(5.5)),
        (stats.poisson(60.0), stats.poisson(3.0)),
        # so far away that the mass at the old value is nil
        (stats.poisson(3.0), stats.poisson(60.0)),
        (stats.poisson(1e6), stats.poisson(1.1e6)),
        (stats.binom(5000, 0.1), stats.binom(5000, 0.9)),
        (stats.nbinom(2, 0.001), stats.nbinom(3, 0.9)),
        (stats.binom(10, 0.2), stats.binom(10, 0.7)),
        (stats.nbinom(4, 0.3), stats.nbinom(2, 0.6)),
        (stats.geom(0.2), stats.geom(0.7)),
        (stats.bernoulli(0.2), stats.bernoulli(0.7)),
        (stats.randint(0, 8), stats.randint(2, 31)),
    ],
    ids=lambda d: f"{d.dist.name}{d.args}",
)
def test_counts_keep_a_randomised_residual(before, after):
    family = {
        "poisson": pm.Poisson,
        "binom": pm.Binomial,
        "nbinom": lambda n, p: pm.NegativeBinomial.dist(n=n, p=p),
        "geom": pm.Geometric,
        "bernoulli": pm.Bernoulli,
        "randint": lambda low, high: pm.DiscreteUniform.dist(low, high - 1),
    }[before.dist.name]
    make = getattr(family, "dist", family)
    rvs = [make(*d.args) for d in (before, after)]
    rng = np.random.default_rng(1)
    x, v = before.rvs(size=300, random_state=rng), rng.random(300)
    params = [rv.owner.op.dist_params(rv.owner) for rv in rvs]
    rule = rule_for(rvs[0], lambda param: True)
    u = before.cdf(x - 1) + v * before.pmf(x)
    np.testing.assert_array_equal(rule(x, *params, v).eval(mode=ONCE), after.ppf(u))
    np.testing.assert_array_equal(rule(x, params[0], params[0], v).eval(mode=ONCE), x)


def test_categories_keep_a_randomised_residual():
    rng = np.random.default_rng(1)
    old, new = rng.dirichlet(np.ones(4), size=(2, 50, 3))
    x, v = rng.integers(4, size=(50, 3)), rng.random((50, 3))
    rule = rule_for(pm.Categorical.dist(old), lambda param: True)
    moved = rule(x, [old], [new], v).eval(mode=ONCE)
    below = np.take_along_axis(np.cumsum(old, -1) - old, x[..., None], -1)[..., 0]
    u = below + v * np.take_along_axis(old, x[..., None], -1)[..., 0]
    for i in np.ndindex(50, 3):
        assert moved[i] == np.searchsorted(np.cumsum(new[i]), u[i])
    np.testing.assert_array_equal(rule(x, [old], [old], v).eval(mode=ONCE), x)


def test_residuals_of_shares_are_kept():
    # residuals of x at the old parameters, weighted by their density at the new ones against that
    # at the old ones, are residuals of shares at the new ones; six standard errors, so that the
    # false-alarm rate is below 1e-7
    x, old, new = pt.dmatrix("x"), pt.dvector("old"), pt.dvector("new")
    kept = dirichlet_residuals(x, [old])
    back, before = from_dirichlet_residuals(kept, [old])
    moved, after = from_dirichlet_residuals(kept, [new])
    rows = [from_gamma_residuals(kept, shape)[1].sum(axis=-1) for shape in (new, old)]
    outputs = [back, moved, rows[0] - rows[1], after - before]
    compute = pytensor.function([x, old, new], outputs, mode="FAST_COMPILE")
    a, b = np.array([0.3, 2.0, 9.0]), np.array([0.5, 1.5, 12.0])
    drawn = np.random.default_rng(1).dirichlet(a, size=100_000)
    back, moved, log_weight, change = compute(drawn, a, b)
    np.testing.assert_allclose(back, drawn, rtol=1e-9)
    np.testing.assert_allclose(log_weight.sum(), change)
    weight = np.exp(log_weight)
    assert weight.std() < 0.3  # the residuals' law hardly depends on the parameters
    assert abs(weight.mean() - 1) < 6 * weight.std() / len(weight) ** 0.5
    error = np.log(moved) - (special.digamma(b) - special.digamma(b.sum()))
    for power in (error, error**2 - special.polygamma(1, b) + special.polygamma(1, b.sum())):
        terms = weight[:, None] * power
        assert (np.abs(terms.mean(axis=0)) < 6 * terms.std(axis=0) / len(terms) ** 0.5).all()


def test_tables_interweave_together_where_they_share_most_parameters():
    def groups(own):
        with pm.Model() as model:
            mu, sd = pm.Normal("mu", shape=9), pm.HalfNormal("sd")
            means = [pm.Normal(f"m{i}", shape=9) for i in range(2)] if own else [mu, mu]
            for i, n in enumerate((4, 6)):
                x = pm.Normal(f"x{i}", means[i], sd, shape=(n, 9))
                pmdp.Privatized(f"s{i}", x.sum(axis=0), pmdp.Laplace(scale=9), observed=np.ones(9))
        blocks = record_blocks(model, record_variables(model))
        return [[b.names for b in group] for group in together(model, blocks)], pmdp.explain(model)

    found, explained = groups(own=False)
    assert found == [["'x0'", "'x1'"]]
    assert explained.interweaving == {"x0, x1": "interweaved with sd, mu"}
    found, explained = groups(own=True)
    assert found == [["'x0'"], ["'x1'"]]
    assert list(explained.interweaving) == ["x0", "x1"]


def plan_of(build):
    with pm.Model() as model:
        statistic = build()
        pmdp.Privatized("s", statistic, pmdp.Laplace(scale=1), observed=1)
    [block] = record_blocks(model, record_variables(model))
    return interweaving_plan(model, block)


def test_plans_and_reasons():
    rules, parameters = plan_of(lambda: pm.Normal("x", pm.Normal("mu"), 1, shape=3).sum())
    assert [rv.name for rv in rules] == ["x"]
    assert [rv.name for rv in parameters] == ["mu"]
    assert "no latent parameters" in plan_of(lambda: pm.Normal("x", 0, 1, shape=3).sum())
    assert "'x' (VonMises)" in plan_of(lambda: pm.VonMises("x", pm.Normal("mu"), 1, shape=3).sum())
    many = plan_of(lambda: pm.Normal("x", pm.Normal("mu", shape=40), 1, shape=40).sum())
    assert "40 parameters" in many


def test_regression_moves_y_with_x():
    def build():
        beta = pm.Normal("beta", shape=2)
        spread = pm.HalfNormal("spread")
        x = pm.Normal("x", 0, spread, shape=5)
        y = pm.Normal("y", beta[0] + beta[1] * x, 1, shape=5)
        return x @ y

    rules, parameters = plan_of(build)
    assert [rv.name for rv in rules] == ["x", "y"]
    assert {rv.name for rv in parameters} == {"spread", "beta"}


def test_moves_keep_residuals_in_a_model():
    with pm.Model() as model:
        sd = pm.HalfNormal("sd")
        slope = pm.Normal("slope")
        x = pm.Exponential("x", 1 / sd, shape=4)
        y = pm.Normal("y", slope * x, sd, shape=4)
        pmdp.Privatized("s", x @ y, pmdp.Laplace(scale=1), observed=1.0)
    [block] = record_blocks(model, record_variables(model))
    plan = interweaving_plan(model, block)
    point = model.initial_point()
    layout = PointLayout(model, plan[1], block.records, point, {})
    rng = np.random.default_rng(1)
    for name in ("x_log__", "y"):
        point[name] = rng.normal(size=4)
    move = Interweaving(model, plan, layout)
    theta, given, table = (f(point) for f in (layout.theta_of, layout.given_of, layout.table_of))
    proposal = theta + rng.normal(size=2)
    [density] = move.density(proposal, theta, given, table, table)
    [moved] = move.moved(proposal, theta, given, table, table)
    after = layout.point_of(point, proposal, moved)

    def residuals(p):
        sd, x = np.exp(p["sd_log__"]), np.exp(p["x_log__"])
        return np.concatenate([x / sd, (p["y"] - p["slope"] * x) / sd])

    assert abs(after["slope"] - point["slope"]) > 1e-3
    np.testing.assert_allclose(residuals(after), residuals(point), rtol=1e-9)
    prior = stats.halfnorm.logpdf(np.exp(after["sd_log__"])) + after["sd_log__"]
    released = np.exp(after["x_log__"]) @ after["y"]
    expected = prior + stats.norm.logpdf(after["slope"]) + stats.laplace.logpdf(1.0, released)
    np.testing.assert_allclose(density, expected)


@pytest.mark.wide
def test_shares_move_with_the_density_of_their_residuals():
    """The move's target is prior times noise times the density of what is drawn as a residual."""
    with pm.Model() as model:
        a = pm.Gamma("a", 3, 2, shape=2)
        x = pm.Dirichlet("x", a, shape=(5, 2))
        pmdp.Privatized("r", pt.log(x).sum(0), pmdp.Laplace(scale=3.0), observed=[-4.0, -5.0])
    [block] = record_blocks(model, record_variables(model))
    plan = interweaving_plan(model, block)
    point = model.initial_point()
    layout = PointLayout(model, plan[1], block.records, point, {"mode": "NUMBA"})
    move = Interweaving(model, plan, layout)
    state = [f(point) for f in (layout.theta_of, layout.given_of, layout.table_of)]
    [drawn] = move.draw(np.random.default_rng(3), *state)
    proposal = state[0] + [0.3, -0.4]
    [density] = move.density(proposal, *state, drawn)

    shape = np.exp(proposal)
    kept = [rows.T for rows in drawn.reshape(-1, 2, 5)]  # one residual a record and share
    log_g, log_residual = (
        v.eval(mode=ONCE) for v in from_gamma_residuals(list(map(pt.as_tensor, kept)), shape)
    )
    log_shares = log_g - special.logsumexp(log_g, axis=1, keepdims=True)
    prior = np.sum(stats.gamma(3, scale=0.5).logpdf(shape) + proposal)
    noise = np.sum(stats.laplace.logpdf([-4.0, -5.0], log_shares.sum(0), 3.0))
    np.testing.assert_allclose(density, prior + noise + log_residual.sum(), rtol=1e-8)


@pytest.mark.wide_except("strong privacy")
@pytest.mark.parametrize(
    ("upper", "scale", "released", "prior_sd", "ends"),
    [(5.0, 100.0, 80.0, 10.0, (-35, 35)), (0.5, 10.0, 5.0, 3.0, (-6, 12))],
    ids=["strong privacy", "a third of the records beyond the clamp"],
)
def test_where_the_plain_sampler_does_not_move(upper, scale, released, prior_sd, ends):
    # plain Algorithm 1 has 5 to 20 effective draws here; false-alarm rate 1e-5
    n = 100
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, prior_sd)
        x = pm.Normal("x", mu, 1, shape=n)
        pmdp.Privatized(
            "s", pmdp.clamp(x, -5, upper).sum(), pmdp.Laplace(scale=scale), observed=released
        )
    grid = np.linspace(*ends, 281)
    likelihood = oracles.sum_likelihood(
        released, n, oracles.ClampedNormal(1.0, -5, upper), oracles.Laplace(scale), grid
    )
    exact = oracles.posterior_from_likelihood(
        grid, stats.norm.logpdf(grid, 0, prior_sd), likelihood
    )
    posterior = draw(model, draws=8000)
    assert fewest_effective(posterior) > 400
    assert_same_distribution(values(posterior, "mu"), exact.cdf)


@pytest.mark.wide
def test_records_that_stay_enter_the_ratio():
    # y, a mixture, has no rule; x moves under it: false-alarm rate 1e-5
    n, released, scale = 3, 3.0, 0.2
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 2)
        x = pm.Normal("x", mu, 1, shape=n)
        y = pm.ZeroInflatedBinomial("y", psi=pm.math.sigmoid(2 * x), n=1, p=0.5, shape=n)
        pmdp.Privatized("s", y.sum() + 0 * x.sum(), pmdp.Laplace(scale=scale), observed=released)
    grid = np.linspace(-9, 9, 361)
    nodes = np.linspace(-10, 10, 2001)
    share = np.array(
        [
            integrate.simpson(special.expit(2 * (m + nodes)) * stats.norm.pdf(nodes) / 2, x=nodes)
            for m in grid
        ]
    )
    counts = np.arange(n + 1)
    likelihood = special.logsumexp(
        stats.binom.logpmf(counts, n, share[:, None]) - np.abs(released - counts) / scale, axis=1
    )
    exact = oracles.posterior_from_likelihood(grid, stats.norm.logpdf(grid, 0, 2), likelihood)
    assert_same_distribution(values(draw(model), "mu"), exact.cdf)


@pytest.mark.wide
def test_support_that_moves_with_a_parameter():
    # two uniform records have a triangular sum; false-alarm rate 1e-5
    released, scale = 3.0, 0.5
    with pm.Model() as model:
        top = pm.Gamma("top", 3, 1)
        x = pm.Uniform("x", 0, top, shape=2)
        pmdp.Privatized("s", x.sum(), pmdp.Laplace(scale=scale), observed=released)
    grid = np.linspace(0.01, 25, 1500)
    share = np.linspace(0, 2, 2001)
    noise = stats.laplace.logpdf(released, grid[:, None] * share, scale)
    density = np.minimum(share, 2 - share) * np.exp(noise)
    likelihood = np.log(integrate.simpson(density, x=share, axis=1))
    exact = oracles.posterior_from_likelihood(grid, stats.gamma.logpdf(grid, 3), likelihood)
    assert_same_distribution(values(draw(model), "top"), exact.cdf)


@pytest.mark.wide
def test_counts_with_a_wide_posterior():
    # the rate moves by many of a count's standard deviations; false-alarm rate 1e-5
    released, scale = 900.0, 300.0
    with pm.Model() as model:
        rate = pm.Gamma("rate", 3, 0.01)
        x = pm.Poisson("x", rate, shape=3)
        pmdp.Privatized("s", x.sum(), pmdp.Laplace(scale=scale), observed=released)
    grid = np.linspace(1, 2000, 1000)
    total = np.arange(8000)
    log_p = stats.poisson.logpmf(total, 3 * grid[:, None]) - np.abs(released - total) / scale
    exact = oracles.posterior_from_likelihood(
        grid, stats.gamma.logpdf(grid, 3, scale=100), special.logsumexp(log_p, axis=1)
    )
    assert_same_distribution(values(draw(model), "rate"), exact.cdf)


@pytest.mark.wide
def test_counts_under_a_prior_whose_rates_overflow():
    # the slice is as wide as the prior, and rates in it are beyond integers; false-alarm rate 1e-5
    released, sd = 1.0, 30.0
    with pm.Model() as model:
        log_rate = pm.Normal("log_rate", 0, sd)
        x = pm.Poisson("x", pt.exp(log_rate), shape=4)
        pmdp.Privatized("s", x.sum(), pmdp.Laplace(scale=1), observed=released)
    grid = np.linspace(-6 * sd, 6, 8001)
    total = np.arange(60)
    log_p = stats.poisson.logpmf(total, 4 * np.exp(grid[:, None])) - np.abs(released - total)
    exact = oracles.posterior_from_likelihood(
        grid, stats.norm.logpdf(grid, 0, sd), special.logsumexp(log_p, axis=1)
    )
    assert_same_distribution(values(draw(model), "log_rate"), exact.cdf)


def test_learned_while_tuning_and_frozen_afterwards():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 2)
        x = pm.Normal("x", mu, 1, shape=5)
        pmdp.Privatized("s", x.sum(), pmdp.Gaussian(sigma=5), observed=3)
        step = pmdp.RecordGibbs(rng=1, cycles=1)
    step.setup_chain(1, 100, 100)
    point = model.initial_point()
    for _ in range(100):
        point, _ = step.step(point)
    learned = step.sampling_state.tunings[0]
    assert 100 <= learned.learned < 120  # some draws are made ahead
    assert learned.cov[0, 0] > 0.05
    kept = {name: value.copy() for name, value in vars(learned).items()}
    assert kept.pop("turn") == learned.learned
    del kept["report"]
    step.stop_tuning()
    for _ in range(60):
        point, _ = step.step(point)
    for name, value in kept.items():
        np.testing.assert_array_equal(getattr(step.tunings[0], name), value)
    step.setup_chain(1, 0, 100)
    assert step.tunings[0].learned == 0
    assert not step.tune


def test_records_are_swept_in_some_rounds_where_parameters_reach_the_whole_statistic():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 2)
        x = pm.Normal("x", mu, 1, shape=600)
        pmdp.Privatized("s", x.sum(), pmdp.Gaussian(sigma=5), observed=3)
        step = pmdp.RecordGibbs()
    every = step.blocks[0].every
    assert every > 1
    step.setup_chain(1, 0, 10 * every)
    point, residuals, places, accept = model.initial_point(), [], [], []
    for _ in range(10 * every):
        point, [stats] = step.step(point)
        residuals.append(np.diff(point["x"]))  # which moves of mu and of both together keep
        places.append(point["x"].mean())
        accept.append(stats["accept"])
    assert np.all(np.abs(np.diff(places)) > 1e-9)  # records move along in every cycle
    changes = [not np.allclose(a, b) for a, b in pairwise(residuals)]
    assert sum(changes) == 9
    assert all(changes[every - 1 :: every])
    assert len(set(accept[:every])) == 1  # of the last sweep


def test_one_parameter_cannot_reach_two_statistics(made_only):
    with pm.Model():
        mu = pm.Normal("mu", 0, 2)
        x = pm.Normal("x", mu, 1, shape=5)
        pmdp.Privatized("s", pt.stack([x.sum(), x @ x]), pmdp.Gaussian(sigma=5), observed=[3, 9])
        assert not pmdp.RecordGibbs().blocks[0].reaches


def test_can_be_switched_off():
    with pm.Model():
        mu = pm.Normal("mu", 0, 2)
        x = pm.Normal("x", mu, 1, shape=5)
        pmdp.Privatized("s", x.sum(), pmdp.Gaussian(sigma=5), observed=3)
        assert pmdp.RecordGibbs(interweave=False).blocks[0].interweaving is None


@pytest.mark.wide
def test_two_tables_that_share_their_parameters_do_not_hold_them():
    # 2000 draws are worth about 30 where one table's records held the parameters
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 3, shape=2)
        for i, n in enumerate((80, 120)):
            x = pm.Normal(f"x{i}", mu, 1, shape=(n, 2)).clip(-5, 5)
            pmdp.Privatized(f"s{i}", x.sum(axis=0), pmdp.Laplace(scale=300), observed=[40.0, -60])
        step = pmdp.RecordGibbs()
    rng, point, draws = np.random.default_rng(1), model.initial_point(), []
    step.setup_chain(rng, 500, 2000)
    for i in range(2500):
        if i == 500:
            step.stop_tuning()
        point, _ = step.step(point)
        draws.append(point["mu"])
    chain = np.array(draws[500:])
    assert min(az.ess(chain[None, :, k]) for k in range(2)) > 300
