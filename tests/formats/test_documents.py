"""What a document may not say, and what it never holds."""

import json
import os
import pickle
import socket
import sys
from importlib.resources import files

import jsonschema
import numpy as np
import pytest

import pymc_dp as pmdp
from pymc_dp.regression import BoxBounds, NormBounds, regression_release
from tests.curator.score.models import AT, build, records, released

SCHEMA = jsonschema.Draft202012Validator(
    json.loads(files("pymc_dp").joinpath("formats/release.schema.json").read_text())
)
pytestmark = pytest.mark.filterwarnings("ignore::pymc_dp.PrivacyWarning")


def table():
    """A release of three cells."""
    noise = pmdp.DiscreteLaplace(epsilon=0.5, sensitivity=1).thresholded(3, dropped=np.nan)
    return pmdp.StatisticRelease(
        "visits by clinic",
        noise,
        [np.nan, 41, 7],
        neighbours="add_remove",
        n=51,
        n_mechanism=pmdp.DiscreteLaplace(scale=10),
        bounds={"visits": [0, 1]},
        provenance={"publisher": "an office"},
    )


def nested(depth):
    """A dict within a dict within a dict."""
    found = {}
    for _ in range(depth):
        found = {"bounds": found}
    return found


FIELDS = json.loads(table().to_json())
LAPLACE = {"name": "Laplace", "scale": 2.0, "then": []}
GUARANTEE = FIELDS["guarantee"]

