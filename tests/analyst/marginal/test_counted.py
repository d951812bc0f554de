"""Models that pmdp.sample counts by itself; what is kept of them; what is refused."""

import resource

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats
from scipy.special import betaln, gammaln

import pymc_dp as pmdp
from pymc_dp.analyst.count_gibbs.drawn import DrawnShares
from pymc_dp.analyst.marginal.sampling import counted
from pymc_dp.analyst.marginal.strategy import integrated_out
from pymc_dp.graph.intervals import ONCE
from tests.analyst.marginal.test_counts import compositions, one_hot
from tests.checks import assert_same_distribution
from tests.sampling import draw, values


def two_questions(n, scale, released, exact=None):
    """A yes or no, and an answer of three given it: answers of both, and those of the yes."""
    with pm.Model() as model:
        p = pm.Beta("p", 2, 3)
        px = pm.Dirichlet("px", [[1.0, 2, 1], [3, 1, 1]])
        y = pm.Bernoulli("y", p, shape=n)
        x = pm.Categorical("x", px[y], shape=n)
        both = pt.concatenate([one_hot(x, 3).sum(0), (y[:, None] * one_hot(x, 3)).sum(0)])
        pmdp.Privatized("both", both, pmdp.Laplace(scale=scale), observed=released)
        if exact is not None:
            pmdp.Privatized("yes", y.sum(), pmdp.Exact(), observed=exact)
    return model


def tables_of_two_questions(n, scale, released, exact=None):
    """Every table, and its posterior probability: the shares are integrated out in closed form."""
    tables = np.array(list(compositions(n, 6))).reshape(-1, 2, 3)
    yes = tables.sum(axis=2)[:, 1]
    log_p = gammaln(n + 1) - gammaln(tables + 1).sum(axis=(1, 2))
    log_p += betaln(2 + yes, 3 + n - yes)
    for row, prior in enumerate(np.array([[1.0, 2, 1], [3, 1, 1]])):
        a = prior + tables[:, row]
        log_p += gammaln(a).sum(axis=1) - gammaln(a.sum(axis=1))
    sums = np.concatenate([tables.sum(axis=1), tables[:, 1]], axis=1)
    log_p -= np.abs(sums - released).sum(axis=1) / scale
    if exact is not None:
        log_p[yes != exact] = -np.inf
    p = np.exp(log_p - log_p.max())
    return tables, p / p.sum()


@pytest.mark.wide_except("0.7-None")
@pytest.mark.parametrize(("scale", "exact"), [(0.7, None), (6.0, None), (2.0, 5)])
def test_posterior_by_all_tables(scale, exact):
    """Little noise, much noise, and an exact margin, of 12 records: mixtures of betas."""
    n, released = 12, np.array([3.4, 6.1, 1.2, 0.6, 2.9, 2.3])
    model = two_questions(n, scale, released, exact)
    tables, weights = tables_of_two_questions(n, scale, released, exact)
    yes = tables.sum(axis=2)[:, 1]
    small = pmdp.marginalize(model, method="counts")
    with small:
        assert isinstance(pmdp.CountGibbs().engine, DrawnShares)
    posterior = draw(small, draws=6000)

    def mixture(a, b):
        grid = np.linspace(0, 1, 401)
        cdf = np.array([weights @ stats.beta.cdf(v, a, b) for v in grid])
        return lambda x: np.interp(x, grid, cdf)

    assert_same_distribution(values(posterior, "p"), mixture(2 + yes, 3 + n - yes))
    px = values(posterior, "px")
    for row, k, prior in [(0, 1, (2, 2)), (1, 2, (1, 4)), (1, 0, (3, 2))]:
        own = tables[:, row]
        rest = own.sum(axis=1) - own[:, k]
        assert_same_distribution(px[..., row, k], mixture(prior[0] + own[:, k], prior[1] + rest))


