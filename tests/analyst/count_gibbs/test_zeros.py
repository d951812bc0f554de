"""Structural zeros: cells that a public zero leaves no choice, and rates that become zero."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import stats

import pymc_dp as pmdp
from pymc_dp.analyst.count_gibbs.cells import cell_variables, count_table
from pymc_dp.analyst.count_gibbs.graphs import law_terms, log_density_at, references
from pymc_dp.analyst.count_gibbs.laws import law_of
from pymc_dp.analyst.count_gibbs.moved import MovedCells
from pymc_dp.analyst.count_gibbs.start import check_start
from pymc_dp.graph.intervals import ONCE
from pymc_dp.numerics.nuts import ACCEPT, DIVERGING, LEAPS
from tests.checks import assert_mean_and_sd
from tests.sampling import draw, values

EXPOSURE = np.array([0.0, 2, 3, 5])


def some():
    return pm.Normal("t")


def with_a_zero(weight):
    p = pt.stack([pt.exp(weight), pt.zeros(()), pt.ones(())])
    return p / p.sum()


KNOWN = {
    # name: variable, which cells are empty
    "exposure": (lambda: pm.Poisson("c", EXPOSURE * pt.exp(some())), [1, 0, 0, 0]),
    "a public rate": (lambda: pm.Poisson("c", EXPOSURE), [1, 0, 0, 0]),
    "logarithm": (
        lambda: pm.Poisson("c", pt.exp(some() + np.array([-np.inf, 0.5]))),
        [1, 0],
    ),
    "diagonal": (
        lambda: pm.Poisson("c", (1 - np.eye(2)) * pt.exp(pm.Normal("t", shape=(2, 1)))),
        [[1, 0], [0, 1]],
    ),
    "set to zero": (
        lambda: pm.Poisson("c", pt.set_subtensor((pt.exp(some()) * np.ones(3))[1], 0.0)),
        [0, 1, 0],
    ),
    "a product of matrices": (
        lambda: pm.Poisson("c", np.diag([0.0, 1]) @ pm.Gamma("t", 2, 1, shape=2)),
        [1, 0],
    ),
    "where": (lambda: pm.Poisson("c", pt.switch([True, False], 0, pt.exp(some()))), [1, 0]),
    "negative binomial": (
        lambda: pm.NegativeBinomial("c", mu=EXPOSURE * pt.exp(some()), alpha=2.0),
        [1, 0, 0, 0],
    ),
    "zero-inflated": (
        lambda: pm.ZeroInflatedPoisson("c", pm.Beta("psi", 1, 1), EXPOSURE * pt.exp(some())),
        [1, 0, 0, 0],
    ),
    "truncated": (
        lambda: pm.Truncated("c", pm.Poisson.dist(EXPOSURE * pt.exp(some())), upper=3),
        [1, 0, 0, 0],
    ),
    "stacked shares": (
        lambda: pm.Multinomial("c", 9, with_a_zero(some())),
        [0, 1, 0],
    ),
    "softmax": (
        lambda: pm.Multinomial("c", 9, pm.math.softmax(pt.stack([some(), -np.inf, 0.0]))),
        [0, 1, 0],
    ),
    "zero only at times": (lambda: pm.Poisson("c", pt.maximum(some(), 0.0), shape=2), [0, 0]),
    "zero by a switch": (
        lambda: pm.Poisson("c", pt.switch(some() > 0, 1.0, 0.0), shape=2),
        [0, 0],
    ),
    "no zeros": (lambda: pm.Poisson("c", pm.Gamma("t", 2, 1, shape=2)[[0, 1, 1]]), [0, 0, 0]),
}


@pytest.mark.parametrize("name", KNOWN)
def test_cells_that_are_known_to_be_empty(name):
    """Read from the graph; densities of the others are PyMC's own, and all slopes are numbers."""
    build, empty = KNOWN[name]
    with pm.Model() as model:
        c = build()
        pmdp.Privatized("r", c, pmdp.Laplace(scale=1), observed=np.full(np.shape(empty), 0.5))
    law = law_of(c, model.basic_RVs)
    expected = np.array(empty, dtype=bool)
    assert np.array_equal(np.broadcast_to(law.settled, expected.shape), expected)
    table = count_table(model, cell_variables(model))
    assert np.array_equal(table.bounds[1] == 0, expected.ravel())
    assert not references(table)[expected.ravel()].any()
    parameters = [rv for rv in model.free_RVs if rv is not c]
    total = log_density_at(table).sum() + law_terms(table)["phi"].sum()
    exact = pm.logp(c, references(table).reshape(expected.shape).astype("int64")).sum()
    graphs = model.replace_rvs_by_values([log_density_at(table).sum(), exact, total])
    inputs = [model.rvs_to_values[rv] for rv in parameters]
    slopes = pt.grad(graphs[-1], inputs) if inputs else []
    point = {k: v for k, v in model.initial_point().items() if k != "c"}
    if name == "zero only at times":
        point["t"] = np.array(-1.0)
    evaluate = pytensor.function(inputs, [*graphs, *slopes], mode=ONCE, on_unused_input="ignore")
    here, pymc, *others = evaluate(*(point[v.name] for v in inputs))
    np.testing.assert_allclose(here, pymc, rtol=1e-6)
    assert all(np.all(np.isfinite(other)) for other in others)


