"""What a score release promises: its sensitivity, what leaves, and what a budget refuses."""

import itertools
import json
import logging
import pickle
import warnings

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph

import pymc_dp as pmdp
from pymc_dp.accounting import noise
from pymc_dp.accounting.levels import CLIPPED, GRADIENT_LEVELS
from pymc_dp.curator.model import RecordModel
from pymc_dp.curator.score.totals import ConfidentialScores
from tests.curator.score.models import AT, FAMILIES, build, records, released
from tests.curator.steps.test_privacy_audit import epsilon_lower_bound
from tests.curator.test_transcript import player, recorder

EXTREMES = [0.0, 1.0, -1e-3, 40.0, -1e8, 1e300, -1e300, np.inf, np.nan]


class TestSensitivity:
    """One record's part, searched over what a record can be, with the others held."""

    @pytest.mark.wide_except(
        "logistic-length", "logistic-covariates", "normal-length", "normal-covariates"
    )
    @pytest.mark.parametrize("bound", ["length", "covariates"])
    @pytest.mark.parametrize("name", ["logistic", "poisson", "normal", "student"])
    def test_no_pair_of_records_is_further_apart_than_the_bound(self, name, bound):
        X, y = records(name)
        is_count = y.dtype.kind in "iu"
        values = [0, 1] if name == "logistic" else [0, 1, 7, 10**6] if is_count else EXTREMES
        rng = np.random.default_rng(3)
        rows = [*itertools.product(EXTREMES, EXTREMES), *10 ** rng.uniform(-3, 3, size=(40, 2))]
        # all that one record can be, as the records of one data set: their parts do not mix
        X = np.array([x for x in rows for _ in values])
        y = np.array([value for _ in rows for value in values], dtype=y.dtype)
        model = build(name, *records(name))
        scores = ConfidentialScores(model, RecordModel(model))
        scores.bound(bound)
        place = np.array([0.4, -0.4, 0.1, 0.3])[: scores.layout.size]
        basis = np.linalg.cholesky(np.eye(place.size) + 0.3)
        clip, parts = 0.7, []
        for i in range(len(y)):
            one_X, one_y = np.repeat(X[[i]], 2, axis=0), np.repeat(y[[i]], 2)
            parts.append(self.total(scores, bound, place, basis, clip, one_X, one_y) / 2)
        parts = np.array(parts)
        unit = clip / CLIPPED / GRADIENT_LEVELS
        lengths = np.linalg.norm(parts, axis=1)
        assert lengths.max() <= GRADIENT_LEVELS  # exactly, in whole numbers
        assert lengths.max() * unit > 0.99 * clip  # and the bound is reached
        apart = np.linalg.norm(parts[:, None] - parts[None], axis=2).max()
        assert 1.9 * GRADIENT_LEVELS * CLIPPED < apart <= 2 * GRADIENT_LEVELS

    @staticmethod
    def total(scores, bound, place, basis, clip, X, y):
        """Sum over two equal records, of the compiled function that sums confidential ones."""
        if bound == "covariates":
            total = scores._by_covariates
            total._data = lambda: [X if s.type.ndim == 2 else y for s in total._sources]
            total._n_records = len(y)
        else:
            likelihood = scores.records.likelihood
            likelihood.data = [X if s.type.ndim == 2 else y for s in likelihood._sources]
            likelihood.n_records = len(y)
        return np.array(scores.total(bound, place, basis, clip))

    def test_a_record_changes_no_other_records_part(self):
        X, y = records("normal")
        model = build("normal", X, y)
        scores = ConfidentialScores(model, RecordModel(model))
        scores.bound("covariates")
        place = np.array([0.4, -0.4, 0.1, 0.3])
        before = scores.parts("covariates", place, np.eye(4), 0.7)
        X[7], y[7] = np.inf, 1e9
        other = build("normal", X, y)
        scores = ConfidentialScores(other, RecordModel(other))
        scores.bound("covariates")
        after = scores.parts("covariates", place, np.eye(4), 0.7)
        stay = np.arange(len(y)) != 7
        np.testing.assert_array_equal(before[:, stay], after[:, stay])


def second_moments(arrays):
    X = arrays["X"]
    return pt.concatenate([X, (X[:, :, None] * X[:, None, :]).reshape((X.shape[0], -1))], axis=1)


def ugly(n=60):
    X, y = records("logistic", seed=9, n=n)
    X[0], X[1], X[2] = -np.inf, np.inf, 1e300
    return 100 * X, 1 - y


