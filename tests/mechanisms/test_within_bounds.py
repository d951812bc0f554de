"""Noise that stays within bounds: laws by quadrature and enumeration, guarantees by search."""

import warnings

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import stats
from scipy.integrate import quad

import pymc_dp as pmdp
from pymc_dp.graph.intervals import ONCE
from tests.mechanisms.chi_square import assert_follows, evaluate

CONTINUOUS = [
    pmdp.FoldedLaplace(scale=2.0, lower=-1, upper=4),
    pmdp.FoldedLaplace(scale=80.0, lower=0, upper=1),
    pmdp.FoldedLaplace(scale=2.0, lower=0, upper=np.inf),
    pmdp.FoldedLaplace(scale=2.0, lower=-np.inf, upper=3),
    pmdp.BoundedLaplace(scale=2.0, lower=-1, upper=4),
    pmdp.BoundedLaplace(scale=0.1, lower=-1, upper=4),
]
WHOLE = [
    pmdp.FoldedDiscreteLaplace(scale=2.0, lower=0, upper=7),
    pmdp.FoldedDiscreteLaplace(scale=30.0, lower=-1.5, upper=2.5),
    pmdp.FoldedDiscreteLaplace(scale=2.0, lower=0, upper=np.inf),
    pmdp.FoldedDiscreteLaplace(scale=2.0, lower=-np.inf, upper=1.5),
]


def fold(x, lower, upper):
    """One reflection after the other."""
    while not lower <= x <= upper:
        x = 2 * lower - x if x < lower else 2 * upper - x
    return x


def kernels_agree(mechanism, released, statistic):
    noise = float(mechanism.noise)
    symbolic = evaluate(mechanism.logp(released, np.full(len(released), statistic)))
    other = evaluate(mechanism.logp(released, np.full(len(released), statistic + 1)))
    compiled = [mechanism.log_density(r, statistic, noise) for r in released]
    compiled_other = [mechanism.log_density(r, statistic + 1, noise) for r in released]
    np.testing.assert_allclose(
        symbolic - other, np.array(compiled) - np.array(compiled_other), atol=1e-9
    )


@pytest.mark.filterwarnings("ignore::pymc_dp.PrivacyWarning")
@pytest.mark.parametrize("mechanism", CONTINUOUS, ids=repr)
@pytest.mark.parametrize("statistic", [0.4, 3.9, -6.0])
def test_continuous_law(mechanism, statistic):
    """The density integrates to one, has the law of the sampler, and is the compiled one.

    False-alarm rate 1e-5 each.
    """
    low, high = max(mechanism.lower, -60), min(mechanism.upper, 60)
    grid = np.linspace(low, high, 4001)
    p = np.exp(evaluate(mechanism.logp(grid, np.full(grid.size, statistic))))
    cdf = np.concatenate([[0], np.cumsum((p[1:] + p[:-1]) / 2 * (grid[1] - grid[0]))])
    assert cdf[-1] == pytest.approx(1, abs=3e-4)
    if mechanism.noise > 1:
        kernels_agree(mechanism, grid[100:-100:200], statistic)
    draws = [mechanism.release(np.full(2000, statistic))]  # no seed: the system's entropy
    if isinstance(mechanism, pmdp.FoldedLaplace):
        plain = stats.laplace(statistic, float(mechanism.noise)).rvs(2000, random_state=2)
        draws.append([fold(x, mechanism.lower, mechanism.upper) for x in plain])
    if statistic == 3.9:
        with pm.Model():
            x = pm.Normal("x", statistic, 1e-9, shape=1)
            noisy = pmdp.Privatized("noisy", x.sum(), mechanism)
        draws.append(pm.draw(noisy, 2000, random_seed=1, mode=ONCE))
    for drawn in draws:
        assert stats.kstest(drawn, lambda x: np.interp(x, grid, cdf)).pvalue > 1e-5


@pytest.mark.parametrize("mechanism", WHOLE, ids=repr)
@pytest.mark.parametrize("statistic", [0, 2, -5])
def test_whole_law(mechanism, statistic):
    """Probabilities are those of all noise that is folded there, one by one."""
    scale = float(mechanism.noise)
    noise = np.arange(-4000, 4001)
    p = np.tanh(1 / (2 * scale)) * np.exp(-np.abs(noise) / scale)
    folded = np.array([fold(statistic + k, mechanism.lower, mechanism.upper) for k in noise])
    values = np.unique(folded)
    values = values[np.abs(values) < 60].astype(int)
    exact = np.array([p[folded == v].sum() for v in values])
    log_p = evaluate(mechanism.logp(values, np.full(values.size, statistic)))
    np.testing.assert_allclose(np.exp(log_p), exact, rtol=1e-9)
    kernels_agree(mechanism, values, statistic)
    released = mechanism.release(np.full(2000, statistic))  # false-alarm rate 1e-5, no seed
    assert_follows(released, values, log_p)