GRID = np.linspace(-5, 5, 801)


def grid_moments(log_p):
    p = np.exp(log_p - log_p.max())
    mean = (p @ GRID) / p.sum()
    return mean, ((p @ (GRID - mean) ** 2) / p.sum()) ** 0.5


def log_laplace(y, k, scale):
    return -np.abs(y - k) / scale


def seen_by(rate, y):
    """Log-density of a noisy Poisson count, on the grid of the parameter."""
    k = np.arange(300)
    law = stats.poisson.pmf(k[:, None], rate * np.exp(GRID))
    return np.log((law * np.exp(log_laplace(y, k, 2.0))[:, None]).sum(axis=0))


def sums_of_cells():
    c = pm.Poisson("c", EXPOSURE * pt.exp(pm.Normal("t")))
    noise = pmdp.DiscreteLaplace(scale=2.0)
    pmdp.Privatized("r", pt.stack([c[0] + c[1], c[2] + c[3]]), noise, observed=[4, 15])
    return stats.norm.logpdf(GRID) + seen_by(2, 4) + seen_by(8, 15)


def every_cell():
    c = pm.Poisson("c", EXPOSURE * pt.exp(pm.Normal("t")))
    pmdp.Privatized("r", c, pmdp.DiscreteLaplace(scale=2.0), observed=[1, 4, 6, 9])
    return stats.norm.logpdf(GRID) + seen_by(2, 4) + seen_by(3, 6) + seen_by(5, 9)


def multinomial():
    t = pm.Normal("t")
    c = pm.Multinomial("c", 12, with_a_zero(t))
    pmdp.Privatized("r", c, pmdp.DiscreteLaplace(scale=2.0), observed=[8, 1, 6])
    k, p = np.arange(13), 1 / (1 + np.exp(-GRID))
    noise = log_laplace(8, k, 2.0) + log_laplace(6, 12 - k, 2.0)
    law = stats.binom.pmf(k[:, None], 12, p)
    return stats.norm.logpdf(GRID) + np.log((law * np.exp(noise)[:, None]).sum(axis=0))


@pytest.mark.wide_except("sums_of_cells")
@pytest.mark.parametrize(
    "build", [sums_of_cells, every_cell, multinomial], ids=lambda build: build.__name__
)
def test_posteriors_with_empty_cells(build):
    """By sums over counts on a grid of the parameter; false alarms 1e-5."""
    with pm.Model() as model:
        log_p = build()
    posterior = draw(model)
    mean, sd = grid_moments(log_p)
    assert_mean_and_sd(values(posterior, "t"), mean, sd, mean_error=1e-3, sd_error=1e-3)
    empty = 1 if build is multinomial else 0
    assert not values(posterior, "c")[..., empty].any()


@pytest.mark.wide
def test_shares_beside_a_zero():
    """Dirichlet shares, one category that nobody can have: by enumeration; false alarms 1e-5."""
    y = [8, 1, 9, 5]
    with pm.Model() as model:
        q = pm.Dirichlet("q", np.ones(3))
        c = pm.Multinomial("c", 20, pt.stack([q[0], pt.zeros(()), q[1], q[2]]))
        pmdp.Privatized("r", c, pmdp.DiscreteLaplace(scale=2.0), observed=y)
    a, b = (part.ravel() for part in np.indices((21, 21)))
    counts = np.stack([a, 0 * a, b, 20 - a - b])[:, a + b <= 20]
    log_w = log_laplace(np.array(y)[:, None], counts, 2.0).sum(axis=0)  # uniform before
    w = np.exp(log_w - log_w.max())
    w /= w.sum()
    mean = w @ (counts[0] + 1) / 23
    square = w @ ((counts[0] + 1) * (counts[0] + 2)) / (23 * 24)
    found = values(draw(model), "q")[..., 0]
    assert_mean_and_sd(found, mean, (square - mean**2) ** 0.5)


@pytest.mark.wide
def test_a_rate_that_becomes_zero():
    """The rate is max(t, 0): half of the prior says that all cells are empty. Exact by a grid."""
    with pm.Model() as model:
        t = pm.Normal("t", 0, 2)
        c = pm.Poisson("c", pt.maximum(t, 0.0), shape=2)
        pmdp.Privatized("r", c, pmdp.DiscreteLaplace(scale=2.0), observed=[1, 0])
    grid, k = np.linspace(-12, 12, 4801), np.arange(60)
    law = stats.poisson.pmf(k[:, None], np.maximum(grid, 0))
    seen = [(law * np.exp(log_laplace(y, k, 2.0))[:, None]).sum(axis=0) for y in (1, 0)]
    p = stats.norm.pdf(grid, 0, 2) * seen[0] * seen[1]
    p /= p.sum()
    mean = p @ grid
    assert_mean_and_sd(values(draw(model), "t"), mean, (p @ (grid - mean) ** 2) ** 0.5)


