"""A budget cannot be overspent: not by races, crashes, copies, full disks or lost ledgers."""

import math
import multiprocessing
import os
import queue
import resource
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import replace

import cloudpickle
import numpy as np
import pymc as pm
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pymc_dp as pmdp
from pymc_dp.accounting import GaussianQueries, composed_epsilon, gaussian_delta, ledger

FORK = multiprocessing.get_context("fork")


def total_delta(budget):
    return gaussian_delta(budget.epsilon, math.fsum(q.mu for q in budget.claims()))


def small_model():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        pm.Normal("y", mu, 1, observed=np.linspace(-1, 2, 20))
    return model


def penalty(model, **kwargs):
    with model:
        return pmdp.DPPenalty(clip_logp=3, step_size=0.5, **kwargs)


@pytest.fixture(scope="module")
def model():
    return small_model()


@settings(max_examples=25, deadline=None)
@given(
    st.floats(0.01, 10), st.lists(st.tuples(st.floats(0.01, 1), st.integers(1, 999)), max_size=9)
)
def test_any_order_of_claims_stays_within(epsilon, wishes):
    budget = pmdp.PrivacyBudget(epsilon, 1e-6)
    for share, iterations in wishes:
        before = budget.claims()
        try:
            budget.claim(budget.gaussian_queries(iterations, share), "wish")
        except pmdp.PrivacyError:
            assert budget.claims() == before
    assert total_delta(budget) <= budget.delta
    assert budget.spent <= epsilon


@pytest.mark.parametrize("chains", [1, 3, 7, 10])
def test_equal_shares_spend_all_and_not_more(chains):
    budget = pmdp.PrivacyBudget(1.0, 1e-6)
    for _ in range(chains):
        budget.claim(budget.gaussian_queries(100, 1 / chains), "chain")
    assert budget.spent == pytest.approx(1.0, rel=1e-9)
    with pytest.raises(pmdp.PrivacyError, match="never given back"):
        budget.claim(GaussianQueries(1e3, 1), "chain")


def _race(budget, start, won):
    start.wait()
    try:
        budget.claim(budget.gaussian_queries(10, 1 / 3), "racer")
        won.put(1)
    except pmdp.PrivacyError:
        won.put(0)


def test_racing_processes_get_no_more_than_there_is(tmp_path):
    budget = pmdp.PrivacyBudget(1.0, 1e-6, tmp_path / "race.db")
    start, won = FORK.Event(), FORK.Queue()
    racers = [FORK.Process(target=_race, args=(budget, start, won)) for _ in range(8)]
    for racer in racers:
        racer.start()
    start.set()
    assert sum(won.get(timeout=60) for _ in racers) == 3
    for racer in racers:
        racer.join()
    assert len(budget.claims()) == 3
    assert total_delta(budget) <= 1e-6


def _sample(step, model, start, told):
    start.wait()
    try:
        with model:
            pmdp.sample(5, step=step, chains=1, cores=1, progressbar=False, quiet=True)
        told.put("sampled")
    except pmdp.PrivacyError:
        told.put("refused")


def test_two_runs_race_for_the_last_share(model):
    step = penalty(model, epsilon=1, delta=1e-6, chains=1)
    start, told = FORK.Event(), FORK.Queue()
    runs = [FORK.Process(target=_sample, args=(step, model, start, told)) for _ in range(2)]
    for run in runs:
        run.start()
    start.set()
    assert sorted(told.get(timeout=120) for _ in runs) == ["refused", "sampled"]
    for run in runs:
        run.join()
    assert pmdp.privacy_spent(step).details["chains"] == 1


