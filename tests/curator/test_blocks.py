"""What is computed of a record is the same, bit for bit, whichever others are computed with it."""

import numpy as np
import pymc as pm
import pytest

from pymc_dp.curator.blocks import BLOCK, in_blocks
from pymc_dp.curator.model import RecordModel

RNG = np.random.default_rng(0)
N, D = 20_011, 10  # BLAS treats the last N mod 4 rows in another way


@pytest.fixture(scope="module")
def records():
    X, y = RNG.normal(size=(N, D)), RNG.integers(2, size=N)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=D)
        pm.Bernoulli("y", logit_p=X @ beta, observed=y)
    return RecordModel(model)


def test_log_likelihoods_do_not_depend_on_other_records(records):
    theta = RNG.normal(size=D)
    whole = records.likelihood(theta)
    for size in [*range(1, 20), 63, 64, 65, 1001]:
        some = RNG.permutation(N)[:size]
        some[0] = N - 1
        np.testing.assert_array_equal(records.likelihood.batch(theta, some), whole[some])


def test_blocks_are_whole_and_hold_every_record_once():
    for n in (1, BLOCK, 100, 20_011, 2**15):
        rows = np.arange(2 * n).reshape(2, n)
        parts = in_blocks([rows, rows[0]], [1, 0])
        assert all(array.shape[-1] % BLOCK == 0 for part in parts for array in part.arrays)
        kept = [part.arrays[0][:, : part.number] for part in parts]
        np.testing.assert_array_equal(np.concatenate(kept, axis=1), rows)
