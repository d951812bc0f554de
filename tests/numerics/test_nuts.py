"""The compiled NUTS keeps a density that is sampled exactly; false-alarm rate 1e-5 a comparison."""

import numba
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import stats

from pymc_dp.numerics.nuts import ACCEPT, DIVERGING, DOUBLINGS, LEAPS, LOG_DENSITY, make_nuts
from pymc_dp.numerics.nuts_tuning import run_nuts

FALSE_ALARM = 1e-5


@numba.njit
def funnel(theta, given):
    """Log-density of v ~ N(0, given), x ~ N(v, e^v): narrow and wide places, no symmetry."""
    v, x = theta
    scaled = (x - v) ** 2 * np.exp(-v)
    value = -0.5 * (v**2 / given[0] + v + scaled)
    by_x = -(x - v) * np.exp(-v)
    return np.array(value), np.array([-v / given[0] - 0.5 + 0.5 * scaled - by_x, by_x])


@numba.njit
def wall(theta, given):
    """Half of a normal: no density, and no gradient, below zero."""
    inside = theta[0] > 0.0
    value = -0.5 * theta[0] ** 2 if inside else -np.inf
    return np.array(value), np.array([-theta[0] if inside else np.nan])


def move_many(density, starts, given, factor, step_size, doublings=6, times=3):
    move = make_nuts(density, None)
    rng = np.random.default_rng(1)
    reports = np.empty((len(starts), 5))
    for theta, report in zip(starts, reports, strict=True):
        for _ in range(times):
            move(rng, theta, given, factor, step_size, doublings, report)
    return reports


@pytest.mark.parametrize("step_size", [0.4, 1.4])
def test_keeps_its_density(step_size):
    """Independent exact draws stay exact draws: every one is moved by itself."""
    rng, number, variance = np.random.default_rng(2), 40_000, 1.5
    v = rng.normal(0, np.sqrt(variance), size=number)
    starts = np.column_stack([v, rng.normal(v, np.exp(v / 2))])
    factor = np.array([[1.0, 0.0], [0.5, 0.9]])
    reports = move_many(funnel, starts, np.array([variance]), factor, step_size)
    v, x = starts.T
    standard = v / np.sqrt(variance), (x - v) * np.exp(-v / 2)
    for values in (*standard, np.add(*standard) / np.sqrt(2)):
        assert stats.kstest(values, "norm").pvalue > FALSE_ALARM
        tail = stats.chi2(number).cdf(values @ values)  # sharper where a spread is wrong
        assert FALSE_ALARM / 2 < tail < 1 - FALSE_ALARM / 2
    moved = [funnel(theta, np.array([variance]))[0] for theta in starts]
    np.testing.assert_allclose(reports[:, LOG_DENSITY], moved)
    assert np.all((reports[:, ACCEPT] >= 0) & (reports[:, ACCEPT] <= 1))
    assert np.all(reports[:, LEAPS] <= 2 ** (reports[:, DOUBLINGS] + 1) - 1)


def test_a_trajectory_goes_on_until_it_turns():
    """A standard normal has trajectories of about half a turn: some three units of time."""
    normal = numba.njit(lambda theta, given: (np.array(-0.5 * theta @ theta), -theta))
    starts = np.random.default_rng(3).normal(size=(500, 5))
    reports = move_many(normal, starts, np.zeros(0), np.eye(5), 0.05, doublings=10)
    length = 0.05 * reports[:, LEAPS]
    assert 1.5 < np.median(length) < 7
    assert not reports[:, DIVERGING].any()


def test_leaving_the_support_is_a_divergence_and_no_move_there():
    starts = np.abs(np.random.default_rng(4).normal(size=(6000, 1)))
    reports = move_many(wall, starts, np.zeros(0), np.eye(1), 0.8)
    assert starts.min() > 0
    assert reports[:, DIVERGING].any()
    assert stats.kstest(starts[:, 0], stats.halfnorm.cdf).pvalue > FALSE_ALARM


def test_a_chain_learns_the_shape_of_its_posterior():
    """From a factor that is far off: a normal of two correlated, unequal coordinates."""
    cov = np.array([[4.0, 0.15], [0.15, 0.01]])
    theta, given = pt.dvector("theta"), pt.dvector("given")
    # written out: a product of matrices is a library that takes longer to compile than the sampler
    off = theta - given
    log_density = -0.5 * (off[:, None] * np.linalg.inv(cov) * off).sum()
    outputs = [log_density, pt.grad(log_density, theta)]
    function = pytensor.function([theta, given], outputs, mode="NUMBA")
    start, mean = np.zeros(2), np.array([1.0, -1.0])
    settings = {"tune": 400, "draws": 4000, "target_accept": 0.8}
    first, again = (
        run_nuts(function, start, mean, np.eye(2), **settings, rng=np.random.default_rng(5))
        for _ in range(2)
    )
    np.testing.assert_array_equal(first, again)
    assert np.all(start == 0)
    standard = np.linalg.solve(np.linalg.cholesky(cov), (first - mean).T)
    for values in standard[:, ::5]:
        assert stats.kstest(values, "norm").pvalue > FALSE_ALARM