def test_killed_in_the_middle_of_sampling(tmp_path, model):
    script = """
        import sys, time, numpy as np, pymc as pm, pymc_dp as pmdp
        with pm.Model():
            mu = pm.Normal("mu", 0, 1)
            pm.Normal("y", mu, 1, observed=np.linspace(-1, 2, 20))
            budget = pmdp.PrivacyBudget(1.0, 1e-6, sys.argv[1])
            step = pmdp.DPPenalty(budget=budget, chains=2, clip_logp=3, step_size=0.5)
            pmdp.sample(10_000_000, step=step, chains=1, cores=1, progressbar=False, quiet=True,
                        callback=lambda trace, draw: print("drawn", flush=True))
    """
    path = tmp_path / "kill.db"
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script), str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout.readline() == "drawn\n"
        os.kill(run.pid, signal.SIGKILL)
    budget = pmdp.PrivacyBudget(1.0, 1e-6, path)
    (claim,) = budget.claims()
    assert claim.iterations == 10_000_000
    assert budget.unspent == pytest.approx(0.5)
    step = penalty(model, budget=budget, share=0.6, chains=1)
    with model, pytest.raises(pmdp.PrivacyError):
        pmdp.sample(10, step=step, chains=1, cores=1, progressbar=False, quiet=True)


def test_a_run_that_fails_gets_nothing_back(model):
    step = penalty(model, epsilon=1, delta=1e-6, chains=1)

    def trip(trace, draw):
        raise RuntimeError("tripped")

    with model, pytest.raises(RuntimeError, match="tripped"):
        pmdp.sample(10, step=step, chains=1, cores=1, progressbar=False, quiet=True, callback=trip)
    assert pmdp.privacy_spent(step).epsilon == pytest.approx(1.0)
    with model, pytest.raises(pmdp.PrivacyError):
        pmdp.sample(10, step=step, chains=1, cores=1, progressbar=False, quiet=True)


@pytest.mark.filterwarnings("ignore::pymc_dp.ConfidentialDataWarning")
def test_extra_chain_longer_run_and_second_run_are_refused(model, monkeypatch):
    step = penalty(model, epsilon=1, delta=1e-6, chains=2)
    touched = []
    evaluate = type(step.likelihood).__call__
    monkeypatch.setattr(
        type(step.likelihood), "__call__", lambda s, t: touched.append(1) or evaluate(s, t)
    )
    with model, pytest.raises(pmdp.PrivacyError, match="chains"):
        pmdp.sample(5, step=step, chains=3, cores=1, progressbar=False, quiet=True)
    assert not touched
    assert pmdp.privacy_spent(step).epsilon == 0
    with model:
        pmdp.sample(5, step=step, chains=2, cores=1, progressbar=False, quiet=True)
    touched.clear()
    # a sixth iteration, from where the chain is or, if it moved, from elsewhere
    with pytest.raises(pmdp.PrivacyError, match=r"claimed|moved by something else"):
        step.step(model.initial_point())
    with model, pytest.raises(pmdp.PrivacyError):
        pm.sample(5, step=step, chains=1, cores=1, progressbar=False, quiet=True)
    assert not touched


@pytest.mark.filterwarnings("ignore::pymc_dp.ConfidentialDataWarning")
def test_plain_sample_on_several_cores_tells_the_refusal_as_the_cause(model):
    step = penalty(model, epsilon=1, delta=1e-6, chains=1)
    with model:
        pmdp.sample(5, step=step, chains=1, cores=1, progressbar=False, quiet=True)
        with pytest.raises(Exception, match="does not cover") as caught:
            pm.sample(5, step=step, chains=2, cores=2, progressbar=False, quiet=True)
    assert isinstance(caught.value.__cause__, pmdp.PrivacyError)


def test_copies_share_the_ledger_and_not_the_grant(model):
    step = penalty(model, epsilon=1, delta=1e-6, chains=1)
    step.setup_chain(np.random.default_rng(0), 0, 10)
    point, _ = step.step(model.initial_point())
    copy = cloudpickle.loads(cloudpickle.dumps(step))
    with pytest.raises(pmdp.PrivacyError, match="copies"):
        copy.step(point)
    with pytest.raises(pmdp.PrivacyError, match="does not cover"):
        copy.setup_chain(np.random.default_rng(0), 0, 10)
    assert pmdp.privacy_spent(copy).epsilon == pytest.approx(1.0)
    step.step(point)