def with_names(X, y):
    with pm.Model() as model:
        b, a = pm.Normal("b", 0, 1, shape=2), pm.Normal("a", 0, 2)
        pm.Bernoulli("y", logit_p=a + pm.math.dot(pm.Data("X", X), b), observed=y)
    return model


def simulate(values):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(300, 2))
    y = rng.logistic(size=300) < X @ values["b"] + values["a"]
    return with_names(X, y.astype(int))


VARIANTS = {
    "one place": {"at": AT, "clip": 1.0},
    "by length": {"at": AT, "clip": 1.0, "bound": "length"},
    "two places": {"at": [AT, {"b": [0, 0], "a": 0}], "clip": 1.0},
    "moments": {"at": AT, "clip": 1.0, "also": {"moments": (second_moments, 3.0)}},
    "settings": {"at": AT, "simulate": simulate, "n": 60},
    "pilot": {"simulate": simulate, "n": 60},
    "pilot, add_remove": {"simulate": simulate, "n": 60, "neighbours": "add_remove"},
}


def watch(model, release, monkeypatch, caplog, kwargs):
    """Everything a bystander sees of a release."""
    monkeypatch.setattr(noise, "release", release)
    caplog.clear()
    for compiler in ("numba", "pytensor"):
        caplog.set_level(logging.WARNING, logger=compiler)
    with caplog.at_level(logging.DEBUG), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        found = released(model, **({"epsilon": 2000, "delta": 1e-3} | kwargs))
    return {
        "json": found.to_json(),
        "repr": repr(found),
        "log": [r.getMessage() for r in caplog.records if not r.name.startswith("filelock")],
        "warnings": [str(warning.message) for warning in warned],
    }


@pytest.mark.wide_except(*(variant for variant in VARIANTS if variant != "pilot"))
@pytest.mark.parametrize("variant", VARIANTS)
def test_other_data_with_the_same_answers_gives_the_same_release(variant, monkeypatch, caplog):
    kwargs, transcript = VARIANTS[variant], []
    with monkeypatch.context() as patch:
        first = watch(with_names(*records("logistic")), recorder(transcript), patch, caplog, kwargs)
    n = 61 if "add_remove" in variant else 60
    with monkeypatch.context() as patch:
        second = watch(with_names(*ugly(n)), player(transcript), patch, caplog, kwargs)
    assert transcript
    assert first == second


def test_nothing_of_the_records_is_in_what_is_published():
    X, y = records("normal")
    release = released(build("normal", X, y), at=FAMILIES["normal"], clip=1.0)
    text = release.to_json() + repr(release)
    assert not any(f"{value:.4f}" in text for value in [*X.ravel(), *y])
    assert len(pickle.dumps(release)) < 5000
    held = {type(value).__name__ for value in json.loads(release.to_json()).values()}
    assert held <= {"int", "str", "float", "list", "dict"}


