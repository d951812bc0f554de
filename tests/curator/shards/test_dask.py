"""Shards on workers of a cluster: the same draws, workers that die, and what crosses the wire."""

import os
import signal
import time
from contextlib import contextmanager
from itertools import pairwise
from multiprocessing import get_context

import numpy as np
import pandas as pd
import pytest

import pymc_dp as pmdp
from pymc_dp.accounting.budget import PrivacyBudget
from pymc_dp.curator.model import record_model
from pymc_dp.curator.plan.synthetic import refuse_confidential
from pymc_dp.curator.shards.dask_hosts import DaskHosts
from tests.curator.shards.problems import N, X, Y, draws, logistic

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")

PENALTY = {"clip_logp": 2, "step_size": 0.1, "noise_multiplier": 3}
ENDS = (0, 401, 401, 402, N)


def load(first, last):
    return X[first:last], Y[first:last]


def load_if_there(path, first, last):
    if not os.path.exists(path):
        raise OSError(f"gone, with {X[first]}")
    return load(first, last)


def loaders():
    return [dask.delayed(load)(a, b) for a, b in pairwise(ENDS)]


@pytest.fixture(scope="module", autouse=True)
def imported_once():
    """Workers begin as copies of a process that has imported the package, and nothing else."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["distributed", "pymc_dp"])
    with pytest.MonkeyPatch.context() as patch:
        for module in ("distributed.nanny", "distributed.process", "distributed.utils"):
            patch.setattr(f"{module}.get_mp_context", lambda: context)
        yield


@contextmanager
def workers(number=2):
    cluster = distributed.LocalCluster(
        n_workers=number, threads_per_worker=1, dashboard_address=":0", silence_logs=50
    )
    client = distributed.Client(cluster)
    yield client
    client.close()
    cluster.close(timeout=20)


@pytest.fixture(scope="module")
def client():
    """Workers that stay alive, and compile once for all tests."""
    with workers() as client:
        yield client


@pytest.fixture(scope="module")
def records(client):
    return pmdp.shard(logistic, loaders(), client=client, timeout=120)


@pytest.fixture
def mortals():
    """Workers of its own for a test: Dask gives some up that are killed as they come back."""
    with workers() as client:
        yield client


@pytest.fixture
def mortal():
    with workers(1) as client:
        yield client


@pytest.fixture
def mortal_records(mortals):
    return pmdp.shard(logistic, loaders(), client=mortals, timeout=120)


@pytest.fixture(scope="module")
def whole():
    return draws(logistic(X, Y), pmdp.DPPenalty, **PENALTY)


def one_worker(client, rng):
    """Process of some worker."""
    pids = client.run(os.getpid, on_error="ignore")
    return sorted(pids.values())[rng.integers(len(pids))]


def is_same(found, whole):
    return all(np.array_equal(found[name], whole[name]) for name in whole)


def test_draws_are_those_of_one_place(records, whole):
    assert (records.n_records, records.n_shards) == (N, 4)
    assert is_same(draws(records.model, pmdp.DPPenalty, **PENALTY), whole)


def test_collections_are_not_gathered(client, whole):
    da = pytest.importorskip("dask.array")
    arrays = (da.from_array(X, chunks=(500, 3)), da.from_array(Y, chunks=500))
    persisted = tuple(array.persist() for array in arrays)
    found = pmdp.shard(logistic, persisted, client=client)
    assert found.n_shards == 3
    assert is_same(draws(found.model, pmdp.DPPenalty, **PENALTY), whole)
    with pytest.raises(ValueError, match="rechunk"):
        pmdp.shard(logistic, (da.from_array(X, chunks=(500, 2)), arrays[1]), client=client)
    with pytest.raises(ValueError, match="client="):
        pmdp.shard(logistic, [arrays])


def of_table(table):
    return logistic(table[["a", "b", "c"]].to_numpy(), table["y"].to_numpy())


@pytest.mark.wide_except("dataframe")
@pytest.mark.filterwarnings("ignore:The inplace keyword")  # of Dask, by pandas
@pytest.mark.parametrize("kind", ["parquet", "dataframe", "persisted"])
def test_tables_are_read_where_they_are(client, whole, tmp_path, kind):
    frames = pytest.importorskip("dask.dataframe")
    table = pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=Y, name="somebody")
    given = frames.from_pandas(table, npartitions=3)
    if kind == "parquet":
        given.to_parquet(tmp_path)
        given = frames.read_parquet(tmp_path, columns=["a", "b", "c", "y"])
    else:
        given = given[["a", "b", "c", "y"]]
    found = pmdp.shard(of_table, given.persist() if kind == "persisted" else given, client=client)
    assert (found.n_records, found.n_shards) == (N, 3)
    assert is_same(draws(found.model, pmdp.DPPenalty, **PENALTY), whole)


def test_nothing_but_sums_crosses(records, monkeypatch):
    """No number of a record is in any message that reaches the driver's process."""
    received = []
    tcp = distributed.comm.tcp
    from_frames = tcp.from_frames

    async def listening(frames, *args, **kwargs):
        received.append(b"".join(bytes(frame) for frame in frames))
        return await from_frames(frames, *args, **kwargs)

    monkeypatch.setattr(tcp, "from_frames", listening)
    gradient = {"clip_grad": 1.5, "noise_multiplier": 3, "step_size": 1e-3}
    draws(records.model, pmdp.DPSGLD, **gradient)
    draws(records.model, pmdp.DPPenalty, batch_size=97, tempering=0.1, **PENALTY)
    told = b"".join(received)
    answers = [one for one in received if b"OK" in one]
    assert len(answers) >= 2 * 2 * 30  # two workers, two runs of thirty looks
    assert max(map(len, answers)) < 1000
    assert not any(number.tobytes() in told for number in X.ravel())