def _step_in_child(step, point, told):
    try:
        step.step(point)
        told.put("stepped")
    except pmdp.PrivacyError:
        told.put("refused")


def test_a_forked_process_cannot_use_its_parents_claim(model):
    step = penalty(model, epsilon=1, delta=1e-6, chains=1)
    step.setup_chain(np.random.default_rng(0), 0, 10)
    told = FORK.Queue()
    child = FORK.Process(target=_step_in_child, args=(step, model.initial_point(), told))
    child.start()
    assert told.get(timeout=60) == "refused"
    child.join()


def test_another_thread_cannot_use_a_claim(model):
    step = penalty(model, epsilon=1, delta=1e-6, chains=1)
    step.setup_chain(np.random.default_rng(0), 0, 10)
    told = queue.Queue()
    thread = threading.Thread(target=_step_in_child, args=(step, model.initial_point(), told))
    thread.start()
    thread.join()
    assert told.get() == "refused"


def _claim_on_full_disk(budget, told):
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    try:
        budget.claim(budget.gaussian_queries(10), "no room")
        told.send("claimed")
    except pmdp.PrivacyError as error:
        told.send(str(error))


def test_full_disk_refuses_and_later_nothing_is_lost(tmp_path):
    budget = pmdp.PrivacyBudget(1.0, 1e-6, tmp_path / "full.db")
    budget.claim(budget.gaussian_queries(10, 0.5), "first")
    ours, theirs = FORK.Pipe()
    child = FORK.Process(target=_claim_on_full_disk, args=(budget, theirs))
    child.start()
    assert "could not be used" in ours.recv()
    child.join()
    assert len(budget.claims()) == 1
    budget.claim(budget.gaussian_queries(10, 0.5), "second")
    assert budget.spent == pytest.approx(1.0, rel=1e-9)


def test_a_lost_ledger_does_not_start_afresh(tmp_path):
    path = tmp_path / "lost.db"
    budget = pmdp.PrivacyBudget(1.0, 1e-6, path)
    for suffix in ("", "-wal", "-shm"):
        (tmp_path / f"lost.db{suffix}").unlink(missing_ok=True)
    with pytest.raises(pmdp.PrivacyError, match="could not be used"):
        budget.claim(budget.gaussian_queries(10), "after the loss")
    assert not path.exists()


def _delete(path):
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def test_a_ledger_with_two_names_is_refused(tmp_path):
    # locks and the log go by name: under two names two processes could claim everything each
    one, other = tmp_path / "one", tmp_path / "other"
    budget = pmdp.PrivacyBudget(1, 1e-6, ledger=one)
    other.hardlink_to(one)
    for make in (lambda: pmdp.PrivacyBudget(1, 1e-6, ledger=other), lambda: budget.unspent):
        with pytest.raises(pmdp.PrivacyError, match="several names"):
            make()
    other.unlink()
    assert budget.unspent == 1


def test_a_deleted_ledger_does_not_start_afresh_under_its_name(tmp_path):
    path = tmp_path / "deleted.db"
    budget = pmdp.PrivacyBudget(1.0, 1e-6, path)
    pmdp.PrivacyBudget(1.0, 1e-6, path)  # nothing was claimed yet
    budget.claim(budget.gaussian_queries(10), "first")
    del budget
    _delete(path)
    with pytest.raises(pmdp.PrivacyError, match="held 1 claims and now holds 0"):
        pmdp.PrivacyBudget(1.0, 1e-6, path)
    assert not path.exists()


