"""Moments of sums over records, against integrals and sums that do not use the package."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.graph.replace import graph_replace
from scipy import special, stats

import pymc_dp as pmdp
from pymc_dp.analyst.marginal.normal.moments import Contributions
from pymc_dp.analyst.records import record_blocks, record_variables
from pymc_dp.graph.intervals import ONCE

PLAIN = Mode(linker="py", optimizer=None)
N = 1000
NOISE = pmdp.Gaussian(sigma=1.0)


def found_moments(model, order):
    """Moments as a function of the model's parameters, by name."""
    block = record_blocks(model, record_variables(model))[0]
    contributions = Contributions(model, block)
    moments = contributions.closed_form() if order is None else contributions.by_nodes(order)
    entries = [entry for row in moments.covariances for entry in row]
    places = {rv: rv.type(rv.name) for rv in model.free_RVs if rv not in block.records}
    graphs = graph_replace([pt.stack(moments.means), pt.stack(entries)], places, strict=False)
    names = {rv.name: place for rv, place in places.items()}
    evaluate = pytensor.function(list(names.values()), graphs, mode=PLAIN, on_unused_input="ignore")
    return lambda **at: evaluate(*(np.asarray(at[name], float) for name in names))


def integrated(density, functions, low, high, breaks=()):
    """Mean and lower triangle of the covariance of functions of one number, by a fine rule."""
    edges = np.unique(np.concatenate([np.linspace(low, high, 3000), breaks]))
    nodes, weights = np.polynomial.legendre.leggauss(12)
    half = np.diff(edges)[:, None] / 2
    x = (edges[:-1, None] + half + half * nodes).ravel()
    w = (half * weights).ravel() * density(x)
    values = np.array([f(x) for f in functions])
    means = values @ w / w.sum()
    covariance = (values - means[:, None]) * w / w.sum() @ (values - means[:, None]).T
    return means, covariance[np.tril_indices(len(functions))]


FUNCTIONS = {
    "sum": (lambda x: x, lambda x: x),
    "clamped": (lambda x: pmdp.clamp(x, -1, 2), lambda x: np.clip(x, -1, 2)),
    "square": (lambda x: pmdp.clamp(x, -1, 2) ** 2, lambda x: np.clip(x, -1, 2) ** 2),
    "clamped square": (lambda x: pmdp.clamp(x**2, 0, 3), lambda x: np.clip(x**2, 0, 3)),
    "above": (lambda x: (x > 0.7) * 1.0, lambda x: (x > 0.7) * 1.0),
    "size": (lambda x: pt.abs(x - 0.3), lambda x: np.abs(x - 0.3)),
    "cube": (lambda x: x**3 - x, lambda x: x**3 - x),
}
BREAKS = [-1, 0, 0.3, 0.7, np.sqrt(3), -np.sqrt(3), 2]


@pytest.mark.parametrize("order", [None, 16])
def test_functions_of_normal_records(order):
    with pm.Model() as model:
        m, s = pm.Normal("m", 0, 1), pm.HalfNormal("s", 1)
        x = pm.Normal("x", m, s, shape=N)
        sums = pt.stack([f(x).sum() for f, _ in FUNCTIONS.values()])
        pmdp.Privatized("r", sums, NOISE, observed=np.zeros(len(FUNCTIONS)))
    found = found_moments(model, order)
    for mu, sigma in [(0.2, 1.3), (-6.0, 2.0), (1.5, 0.01), (40.0, 1.0)]:
        means, covariances = found(m=mu, s=sigma)
        expected = integrated(
            stats.norm(mu, sigma).pdf,
            [f for _, f in FUNCTIONS.values()],
            mu - 9 * sigma,
            mu + 9 * sigma,
            BREAKS,
        )
        scale = np.sqrt(np.outer(*[expected[1][[0, 2, 5, 9, 14, 20, 27]]] * 2))
        bound = 1e-7 * scale[np.tril_indices(7)] + 1e-9
        np.testing.assert_allclose(means / N, expected[0], rtol=1e-8, atol=1e-9)
        np.testing.assert_array_less(np.abs(covariances / N - expected[1]), bound)


GAMMA_FUNCTIONS = {
    "sum": (lambda x: x, lambda x: x),
    "clamped": (lambda x: pmdp.clamp(x, 0, 2), lambda x: np.clip(x, 0, 2)),
    "clamped square": (lambda x: pmdp.clamp(x, 0.5, 2) ** 2, lambda x: np.clip(x, 0.5, 2) ** 2),
    "above": (lambda x: (x > 0.7) * 1.0, lambda x: (x > 0.7) * 1.0),
    "size": (lambda x: pt.abs(x - 0.3), lambda x: np.abs(x - 0.3)),
}


