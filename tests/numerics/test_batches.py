"""Batches are what accounting takes them for: every set alike, sizes fixed or binomial."""

from itertools import combinations

import numpy as np
import pytest
from scipy.stats import binom, chi2

from pymc_dp.numerics.batches import draw_batch


@pytest.mark.parametrize("simulation", [None, np.random.default_rng(1)])
def test_every_set_of_a_fixed_size_is_equally_likely(simulation):
    draws = 20_000
    sets = {pair: 0 for pair in combinations(range(6), 3)}
    for _ in range(draws):
        sets[tuple(sorted(draw_batch(6, 0.5, simulation=simulation).tolist()))] += 1
    counts, expected = np.array(list(sets.values())), draws / len(sets)
    # chi-square at 1 - 1e-5, a false alarm in 100 000 runs
    assert np.sum((counts - expected) ** 2 / expected) < chi2.ppf(1 - 1e-5, len(sets) - 1)


def test_poisson_batches_take_each_record_by_itself():
    draws, n, q = 20_000, 5, 0.3
    seen = np.zeros((draws, n))
    for i in range(draws):
        seen[i, draw_batch(n, q, poisson=True)] = 1
    sizes = np.bincount(seen.sum(1).astype(int), minlength=n + 1)
    expected = draws * binom.pmf(np.arange(n + 1), n, q)
    assert np.sum((sizes - expected) ** 2 / expected) < chi2.ppf(1 - 1e-5, n)
    # five standard errors of 15 frequencies and products: below 1e-5
    together = seen.T @ seen / draws
    expected = np.where(np.eye(n, dtype=bool), q, q**2)
    assert np.all(np.abs(together - expected) < 5 * np.sqrt(expected * (1 - expected) / draws))


def test_large_and_whole_batches():
    for n, fraction in [(10**12, 1e-9), (1000, 0.999), (7, 1.0)]:
        batch = draw_batch(n, fraction)
        assert len(set(batch.tolist())) == batch.size == round(n * fraction)
        assert batch.min() >= 0
        assert batch.max() < n
    assert draw_batch(10, 1e-9, poisson=True).size == 0
