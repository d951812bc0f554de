"""Clipped sums of gradients are bounded in one record's influence, and agree with plain floats."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pymc_dp.kernels.gradient import (
    clipped_entry_total,
    clipped_gradient_total,
    clipped_score_total,
    clipped_value_total,
    column_lengths,
)
from pymc_dp.noise import LEVELS

wild = st.one_of(
    st.floats(-50, 50),
    st.sampled_from([np.nan, np.inf, -np.inf, 1e308, -1e200, 1e-170, 5e-324, 0.0]),
)
jacobians = arrays(np.float64, (3, 8), elements=wild)
bounds = st.floats(1e-6, 1e3)


def single(columns):
    with np.errstate(all="ignore"):
        return columns.astype(np.float32)


def length(total):
    """Exact Euclidean length, of whole numbers too large for floats."""
    return sum(int(v) ** 2 for v in total)


@settings(deadline=None, max_examples=300)
@given(jacobians, arrays(np.float64, 3, elements=wild), bounds, st.integers(0, 7))
def test_a_record_moves_the_sum_by_at_most_its_weight(jacobian, other, bound, i):
    before = clipped_gradient_total(jacobian, bound)
    without = clipped_gradient_total(np.delete(jacobian, i, axis=1), bound)
    changed = jacobian.copy()
    changed[:, i] = other
    after = clipped_gradient_total(changed, bound)
    assert length(after - before) <= (2 * LEVELS) ** 2
    assert length(without - before) <= LEVELS**2


@settings(deadline=None, max_examples=300)
@given(arrays(np.float64, 8, elements=wild), jacobians, bounds, st.integers(0, 7))
def test_a_score_moves_the_sum_by_at_most_its_weight(scores, columns, bound, i):
    columns = single(columns)
    before = clipped_score_total(scores, columns, column_lengths(columns), bound)
    few, fewer = np.delete(scores, i), np.ascontiguousarray(np.delete(columns, i, axis=1))
    after = clipped_score_total(few, fewer, column_lengths(fewer), bound)
    assert length(before - after) <= LEVELS**2


@settings(deadline=None)
@given(arrays(np.float64, (3, 8), elements=st.floats(-5, 5)), st.floats(0.01, 100))
def test_agrees_with_clipping_in_floats(jacobian, bound):
    lengths = np.linalg.norm(jacobian, axis=0)
    expected = (jacobian * np.minimum(1, bound / np.maximum(lengths, 1e-300))).sum(axis=1)
    total = clipped_gradient_total(jacobian, bound) / LEVELS * bound
    np.testing.assert_allclose(total, expected, atol=2e-6 * 8 * bound)


def test_scores_times_columns_are_the_same_without_being_made():
    rng = np.random.default_rng(0)
    columns, scores = rng.normal(size=(4, 5000)).astype("float32"), rng.normal(size=5000)
    columns[:, 7], columns[1, 8], scores[9], scores[10] = 0.0, np.nan, np.inf, 1e300
    jacobian = scores * columns
    jacobian[:, [8, 9, 10]] = 0.0
    apart = clipped_gradient_total(jacobian, 1.0)
    together = clipped_score_total(scores, columns, column_lengths(columns), 1.0)
    np.testing.assert_allclose(together, apart, atol=1e6)


def test_a_tiny_length_is_not_a_way_around_the_clip():
    # squares of the column underflow in single precision, the gradient is 1e10
    columns = np.array([[1e-40], [0.0]], dtype="float32")
    total = clipped_score_total(np.array([1e50]), columns, column_lengths(columns), 1.0)
    assert total[0] == pytest.approx(LEVELS, rel=1e-5)
    assert length(total) <= LEVELS**2


@settings(deadline=None, max_examples=300)
@given(jacobians, arrays(np.float64, (2, 8), elements=wild), bounds, st.integers(0, 7))
def test_an_entry_moves_the_sum_by_at_most_its_weight(columns, pieces, bound, i):
    slopes, scores = np.array([[1.0, -2.0], [0.5, 1e3], [0.0, 1e-3]]), pieces[:1] - 1

    def total(kept):
        columns_kept = np.ascontiguousarray(single(columns[None, :, kept]))
        parts = np.ascontiguousarray(single(pieces[:, kept]))
        return np.array(
            [
                clipped_entry_total(
                    slopes,
                    np.ascontiguousarray(parts.T),
                    np.ascontiguousarray(scores[:, kept]),
                    columns_kept,
                    bound,
                ),
                clipped_value_total(slopes, tuple(parts), bound),
            ]
        )

    for moved in total(np.arange(8)) - total(np.delete(np.arange(8), i)):
        assert length(moved) <= LEVELS**2


def test_zero_and_bad_gradients_pull_nowhere():
    bad = np.array([[0.0, np.nan, np.inf, 1.0], [0.0, 1.0, 0.0, -np.inf]])
    np.testing.assert_array_equal(clipped_gradient_total(bad, 1.0), [0, 0])