#: changes of a good document, what is said about each, and whether its form alone tells
WRONG = {
    "format": ({"format": "csv"}, "This is not the JSON of a release", True),
    "version": ({"version": 2}, "version 2 of the format", True),
    "version as text": ({"version": "1"}, "version '1' of the format", True),
    "kind": ({"kind": "Release"}, "of kind 'Release'", True),
    "unknown field": ({"seed": 1}, "a field 'seed'", True),
    "no words": ({"statistic": " "}, "statistic must say in words", False),
    "a number for words": ({"statistic": 3}, "statistic must say in words", True),
    "no mechanism": ({"mechanism": None}, "mechanism: a mechanism is an object", True),
    "unknown mechanism": (
        {"mechanism": {"name": "Cauchy", "then": []}},
        "mechanism: no mechanism is called 'Cauchy'",
        True,
    ),
    "no scale": ({"mechanism": {"name": "Laplace", "then": []}}, "no field 'scale'", True),
    "no afterwards": ({"mechanism": {"name": "Laplace", "scale": 2.0}}, '"then" must list', True),
    "another parameter": ({"mechanism": LAPLACE | {"tail": 3}}, "a field 'tail'", True),
    "scale of zero": ({"mechanism": LAPLACE | {"scale": 0}}, "mechanism: scale must be pos", True),
    "scale as text": ({"mechanism": LAPLACE | {"scale": "2"}}, "mechanism: scale must be", True),
    "unknown step": (
        {"mechanism": LAPLACE | {"then": [{"name": "shuffled"}]}},
        "nothing is known to happen by",
        True,
    ),
    "step of noise that is none": (
        {"mechanism": {"name": "Exact", "then": [{"name": "rounded", "step": 1, "how": "floor"}]}},
        "no noisy value that could be rounded",
        True,
    ),
    "way to round": (
        {"mechanism": LAPLACE | {"then": [{"name": "rounded", "step": 1, "how": "up"}]}},
        "how='up' is not a way to round",
        True,
    ),
    "after a threshold": (
        {
            "mechanism": LAPLACE
            | {
                "then": [
                    {"name": "thresholded", "threshold": 1.0, "dropped": None},
                    {"name": "rounded", "step": 1, "how": "floor"},
                ]
            }
        },
        "dropped cells, which nothing can be done to afterwards",
        False,
    ),
    "noise of another shape": (
        {"mechanism": LAPLACE | {"scale": [2.0, 2.0]}, "value": [1.0, 2.0, 3.0]},
        "value: .* noise of shape",
        False,
    ),
    "ragged": ({"value": [[1, 2], [3]]}, "value: ", False),
    "text": ({"value": ["a", 1, 2]}, "value: it must be numbers", True),
    "true or false": ({"value": [True, True, False]}, "value: it must be numbers", True),
    "too large": ({"value": [None, 41, 1e30]}, "value: it has whole numbers of more", False),
    "no guarantee, said otherwise": ({"guarantee": {}}, "guarantee has no field 'epsilon'", True),
    "empty": ({"value": []}, "value: it is empty", False),
    "dropped without a threshold": ({"mechanism": LAPLACE}, "value: it must be numbers", False),
    "below the threshold": ({"value": [1, 41, 7]}, "below the threshold 3", False),
    "not whole": ({"value": [None, 41.5, 7]}, "value: .*whole numbers", False),
    "guarantee without neighbours": (
        {"guarantee": GUARANTEE | {"neighbours": None}},
        "guarantee: neighbours is missing",
        False,
    ),
    "other neighbours": (
        {"guarantee": GUARANTEE | {"neighbours": "friends"}},
        "guarantee: neighbours must be",
        True,
    ),
    "negative epsilon": ({"guarantee": GUARANTEE | {"epsilon": -1}}, "guarantee: epsilon", True),
    "delta of one": ({"guarantee": GUARANTEE | {"delta": 1}}, r"guarantee: delta must be", True),
    "delta alone": (
        {
            "guarantee": GUARANTEE | {"epsilon": None, "rho": 1, "delta": 0.1},
        },
        "guarantee: delta says something together with epsilon",
        False,
    ),
    "noise too small": (
        {"guarantee": GUARANTEE | {"epsilon": 0.49}},
        r"gives epsilon 0\.5, and the release claims epsilon 0\.49",
        False,
    ),
    "sensitivity too large": (
        {"guarantee": GUARANTEE | {"sensitivity": 2.0}},
        r"at sensitivity 2. gives epsilon 1, and",
        False,
    ),
    "sensitivities of another shape": (
        {"guarantee": GUARANTEE | {"sensitivity": [1.0, 1.0], "epsilon": 5}},
        "sensitivity: it has shape",
        False,
    ),
    "exact number of records": (
        {"n": {"value": 50, "mechanism": None}},
        "n: an exact number of records is public only",
        False,
    ),
    "noisy number that is impossible": (
        {"n": FIELDS["n"] | {"value": 50.5}},
        "n: .*whole numbers",
        False,
    ),
    "several numbers of records": ({"n": FIELDS["n"] | {"value": [5, 6]}}, "n: ", True),
    "bounds as text": ({"bounds": {"visits": "0..1"}}, "bounds: 'visits' must be finite", True),
    "provenance with a host": (
        {"provenance": {"host": "a machine"}},
        "provenance has 'host'",
        True,
    ),
    "true for epsilon": ({"guarantee": GUARANTEE | {"epsilon": True}}, "guarantee: it must", True),
    "true among numbers": ({"value": [None, True, 7]}, "value: it must be numbers", True),
    "true for a bound": ({"bounds": {"visits": [False, 1]}}, "bounds: it must be numbers", True),
    "true for a scale": ({"mechanism": LAPLACE | {"scale": True}}, "mechanism: it must be", True),
    "control characters": ({"statistic": "a\x1b[2J"}, "statistic: it has characters that", False),
    "control characters of origin": (
        {"provenance": {"note": "a\u202eb"}},
        "provenance: it has characters that",
        False,
    ),
    "delta without epsilon": (
        {"guarantee": GUARANTEE | {"epsilon": None, "delta": 0.5}},
        "guarantee: delta says something together with epsilon",
        False,
    ),
    "many categories": (
        {
            "mechanism": {
                "name": "RandomizedResponse",
                "n_categories": 10**9,
                "keep": 0.9,
                "then": [],
            }
        },
        "mechanism: n_categories is 1000000000",
        False,
    ),
    "categories beyond floats": (
        {
            "mechanism": {
                "name": "RandomizedResponse",
                "n_categories": 10**400,
                "keep": 1,
                "then": [],
            }
        },
        "mechanism: ",
        False,
    ),
    "many steps": (
        {
            "mechanism": LAPLACE
            | {"then": [{"name": "clamped", "lower": 0, "upper": 9, "statistic_too": False}] * 3000}
        },
        'mechanism: "then" has 3000 steps',
        False,
    ),
    "bounds beyond floats": ({"bounds": {"visits": [0, 10**400]}}, "bounds: it has a num", False),
    "numbers beyond floats": ({"value": [None, 10**400, 7]}, "value: ", False),
    "exact number in disguise": (
        {"n": {"value": 50, "mechanism": {"name": "Exact", "then": []}}},
        "n: Exact.. does not hide a record",
        False,
    ),
    "details": ({"details": {"a": 1}}, "details: a StatisticRelease has none", True),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_named(case):
    change, message, visible = WRONG[case]
    with pytest.raises(ValueError, match=message):
        pmdp.read_release(FIELDS | change)
    assert SCHEMA.is_valid(FIELDS | change) == (not visible)


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_must_be_there(name):
    fields = {key: each for key, each in FIELDS.items() if key != name}
    with pytest.raises(ValueError, match=name):
        pmdp.read_release(fields)
    assert not SCHEMA.is_valid(fields)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{", "not the JSON of a release"),
        ("[1]", "it holds list"),
        (table().to_json().replace("41", "NaN"), "NaN, which JSON does not know"),
        (table().to_json().replace("41.0", "1e999"), "value"),
        (table().to_json().replace("41", "-Infinity"), "-Infinity"),
        ('{"a": 1, "a": 2}', "the field 'a' twice"),
        ("nowhere.json", "no such file"),
        (FIELDS | {"value": np.arange(3)}, "not JSON serializable"),
        (FIELDS | {"value": [np.nan, 1, 2]}, "null where a cell was dropped"),
        ("[" * 100_000, "not the JSON"),
        (nested(100), "bounds: it has lists or objects more than 30 deep"),
        (nested(2000), "30 deep|recursion"),
        ('{"format": ' + '{"a": ' * 2000 + "1" + "}" * 2001, "30 deep|recursion"),
        (nested(200_000), "not the JSON of a release"),
        (json.dumps({str(i): i for i in range(40_000)})[:-1] + ', "39999": 1}', "'39999' twice"),
    ],
)
def test_what_is_no_json(source, message):
    with pytest.raises(ValueError, match=message):
        pmdp.read_release(source)


