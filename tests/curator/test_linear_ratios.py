"""Clipped sums of linear ratios: whole numbers, bounded, the same however records are split."""

import pickle

import numpy as np
import pymc as pm
import pytest

from pymc_dp.accounting.levels import LEVELS
from pymc_dp.curator.linear_ratios import LinearRatios, in_blocks, linear_total
from pymc_dp.curator.model import RecordModel
from pymc_dp.curator.penalty_kernels import clipped_total

rng = np.random.default_rng(3)


def total_of(columns, factors, constant, bound):
    after = np.append(constant, factors)
    return linear_total(in_blocks(columns.T), after, np.zeros_like(after), bound)


def levels(columns, factors, constant, bound):
    """The same, one record and one operation after the other."""
    scale, found = LEVELS / bound, []
    for record in columns.T:
        ratio = scale * constant
        for factor, value in zip(scale * factors, record, strict=True):
            ratio = ratio + factor * value
        ratio = min(max(ratio, -float(LEVELS)), float(LEVELS))
        found.append(0 if np.isnan(ratio) else int(np.rint(ratio)))
    return found


@pytest.mark.parametrize("width", [2, 4, 6, 8, 10])
@pytest.mark.parametrize("n", [1, 63, 1025, 5000])
def test_total_is_that_of_one_record_after_the_other(width, n):
    columns, factors = rng.normal(size=(width, n)), rng.normal(size=width)
    expected = sum(levels(columns, factors, 0.1, bound=1.5))
    assert total_of(columns, factors, 0.1, bound=1.5) == expected
    assert total_of(columns, -factors, -0.1, bound=1.5) == -expected


def test_factors_of_zero_are_left_out():
    columns, factors = rng.normal(size=(10, 1500)), np.zeros(10)
    for place in range(10):
        factors[:] = 0
        factors[place] = 0.7
        columns[:, 800] = np.nan
        expected = sum(levels(columns, factors, 0.1, bound=1.5))
        assert total_of(columns, factors, 0.1, bound=1.5) == expected


@pytest.mark.parametrize("width", [2, 6])
def test_parts_add_up_wherever_they_are_cut(width):
    columns, factors = rng.normal(size=(width, 3000)), rng.normal(size=width)
    whole = total_of(columns, factors, 0.1, bound=2.0)
    for cut in (1, 7, 1024, 1500, 2999):
        parts = [np.ascontiguousarray(part) for part in np.split(columns, [cut], axis=1)]
        assert sum(total_of(part, factors, 0.1, bound=2.0) for part in parts) == whole


@pytest.mark.parametrize("width", [2, 4])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324])
def test_one_record_moves_a_total_by_no_more_than_its_bound(width, value):
    columns, factors = rng.normal(size=(width, 2000)), rng.normal(size=width)
    others = np.ascontiguousarray(np.delete(columns, 700, axis=1))
    columns[:, 700] = value
    own = total_of(columns, factors, 0.1, 1.0) - total_of(others, factors, 0.1, 1.0)
    assert abs(own) <= LEVELS


def model(data, **kwargs):
    with pm.Model() as made:
        mu, sigma = pm.Normal("mu", shape=2), pm.HalfNormal("sigma")
        pm.Normal("y", mu, sigma, observed=pm.Data("records", data))
    return made, RecordModel(made, **kwargs)


DATA = rng.normal(size=(4000, 2))
HERE, THERE = np.array([0.1, -0.2, 0.0]), np.array([0.15, -0.1, 0.05])


def direct(records, bound):
    return clipped_total(records.likelihood(THERE), records.likelihood(HERE), bound)


@pytest.mark.parametrize("bound", [0.02, 0.2, 20.0])
def test_ratios_are_those_of_the_likelihood(bound):
    _, records = model(DATA)
    assert records.ratios.linear is not None
    total = records.ratios.total(HERE, THERE, bound)
    # a record's rounding to a whole number, and its likelihood's to a float
    most = len(DATA) * (1 + 1e-13 * LEVELS / bound)
    assert abs(total - direct(records, bound)) <= most
    assert records.ratios.total(THERE, HERE, bound) == -total


def test_records_without_a_likelihood_say_nothing():
    strange = DATA.copy()
    strange[[3, 50, 51], 0] = np.inf, np.inf, -np.inf
    rest = np.delete(DATA, [3, 50, 51], axis=0)
    assert model(strange)[1].ratios.total(HERE, THERE, 0.2) == (
        model(rest)[1].ratios.total(HERE, THERE, 0.2)
    )


def test_data_is_read_anew_and_forgotten():
    made, records = model(DATA)
    before = records.ratios.total(HERE, THERE, 0.2)
    with made:
        pm.set_data({"records": DATA + 1})
    records.likelihood.load()
    after = records.ratios.total(HERE, THERE, 0.2)
    assert after != before
    assert after == model(DATA + 1)[1].ratios.total(HERE, THERE, 0.2)
    records.ratios.forget()
    linear = records.ratios.linear
    assert linear._blocks is linear._data is None
    assert not linear._kept
    records.ratios.total(HERE, THERE, 0.2)
    assert pickle.loads(pickle.dumps(linear))._blocks is None


@pytest.mark.parametrize("far", [1e6, 1e200])
def test_where_numbers_of_the_parameters_are_too_large_the_likelihood_is_asked(far):
    """A mean a million standard deviations from zero: its square would drown the ratio."""
    _, records = model(DATA + far)
    here, there = HERE.copy(), THERE.copy()
    here[:2] += far
    there[:2] += far
    assert records.ratios.linear.total(here, there, 0.2) is None
    expected = clipped_total(records.likelihood(there), records.likelihood(here), 0.2)
    assert records.ratios.total(here, there, 0.2) == expected


def test_a_likelihood_that_is_vouched_for_is_not_taken_apart():
    """The user vouches for the whole, not for its parts."""
    _, records = model(DATA, independent_records=True)
    assert LinearRatios.of(records.likelihood) is None