def moved_cells():
    with pm.Model() as model:
        c = pm.Poisson("c", pm.Gamma("rate", 2, 1), shape=3)
        pmdp.Privatized("r", c.sum(), pmdp.Laplace(scale=1), observed=40.5)
        pmdp.Privatized("s", c[:2], pmdp.Laplace(scale=1), observed=[20.5, 9.5])
        step = pmdp.CountGibbs()
    assert isinstance(step.engine, MovedCells)
    return model, step


@pytest.mark.parametrize(
    ("leaps", "beyond", "diverging"), [(3, 1.0, 0.0), (3, 0.0, 1.0), (0, 0.0, 1.0)]
)
def test_what_is_told_as_a_divergence(leaps, beyond, diverging):
    """Impossible counts are none; densities that are no numbers are, at the first leaf too."""
    _, step = moved_cells()

    def stopped(rng, q, place, metric, step_size, doublings, report, times, rate):
        if times:
            report[DIVERGING], report[LEAPS] = float(leaps > 0), leaps
            place.vector[-1] = beyond
        return 0.0

    engine = step.engine
    engine.__dict__["draw"] = stopped
    theta, given = engine.layout.theta_of({"rate_log__": np.array(0.0)}), np.zeros(0)
    rng, start = np.random.default_rng(1), np.array([20.0, 9, 11])
    theta, counts, carried, _ = engine.begin(rng, theta, given, start)
    _, report = engine.move(rng, theta, given, counts, step.tuning, carried)
    assert report[DIVERGING] == diverging


def test_a_chain_in_which_nothing_is_accepted(caplog):
    model, step = moved_cells()
    accepted = [0.0, 0.0]

    def move(rng, theta, given, counts, tuning, carried):
        report = np.zeros(5)
        report[LEAPS], report[ACCEPT] = 1.0, accepted.pop()
        return theta, report

    engine = step.engine
    engine.move, engine.begin = move, lambda rng, theta, *rest: (theta, rest[1], None, np.ones(1))
    for last, told in ((0.0, True), (0.7, False)):
        accepted[:] = [last, 0.0]
        caplog.clear()
        point = model.initial_point()
        step.setup_chain(np.random.default_rng(1), 0, 2)
        for _ in range(2):
            point, _ = step.step(point)
        assert ("No move of rate_log__, c was accepted in a whole chain" in caplog.text) == told


@pytest.mark.parametrize("found", [(np.nan, np.zeros(2)), (0.0, np.array([1.0, np.nan]))])
def test_starts_that_are_refused(found):
    _, step = moved_cells()
    with pytest.raises(ValueError, match="counts 'c' and of their parameters is not finite"):
        check_start(step.engine.table, found)
    check_start(step.engine.table, (-3.0, np.zeros(2)))


def test_numbers_of_counts_that_are_random():
    """Neither could move without the other."""
    with pm.Model():
        n = pm.Poisson("n", 12)
        c = pm.Multinomial("c", n, [0.5, 0.5])
        pmdp.Privatized("r", c, pmdp.DiscreteLaplace(scale=2.0), observed=[9, 2])
        for make in (pmdp.CountGibbs, pm.sample):
            with pytest.raises(ValueError, match=r"'c' are of 'n', which is random.*pm\.Poisson"):
                make()
    with pm.Model():  # where nothing was released of them they are PyMC's own concern
        pm.Multinomial("c", pm.Poisson("n", 12), [0.5, 0.5])
        other = pm.Poisson("d", 2.0, shape=3)
        pmdp.Privatized("r", other, pmdp.DiscreteLaplace(scale=2.0), observed=[9, 2, 3])
        pmdp.CountGibbs()


def test_discrete_parameters_are_told_of(caplog):
    with pm.Model():
        k = pm.Bernoulli("k", 0.5)
        c = pm.Poisson("c", pt.switch(k, 60.0, 30.0), shape=4)
        pmdp.Privatized("r", c, pmdp.DiscreteLaplace(scale=40.0), observed=[50, 40, 20, 65])
        pmdp.CountGibbs()
    assert [record.args[:2] for record in caplog.records] == [("'c'", "'k'")]
    assert "may stay where a chain starts" in caplog.text


def test_rates_that_underflow_are_not_zero():
    """PyMC takes log(exp(x)) for x where a rate is positive; so do the laws of cells."""
    with pm.Model() as model:
        t = pm.Normal("t")
        c = pm.Poisson("c", pt.exp(t))
    law = law_of(c, model.basic_RVs)
    assert not law.replaced
    [phi] = model.replace_rvs_by_values([law.phi])
    assert pytensor.function([model.rvs_to_values[t]], phi)(-900.0) == -900.0
