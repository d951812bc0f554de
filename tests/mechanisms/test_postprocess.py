"""Clamped, rounded and thresholded releases: probabilities, composition, draws, bad input."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.tensor.random.type import random_generator_type
from scipy import integrate, stats

import pymc_dp as pmdp
from pymc_dp.graph.intervals import ONCE
from pymc_dp.numerics.compiled import density_key
from tests.mechanisms.chi_square import assert_follows, evaluate

GRID = [
    (pmdp.Laplace(scale=2.0).rounded(5), 5 * np.arange(-60, 61)),
    (pmdp.Gaussian(sigma=7.0).rounded(2), 2 * np.arange(-100, 101)),
    (pmdp.DiscreteLaplace(scale=2.0).rounded(5), 5 * np.arange(-60, 61)),
    (pmdp.DiscreteGaussian(sigma=2.5).rounded(4), 4 * np.arange(-60, 61)),
    (pmdp.DiscreteLaplace(scale=2.0).clamped(0, 6), np.arange(0, 7)),
    (pmdp.DiscreteGaussian(sigma=25.0).clamped(lower=0), np.arange(0, 400)),
    (pmdp.DiscreteLaplace(scale=2.0).rounded(5).clamped(0, 10), np.array([0, 5, 10])),
    (pmdp.DiscreteLaplace(scale=2.0).clamped(0, 11).rounded(5), np.array([0, 5, 10])),
    (pmdp.Laplace(scale=2.0).clamped(0, 11).rounded(5), np.array([0, 5, 10])),
    (pmdp.DiscreteGaussian(sigma=3.0).thresholded(5, dropped=0), np.append(0, np.arange(5, 60))),
    (
        pmdp.Laplace(scale=2.0).rounded(5).clamped(lower=0).thresholded(10, dropped=-1),
        np.append(-1, 5 * np.arange(2, 60)),
    ),
]
GRID += [
    (pmdp.Laplace(scale=2.0).rounded(how="floor"), np.arange(-60, 70)),
    (pmdp.Laplace(scale=2.0).rounded(5, how="ceil"), 5 * np.arange(-20, 21)),
    (pmdp.Laplace(scale=6.0).rounded(how="trunc"), np.arange(-200, 201)),
    (pmdp.Gaussian(sigma=5.0).rounded(2, how="floor"), 2 * np.arange(-40, 41)),
    (pmdp.Gaussian(sigma=5.0).rounded(2, how="ceil"), 2 * np.arange(-40, 41)),
    (pmdp.Gaussian(sigma=5.0).rounded(3, how="trunc"), 3 * np.arange(-40, 41)),
    (pmdp.DiscreteLaplace(scale=4.0).rounded(5, how="floor"), 5 * np.arange(-40, 41)),
    (pmdp.DiscreteLaplace(scale=4.0).rounded(5, how="ceil"), 5 * np.arange(-40, 41)),
    (pmdp.DiscreteLaplace(scale=4.0).rounded(5, how="trunc"), 5 * np.arange(-40, 41)),
    (pmdp.DiscreteGaussian(sigma=6.0).rounded(4, how="floor"), 4 * np.arange(-40, 41)),
    (pmdp.DiscreteGaussian(sigma=6.0).rounded(4, how="ceil"), 4 * np.arange(-40, 41)),
    (pmdp.DiscreteGaussian(sigma=6.0).rounded(4, how="trunc"), 4 * np.arange(-40, 41)),
    # a clamp is an atom, on the edge of what a multiple stands for
    (pmdp.Laplace(scale=4.0).clamped(lower=0).rounded(how="trunc"), np.arange(0, 120)),
    (pmdp.Laplace(scale=4.0).clamped(0, 10).rounded(5, how="ceil"), np.array([0, 5, 10])),
    (pmdp.Laplace(scale=4.0).clamped(0, 10).rounded(5, how="floor"), np.array([0, 5, 10])),
    (pmdp.Laplace(scale=4.0).clamped(-10, 9).rounded(5, how="trunc"), 5 * np.arange(-2, 2)),
    (pmdp.Laplace(scale=4.0).rounded(2, how="trunc").clamped(-4, 4), 2 * np.arange(-2, 3)),
    (
        pmdp.Laplace(scale=4.0).rounded(2, how="ceil").rounded(4, how="trunc"),
        4 * np.arange(-40, 41),
    ),
    (pmdp.DiscreteLaplace(scale=2.0).clamped(0, 3, statistic_too=True), np.arange(0, 4)),
    (
        pmdp.DiscreteLaplace(scale=2.0).clamped(0, 3, statistic_too=True).rounded(2, how="ceil"),
        np.array([0, 2, 4]),
    ),
    (
        pmdp.Gaussian(sigma=5.0).rounded(how="trunc").thresholded(3, dropped=-9),
        np.append(-9, np.arange(3, 60)),
    ),
]
STATISTIC = 4.0
_NAMES = [repr(mechanism) for mechanism, _ in GRID]


@pytest.mark.parametrize(("mechanism", "values"), GRID, ids=_NAMES)
def test_probabilities_sum_to_one_and_draws_follow_them(mechanism, values):
    log_p = evaluate(mechanism.logp(values, STATISTIC))
    assert np.exp(log_p).sum() == pytest.approx(1, abs=1e-9)
    rng = random_generator_type()
    next_rng, value = mechanism.draw(pt.full((200_000,), STATISTIC), rng)
    draw = pytensor.function([pytensor.In(rng, mutable=True)], [next_rng, value], mode=ONCE)
    assert_follows(draw(np.random.default_rng(4))[1], values, log_p)


@pytest.mark.parametrize(("mechanism", "values"), GRID, ids=_NAMES)
def test_kernels_agree(mechanism, values):
    # the kernel may leave out what does not depend on the statistic
    released, statistic = values[:8, None].astype(float), np.array([1.0, 4.0, 9.0])
    symbolic = evaluate(mechanism.logp(released, statistic))
    noise = float(mechanism.noise)
    for row, value in zip(symbolic, released[:, 0], strict=True):
        checked = float(mechanism.checked_release("r", np.array(value), ()))
        kernel = np.array([mechanism.log_density(checked, s, noise) for s in statistic])
        np.testing.assert_allclose(kernel - kernel[0], row - row[0], atol=1e-8)


@pytest.mark.parametrize(
    ("inner", "noise"),
    [(pmdp.Laplace(scale=2.0), stats.laplace(4, 2)), (pmdp.Gaussian(sigma=2.0), stats.norm(4, 2))],
)
def test_clamped_continuous_noise_has_atoms(inner, noise):
    clamped = inner.clamped(0, 7)
    log_p = evaluate(clamped.logp(np.array([0.0, 7.0, 3.3, -0.1, 7.1]), STATISTIC))
    expected = [noise.logcdf(0), noise.logsf(7), noise.logpdf(3.3), -np.inf, -np.inf]
    np.testing.assert_allclose(log_p, expected)
    inside = integrate.quad(noise.pdf, 0, 7)[0]
    assert inside + np.exp(log_p[:2]).sum() == pytest.approx(1)


@pytest.mark.parametrize(
    ("inner", "noise"),
    [(pmdp.Laplace(scale=2.0), stats.laplace(1, 2)), (pmdp.Gaussian(sigma=2.0), stats.norm(1, 2))],
)
def test_continuous_noise_made_whole(inner, noise):
    # what int(), math.floor and math.ceil make of a float
    cases = {
        "trunc": {-1: (-2, -1), 0: (-1, 1), 3: (3, 4)},
        "floor": {-1: (-1, 0), 0: (0, 1), 3: (3, 4)},
        "ceil": {-1: (-2, -1), 0: (-1, 0), 3: (2, 3)},
    }
    for how, expected in cases.items():
        found = evaluate(inner.rounded(how=how).logp(np.array(list(expected)), 1.0))
        ends = np.array(list(expected.values()))
        probability = noise.cdf(ends[:, 1]) - noise.cdf(ends[:, 0])
        np.testing.assert_allclose(np.exp(found), probability, rtol=1e-10)


def test_ways_to_round_have_kernels_of_their_own_on_disk():
    made = [pmdp.Laplace(scale=2.0).rounded(how=h) for h in ("nearest", "floor", "ceil", "trunc")]
    assert len({density_key(mechanism.log_density) for mechanism in made}) == 4


def test_a_rounded_value_may_lie_beyond_the_clamp_before_it():
    mechanism = pmdp.Laplace(scale=2.0).clamped(0, 13).rounded(5)
    assert mechanism.checked_release("r", np.array(15.0), ()) == 15
    with pytest.raises(ValueError, match=r"outside \[0, 15\]"):
        mechanism.checked_release("r", np.array(20.0), ())


def test_thresholded_continuous_noise():
    mechanism = pmdp.Gaussian(sigma=2.0).thresholded(5, dropped=np.nan)
    found = evaluate(mechanism.logp(np.array([np.nan, 6.5]), STATISTIC))
    np.testing.assert_allclose(found, [stats.norm(4, 2).logcdf(5), stats.norm(4, 2).logpdf(6.5)])


@pytest.mark.parametrize("inner", [pmdp.Laplace(scale=2.0), pmdp.Gaussian(sigma=0.5)])
def test_gradients_are_finite(inner):
    s = pt.dvector()
    cases = [
        (inner.clamped(0, 5), 0.0),
        (inner.clamped(0, 5), 5.0),
        (inner.rounded(5), 5.0),
        (inner.rounded(5, how="trunc"), 0.0),
        (inner.clamped(0, 11).rounded(5), 10.0),
        (inner.thresholded(3, dropped=0), 0.0),
    ]
    rows = [mechanism.logp(released, s) for mechanism, released in cases]
    gradients = [pytensor.grad(row.sum(), s) for row in rows]
    compiled = pytensor.function([s], [pt.stack(rows), *gradients], mode=ONCE)
    at = np.array([-40.0, 0.0, 2.5, 60.0])
    step = 1e-4
    slope = (compiled(at + step)[0] - compiled(at - step)[0]) / (2 * step)
    np.testing.assert_allclose(compiled(at)[1:], slope, rtol=1e-3, atol=1e-5)


def test_guarantee_is_the_inner_one():
    assert pmdp.Laplace(epsilon=0.5, sensitivity=1).clamped(lower=0).guarantee().epsilon == 0.5
    assert pmdp.Gaussian(sigma=2).rounded(5).guarantee(2).rho == 0.5


def test_release(without_opendp):
    assert pmdp.DiscreteLaplace(scale=2).clamped(0, 3).release(np.full(50, -9)).min() == 0
    assert np.all(pmdp.DiscreteLaplace(scale=9).rounded(5).release(np.full(50, 3)) % 5 == 0)
    both = pmdp.DiscreteLaplace(scale=0.01).clamped(0, 3, statistic_too=True)
    assert both.release([-9, 9]).tolist() == [0, 3]
    dropped = pmdp.DiscreteLaplace(scale=1).thresholded(100, dropped=np.nan).release([0, 500])
    assert np.isnan(dropped[0])
    assert dropped[1] > 400


def test_dropped_cells_in_a_model():
    mechanism = pmdp.DiscreteGaussian(sigma=3.0).thresholded(5, dropped=np.nan)
    with pm.Model() as model:
        x = pm.Bernoulli("x", 0.5, shape=(20, 2))
        pmdp.Privatized("r", x.sum(0), mechanism, observed=[np.nan, 12])
    assert [rv.name for rv in model.free_RVs] == ["x"]  # nothing is imputed
    point = {"x": np.ones((20, 2), dtype=int)}
    prior = 40 * np.log(0.5)
    expected = evaluate(mechanism.logp(np.array([np.nan, 12.0]), np.full(2, 20.0))).sum()
    assert model.compile_logp(mode=ONCE)(point) == pytest.approx(prior + expected)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda m: m.clamped(), "needs a bound"),
        (lambda m: m.clamped(3, 1), "lower < upper"),
        (lambda m: m.clamped(0.5), "lower=0.5"),
        (lambda m: m.rounded(0), "step must be positive"),
        (lambda m: m.rounded(2.5), "step=2.5"),
        (lambda m: m.rounded(5, how="down"), "how='down'"),
        (lambda m: m.rounded(5).clamped(3), "lower=3"),
        (lambda m: m.thresholded(5), "marker"),
        (lambda m: m.thresholded(5, dropped=7), "below the threshold"),
        (lambda m: m.thresholded(np.inf, dropped=0), "threshold must be finite"),
        (lambda m: m.thresholded(5, dropped=0).rounded(5), "last"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make(pmdp.DiscreteLaplace(scale=2))


@pytest.mark.parametrize(
    ("mechanism", "released", "message"),
    [
        (pmdp.DiscreteLaplace(scale=2).clamped(lower=0), -1, "outside"),
        (pmdp.Laplace(scale=2).rounded(5), 7, "multiple of step=5"),
        (pmdp.DiscreteLaplace(scale=2).thresholded(5, dropped=0), 3, "not the marker"),
        (pmdp.Laplace(scale=2).thresholded(5, dropped=0), np.nan, "NaN"),
    ],
)
def test_bad_releases(mechanism, released, message):
    with pm.Model():
        x = pm.Bernoulli("x", 0.5, shape=10)
        with pytest.raises(ValueError, match=message):
            pmdp.Privatized("r", x.sum(), mechanism, observed=released)
