"""Noise on every record: densities by enumeration and quadrature, gradients, predictive draws."""

import itertools

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import integrate, special, stats

import pymc_dp as pmdp
from pymc_dp.analyst.marginal.strategy import integrated_out
from pymc_dp.graph.intervals import ONCE
from tests.checks import assert_same_distribution


def log_likelihood(small, name, point):
    """Log-density of every record's release, and the gradient of its sum by each parameter."""
    [logp] = small.logp(vars=[small[name]], sum=False)
    values = [small.rvs_to_values[small[key]] for key in point]
    grads = pytensor.grad(logp.sum(), values)
    return pytensor.function(values, [logp, *grads], mode=ONCE, on_unused_input="ignore")


def assert_gradients(fn, point, step=1e-6):
    """Compare gradients with finite differences."""
    at = [np.asarray(value, float) for value in point.values()]
    found = fn(*at)[1:]
    for which, value in enumerate(at):
        for place in np.ndindex(value.shape):
            ends = []
            for sign in (1, -1):
                moved = [v.copy() for v in at]
                moved[which][place] += sign * step
                ends.append(fn(*moved)[0].sum())
            np.testing.assert_allclose(
                found[which][place], (ends[0] - ends[1]) / (2 * step), rtol=2e-5, atol=2e-5
            )


def test_categories_with_covariates():
    rng = np.random.default_rng(1)
    n = 30
    X, coin = rng.normal(size=(n, 2)), pmdp.RandomizedResponse(3, keep=0.7)
    reports = rng.integers(3, size=n)
    with pm.Model() as model:
        b = pm.Normal("b", 0, 2, shape=(2, 3))
        x = pm.Categorical("x", logit_p=X @ b, shape=n)
        pmdp.Privatized("r", x, coin, observed=reports)
    small = pmdp.marginalize(model)
    assert [rv.name for rv in small.free_RVs] == ["b"]
    assert "summed over 3 values" in str(integrated_out(small)["r"])
    point = {"b": rng.normal(size=(2, 3))}
    fn = log_likelihood(small, "r", point)
    p = special.softmax(X @ point["b"], axis=1)
    expected = np.log((p * coin.matrix[:, reports].T).sum(axis=1))
    np.testing.assert_allclose(fn(*point.values())[0], expected, rtol=1e-12)
    assert_gradients(fn, point)


def test_two_variables_released_apart():
    rng = np.random.default_rng(2)
    n = 40
    first, second = pmdp.RandomizedResponse(2, keep=0.8), pmdp.Laplace(scale=0.7)
    reports, noisy = rng.integers(2, size=n), rng.normal(size=n)
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        q = pm.Beta("q", 1, 1, shape=2)
        x = pm.Bernoulli("x", p, shape=n)
        y = pm.Binomial("y", 3, q[x], shape=n)
        pmdp.Privatized("rx", x, first, observed=reports)
        pmdp.Privatized("ry", y, second, observed=noisy)
    small = pmdp.marginalize(model)
    assert {rv.name for rv in small.free_RVs} == {"p", "q"}
    at = {"p": 0.3, "q": np.array([0.2, 0.6])}
    total = 0
    for a, b in itertools.product(range(2), range(4)):
        law = stats.bernoulli.pmf(a, 0.3) * stats.binom.pmf(b, 3, at["q"][a])
        total = total + law * first.matrix[a, reports] * stats.laplace.pdf(noisy, b, 0.7)
    values = {name: special.logit(value) for name, value in at.items()}
    names = [f"{name}_logodds__" for name in values]
    logp = small.compile_logp(vars=small.observed_RVs, mode=ONCE, sum=True)
    np.testing.assert_allclose(
        logp(dict(zip(names, values.values(), strict=True))), np.log(total).sum(), rtol=1e-12
    )
    both = small.compile_logp(mode=ONCE)(dict(zip(names, values.values(), strict=True)))
    assert np.isfinite(both)


def test_tables_of_several_columns():
    rng = np.random.default_rng(3)
    coin = pmdp.RandomizedResponse(2, keep=0.8)
    reports = rng.integers(2, size=(20, 3))
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1, shape=3)
        x = pm.Bernoulli("x", p, shape=(20, 3))
        pmdp.Privatized("r", x, coin, observed=reports)
    small = pmdp.marginalize(model)
    p = np.array([0.2, 0.5, 0.9])
    fn = log_likelihood(small, "r", {"p": p})
    given = special.logit(p)
    each = p * coin.matrix[1, reports] + (1 - p) * coin.matrix[0, reports]
    np.testing.assert_allclose(fn(given)[0], np.log(each).sum(axis=1), rtol=1e-12)