@pytest.mark.parametrize("width", [0.5, 3.0, 5.0])
def test_epsilon_of_a_bounded_law(width):
    """No pair of statistics, at no value, has a larger ratio; one pair has it."""
    mechanism = pmdp.BoundedLaplace(epsilon=0.7, sensitivity=width, lower=0, upper=5)
    assert mechanism.guarantee().epsilon == pytest.approx(0.7)
    s = np.linspace(0, 5, 101)
    tables = np.array([[mechanism.log_density(r, x, float(mechanism.noise)) for r in s] for x in s])
    near = np.abs(s[:, None] - s[None, :]) <= width + 1e-9
    ratios = np.abs(tables[:, None, :] - tables[None, :, :]).max(axis=2)[near]
    assert ratios.max() == pytest.approx(0.7)
    r, x = pt.dscalars("r", "x")
    density = pytensor.function([r, x], pt.exp(mechanism.logp(r, x)), mode=ONCE)
    for place in (0.0, 1.3, 5.0):
        mass, _ = quad(density, 0, 5, args=(place,), points=[place], limit=80)
        assert mass == pytest.approx(1, abs=1e-6)


def test_folding_costs_nothing():
    noise = pmdp.FoldedLaplace(epsilon=0.5, sensitivity=2, lower=0, upper=9)
    assert (noise.scale, noise.guarantee().epsilon) == (4, 0.5)


def test_slopes_are_finite_where_nuts_goes():
    each = pmdp.BoundedLaplace(scale=[2.0, 2.0], lower=-1, upper=4)
    for mechanism in (CONTINUOUS[0], each):
        with pm.Model() as model:
            x = pm.Normal("x", 0, 3, shape=2)
            pmdp.Privatized("r", x, mechanism, observed=[0.0, 3.5])
        slope = model.compile_dlogp(mode="FAST_COMPILE")
        for point in ([-30.0, 2.0], [0.3, 50.0]):
            assert np.all(np.isfinite(slope({"x": np.array(point)})))


def test_one_scale_is_for_one_number():
    with pm.Model():
        x = pm.Normal("x", 0, 3, shape=2)
        with pytest.raises(ValueError, match="protects one number"):
            pmdp.Privatized("r", x, CONTINUOUS[4], observed=[0.0, 3.5])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pmdp.FoldedLaplace(2, lower=3, upper=3), "lower < upper"),
        (lambda: pmdp.FoldedLaplace(2, lower=-np.inf, upper=np.inf), "lower < upper"),
        (lambda: pmdp.FoldedDiscreteLaplace(2, lower=0.2, upper=3), "whole or half numbers"),
        (lambda: pmdp.BoundedLaplace(2, lower=0, upper=np.inf), "both finite"),
        (lambda: pmdp.FoldedLaplace(lower=0, upper=1), "Neither the noise nor a guarantee"),
        (lambda: CONTINUOUS[0].checked_release("r", np.array(5.0), ()), "outside .-1, 4."),
        (lambda: WHOLE[0].checked_release("r", np.array(0.5), ()), "whole numbers"),
        (lambda: pmdp.FoldedLaplace([1, 2], lower=0, upper=1).release([1, 2, 3]), "noise of shape"),
    ],
)
def test_what_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("scale", [1e9, 1e16])
def test_large_scales_do_not_release_the_statistic(scale):
    """Uniform then; differences from one were lost, and the statistic came out as it was."""
    noise = pmdp.BoundedLaplace(scale, lower=0, upper=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        drawn = noise.release(np.array(0.123456789)), noise.release(np.array(0.123456789))
        many = [float(noise.release(np.array(0.5))) for _ in range(200)]
    assert 0.123456789 not in drawn
    # false-alarm rate 1e-6
    assert stats.kstest(many, "uniform").pvalue > 1e-6
    np.testing.assert_allclose(noise.logp(0.3, 0.5).eval(mode=ONCE), 0.0, atol=1e-6)
    assert noise.guarantee(1.0).epsilon >= 1 / scale
