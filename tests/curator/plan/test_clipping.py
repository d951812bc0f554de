"""The clip bound weighs shift against noise: against exact shifts of exponential slopes."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from pymc_dp.curator.plan.clipping import Move, choose_bound

SLOPES = np.random.default_rng(0).exponential(size=200_000) - 1  # mean 0, variance 1


def exact_square(bound, n):
    """Mean square of the shift: slopes are above the bound by an exponential, exp(-b-1) of them."""
    clipped = np.exp(-bound - 1)
    return n * clipped**2 + clipped * (2 - clipped)


@pytest.mark.parametrize("n", [3000, 30_000, 300_000])
@pytest.mark.parametrize("draws", [30, 3000])  # that bounds of one standard deviation would leave
def test_the_mean_square_error_is_least(n, draws):
    def error(bound):
        return exact_square(bound, n) + bound**2 / draws

    found = choose_bound([Move(SLOPES, n**-0.5, n / SLOPES.size)], 1.0, 1 / draws, 0.05)
    least = minimize_scalar(error, bounds=(1, 20), method="bounded").fun
    assert error(found.bound) < 1.25 * least  # of the slopes, some tens are above the bound
    exact = np.sqrt(exact_square(found.bound, n))
    assert found.shift == pytest.approx(exact, abs=1 / np.sqrt(draws))
    assert found.bound < 0.95 * SLOPES.max()


def test_the_shift_counts_per_coordinate():
    """Moves twice as long are tilted twice as much, which is the same shift."""
    n = 3000
    move = Move(SLOPES, 2 * n**-0.5, n / SLOPES.size)  # two standard deviations long
    plain = choose_bound([Move(SLOPES, n**-0.5, n / SLOPES.size)], 1.0, 0.01, 0.05)
    assert choose_bound([move, move], 4.0, 0.01, 0.05) == pytest.approx(plain)


def test_symmetric_slopes_are_clipped_as_far_as_allowed():
    slopes = np.concatenate([SLOPES, -SLOPES])
    found = choose_bound([Move(slopes, 0.01, 1 / 40)], 1.0, 0.01, 0.01)
    assert found.bound == pytest.approx(np.quantile(np.abs(slopes), 0.99))
    assert found.shift < 0.2