def test_many_records_are_counted_and_left_out():
    n = 5000
    model = two_questions(n, 20.0, np.array([2000.0, 1500, 1500, 300, 500, 700]))
    told = pmdp.explain(model)
    assert "y, x (n = 5000) by method 'counts': the counts of 6 states" in repr(told)
    assert set(told.steps.values()) == {"RecordGibbs"}  # what pm.sample picks
    with model:
        kwargs = {"chains": 1, "cores": 1, "compute_convergence_checks": False}
        kwargs |= {"quiet": True, "progressbar": False}
        found = pmdp.sample(20, tune=20, **kwargs).posterior
        assert set(found.data_vars) == {"p", "px"}
        assert counted(model, step=object.__new__(pmdp.RecordGibbs)) is None
    assert counted(model, var_names=["p", "y"]) is None
    assert counted(model, initvals={"y": np.ones(n, dtype=int)}) is None
    small = counted(model, var_names=["p"])
    assert list(integrated_out(small)) == ["y_x_counts"]
    assert "by method 'counts'" in repr(pmdp.explain(small))
    found = draw(small, draws=20, tune=20, var_names=["p", "y_x_counts"])
    assert np.all(np.asarray(found["y_x_counts"]).sum(-1) == n)
    with model:
        pm.Deterministic("share", model["y"].mean())
    assert counted(model) is None


def test_few_records_stay():
    assert counted(two_questions(999, 20.0, np.zeros(6))) is None
    assert counted(two_questions(1000, 20.0, np.zeros(6))) is not None


def test_exact_totals_that_records_cannot_honour_are_counted():
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(4))
        x = pm.Categorical("x", p, shape=50)
        rows = pt.stack([(x < 2).sum(), (x >= 2).sum()])
        pmdp.Privatized("rows", rows, pmdp.Exact(), observed=[20, 30])
        pmdp.Privatized("columns", (x % 2).sum(), pmdp.Exact(), observed=24)
        pmdp.Privatized(
            "cells", one_hot(x, 4).sum(0), pmdp.Laplace(scale=3), observed=[8, 12, 18, 12]
        )
    posterior = draw(model, draws=50, tune=50)
    assert list(posterior.data_vars) == ["p"]
    counts = draw(counted(model), draws=200, tune=50, var_names=["x_counts"])["x_counts"]
    table = np.asarray(counts).reshape(-1, 2, 2)
    assert np.all(table.sum(axis=2) == [20, 30])
    assert np.all(table.sum(axis=1)[:, 1] == 24)
    assert len(np.unique(table[:, 0, 0])) > 3
    with model, pytest.raises(ValueError, match="exact"):
        pmdp.RecordGibbs()


@pytest.mark.wide
def test_a_billion_records_take_no_room():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    n = 10**9
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(3))
        q = pm.Beta("q", 1, 1)
        x = pm.Categorical("x", p, shape=n)
        k = pm.Binomial("k", 2, q, shape=n)
        pmdp.Privatized(
            "x_sums", one_hot(x, 3).sum(0), pmdp.Gaussian(sigma=9), observed=[2e8, 3e8, 5e8]
        )
        pmdp.Privatized("k_sum", k.sum(), pmdp.DiscreteGaussian(sigma=9), observed=9 * 10**8)
        pmdp.Privatized("all", pt.ge(x, 0).sum(), pmdp.Exact(), observed=n)
    assert "n = 1000000000" in repr(pmdp.explain(model))
    posterior = draw(model, draws=100, tune=100)
    np.testing.assert_allclose(posterior["p"].mean(("chain", "draw")), [0.2, 0.3, 0.5], atol=1e-4)
    np.testing.assert_allclose(posterior["q"].mean(), 0.45, atol=1e-4)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before  # kilobytes
    assert grown < 1e6


def test_prior_predictive_of_the_release():
    """The same law with records and with counts, by quantiles of both."""
    with pm.Model() as model:
        p = pm.Beta("p", 2, 3)
        y = pm.Bernoulli("y", p, shape=40)
        z = pm.Binomial("z", 2, 0.2 + 0.5 * y, shape=40)
        pmdp.Privatized("r", (z * (1 + y)).sum(), pmdp.Laplace(scale=2))
    small = pmdp.marginalize(model, method="counts")
    a, b = (pm.draw(m["r"], 3000, random_seed=i, mode=ONCE) for i, m in enumerate([model, small]))
    assert stats.ks_2samp(a, b).pvalue > 1e-5  # the false-alarm rate