@pytest.mark.parametrize("alpha", [0.5, 1.0, 30.0])
def test_functions_of_gamma_records_in_closed_form(alpha):
    with pm.Model() as model:
        s = pm.HalfNormal("s", 1)
        x = (
            pm.Exponential("x", scale=s, shape=N)
            if alpha == 1
            else pm.Gamma("x", alpha, 1 / s, shape=N)
        )
        sums = pt.stack([f(x).sum() for f, _ in GAMMA_FUNCTIONS.values()])
        pmdp.Privatized("r", sums, NOISE, observed=np.zeros(len(GAMMA_FUNCTIONS)))
    found = found_moments(model, None)
    for scale in (1e-3, 0.4, 3.0, 1e4):
        means, covariances = found(s=scale)
        # in the logarithm of x, where the density is smooth at zero, too
        law = stats.gamma(alpha, scale=scale)
        low, high = np.log(law.ppf(1e-15)), np.log(law.isf(1e-15)) + 1
        expected = integrated(
            lambda u, law=law: law.pdf(np.exp(u)) * np.exp(u),
            [lambda u, f=f: f(np.exp(u)) for _, f in GAMMA_FUNCTIONS.values()],
            low,
            high,
            np.log([0.3, 0.5, 0.7, 2]).clip(low, high),
        )
        sd = np.sqrt(expected[1][[0, 2, 5, 9, 14]])
        np.testing.assert_allclose(means / N, expected[0], rtol=1e-6, atol=1e-9)
        bound = 1e-6 * np.outer(sd, sd)[np.tril_indices(5)] + 1e-12
        np.testing.assert_array_less(np.abs(covariances / N - expected[1]), bound)


