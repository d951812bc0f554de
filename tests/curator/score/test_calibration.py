"""Simulation-based calibration of posteriors from a score release, data simulated anew every time.

Where a parameter lies in its posterior is uniform over data sets drawn from the prior (Talts et al.
2018). Records are integrated out, by simulated ones; false-alarm rate 1e-5 a parameter
(``tests.checks.rank_uniformity``).
"""

import numpy as np
import pymc as pm
import pytest

import pymc_dp as pmdp
from tests.checks import rank_uniformity
from tests.curator.score.models import seeded_noise

REPLICATES, DRAWS, N = 200, 99, 1000


def model_of(name, **records):
    with pm.Model() as model:
        covariates = records.pop("X", None)
        kwargs = records or {"shape": N}
        if name == "hierarchical":
            mean = pm.Normal("mean", 0, 0.5)
            effect = pm.Normal("effect", mean, 0.3, shape=5)
            if covariates is None:
                covariates = pm.Categorical("X", np.full(5, 0.2), shape=N)
            pm.Normal("y", effect[covariates], 1.0, **kwargs)
            return model
        beta = pm.Normal("beta", 0, 0.3, shape=4 if name == "logistic" else 2)
        if covariates is None:
            covariates = pm.Normal("X", 0, 1, shape=(N, beta.type.shape[0]))
        eta = pm.math.dot(covariates, beta)
        if name == "logistic":
            pm.Bernoulli("y", logit_p=eta, **kwargs)
        else:
            pm.Poisson("y", pm.math.exp(eta), **kwargs)
    return model


def records_of(name, rng):
    """Parameters from the prior, and records with them."""
    if name == "hierarchical":
        effect = rng.normal(rng.normal(0, 0.5), 0.3, size=5)
        X = rng.integers(0, 5, size=N)
        return {"effect": effect}, X, rng.normal(effect[X], 1.0)
    beta = rng.normal(0, 0.3, size=4 if name == "logistic" else 2)
    X = rng.normal(size=(N, beta.size))
    eta = X @ beta
    y = rng.logistic(size=N) < eta if name == "logistic" else rng.poisson(np.exp(eta))
    return {"beta": beta}, X, y.astype(int)


@pytest.mark.calibrate
@pytest.mark.parametrize("name", ["logistic", "poisson", "hierarchical"])
def test_ranks_are_uniform(name, monkeypatch):
    rng = np.random.default_rng(11)
    ranks = []
    for replicate in range(REPLICATES):
        truth, X, y = records_of(name, rng)
        [(key, value)] = truth.items()
        seeded_noise(monkeypatch, replicate)
        # an earlier study's estimate
        at = {key: value + rng.normal(0, 0.1, size=value.shape), "mean": 0.0}
        at = at if name == "hierarchical" else {key: at[key]}
        release = pmdp.score_release(
            model_of(name, X=X, observed=y), at=at, clip=1.0, epsilon=1, delta=1e-6
        )
        monkeypatch.undo()
        model = model_of(name)
        with model:
            release.declare("score")
        with pmdp.marginalize(model, method="expanded"):
            draws = pmdp.sample(
                500, tune=500, chains=1, cores=1, random_seed=replicate, progressbar=False,
                quiet=True, compute_convergence_checks=False,
            )  # fmt: skip
        kept = draws.posterior[key].values[0][:: 500 // DRAWS][:DRAWS]
        ranks.append((kept < value).sum(axis=0))
    for column in np.array(ranks).T:
        report = rank_uniformity(column, DRAWS)
        assert report.passed, report
