"""Models and records that the tests of shards share."""

from itertools import pairwise

import numpy as np
import pymc as pm

import pymc_dp as pmdp

N = 1003
RNG = np.random.default_rng(7)
X = RNG.normal(size=(N, 3))
Y = (RNG.random(N) < 1 / (1 + np.exp(-X @ [0.5, -0.5, 0.2]))).astype(int)
#: where records are cut: one shard, two, and seven with empty ones, a single record and few
CUTS = {"one": (), "two": (401,), "seven": (0, 1, 70, 70, 333, 900)}


def logistic(X, y):
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=3)
        pm.Bernoulli("y", logit_p=X @ beta, observed=y)
    return model


def student(X, y):
    """Values and a predictor together, and a hyperparameter that no record informs directly."""
    with pm.Model() as model:
        scale = pm.HalfNormal("scale", 1)
        beta = pm.Normal("beta", 0, scale, shape=3)
        sigma = pm.HalfNormal("sigma", 1)
        pm.StudentT("y", nu=5, mu=X @ beta, sigma=sigma, observed=y)
    return model


def normal(y):
    with pm.Model() as model:
        mu, sigma = pm.Normal("mu", 0, 1), pm.HalfNormal("sigma", 1)
        pm.Normal("y", mu, sigma, observed=y)
    return model


def groups(X, y):
    """No chain rule for it: gradients by forward mode."""
    with pm.Model() as model:
        level = pm.Normal("level", 0, 1, shape=2)
        pm.Normal("y", level[y] + X[:, 0] ** 2, 1, observed=X[:, 1])
    return model


def split(arrays, cuts):
    ends = [0, *cuts, N]
    return [tuple(a[i:j] for a in arrays) for i, j in pairwise(ends)]


def draws(model, kind, seed=5, **kwargs):
    """Everything a short run publishes, with noise that follows the seed."""
    with model:
        step = kind(simulation=True, rng=3, chains=1, **kwargs)
        tree = pmdp.sample(
            25, tune=5, chains=1, cores=1, step=step, random_seed=seed, progressbar=False
        )
    groups = (tree.posterior, tree.sample_stats)
    return {name: values.to_numpy() for group in groups for name, values in group.items()}
