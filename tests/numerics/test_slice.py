"""Slices that always end, and widths that stay finite."""

import numba
import numpy as np
import pytest
from scipy import stats

from pymc_dp.numerics.slice import _learned_width, make_line_slice


@numba.njit
def _parabola(distance, line):
    """Normal with a standard deviation, around a place; nothing but NaN where there is none."""
    return -0.5 * ((distance + line[0]) / line[1]) ** 2


@pytest.fixture(scope="module")
def run():
    update = make_line_slice(_parabola)

    @numba.njit
    def run(rng, width, sd, draws):
        line, found = np.zeros(2), np.empty(draws)
        line[1] = sd
        for i in range(draws):
            distance, _ = update(rng, line, width, _parabola(0.0, line))
            line[0] += distance
            found[i] = line[0]
        return found

    return run


@pytest.mark.parametrize("width", [np.inf, -np.inf, np.nan, 0.0, -1.0])
def test_without_a_width_nothing_moves(run, width):
    assert not run(np.random.default_rng(1), width, 1.0, 5).any()


@pytest.mark.parametrize("width", [1e-300, 1e300, 1e308])
def test_any_other_width_ends(run, width):
    assert np.isfinite(run(np.random.default_rng(1), width, 1.0, 5)).all()


def test_where_there_is_no_density_nothing_moves(run):
    assert not run(np.random.default_rng(1), 1.0, np.nan, 5).any()


@pytest.mark.parametrize("unit", [1e-100, 1e-6, 1.0, 1e6, 1e100])
def test_the_same_draws_in_every_unit(run, unit):
    draws = run(np.random.default_rng(3), 2.5 * unit, unit, 8000) / unit
    np.testing.assert_allclose(draws, run(np.random.default_rng(3), 2.5, 1.0, 8000), rtol=1e-6)
    # every tenth is as good as independent; false-alarm rate 1e-5
    assert stats.kstest(draws[::10], stats.norm.cdf).pvalue > 1e-5


def test_widths_stay_positive_and_finite():
    learned = numba.njit(lambda width, distance, cycles: _learned_width(width, distance, cycles))
    assert learned(2.0, 2.0, 0) == 6.0
    for width in (0.0, -1.0, np.inf, np.nan):
        assert learned(width, 1.0, 3) == 1.0
    for distance in (0.0, 1e300, 1e308):
        width = 1.0
        for cycles in range(200):
            width = learned(width, distance, cycles)
            assert 0 < width < 1e200
    # a move a million times smaller is learned within some cycles, in any unit
    for unit in (1e-30, 1.0, 1e30):
        width = 1e6 * unit
        for cycles in range(50):
            width = learned(width, unit, cycles)
        assert 2 * unit < width < 40 * unit