@pytest.mark.parametrize("n", [1, 3, 200])
def test_alike_rows_are_counted_once(n):
    rng = np.random.default_rng(4)
    group, reports = rng.integers(2, size=n), rng.integers(2, size=n)
    coin = pmdp.RandomizedResponse(2, keep=0.8)
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1, shape=2)
        x = pm.Bernoulli("x", logit_p=a[group], shape=n)
        pmdp.Privatized("r", x, coin, observed=reports)
    small = pmdp.marginalize(model)
    point = {"a": np.array([0.4, -1.2])}
    fn = log_likelihood(small, "r", point)
    p = special.expit(point["a"])[group]
    expected = np.log(p * coin.matrix[1, reports] + (1 - p) * coin.matrix[0, reports])
    np.testing.assert_allclose(fn(*point.values())[0], expected, rtol=1e-12)
    assert_gradients(fn, point)
    if n == 200:
        [logp] = small.logp(vars=[small["r"]], sum=False)
        assert logp.owner.inputs[0].type.shape == (4,)


def test_rows_of_latent_vectors_are_not_counted_once():
    n = 50
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1, shape=n)
        x = pm.Bernoulli("x", logit_p=a, shape=n)
        pmdp.Privatized("r", x, pmdp.RandomizedResponse(2, keep=0.8), observed=np.ones(n, int))
    fn = log_likelihood(pmdp.marginalize(model), "r", {"a": None})
    at = np.linspace(-2, 2, n)
    p = special.expit(at)
    np.testing.assert_allclose(fn(at)[0], np.log(0.8 * p + 0.2 * (1 - p)), rtol=1e-12)


def test_release_in_data_can_change():
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        x = pm.Bernoulli("x", p, shape=6)
        reports = pm.Data("reports", np.ones(6, int))
        pmdp.Privatized("r", x, pmdp.RandomizedResponse(2, keep=0.8), observed=reports)
    small = pmdp.marginalize(model)
    fn = small.compile_logp(vars=[small["r"]], mode=ONCE)
    at = {"p_logodds__": np.array(special.logit(0.3))}
    np.testing.assert_allclose(fn(at), 6 * np.log(0.3 * 0.8 + 0.7 * 0.2))
    with small:
        pm.set_data({"reports": np.zeros(6, int)})
    np.testing.assert_allclose(fn(at), 6 * np.log(0.3 * 0.2 + 0.7 * 0.8))


CLAMPS = [None, (-2.0, 3.0)]


@pytest.mark.parametrize("clamp", CLAMPS)
@pytest.mark.parametrize("mechanism", [pmdp.Gaussian(sigma=0.8), pmdp.Laplace(scale=0.8)])
def test_normal_records_in_closed_form(mechanism, clamp):
    released = np.array([-9.0, -2.0, -1.9, 0.3, 3.0, 3.2, 14.0])
    with pm.Model() as model:
        mu, sigma = pm.Normal("mu", 0, 5), pm.Exponential("sigma", 1)
        x = pm.Normal("x", mu, sigma, shape=7)
        statistic = x if clamp is None else pmdp.clamp(x, *clamp)
        pmdp.Privatized("r", statistic, mechanism, observed=released)
    small = pmdp.marginalize(model)
    assert "closed form" in str(integrated_out(small)["r"])
    noise = stats.norm if isinstance(mechanism, pmdp.Gaussian) else stats.laplace
    law = stats.norm(0.4, 1.3)
    expected = [_integral(law.pdf, law.cdf, noise, 0.8, r, clamp, (-15, 15)) for r in released]
    point = {"mu": 0.4, "sigma": np.log(1.3)}
    fn = log_likelihood(small, "r", point)
    np.testing.assert_allclose(fn(*point.values())[0], np.log(expected), rtol=1e-9)
    assert_gradients(fn, point)
    far = fn(1e3, np.log(1e-2))
    assert all(np.isfinite(part).all() for part in far)


def _integral(pdf, cdf, noise, scale, released, clamp, ends):
    """Density of clamp(x) + noise by adaptive quadrature."""
    low, high = ends if clamp is None else clamp
    middle = [at for at in (released, released - 3 * scale, released + 3 * scale, 0.0, 1.0)]
    places = sorted({low, high, *(at for at in middle if low < at < high)})

    def inside(x):
        return pdf(x) * noise.pdf(released - x, scale=scale)

    pieces = itertools.pairwise(places)
    total = sum(
        integrate.quad(inside, a, b, epsabs=0, epsrel=1e-10, limit=200)[0] for a, b in pieces
    )
    if clamp is not None:
        total += cdf(low) * noise.pdf(released - low, scale=scale)
        total += (1 - cdf(high)) * noise.pdf(released - high, scale=scale)
    return total


