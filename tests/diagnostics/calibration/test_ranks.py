"""Places among draws, coverage and thinning, without a model."""

import numpy as np
import pytest

from pymc_dp.diagnostics.calibration.ranks import covered, effective_size, pit, thinned
from tests.checks import rank_uniformity


@pytest.mark.parametrize("discrete", [False, True])
def test_places_of_exact_draws_are_uniform(discrete):
    """Ties are broken at random, so that discrete parameters are uniform too; 1e-5."""
    rng = np.random.default_rng(20261118)
    draw = rng.poisson if discrete else rng.normal
    places = np.array(
        [pit(draw(1.0, size=1), draw(1.0, size=(99, 1)), rng)[0] for _ in range(2000)]
    )
    report = rank_uniformity(np.floor(100 * places), 99)
    assert report.passed, report
    assert len(np.unique(places)) == len(places)


def test_place_is_the_rank():
    draws = np.arange(9.0)[:, None] * np.ones(3)
    places = pit(np.array([-1.0, 4.5, 99.0]), draws, np.random.default_rng(0))
    np.testing.assert_array_equal(np.floor(10 * places), [0, 5, 9])


def test_intervals_cover_their_share_of_uniform_places():
    places = (np.arange(1000)[:, None] + 0.5) / 1000 * np.ones((1, 2))
    np.testing.assert_allclose(covered(places, np.array([0.5, 0.95])), [[0.5, 0.5], [0.95, 0.95]])


def test_effective_size_is_of_the_worst_column():
    """An autoregressive column is worth (1 - r) / (1 + r) of its draws; here 1 in 19."""
    rng = np.random.default_rng(1)
    slow = np.zeros(19000)
    for i in range(1, len(slow)):
        slow[i] = 0.9 * slow[i - 1] + rng.standard_normal()
    columns = np.column_stack([rng.standard_normal(len(slow)), slow, np.full(len(slow), 3.0)])
    assert 700 < effective_size(columns) < 1300
    assert effective_size(columns[:, 2:]) == len(slow)


def test_thinning_spreads_evenly():
    assert len(set(np.diff(thinned(990, 99)))) == 1
    np.testing.assert_array_equal(thinned(99, 99), np.arange(99))
