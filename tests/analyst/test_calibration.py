"""Simulation-based calibration of RecordGibbs: `make calibrate`.

For parameters and a release drawn from the model, the rank of each parameter among posterior draws
is uniform (Talts et al. 2018). A chain starts at the values that made the release, which are a
draw from the posterior, and is thinned until its draws are nearly independent. Each parameter is
judged at a false-alarm rate of 1e-5.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.pytensorf import compile as pm_compile

import pymc_dp as pmdp
from tests.checks import rank_uniformity

pytestmark = pytest.mark.calibrate

DRAWS, THIN, WARM = 99, 12, 200


def clamped_normal_mean_and_scale(release):
    mu = pm.Normal("mu", 0, 1)
    sd = pm.Gamma("sd", 4, 4)
    x = pmdp.clamp(pm.Normal("x", mu, sd, shape=20), -3, 3)
    release(pt.stack([x.sum(), (x**2).sum()]), pmdp.Laplace(scale=[4.0, 8.0]), (2,))


def poisson_rate(release):
    rate = pm.Gamma("rate", 4, 2)
    x = pm.Poisson("x", rate, shape=30)
    release(pmdp.clamp(x, 0, 6).sum(), pmdp.Gaussian(sigma=5), ())


def categorical_histogram(release):
    p = pm.Dirichlet("p", [1.0, 2.0, 1.5])
    x = pm.Categorical("x", p, shape=30)
    release(pt.eq(x[:, None], np.arange(3)).sum(0), pmdp.Laplace(scale=2), (3,))


def regression_with_latent_x_and_y(release):
    slope = pm.Normal("slope", 0, 1)
    level = pm.Normal("level", 0, 1)
    sd = pm.Gamma("sd", 4, 4)
    x = pm.Normal("x", 0, 1, shape=20)
    y = pm.Normal("y", level + slope * x, sd, shape=20)
    cx, cy = pmdp.clamp(x, -2, 2), pmdp.clamp(y, -3, 3)
    sums = [cx.sum(), cy.sum(), cx @ cx, cx @ cy, cy @ cy]
    release(pt.stack(sums), pmdp.Laplace(scale=[2.0, 3.0, 3.0, 4.0, 6.0]), (5,))


def ranks(build, replicates, seed):
    """Ranks of every scalar parameter, one column a parameter."""
    with pm.Model() as model:
        build(
            lambda statistic, mechanism, shape: pmdp.Privatized(
                "s", statistic, mechanism, observed=pm.Data("released", np.zeros(shape))
            )
        )
        parameters = [rv for rv in model.free_RVs if rv.name not in ("x", "y")]
        gibbs, slice_ = pmdp.RecordGibbs(), pm.Slice(parameters)
        simulate = pm_compile(
            [],
            [*(_value(model, rv) for rv in model.free_RVs), model["s"]],
            random_seed=seed,
        )
        names = [model.rvs_to_values[rv].name for rv in parameters]
        generators = np.random.default_rng(seed).spawn(2)
        found = []
        for _ in range(replicates):
            *truth, released = simulate()
            pm.set_data({"released": released})
            point = {
                model.rvs_to_values[rv].name: v for rv, v in zip(model.free_RVs, truth, strict=True)
            }
            gibbs.setup_chain(generators[0], WARM, DRAWS)
            slice_.setup_chain(generators[1], WARM, DRAWS)
            slice_.tune = True
            start = np.concatenate([np.ravel(point[name]) for name in names])
            below = np.zeros(start.size, dtype=int)
            for i in range(WARM + DRAWS * THIN):
                if i == WARM:
                    slice_.stop_tuning()
                point, _ = gibbs.step(point)
                point, _ = slice_.step(point)
                if i >= WARM and (i - WARM) % THIN == THIN - 1:
                    below += np.concatenate([np.ravel(point[name]) for name in names]) < start
            found.append(below)
    return np.array(found)


def _value(model, rv):
    transform = model.rvs_to_transforms.get(rv)
    return rv if transform is None else transform.forward(rv, *rv.owner.inputs)


@pytest.mark.parametrize(
    "build",
    [
        clamped_normal_mean_and_scale,
        poisson_rate,
        categorical_histogram,
        regression_with_latent_x_and_y,
    ],
)
def test_simulation_based_calibration(build):
    for column in ranks(build, replicates=200, seed=20261116).T:
        report = rank_uniformity(column, DRAWS)
        assert report.passed, report
