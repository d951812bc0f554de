"""Mechanisms read from other libraries' objects and parameters."""

from enum import Enum

import numpy as np
import pytest
from scipy import stats

import pymc_dp as pmdp
from pymc_dp.interop import from_diffprivlib, from_opendp, from_smartnoise, from_tumult
from tests.mechanisms.chi_square import assert_follows, evaluate


@pytest.fixture
def dp():
    module = pytest.importorskip("opendp.prelude")
    module.enable_features("contrib")
    return module


def test_opendp_noise(dp):
    floats = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
    ints = dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int)
    assert repr(from_opendp(dp.m.make_laplace(*floats, 2.5))) == "Laplace(scale=2.5)"
    assert repr(from_opendp(dp.m.make_gaussian(*floats, 2.5))) == "Gaussian(sigma=2.5)"
    assert repr(from_opendp(dp.m.make_laplace(*ints, 2.5))) == "DiscreteLaplace(scale=2.5)"
    integer = dp.atom_domain(T=int), dp.absolute_distance(T=int)
    assert repr(from_opendp(dp.m.make_geometric(*integer, 2.5))) == "DiscreteLaplace(scale=2.5)"
    text = dp.serialize(dp.m.make_randomized_response(["a", "b", "c"], 0.75))
    assert repr(from_opendp(text)) == "RandomizedResponse(3, keep=0.75)"


def test_opendp_noise_after_a_transformation(dp):
    total = dp.t.make_sum(dp.vector_domain(dp.atom_domain(bounds=(0, 10))), dp.symmetric_distance())
    chain = total >> dp.m.make_laplace(total.output_domain, total.output_metric, 3.0)
    assert repr(from_opendp(chain)) == "DiscreteLaplace(scale=3.)"


def test_opendp_draws_follow_the_mechanism(dp):
    # false-alarm rate 1e-5 each
    integers = dp.vector_domain(dp.atom_domain(T=int))
    values = np.arange(-100, 101)
    for made in (
        dp.m.make_laplace(integers, dp.l1_distance(T=int), 2.5),
        dp.m.make_gaussian(integers, dp.l2_distance(T=float), 2.5),
    ):
        log_p = evaluate(from_opendp(made).logp(values, 3))
        assert_follows(made([3] * 5000), values, log_p)
    coin = dp.m.make_randomized_response(["a", "b", "c"], 0.6)
    reports = np.array([ord(coin("b")) - ord("a") for _ in range(3000)])
    assert_follows(reports, range(3), evaluate(from_opendp(coin).logp([0, 1, 2], 1)))


@pytest.mark.parametrize("statistic", [0, 3, -2, 12])
def test_opendp_bounds_hold_for_statistic_and_release(dp, statistic):
    # false-alarm rate 1e-5 each
    integer = dp.atom_domain(T=int), dp.absolute_distance(T=int)
    made = dp.m.make_geometric(*integer, 2.5, bounds=(0, 10))
    read = from_opendp(made)
    log_p = evaluate(read.logp(np.arange(11), statistic))
    assert_follows([made(statistic) for _ in range(3000)], range(11), log_p)


def test_opendp_continuous_draws_follow_the_mechanism(dp):
    # false-alarm rate 1e-5 each
    floats = dp.vector_domain(dp.atom_domain(T=float, nan=False), size=5000)
    for made, noise in (
        (dp.m.make_laplace(floats, dp.l1_distance(T=float), 2.5, k=-30), stats.laplace),
        (dp.m.make_gaussian(floats, dp.l2_distance(T=float), 2.5), stats.norm),
    ):
        scale = float(from_opendp(made).noise)
        assert stats.kstest(made([3.0] * 5000), noise(3, scale).cdf).pvalue > 1e-5


def test_opendp_coarse_grids_are_refused(dp):
    floats = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
    for make in (dp.m.make_laplace, dp.m.make_gaussian):
        with pytest.raises(ValueError, match=r"multiples of 2\*\*-3"):
            from_opendp(make(*floats, 2.5, k=-3))


