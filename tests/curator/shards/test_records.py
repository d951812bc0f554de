"""What is refused of shards, who may know what, and what else than chains takes them."""

import copy
import gc
import warnings

import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_dp as pmdp
from pymc_dp.accounting.errors import PrivacyError
from pymc_dp.curator.model import record_model
from tests.curator.shards.problems import CUTS, N, X, Y, logistic, normal, split

SETTINGS = {"clip_logp": 2, "step_size": 0.1, "chains": 1}


@pytest.fixture(scope="module")
def records():
    return pmdp.shard(logistic, split((X, Y), CUTS["two"]))


def run(model, step, **kwargs):
    with model:
        return pmdp.sample(10, tune=0, chains=1, step=step, progressbar=False, quiet=True, **kwargs)


def test_the_driver_holds_no_record(records):
    for value in records.model.rvs_to_values.values():
        data = getattr(value, "data", np.zeros(1))
        assert set(np.unique(data)) <= {0.0, 1.0}
    assert records.n_records == N


def test_budget_is_claimed_once_and_the_result_is_redacted(records):
    budget = pmdp.PrivacyBudget(epsilon=2, delta=1e-6)
    with records.model:
        step = pmdp.DPPenalty(budget=budget, share=0.5, **SETTINGS)
        tree = run(records.model, step)
        assert set(tree.children) == {"posterior", "sample_stats"}
        assert tree.attrs["privacy_epsilon"] <= 2
        assert budget.unspent == pytest.approx(0.5)
        with pytest.raises(PrivacyError):
            run(records.model, pmdp.DPPenalty(budget=budget, share=0.6, **SETTINGS))
        with pytest.raises(PrivacyError):  # no other step on these records
            pmdp.sample(10)


def test_what_each_record_has_is_not_published():
    def build(X, y):
        model = logistic(X, y)
        with model:
            pm.Deterministic("odds", pm.math.exp(pt.as_tensor(X) @ model["beta"]))
            pm.Deterministic("first", model["beta"][0] * 2)
        return model

    records = pmdp.shard(build, split((X, Y), CUTS["two"]))
    with records.model:
        step = pmdp.DPPenalty(epsilon=2, delta=1e-6, **SETTINGS)
    tree = run(records.model, step)
    assert set(tree.posterior.data_vars) == {"beta", "first"}


def test_more_cores_copies_and_pickles_are_refused(records):
    with records.model:
        step = pmdp.DPPenalty(epsilon=2, delta=1e-6, **SETTINGS)
    with pytest.raises(ValueError, match="cores="):
        run(records.model, step, cores=2)
    with pytest.raises(TypeError, match="cores=1"):
        copy.deepcopy(step)
    with pytest.raises(ValueError, match="not a copy"), copy.deepcopy(records.model):
        pmdp.DPPenalty(epsilon=2, delta=1e-6, **SETTINGS)
    with records.model, pytest.raises(ValueError, match=r"in pymc_dp\.shard"):
        pmdp.DPPenalty(epsilon=2, delta=1e-6, independent_records=True, **SETTINGS)


def test_another_model_is_named_by_its_shard():
    def build(X, y):
        with pm.Model() as model:
            beta = pm.Normal("beta", 0, 1 + (len(y) > 500), shape=3)
            pm.Bernoulli("y", logit_p=X @ beta, observed=y)
        return model

    with pytest.raises(ValueError, match="another model of shard 1"):
        pmdp.shard(build, split((X, Y), (70,)))


def test_mixed_records_are_refused_where_they_are():
    def build(X, y):
        with pm.Model() as model:
            beta = pm.Normal("beta", 0, 1, shape=3)
            centred = pt.as_tensor(X) - pt.as_tensor(X).mean(axis=0)
            pm.Bernoulli("y", logit_p=centred @ beta, observed=y)
        return model

    with pytest.raises(ValueError, match="record"):
        pmdp.shard(build, split((X, Y), CUTS["two"]))


def test_places_in_the_order_are_refused():
    def build(y):
        with pm.Model() as model:
            mu, y = pm.Normal("mu", 0, 1), pm.Data("data", y)
            pm.Normal("y", mu + pt.arange(y.shape[0]), 1, observed=y)
        return model

    with pytest.raises(ValueError, match="place of a record"):
        pmdp.shard(build, split((X[:, 0],), CUTS["two"]))


