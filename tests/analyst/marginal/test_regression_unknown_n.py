"""Regression statistics of an unknown number of records, against sums over that number."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import stats

import pymc_dp as pmdp
from pymc_dp.analyst.marginal.regression.gram import MarginalGramRV, rows_law_given
from pymc_dp.graph.intervals import ONCE
from tests.checks import assert_mean_and_sd

PRIOR = (150, 350)
COUNT, COUNT_SCALE = 262.3, 12.0
VAR_X, SIGMA2, INTERCEPT = 0.5, 0.3, 0.1
RELEASED = np.array([120.0, 9.0, 70.0, 28.0, 118.0])
NOISE = 6.0
KNOWN = {"draws": 1500, "tune": 700, "chains": 2, "cores": 1, "progressbar": False, "quiet": True}


def number(known):
    if known is not None:
        return known
    there = pmdp.unknown_size("n", pm.DiscreteUniform.dist(*PRIOR))
    noise = pmdp.Laplace(scale=COUNT_SCALE)
    pmdp.Privatized("count", there.sum(), noise, observed=COUNT)
    return there.sum()


def statistics(known=None, mechanism=None):
    with pm.Model() as model:
        slope = pm.Normal("slope", 0, 1)
        s = pmdp.RegressionStatistics(
            "s",
            n=number(known),
            coef=pt.stack([slope, INTERCEPT]),
            sigma2=SIGMA2,
            x_moments=pmdp.regression.NormalMoments(0.0, VAR_X),
        )
        pmdp.Privatized("z", s, mechanism or pmdp.Gaussian(sigma=NOISE), observed=RELEASED)
    return model


def holder(known=None, conjugate=True, intercept=False):
    with pm.Model() as model:
        slope = pm.Normal("slope", 0, 1, shape=1 + intercept)
        if conjugate:
            cov = pmdp.regression.InverseWishart("cov_x", nu=4, psi=np.eye(1))
        else:
            cov = pm.HalfNormal("v", 1)[None, None]
        mean = {"mean_x": pm.MvNormal("mean_x", np.zeros(1), cov=cov)} if intercept else {}
        n = number(known)
        found = pmdp.HolderStatistics("h", n=[n], coef=slope, sigma2=SIGMA2, cov_x=cov, **mean)
        observed = [120.0, 9.0, 70.0, 28.0] if intercept else [120.0, 70.0]
        pmdp.Privatized("r", found[0], pmdp.Gaussian(sigma=NOISE), observed=observed)
    return model


@pytest.mark.parametrize(
    "make",
    [
        statistics,
        holder,
        lambda known=None: holder(known, conjugate=False),
        lambda known=None: holder(known, intercept=True),
    ],
    ids=["statistics", "holder", "own law of rows", "intercept"],
)
def test_density_at_whole_numbers(make):
    """That of the model with as many records, times the number's own."""
    small = pmdp.marginalize(make())
    logp = small.compile_logp(jacobian=False, mode=ONCE)
    for n in (200, 271):
        known = pmdp.marginalize(make(n))
        point = {name: value + 0.1 for name, value in known.initial_point().items()}
        assert set(small.initial_point()) == {*point, "n_interval__"}
        expected = known.compile_logp(jacobian=False, mode=ONCE)(point | gram(known, n))
        expected += log_prior_and_count(n) - np.log(PRIOR[1] - PRIOR[0] + 1)
        found = logp(point | gram(small, n) | {"n_interval__": place(n)})
        np.testing.assert_allclose(found, expected, rtol=1e-7)


def place(n):
    """Where a number is between the ends of its prior, each half a number further out."""
    share = (n - PRIOR[0] + 0.5) / (PRIOR[1] - PRIOR[0] + 1)
    return np.log(share / (1 - share))


def gram(model, n):
    """Coordinates of one Gram matrix, where the rows' law is integrated out."""
    if "h_S" not in model.named_vars or "v" in model.named_vars:
        return {}
    rv = model["h_S"]
    S = np.array([[110.0, 8.0], [8.0, n]])[: rv.type.shape[1], : rv.type.shape[1]]
    value = model.rvs_to_transforms[rv].forward(pt.constant(S[None]), *rv.owner.inputs)
    given = {model["n"]: float(n)} if "n" in model.named_vars else {}
    return {model.rvs_to_values[rv].name: value.eval(given, on_unused_input="ignore", mode=ONCE)}


def moments_of_a_record(slope):
    """Mean and covariance of (x^2, x, xy, y, y^2), by Gauss-Hermite quadrature."""
    z, w = np.polynomial.hermite_e.hermegauss(12)
    w = w / w.sum()
    x, e = np.meshgrid(np.sqrt(VAR_X) * z, np.sqrt(SIGMA2) * z, indexing="ij")
    y = slope * x + INTERCEPT + e
    added = np.stack([x**2, x, x * y, y, y**2]).reshape(5, -1)
    weights = np.outer(w, w).ravel()
    mean = added @ weights
    return mean, (added * weights) @ added.T - np.outer(mean, mean)


def log_prior_and_count(n):
    return stats.laplace.logpdf(COUNT, n, COUNT_SCALE)


def summarised(grid, log_posterior):
    """Mean and sd of each axis of a grid."""
    share = np.exp(log_posterior - log_posterior.max())
    share /= share.sum()
    found = []
    for axis, values in enumerate(grid):
        marginal = share.sum(axis=tuple(a for a in range(share.ndim) if a != axis))
        mean = marginal @ values
        found.append((mean, np.sqrt(marginal @ (values - mean) ** 2)))
    return found


def assert_agrees(idata, expected):
    for name, (mean, sd) in expected.items():
        assert_mean_and_sd(np.asarray(idata.posterior[name]).squeeze(), mean, sd)


