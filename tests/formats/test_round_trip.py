"""Releases by every mechanism survive a journey as JSON, to the last bit."""

import json
import math
from importlib.resources import files

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pymc_dp as pmdp
from pymc_dp.formats.mechanism import mechanism_to_plain
from tests.mechanisms.chi_square import evaluate

SCHEMA = jsonschema.Draft202012Validator(
    json.loads(files("pymc_dp").joinpath("formats/release.schema.json").read_text())
)
#: exclude numbers whose inverses overflow
POSITIVE = st.floats(1e-100, 1e100)
pytestmark = pytest.mark.filterwarnings("ignore::pymc_dp.PrivacyWarning")


def votes(x, candidate):
    """Count records that are the candidate."""
    return (x == candidate).sum()


@st.composite
def noises(draw):
    """Noise by its parameter or by a guarantee, for one number or for three."""
    number = draw(st.sampled_from([POSITIVE, st.lists(POSITIVE, min_size=3, max_size=3)]))
    family = draw(
        st.sampled_from([pmdp.Laplace, pmdp.DiscreteLaplace, pmdp.Gaussian, pmdp.DiscreteGaussian])
    )
    way = draw(st.sampled_from(["noise", "guarantee", "delta"]))
    moderate = st.floats(1e-3, 1e3)
    if way == "noise":
        return family(draw(number))
    if family in (pmdp.Laplace, pmdp.DiscreteLaplace):
        return family(epsilon=draw(moderate), sensitivity=draw(moderate))
    if way == "guarantee":
        return family(rho=draw(moderate), sensitivity=draw(moderate))
    return family(epsilon=draw(st.floats(0.01, 10)), delta=1e-6, sensitivity=draw(moderate))


@st.composite
def changed(draw, mechanism):
    """What may have happened to a noisy value, in any order that is allowed."""
    for step in draw(st.lists(st.sampled_from(["clamped", "rounded"]), max_size=3)):
        grid = mechanism.lattice or 1.0
        if step == "clamped":
            lower, upper = draw(st.sampled_from([None, -9, 0])), draw(st.sampled_from([1, 7]))
            lower = None if lower is None else lower * grid
            too = draw(st.booleans())
            mechanism = mechanism.clamped(lower, upper * grid, statistic_too=too)
        else:
            how = draw(st.sampled_from(["nearest", "floor", "ceil", "trunc"]))
            mechanism = mechanism.rounded(draw(st.integers(1, 3)) * grid, how=how)
    if draw(st.booleans()):
        dropped = draw(st.sampled_from([math.nan, -1e6, -0.5]))
        mechanism = mechanism.thresholded(draw(st.floats(-0.25, 0)), dropped=dropped)
    return mechanism


mechanisms = st.one_of(
    noises().flatmap(changed),
    st.builds(
        pmdp.Staircase,
        epsilon=st.floats(1e-3, 1e2),
        sensitivity=POSITIVE,
        gamma=st.floats(0.01, 0.99),
    ),
    st.builds(pmdp.FoldedLaplace, POSITIVE, lower=st.sampled_from([-1, -math.inf]), upper=POSITIVE),
    st.builds(
        pmdp.FoldedDiscreteLaplace,
        POSITIVE,
        lower=st.sampled_from([-0.5, 0, -4]),
        upper=st.sampled_from([1, 3.5, math.inf]),
    ),
    st.builds(
        pmdp.BoundedLaplace,
        epsilon=st.floats(1e-3, 9),
        sensitivity=st.floats(0.1, 9),
        lower=st.floats(-9, -1),
        upper=st.floats(1, 9),
    ),
    st.builds(
        pmdp.RandomizedResponse, st.integers(2, 5), keep=st.floats(0.01, 1, exclude_min=True)
    ),
    st.builds(pmdp.RandomizedResponse, st.integers(2, 5), epsilon=st.floats(0.01, 9)),
    st.sampled_from([0, 1e-9, 0.1, 1 / 3, 1]).map(
        lambda p: pmdp.RandomizedResponse(matrix=[[p, 1 - p], [0.25, 0.75]])
    ),
    st.builds(
        pmdp.ExponentialMechanism,
        st.just(votes),
        st.floats(1e-3, 1e3),
        st.floats(1e-3, 1e3),
        candidates=st.lists(st.floats(-1e9, 1e9), min_size=2, max_size=5, unique=True),
    ),
    st.builds(
        pmdp.KNormGradient,
        st.just(votes),
        st.floats(1e-3, 1e3),
        st.floats(1e-3, 1e3),
        candidates=st.just([[0.1, 0.2], [0.3, 0.4]]),
        order=st.sampled_from([1, 2, math.inf]),
    ),
    st.just(pmdp.Exact()),
)


