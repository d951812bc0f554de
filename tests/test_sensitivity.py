"""Sensitivities derived from graphs against ones known by hand or found by search."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_dp as pmdp
from pymc_dp.records import record_blocks, record_variables
from pymc_dp.sensitivity import derive_sensitivity


def derive(build):
    with pm.Model() as model:
        pmdp.Privatized("s", build(), pmdp.Laplace(scale=1))
    [block] = record_blocks(model, record_variables(model))
    return derive_sensitivity(block.contributions[0], block.records)


def normal(*shape):
    return pm.Normal("x", 0, 1, shape=shape)


@pytest.mark.parametrize(
    ("build", "l1", "l2"),
    [
        (lambda: pmdp.clamp(normal(9), -5, 5).sum(), 10, 10),
        (lambda: pmdp.clamp(normal(9), -5, 5).mean(), 10 / 9, 10 / 9),
        (lambda: (pmdp.clamp(normal(9), -3, 2) ** 2).sum(), 9, 9),
        (lambda: (2 * pmdp.clamp(normal(9), -3, 2) + 7).sum(), 10, 10),
        (lambda: (normal(9) > 0).sum(), 1, 1),
        (lambda: pmdp.clamp(pm.Exponential("x", 1, shape=9), 0, 4).sum(), 4, 4),
        (lambda: pmdp.clamp(pm.Poisson("x", 1, shape=9), -5, 4).sum(), 4, 4),
        (lambda: pm.Bernoulli("x", 0.5, shape=9).sum(), 1, 1),
        (
            lambda: pt.eq(pm.Categorical("x", np.ones(5) / 5, shape=9)[:, None], np.arange(5)).sum(
                0
            ),
            2,
            np.sqrt(2),
        ),
    ],
)
def test_exact_ones(build, l1, l2):
    found = derive(build)
    assert found.exact
    assert (found.l1, found.l2) == (pytest.approx(l1), pytest.approx(l2))


def test_naive_bayes_counts():
    # Ju et al. (2022), section 4: every feature's cell moves by one and back
    def build():
        y = pm.Categorical("y", np.ones(2) / 2, shape=4)
        x = pm.Categorical("x", pt.ones((2, 3, 3))[y] / 3, shape=(4, 3))
        cells = pt.eq(y[:, None, None, None], np.arange(2)[:, None]) * pt.eq(
            x[:, :, None, None], np.arange(3)
        )
        return cells.sum(axis=0)

    found = derive(build)
    assert found.exact
    assert found.l1 == 6


@pytest.mark.parametrize(
    "build",
    [
        lambda: pt.stack([(z := pmdp.clamp(normal(9), -1, 2)).sum(), (z**2).sum(), abs(z).sum()]),
        lambda: (z := pmdp.clamp(normal(9, 2), -1, 2)).T @ z,
        lambda: pmdp.clamp(normal(9, 2), [-1, 0], [2, 5]).sum(0) / np.array([1.0, -2.0]),
        lambda: ((z := pmdp.clamp(normal(9), -1, 2)) * z * np.arange(9.0)).sum(),
        lambda: pt.switch((z := pmdp.clamp(normal(9), -1, 2)) > 0, z, -3 * z).sum(),
    ],
)
def test_upper_bounds_hold(build):
    """No pair of records found by random search moves the statistic by more."""
    found = derive(build)
    with pm.Model() as model:
        pmdp.Privatized("s", build(), pmdp.Laplace(scale=1))
    [block] = record_blocks(model, record_variables(model))
    [rv] = block.records
    value = rv.type()
    from pytensor import function
    from pytensor.graph.replace import clone_replace

    rows = function([value], clone_replace(block.contributions[0], {rv: value}))
    rng = np.random.default_rng(0)
    scale = rng.choice([0.5, 3.0, 100.0], size=(400, *rv.type.shape))
    seen = np.array([rows(d) for d in scale * rng.standard_normal(scale.shape)])
    seen = seen.reshape(400, rv.type.shape[0], -1)
    gaps = np.abs(seen[:200, None] - seen[None, 200:])
    assert gaps.sum(-1).max() <= found.l1 + 1e-9
    assert np.sqrt((gaps**2).sum(-1)).max() <= found.l2 + 1e-9
    assert gaps.sum(-1).max() >= 0.3 * found.l1


def test_reasons_where_there_is_none():
    assert "clamp the records" in derive(lambda: normal(9).sum())
    with pm.Model() as model:
        scale = pm.HalfNormal("scale")
        x = pm.Normal("x", 0, 1, shape=9)
        pmdp.Privatized("s", scale * pmdp.clamp(x, -1, 1).sum(), pmdp.Laplace(scale=1))
    [block] = record_blocks(model, record_variables(model))
    assert "'scale'" in derive_sensitivity(block.contributions[0], block.records)
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        x = pm.Bernoulli("x", 0.5, shape=9)
        pmdp.Privatized("s", p * x.sum(), pmdp.Laplace(scale=1))
    [block] = record_blocks(model, record_variables(model))
    assert "'p'" in derive_sensitivity(block.contributions[0], block.records)