class TestBudget:
    def test_a_second_release_on_a_spent_budget_is_refused(self, monkeypatch):
        model, budget = build("logistic", *records("logistic")), pmdp.PrivacyBudget(1, 1e-6)
        release = pmdp.score_release(model, at=AT, clip=1, budget=budget)
        assert (release.epsilon, release.delta) == pytest.approx((1, 1e-6))
        looked = []
        monkeypatch.setattr(noise, "release", lambda *args: looked.append(args))
        with pytest.raises(pmdp.PrivacyError, match="Nothing is left"):
            pmdp.score_release(model, at=AT, clip=1, budget=budget)
        with pytest.raises(pmdp.PrivacyError, match="does not cover"):
            pmdp.score_release(model, at=AT, clip=1, budget=budget, share=0.1)
        assert not looked

    def test_shares_add_up_to_the_budget(self):
        model = with_names(*records("logistic"))
        budget = pmdp.PrivacyBudget(100, 1e-6)  # so that a pilot of 60 records is of use
        also = {"moments": (second_moments, 3.0)}
        first = pmdp.score_release(model, at=AT, clip=1, budget=budget, share=0.5, also=also)
        second = pmdp.score_release(model, simulate=simulate, budget=budget, share=0.5)
        assert budget.unspent == pytest.approx(0, abs=1e-9)
        assert first.epsilon == second.epsilon < 100
        assert len(second.looks) == 11
        whole = pmdp.score_release(model, at=AT, clip=1, epsilon=100, delta=1e-6)
        ratio = first.looks[0].sigma / whole.looks[0].sigma
        assert ratio == pytest.approx(1 / np.sqrt(0.5 * 0.8))

    def test_the_claim_comes_before_the_look(self, monkeypatch):
        model, budget = build("logistic", *records("logistic")), pmdp.PrivacyBudget(1, 1e-6)
        claimed = []

        def total(*args):
            claimed.append(budget.unspent)
            return [0, 0, 0]

        monkeypatch.setattr(ConfidentialScores, "total", total)
        pmdp.score_release(model, at=AT, clip=1, budget=budget)
        assert claimed == [pytest.approx(0, abs=1e-9)]

    def test_a_run_that_fails_has_paid(self, monkeypatch):
        model, budget = build("logistic", *records("logistic")), pmdp.PrivacyBudget(1, 1e-6)

        def fail(*args):
            raise RuntimeError("the machine went down")

        monkeypatch.setattr(ConfidentialScores, "total", fail)
        with pytest.raises(RuntimeError, match="went down"):
            pmdp.score_release(model, at=AT, clip=1, budget=budget)
        assert budget.unspent == pytest.approx(0, abs=1e-9)

    def test_what_is_refused_costs_nothing(self):
        model, budget = build("logistic", *records("logistic")), pmdp.PrivacyBudget(1, 1e-6)
        for wrong in ({"at": {"b": [1, 2]}}, {"clip": 0}, {"bound": "both"}, {"inverse_mass": -1}):
            with pytest.raises(ValueError, match=r"at=|clip|bound|inverse_mass"):
                pmdp.score_release(model, budget=budget, **({"at": AT, "clip": 1} | wrong))
        assert budget.unspent == 1


RUNS = 20_000


@pytest.mark.parametrize("neighbours", ["substitute", "add_remove"])
def test_an_attacker_learns_no_more_than_claimed(neighbours, monkeypatch):
    """Lower bound of epsilon at a confidence of 1e-4; it has to come close too."""
    rest = np.zeros(9)
    pair = {
        "substitute": (np.append(rest, 1e3), np.append(rest, -1e3)),
        "add_remove": (np.append(rest, 1e3), rest),
    }[neighbours]
    seen = []
    for seed, y in enumerate(pair):
        with pm.Model() as model:
            pm.Normal("y", pm.Normal("mu", 0, 1), 1, observed=y)
        rng, release = np.random.default_rng(seed), noise.release
        answers = []

        def many(totals, sd, simulation=None, rng=rng, release=release, answers=answers):
            answers.append([release(totals, sd, rng)[0] / sd for _ in range(RUNS)])
            return release(totals, sd, rng)

        with monkeypatch.context() as patch:
            patch.setattr(noise, "release", many)
            kwargs = {"neighbours": neighbours, "epsilon": 1, "delta": 0.01}
            pmdp.score_release(model, at={"mu": 0.0}, clip=1.0, **kwargs)
        # the number of records, where it is released, tells as well
        seen.append(np.array(answers[0]) + (0.02 * np.array(answers[1]) if answers[1:] else 0))
    assert 0.3 < epsilon_lower_bound(*seen) <= 1


