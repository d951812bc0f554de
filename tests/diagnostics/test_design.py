"""Widths and coverage of planned releases, against posteriors in closed form."""

from concurrent.futures import ThreadPoolExecutor
from importlib import import_module

import numpy as np
import pymc as pm
import pytest
from scipy import stats
from xarray import Dataset

import pymc_dp as pmdp
from pymc_dp.diagnostics.calibration.fits import Fit, FitJob, _within
from pymc_dp.diagnostics.calibration.widths import _mcse

_not_to_be_had = import_module("pymc_dp.diagnostics.design")._not_to_be_had
SEED, PRIOR_SD, REPLICATES = 20261118, 1.0, 60
EPSILONS, SIZES = [0.2, 2.0], [20, 80]
#: how far a share of so many may be off, five standard deviations at most
SHARE = 5 * 0.5 / np.sqrt(REPLICATES)


def build(epsilon, n):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, PRIOR_SD)
        pm.Deterministic("twice", 2 * mu)
        x = pm.Normal("x", mu, 1, shape=n)
        pmdp.Privatized("s", x.sum(), pmdp.Gaussian(sigma=10 / epsilon))
    return model


def exact_sd(sizes=SIZES):
    """Normal prior, normal sum, normal noise."""
    epsilon, n = np.array(EPSILONS)[:, None], np.array(sizes)
    return (PRIOR_SD**-2 + n**2 / (n + (10 / epsilon) ** 2)) ** -0.5


def exact_coverage(truth, sd):
    """Of intervals around shrunken means: known data take 1 - sd^2 of what there is to learn."""
    gain = 1 - (sd / PRIOR_SD) ** 2  # of the posterior mean, by the noisy mean
    spread = sd * np.sqrt(gain)
    end = stats.norm.ppf(0.95) * sd
    shift = truth * (gain - 1)
    return stats.norm.cdf((end - shift) / spread) - stats.norm.cdf((-end - shift) / spread)


@pytest.fixture(
    scope="module", params=[SIZES[:1], pytest.param(SIZES, marks=pytest.mark.wide)], ids=str
)
def tree(request):
    """Every number of records is compiled; where cells belong is looked at without."""
    return pmdp.design(
        build,
        EPSILONS,
        request.param,
        var_names=["mu", "twice"],
        replicates=REPLICATES,
        tune=200,
        random_seed=SEED,
        quiet=True,
    )


def test_widths_are_those_of_the_exact_posterior(tree):
    """Standard deviations of 99 draws are off by 7%, widths by 9%; five such over 60 replicates."""
    expected = tree["expected"]["mu"].transpose("quantity", "epsilon", "n")
    exact = exact_sd(tree["expected"]["n"].values)
    ratio = expected.sel(quantity="sd") / exact
    assert np.all(np.abs(ratio - 1) < 5 * 0.08 / np.sqrt(REPLICATES))
    assert abs(ratio.mean() - 1) < 5 * 0.08 / np.sqrt(ratio.size * REPLICATES)
    ratio = expected.sel(quantity="width") / (2 * stats.norm.ppf(0.95) * exact)
    assert np.all(np.abs(ratio - 1) < 5 * 0.1 / np.sqrt(REPLICATES))
    np.testing.assert_allclose(
        tree["expected"]["twice"].sel(quantity=["sd", "width"]),
        2 * expected.sel(quantity=["sd", "width"]),
    )


def test_intervals_cover_what_they_promise(tree):
    assert np.all(np.abs(tree["expected"]["mu"].sel(quantity="coverage") - 0.9) < SHARE)
    share = tree["mcse"]["mu"].sel(quantity="coverage")
    np.testing.assert_allclose(share, np.sqrt(0.9 * 0.1 / REPLICATES), rtol=0.5)


def test_errors_are_those_of_the_replicates(tree):
    """Posterior deviations do not vary here: what is left is that of 99 draws."""
    error = tree["mcse"]["mu"].sel(quantity="sd").transpose("epsilon", "n")
    error = error / exact_sd(error["n"].values) * np.sqrt(REPLICATES)
    np.testing.assert_allclose(error, 1 / np.sqrt(2 * 99), rtol=0.5)
    assert tree["simulated"]["mu"].sizes["replicate"] == REPLICATES
    assert tree["fits"]["effective_size"].min() >= 99
    assert tree.attrs["short_fits"] == 0