def test_a_ledger_of_another_guarantee_is_not_claimed_from(tmp_path):
    path = tmp_path / "study.ledger"
    large = pmdp.PrivacyBudget(8.0, 1e-6, path)  # nothing claimed: nothing to miss
    path.unlink()
    small = pmdp.PrivacyBudget(1.0, 1e-6, path, accountant="rdp")
    small.claim(small.gaussian_queries(10), "all of it")
    for use in (lambda: large.claim(GaussianQueries(5.0, 1), "more"), lambda: large.spent):
        with pytest.raises(pmdp.PrivacyError, match=r"epsilon=1\.0"):
            use()


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
@pytest.mark.parametrize("epsilon", [np.inf, np.nan, -0.5])
def test_a_guarantee_is_a_number(epsilon, accountant):
    with pytest.raises(ValueError, match="epsilon must be a finite number"):
        pmdp.PrivacyBudget(epsilon, 0.9, accountant=accountant)


def test_batches_with_next_to_no_noise_are_counted():
    budget = pmdp.PrivacyBudget(4.0, 1e-10, neighbours="add_remove")
    with pytest.raises(pmdp.PrivacyError, match="does not cover"):
        budget.claim(GaussianQueries(1 / 18.6, 1414, 6.3e-8, sampling="poisson"), "looks")


def test_a_ledger_restored_from_an_older_copy_is_refused(tmp_path):
    path = tmp_path / "restored.db"
    budget = pmdp.PrivacyBudget(1.0, 1e-6, path)
    budget.claim(budget.gaussian_queries(10, 0.5), "before the backup")
    with sqlite3.connect(path) as db, sqlite3.connect(tmp_path / "backup.db") as backup:
        db.backup(backup)
    budget.claim(budget.gaussian_queries(10, 0.5), "after the backup")
    shipped = cloudpickle.dumps(budget)
    _delete(path)
    (tmp_path / "backup.db").rename(path)
    for use in (
        lambda: budget.spent,
        lambda: budget.claim(budget.gaussian_queries(10, 0.5), "again"),
        lambda: pmdp.PrivacyBudget(1.0, 1e-6, path),
        lambda: cloudpickle.loads(shipped).spent,
    ):
        with pytest.raises(pmdp.PrivacyError, match="restored from an older copy"):
            use()


def test_a_copy_of_a_budget_knows_what_was_claimed(tmp_path, monkeypatch):
    path = tmp_path / "shipped.db"
    budget = pmdp.PrivacyBudget(1.0, 1e-6, path)
    budget.claim(budget.gaussian_queries(10, 0.5), "here")
    shipped = cloudpickle.dumps(budget)
    monkeypatch.setattr(ledger, "_seen", {})  # a process that knows nothing
    _delete(path)
    pmdp.PrivacyBudget(1.0, 1e-6, path)
    with pytest.raises(pmdp.PrivacyError, match="deleted"):
        cloudpickle.loads(shipped).claim(GaussianQueries(1e3, 1), "there")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (GaussianQueries(10.0, -100), "iterations"),
        (GaussianQueries(10.0, 0), "iterations"),
        (GaussianQueries(10.0, 0.5), "iterations"),
        (GaussianQueries(10.0, math.nan), "iterations"),
        (GaussianQueries(10.0, math.inf), "iterations"),
        (GaussianQueries(10.0, 10**400), "iterations"),
        (GaussianQueries(-10.0, 1), "noise_multiplier"),
        (GaussianQueries(0.0, 1), "noise_multiplier"),
        (GaussianQueries(1e-200, 1), "noise_multiplier"),
        (GaussianQueries(math.nan, 1), "noise_multiplier"),
        (GaussianQueries(math.inf, 1), "noise_multiplier"),
        (GaussianQueries(10.0, 1, 0.0), "fraction"),
        (GaussianQueries(10.0, 1, -0.1), "fraction"),
        (GaussianQueries(10.0, 1, 1.5), "fraction"),
        (GaussianQueries(10.0, 1, math.nan), "fraction"),
    ],
)
def test_claims_hold_numbers_that_queries_can_have(wrong, message):
    budget = pmdp.PrivacyBudget(1.0, 1e-6)
    for claim in (wrong, [GaussianQueries(1e3, 1), wrong]):
        with pytest.raises(ValueError, match=message):
            budget.claim(claim, "wrong")
    assert budget.claims() == []


