"""Summaries of OpenDP's Polars queries, as version 0.16.0 gave them."""

import numpy as np
import pytest

import pymc_dp as pmdp
from pymc_dp.interop import (
    diffprivlib_release,
    opendp_summary_releases,
    smartnoise_release,
    tumult_release,
)

#: with epsilon 1 in 20 parts; the released frame had these columns' types
WHOLE = {
    "column": ["len", "slen", "convicted", "fs"],
    "aggregate": ["Frame Length", "Frame Length", "Sum", "Sum"],
    "distribution": ["Integer Laplace", "Integer Laplace", "Integer Laplace", "Float Laplace"],
    "scale": [140.0, 140.0, 140.0, 700.0],
    "accuracy": [419.901625, 419.901625, 419.901625, 2097.012592],
}
RELEASED = {"len": [234], "slen": [-483], "convicted": [154], "fs": [1062.8103]}
TYPES = {"len": "UInt32", "slen": "Int64", "convicted": "Int32", "fs": "Float64"}
#: by groups, with rho 1 and delta 1e-6 in 8 parts
GROUPED = {
    "column": ["len", "convicted"],
    "aggregate": ["Frame Length", "Sum"],
    "distribution": ["Integer Gaussian", "Integer Gaussian"],
    "scale": [2.8284271247461903, 2.8284271247461903],
    "threshold": [16, None],
}
GROUPS = {"g": ["c", "b", "a"], "len": [48, 99, 98], "convicted": [50, 51, 53]}
MEAN = {
    "column": ["x", "x"],
    "aggregate": ["Sum", "Length"],
    "distribution": ["Float Laplace", "Integer Laplace"],
    "scale": [200.0, 40.0],
}
MEDIAN = {
    "column": ["x"],
    "aggregate": ["0.5-Quantile"],
    "distribution": ["ExponentialMin"],
    "scale": [40.0],
}


class Frame:
    """What a reader uses of a Polars frame."""

    schema = TYPES

    def to_dict(self, as_series):
        assert not as_series
        return RELEASED


def test_types_tell_which_counts_were_clamped():
    found = opendp_summary_releases(WHOLE, Frame(), epsilon=0.05, neighbours="add_remove")
    assert repr(found["len"].mechanism) == "DiscreteLaplace(scale=140.).clamped(lower=0)"
    assert repr(found["slen"].mechanism) == "DiscreteLaplace(scale=140.)"
    assert repr(found["fs"].mechanism) == "Laplace(scale=700.)"
    assert found["fs"].value == 1062.8103
    assert found["len"].epsilon == 0.05
    by_hand = opendp_summary_releases(WHOLE, RELEASED, unsigned=["len"])
    assert [repr(r.mechanism) for r in by_hand.values()] == [
        repr(r.mechanism) for r in found.values()
    ]
    for release in found.values():
        assert pmdp.read_release(release.to_json()).to_json() == release.to_json()


def test_groups_that_were_dropped():
    found = opendp_summary_releases(GROUPED, GROUPS, keys=["a", "b", "c", "d"], unsigned=[])
    counts, sums = found["len"], found["convicted"]
    np.testing.assert_array_equal(counts.value, [98, 99, 48, np.nan])
    assert (counts.mechanism.threshold, sums.value.tolist()) == (17, [53, 51, 50])
    assert counts.statistic == "Frame Length (len), by g: a, b, c, d"
    assert sums.statistic == "Sum (convicted), by g: a, b, c"
    unordered = opendp_summary_releases(GROUPED, GROUPS, unsigned=["convicted"])
    assert repr(unordered["convicted"].mechanism).endswith(".clamped(lower=0)")
    assert unordered["len"].value.tolist() == [48, 99, 98]
    assert unordered["len"].statistic.endswith("by g: c, b, a")


@pytest.mark.parametrize(
    ("read", "error", "message"),
    [
        (lambda: opendp_summary_releases(WHOLE, RELEASED), ValueError, "may have been clamped"),
        (lambda: opendp_summary_releases(GROUPED, GROUPS), ValueError, "'convicted' may have been"),
        (lambda: opendp_summary_releases(MEAN, {"x": [1.3]}), ValueError, "made of 2 noisy"),
        (lambda: opendp_summary_releases(MEDIAN, {"x": [3.0]}), ValueError, "'ExponentialMin'"),
        (lambda: opendp_summary_releases(GROUPED, GROUPS, keys=["a"]), ValueError, "not in keys"),
        (lambda: opendp_summary_releases(WHOLE, 3), TypeError, "no Polars frame"),
        (lambda: opendp_summary_releases({"column": []}, GROUPS), ValueError, "'aggregate'"),
        (lambda: opendp_summary_releases(GROUPED, {"len": [3]}), ValueError, "'convicted' is not"),
        (
            lambda: opendp_summary_releases(WHOLE, RELEASED, columns=["sum"]),
            ValueError,
            "'sum' is not a column",
        ),
        (
            lambda: opendp_summary_releases(GROUPED, GROUPS, keys=["a", "b", "c", "a"]),
            ValueError,
            "keys= has 'a' more than once",
        ),
        (
            lambda: opendp_summary_releases(GROUPED, {**GROUPS, "g": ["c", "b", "c"]}),
            ValueError,
            r"group \('c',\) more than once",
        ),
        (
            lambda: opendp_summary_releases(WHOLE, {n: v * 2 for n, v in RELEASED.items()}),
            ValueError,
            "2 rows and no column",
        ),
        (
            lambda: opendp_summary_releases(WHOLE, {n: [] for n in RELEASED}),
            ValueError,
            "0 rows and no column",
        ),
    ],
)
def test_what_is_refused(read, error, message):
    with pytest.raises(error, match=message):
        read()


def test_columns_may_be_chosen():
    assert list(opendp_summary_releases(WHOLE, RELEASED, columns=["fs"])) == ["fs"]


def test_others_in_one_format():
    class LaplaceFolded:
        def __init__(self):
            self.epsilon, self.delta, self.sensitivity = 0.5, 0.0, 2.0
            self.lower, self.upper, self._scale, self.random_state = 0, 9, None, None

    folded = diffprivlib_release(LaplaceFolded(), 3.5, "variance", neighbours="substitute", n=40)
    gaussian = smartnoise_release(
        "gaussian", 41.3, "SUM(v)", column="float", epsilon=1, delta=1e-6, sensitivity=3
    )
    told = [{"noise_mechanism": "DISCRETE_GAUSSIAN", "noise_parameter": 4.0}]
    counts = tumult_release(told, [np.nan, 41], "visits: east, north", threshold=5)
    tools = ["diffprivlib", "SmartNoise SQL", "Tumult Analytics"]
    for release, tool in zip((folded, gaussian, counts), tools, strict=True):
        assert release.provenance == {"tool": tool}
        assert pmdp.read_release(release.to_json()).to_json() == release.to_json()
    assert (folded.epsilon, folded.mechanism.scale) == (0.5, 4)
    assert (gaussian.epsilon, gaussian.delta, gaussian.neighbours) == (1, 1e-6, "add_remove")
    assert repr(counts.mechanism) == "DiscreteGaussian(sigma=2.).thresholded(5, dropped=nan)"
