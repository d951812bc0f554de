"""What an analyst may get wrong, and what a release tells."""

import json
from dataclasses import replace

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
    by_length = replace(
        release, looks=tuple(replace(look, bound="length") for look in release.looks)
    )
    assert "clipped by their length to 1" in repr(by_length)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"version": 2}, "has version 2 of the format"),
        ({"kind": "RegressionRelease"}, "is of kind 'RegressionRelease'"),
        ({"new": 1}, "has a field 'new'"),
        ({"n": None}, "guarantee and n of a ScoreRelease"),
        ({"value": [0.0, 1.0, 2.0]}, "value: it contradicts details"),
    ],
)
def test_json_of_something_else(release, change, match):
    fields = json.loads(release.to_json()) | change
    with pytest.raises(ValueError, match=match):
        pmdp.ScoreRelease.from_json(json.dumps(fields))
    with pytest.raises(ValueError, match="not the JSON"):
        pmdp.ScoreRelease.from_json("{")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"looks": [{"place": 1}]}, "details: these are not of a ScoreRelease"),
        ({"parameters": 3}, "details: these are not of a ScoreRelease"),
        ({"new": 1}, "details has a field 'new'"),
        ({"parameters": {"b": [2.0], "a": []}}, "shape of 'b' must be a list of whole numbers"),
        ({"parameters": {"b": [10**9], "a": []}}, "basis has shape"),
        ({"observed": "y"}, "observed must be a list"),
        ({"observed": [1]}, "observed must be text"),
        ({"also": {}}, "also must be a list"),
        ({"looks": []}, "looks and observed must not be empty"),
        ({"trial": [["a"]]}, "could not convert"),
        *(
            ({"look": change}, match)
            for change, match in [
                ({"sigma": 0}, "sigma must be positive"),
                ({"sigma": True}, "sigma must be a number"),
                ({"clip": -1.0}, "clip must be positive"),
                ({"bound": "<b>"}, "bound must be one of"),
                ({"bound": []}, "bound must be one of"),
                ({"place": [0.0]}, "place has shape"),
                ({"place": ["0", "0", "0"]}, "place must be a number"),
                ({"basis": [[1.0]]}, "basis has shape"),
                ({"value": [[1.0]]}, "value has shape"),
                ({"sigma": 1e-300}, "details: "),
                ({"colour": 1}, "a look has a field 'colour'"),
            ]
        ),
    ],
)
def test_details_of_something_else(release, change, match):
    fields = json.loads(release.to_json())
    if "look" in change:
        change = {"looks": [look | change["look"] for look in fields["details"]["looks"]]}
    with pytest.raises(ValueError, match=match):
        pmdp.ScoreRelease.from_json(fields | {"details": fields["details"] | change})


def test_noise_that_is_too_small_for_the_guarantee(release):
    fields = json.loads(release.to_json())
    fields["guarantee"]["epsilon"] = 0.9
    with pytest.raises(ValueError, match=r"give epsilon 0\.99.*claims 0\.9"):
        pmdp.ScoreRelease.from_json(fields)


def test_densities_of_made_up_records_may_be_infinite(release):
    trial = np.array([[np.inf, -np.inf], [np.nan, 0.1]])
    odd = replace(release, trial=trial)
    np.testing.assert_array_equal(pmdp.read_release(odd.to_json()).trial, trial)


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
    with pm.Model() as model:
        pm.Normal("y", 0, pm.HalfNormal("sigma", 2), observed=records("normal")[1])
    release = released(model, at={"sigma": 1.3}, clip=1.0)
    with pm.Model():
        pm.Normal("y", 0, pm.Uniform("sigma", 0, 5), shape=N)
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


@pytest.fixture(scope="module")
def normal():
    return build("normal", *records("normal"))


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
def test_what_a_curator_may_get_wrong(normal, wrong, match):
    right = {"at": AT | {"sigma": 1.0}, "clip": 1.0}
    with pytest.raises(ValueError, match=match):
        released(normal, **(right | wrong))


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


def test_responses_in_a_container_are_the_same_responses():
    """A container may hold whole numbers as real ones; made-up ones are of the law's kind."""

    def model(**records):
        with pm.Model() as found:
            p = pm.Beta("p", 1, 1)
            if "y" in records:
                records = {"observed": pm.Data("held", records["y"])}
            pm.Bernoulli("y", p, **records)
        return found

    y = np.resize([0.0, 1.0, 1.0], 40)
    release = released(model(y=y), at={"p": 0.3}, clip=2.0)
    with model(shape=40):
        release.declare("score")
