"""Staircase noise: its law by quadrature, its guarantee by search."""

from itertools import pairwise

import numpy as np
import pymc as pm
import pytest
from scipy import stats
from scipy.integrate import quad

import pymc_dp as pmdp
from pymc_dp.graph.intervals import ONCE

CASES = [
    pmdp.Staircase(epsilon=1.0, sensitivity=2.0),
    pmdp.Staircase(epsilon=0.3, sensitivity=1.0, gamma=0.8),
    pmdp.Staircase(epsilon=4.0, sensitivity=0.5),
]
IDS = ["usual", "steps elsewhere", "weak"]


def cdf(mechanism, x):
    def above(y):
        return np.array([np.exp(mechanism.log_tail(v, float(mechanism.noise))) for v in y])

    return np.where(x >= 0, 1 - above(np.abs(x)), above(np.abs(x)))


@pytest.mark.parametrize("mechanism", CASES, ids=IDS)
def test_law(mechanism):
    width, gamma = float(mechanism.noise), mechanism.gamma
    grid = np.linspace(-4.2, 4.2, 43) * width
    logp = mechanism.logp(grid, np.zeros(grid.size)).eval(mode=ONCE)
    kernel = np.array([mechanism.log_density(x, 0.0, width) for x in grid])
    np.testing.assert_allclose(kernel - kernel[0], logp - logp[0], atol=1e-12)

    def f(x):
        return np.exp(mechanism.log_density(x, 0.0, width) + logp[0] - kernel[0])

    for x in (0.0, 0.3 * width, 0.9 * width, 2.5 * width):
        edges = [width * (k + part) for k in range(80) for part in (0.0, gamma)]
        pieces = [x, *(e for e in edges if e > x)]
        mass = sum(quad(f, a, b)[0] for a, b in pairwise(pieces))
        rest = 0.5 * np.exp(-80 * mechanism.epsilon)
        tail = np.exp(mechanism.log_tail(x, width))
        assert tail == pytest.approx(mass + rest, rel=1e-6, abs=1e-9)
        assert mechanism.symbolic_log_tail(x).eval(mode=ONCE) == pytest.approx(
            mechanism.log_tail(x, width)
        )


@pytest.mark.parametrize("mechanism", CASES, ids=IDS)
@pytest.mark.filterwarnings("ignore::pymc_dp.PrivacyWarning")
def test_draws(mechanism):
    # false-alarm rate 1e-5 each; the second has the system's entropy and so no seed
    with pm.Model():
        x = pm.Normal("x", 7, 1e-9, shape=1)
        noisy = pmdp.Privatized("noisy", x.sum(), mechanism)
    drawn = pm.draw(noisy, 3000, random_seed=1, mode=ONCE) - 7.0
    assert stats.kstest(drawn, lambda x: cdf(mechanism, x)).pvalue > 1e-5
    released = np.array([float(mechanism.release(7.0)) for _ in range(3000)]) - 7.0
    assert stats.kstest(released, lambda x: cdf(mechanism, x)).pvalue > 1e-5


@pytest.mark.parametrize("mechanism", CASES, ids=IDS)
def test_one_number_is_as_private_as_it_says(mechanism):
    width = float(mechanism.noise)
    x = np.linspace(-6, 6, 4001) * width
    worst = 0.0
    for shift in np.linspace(0, 1, 23) * width:
        pairs = [
            mechanism.log_density(r, 0.0, width) - mechanism.log_density(r, shift, width) for r in x
        ]
        worst = max(worst, np.abs(pairs).max())
    assert worst == pytest.approx(mechanism.epsilon)
    assert mechanism.guarantee().epsilon == mechanism.epsilon
    assert mechanism.guarantee(1.5 * width).epsilon == pytest.approx(2 * mechanism.epsilon)


def test_several_numbers_have_a_sensitivity_each():
    mechanism = pmdp.Staircase(epsilon=1, sensitivity=[1.0, 2.0])
    assert mechanism.guarantee().epsilon == 2.0
    with pm.Model():
        x = pm.Normal("x", 0, 1, shape=(5, 2))
        sums = pmdp.clamp(x, 0, [1, 2]).sum(axis=0)
        pmdp.Privatized("r", sums, mechanism, observed=[1.0, 2.0])
        with pytest.raises(ValueError, match="protects one number"):
            pmdp.Privatized("s", sums, CASES[0], observed=[1.0, 2.0])


@pytest.mark.parametrize(
    "wrong", [{"epsilon": 0}, {"sensitivity": -1}, {"gamma": 1.5}, {"gamma": "a"}]
)
def test_bad_input(wrong):
    with pytest.raises((ValueError, TypeError)):
        pmdp.Staircase(**({"epsilon": 1, "sensitivity": 1} | wrong))
