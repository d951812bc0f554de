"""What was not paid for does not leave."""

import copy
import math
import pickle
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest

import pymc_dp as pmdp
from pymc_dp.accounting import GaussianQueries, noise
from pymc_dp.accounting.door import Door


def opened(looks=2, **kwargs):
    budget = pmdp.PrivacyBudget(epsilon=1.0, delta=1e-6, **kwargs)
    kinds = [budget.gaussian_queries(looks, share=0.5), budget.gaussian_queries(1, share=0.25)]
    return budget, budget.open(kinds, "test")


def test_the_price_is_claimed_before_the_door_is_there():
    budget, door = opened()
    assert budget.claims("test") == list(door.looks)
    assert budget.unspent == pytest.approx(0.25)
    with pytest.raises(pmdp.PrivacyError, match="does not cover"):
        budget.open(budget.gaussian_queries(1, share=0.5), "too much")
    assert budget.claims("too much") == []


def test_looks_are_counted_by_kind():
    _, door = opened(looks=2)
    door.release(lambda: [1], bound=2**20)
    door.release(lambda: [1], 2**20, kind=1)
    with pytest.raises(pmdp.PrivacyError, match="No budget was claimed"):
        door.release(lambda: [1], 2**20, kind=1)
    door.release(lambda: [1], 2**20)
    with pytest.raises(pmdp.PrivacyError, match="No budget was claimed"):
        door.release(lambda: [1], 2**20)


def test_the_data_is_not_looked_at_where_it_was_not_paid_for():
    _, door = opened(looks=1)
    door.release(lambda: [0], bound=2**20)

    def look(batch=None):
        raise AssertionError("looked")

    with pytest.raises(pmdp.PrivacyError, match="No budget was claimed"):
        door.release(look, bound=2**20)
    with pytest.raises(pmdp.PrivacyError, match="No budget was claimed"):
        door.release_batch(look, bound=2**20, n_records=10)


@pytest.mark.parametrize(("neighbours", "weight"), [("substitute", 2), ("add_remove", 1)])
def test_noise_is_what_was_claimed_times_what_a_record_moves(monkeypatch, neighbours, weight):
    asked = []
    monkeypatch.setattr(noise, "release", lambda totals, sd, simulation: asked.append(sd) or totals)
    _, door = opened(neighbours=neighbours)
    door.release(lambda: [5, 6], bound=1000)
    door.release(lambda: [5, 6], bound=10, kind=1)
    expected = [look.noise_multiplier * weight for look in door.looks]
    assert asked == pytest.approx([1000 * expected[0], 10 * expected[1]])
    assert [door.noise(), door.noise(1)] == pytest.approx(expected)


@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_noise_is_drawn_in_the_precision_in_which_it_was_claimed(monkeypatch, kind):
    asked = []
    monkeypatch.setattr(noise, "release", lambda totals, sd, simulation: asked.append(sd) or totals)
    budget = pmdp.PrivacyBudget(epsilon=1.0, delta=1e-6)
    door = budget.open(GaussianQueries(kind(1000.3), 1), "a short float")
    door.release(lambda: [5], bound=17)  # a product that short floats round down
    assert float(asked[0]) >= 34 * budget.claims()[0].noise_multiplier


def test_released_numbers_have_that_noise():
    # 4000 normal draws: the false-alarm rate of 6 standard errors is below 1e-8
    door = Door([GaussianQueries(3.0, 4000)], 2)
    found = np.array(
        [door.release(lambda: [10 * 2**20], 2**20)[0] / 2**20 - 10 for _ in range(4000)]
    )
    assert abs(found.mean()) < 6 * 6 / math.sqrt(4000)
    assert abs(found.std() / 6 - 1) < 6 / math.sqrt(8000)


def test_doors_do_not_pass_to_copies():
    _, door = opened()
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(pmdp.PrivacyError, match="copies"):
            attempt(door)


def test_doors_do_not_pass_to_threads():
    _, door = opened()
    refused = []

    def attempt():
        try:
            door.release(lambda: [1], 2**20)
        except pmdp.PrivacyError as error:
            refused.append(error)

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    assert len(refused) == 1


DOOR = {}


def _inherited():
    try:
        DOOR["open"].release(lambda: [1], 2**20)
    except pmdp.PrivacyError:
        return "refused"


def test_doors_do_not_pass_to_forked_processes():
    DOOR["open"] = opened()[1]
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
        assert pool.submit(_inherited).result() == "refused"


def test_simulated_noise_follows_the_seed():
    looks = [GaussianQueries(3.0, 1)]
    one, other = (
        Door(looks, 2, np.random.default_rng(1)).release(lambda: [0], 100) for _ in range(2)
    )
    assert one == other


def test_a_door_is_not_paid_by_a_pure_guarantee():
    budget = pmdp.PrivacyBudget(epsilon=0.1, delta=1e-9)
    with pytest.raises(ValueError, match="no pure epsilon"):
        budget.open(GaussianQueries(1e-3, 1, epsilon=0.0), "a look for nothing")
    assert budget.claims() == []