def a_value(mechanism, draw):
    """Something that the mechanism can have released."""
    if getattr(mechanism, "candidates", None) is not None:
        return mechanism.candidates[-1]
    if isinstance(mechanism, pmdp.RandomizedResponse):
        return np.array([0, 1, 1])
    if isinstance(mechanism, pmdp.Exact):
        return np.array([3, 2**53 + 1])
    statistic = np.zeros(mechanism.noise.shape)
    if mechanism.dtype == "int64" or getattr(mechanism, "lattice", True):
        noisy = statistic
    else:
        noisy = statistic + draw(st.floats(-1e300, 1e300))
    return afterwards(mechanism, noisy)


def afterwards(mechanism, noisy):
    """Do to a noisy value all that the mechanism says was done."""
    if not hasattr(mechanism, "inner"):
        return noisy
    return mechanism.change(afterwards(mechanism.inner, noisy), np)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.data())
def test_every_mechanism(data):
    mechanism = data.draw(mechanisms)
    value = a_value(mechanism, data.draw)
    release = pmdp.StatisticRelease("numbers", mechanism, value, neighbours="substitute", n=12)
    text = release.to_json()
    SCHEMA.validate(json.loads(text))
    back = pmdp.read_release(text)
    assert back.to_json() == text
    assert repr(back) == repr(release)
    assert repr(back.mechanism) == repr(mechanism)
    assert mechanism_to_plain(back.mechanism) == mechanism_to_plain(mechanism)
    np.testing.assert_array_equal(back.value, release.value)
    assert back.value.dtype == release.value.dtype == mechanism.dtype
    for name in ("noise", "matrix", "candidates"):
        if hasattr(mechanism, name):
            np.testing.assert_array_equal(getattr(back.mechanism, name), getattr(mechanism, name))
    if back.sensitivity is not None:  # known to the mechanism, too
        np.testing.assert_array_equal(back.mechanism.sensitivity, mechanism.sensitivity)


def test_every_public_mechanism_is_among_those_tried():
    public = {
        value.__name__
        for value in (getattr(pmdp, name) for name in pmdp.__all__)
        if isinstance(value, type) and issubclass(value, pmdp.Mechanism)
    } - {"Mechanism", "CustomMechanism"}
    seen = set()

    @settings(max_examples=400, deadline=None, derandomize=True, database=None)
    @given(mechanisms)
    def look(mechanism):
        while hasattr(mechanism, "inner"):
            seen.add(type(mechanism).__name__)
            mechanism = mechanism.inner
        seen.add(type(mechanism).__name__)

    look()
    assert seen == public | {"Clamped", "Rounded", "Thresholded"}


def test_the_density_survives():
    made = pmdp.DiscreteGaussian(sigma=[2.5, 0.3]).rounded(2, how="ceil").thresholded(4, dropped=0)
    back = pmdp.read_release(pmdp.StatisticRelease("cells", made, [0, 6]).to_json()).mechanism
    for value in ([0, 6], [8, 0], [4, 4]):
        one, two = (evaluate(m.logp(np.array(value), np.array([5, 3]))) for m in (made, back))
        np.testing.assert_array_equal(one, two)


def test_mechanisms_of_code_are_refused():
    custom = pmdp.CustomMechanism(logp=lambda r, s: -abs(r - s))
    with pytest.raises(ValueError, match="its density is code"):
        pmdp.StatisticRelease("a sum", custom, 1.0).to_json()

    class Mine(pmdp.Laplace):
        """Laplace noise, but not quite."""

    with pytest.raises(ValueError, match="its density is code"):
        pmdp.StatisticRelease("a sum", Mine(2), 1.0).to_json()
    nameless = pmdp.ExponentialMechanism(lambda x, c: x[c], 1, 1, candidates=[0, 1])
    with pytest.raises(ValueError, match="docstring"):
        pmdp.StatisticRelease("votes", nameless, 1.0, neighbours="substitute").to_json()