def test_opendp_refusals(dp):
    with pytest.raises(ValueError, match="make_laplace came with 'tail'"):
        from_opendp('{"__function__": "make_laplace", "__kwargs__": {"scale": 1.0, "tail": 3}}')
    with pytest.raises(TypeError, match="not an OpenDP measurement"):
        from_opendp(3)
    with pytest.raises(ValueError, match="'make_report_noisy_max'"):
        from_opendp('{"__function__": "make_report_noisy_max", "__kwargs__": {}}')
    with pytest.raises(ValueError, match="'scale'"):
        from_opendp('{"__function__": "make_laplace", "__kwargs__": {}}')


@pytest.mark.parametrize(
    ("name", "parameters", "expected"),
    [
        ("Laplace", {"epsilon": 0.5, "sensitivity": 2}, "Laplace(scale=4.)"),
        ("Geometric", {"epsilon": 0.5, "sensitivity": 1}, "DiscreteLaplace(scale=2.)"),
        (
            "LaplaceTruncated",
            {"epsilon": 1, "sensitivity": 2, "lower": 0, "upper": 9},
            "Laplace(scale=2.).clamped(lower=0, upper=9)",
        ),
        ("GaussianDiscrete", {"scale": 3.0}, "DiscreteGaussian(sigma=3.)"),
        ("Binary", {"epsilon": np.log(3)}, "RandomizedResponse(2, keep=0.75)"),
    ],
)
def test_diffprivlib(name, parameters, expected):
    assert repr(from_diffprivlib(name, **parameters)) == expected


def test_diffprivlib_gaussians():
    given = {"epsilon": 0.5, "delta": 1e-5, "sensitivity": 2}
    classic = from_diffprivlib("Gaussian", **given)
    assert classic.noise == pytest.approx(2 * np.sqrt(2 * np.log(1.25e5)) / 0.5)
    assert from_diffprivlib("GaussianAnalytic", **given).noise < classic.noise
    with_delta = from_diffprivlib("Laplace", **given)
    assert with_delta.noise == pytest.approx(2 / (0.5 - np.log(1 - 1e-5)))


def test_diffprivlib_object():
    class Laplace:
        def __init__(self):
            self.epsilon, self.delta, self.sensitivity, self._scale = 0.5, 0.0, 2.0, None

    assert repr(from_diffprivlib(Laplace())) == "Laplace(scale=4.)"


class Noise(Enum):
    GEOMETRIC = 2
    LAPLACE = 3


def test_tumult():
    geometric = {"noise_mechanism": Noise.GEOMETRIC, "noise_parameter": 2}
    assert repr(from_tumult(geometric)) == "DiscreteLaplace(scale=2.)"
    gaussian = {"noise_mechanism": "GAUSSIAN", "noise_parameter": 9}
    assert repr(from_tumult(gaussian)) == "Gaussian(sigma=3.)"
    with pytest.raises(ValueError, match="'noise_parameter'"):
        from_tumult({"noise_mechanism": "LAPLACE"})
    with pytest.raises(ValueError, match="EXPONENTIAL"):
        from_tumult({"noise_mechanism": "EXPONENTIAL", "noise_parameter": 1})


#: how often smartnoise-sql 1.0.10 (opendp 0.14.2) released what, in 2000 queries
#: "SELECT COUNT(*) ..." of a table of so many rows, with epsilon .5 (and delta 1e-5)
SMARTNOISE_COUNTS = {
    "laplace": (
        1,
        False,
        {
            -12: 2,
            -11: 1,
            -10: 2,
            -9: 4,
            -8: 5,
            -7: 6,
            -6: 14,
            -5: 21,
            -4: 30,
            -3: 56,
            -2: 82,
            -1: 147,
            0: 626,
            1: 421,
            2: 240,
            3: 122,
            4: 91,
            5: 57,
            6: 30,
            7: 23,
            8: 9,
            9: 5,
            10: 3,
            11: 2,
            14: 1,
        },
    ),
    "laplace, clamp_counts": (
        2,
        True,
        {
            0: 624,
            1: 388,
            2: 414,
            3: 230,
            4: 170,
            5: 67,
            6: 42,
            7: 21,
            8: 19,
            9: 10,
            10: 3,
            11: 8,
            12: 2,
            13: 1,
            14: 1,
        },
    ),
}


