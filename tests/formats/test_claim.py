"""Guarantees that the noise does not keep; exact trade-offs are integrated or summed here."""

import numpy as np
import pytest
from scipy import stats

import pymc_dp as pmdp


def release(mechanism, value=0, **claim):
    return pmdp.StatisticRelease("a sum", mechanism, value, **{"neighbours": "substitute"} | claim)


def laplace_delta(epsilon, scale, sensitivity):
    x = np.linspace(-60, 60, 2_000_001) * scale
    p, q = (stats.laplace(loc, scale).pdf(x) for loc in (0, sensitivity))
    return np.maximum(p - np.exp(epsilon) * q, 0).sum() * (x[1] - x[0])


@pytest.mark.parametrize("epsilon", [0.7, 0.95, 0.999])
def test_laplace_at_a_delta(epsilon):
    # sensitivity 1, scale 1: epsilon 1 at delta 0, and less at what is integrated here
    delta = laplace_delta(epsilon, 1.0, 1.0)
    release(pmdp.Laplace(scale=1), sensitivity=1, epsilon=epsilon, delta=delta * 1.001)
    with pytest.raises(ValueError, match="noise is too small"):
        release(pmdp.Laplace(scale=1), sensitivity=1, epsilon=epsilon, delta=delta * 0.99)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_gaussian_at_a_delta(epsilon):
    sigma = 1.5
    mu = 1 / sigma
    delta = stats.norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * stats.norm.cdf(
        -mu / 2 - epsilon / mu
    )
    release(pmdp.Gaussian(sigma), sensitivity=1, epsilon=epsilon, delta=delta * 1.001)
    with pytest.raises(ValueError, match="noise is too small"):
        release(pmdp.Gaussian(sigma), sensitivity=1, epsilon=epsilon, delta=delta * 0.99)


@pytest.mark.parametrize("sigma", [0.2, 0.7, 1.0, 1.3, 4.0, 20.0])
@pytest.mark.parametrize("shift", [1, 3])
def test_no_true_claim_of_discrete_gaussian_noise_is_refused(sigma, shift):
    k = np.arange(-400, 401)
    p, q = (np.exp(-0.5 * ((k - loc) / sigma) ** 2) for loc in (0, shift))
    p, q = p / p.sum(), q / q.sum()
    for epsilon in np.geomspace(0.05, 5, 12):
        delta = np.maximum(p - np.exp(epsilon) * q, 0).sum()
        noise = pmdp.DiscreteGaussian(sigma=sigma)
        if 1e-12 < delta < 0.999:
            release(noise, sensitivity=shift, epsilon=epsilon, delta=delta)
            with pytest.raises(ValueError, match="noise is too small"):
                release(noise, sensitivity=shift, epsilon=epsilon, delta=delta * 0.99)
    with pytest.raises(ValueError, match="noise is too small"):
        release(noise, sensitivity=10 * shift, epsilon=0.1, delta=1e-6)


@pytest.mark.parametrize(
    ("mechanism", "claim", "message"),
    [
        (pmdp.Gaussian(sigma=2), {"sensitivity": 1, "epsilon": 1}, "no epsilon without a delta"),
        (pmdp.Gaussian(sigma=2), {"sensitivity": 1, "rho": 0.12}, r"gives rho 0\.125"),
        (pmdp.DiscreteGaussian(sigma=2), {"sensitivity": 1, "rho": 0.1}, r"gives rho 0\.125"),
        (pmdp.Laplace(scale=2).rounded(), {"sensitivity": 4, "epsilon": 1.9}, "gives epsilon 2"),
        (pmdp.Staircase(epsilon=1, sensitivity=1), {"epsilon": 0.9}, "gives epsilon 1"),
        (pmdp.Exact(), {"epsilon": 3}, "Exact.. protects nothing"),
        (pmdp.Laplace(1e-6), {"sensitivity": 1, "rho": 1e-9}, "gives rho 999999 or more"),
        (pmdp.Laplace(1), {"sensitivity": 1, "epsilon": 1, "rho": 1e-9}, r"rho 0\.36787"),
        (pmdp.DiscreteLaplace(1), {"sensitivity": 1, "rho": 0.3}, r"gives rho 0\.36787"),
        (pmdp.Staircase(epsilon=1, sensitivity=1), {"rho": 0.3}, r"gives rho 0\.31606"),
        (pmdp.RandomizedResponse(2, keep=0.99), {"rho": 1e-5}, r"gives rho 4\.5032"),
        (pmdp.RandomizedResponse(2, keep=1.0), {"rho": 1e5}, "gives rho 1e.300"),
        (pmdp.DiscreteGaussian(0.3), {"sensitivity": 1, "epsilon": 0.1, "delta": 1e-6}, "delta"),
        (pmdp.DiscreteGaussian(2), {"sensitivity": 9, "epsilon": 0.1, "delta": 0.02}, "delta 0.97"),
        (pmdp.DiscreteGaussian(1e5), {"sensitivity": 1e12, "epsilon": 0.1, "delta": 0.5}, "delta"),
        (pmdp.DiscreteGaussian(1e-200), {"sensitivity": 1, "epsilon": 9, "delta": 0.5}, "delta 1"),
        (pmdp.Laplace(epsilon=1, sensitivity=2), {"sensitivity": 1}, "sensitivity: .*contradicts"),
    ],
)
def test_claims_that_noise_does_not_keep(mechanism, claim, message):
    with pytest.raises(ValueError, match=message):
        release(mechanism, **claim)


def test_claims_of_next_to_nothing_are_true():
    for sigma in (2, 1e-9, 2e5, 1e300):
        claim = {"sensitivity": 1, "epsilon": 1e300, "delta": 1e-3}
        release(pmdp.DiscreteGaussian(sigma), **claim)
    custom = pmdp.CustomMechanism(lambda released, statistic: -abs(released - statistic))
    release(custom, 0.0, sensitivity=1, epsilon=1)