def test_records_themselves_leave_less_open(tree):
    """Twelve replicates, two numbers; five standard errors of 99 draws."""
    found = tree["without_noise/expected"]["mu"].sel(quantity="sd")
    exact = (PRIOR_SD**-2 + found["n"].values) ** -0.5
    assert np.all(np.abs(found / exact - 1) < 5 * 0.08 / np.sqrt(12))
    assert np.all(found < tree["expected"]["mu"].sel(quantity="sd").min("epsilon"))


def test_cells_are_told_where_they_belong(monkeypatch):
    built = {}

    def kept(epsilon, n):
        model = build(epsilon, n)
        built[model] = epsilon + 1000 * n
        return model

    def fit(self, replicate):
        told = {"mu": np.array(built[self.given])}
        return Fit({"mu": np.array(0.5)}, told, told, 400, 99.0)

    monkeypatch.setattr(FitJob, "fit", fit)
    found = pmdp.design(
        kept, EPSILONS, SIZES, var_names=["mu"], replicates=2, random_seed=SEED, quiet=True
    )
    for quantity in ("sd", "width"):
        mu = found["expected"]["mu"].sel(quantity=quantity)
        for epsilon in EPSILONS:
            for n in SIZES:
                assert mu.sel(epsilon=epsilon, n=n) == epsilon + 1000 * n


@pytest.mark.wide
def test_coverage_at_a_truth_is_not_that_over_the_prior():
    """Far out in the prior, shrunken intervals hold the truth less often than they say."""
    truth = 1.8
    found = pmdp.design(
        build,
        EPSILONS[0],
        SIZES,
        truth={"mu": truth},
        var_names=["mu"],
        replicates=REPLICATES,
        tune=200,
        without_noise=False,
        random_seed=SEED,
        quiet=True,
    )
    exact = exact_coverage(truth, exact_sd()[0])
    assert exact[0] < 0.5
    assert np.all(np.abs(found["expected"]["mu"].sel(quantity="coverage")[0] - exact) < SHARE)
    ratio = found["expected"]["mu"].sel(quantity="sd")[0] / exact_sd()[0]
    assert np.all(np.abs(ratio - 1) < 5 * 0.08 / np.sqrt(REPLICATES))
    assert "without_noise" not in found.children


def test_result_does_not_depend_on_where_fits_are_made():
    run = {"replicates": 4, "tune": 20, "random_seed": SEED, "quiet": True}
    with ThreadPoolExecutor(1) as pool:
        there = pmdp.design(build, EPSILONS, SIZES[0], executor=pool, **run)
        here = pmdp.design(build, EPSILONS, SIZES[0], **run)
    for group in ("simulated", "fits", "without_noise/expected"):
        np.testing.assert_array_equal(
            there[group].to_dataset().to_array(), here[group].to_dataset().to_array()
        )


def test_interrupted_study_returns_what_is_there(monkeypatch):
    fit, calls = FitJob.fit, []

    def interrupted(self, replicate):
        calls.append(replicate)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return fit(self, replicate)

    monkeypatch.setattr(FitJob, "fit", interrupted)
    run = {"replicates": 4, "tune": 20, "random_seed": SEED, "quiet": True}
    with pytest.warns(UserWarning, match="5 of 9 fits"):
        part = pmdp.design(build, EPSILONS, SIZES[0], **run)
    assert np.isfinite(part["fits"]["draws"]).sum("replicate").values.ravel().tolist() == [4, 1]
    assert np.isfinite(part["expected"]["mu"]).all()


def test_shares_of_one_have_errors_too():
    hits = Dataset(
        {"p": (("quantity", "replicate"), np.array([[1.0, 1, 1, 1], [1.0, 1, 3, np.nan]]))},
        {"quantity": ["coverage", "sd"]},
    )
    assert np.isnan(_mcse(np.nan * hits)["p"]).all()
    error = _mcse(hits)["p"]
    assert float(error.sel(quantity="coverage")) == pytest.approx(np.sqrt(0.75 * 0.25 / 8))
    assert float(error.sel(quantity="sd")) == pytest.approx(np.std([1, 1, 3], ddof=1) / np.sqrt(3))