@pytest.mark.wide_except("0")
@pytest.mark.parametrize("seed", range(3))
def test_a_worker_that_dies_changes_nothing(mortals, mortal_records, whole, seed):
    rng = np.random.default_rng(seed)
    killed_at = rng.integers(29)

    def kill(trace, draw):
        if draw.draw_idx == killed_at:
            os.kill(one_worker(mortals, rng), signal.SIGKILL)

    budget = PrivacyBudget(epsilon=2, delta=1e-6)
    with mortal_records.model:
        step = pmdp.DPPenalty(simulation=True, rng=3, chains=1, **PENALTY)
        tree = pmdp.sample(
            25, tune=5, chains=1, step=step, random_seed=5, progressbar=False, callback=kill
        )
        assert np.array_equal(tree.posterior["beta"], whole["beta"])
        paid = pmdp.DPPenalty(budget=budget, share=0.5, chains=1, clip_logp=2, step_size=0.1)
        pmdp.sample(25, tune=5, chains=1, step=paid, progressbar=False, callback=kill)
    assert len(budget.claims()) == 1
    assert budget.unspent == pytest.approx(0.5)


@pytest.mark.wide
def test_a_release_goes_on_after_a_worker_died(mortals, mortal_records, monkeypatch):
    """Workers die after they compiled what is asked of them; without noise sums can be compared."""
    monkeypatch.setattr(
        "pymc_dp.accounting.noise.release", lambda totals, sd, generator=None: list(totals)
    )
    also = {"positive": (lambda arrays: arrays["y"][:, None], 1.0)}
    budget = PrivacyBudget(epsilon=8, delta=1e-6)

    def released(model):
        with model:
            found = pmdp.score_release(
                at={"beta": [0.4, -0.4, 0.1]}, clip=0.8, also=also, budget=budget, share=0.2
            )
        return np.append(found.value, found.also[0].value)

    ask = DaskHosts.ask

    def ask_the_dead(hosts, question, common, own):
        if question == "score":
            for pid in mortals.run(os.getpid, on_error="ignore").values():
                os.kill(pid, signal.SIGKILL)
        return ask(hosts, question, common, own)

    monkeypatch.setattr(DaskHosts, "ask", ask_the_dead)
    np.testing.assert_array_equal(released(mortal_records.model), released(logistic(X, Y)))
    assert budget.unspent == pytest.approx(0.6)


