"""Clipped sums of gradients are bounded in one record's influence, and agree with plain floats."""

import math

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pymc_dp.curator.gradient_kernels import (
    CHUNK,
    CLIPPED,
    FLAGS,
    GRADIENT_LEVELS,
    MOST_COORDINATES,
    clipped_gradient_total,
    clipped_piece_total,
    clipped_score_total,
    column_lengths,
    shrinkage,
)
from pymc_dp.curator.value_gradient import make_value_total

wild = st.one_of(
    st.floats(-50, 50),
    st.sampled_from([np.nan, np.inf, -np.inf, 1e308, -1e200, 1e-170, 5e-324, 0.0]),
)
jacobians = arrays(np.float64, (3, 8), elements=wild)
bounds = st.floats(1e-6, 1e3)
N = 2 * CHUNK + 77  # whole chunks and a part of one


@numba.njit
def _given_slopes(theta, directions):
    return directions.T.copy(), theta


@numba.njit
def _given_pieces(first, second, x, y):
    return np.float32(x + first), np.float32(y + second)


# pieces x and y, times any slopes
value_total = make_value_total(_given_pieces, _given_slopes, 2, 2, 3, key=None)


def single(columns):
    with np.errstate(all="ignore"):
        return np.ascontiguousarray(columns.astype(np.float32))


def values(slopes, pieces, bound):
    return value_total(np.zeros(2), np.ascontiguousarray(slopes.T), bound, *pieces)


def length(total):
    """Exact square of the Euclidean length, of whole numbers too large for floats."""
    return sum(int(v) ** 2 for v in total)


# --- no record is too long ----------------------------------------------------------------------


@settings(deadline=None, max_examples=300)
@given(jacobians, arrays(np.float64, 3, elements=wild), bounds, st.integers(0, 7))
def test_a_record_moves_the_sum_by_at_most_its_weight(jacobian, other, bound, i):
    before = clipped_gradient_total(jacobian, bound)
    without = clipped_gradient_total(np.delete(jacobian, i, axis=1), bound)
    changed = jacobian.copy()
    changed[:, i] = other
    after = clipped_gradient_total(changed, bound)
    assert length(after - before) <= (2 * GRADIENT_LEVELS) ** 2
    assert length(without - before) <= GRADIENT_LEVELS**2


@settings(deadline=None, max_examples=300)
@given(arrays(np.float64, 8, elements=wild), jacobians, bounds, st.integers(0, 7))
def test_a_score_moves_the_sum_by_at_most_its_weight(scores, columns, bound, i):
    columns = single(columns)
    before = clipped_score_total(scores, columns, column_lengths(columns), bound)
    few, fewer = np.delete(scores, i), np.ascontiguousarray(np.delete(columns, i, axis=1))
    after = clipped_score_total(few, fewer, column_lengths(fewer), bound)
    assert length(before - after) <= GRADIENT_LEVELS**2


@settings(deadline=None, max_examples=300)
@given(jacobians, arrays(np.float64, (2, 8), elements=wild), bounds, st.integers(0, 7))
def test_an_entry_moves_the_sum_by_at_most_its_weight(columns, pieces, bound, i):
    slopes, scores = np.array([[1.0, -2.0], [0.5, 1e3], [0.0, 1e-3]]), pieces[:1] - 1

    def total(kept):
        parts = np.ascontiguousarray(pieces[:, kept])
        columns_kept, scores_kept = single(columns[None, :, kept]), scores[:, kept].copy()
        together = clipped_piece_total(slopes, single(parts), scores_kept, columns_kept, bound)
        return np.array([together, values(slopes, parts, bound)])

    for moved in total(np.arange(8)) - total(np.delete(np.arange(8), i)):
        assert length(moved) <= GRADIENT_LEVELS**2


@numba.njit(**FLAGS)
def longest(bits):
    """Largest length after shrinking, over squares of a range of bit patterns."""
    top = 0.0
    for i in range(bits.size):
        square = np.int32(bits[i]).view(np.float32)
        shrunk = np.float64(shrinkage(square))
        found = np.float64(square) * shrunk * shrunk
        top = found if found > top else top
    return top


def test_the_approximate_root_is_as_good_as_was_allowed_for():
    # all squares from 1 to 4; larger ones have the same mantissas
    first, last = (int(np.float32(x).view(np.int32)) for x in (1.0, 4.0))
    worst = max(
        longest(np.arange(start, min(start + 2**20, last), dtype=np.int32))
        for start in range(first, last, 2**20)
    )
    assert math.sqrt(worst) < 1 + 2**-20


@pytest.mark.parametrize("size", [1, 2, 3, 10, 100, 1000, MOST_COORDINATES])
def test_no_record_is_longer_than_the_bound(size):
    # one record at a time, where rounding adds most: all components just above a half
    rng = np.random.default_rng(size)
    longest_found = 0
    for trial in range(300 if size <= 1000 else 20):
        columns = rng.choice([-1.0, 1.0], size=(size, 1))
        if trial % 3 == 0:
            columns = rng.normal(size=(size, 1)) * 10.0 ** rng.uniform(-3, 15)
        elif trial % 3 == 1:
            # an odd number of half units in most components
            columns *= (2 * rng.integers(0, 3, size=(size, 1)) + 1.0001) / 2 * 2.0**-20
            columns[0] = np.sqrt(max(0.0, 1 - (columns[1:] ** 2).sum())) if size > 1 else 1.0
        else:
            columns *= 2.0 ** rng.uniform(-2, 60)
        total = clipped_gradient_total(columns, 1.0)
        lengths = column_lengths(single(columns))
        score = clipped_score_total(np.ones(1), single(columns), lengths, 1.0)
        longest_found = max(longest_found, length(total), length(score))
    assert longest_found <= GRADIENT_LEVELS**2
    assert longest_found >= (2**20 - 64) ** 2  # the search comes to where it matters


