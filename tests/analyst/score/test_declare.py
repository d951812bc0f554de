"""What an analyst may get wrong, and what a release tells."""

import json

import numpy as np
import pymc as pm
import pytest

import pymc_dp as pmdp
from pymc_dp.analyst.release import releases
from tests.curator.score.models import AT, N, build, records, released


@pytest.fixture(scope="module")
def release():
    return released(build("logistic", *records("logistic")), at=AT, clip=1.0)


def test_a_release_is_the_same_after_a_journey(release, tmp_path):
    release.to_json(tmp_path / "score.json")
    for source in (tmp_path / "score.json", str(tmp_path / "score.json"), release.to_json()):
        back = pmdp.ScoreRelease.from_json(source)
        assert back.to_json() == release.to_json()
        np.testing.assert_array_equal(back.value, release.value)
        assert repr(back) == repr(release)


def test_the_repr_says_what_it_is(release):
    text = repr(release)
    for part in ("y, 60 records", "by b, a", "a factor of the covariates", "epsilon 1,"):
        assert part in text
    by_length = released(build("poisson", *records("poisson")), at=AT, clip=2, bound="length")
    assert "clipped by their length to 2" in repr(by_length)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"format": 2}, "format 2"),
        ({"kind": "RegressionRelease"}, "something else"),
        ({"looks": [{"place": 1}]}, "not the JSON"),
        ({"new": 1}, "not the JSON"),
    ],
)
def test_json_of_something_else(release, change, match):
    with pytest.raises(ValueError, match=match):
        pmdp.ScoreRelease.from_json(json.dumps(json.loads(release.to_json()) | change))
    with pytest.raises(ValueError, match="not the JSON"):
        pmdp.ScoreRelease.from_json("{")


def changed(n=N, **kwargs):
    """The analyst's model with one thing changed."""
    options = {"b": 2, "a": "a", "y": "y", "scale": 1.0, "power": 1.0, "observed": False} | kwargs
    with pm.Model() as model:
        b = pm.Normal("b", 0, 5, shape=options["b"])  # another prior is as good
        a = pm.Normal(options["a"], 0, 2)
        x = pm.Normal("X", 0, 1, shape=(n, options["b"]))
        eta = a + options["scale"] * pm.math.dot(x ** options["power"], b)
        data = {"observed": np.zeros(n, dtype=int)} if options["observed"] else {"shape": n}
        pm.Bernoulli(options["y"], logit_p=eta, **data)
    return model


def test_another_prior_is_accepted(release):
    with changed():
        release.declare("score")


@pytest.mark.parametrize(
    ("kwargs", "match"),
    [
        ({"b": 3}, "'b' has shape"),
        ({"a": "intercept"}, "parameter 'a'"),
        ({"y": "z"}, "observed 'y'"),
        ({"n": 61}, "61 rows"),
        ({"scale": 1.5}, "derivative by 'b'"),
        ({"power": 2}, "derivative by 'b'"),
        ({"observed": True}, "leave observed= out"),
    ],
)
def test_a_model_that_is_not_the_curators(release, kwargs, match):
    model = changed(**kwargs)
    with model, pytest.raises(ValueError, match=match):
        release.declare("score")
    assert not releases(model)


def test_another_support_is_not_the_same_parameter():
    X, y = records("normal")
    at = AT | {"sigma": 1.3}
    release = released(build("normal", X, y), at=at, clip=1.0)
    with pm.Model():
        b, a = pm.Normal("b", 0, 1, shape=2), pm.Normal("a", 0, 2)
        sigma = pm.Uniform("sigma", 0, 5)
        x = pm.Normal("X", 0, 1, shape=(N, 2))
        pm.Normal("y", a + pm.math.dot(x, b), sigma, shape=N)
        with pytest.raises(ValueError, match="'sigma_log__'"):
            release.declare("score")


def test_once_and_not_twice(release):
    with build("logistic"):
        release.declare("score")
        with pytest.raises(ValueError, match="declared already, as 'score'"):
            release.declare("again")


def test_only_looks_that_there_are(release):
    with build("logistic"), pytest.raises(ValueError, match="from 0 to 0"):
        release.declare("score", looks=[1])


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"at": {"b": [0.1, 0.2]}}, "lacks 'a'"),
        ({"at": AT | {"c": 1}}, r"\['c'\]"),
        ({"at": AT | {"b": [1, 2, 3]}}, "'b' with shape"),
        ({"at": AT | {"b": [1, np.nan]}}, "outside of its prior's support"),
        ({"at": AT | {"sigma": -1.0}}, "outside of its prior's support"),
        ({"at": []}, "dict"),
        ({"clip": -1.0}, "clip must be positive"),
        ({"clip": np.nan}, "clip must be positive"),
        ({"clip": None}, "clip= is missing"),
        ({"at": None}, "at= is missing"),
        ({"inverse_mass": np.eye(7)}, "inverse_mass"),
        ({"epsilon": None}, "exactly one"),
    ],
)
def test_what_a_curator_may_get_wrong(wrong, match):
    model = build("normal", *records("normal"))
    right = {"at": AT | {"sigma": 1.0}, "clip": 1.0}
    with pytest.raises(ValueError, match=match):
        released(model, **(right | wrong))


def test_a_model_that_no_record_informs():
    with pm.Model() as model:
        pm.Normal("mu", 0, 1)
        pm.Normal("y", 0, 1, observed=np.zeros(20))
    with pytest.raises(ValueError, match="No parameter is informed"):
        released(model, at={"mu": 0.0}, clip=1.0)


def test_a_confidential_number_of_records():
    X, y = records("logistic")
    release = released(build("logistic", X, y), at=AT, clip=1.0, neighbours="add_remove")
    assert release.n_sigma > 0
    assert len(release.value) == 4
    with build("logistic", n=100), pytest.raises(ValueError, match="present="):
        release.declare("score")
    with build("logistic", n=100) as model:
        present = pm.Bernoulli("present", pm.Beta("rho", 1, 1), shape=100)
        release.declare("score", present=present)
    [declared] = releases(model)
    assert declared.statistic.type.shape[0] in (None, 4)