def test_states_that_are_too_many():
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones((30, 3)))
        x = pm.Categorical("x", p, shape=(100, 30))
        pmdp.Privatized("r", x.sum(0), pmdp.Laplace(scale=1), observed=np.zeros(30))
    with pytest.raises(
        ValueError, match=r"'x' has 2.05891e.14 states.*200000 are taken at the most"
    ):
        pmdp.marginalize(model, method="counts")


@pytest.mark.parametrize(
    ("statistic", "says"),
    [
        (lambda x, mu: mu * x.sum(), "also depends on 'mu'"),
        (lambda x, mu: mu + x.sum(), "adds 'mu' to a sum over records"),
        (lambda x, mu: (x * pm.Data("w", np.arange(20.0))).sum(), "'w'"),
    ],
)
def test_statistics_that_are_no_map_of_counts(statistic, says):
    with pm.Model() as model:
        mu = pm.Normal("mu")
        x = pm.Bernoulli("x", pm.math.invlogit(mu), shape=20)
        pmdp.Privatized("r", statistic(x, mu), pmdp.Laplace(scale=1), observed=3.0)
    with pytest.raises(ValueError, match=says):
        pmdp.marginalize(model, method="counts")


def test_records_that_other_terms_depend_on():
    with pm.Model() as model:
        x = pm.Bernoulli("x", pm.Beta("p", 1, 1), shape=2000)
        pmdp.Privatized("r", x.sum(), pmdp.Laplace(scale=1), observed=3.0)
        pm.Normal("seen", x[:3], 1.0, observed=np.zeros(3))
    assert counted(model) is None
    with pytest.raises(ValueError, match="'seen' depends on the records 'x'"):
        pmdp.marginalize(model, method="counts")


def test_continuous_records():
    with pm.Model() as model:
        x = pm.Normal("x", pm.Normal("mu"), 1, shape=10)
        pmdp.Privatized("r", x.sum(), pmdp.Laplace(scale=1), observed=3.0)
    with pytest.raises(ValueError, match="'x' has no list of values"):
        pmdp.marginalize(model, method="counts")


@pytest.mark.calibrate
@pytest.mark.parametrize("scale", [3.0, 40.0])
def test_agrees_with_the_records(scale):
    """200 records, sampled themselves and counted; quantiles of one against draws of the other."""
    released = np.array([80.0, 70, 50, 20, 30, 25])
    model = two_questions(200, scale, released)
    a = draw(model, draws=8000)
    b = draw(pmdp.marginalize(model, method="counts"), draws=8000)
    for name, place in [("p", ()), ("px", (0, 1)), ("px", (1, 2))]:
        one, two = (values(found, name)[(..., *place)] for found in (a, b))
        found = np.array([az.ess(v, method="mean") for v in (one, two)], dtype=float)
        size = 0.5 * found.prod() / found.sum()  # half of it: estimates of it are rough
        distance = stats.ks_2samp(one.ravel(), two.ravel()).statistic
        assert stats.kstwobign.sf(np.sqrt(size) * distance) > 1e-5


@pytest.mark.calibrate
def test_ranks_of_the_truth_are_uniform():
    """Simulation-based calibration, 200 replicates of 2000 records with noise as wide as counts."""
    rng, n, scale, ranks = np.random.default_rng(3), 2000, 30.0, []
    for seed in range(200):
        p = rng.beta(2, 3)
        px = np.array([rng.dirichlet(a) for a in ([1.0, 2, 1], [3, 1, 1])])
        yes = rng.binomial(n, p)
        table = np.array([rng.multinomial(n - yes, px[0]), rng.multinomial(yes, px[1])])
        sums = np.concatenate([table.sum(axis=0), table[1]])
        model = two_questions(n, scale, sums + rng.laplace(0, scale, 6))
        posterior = draw(model, draws=500, tune=300, seed=seed)
        truth = {"p": p, "px": px}
        thinned = {name: values(posterior, name)[:, ::10] for name in truth}
        below = [(thinned["p"] < p).sum(), (thinned["px"][..., 1, 2] < px[1, 2]).sum()]
        ranks.append([*below, (thinned["px"][..., 0, 1] < px[0, 1]).sum()])
    for column in np.array(ranks).T:  # out of 100 draws
        counts = np.histogram(column, bins=np.linspace(-0.5, 100.5, 11))[0]
        assert stats.chisquare(counts).pvalue > 1e-5
