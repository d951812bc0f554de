"""Calibration of models whose posterior is known, and of one that is wrong."""

import copy
from concurrent.futures import ThreadPoolExecutor

import arviz as az
import numpy as np
import pymc as pm
import pytest
from pymc.pytensorf import find_rng_nodes, reseed_rngs
from scipy import stats

import pymc_dp as pmdp
from pymc_dp.diagnostics.calibration import run
from pymc_dp.diagnostics.calibration.fits import FitJob, Replicate
from pymc_dp.diagnostics.calibration.simulation import check_model, first_values, simulate
from pymc_dp.executors import worker
from tests.checks import rank_uniformity

SEED, RECORDS, PRIOR_SD = 20261118, 30, 1.0
NOISE = pmdp.Gaussian(sigma=3.0)


def normal_mean(sigma):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, PRIOR_SD)
        x = pm.Normal("x", mu, 1, shape=RECORDS)
        pmdp.Privatized("s", x.sum(), pmdp.Gaussian(sigma=sigma), observed=0.0)
    return model


def exact_places(simulated, sigma):
    """Posterior distribution function at the truth: normal prior, normal sum, normal noise."""
    noise = RECORDS + sigma**2
    precision = 1 / PRIOR_SD**2 + RECORDS**2 / noise
    mean = RECORDS * simulated.released["s"] / noise / precision
    return stats.norm.cdf((simulated.truths["mu"] - mean) * np.sqrt(precision))


def ranks(tree, name="mu"):
    return np.floor(tree["prior_sbc"][name].values[0] * (tree.attrs["draws"] + 1))


@pytest.fixture(scope="module")
def model():
    return normal_mean(3.0)


@pytest.fixture(scope="module")
def tree(model):
    return pmdp.calibrate(model, 200, tune=200, random_seed=SEED, quiet=True)


def test_places_are_those_of_the_exact_posterior(model, tree):
    """Each is a binomial share of 99 draws: at most 1e-6 a replicate, 2e-4 before continuity."""
    first, _ = np.random.SeedSequence(SEED).spawn(2)
    simulated = simulate(model, ["mu"], 200, int(first.generate_state(1)[0]))
    exact, found = exact_places(simulated, 3.0), ranks(tree)
    tails = np.minimum(stats.binom.cdf(found, 99, exact), stats.binom.sf(found - 1, 99, exact))
    assert tails.min() > 1e-7
    report = rank_uniformity(found, 99)
    assert report.passed, report


def test_result_is_what_arviz_reads(tree):
    assert tree["prior_sbc"]["mu"].dims == ("chain", "draw")
    assert tree["prior_sbc"]["mu"].shape == (1, 200)
    assert tree["coverage"]["mu"].sizes == {"level": 4}
    # binomial error of 200 replicates, five standard deviations
    levels = tree["coverage"]["level"].values
    error = 5 * np.sqrt(levels * (1 - levels) / 200)
    assert np.all(np.abs(tree["coverage"]["mu"].values - levels) < error)
    assert tree["fits"]["effective_size"].min() >= 99
    assert 396 <= tree["fits"]["draws"].min() <= tree["fits"]["draws"].max() < 20_000
    assert tree.attrs["short_replicates"] == 0
    az.plot_ecdf_pit(tree, backend="none")


@pytest.mark.oracles
def test_wrong_noise_is_seen(model):
    """Releases with four times the noise that the model knows of."""
    wrong = pmdp.calibrate(
        model, 100, simulator=normal_mean(12.0), tune=200, random_seed=SEED, quiet=True
    )
    assert not rank_uniformity(ranks(wrong), 99).passed
    assert np.all(wrong["coverage"]["mu"] < wrong["coverage"]["level"] - 0.15)


def test_replicates_do_not_depend_on_where_they_are_fitted(model, tree, monkeypatch):
    monkeypatch.setattr(run, "MOST_TASKS", 8)  # of three replicates
    with ThreadPoolExecutor(1) as pool:
        there = pmdp.calibrate(model, 20, executor=pool, tune=200, random_seed=SEED, quiet=True)
        again = pmdp.calibrate(model, 20, tune=200, random_seed=SEED, quiet=True)
    np.testing.assert_array_equal(there["prior_sbc"]["mu"], again["prior_sbc"]["mu"])
    np.testing.assert_array_equal(there["fits"]["draws"], again["fits"]["draws"])
    assert tree["prior_sbc"]["mu"].shape == (1, 200)


def test_fits_leave_nothing_behind():
    """NUTS adapts, and forgets what it learned on another release."""
    model = marginal()
    found = simulate(model, ["mu"], 2, seed=1)
    job = FitJob(model, first_values(model, found.released), ["mu"], 99, 100, 400, {})

    def place(i):
        truths = {"mu": found.truths["mu"][i]}
        return job.fit(
            Replicate(truths, {}, {"s": found.released["s"][i]}, np.random.SeedSequence(5))
        ).places["mu"]

    once = place(0)
    assert place(1) != once
    assert place(0) == once


