"""Leave one release out, against densities in closed form."""

from functools import partial

import arviz as az
import numpy as np
import pymc as pm
import pytensor
import pytest
from scipy import stats

import pymc_dp as pmdp
from pymc_dp.diagnostics.log_likelihood import _of_the_same_records
from pymc_dp.graph.intervals import ONCE

NOT_COMPILED = partial(pytensor.config.change_flags, mode="FAST_COMPILE")
SUMS, RECORDS, SIGMA = {"a": 31.0, "b": 61.0, "c": 22.0, "d": 48.0, "e": 40.0}, 100, 8.0


def holders():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        for name, released in SUMS.items():
            x = pm.Normal(f"x_{name}", mu, 1, shape=RECORDS)
            pmdp.Privatized(name, x.sum(), pmdp.Gaussian(sigma=SIGMA), observed=released)
    return model


@pytest.fixture(scope="module")
def small():
    return pmdp.marginalize(holders())


def exact_loo():
    """Density of each sum given the others: all are jointly normal."""
    values = np.array(list(SUMS.values()))
    covariance = RECORDS**2 * np.ones((5, 5)) + (RECORDS + SIGMA**2) * np.eye(5)
    densities = []
    for i in range(5):
        rest = np.arange(5) != i
        gain = covariance[i, rest] @ np.linalg.inv(covariance[np.ix_(rest, rest)])
        variance = covariance[i, i] - gain @ covariance[rest, i]
        densities.append(stats.norm.logpdf(values[i], gain @ values[rest], np.sqrt(variance)))
    return np.array(densities)


def test_leaving_one_holder_out(small):
    """Importance sampling from 4000 draws is some hundredths off: a factor of 100 is seen."""
    with small:
        idata = pmdp.sample(2000, chains=2, random_seed=1, quiet=True, cores=1)
        idata = pmdp.compute_log_likelihood(idata)
    found = az.loo(idata, pointwise=True)
    assert idata["log_likelihood"]["releases"].sizes["release"] == 5
    np.testing.assert_allclose(found.elpd_i, exact_loo(), atol=0.06)
    assert found.elpd == pytest.approx(exact_loo().sum(), abs=0.15)
    mu = idata.posterior["mu"].values
    sd = np.sqrt(RECORDS + SIGMA**2)
    density = stats.norm.logpdf(SUMS["b"], RECORDS * mu, sd)
    np.testing.assert_allclose(idata["log_likelihood"]["releases"].sel(release="b"), density)


def two_sums(observed=(1.0, 12.0)):
    with pm.Model() as model:
        x = pm.Normal("x", pm.Normal("mu", 0, 1), 1, shape=RECORDS)
        for name, power, value in zip("st", (1, 2), observed, strict=True):
            noise = pmdp.Gaussian(sigma=SIGMA)
            pmdp.Privatized(name, (pmdp.clamp(x, -3, 3) ** power).sum(), noise, observed=value)
        pm.Normal("other", model["mu"], 1, observed=[0.3, 0.1])
    return model


def test_releases_of_the_same_records_are_one_point():
    """Their joint density, which does not depend on which of them comes first."""
    model = pmdp.marginalize(two_sums())
    assert sorted(map(sorted, _of_the_same_records(model))) == [["other"], ["s", "t"]]
    idata = az.from_dict({"posterior": {"mu": np.array([[0.1, 0.2]])}})
    with NOT_COMPILED():
        idata = pmdp.compute_log_likelihood(idata, model=model)
    found = idata["log_likelihood"]["releases"]
    assert set(found["release"].values) == {"s, t", "other[0]", "other[1]"}
    logp = model.compile_logp(vars=[model["s"], model["t"]], mode=ONCE)
    both = [logp({"mu": np.array(mu)}) for mu in (0.1, 0.2)]
    np.testing.assert_allclose(found.sel(release="s, t")[0], both)
    np.testing.assert_allclose(
        found.sel(release="other[0]")[0], stats.norm.logpdf(0.3, [0.1, 0.2], 1)
    )


def test_answers_with_noise_of_their_own_are_points():
    with pm.Model() as model:
        x = pm.Bernoulli("x", pm.Beta("p", 1, 1), shape=3)
        noise = pmdp.RandomizedResponse(2, keep=0.8)
        pmdp.Privatized("answers", x, noise, observed=np.array([0, 1, 1]))
    idata = az.from_dict({"posterior": {"p": np.array([[0.25]])}})
    with NOT_COMPILED():
        found = pmdp.compute_log_likelihood(idata, model=pmdp.marginalize(model))
    yes = 0.25 * 0.8 + 0.75 * 0.2
    values = found["log_likelihood"]["releases"].values.ravel()
    np.testing.assert_allclose(np.exp(values), [1 - yes, yes, yes])


def test_one_release_is_no_point_to_leave_out():
    with pm.Model() as model:
        x = pm.Normal("x", pm.Normal("mu", 0, 1), 1, shape=RECORDS)
        pmdp.Privatized("s", x.sum(), pmdp.Gaussian(sigma=SIGMA), observed=3.0)
    idata = az.from_dict({"posterior": {"mu": np.array([[0.1, 0.2]])}})
    with pytest.warns(UserWarning, match="'s' is the only point.*the prior"):
        pmdp.compute_log_likelihood(idata, model=pmdp.marginalize(model))


def test_models_whose_releases_are_no_points():
    idata = az.from_dict({"posterior": {"mu": np.zeros((1, 2))}})
    with pytest.raises(ValueError, match=r"'x.*' is confidential and latent.*marginalize"):
        pmdp.compute_log_likelihood(idata, model=holders())
    with pytest.raises(ValueError, match="'s' has no value"):
        pmdp.compute_log_likelihood(idata, model=pmdp.marginalize(two_sums((None, None))))
    with pm.Model() as curated:
        pm.Normal("y", pm.Normal("mu"), 1, observed=[0.3, -0.2, 1.1])
        pmdp.DPPenalty(epsilon=1, delta=1e-6, chains=1, clip_logp=3, step_size=0.5)
    with pytest.raises(pmdp.PrivacyError, match="not private"):
        pmdp.compute_log_likelihood(idata, model=curated)


@pytest.mark.parametrize("group", ["log_likelihood", "log_prior"])
def test_densities_of_records_that_are_not_stored_are_refused_before_sampling(group):
    with holders(), pytest.raises(ValueError, match=r"'x_a'.*var_names=.*marginalize"):
        pmdp.sample(idata_kwargs={group: True})