@pytest.mark.wide
def test_what_cannot_be_loaded_again_stops_the_run(mortals, tmp_path):
    there = tmp_path / "there"
    there.touch()
    ends = pairwise(ENDS)
    parts = [dask.delayed(load_if_there)(str(there), a, b) for a, b in ends]
    found = pmdp.shard(logistic, parts, client=mortals, timeout=60)
    there.unlink()
    budget = PrivacyBudget(epsilon=2, delta=1e-6)

    def kill(trace, draw):
        if draw.draw_idx == 7:
            for pid in mortals.run(os.getpid, on_error="ignore").values():
                os.kill(pid, signal.SIGKILL)

    with found.model:
        step = pmdp.DPPenalty(budget=budget, share=0.5, chains=1, clip_logp=2, step_size=0.1)
        with pytest.raises(RuntimeError, match="stays spent") as stopped:
            pmdp.sample(25, tune=5, chains=1, step=step, progressbar=False, callback=kill)
    assert "gone, with" not in str(stopped.value)
    assert budget.unspent == pytest.approx(0.5)


def load_anew(path, first, last):
    """Other records every time."""
    with open(path, "a") as file:
        file.write("x")
        shift = file.tell()
    return X[first:last] + shift, Y[first:last]


def test_other_records_in_place_of_lost_ones_are_refused(mortal, tmp_path):
    path = str(tmp_path / "count")
    parts = [dask.delayed(load_anew)(path, a, b) for a, b in pairwise((0, 300, N))]
    found = pmdp.shard(logistic, parts, client=mortal, timeout=60)
    for pid in mortal.run(os.getpid, on_error="ignore").values():
        os.kill(pid, signal.SIGKILL)

    def run():  # the step itself asks, if models were passed as synthetic= before
        step = pmdp.DPPenalty(epsilon=2, delta=1e-6, chains=1, clip_logp=2, step_size=0.1)
        pmdp.sample(25, tune=5, chains=1, step=step, progressbar=False)

    for _ in range(2):  # and not used by the next run either
        with found.model, pytest.raises(RuntimeError, match="cannot be made again as it was"):
            run()


@pytest.mark.wide
def test_a_worker_that_is_silent_does_not_hang(mortals):
    found = pmdp.shard(logistic, loaders(), client=mortals, timeout=100)
    record_model(found.model).shards._hosts._timeout = 4  # making shards takes longer
    with found.model:
        step = pmdp.DPPenalty(epsilon=2, delta=1e-6, chains=1, clip_logp=2, step_size=0.1)
    pids = list(mortals.run(os.getpid, on_error="ignore").values())
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    start = time.monotonic()
    try:
        with found.model, pytest.raises((TimeoutError, RuntimeError), match="stays spent"):
            pmdp.sample(25, tune=5, chains=1, step=step, progressbar=False)
        assert time.monotonic() - start < 40
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)


def test_models_of_closed_clusters_stand_in_nobodys_way_when_let_go():
    options = {"n_workers": 1, "threads_per_worker": 1, "processes": False}
    with (
        distributed.LocalCluster(dashboard_address=":0", silence_logs=50, **options) as cluster,
        distributed.Client(cluster) as own,
    ):
        found = pmdp.shard(logistic, loaders(), client=own, timeout=60)
    rng = np.random.default_rng(70)
    public = logistic(rng.normal(size=(200, X.shape[1])), rng.integers(2, size=200))
    with pytest.raises(RuntimeError, match=r"closed.*\(del\)"):
        refuse_confidential([public])
    del found
    refuse_confidential([public])