def test_messages_do_not_quote_records():
    secret = 123.456

    def build(y):
        if y.max() > 100:
            raise ValueError(f"what a strange value: {y.max()}")
        return normal(y)

    y = X[:, 0].copy()
    y[500] = secret
    with pytest.raises(
        ValueError, match=r"Shard 1 is refused: build fails \(ValueError\)"
    ) as refused:
        pmdp.shard(build, split((y,), CUTS["two"]))
    shown = "".join(map(str, [refused.value, refused.value.__cause__, refused.value.__context__]))
    assert "123" not in shown

    def load():
        raise OSError(f"record {secret}")

    with pytest.raises(ValueError, match="OSError") as refused:
        pmdp.shard(normal, [load])
    assert "123" not in str(refused.value)


def test_indices_out_of_bounds_are_told_without_them():
    def build(y, group):
        with pm.Model() as model:
            level = pm.Normal("level", 0, 1, shape=2)
            pm.Normal("y", level[group], 1, observed=y)
        return model

    group = Y.copy()
    group[700] = 17
    with pytest.raises(ValueError, match="Shard 1 is refused") as refused:
        pmdp.shard(build, split((X[:, 0], group), CUTS["two"]))
    assert "17" not in str(refused.value)


def test_number_of_records_stays_confidential(records):
    with records.model:
        step = pmdp.DPPenalty(epsilon=2, delta=1e-6, neighbours="add_remove", **SETTINGS)
        run(records.model, step)
        with pytest.raises(ValueError, match="fixed size"):
            pmdp.DPPenalty(
                epsilon=2, delta=1e-6, neighbours="add_remove", batch_size=10, **SETTINGS
            )


def test_public_records_are_not_those_of_shards(records):
    likelihood = record_model(records.model).likelihood
    other = np.random.default_rng(1).normal(size=(5000, 3))
    assert likelihood.shares([X], [0])
    assert likelihood.shares([X[::3]], [0])
    assert likelihood.shares([np.concatenate([other, X])], [0])
    assert likelihood.shares([Y], [0])  # few values, but in the same order
    assert not likelihood.shares([other], [0])
    assert not likelihood.shares([Y[::-1].copy()], [0])
    gc.collect()  # models of other tests, whose cluster is gone
    with pytest.raises(ValueError, match="synthetic="):
        pmdp.suggest(1.0, 1e-6, n=N, dim=3, synthetic=logistic(X, Y))
    some = logistic(X[:500], Y[:500])
    with records.model, pytest.raises(ValueError, match="public="):
        pmdp.DPHMC(
            epsilon=1,
            delta=1e-6,
            clip_logp=2,
            clip_grad=2,
            step_size=0.1,
            n_leapfrog=2,
            public=some,
        )


def test_made_up_rows_are_not_records():
    with pytest.raises(ValueError, match="example="):
        pmdp.shard(normal, split((X[:, 0],), CUTS["two"]), example=X[:50, 0])


def test_tables_and_loaders_make_shards():
    table = pd.DataFrame({"a": X[:, 0], "y": X[:, 1]})

    def build(table):
        with pm.Model() as model:
            slope = pm.Normal("slope", 0, 1)
            a, y = (table[name].to_numpy() for name in ("a", "y"))
            pm.Normal("y", slope * a, 1, observed=y)
        return model

    found = pmdp.shard(build, [lambda: table[:300], table[300:], table[:0]])
    assert (found.n_records, found.n_shards) == (N, 3)
    theta, other = np.array([0.1]), np.array([-0.3])
    whole, parts = record_model(build(table)), record_model(found.model)
    assert whole.ratios.total(theta, other, 0.2) == parts.ratios.total(theta, other, 0.2)