@pytest.mark.parametrize("iterations", [0, -3, 2.5, math.nan])
def test_noise_is_calibrated_for_whole_numbers(iterations):
    with pytest.raises(ValueError, match="iterations"):
        pmdp.PrivacyBudget(1.0, 1e-6).gaussian_queries(iterations)


def test_rows_that_nobody_claimed_are_refused(tmp_path):
    budget = pmdp.PrivacyBudget(1.0, 1e-6, tmp_path / "forged.db")
    with sqlite3.connect(budget.ledger) as db:
        db.execute(
            "INSERT INTO claims (noise_multiplier, iterations, fraction, purpose) "
            "VALUES (1.0, -1000, 1.0, 'refund')"
        )
    for use in (lambda: budget.spent, lambda: budget.claim(GaussianQueries(1e3, 1), "more")):
        with pytest.raises(pmdp.PrivacyError, match="other means than claims"):
            use()


def test_claims_that_were_taken_out_are_missed_after_a_restart(tmp_path, monkeypatch):
    path = tmp_path / "shortened.db"
    budget = pmdp.PrivacyBudget(1.0, 1e-6, path)
    for _ in range(2):
        budget.claim(budget.gaussian_queries(10, 0.5), "a run")
    monkeypatch.setattr(ledger, "_seen", {})  # a process that knows nothing
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM claims WHERE id = 2")
    for use in (lambda: budget.claims(), lambda: pmdp.PrivacyBudget(1.0, 1e-6, path)):
        with pytest.raises(pmdp.PrivacyError, match="counts 2 claims and has 1"):
            use()


@pytest.mark.parametrize(
    "change", ["DELETE FROM claims", "UPDATE claims SET noise_multiplier = 1e9"]
)
def test_a_ledger_that_keeps_no_claims_opens_no_door(tmp_path, change):
    budget = pmdp.PrivacyBudget(1.0, 1e-6, tmp_path / "triggered.db")
    with sqlite3.connect(budget.ledger) as db:
        db.execute(f"CREATE TRIGGER forget AFTER INSERT ON claims BEGIN {change}; END")
    for _ in range(2):
        with pytest.raises(pmdp.PrivacyError, match="by other means than claims"):
            budget.open(budget.gaussian_queries(10), "nothing is kept")


def test_a_named_ledger_keeps_its_budget_over_restarts(tmp_path):
    path = tmp_path / "kept.db"
    first = pmdp.PrivacyBudget(1.0, 1e-6, path)
    first.claim(first.gaussian_queries(10, 0.5), "before")
    again = pmdp.PrivacyBudget(1.0, 1e-6, path)
    assert again.spent == first.spent > 0
    for other in ({"epsilon": 2.0}, {"delta": 1e-5}, {"neighbours": "add_remove"}):
        with pytest.raises(pmdp.PrivacyError, match="another"):
            pmdp.PrivacyBudget(**({"epsilon": 1.0, "delta": 1e-6, "ledger": path} | other))


def _hold(path, held):
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("BEGIN IMMEDIATE")
    held.set()
    time.sleep(0.5)
    db.execute("ROLLBACK")
    db.close()


def test_a_locked_ledger_is_waited_for(tmp_path):
    budget = pmdp.PrivacyBudget(1.0, 1e-6, tmp_path / "locked.db")
    held = FORK.Event()
    child = FORK.Process(target=_hold, args=(budget.ledger, held))
    child.start()
    held.wait()
    budget.claim(budget.gaussian_queries(10), "waiting")
    child.join()
    assert len(budget.claims()) == 1


def test_temporary_ledgers_go_away():
    budget = pmdp.PrivacyBudget(1.0, 1e-6)
    path = budget.ledger
    assert os.path.exists(path)
    del budget
    assert not os.path.exists(path)