def test_workers_go_on_with_what_they_compiled(model):
    """A second calibration of a model, with other releases, finds the job of the first.

    A pickle would not do: generators in a model change it.
    """
    worker._jobs.clear()
    with ThreadPoolExecutor(1) as pool:
        for seed in (1, 2):
            pmdp.calibrate(model, 4, executor=pool, tune=20, random_seed=seed, quiet=True)
            reseed_rngs(find_rng_nodes(model.basic_RVs), seed)
    assert len(worker._jobs) == 1


def test_chains_that_are_too_short_are_told(model):
    with pytest.warns(UserWarning, match=r"fewer than 99 effective draws among 99.*most_draws="):
        short = pmdp.calibrate(model, 5, tune=20, most_draws=99, random_seed=SEED, quiet=True)
    assert 0 < short.attrs["short_replicates"] <= 5


def test_interrupted_calibration_returns_what_is_there(model, monkeypatch):
    fit = FitJob.fit
    calls = []

    def interrupted(self, replicate):
        calls.append(replicate)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return fit(self, replicate)

    monkeypatch.setattr(FitJob, "fit", interrupted)
    with pytest.warns(UserWarning, match="3 of 10 replicates"):
        part = pmdp.calibrate(model, 10, tune=20, random_seed=SEED, quiet=True)
    assert part.attrs["replicates"] == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"replicates": 0}, "replicates must be"),
        ({"draws": 1.5}, "draws must be"),
        ({"var_names": ["x"]}, "'x' is a record"),
        ({"executor": 3}, "no submit"),
    ],
)
def test_wrong_arguments_are_refused(model, arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        pmdp.calibrate(model, **arguments)


def test_simulator_must_release_the_same(model):
    with pm.Model() as other:
        x = pm.Normal("x", pm.Normal("mu", 0, 1), 1, shape=RECORDS)
        pmdp.Privatized("r", x.sum(), pmdp.Gaussian(sigma=3), observed=0.0)
    with pytest.raises(ValueError, match="releases 'r'"):
        pmdp.calibrate(model, 2, simulator=other)


def counts():
    with pm.Model(coords={"group": ["a", "b", "c"]}) as model:
        rate = pm.Gamma("rate", 4, 0.2, dims="group")
        cells = pm.Poisson("counts", rate, dims="group")
        pmdp.Privatized("cells", cells, pmdp.DiscreteGaussian(sigma=2))
    return model


def marginal():
    return pmdp.marginalize(normal_mean(3.0))


def categories():
    with pm.Model() as model:
        p = pm.Dirichlet("p", [1.0, 2.0, 1.5])
        x = pm.Categorical("x", p, shape=2000)
        histogram = pm.math.eq(x[:, None], np.arange(3)).sum(0)
        pmdp.Privatized("h", histogram, pmdp.Laplace(scale=2), observed=[500.0, 1000.0, 500.0])
    return model


@pytest.mark.calibrate
@pytest.mark.parametrize(
    ("build", "simulator"), [(counts, None), (marginal, normal_mean(3.0)), (categories, None)]
)
def test_samplers_of_other_models_are_calibrated(build, simulator):
    """CountGibbs, NUTS for releases of records, and records that are counted; 1e-5 a parameter."""
    kwargs = {"random_seed": SEED, "simulator": simulator, "quiet": True}
    found = pmdp.calibrate(build(), 200, **kwargs)["prior_sbc"]
    for values in found.data_vars.values():
        for column in values.values[0].reshape(200, -1).T:
            report = rank_uniformity(np.floor(100 * column), 99)
            assert report.passed, report


def test_copies_of_confidential_models_and_their_covariates_are_refused():
    """Also with a release, which such a model needs, and where only covariates are the same."""
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(80, 2)), rng.normal(size=80)

    def build(X, **kwargs):
        with pm.Model() as model:
            beta = pm.Normal("beta", 0, 1, shape=2)
            records = pm.Normal("y", X @ beta, 1, **kwargs)
            pmdp.Privatized(
                "s", (0 * records if kwargs.get("shape") else beta).sum(), NOISE, observed=1.0
            )
        return model

    with pm.Model() as curated:
        beta = pm.Normal("beta", 0, 1, shape=2)
        pm.Normal("y", X @ beta, 1, observed=y)
        pmdp.DPPenalty(clip_logp=1.0, step_size=0.1, epsilon=1, delta=1e-6)
        pmdp.Privatized("s", beta.sum(), NOISE, observed=1.0)
    for model in (curated, copy.deepcopy(curated), build(X, observed=y), build(X, shape=80)):
        with pytest.raises(pmdp.PrivacyError, match="confidential"):
            pmdp.calibrate(model, 2, quiet=True)
    check_model(build(rng.normal(size=(80, 2)), shape=80))
