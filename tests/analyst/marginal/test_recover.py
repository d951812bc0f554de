"""Records drawn afterwards: against enumeration, closed forms and the release itself."""

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy import stats

import pymc_dp as pmdp


class Draws:
    """Draws of parameters, as an inference result has them."""

    def __init__(self, **values):
        found = {k: np.asarray(v, float)[None] for k, v in values.items()}
        dims = {
            k: ("chain", "draw", *(f"{k}_{i}" for i in range(v.ndim - 2))) for k, v in found.items()
        }
        self.posterior = xr.Dataset({k: (dims[k], v) for k, v in found.items()})


def test_categories_by_enumeration():
    """Share of ones among 4000 draws of each report; false alarms 1e-5."""
    reports = np.array([0, 1, 1])
    coin = pmdp.RandomizedResponse(2, keep=0.8)
    with pm.Model(coords={"person": ["a", "b", "c"]}) as model:
        p = pm.Beta("p", 1, 1)
        x = pm.Bernoulli("x", p, dims="person")
        pmdp.Privatized("r", x, coin, observed=reports)
    found = pmdp.recover_records(Draws(p=np.full(4000, 0.3)), model, draws=None, random_seed=1)
    assert found["x"].dims == ("chain", "draw", "person")
    ones = found["x"].values.sum(axis=(0, 1))
    weight = 0.3 * coin.matrix[1, reports], 0.7 * coin.matrix[0, reports]
    expected = weight[0] / (weight[0] + weight[1])
    for count, share in zip(ones, expected, strict=True):
        assert stats.binomtest(int(count), 4000, share).pvalue > 1e-5


def test_normal_records_in_closed_form():
    """Kolmogorov-Smirnov against the normal conditional; false alarms 1e-5."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        x = pm.Normal("x", mu, 2.0, shape=2)
        pmdp.Privatized("r", x, pmdp.Gaussian(sigma=1.0), observed=[1.0, -3.0])
    found = pmdp.recover_records(Draws(mu=np.full(3000, 0.5)), model, draws=None, random_seed=2)
    for i, released in enumerate((1.0, -3.0)):
        law = stats.norm((0.5 * 1 + released * 4) / 5, np.sqrt(4 / 5))
        assert stats.kstest(found["x"].values[0, :, i], law.cdf).pvalue > 1e-5


def test_records_of_a_sum_follow_the_release():
    """Means of the total against its normal law given the parameters; false alarms 1e-5."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        sigma = pm.HalfNormal("sigma", 2)
        x = pm.Normal("x", mu, sigma, shape=20)
        pmdp.Privatized("r", x.sum(), pmdp.Gaussian(sigma=3.0), observed=25.0)
    idata = Draws(mu=np.full(400, 0.5), sigma=np.full(400, 1.5))
    found = pmdp.recover_records(idata, model, draws=None, sweeps=10, random_seed=3)
    totals = found["x"].values[0, 20:].sum(axis=-1)
    variance = 20 * 1.5**2
    mean = 10 + variance / (variance + 9) * (25 - 10)
    sd = np.sqrt(variance * 9 / (variance + 9))
    # ten sweeps leave draws correlated: an effective size of a tenth is assumed
    assert abs(totals.mean() - mean) < 4.5 * sd / np.sqrt(len(totals) / 10)


def test_says_what_is_missing():
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        x = pm.Bernoulli("x", p, shape=3)
        pmdp.Privatized("r", x, pmdp.RandomizedResponse(2, keep=0.8), observed=[0, 1, 1])
    with pytest.raises(ValueError, match="no draws of 'p'"):
        pmdp.recover_records(Draws(q=np.zeros(3)), model)
    with pytest.raises(ValueError, match="has no records"):
        pmdp.recover_records(Draws(p=np.full(3, 0.5)), pmdp.marginalize(model))