@pytest.mark.parametrize("name", SMARTNOISE_COUNTS)
def test_smartnoise_counts(name):
    # false-alarm rate 1e-5 each
    rows, clamp_counts, counts = SMARTNOISE_COUNTS[name]
    noise = (
        {"scale": 7.667156018132338} if name == "gaussian" else {"epsilon": 0.5, "sensitivity": 1}
    )
    read = from_smartnoise(name.split(",")[0], column="int", clamp_counts=clamp_counts, **noise)
    values = np.arange(-80, 81)
    log_p = evaluate(read.logp(values, rows))
    assert_follows(np.repeat(list(counts), list(counts.values())), values, log_p)


def test_smartnoise():
    class Laplace:
        def __init__(self):
            self.mechanism, self.scale = Noise.LAPLACE, 2.0
            self.epsilon, self.delta, self.sensitivity, self.max_contrib = 0.5, 0.0, None, 1
            self.lower, self.upper, self.bit_depth = 0, 1, 64

    assert repr(from_smartnoise(Laplace(), column="float")) == "Laplace(scale=2.)"
    whole = "Laplace(scale=2.).rounded(1, how='trunc')"
    assert repr(from_smartnoise(Laplace(), column="int")) == whole
    for name in ("geometric", "discrete_laplace"):
        assert repr(from_smartnoise(name, epsilon=0.5, sensitivity=1)) == whole
    assert isinstance(from_smartnoise("gaussian", column="float", scale=3.0), pmdp.Gaussian)


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda: from_smartnoise("laplace", epsilon=1, sensitivity=1), "column=None"),
        (lambda: from_smartnoise("laplace", column="count", scale=1), "column='count'"),
        (lambda: from_smartnoise("laplace", column="int", scale=1, censor_dims=True), "censor"),
        (lambda: from_smartnoise("gaussian", column="float", scale=1, clamp_counts=True), "clamp"),
        (lambda: from_smartnoise("discrete_gaussian", column="int", scale=1), "discrete_gaussian"),
        (lambda: from_diffprivlib("Geometric", epsilon=1, sensitivity=1, lower=0), "'lower'"),
        (lambda: from_diffprivlib("LaplaceFolded", epsilon=1, sensitivity=1), "LaplaceFolded"),
        (lambda: from_tumult({"noise_mechanism": "LAPLACE", "threshold": 3}), "'threshold'"),
    ],
)
def test_what_is_not_understood_is_refused(read, message):
    with pytest.raises(ValueError, match=message):
        read()


def test_unbounded_truncation_is_none():
    given = {"epsilon": 0.5, "sensitivity": 1, "lower": -np.inf, "upper": np.inf}
    assert repr(from_diffprivlib("GeometricTruncated", **given)) == "DiscreteLaplace(scale=2.)"


@pytest.mark.parametrize(
    ("read", "missing"),
    [
        (lambda: from_diffprivlib("Laplace", epsilon=1), "sensitivity"),
        (lambda: from_diffprivlib("Gaussian", epsilon=1, sensitivity=1), "delta"),
        (lambda: from_diffprivlib("GaussianDiscrete", epsilon=1, sensitivity=1), "scale"),
        (lambda: from_diffprivlib("GeometricTruncated", epsilon=1, sensitivity=1), "lower"),
        (lambda: from_smartnoise("gaussian", column="float", epsilon=1), "scale"),
        (lambda: from_smartnoise("laplace", column="float", epsilon=1), "sensitivity"),
    ],
)
def test_the_error_says_what_is_missing(read, missing):
    with pytest.raises(ValueError, match=f"'{missing}'"):
        read()