def test_responses_have_their_own_guarantee():
    coin = pmdp.RandomizedResponse(2, keep=0.75)
    assert release(coin, [0, 1]).epsilon == pytest.approx(np.log(3))
    with pytest.raises(ValueError, match=r"gives epsilon 1\.09861"):
        release(coin, [0, 1], epsilon=1)


def test_one_sensitivity_of_cells_with_different_noise_may_be_that_of_the_noisiest():
    noise = pmdp.Laplace(scale=[1.0, 4.0])
    release(noise, [0.0, 0.0], sensitivity=1, epsilon=0.25)
    with pytest.raises(ValueError, match=r"gives epsilon 0\.25"):
        release(noise, [0.0, 0.0], sensitivity=1, epsilon=0.24)
    with pytest.raises(ValueError, match=r"gives epsilon 1\.25"):
        release(noise, [0.0, 0.0], sensitivity=[1, 1], epsilon=1)


@pytest.mark.parametrize(
    ("mechanism", "value"),
    [
        (pmdp.Staircase(epsilon=1, sensitivity=1), [1.0, 2.0]),
        (pmdp.Staircase(epsilon=1, sensitivity=1).rounded(), [1.0, 2.0]),
        (pmdp.BoundedLaplace(epsilon=1, sensitivity=1, lower=0, upper=9), [1.0, 2.0]),
        (pmdp.RandomizedResponse(2, keep=0.75), [[0, 1], [1, 1]]),
    ],
)
def test_the_price_of_one_number_is_not_that_of_several(mechanism, value):
    with pytest.raises(ValueError, match=r"guarantee: .* tells what one number costs"):
        release(mechanism, value)
    assert release(mechanism, value, epsilon=9).epsilon == 9
    if not isinstance(mechanism, pmdp.RandomizedResponse):
        budget = pmdp.PrivacyBudget(epsilon=5, delta=1e-6)
        with pytest.raises(ValueError, match="a sensitivity for every component"):
            mechanism.release(value, budget=budget)
        assert budget.spent == 0


def test_what_follows_is_filled_in():
    assert release(pmdp.Laplace(epsilon=0.5, sensitivity=3)).epsilon == 0.5
    assert release(pmdp.Gaussian(rho=0.5, sensitivity=3)).rho == 0.5
    both = release(pmdp.Gaussian(epsilon=1, delta=1e-6, sensitivity=3))
    assert (both.epsilon, both.delta) == (pytest.approx(1), 1e-6)
    unknown = pmdp.StatisticRelease("a sum", pmdp.Laplace(scale=3), 1.0)
    assert (unknown.epsilon, unknown.rho, unknown.neighbours) == (None, None, None)
    assert "guarantee not known" in repr(unknown)


@pytest.mark.parametrize("kind", ["Laplace", "DiscreteLaplace", "Staircase", "RandomizedResponse"])
def test_no_true_rho_of_pure_noise_is_refused(kind):
    """The rho is found on a grid: the largest Renyi divergence over its order."""
    k = np.arange(-4000, 4001)
    step, options = 1.0, {"sensitivity": 2}
    if kind == "RandomizedResponse":
        mechanism, options = pmdp.RandomizedResponse(3, keep=0.8), {}
        p, q = mechanism.matrix[:2]
    elif kind == "Staircase":
        mechanism, step, options = pmdp.Staircase(epsilon=0.8, sensitivity=1), 0.01, {}
        x = np.abs(np.stack([k + 0.5, k + 0.5 - 100]) * step)
        p, q = np.exp(-0.8 * (np.floor(x) + (x % 1 > mechanism.gamma)))
    else:
        mechanism = getattr(pmdp, kind)(scale=1.7)
        step = 1.0 if kind == "DiscreteLaplace" else 0.02
        p, q = np.exp(-np.abs(np.stack([k * step, k * step - 2])) / 1.7)
    p, q = p / p.sum(), q / q.sum()
    orders = 1 + np.geomspace(1e-6, 100, 200)
    p, q = p[p * q > 0], q[p * q > 0]  # beyond, next to nothing
    rho = max(np.log(np.sum(p * np.exp((a - 1) * np.log(p / q)))) / (a - 1) / a for a in orders)
    release(mechanism, [0], rho=rho * 1.0001, **options)
    with pytest.raises(ValueError, match="noise is too small"):
        release(mechanism, [0], rho=rho * 0.5, **options)


@pytest.mark.parametrize(
    ("noise", "claim", "message"),
    [
        (pmdp.Exact(), {}, "does not hide a record"),
        (pmdp.RandomizedResponse(2, keep=1.0), {}, "does not hide a record"),
        (pmdp.Laplace(1e-12), {}, r"n: guarantee: .* gives epsilon 1e.12"),
        (pmdp.Laplace(1e-12).rounded(), {}, "gives epsilon 1e.12"),
        (pmdp.Gaussian(9), {}, "no epsilon without a delta"),
        (pmdp.Gaussian(1), {"epsilon": 1, "delta": 1e-6}, "gives epsilon 4"),
        (pmdp.Exact(), {"sensitivity": None, "epsilon": None, "neighbours": None}, "hide a record"),
    ],
)
def test_a_confidential_number_of_records_has_noise_enough(noise, claim, message):
    claim = {"sensitivity": 1, "epsilon": 1, "neighbours": "add_remove"} | claim
    with pytest.raises(ValueError, match=message):
        release(pmdp.Laplace(1), n=1, n_mechanism=noise, **claim)
    release(pmdp.Laplace(1), n=1, n_mechanism=noise, **claim | {"neighbours": "substitute"})