def gamma_records():
    return pm.Gamma("x", 2.5, pm.Exponential("rate", 1), shape=5), stats.gamma(2.5, scale=1 / 0.7)


def student_records():
    return (
        pm.StudentT("x", 4, mu=0.3, sigma=pm.Exponential("rate", 1), shape=5),
        stats.t(4, 0.3, 0.7),
    )


def beta_records():
    return pm.Beta("x", 2.0, 1 + pm.Exponential("rate", 1), shape=5), stats.beta(2.0, 1.7)


@pytest.mark.wide_except("gamma_records-0.5-clamp1", "student_records-0.5-None")
@pytest.mark.parametrize(
    ("records", "scale", "clamp"),
    [
        (gamma_records, 0.05, None),
        (gamma_records, 0.5, (0.2, 1.5)),
        (student_records, 0.5, None),
        (beta_records, 20.0, None),
        (beta_records, 0.05, (0.2, 1.5)),
    ],
)
def test_other_records_by_quadrature(records, scale, clamp):
    released = np.array([-0.5, 0.25, 0.9, 1.5, 2.5])
    with pm.Model() as model:
        x, law = records()
        statistic = x if clamp is None else pmdp.clamp(x, *clamp)
        pmdp.Privatized("r", statistic, pmdp.Laplace(scale=scale), observed=released)
    small = pmdp.marginalize(model)
    assert "nodes for all records" in str(integrated_out(small)["r"])
    # Student's law has tails that quadrature needs room for; its density there is below 1e-12
    ends = (-3e3, 3e3) if records is student_records else (law.support()[0], law.isf(1e-17))
    expected = [_integral(law.pdf, law.cdf, stats.laplace, scale, r, clamp, ends) for r in released]
    point = {"rate": np.log(0.7)}
    fn = log_likelihood(small, "r", point)
    np.testing.assert_allclose(fn(*point.values())[0], np.log(expected), rtol=1e-6, atol=1e-6)
    assert_gradients(fn, point)


def test_laws_too_narrow_for_the_grid_are_impossible():
    """A grid that the prior's draws did not make fine enough says so, not a wrong density."""
    with pm.Model() as model:
        x = pm.Gamma("x", pm.LogNormal("shape", 0, 1), 1.0, shape=3)
        pmdp.Privatized("r", x, pmdp.Gaussian(sigma=0.5), observed=[0.1, 0.7, 2.0])
    small = pmdp.marginalize(model)
    assert "nodes for all records" in str(integrated_out(small)["r"])
    density = small.compile_logp(vars=[small["r"]], mode=ONCE)
    assert np.isfinite(density({"shape_log__": 0.5}))
    assert density({"shape_log__": np.log(1e5)}) == -np.inf


def test_priors_that_make_no_grid_are_integrated_record_by_record():
    """Shapes near zero: draws of the prior ask for more pieces than a grid has."""
    with pm.Model() as model:
        x = pm.Gamma("x", pm.Exponential("shape", 1), 1.0, shape=3)
        pmdp.Privatized("r", x, pmdp.Gaussian(sigma=0.5), observed=[0.1, 0.7, 2.0])
    assert "nodes a piece" in str(integrated_out(pmdp.marginalize(model))["r"])


def test_two_questions_without_covariates():
    """Probabilities that all records share: nothing in the density's graph has a row a record."""
    rng = np.random.default_rng(6)
    n, coin = 60, pmdp.RandomizedResponse(2, keep=0.8)
    rx, ry = rng.integers(2, size=(2, n))
    with pm.Model() as model:
        p, q = pm.Beta("p", 1, 1), pm.Beta("q", 1, 1, shape=2)
        x = pm.Bernoulli("x", p, shape=n)
        y = pm.Bernoulli("y", q[x], shape=n)
        pmdp.Privatized("rx", x, coin, observed=rx)
        pmdp.Privatized("ry", y, coin, observed=ry)
    small = pmdp.marginalize(model)
    at = {"p": 0.3, "q": np.array([0.2, 0.6])}
    table = np.array([[0.7 * 0.8, 0.7 * 0.2], [0.3 * 0.4, 0.3 * 0.6]])
    expected = np.log((coin.matrix.T @ table @ coin.matrix)[rx, ry])
    point = {name: special.logit(value) for name, value in at.items()}
    fn = log_likelihood(small, "rx", point)
    np.testing.assert_allclose(fn(*point.values())[0], expected, rtol=1e-12)
    assert_gradients(fn, point)
    total = pytensor.function(small.value_vars, small.logp(vars=[small["rx"]]), mode="FAST_RUN")
    nodes = total.maker.fgraph.apply_nodes
    assert all(
        n not in var.type.shape
        for node in nodes
        for var in [*node.inputs, *node.outputs]
        if hasattr(var.type, "shape")
    )


