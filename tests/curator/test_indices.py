"""Indices out of bounds are refused when the data is read, and never reach the compiled code."""

import numpy as np
import pymc as pm
import pytest

from pymc_dp.curator.likelihood import FlatSpace, RecordLikelihood

rng = np.random.default_rng(0)
N = 30
Y = rng.normal(size=N)
GROUP = rng.integers(0, 4, size=N)


def with_entry(values, entry):
    values = values.copy()
    values[5] = entry
    return values


def likelihood_of(index):
    with pm.Model() as model:
        pm.Normal("y", index(pm.Normal("a", shape=(4, 2))), 1, observed=Y)
    return model, RecordLikelihood(model, FlatSpace(model))


BAD = {
    "too large": (lambda a: a[with_entry(GROUP, 10**7), 0], "an array of 4 does not have.*0 to 3"),
    "too small": (lambda a: a[with_entry(GROUP, -5), 0], "an array of 4 does not"),
    "counted from one": (lambda a: a[GROUP + 1, 0], "an array of 4 does not"),
    "second axis": (lambda a: a[GROUP, with_entry(GROUP % 2, 2)], "an array of 2 does not"),
    "unsigned": (lambda a: a[with_entry(GROUP.astype("uint8"), 200), 0], "an array of 4 does not"),
    "computed": (lambda a: a[2 * pm.Data("g", GROUP), 0], "an array of 4 does not"),
}


@pytest.mark.parametrize("name", BAD)
def test_an_index_out_of_bounds_is_refused_before_it_is_used(name):
    index, message = BAD[name]
    with pytest.raises(IndexError, match=message):
        likelihood_of(index)


def test_new_data_is_looked_at_and_what_gets_by_is_clamped():
    model, likelihood = likelihood_of(lambda a: a[pm.Data("g", GROUP), 0])
    theta = np.arange(8.0)
    with model:
        pm.set_data({"g": with_entry(GROUP, 10**7)})
    with pytest.raises(IndexError, match="an array of 4 does not"):
        likelihood.load()
    wild = [with_entry(rows, 10**7) if rows.dtype.kind == "i" else rows for rows in likelihood.data]
    last = [with_entry(rows, 3) if rows.dtype.kind == "i" else rows for rows in likelihood.data]
    np.testing.assert_array_equal(
        likelihood._evaluate(theta, wild), likelihood._evaluate(theta, last)
    )


def test_indices_from_the_end_stay_what_they_are():
    _, likelihood = likelihood_of(lambda a: a[GROUP - 4, 1])
    theta = np.arange(8.0)
    expected = -0.5 * (Y - theta.reshape(4, 2)[GROUP, 1]) ** 2 - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(likelihood(theta), expected)