def test_chains_start_inside_their_prior():
    """A uniform number of records may be drawn at its edge, where rounding has no density."""
    edge = np.log(50)
    assert edge < _within(edge, np.log(75)) < edge + 1e-5
    assert _within(np.array(3), np.array(9)) == 3


def marginal(epsilon, n):
    return pmdp.marginalize(build(epsilon, n))


def growing(epsilon, n):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1, shape=n)
        x = pm.Normal("x", mu.mean(), 1, shape=n)
        pmdp.Privatized("s", x.sum(), pmdp.Gaussian(sigma=1 / epsilon))
    return model


def unknown(epsilon, n):
    with pm.Model() as model:
        there = pmdp.unknown_size("n", pm.DiscreteUniform.dist(1, n))
        x = pm.Normal("x", pm.Normal("mu", 0, 1), 1, shape=n)
        pmdp.Privatized("s", (there * x).sum(), pmdp.Gaussian(sigma=1 / epsilon))
    return model


def curated(epsilon, n):
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mu"), 1, observed=np.arange(float(n)))
        pmdp.DPPenalty(epsilon=epsilon, delta=1e-6, chains=1, clip_logp=3, step_size=0.5)
    return model


@pytest.mark.parametrize(
    ("model", "arguments", "error", "message"),
    [
        (build, {"epsilon": [0, 1]}, ValueError, "epsilon must be a positive number"),
        (build, {"n": 2.5}, ValueError, "n must be whole numbers"),
        (build, {"replicates": 0}, ValueError, "replicates must be"),
        (build, {"ci_prob": 90}, ValueError, "ci_prob must be between"),
        (build, {"executor": 3}, TypeError, "no submit"),
        (build, {"var_names": ["x"]}, ValueError, "'x' is a record"),
        (build, {"truth": {"x": 1}}, ValueError, "'x' is not a parameter.*which has mu"),
        (lambda epsilon, n: None, {}, TypeError, "build.*gave None.*return model"),
        (growing, {"n": [5, 6]}, ValueError, r"'mu' has the shape \(6,\).*leave it out"),
        (unknown, {}, ValueError, "'n' is the name of a dimension.*another name"),
        (curated, {}, pmdp.PrivacyError, "curator's step was made"),
    ],
)  # fmt: skip
def test_what_cannot_be_planned_is_refused(model, arguments, error, message):
    with pytest.raises(error, match=message):
        pmdp.design(model, **({"epsilon": 1.0, "n": 5} | arguments))


def regression(epsilon, n):
    with pm.Model() as model:
        coef, sigma2 = pm.Normal("coef", 0, 2, shape=2), pm.InverseGamma("sigma2", 3, 0.5)
        x = pmdp.regression.NormalMoments(np.zeros(1), np.eye(1))
        s = pmdp.RegressionStatistics("s", n=n, coef=coef, sigma2=sigma2, x_moments=x)
        pmdp.Privatized("r", s, pmdp.Gaussian(sigma=1 / epsilon))
    return model


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (build, ""),
        (marginal, "not to be had: records were integrated out"),
        (unknown, "not to be had: the number of records is unknown"),
        (regression, "not to be had: statistics stand in place of the records"),
    ],
)
def test_where_records_themselves_cannot_be_had(model, reason):
    assert _not_to_be_had({(1.0, 20): model(1.0, 20)}) == reason


@pytest.mark.calibrate
def test_marginal_models_are_planned_too():
    """NUTS on the sum's own law; the records are gone. Five standard errors of 99 draws."""
    tree = pmdp.design(marginal, EPSILONS, 10_000, replicates=50, random_seed=SEED, quiet=True)
    exact = (PRIOR_SD**-2 + 1e8 / (1e4 + (10 / np.array(EPSILONS)) ** 2)) ** -0.5
    ratio = tree["expected"]["mu"].sel(quantity="sd", n=10_000) / exact
    assert np.all(np.abs(ratio - 1) < 5 * 0.08 / np.sqrt(50))
    assert tree.attrs["without_noise"] == "not to be had: records were integrated out"