def test_thresholds_of_continuous_records():
    reports = np.array([0, 1, 1, 0, 1])
    coin = pmdp.RandomizedResponse(2, keep=0.8)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        x = pm.Logistic("x", mu, 1, shape=5)
        pmdp.Privatized("r", (x > 0.4).astype("int64"), coin, observed=reports)
    fn = log_likelihood(pmdp.marginalize(model), "r", {"mu": 0.1})
    p = special.expit(0.1 - 0.4)
    expected = np.log(p * coin.matrix[1, reports] + (1 - p) * coin.matrix[0, reports])
    np.testing.assert_allclose(fn(0.1)[0], expected, rtol=1e-7)


@pytest.mark.parametrize("clamp", [None, (1, 6)])
def test_counts_without_a_largest_value(clamp):
    released = np.array([-2, 0, 1, 5, 6, 7, 20])
    with pm.Model() as model:
        rate = pm.Exponential("rate", 1)
        x = pm.NegativeBinomial("x", rate, 2.0, shape=7)
        statistic = x if clamp is None else pmdp.clamp(x, *clamp)
        pmdp.Privatized("r", statistic, pmdp.DiscreteLaplace(scale=1.5), observed=released)
    small = pmdp.marginalize(model)
    point = {"rate": np.log(3.0)}
    fn = log_likelihood(small, "r", point)
    values = np.arange(3000)
    pmf = stats.nbinom.pmf(values, 2.0, 2.0 / (2.0 + 3.0))
    seen = values if clamp is None else np.clip(values, *clamp)
    q = np.exp(-1 / 1.5)
    noise = (1 - q) / (1 + q) * q ** np.abs(released[:, None] - seen)
    np.testing.assert_allclose(fn(*point.values())[0], np.log(noise @ pmf), rtol=1e-7)
    assert_gradients(fn, point)


@pytest.mark.parametrize("upper", [2.5, -1.0])
def test_counts_clipped_between_whole_numbers(upper):
    with pm.Model() as model:
        lam = pm.Uniform("lam", 0, 20, default_transform=None)
        x = pm.Poisson("x", lam, shape=1)
        pmdp.Privatized("r", pt.clip(x, -4, upper), pmdp.Gaussian(sigma=0.3), observed=[2.0])
    logp = pmdp.marginalize(model).compile_logp(mode=ONCE)
    k = np.arange(200)
    for rate in (0.5, 3.0, 15.0):
        clipped = stats.norm.pdf(2.0, np.clip(k, -4, upper), 0.3)
        exact = np.log(stats.poisson.pmf(k, rate) @ clipped) - np.log(20)
        assert logp({"lam": np.array(rate)}) == pytest.approx(exact, abs=1e-6)


def test_counts_that_contradict_what_was_released():
    """The values that matter are some 60 scales of noise away from the release."""
    with pm.Model() as model:
        x = pm.Poisson("x", pm.Flat("lam"), shape=1)
        pmdp.Privatized("r", x, pmdp.Laplace(scale=0.5), observed=[1.0])
    logp = pmdp.marginalize(model).compile_logp(mode=ONCE)
    k = np.arange(1000)
    for rate in (20.0, 250.0):
        terms = stats.poisson.logpmf(k, rate) + stats.laplace.logpdf(1.0, k, 0.5)
        assert logp({"lam": np.array(rate)}) == pytest.approx(special.logsumexp(terms), abs=1e-6)


def test_predictive_draws_are_those_of_the_model():
    """Chi-square over the joint table of two reports and a group; false alarms 1e-5."""
    group = np.repeat([0, 1], 2000)
    coin = pmdp.RandomizedResponse(2, keep=0.8)
    with pm.Model() as model:
        p = pm.Beta("p", 2, 2, shape=2)
        x = pm.Bernoulli("x", p[group], shape=4000)
        y = pm.Bernoulli("y", 0.2 + 0.5 * x, shape=4000)
        pmdp.Privatized("rx", x, coin, observed=np.zeros(4000, int))
        pmdp.Privatized("ry", y, coin, observed=np.zeros(4000, int))
    small = pmdp.marginalize(model)
    tables = []
    for seed, each in enumerate((model, small)):
        do = pm.do(each, {"p": np.array([0.3, 0.8])})
        rx, ry = pm.draw([do["rx"], do["ry"]], random_seed=seed, mode=ONCE)
        tables.append(np.bincount(group * 4 + rx * 2 + ry, minlength=8))
    assert stats.chi2_contingency(np.array(tables))[1] > 1e-5