# --- sums ---------------------------------------------------------------------------------------


@settings(deadline=None)
@given(arrays(np.float64, (3, 8), elements=st.floats(-5, 5)), st.floats(0.01, 100))
def test_agrees_with_clipping_in_floats(jacobian, bound):
    lengths = np.linalg.norm(jacobian, axis=0)
    shrink = np.minimum(1, CLIPPED * bound / np.maximum(lengths, 1e-300))
    expected = (jacobian * shrink).sum(axis=1)
    total = clipped_gradient_total(jacobian, bound) / GRADIENT_LEVELS * bound
    np.testing.assert_allclose(total, expected, atol=2e-6 * 8 * bound)


def test_records_of_all_blocks_are_added_however_gradients_are_made():
    rng = np.random.default_rng(0)
    slopes, pieces = rng.normal(size=(3, 2)), rng.normal(size=(2, N))
    bad = [5, CHUNK, N - 1]
    pieces[:, bad] = np.array([[np.nan, 1e300, 0.0], [0.0, 0.0, np.inf]])
    with np.errstate(all="ignore"):
        jacobian = slopes @ pieces
    good = np.delete(jacobian, bad, axis=1)
    shrink = np.minimum(1, CLIPPED * 0.8 / np.linalg.norm(good, axis=0))
    expected = (good * shrink).sum(axis=1) / 0.8 * GRADIENT_LEVELS
    none = np.zeros((0, N)), np.zeros((0, 3, N), dtype=np.float32)
    columns = single(jacobian)
    for total in (
        clipped_gradient_total(jacobian, 0.8),
        values(slopes, pieces, 0.8),
        clipped_piece_total(slopes, single(pieces), *none, 0.8),
        clipped_score_total(np.ones(N), columns, column_lengths(columns), 0.8),
    ):
        # half a unit a record, at random, and the errors of single precision
        np.testing.assert_allclose(total, expected, atol=6 * math.sqrt(N / 12) + 0.3 * N)


@pytest.mark.parametrize("n", [1, 7, 100, CHUNK - 1, CHUNK, N])
def test_a_records_part_does_not_depend_on_its_place(n):
    # one record more, whose gradient is zero, moves the others
    rng = np.random.default_rng(n)
    slopes, pieces = rng.normal(size=(3, 2)), single(rng.normal(size=(2, n)))
    columns, scores = single(rng.normal(size=(3, n))), rng.normal(size=n)

    def totals(pieces, columns, scores):
        number = scores.size
        yield clipped_gradient_total(columns.astype(float), 0.5)
        yield values(slopes, pieces.astype(float), 0.5)
        yield clipped_piece_total(slopes, pieces, scores[None], columns[None], 0.5)
        none = np.zeros((0, number)), np.zeros((0, 3, number), dtype=np.float32)
        yield clipped_piece_total(slopes, pieces, *none, 0.5)
        yield clipped_score_total(scores, columns, column_lengths(columns), 0.5)

    def moved(rows):
        return np.concatenate([np.zeros_like(rows[..., :1]), rows], axis=-1)

    before = list(totals(pieces, columns, scores))
    after = list(totals(moved(pieces), moved(columns), moved(scores)))
    np.testing.assert_array_equal(before, after)


def test_sums_of_whole_blocks_do_not_wrap_around():
    jacobian = np.full((1, N), -3.0)
    assert abs(int(clipped_gradient_total(jacobian, 1.0)[0]) + N * 2**20) <= N
    assert abs(int(clipped_gradient_total(-jacobian, 1.0)[0]) - N * 2**20) <= N


def test_scores_times_columns_are_the_same_without_being_made():
    rng = np.random.default_rng(0)
    columns, scores = single(rng.normal(size=(4, 5000))), rng.normal(size=5000)
    columns[:, 7], columns[1, 8], scores[9], scores[10] = 0.0, np.nan, np.inf, 1e300
    jacobian = scores * columns
    jacobian[:, [8, 9, 10]] = 0.0
    apart = clipped_gradient_total(jacobian, 1.0)
    together = clipped_score_total(scores, columns, column_lengths(columns), 1.0)
    np.testing.assert_allclose(together, apart, atol=500)


def test_a_tiny_length_is_not_a_way_around_the_clip():
    # squares of the column underflow in single precision, the gradient is 1e10
    columns = np.array([[1e-40], [0.0]], dtype="float32")
    total = clipped_score_total(np.array([1e50]), columns, column_lengths(columns), 1.0)
    assert length(total) <= GRADIENT_LEVELS**2
    columns = np.array([[1e-30], [0.0]], dtype="float32")
    total = clipped_score_total(np.array([1e40]), columns, column_lengths(columns), 1.0)
    assert total[0] == pytest.approx(2**20, rel=1e-5)


def test_zero_and_bad_gradients_pull_nowhere():
    bad = np.array([[0.0, np.nan, np.inf, 1.0], [0.0, 1.0, 0.0, -np.inf]])
    np.testing.assert_array_equal(clipped_gradient_total(bad, 1.0), [0, 0])
    slopes = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    np.testing.assert_array_equal(values(slopes, bad, 1.0), [0, 0, 0])
