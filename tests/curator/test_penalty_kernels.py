"""Clipped sums are exact, antisymmetric and bounded in one record's influence."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import norm

from pymc_dp.accounting.levels import LEVELS
from pymc_dp.curator.penalty_kernels import (
    batch_moments,
    batch_query,
    clipped_count,
    clipped_total,
    log_acceptance,
)

values = st.one_of(
    st.floats(-50, 50), st.sampled_from([np.nan, np.inf, -np.inf, 1e308, -1e308, 0.0])
)
vectors = arrays(np.float64, 12, elements=values)
bounds = st.floats(1e-6, 1e3)


@settings(deadline=None)
@given(vectors, vectors, bounds)
def test_swapping_the_points_changes_the_sign(new, old, bound):
    assert clipped_total(new, old, bound) == -clipped_total(old, new, bound)


@settings(deadline=None)
@given(vectors, vectors, bounds, values, values, st.integers(0, 11))
def test_a_record_moves_the_sum_by_at_most_its_weight(new, old, bound, a, b, i):
    before = clipped_total(new, old, bound)
    new, old = new.copy(), old.copy()
    new[i], old[i] = a, b
    assert abs(clipped_total(new, old, bound) - before) <= 2 * LEVELS
    left = clipped_total(np.delete(new, i), np.delete(old, i), bound)
    assert abs(clipped_total(new, old, bound) - left) <= LEVELS


@settings(deadline=None)
@given(arrays(np.float64, 12, elements=st.floats(-5, 5)), bounds)
def test_agrees_with_clipping_in_floats(ratios, bound):
    expected = np.clip(ratios, -bound, bound).sum()
    total = clipped_total(ratios, np.zeros(12), bound) / LEVELS * bound
    assert total == pytest.approx(expected, abs=1e-8 * bound * 12)
    assert clipped_count(ratios, np.zeros(12), bound) >= np.sum(np.abs(ratios) > bound)


def test_bad_rows_go_to_the_bound_or_to_nothing():
    bad = np.array([np.nan, -np.inf, np.inf])
    assert clipped_total(bad, np.zeros(3), 1.0) == -LEVELS
    assert clipped_total(bad, bad, 1.0) == 0
    assert clipped_total(bad[:1], np.array([-np.inf]), 1.0) == 0


@settings(deadline=None, max_examples=300)
@given(
    arrays(np.float64, 8, elements=st.floats(-3, 3)),
    st.floats(-3, 3),
    st.integers(0, 7),
    st.floats(0.1, 3),
    st.sampled_from([0.01, 0.3, 1.0]),
)
def test_a_batch_record_moves_the_query_by_at_most_its_sensitivity(r, other, i, bound, tempering):
    zeros = np.zeros(8)
    first = batch_query(batch_moments(r, zeros, bound), bound, 40, tempering)
    changed = r.copy()
    changed[i] = other
    second = batch_query(batch_moments(changed, zeros, bound), bound, 40, tempering)
    assert abs(first.value - second.value) <= first.sensitivity
    assert first.sensitivity == second.sensitivity


def test_the_batch_bound_is_attained():
    ones = np.ones(8)
    changed = ones.copy()
    changed[0] = -1
    value, sensitivity = batch_query(batch_moments(ones, np.zeros(8), 1.0), 1.0, 40)
    other, _ = batch_query(batch_moments(changed, np.zeros(8), 1.0), 1.0, 40)
    assert value - other == pytest.approx(sensitivity, rel=1e-5)


def test_batch_variance_is_that_of_drawing_without_replacement():
    rng = np.random.default_rng(0)
    population = rng.normal(size=40)
    values = []
    halves = []
    for _ in range(20_000):
        batch = population[rng.permutation(40)[:10]]
        values.append(batch.sum() * 4)
        moments = batch_moments(batch, np.zeros(10), 10.0)
        halves.append(batch.sum() * 4 - batch_query(moments, 10.0, 40).value)
    # relative standard error of both sides is about 1%
    assert 2 * np.mean(halves) == pytest.approx(np.var(values), rel=0.05)


def test_acceptance_of_the_penalty_method_is_in_balance():
    # E min(1, exp(l + s z - s^2/2)) over the same at -l must be exp(l)
    nodes = np.linspace(-12, 12, 40_001)
    weights = norm.pdf(nodes) * (nodes[1] - nodes[0])
    for log_ratio, sd in [(0.3, 0.1), (0.7, 1.0), (-0.4, 2.0)]:

        def accept(sign, log_ratio=log_ratio, sd=sd):
            logs = log_acceptance(sign * log_ratio + sd * nodes, 0.0, sd)
            return weights @ np.exp(np.minimum(logs, 0))

        assert np.log(accept(1) / accept(-1)) == pytest.approx(log_ratio, abs=1e-6)


def test_sums_of_squares_in_large_batches_are_within_their_allowance():
    # the worst case for a sum of b floats, against the same sum in whole numbers
    size, levels = 1 << 16, np.random.default_rng(1).integers(-1000, 1001, 1 << 16)
    query = batch_query(batch_moments(levels / 1000, np.zeros(size), 1.0), 1.0, 4 * size)
    ints = [round(int(level) * LEVELS / 1000) for level in levels]
    total, squares = sum(ints), sum(i * i for i in ints)
    deviations = Fraction(squares * size - total * total, size * LEVELS**2)
    exact = 4 * Fraction(total, LEVELS) - 16 * Fraction(3, 4) * size / (size - 1) * deviations / 2
    allowed = query.sensitivity - (8 + 32 * 0.75)
    assert allowed > 0
    assert abs(Fraction(query.value) - exact) < Fraction(allowed) / 2