def test_what_is_no_source():
    with pytest.raises(TypeError, match="path, text or dict"):
        pmdp.read_release(3)


def test_files_text_and_fields_read_alike(tmp_path):
    text = table().to_json(tmp_path / "table.json")
    for source in (tmp_path / "table.json", str(tmp_path / "table.json"), text, json.loads(text)):
        assert pmdp.read_release(source).to_json() == text
    assert "DiscreteLaplace(scale=10.)" in repr(table())
    assert "<td>visits by clinic</td>" in table()._repr_html_()


@pytest.fixture(scope="module")
def kinds():
    """One release of every kind, and of every form."""
    return list(_kinds())


def _kinds():
    rng = np.random.default_rng(1)
    X, y = rng.normal(0, 0.4, (50, 2)), rng.normal(size=50)
    yield table()
    for bounds in (NormBounds(1, 1), BoxBounds(x=(-1, np.array([1, 2])), y=(-1, 1))):
        for delta in (0, 1e-4):
            for neighbours in ("substitute", "add_remove"):
                yield regression_release(X, y, bounds, 1, delta, neighbours=neighbours)
    yield regression_release(X, y, NormBounds(1, 1), 1, 1e-4, average=5)
    yield regression_release(X, y, NormBounds(1, 1), 1, 1e-4, smallest_eigenvalue=True)
    model = build("logistic", *records("logistic"))
    yield released(model, at=AT, clip=1.0)
    yield released(model, at=AT, clip=1.0, neighbours="add_remove")


def test_all_kinds_have_one_format(kinds):
    for release in kinds:
        text = release.to_json()
        SCHEMA.validate(json.loads(text))
        back = pmdp.read_release(text)
        assert type(back) is type(release)
        assert back.to_json() == text
        common = back if hasattr(back, "plain") else back.published()
        np.testing.assert_array_equal(
            common.value, json.loads(text.replace("null", "NaN"))["value"]
        )


def test_a_curator_cannot_publish_an_exact_number_by_mistake(kinds):
    noise = pmdp.Laplace(epsilon=1, sensitivity=10)
    for neighbours in (None, "add_remove"):
        with pytest.raises(ValueError, match="neighbours"):
            pmdp.StatisticRelease("a sum", noise, 3.0, n=40, neighbours=neighbours)
    for release in kinds:
        fields = json.loads(release.to_json())
        if fields["guarantee"]["neighbours"] == "add_remove":
            assert fields["n"]["mechanism"] is not None
    coin = pmdp.RandomizedResponse(2, keep=0.75)
    with pytest.raises(ValueError, match="reveal the number of records"):
        pmdp.StatisticRelease("answers", coin, [0, 1], neighbours="add_remove")


def test_nothing_of_the_machine_or_the_run_is_in_it(tmp_path, monkeypatch):
    """Two releases of one statistic differ in the value alone, and name nothing of this place."""
    monkeypatch.chdir(tmp_path)
    secret = 8765.4321
    noise = pmdp.Laplace(epsilon=1, sensitivity=10)
    one, two = (
        pmdp.StatisticRelease("a sum", noise, noise.release(secret), neighbours="substitute")
        for _ in range(2)
    )
    texts = [release.to_json() for release in (one, two)]
    first, second = (json.loads(text) for text in texts)
    assert first.pop("value") != second.pop("value")
    assert first == second
    assert first["provenance"] == {"tool": "pymc_dp", "version": pmdp.__version__}
    everything = texts[0] + repr(one) + one._repr_html_() + str(pickle.dumps(one))
    for told in (str(secret), socket.gethostname(), str(tmp_path), os.getcwd(), sys.prefix):
        assert told not in everything


def test_what_cannot_be_read_is_not_written():
    for text in ({"statistic": "a\nb"}, {"provenance": {"note": "a\x07"}}):
        with pytest.raises(ValueError, match="characters that cannot be seen"):
            pmdp.StatisticRelease(
                **{"statistic": "a", "mechanism": pmdp.Exact(), "value": 1} | text
            )
    plain = pmdp.StatisticRelease("âge moyen\u00a0: été", pmdp.Laplace(2), 1.0)
    assert pmdp.read_release(plain.to_json()).statistic == plain.statistic


def test_what_is_published_does_not_change():
    value = np.array([1.0, 2.0])
    release = pmdp.StatisticRelease("sums", pmdp.Laplace(scale=2), value)
    value[0] = 3.0
    assert release.value[0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        release.value[0] = 3.0
    with pytest.raises(AttributeError):
        release.value = value
