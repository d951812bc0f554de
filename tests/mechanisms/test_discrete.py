"""Discrete Laplace and Gaussian: normalised densities, tails, draws, releases, bad input."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.tensor.random.type import random_generator_type
from scipy import stats

import pymc_dp as pmdp
from pymc_dp.graph.intervals import ONCE
from pymc_dp.mechanisms import gaussian_sums
from pymc_dp.mechanisms.exact_sampling import discrete_gaussian, discrete_laplace
from pymc_dp.mechanisms.gaussian_sums import symbolic_log_sum
from tests.mechanisms.chi_square import assert_follows, evaluate

MECHANISMS = [
    pmdp.DiscreteLaplace(scale=2.0),
    pmdp.DiscreteLaplace(scale=0.3),
    pmdp.DiscreteGaussian(sigma=0.4),
    pmdp.DiscreteGaussian(sigma=3.3),
    pmdp.DiscreteGaussian(sigma=30.0),
]
NEAR = np.arange(-400, 401)


@pytest.mark.parametrize("scale", [0.05, 0.7, 2.0, 40.0])
def test_discrete_laplace_against_scipy(scale):
    k = np.arange(-30, 31)  # SciPy's own underflows further out
    found = evaluate(pmdp.DiscreteLaplace(scale=scale).logp(k + 5, 5))
    np.testing.assert_allclose(found, stats.dlaplace(1 / scale).logpmf(k), rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("sigma", [0.05, 0.3, 0.399, 0.401, 0.8, 1.0, 5.5, 1e3, 1e6])
def test_discrete_gaussian_is_normalised(sigma):
    k = np.arange(1, int(12 * sigma) + 12)
    direct = np.log1p(2 * np.exp(-0.5 * (k / sigma) ** 2).sum())
    mechanism = pmdp.DiscreteGaussian(sigma=sigma)
    np.testing.assert_allclose(-evaluate(mechanism.logp(3, 3)), direct, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=repr)
def test_kernel_density_is_the_same_up_to_a_constant(mechanism):
    k, noise = np.arange(-20.0, 21.0), float(mechanism.noise)
    kernel = np.array([mechanism.log_density(r, 2.0, noise) for r in k])
    gap = kernel - evaluate(mechanism.logp(k, 2.0))
    np.testing.assert_allclose(gap, gap[0], atol=1e-10)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=repr)
@pytest.mark.parametrize(
    ("low", "high"),
    [(None, 3.2), (1, None), (-2, 5), (4, 9), (-9, -4), (0, 1), (2, 3), (-0.5, 0.5), (1, 2)],
)
def test_intervals_against_sums(mechanism, low, high):
    p = np.exp(evaluate(mechanism.logp(NEAR, 1.0)))
    ends = (-np.inf if low is None else low, np.inf if high is None else high)
    inside = (ends[0] <= NEAR) & (ends[1] > NEAR)
    expected = np.log(p[inside].sum())
    symbolic = evaluate(mechanism.log_interval(low, high, pt.as_tensor(1.0)))
    compiled = mechanism.compiled_interval(*map(float, ends), 1.0, float(mechanism.noise))
    np.testing.assert_allclose([symbolic, compiled], expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("sigma", [19.0, 21.0, 1e4])
def test_tail_of_a_large_discrete_gaussian(sigma):
    for z in (0.0, 1.0, 5.0, 12.0):
        x = np.ceil(z * sigma)
        j = np.arange(x, x + 9 * sigma)
        log_p = evaluate(pmdp.DiscreteGaussian(sigma=sigma).logp(j, 0))
        expected = log_p[0] + np.log(np.exp(log_p - log_p[0]).sum())
        found = pmdp.DiscreteGaussian(sigma=sigma).log_tail(x, sigma)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("sigma", [0.2, 0.7, 1.7, 2.9, 3.1, 8.0, 19.0, 60.0])
def test_tails_and_intervals_in_high_precision(sigma):
    # where one form takes over from the other, and far out, to 1e-11 of the probability
    mp = pytest.importorskip("mpmath")
    ends = {int(z * sigma) for z in (0, 0.5, 1, 3, 8, 20, 38)}
    ends |= {int(y * sigma**2) + 1 for y in (0, 0.6, 0.99, 1, 2, 40)}
    ends = [float(x) for x in sorted(ends) if x / sigma < 500]
    symbolic = evaluate(symbolic_log_sum(pt.as_tensor(np.array(ends)), np.asarray(sigma)))
    with mp.workdps(30):
        rate = -1 / (2 * mp.mpf(sigma) ** 2)

        def log_sum(first, last):
            total = mp.mpf(0)
            for k in range(int(first), int(last)):
                term = mp.exp(rate * k**2)
                total += term
                if k > 0 and term < total * mp.mpf(10) ** -25:
                    break
            return mp.log(total)

        whole = mp.log(1 + 2 * mp.exp(log_sum(1, 10**6)))
        for x, found in zip(ends, symbolic, strict=True):
            exact = log_sum(x, 10**9)
            allowed = 1e-11 + 1e-15 * abs(float(exact))
            assert abs(found - exact) < allowed
            assert abs(gaussian_sums.log_tail(x, sigma) - (exact - whole)) < allowed
        for low, high in [(0, 1), (-3, 40), (-40, 3), (-9, -4), (ends[3], ends[3] + 70)]:
            exact = log_sum(low, high) - whole
            found = gaussian_sums.log_interval(float(low), float(high), 0.0, sigma)
            assert abs(found - exact) < 1e-11 + 1e-15 * abs(float(exact))


@pytest.mark.parametrize("sigma", [0.7, 8.0])
def test_unbounded_intervals(sigma):
    inf = np.inf
    assert gaussian_sums.log_interval(-inf, inf, 3.0, sigma) == 0
    for bound in (-60.0, 0.0, 1.0, 60.0):
        below = gaussian_sums.log_interval(-inf, bound, 3.0, sigma)
        above = gaussian_sums.log_interval(bound, inf, 3.0, sigma)
        assert np.logaddexp(below, above) == pytest.approx(0, abs=1e-14)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=repr)
def test_symbolic_draws(mechanism):
    # a million draws each; false-alarm rate 1e-5
    rng = random_generator_type()
    next_rng, value = mechanism.draw(pt.full((1_000_000,), 7.0), rng)
    draw = pytensor.function([pytensor.In(rng, mutable=True)], [next_rng, value])
    draws = draw(np.random.default_rng(1))[1]
    assert draws.dtype == np.int64
    assert_follows(draws, NEAR, evaluate(mechanism.logp(NEAR, 7)))


def test_python_draws_of_a_discrete_gaussian():
    from pymc_dp.mechanisms.discrete_gaussian import DiscreteGaussianRV

    draws = DiscreteGaussianRV.rng_fn(np.random.default_rng(2), 1.7, (100_000,))
    assert_follows(draws, NEAR, evaluate(pmdp.DiscreteGaussian(sigma=1.7).logp(NEAR, 0)))


@pytest.mark.parametrize(
    ("sampler", "mechanism"),
    [
        (lambda: discrete_laplace(2.5), pmdp.DiscreteLaplace(scale=2.5)),
        (lambda: discrete_laplace(0.4), pmdp.DiscreteLaplace(scale=0.4)),
        (lambda: discrete_laplace(3.0), pmdp.DiscreteLaplace(scale=3.0)),
        (lambda: discrete_gaussian(3.0), pmdp.DiscreteGaussian(sigma=3.0)),
        (lambda: discrete_gaussian(0.7), pmdp.DiscreteGaussian(sigma=0.7)),
        (lambda: discrete_gaussian(4.25), pmdp.DiscreteGaussian(sigma=4.25)),
    ],
)
def test_exact_samplers(sampler, mechanism):
    # system entropy: no seed; false-alarm rate 1e-5
    assert_follows([sampler() for _ in range(6000)], NEAR, evaluate(mechanism.logp(NEAR, 0)))


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=repr)
def test_releases_through_opendp(mechanism):
    pytest.importorskip("opendp")
    assert_follows(mechanism.release(np.full(6000, 7)), NEAR, evaluate(mechanism.logp(NEAR, 7)))


@pytest.mark.parametrize("noise", [pmdp.Laplace(scale=2.5), pmdp.Gaussian(sigma=2.5)])
def test_continuous_releases_through_opendp(noise):
    pytest.importorskip("opendp")
    exact = stats.laplace(7, 2.5) if isinstance(noise, pmdp.Laplace) else stats.norm(7, 2.5)
    assert stats.kstest(noise.release(np.full(4000, 7.0)), exact.cdf).pvalue > 1e-5


def test_release_without_opendp(without_opendp):
    released = pmdp.DiscreteLaplace(scale=[1.0, 9.0]).release([3, 4])
    assert released.dtype == np.int64
    assert released.shape == (2,)


def test_prior_predictive_and_moment():
    with pm.Model() as model:
        x = pm.Bernoulli("x", 0.5, shape=20)
        pmdp.Privatized("r", x.sum(), pmdp.DiscreteGaussian(sigma=2))
    assert model["r"].dtype == "int64"
    assert model.initial_point()["r"].dtype == np.int64
    draws = pm.draw(model["r"], 500, random_seed=3, mode=ONCE)
    assert abs(draws.mean() - 10) < 6 * np.sqrt((5 + 4) / 500)


def test_guarantees():
    assert pmdp.DiscreteLaplace(epsilon=0.5, sensitivity=1).noise == 2
    assert pmdp.DiscreteLaplace(scale=2).guarantee(1).epsilon == 0.5
    assert pmdp.DiscreteGaussian(rho=0.5, sensitivity=3).noise == pytest.approx(3)
    assert pmdp.DiscreteGaussian(sigma=2).guarantee(2).rho == 0.5
    declared = pmdp.DiscreteGaussian(epsilon=1, delta=1e-6, sensitivity=1).guarantee()
    assert declared.epsilon <= 1
    assert pmdp.DiscreteGaussian(sigma=[1, 2]).guarantee([1, 2]).rho == 1


def test_discrete_gaussian_guarantee_holds():
    # Canonne, Kamath & Steinke (2020), Theorem 7: the exact delta of one integer query
    mechanism = pmdp.DiscreteGaussian(epsilon=1, delta=1e-4, sensitivity=1)
    sigma = float(mechanism.noise)
    k = np.arange(-200, 201)
    p = np.exp(evaluate(mechanism.logp(k, 0)))
    delta = p[k > sigma**2 - 0.5].sum() - np.e * p[k > sigma**2 + 0.5].sum()
    assert 0 < delta <= 1e-4


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pmdp.DiscreteLaplace(scale=0), "scale must be positive"),
        (lambda: pmdp.DiscreteLaplace(epsilon=1, sensitivity=-1), "sensitivity must be positive"),
        (lambda: pmdp.DiscreteGaussian(sigma=-1), "sigma must be positive"),
        (lambda: pmdp.DiscreteGaussian(epsilon=1, sensitivity=1), "delta is missing"),
        (lambda: pmdp.DiscreteGaussian(epsilon=1, delta=1.5, sensitivity=1), "delta"),
        (lambda: pmdp.DiscreteGaussian(epsilon=1, delta=0, sensitivity=1), "delta"),
        (lambda: pmdp.DiscreteLaplace(scale=1).release(2.5), "whole numbers"),
        (lambda: pmdp.DiscreteLaplace(scale=1).release(2**63), r"below 2\*\*63"),
        (lambda: pmdp.DiscreteGaussian(sigma=3).release(np.uint64(2**63 + 5)), r"below 2\*\*63"),
        (lambda: pmdp.DiscreteGaussian(sigma=3).release([1.0, -1e300]), r"below 2\*\*63"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_bad_releases():
    with pm.Model():
        x = pm.Poisson("x", 2.0, shape=10)
        with pytest.raises(ValueError, match=r"'r'.*whole numbers"):
            pmdp.Privatized("r", x.sum(), pmdp.DiscreteLaplace(scale=1), observed=2.5)
        with pytest.raises(ValueError, match="'r' has type float64"):
            pmdp.Privatized("r", x.mean(), pmdp.DiscreteLaplace(scale=1), observed=2)
        with pytest.raises(ValueError, match="'r' has NaN"):
            pmdp.Privatized("r", x.sum(), pmdp.DiscreteLaplace(scale=1), observed=np.nan)