def test_pilots_clip_fractions_and_scores_see_the_same_sums(records, monkeypatch):
    """Without noise all they release is a function of the sums."""
    monkeypatch.setattr(
        "pymc_dp.accounting.noise.release", lambda totals, sd, generator=None: list(totals)
    )

    def simulate(values):
        rng = np.random.default_rng(3)
        rows = rng.normal(size=(N, 3))
        p = 1 / (1 + np.exp(-rows @ values["beta"]))
        return logistic(rows, (rng.random(N) < p).astype(int))

    def all_of(model):
        budget = pmdp.PrivacyBudget(epsilon=8, delta=1e-6)
        with warnings.catch_warnings(), model:
            warnings.simplefilter("ignore")
            pilot = pmdp.pilot(budget, simulate, share=0.3, n_gradients=3)
            step = pmdp.DPPenalty(budget=budget, share=0.1, **SETTINGS)
            clipped = pmdp.clip_fraction(step, budget, share=0.1, random_seed=1)
            also = {"positive": (lambda arrays: arrays["y"][:, None], 1.0)}
            common = {"at": {"beta": [0.4, -0.4, 0.1]}, "clip": 0.8, "also": also}
            scores = [
                pmdp.score_release(budget=budget, share=0.1, bound=bound, **common)
                for bound in ("length", "covariates")
            ]
        values = [value for score in scores for value in (score.value, score.also[0].value)]
        return [pilot.point["beta"], clipped.fraction, *values, scores[0].n]

    for whole, parts in zip(all_of(logistic(X, Y)), all_of(records.model), strict=True):
        np.testing.assert_array_equal(whole, parts)


def closing_over(y):
    return lambda given: normal(y)


@pytest.mark.parametrize(
    "build",
    [
        lambda y: normal(y[np.isfinite(y)][: len(y) - 1]),  # leaves records out
        lambda y: normal(np.sort(y)),
        lambda y: normal(y - y.mean()),
        closing_over(X[:, 0]),
    ],
    ids=["fewer", "sorted", "centred", "elsewhere"],
)
def test_models_of_other_rows_are_refused(build):
    with pytest.raises(ValueError, match="other rows"):
        pmdp.shard(build, [X[:500, 0], X[500:, 0]])


def test_rows_that_are_left_out_by_their_values_are_refused():
    y = X[:, 0].copy()
    y[::7] = np.nan
    with pytest.raises(ValueError, match="Shard 0 is refused: build makes a model of other rows"):
        pmdp.shard(lambda y: normal(y[np.isfinite(y)]), [y[:500], y[500:]])


def test_numbers_of_records_in_the_model_are_refused():
    def build(y):
        with pm.Model() as model:
            pm.Binomial("y", n=len(y), logit_p=pm.Normal("mu", 0, 1), observed=y)
        return model

    with pytest.raises(ValueError, match="that of the records"):
        pmdp.shard(build, [Y[:500], Y[500:]])


def test_a_model_that_was_changed_is_refused():
    made = pmdp.shard(normal, [X[:500, 0], X[500:, 0]]).model
    with made:
        pm.Potential("more", made["mu"] ** 2)
        with pytest.raises(ValueError, match="was changed after"):
            pmdp.DPPenalty(epsilon=1, delta=1e-6, chains=1, clip_logp=3, step_size=0.1)


def test_shards_are_built_in_no_other_model():
    with pm.Model() as study:
        pmdp.shard(normal, [X[:500, 0], X[500:, 0]])
    assert not study.named_vars


def test_errors_of_this_package_under_build_are_told_by_their_kind():
    def build(y):
        if y.max() > 2:
            pmdp.PrivacyBudget(epsilon=-float(y.max()), delta=1e-6)
        return normal(y)

    with pytest.raises(ValueError, match="refused: build fails") as refused:
        pmdp.shard(build, [X[:500, 0], X[500:, 0]])
    assert str(X[:, 0].max())[:6] not in str(refused.value)


def test_scores_leave_the_coordinates_of_gradients_alone(records):
    shard = record_model(records.model).gradients
    basis = np.eye(3)
    shard.prepare(basis, False)
    before = shard.total(np.zeros(3), 1.0)
    with records.model:
        pmdp.score_release(
            at={"beta": np.zeros(3)},
            clip=1.0,
            epsilon=1,
            delta=1e-6,
            bound="length",
            inverse_mass=np.diag([4.0, 0.25, 1.0]),
        )
    np.testing.assert_array_equal(shard.total(np.zeros(3), 1.0), before)


def test_a_partition_counts_once():
    with pytest.raises(ValueError, match="Partitions 0 and 2 hold the same records"):
        pmdp.shard(logistic, [(X[:300], Y[:300]), (X[300:], Y[300:]), (X[:300], Y[:300])])
    assert pmdp.shard(logistic, [(X, Y), (X[:0], Y[:0]), (X[:0], Y[:0])]).n_records == N
