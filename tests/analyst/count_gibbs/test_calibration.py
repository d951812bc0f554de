"""Simulation-based calibration of CountGibbs: `make calibrate`.

As in tests/analyst/test_calibration.py: for parameters, counts and releases drawn from the model,
ranks among thinned posterior draws are uniform. Every scalar is judged at a false-alarm rate of
1e-5. Ranks of counts have ties, which are broken at random.
"""

import numpy as np
import pymc as pm
import pytest
from pymc.pytensorf import compile as pm_compile

import pymc_dp as pmdp
from tests.checks import rank_uniformity

pytestmark = pytest.mark.calibrate

DRAWS, THIN, WARM = 49, 8, 300


def hierarchical_poisson(release):
    mu, tau = pm.Normal("mu", 2, 0.5), pm.Gamma("tau", 4, 6)
    counts = pm.Poisson("counts", pm.LogNormal("rate", mu, tau, shape=6))
    release("cells", counts, pmdp.DiscreteGaussian(sigma=2), (6,))


def multinomial_with_margins(release):
    p = pm.Dirichlet("p", np.full(4, 2.0))
    counts = pm.Multinomial("counts", 4000, p)
    release("cells", counts, pmdp.Laplace(scale=30), (4,))
    release("rows", counts.reshape((2, 2)).sum(axis=1), pmdp.DiscreteLaplace(scale=20), (2,))


def small_multinomials(release):
    p = pm.Dirichlet("p", np.full(3, 2.0))
    counts = pm.Multinomial("counts", [8, 12], p, shape=(2, 3))
    release("sums", counts[:, :2].sum(axis=1), pmdp.DiscreteLaplace(scale=2), (2,))
    release("cells", counts, pmdp.DiscreteGaussian(sigma=3), (2, 3))


def nested_geography(release):
    profile = pm.Gamma("profile", 3, 0.3, shape=3)
    size = pm.Gamma("size", 8, 8, shape=2)
    counts = pm.Poisson("counts", size[:, None, None] * profile, shape=(2, 3, 3))
    release("tract", counts, pmdp.DiscreteGaussian(sigma=4), (2, 3, 3))
    release("county", counts.sum(axis=1), pmdp.DiscreteGaussian(sigma=3), (2, 3))
    release("state", counts.sum(axis=(0, 1)), pmdp.DiscreteGaussian(sigma=2), (3,))
    release("total", counts.sum(), pmdp.Exact(), ())


def ranks(build, replicates, seed):
    """Ranks of every scalar, parameters and counts, one column each."""
    with pm.Model() as model:
        names = []

        def release(name, statistic, mechanism, shape):
            names.append(name)
            start = np.zeros(shape, dtype=mechanism.dtype)
            observed = pm.Data(f"{name}_released", start)
            pmdp.Privatized(name, statistic, mechanism, observed=observed)

        build(release)
        step = pmdp.CountGibbs()
        values = [model.rvs_to_values[rv].name for rv in model.free_RVs]
        transforms = model.rvs_to_transforms
        latent = [
            transforms[rv].forward(rv, *rv.owner.inputs) if transforms.get(rv) else rv
            for rv in model.free_RVs
        ]
        drawn = [*latent, *(model[name] for name in names)]
        simulate = pm_compile([], drawn, random_seed=seed)
        rng = np.random.default_rng(seed)
        found = []
        for _ in range(replicates):
            simulated = simulate()
            truth, released = simulated[: len(values)], simulated[len(values) :]
            for name, value in zip(names, released, strict=True):
                pm.set_data({f"{name}_released": value})
            point = dict(zip(values, truth, strict=True))
            flat = np.concatenate([np.ravel(point[v]) for v in values]).astype(float)
            flat = flat + 1e-6 * rng.random(flat.size)
            step.setup_chain(rng, WARM, DRAWS)
            below = np.zeros(flat.size, dtype=int)
            for i in range(WARM + DRAWS * THIN):
                if i == WARM:
                    step.stop_tuning()
                point, _ = step.step(point)
                if i >= WARM and (i - WARM) % THIN == THIN - 1:
                    here = np.concatenate([np.ravel(point[v]) for v in values]).astype(float)
                    below += here + 1e-6 * rng.random(here.size) < flat
            found.append(below)
    return np.array(found)


@pytest.mark.parametrize(
    "build",
    [hierarchical_poisson, multinomial_with_margins, small_multinomials, nested_geography],
)
def test_simulation_based_calibration(build):
    for column in ranks(build, replicates=200, seed=20261118).T:
        report = rank_uniformity(column, DRAWS)
        assert report.passed, report
