"""What is compiled for one model serves another one that is the same but for its records.

Held scores are compared with ones written out in NumPy, to rounding.
"""

import numpy as np
import pymc as pm
import pytest
from scipy.special import expit

from pymc_dp.curator.model import RecordModel
from pymc_dp.curator.score.totals import ConfidentialScores

PLACE, BASIS, CLIP = np.array([0.4, -0.9]), np.array([[1.5, 0.0], [-0.4, 0.7]]), 0.6


def records(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, (rng.logistic(size=n) < X @ PLACE).astype(int)


def scores(X, y, offset, like=None):
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        pm.Bernoulli("y", logit_p=pm.math.dot(X, beta) + offset, observed=y)
    shared = None if like is None else like.records
    found = ConfidentialScores(model, RecordModel(model, confidential=False, like=shared))
    found.bound("covariates", like)
    return found


def held(bound, X, y, offset):
    """Scores, one record a column."""
    slope, p = X @ BASIS, expit(X @ PLACE + offset)
    possible = np.abs(y - p) if bound == "length" else np.maximum(p, 1 - p)
    longest = np.linalg.norm(slope, axis=1) * possible
    return ((y - p) * np.minimum(1, CLIP / longest))[:, None].T * slope.T


@pytest.mark.wide_except("0.25-covariates", "-0.5-length")
@pytest.mark.parametrize("bound", ["covariates", "length"])
@pytest.mark.parametrize("offset", [0.25, -0.5])
def test_other_records(bound, offset):
    """Of the same model, or of one that only looks like it."""
    first, second = records(300, 1), records(450, 2)
    one = scores(*first, 0.25)
    other = scores(*second, offset, like=one)
    same = offset == 0.25
    assert (other._by_covariates._parts is one._by_covariates._parts) == same
    assert (other.records.likelihood._logp is one.records.likelihood._logp) == same
    for each, of, shift in ((other, second, offset), (one, first, 0.25)):
        found = each.parts(bound, PLACE, BASIS, CLIP)
        np.testing.assert_allclose(found, held(bound, *of, shift), rtol=1e-6, atol=1e-9)
        likely = of[1] * (of[0] @ PLACE + shift) - np.logaddexp(0, of[0] @ PLACE + shift)
        np.testing.assert_allclose(each.records.likelihood(PLACE), likely, rtol=1e-9)