class TestWhatIsRefused:
    def test_records_that_are_not_independent(self):
        with pm.Model() as model:
            rho = pm.Normal("rho", 0, 1)
            start = pm.Normal.dist(0, 1, shape=1)
            pm.AR("y", rho=[rho], sigma=1.0, init_dist=start, observed=np.zeros(20))
        with pytest.raises(ValueError, match="one joint density"):
            released(model, at={"rho": 0.0}, clip=1.0)

    def test_covariates_that_mix_records(self):
        X, y = records("logistic")
        with pm.Model() as model:
            b = pm.Normal("b", 0, 1, shape=2)
            x = pm.Data("X", X)
            pm.Bernoulli("y", logit_p=pm.math.dot(x - x.mean(axis=0), b), observed=y)
        with pytest.raises(ValueError, match="mixes records"):
            released(model, at={"b": [0, 0]}, clip=1.0)

    @pytest.mark.parametrize(
        "wrong",
        [
            lambda arrays: arrays["X"] - arrays["X"].mean(axis=0),
            lambda arrays: arrays["X"][::-1],
            lambda arrays: arrays["X"].sum(axis=0),
            lambda arrays: arrays["X"] / arrays["X"].shape[0],
            # all records share one generator, and some take more of its numbers than others
            lambda arrays: pm.Gamma.dist(pt.exp(arrays["X"]), 1.0),
        ],
    )
    def test_sums_of_what_mixes_records(self, wrong):
        model = with_names(*records("logistic"))
        with pytest.raises(ValueError, match="also='it'"):
            released(model, at=AT, clip=1.0, also={"it": (wrong, 1.0)})

    def test_sums_of_arrays_without_a_name(self):
        model = build("logistic", *records("logistic"))
        with pytest.raises(ValueError, match=r"pm\.Data"):
            released(model, at=AT, clip=1.0, also={"it": (lambda arrays: arrays["X"], 1.0)})

    def test_places_in_the_order_under_add_remove(self):
        model = with_names(*records("logistic"))
        also = {"it": (lambda a: a["X"] * pt.arange(a["X"].shape[0])[:, None], 1.0)}
        kwargs = {"at": AT, "clip": 1.0, "also": also}
        released(model, **kwargs)
        with pytest.raises(ValueError, match="places in the order"):
            released(model, neighbours="add_remove", **kwargs)

    def test_records_that_settings_were_made_of(self):
        model = with_names(*records("logistic", n=200))
        with pytest.raises(ValueError, match="confidential model"):
            released(model, at=AT, simulate=lambda values: with_names(*records("logistic", n=200)))

    def test_data_in_a_starting_value(self):
        X, y = records("logistic")
        with pm.Model() as model:
            b = pm.Normal("b", 0, 1, shape=2, initval=pm.Data("means", X.mean(axis=0)))
            pm.Bernoulli("y", logit_p=pm.math.dot(X, b), observed=y)
        with pytest.raises((pmdp.PrivacyError, ValueError), match=r"means|starting value"):
            released(model, at={"b": [0, 0]}, clip=1.0)


@pytest.mark.parametrize("n", [6, 7])
def test_made_up_records_are_all_that_models_are_compared_by(n):
    """With as many records as are made up, an array the other way round would be read as it is."""
    found = []
    for shift in (0.0, 1.0):
        with pm.Model() as model:
            beta = pm.Normal("beta", 0, 1, shape=2)
            columns = pt.as_tensor(np.full((2, n), shift))
            pm.Bernoulli("y", logit_p=columns.T @ beta, observed=np.ones(n, dtype=int))
        scores = ConfidentialScores(model, RecordModel(model))
        found.append(scores.tried(np.array([0.4, -0.4])))
    assert found[0] is None
    assert found[1] is None


def _hidden_maximum(a, y):
    inner = pt.dvector()
    maximum = OpFromGraph([inner], [inner + pt.as_tensor(y).max()])
    return maximum(a["y"])[:, None]


@pytest.mark.parametrize(
    "statistic",
    [
        lambda a, y: a["y"][:, None] * 0 + y[None, 1:],
        lambda a, y: a["y"][:, None] * 0 + pytensor.shared(y[1:])[None, :],
        lambda a, y: (a["y"] / np.sort(y))[:, None],
        _hidden_maximum,
    ],
)
def test_other_sums_bring_no_arrays_of_their_own(statistic):
    y = np.random.default_rng(1).normal(size=30)
    budget = pmdp.PrivacyBudget(epsilon=1, delta=1e-6)
    with pm.Model():
        m = pm.Normal("m", 0, 1)
        pm.Normal("y", m, 1, observed=y)
        with pytest.raises(ValueError, match="none of the records'"):
            pmdp.score_release(
                at={"m": 0.0}, clip=1, budget=budget, also={"s": (lambda a: statistic(a, y), 1.0)}
            )
    assert budget.unspent == 1


def test_other_sums_may_compare_with_categories_and_look_up_known_entries_alone():
    groups = np.arange(30) % 3
    for extra, refused in ((0, False), (1, True)):
        with pm.Model():
            m = pm.Normal("m", 0, 1)
            g = pm.Data("g", groups + extra)
            pm.Normal("y", m + 0.0 * g, 1, observed=np.zeros(30))
            also = {
                "hot": (lambda a: pt.eq(a["g"][:, None], np.arange(3)), 1.0),
                "rows": (lambda a: pt.eye(3)[a["g"]], 1.0),
            }
            options = {"at": {"m": 0.0}, "clip": 1, "epsilon": 1, "delta": 1e-6, "also": also}
            if refused:
                with pytest.raises(IndexError, match="array of 3 does not have"):
                    pmdp.score_release(**options)
            else:
                assert [part.name for part in pmdp.score_release(**options).also] == ["hot", "rows"]
