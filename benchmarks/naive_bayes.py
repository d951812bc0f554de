"""Naive-Bayes records of Ju et al. (2022), section 4: against stock PyMC on the same model."""

import time

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_dp as pmdp

N, CLASSES, FEATURES, VALUES = 100, 5, 5, 3
EPSILON = 1.0


def build(seed=0):
    """The paper's model with a release simulated from it."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(CLASSES, 2.0))
    px = rng.dirichlet(np.full(VALUES, 2.0), (CLASSES, FEATURES))
    y = rng.choice(CLASSES, size=N, p=p)
    counts = np.zeros((FEATURES, CLASSES, VALUES))
    for record in y:
        for k in range(FEATURES):
            counts[k, record, rng.choice(VALUES, p=px[record, k])] += 1
    scale = 2 * FEATURES / EPSILON
    released = counts + rng.laplace(0, scale, counts.shape)
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.full(CLASSES, 2.0))
        px = pm.Dirichlet("px", np.full((CLASSES, FEATURES, VALUES), 2.0))
        y = pm.Categorical("y", p, shape=N)
        x = pm.Categorical("x", px[y], shape=(N, FEATURES))
        in_class = pt.eq(y[:, None, None, None], np.arange(CLASSES)[:, None])
        cells = in_class * pt.eq(x[:, :, None, None], np.arange(VALUES))
        pmdp.Privatized("cells", cells.sum(0), pmdp.Laplace(scale=scale), observed=released)
    return model


def cpu_seconds(step, point, repeats):
    """CPU seconds of a step once it is compiled, and the point it ends in."""
    point, _ = step.step(point)
    start = time.process_time()
    for _ in range(repeats):
        point, _ = step.step(point)
    return (time.process_time() - start) / repeats, point


def main() -> list[dict]:
    with build() as model:
        records = [model["y"], model["x"]]
        ours = pmdp.RecordGibbs(records)
        stock = pm.CategoricalGibbsMetropolis(records)
        nuts = pm.NUTS([model["p"], model["px"]])
        point = model.initial_point()
    for step in (ours, stock, nuts):
        step.setup_chain(1, 500, 500)
    _, point = cpu_seconds(nuts, point, 500)
    nuts.stop_tuning()
    of_nuts, point = cpu_seconds(nuts, point, 300)
    of_stock, _ = cpu_seconds(stock, point, 10)
    of_ours, _ = cpu_seconds(ours, point, 1000)
    return [
        {
            "part of an iteration": name,
            "RecordGibbs ms": 1e3 * a,
            "CategoricalGibbsMetropolis ms": 1e3 * b,
            "times faster": b / a,
        }
        for name, a, b in (
            ("records", of_ours, of_stock),
            ("records and parameters (NUTS)", of_ours + of_nuts, of_stock + of_nuts),
        )
    ]
