"""Calibration of the normal law: data simulated from records, posteriors on a grid.

The posterior probability below the true parameter is uniform over draws of the prior, the records
and the noise. Kolmogorov-Smirnov at 1e-5.
"""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import special, stats

import pymc_dp as pmdp
from pymc_dp.graph.intervals import ONCE

NOISE = 40.0
LONG = pytest.mark.calibrate


def covariate(n):
    return np.arange(n) % 5 / 2.0


def normal(t, n):
    return pmdp.clamp(pm.Normal("x", t, 1, shape=n), -1, 2).sum()


def draw_normal(rng, t, n):
    return np.clip(rng.normal(t, 1, n), -1, 2).sum()


def gamma(t, n):
    return pmdp.clamp(pm.Gamma("x", pt.exp(t), 1, shape=n), 0, 3).sum()


def draw_gamma(rng, t, n):
    return np.clip(rng.gamma(np.exp(t), 1, n), 0, 3).sum()


def logit(t, n):
    return covariate(n) @ pm.Bernoulli("y", logit_p=t * covariate(n) - 1)


def draw_logit(rng, t, n):
    return covariate(n) @ (rng.random(n) < special.expit(t * covariate(n) - 1))


def pair(t, n):
    x = pm.Normal("x", 0.3, 1, shape=n)
    return (pm.Bernoulli("y", logit_p=t * x) * pmdp.clamp(x, -1, 1)).sum()


def draw_pair(rng, t, n):
    x = rng.normal(0.3, 1, n)
    return np.clip(x, -1, 1)[rng.random(n) < special.expit(t * x)].sum()


MODELS = {
    "normal": (normal, draw_normal),
    "gamma": (gamma, draw_gamma),
    "logit": (logit, draw_logit),
    "pair": (pair, draw_pair),
}


@pytest.mark.parametrize(
    ("name", "n"),
    [
        pytest.param(name, n, marks=[] if (name, n) == ("normal", 1000) else LONG)
        for name in MODELS
        for n in (1000, 10**6)
    ],
)
def test_posterior_probabilities_are_uniform(name, n):
    statistic, draw = MODELS[name]
    with pm.Model() as model:
        t = pm.Normal("t", 0.2, 0.3)
        released = pm.Data("released_value", 0.5 * n)
        pmdp.Privatized("r", statistic(t, n), pmdp.Laplace(scale=NOISE), observed=released)
    small = pmdp.marginalize(model, method="normal")
    value, places = small.value_vars[0], pt.vector("places")
    observed = pt.dscalar("observed")
    logp = pytensor.graph.replace.graph_replace(
        [small.logp()], {small["released_value"]: observed}, strict=False
    )[0]
    grid_logp = pytensor.function(
        [places, observed], pytensor.graph.replace.vectorize_graph(logp, {value: places}), mode=ONCE
    )
    rng = np.random.default_rng(11)
    ranks = []
    for _ in range(200):
        truth = rng.normal(0.2, 0.3)
        total = draw(rng, truth, n) + rng.laplace(0, NOISE)
        low, high = -1.5, 2.0
        for _ in range(4):  # towards where the posterior is
            grid = np.linspace(low, high, 301)
            p = grid_logp(grid, total)
            p = np.exp(p - p.max())
            near = grid[p > 1e-9]
            step = grid[1] - grid[0]
            low, high = near[0] - step, near[-1] + step
        cdf = np.concatenate([[0.0], np.cumsum(0.5 * (p[1:] + p[:-1]))])
        ranks.append(np.interp(truth, grid, cdf / cdf[-1]))
    assert stats.kstest(ranks, "uniform").pvalue > 1e-5