def test_batches_are_counted_with_everything_else():
    budget = pmdp.PrivacyBudget(1.0, 1e-6)
    budget.claim(budget.gaussian_queries(1000, 0.5, fraction=0.01), "batches")
    budget.claim(budget.gaussian_queries(1000, 0.5, fraction=0.01), "batches")
    assert 0.95 < budget.spent <= 1.0
    with pytest.raises(pmdp.PrivacyError):
        budget.claim(GaussianQueries(5.0, 100), "full data")
    with pytest.raises(ValueError, match="substitute"):
        pmdp.PrivacyBudget(1.0, 1e-6, neighbours="add_remove").gaussian_queries(9, fraction=0.1)


@pytest.mark.parametrize("neighbours", ["substitute", "add_remove"])
def test_poisson_batches_are_kept_and_counted_as_such(tmp_path, neighbours):
    path = tmp_path / "study.ledger"
    budget = pmdp.PrivacyBudget(1.0, 1e-6, path, neighbours=neighbours)
    queries = budget.gaussian_queries(1000, 0.5, fraction=0.01, sampling="poisson")
    budget.claim(queries, "batches")
    again = pmdp.PrivacyBudget(1.0, 1e-6, path, neighbours=neighbours)
    assert again.claims() == [queries]
    again.claim(queries, "batches")
    assert 0.95 < again.spent == budget.spent <= 1.0
    with pytest.raises(pmdp.PrivacyError):
        budget.claim(replace(queries, iterations=100), "more")
    if neighbours == "add_remove":
        with pytest.raises(ValueError, match="number of records"):
            budget.claim(replace(queries, sampling="fixed", iterations=1), "fixed sizes")


def test_a_ledger_from_before_poisson_batches_is_read(tmp_path):
    path = tmp_path / "old.ledger"
    pmdp.PrivacyBudget(1.0, 1e-6, path).claim(GaussianQueries(50.0, 3), "once")
    with sqlite3.connect(path) as db:
        db.execute("ALTER TABLE claims DROP COLUMN sampling")
    ledger._seen.clear()
    assert pmdp.PrivacyBudget(1.0, 1e-6, path).claims() == [GaussianQueries(50.0, 3)]


@settings(max_examples=8, deadline=None)
@given(st.floats(0.8, 6), st.sampled_from([0.01, 0.1]), st.integers(1, 300))
def test_renyi_accounting_of_batches_is_never_below_the_tight_one(noise, fraction, iterations):
    queries = [GaussianQueries(noise, iterations, fraction), GaussianQueries(20.0, 10)]
    assert composed_epsilon(queries, 1e-5, "pld") <= composed_epsilon(queries, 1e-5, "rdp") + 2e-3


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"epsilon": 1.0}, "exactly one"),
        ({}, "exactly one"),
        ({"noise_multiplier": 1.0}, "simulation=True"),
        ({"epsilon": 1.0, "delta": 1e-6, "chains": 0}, "chains"),
        ({"epsilon": 1.0, "delta": 1e-6, "share": 0}, "share"),
        ({"epsilon": 1.0, "delta": 1e-6, "share": 0.0}, "share"),
        ({"epsilon": 1.0, "delta": 1e-6, "share": math.nan}, "share"),
        ({"epsilon": 1.0, "delta": 1e-6, "share": -0.5}, "share"),
        ({"epsilon": 1.0, "delta": 1e-6, "share": 1.5}, "share"),
        ({"epsilon": 1.0, "delta": 1e-6, "batch_size": 2.5}, "batch_size"),
        ({"epsilon": math.nan, "delta": 1e-6}, "epsilon"),
        ({"epsilon": 1.0, "delta": math.nan}, "delta"),
        ({"epsilon": -1.0, "delta": 1e-6}, "epsilon"),
        ({"epsilon": 1.0, "delta": 1.5}, "delta"),
        ({"epsilon": 1.0, "delta": 1e-6, "neighbours": "cousins"}, "substitute"),
    ],
)
def test_errors_say_what_to_write(model, kwargs, message):
    with pytest.raises(ValueError, match=message):
        penalty(model, **kwargs)
