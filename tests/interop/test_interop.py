"""Mechanisms read from other libraries' objects and parameters."""

from enum import Enum
from types import SimpleNamespace

import numpy as np
import pytest

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


def test_opendp_refusals(dp):
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


def test_tumult():
    geometric = {"noise_mechanism": Noise.GEOMETRIC, "noise_parameter": 2}
    assert repr(from_tumult(geometric)) == "DiscreteLaplace(scale=2.)"
    gaussian = {"noise_mechanism": "GAUSSIAN", "noise_parameter": 9}
    assert repr(from_tumult(gaussian)) == "Gaussian(sigma=3.)"
    with pytest.raises(ValueError, match="'noise_parameter'"):
        from_tumult({"noise_mechanism": "LAPLACE"})
    with pytest.raises(ValueError, match="EXPONENTIAL"):
        from_tumult({"noise_mechanism": "EXPONENTIAL", "noise_parameter": 1})


def test_smartnoise():
    reader = SimpleNamespace(mechanism=Noise.GEOMETRIC, scale=2.0, epsilon=1.0)
    assert repr(from_smartnoise(reader)) == "DiscreteLaplace(scale=2.)"
    assert isinstance(from_smartnoise("gaussian", scale=3.0), pmdp.Gaussian)
    assert repr(from_smartnoise("discrete_gaussian", scale=3.0)) == "DiscreteGaussian(sigma=3.)"


@pytest.mark.parametrize(
    ("read", "missing"),
    [
        (lambda: from_diffprivlib("Laplace", epsilon=1), "sensitivity"),
        (lambda: from_diffprivlib("Gaussian", epsilon=1, sensitivity=1), "delta"),
        (lambda: from_diffprivlib("GaussianDiscrete", epsilon=1, sensitivity=1), "scale"),
        (lambda: from_diffprivlib("GeometricTruncated", epsilon=1, sensitivity=1), "lower"),
        (lambda: from_smartnoise("gaussian", epsilon=1, delta=1e-5), "scale"),
        (lambda: from_smartnoise("laplace", epsilon=1), "sensitivity"),
    ],
)
def test_the_error_says_what_is_missing(read, missing):
    with pytest.raises(ValueError, match=f"'{missing}'"):
        read()