def test_gamma_records_of_different_shapes_and_a_gradient():
    shapes = np.repeat([0.5, 2.0, 7.0], [300, 500, 200])
    with pm.Model() as model:
        rate = pm.HalfNormal("rate", 1)
        x = pm.Gamma("x", shapes, rate, shape=N)
        pmdp.Privatized("r", pmdp.clamp(x, 0, 3).sum(), NOISE, observed=0.0)
    block = record_blocks(model, record_variables(model))[0]
    moments = Contributions(model, block).closed_form()
    value = pt.dscalar()
    graphs = graph_replace([moments.means[0], moments.covariances[0][0]], {rate: value})
    evaluate = pytensor.function(
        [value], [*graphs, *(pt.grad(graph, value) for graph in graphs)], mode=ONCE
    )
    for at in (0.2, 1.0, 40.0):
        mean, variance, by_mean, by_variance = evaluate(at)
        laws = [stats.gamma(a, scale=1 / at) for a in (0.5, 2, 7)]
        m = [law.expect(lambda v: np.clip(v, 0, 3), 0, 3) + 3 * law.sf(3) for law in laws]
        m2 = [law.expect(lambda v: np.clip(v, 0, 3) ** 2, 0, 3) + 9 * law.sf(3) for law in laws]
        spread = np.array(m2) - np.array(m) ** 2
        np.testing.assert_allclose(mean, np.dot([300, 500, 200], m), rtol=1e-7)
        np.testing.assert_allclose(variance, np.dot([300, 500, 200], spread), rtol=1e-6)
        above, below = evaluate(at * (1 + 1e-6)), evaluate(at * (1 - 1e-6))
        slopes = [(up - down) / (2e-6 * at) for up, down in zip(above[:2], below[:2], strict=True)]
        np.testing.assert_allclose([by_mean, by_variance], slopes, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("shape", ["latent", "data", "large"])
def test_gamma_records_that_have_no_closed_form(shape):
    with pm.Model() as model:
        a = pm.HalfNormal("a", 1)
        alpha = {"latent": a, "data": pm.Data("d", 2.0), "large": 2e3}[shape]
        x = pm.Gamma("x", alpha, a, shape=N)
        pmdp.Privatized("r", pmdp.clamp(x, 0, 3).sum(), NOISE, observed=0.0)
    block = record_blocks(model, record_variables(model))[0]
    assert Contributions(model, block).closed_form() is None


FAMILIES = {
    "gamma": (
        lambda a: pm.Gamma.dist(a, 2, shape=N),
        lambda a: stats.gamma(a, scale=0.5),
        (0.37, 3.0),
    ),
    "exponential": (
        lambda a: pm.Exponential.dist(a, shape=N),
        lambda a: stats.expon(scale=1 / a),
        (0.5, 9),
    ),
    "lognormal": (
        lambda a: pm.LogNormal.dist(a, 1, shape=N),
        lambda a: stats.lognorm(1, scale=np.exp(a)),
        (0.2,),
    ),
    "student": (
        lambda a: pm.StudentT.dist(nu=4, mu=a, sigma=1, shape=N),
        lambda a: stats.t(4, a),
        (0.2, 3),
    ),
    "beta": (lambda a: pm.Beta.dist(a, 2, shape=N), lambda a: stats.beta(a, 2), (0.6, 4)),
    "uniform": (lambda a: pm.Uniform.dist(0, a, shape=N), lambda a: stats.uniform(0, a), (1.1, 6)),
    "weibull": (lambda a: pm.Weibull.dist(a, 1, shape=N), lambda a: stats.weibull_min(a), (0.8, 2)),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_clamped_sums_of_other_families(name):
    make, law, places = FAMILIES[name]
    with pm.Model() as model:
        a = pm.HalfNormal("a", 1)
        x = model.register_rv(make(a), "x")
        total = pt.stack([pmdp.clamp(x, 0.1, 2).sum(), (x > 0.4).sum()])
        pmdp.Privatized("r", total, NOISE, observed=[0.0, 0.0])
    found = found_moments(model, 16)
    for place in places:
        means, covariances = found(a=place)
        u = np.linspace(-38, 38, 400_001)  # even steps of the logit resolve both tails
        p = 1 / (1 + np.exp(-u))
        w = p * (1 - p)
        x = law(place).ppf(p)
        values = np.array([np.clip(x, 0.1, 2), x > 0.4])
        expected = values @ w / w.sum()
        spread = (values - expected[:, None]) * w / w.sum() @ (values - expected[:, None]).T
        np.testing.assert_allclose(means / N, expected, atol=2e-4)
        np.testing.assert_allclose(covariances / N, spread[np.tril_indices(2)], atol=4e-4)


@pytest.mark.parametrize(
    ("make", "law", "at"),
    [
        (lambda a: pm.Poisson.dist(a, shape=N), lambda a: stats.poisson(a), (0.3, 7, 900.0)),
        (
            lambda a: pm.Binomial.dist(30, a / 1000, shape=N),
            lambda a: stats.binom(30, a / 1000),
            (300,),
        ),
        (
            lambda a: pm.NegativeBinomial.dist(mu=a, alpha=3, shape=N),
            lambda a: stats.nbinom(3, 3 / (3 + a)),
            (0.3, 7),
        ),
    ],
)
def test_counts(make, law, at):
    with pm.Model() as model:
        a = pm.HalfNormal("a", 1)
        x = model.register_rv(make(a), "x")
        pmdp.Privatized("r", pmdp.clamp(x, 1, 6).sum(), pmdp.DiscreteLaplace(scale=2), observed=3)
    k = np.arange(3000)
    found = found_moments(model, 8)
    for place in at:
        means, covariances = found(a=place)
        p, values = law(place).pmf(k), np.clip(k, 1, 6)
        np.testing.assert_allclose(means[0] / N, p @ values, atol=1e-9)
        np.testing.assert_allclose(covariances[0] / N, p @ values**2 - (p @ values) ** 2, atol=1e-8)


def test_public_covariates_are_summed_over_their_kinds():
    design = np.stack([np.ones(N), np.arange(N) % 4], axis=1)
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=2)
        y = pm.Bernoulli("y", logit_p=design @ b)
        pmdp.Privatized("r", design.T @ y, NOISE, observed=np.zeros(2))
    means, covariances = found_moments(model, 8)(b=[0.5, -0.3])
    p = 1 / (1 + np.exp(-design @ [0.5, -0.3]))
    np.testing.assert_allclose(means, design.T @ p)
    spread = (design * (p * (1 - p))[:, None]).T @ design
    np.testing.assert_allclose(covariances, spread[np.tril_indices(2)])


def test_two_record_variables():
    with pm.Model() as model:
        m, b = pm.Normal("m", 0, 1), pm.Normal("b", 0, 1)
        x = pm.Normal("x", m, 1, shape=N)
        y = pm.Normal("y", b * x, 0.5)
        sums = pt.stack(
            [pmdp.clamp(x, -1, 2).sum(), (pmdp.clamp(y, -1, 1) * pmdp.clamp(x, -1, 2)).sum()]
        )
        pmdp.Privatized("r", sums, NOISE, observed=np.zeros(2))
    means, covariances = found_moments(model, 12)(m=0.5, b=0.7)
    g = np.linspace(-9, 9, 3001)
    x, e = 0.5 + g[:, None], g[None, :]
    w = stats.norm.pdf(g)[:, None] * stats.norm.pdf(g)[None, :]
    w /= w.sum()
    cx, cy = np.clip(x, -1, 2) + 0 * e, np.clip(0.7 * x + 0.5 * e, -1, 1)
    expected = [(w * cx).sum(), (w * cx * cy).sum()]
    np.testing.assert_allclose(means / N, expected, atol=2e-5)
    second = [(w * cx**2).sum(), (w * cx**2 * cy).sum(), (w * (cx * cy) ** 2).sum()]
    spread = np.array(second) - np.outer(expected, expected)[np.tril_indices(2)]
    np.testing.assert_allclose(covariances / N, spread, atol=2e-5)


def test_what_is_added_to_sums_is_kept():
    with pm.Model() as model:
        m = pm.Normal("m", 0, 1)
        x = pm.Normal("x", m, 1, shape=N)
        statistic = 2 * pt.stack([x.sum() + 3, x.mean()]) + pt.stack([m, 7.0])
        pmdp.Privatized("r", statistic, NOISE, observed=np.zeros(2))
    contributions = Contributions(model, record_blocks(model, record_variables(model))[0])
    constants = graph_replace(
        contributions.constants(), {model["m"]: pt.constant(np.float64(0.25))}, strict=False
    )
    assert [float(c.eval(mode=ONCE)) for c in constants] == [6.25, 7.0]
    means, covariances = found_moments(model, None)(m=0.25)
    np.testing.assert_allclose(means, [2 * N * 0.25, 2 * 0.25])
    np.testing.assert_allclose(covariances, [4 * N, 4, 4 / N])


@pytest.mark.parametrize("a", [(12.0, 2.3, 9.0), (2.0, 5.0)])
def test_logarithms_of_simplexes(a):
    with pm.Model() as model:
        concentration = pm.Gamma("a", 1, 0.1, shape=len(a))
        x = pm.Dirichlet("x", concentration, shape=(N, len(a)))
        pmdp.Privatized("r", pt.log(x).mean(axis=0), NOISE, observed=np.zeros(len(a)))
    means, covariances = found_moments(model, 16)(a=a)
    np.testing.assert_allclose(means, special.digamma(a) - special.digamma(sum(a)), rtol=1e-6)
    expected = np.diag(special.polygamma(1, a)) - special.polygamma(1, sum(a))
    lower = expected[np.tril_indices(len(a))]
    np.testing.assert_allclose(N * covariances, lower, rtol=2e-3)


def test_kinks_of_several_numbers_a_record():
    # a mean over both axes divides by lengths, and clamps act on each number
    with pm.Model() as model:
        m = pm.Normal("m", 0, 1)
        x = pm.Normal("x", m, 1, shape=(N, 2))
        pmdp.Privatized("r", pmdp.clamp(x, -1, 0.5).mean(axis=0), NOISE, observed=np.zeros(2))
    means, covariances = found_moments(model, 8)(m=0.3)
    mean, variance = integrated(
        stats.norm(0.3, 1).pdf, [lambda x: np.clip(x, -1, 0.5)], -9, 9, [-1, 0.5]
    )
    np.testing.assert_allclose(means, [mean[0]] * 2, rtol=1e-7)
    np.testing.assert_allclose(N * covariances, [variance[0], 0, variance[0]], atol=1e-7)


@pytest.mark.parametrize("upper", [3.0, np.array([3.0, 1.0] * 50)], ids=["all", "each"])
def test_censored_times_have_their_atom(upper):
    """Times that are cut off: the mean and square of min(T, c) in closed form."""
    with pm.Model() as model:
        rate = pm.Gamma("rate", 2, 2)
        y = pm.Censored("y", pm.Exponential.dist(rate), lower=None, upper=upper, shape=100)
        pmdp.Privatized("s", y.sum(), pmdp.Gaussian(sigma=1.0), observed=80.0)
    means, covariances = found_moments(model, 8)(rate=0.5)
    ends = np.broadcast_to(upper, 100)
    mean = (1 - np.exp(-0.5 * ends)) / 0.5
    square = 2 * (1 - np.exp(-0.5 * ends) * (1 + 0.5 * ends)) / 0.25
    np.testing.assert_allclose(means, mean.sum(), rtol=1e-9)
    np.testing.assert_allclose(covariances, (square - mean**2).sum(), rtol=1e-9)


@pytest.mark.wide
def test_scores_of_survival_and_mixtures_can_be_declared():
    """A score at one place, held by length: its mean there is the derivative of nothing, zero."""
    rng = np.random.default_rng(2)
    times = np.minimum(rng.exponential(2.0, size=400), 3.0)

    def survival(**kwargs):
        with pm.Model() as model:
            rate = pm.Gamma("rate", 2, 2)
            pm.Censored("y", pm.Exponential.dist(rate), lower=None, upper=3.0, **kwargs)
        return model

    with survival(observed=times):
        release = pmdp.score_release(at={"rate": 0.5}, clip=50.0, epsilon=1, delta=1e-6)
    with survival(shape=400) as model:
        release.declare("score")
    means, _ = found_moments(model, 8)(rate=0.5)
    np.testing.assert_allclose(means, 0.0, atol=1e-6)

    def mixture(**kwargs):
        with pm.Model() as model:
            w = pm.Beta("w", 2, 2)
            pm.NormalMixture("y", pm.math.stack([w, 1 - w]), [-1.0, 2.0], 1.0, **kwargs)
        return model

    with mixture(observed=rng.normal(size=400)):
        release = pmdp.score_release(at={"w": 0.4}, clip=1.0, epsilon=1, delta=1e-6)
    with mixture(shape=400) as model:
        release.declare("score")
    assert "RecordGibbs" in str(pmdp.explain(model))
    with pytest.raises(ValueError, match="cannot be integrated out"):
        pmdp.marginalize(model)


def clamped_moments(mean, bound):
    """Mean and mean square of N(mean, 1) clamped to +-bound."""
    x = np.linspace(mean - 12, mean + 12, 400_001)
    weight = stats.norm.pdf(x - mean) * (x[1] - x[0])
    held = np.clip(x, -bound, bound)
    return weight @ held, weight @ held**2


def test_a_count_of_classes_and_a_sum_given_them():
    """Normal law of two sums of records (k, x given k), written out by quadrature."""
    released, n = np.array([26.5, 64.2]), 200
    with pm.Model() as model:
        p, c = pm.Beta("p", 1, 1), pm.Normal("c", 0, 1)
        k = pm.Bernoulli("k", p, shape=n)
        x = pm.Normal("x", c * k, 1, shape=n)
        sums = pt.stack([pmdp.clamp(x, -2, 2).sum(), k.sum()])
        pmdp.Privatized("sums", sums, pmdp.Gaussian(sigma=2), observed=released)
    small = pmdp.marginalize(model, method="normal")
    logp = small.compile_logp(vars=[small["sums"]], sum=True, mode=ONCE)
    for share, center in ((0.3, 0.4), (0.35, 1.5)):
        (m0, s0), (m1, s1) = clamped_moments(0, 2), clamped_moments(center, 2)
        mean = np.array([(1 - share) * m0 + share * m1, share])
        second = np.array([[(1 - share) * s0 + share * s1, share * m1], [share * m1, share]])
        cov = n * (second - np.outer(mean, mean)) + 4 * np.eye(2)
        right = stats.multivariate_normal.logpdf(released, n * mean, cov)
        found = logp({"p_logodds__": np.log(share / (1 - share)), "c": center})
        assert found == pytest.approx(right, abs=1e-5)


@pytest.mark.parametrize("bound", [2, None])
def test_covariates_in_data_containers_may_be_changed(bound):
    """The law of a sum follows pm.set_data, as a model made anew does."""
    first, second = np.linspace(-1, 1, 30), np.linspace(0, 3, 30) ** 2

    def build(values):
        with pm.Model() as model:
            b = pm.Normal("b", 0, 1)
            x = pm.Normal("x", b * pm.Data("covariate", values), 1, shape=30)
            held = x if bound is None else pmdp.clamp(x, -bound, bound)
            pmdp.Privatized("sum", held.sum(), pmdp.Laplace(scale=1), observed=2.0)
        return pmdp.marginalize(model, method="normal")

    changed, fresh = build(first), build(second)
    with changed:
        pm.set_data({"covariate": second})
    at = {"b": 0.4}
    assert changed.compile_logp(mode=ONCE)(at) == pytest.approx(
        float(fresh.compile_logp(mode=ONCE)(at)), abs=1e-9
    )
    assert changed.compile_logp(mode=ONCE)(at) != pytest.approx(
        float(build(first).compile_logp(mode=ONCE)(at))
    )