@pytest.mark.wide
def test_posterior_of_statistics():
    slopes, numbers = np.linspace(0.1, 2.2, 150), np.arange(PRIOR[0], PRIOR[1] + 1)
    table = np.empty((slopes.size, numbers.size))
    for i, slope in enumerate(slopes):
        mean, cov = moments_of_a_record(slope)
        for j, n in enumerate(numbers):
            law = stats.multivariate_normal(n * mean, n * cov + NOISE**2 * np.eye(5))
            table[i, j] = law.logpdf(RELEASED)
    table += stats.norm.logpdf(slopes)[:, None] + log_prior_and_count(numbers)
    slope, n = summarised((slopes, numbers), table)
    with pmdp.marginalize(statistics()):
        idata = pmdp.sample(random_seed=1, **KNOWN)
    assert_agrees(idata, {"slope": slope, "n": n})


@pytest.mark.wide
def test_posterior_of_a_holder():
    """Slope, sum of squares and number on a grid, the variance of x integrated out by hand."""
    slopes, numbers = np.linspace(0.1, 1.2, 120), np.arange(PRIOR[0], PRIOR[1] + 1)
    sums = np.linspace(85, 155, 120)
    n, S = numbers[None, None, :], sums[None, :, None]
    # S given v is v chi^2_n, and v inverse gamma (nu / 2, psi / 2): a beta prime law
    table = stats.betaprime.logpdf(S, n / 2, 2.0)
    table = table + stats.norm.logpdf(120.0, S, NOISE) + log_prior_and_count(n)
    t = slopes[:, None, None]
    table = table + stats.norm.logpdf(70.0, S * t, np.sqrt(SIGMA2 * S + NOISE**2))
    table = table + stats.norm.logpdf(t)
    slope, _, number = summarised((slopes, sums, numbers), table)
    with pmdp.marginalize(holder()):
        idata = pmdp.sample(random_seed=2, **KNOWN)
    assert_agrees(idata, {"slope": slope, "n": number})


def test_several_holders_of_which_one_is_counted():
    with pm.Model() as model:
        slope = pm.Normal("slope", 0, 1, shape=1)
        cov = pmdp.regression.InverseWishart("cov_x", nu=4, psi=np.eye(1))
        found = pmdp.HolderStatistics(
            "h", n=[100, number(None)], coef=slope, sigma2=SIGMA2, cov_x=cov
        )
        for j, observed in enumerate([[45.0, 26.0], [120.0, 70.0]]):
            pmdp.Privatized(f"r{j}", found[j], pmdp.Gaussian(sigma=NOISE), observed=observed)
    small = pmdp.marginalize(model)
    assert {rv.name for rv in small.free_RVs} == {"slope", "n", "h_S"}
    told = str(pmdp.explain(small))
    assert "n = n" in told
    with pytest.raises(ValueError, match=r"latent \('n'\).*pmdp\.sample"):
        pmdp.NormalX(model=model)


def test_numbers_that_are_no_numbers():
    with pm.Model():
        given = {"coef": np.ones(1), "sigma2": 1.0, "cov_x": np.eye(1)}
        with pytest.raises(ValueError, match="whole numbers"):
            pmdp.HolderStatistics("h", n=[pm.Normal("m", 100, 1)], **given)
        with pytest.raises(ValueError, match="whole numbers"):
            pmdp.HolderStatistics("h", n=pm.Poisson("k", 100, shape=2), **given)


def test_sample_integrates_holders_out_and_draws_the_rows_law():
    model = holder()
    assert "Integrated out by pmdp.sample" in str(pmdp.explain(model))
    assert not pmdp.explain(holder(250)).by_sample  # NormalX samples it
    with model:
        quick = {"progressbar": False, "quiet": True, "compile_kwargs": {"mode": ONCE}}
        with pytensor.config.change_flags(mode="FAST_COMPILE"):
            idata = pmdp.sample(4, tune=4, chains=1, cores=1, random_seed=1, **quick)
    assert set(idata.posterior.data_vars) == {"slope", "n", "cov_x"}
    assert idata.posterior["cov_x"].shape == (1, 4, 1, 1)


@pytest.mark.parametrize("intercept", [False, True])
def test_law_of_the_rows_given_their_gram_matrix(intercept):
    """Inverse gamma variance, and Student's mean; false alarms 1e-5 each."""
    psi, nu, n, many = 2.0, 4.0, 30, 4000
    weight, centre, total, squares = 3.0, 0.4, 21.0, 55.0
    S, prior, at = [[squares]], np.array([[psi]]), [[1.0]]
    if intercept:
        S, at = [[squares, total], [total, n]], np.eye(2)
        cross = weight * centre
        prior = np.array([[weight, cross], [cross, psi + cross * centre]])
    op = MarginalGramRV.rv_op(np.array([n]), prior, nu, np.array(at), int(intercept)).owner.op
    grams = np.tile(np.array(S), (many, 1, 1))
    found = rows_law_given(op, grams, np.full(many, n), np.random.default_rng(3))
    scale, shape = psi + squares, (nu + n) / 2
    if intercept:
        mean = (weight * centre + total) / (weight + n)
        scale = psi + weight * centre**2 + squares - (weight + n) * mean**2
        spread = np.sqrt(scale / (nu + n) / (weight + n))
        law = stats.t(nu + n, loc=mean, scale=spread)
        assert stats.kstest(found[1][:, 0], law.cdf).pvalue > 1e-5
    law = stats.invgamma(shape, scale=scale / 2)
    assert stats.kstest(found[0][:, 0, 0], law.cdf).pvalue > 1e-5