def shared_share():
    """200 reports of records that share one probability, and its posterior, known on a grid."""
    rng = np.random.default_rng(5)
    coin = pmdp.RandomizedResponse(2, keep=0.8)
    reports = (rng.random(200) < 0.45).astype(int)
    with pm.Model() as model:
        p = pm.Beta("p", 2, 2)
        x = pm.Bernoulli("x", p, shape=200)
        pmdp.Privatized("r", x, coin, observed=reports)
    grid = np.linspace(0, 1, 4001)[1:-1]
    share = grid * 0.8 + (1 - grid) * 0.2
    log_post = stats.beta(2, 2).logpdf(grid) + reports.sum() * np.log(share)
    log_post += (200 - reports.sum()) * np.log1p(-share)
    return pmdp.marginalize(model), grid, log_post


def test_posterior_of_the_mixture():
    """At every place of the grid; PyMC samples it, and finds every record's share of it."""
    small, grid, log_post = shared_share()
    logp = small.compile_logp(jacobian=False, mode=ONCE)
    found = [logp({"p_logodds__": special.logit(p)}) for p in grid[::20]]
    np.testing.assert_allclose(found, log_post[::20], rtol=1e-8)
    quick = {"progressbar": False, "compile_kwargs": {"mode": ONCE}}
    with small:
        short = {"chains": 2, "cores": 1, "random_seed": 1, "compute_convergence_checks": False}
        idata = pm.sample(15, tune=15, **short, **quick)
        pm.compute_log_likelihood(idata, **quick)
    assert idata.log_likelihood["r"].shape == (2, 15, 200)
    p = idata.posterior["p"].values
    expected = np.interp(p, grid, log_post - stats.beta(2, 2).logpdf(grid))
    np.testing.assert_allclose(idata.log_likelihood["r"].sum("r_dim_0"), expected, rtol=1e-5)


@pytest.mark.wide
def test_nuts_has_the_posterior_of_the_mixture():
    small, grid, log_post = shared_share()
    with small:
        idata = pm.sample(1500, tune=500, chains=2, cores=1, random_seed=1, progressbar=False)
    weight = np.exp(log_post - log_post.max())
    cdf = np.cumsum(weight) / weight.sum()
    assert_same_distribution(idata.posterior["p"].values, lambda v: np.interp(v, grid, cdf))


def test_refuses_what_it_cannot_do():
    with pm.Model() as sums:
        x = pm.Normal("x", 0, 1, shape=5)
        pmdp.Privatized("r", x.sum(), pmdp.Laplace(scale=1), observed=1.0)
    with pytest.raises(ValueError, match="noise on every record, and 'r' released sums"):
        pmdp.marginalize(sums, method="exact")
    with pm.Model() as plane:
        x = pm.Gamma("x", 2, pm.Exponential("b", 1), shape=5)
        y = pm.Gamma("y", 2, x, shape=5)
        pmdp.Privatized("rx", pmdp.clamp(x, 0, 3), pmdp.Laplace(scale=1), observed=np.ones(5))
        pmdp.Privatized("ry", pmdp.clamp(y, 0, 3), pmdp.Laplace(scale=1), observed=np.ones(5))
    with pytest.raises(ValueError, match="'x' and 'y' would make an integral of 2 dimensions"):
        pmdp.marginalize(plane, method="exact")
    with pm.Model() as wide:
        x = pm.Bernoulli("x", pm.Beta("p", 1, 1), shape=(5, 12))
        coin = pmdp.RandomizedResponse(2, keep=0.7)
        pmdp.Privatized("r", x, coin, observed=np.ones((5, 12), int))
    with pytest.raises(ValueError, match="4096 combinations"):
        pmdp.marginalize(wide, method="exact")
    with pm.Model() as jumps:
        x = pm.Gamma("x", 2, pm.Exponential("b", 1), shape=5)
        noise = pmdp.Laplace(scale=0.1)
        pmdp.Privatized("r", pt.floor(3 * x), noise, observed=np.ones(5))
    with pytest.raises(ValueError, match="not accurate"):
        pmdp.marginalize(jumps, method="exact")
