"""What one record adds, read from the graph, against moving one record and looking."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.tensor.basic import Split

from pymc_dp.graph.additivity import (
    NotAdditiveError,
    PerRecord,
    direct_inputs,
    form_of,
    per_record_forms,
)

N, D, K = 7, 3, 4
x = pt.vector("x", shape=(N,))
X = pt.matrix("X", shape=(N, D))
k = pt.vector("k", dtype="int64", shape=(N,))
b = pt.scalar("b")
RECORDS = [x, X, k]
Z = np.random.default_rng(5).normal(size=(N, 4))
GROUP = np.array([0, 1, 2, 0, 1, 2, 0])
TRIU = np.triu_indices(D)

ROWS = pt.ones((N, N)) * x[None, :]

ADDITIVE = {
    "sum": x.sum(),
    "mean": x.mean(),
    "clamped": pt.clip(x, -1, 1).sum(),
    "scaled and shifted": 3 * x.sum() / N - b * X[:, 0].sum() + 5,
    "negative": -x.sum(),
    "stack": pt.stack([x.sum(), (x**2).sum()]),
    "stack with a constant": pt.stack([x.sum(), 1.0]),
    "concatenate": pt.concatenate([X.T @ x, (x**2).sum()[None], (X.T @ X)[TRIU][1:]]),
    "concatenate with a constant": pt.concatenate([X.sum(0), np.ones(2)]),
    "X'x": X.T @ x,
    "X'X": X.T @ X,
    "x'x": x @ x,
    "row'X": x[:, None].T @ X,
    "upper triangle": (X.T @ X)[TRIU],
    "slice of a total": (X.T @ X)[0, 1:],
    "public covariates": Z.T @ x,
    "public covariates from the right": x @ Z,
    "design with an intercept": pt.concatenate([pt.ones((N, 1)), X], axis=1).T @ x,
    "linear map of a total": np.ones((2, D)) @ (X.T @ X) @ np.ones((D, 2)),
    "trace": pt.trace(X.T @ X),
    "diagonal": pt.diag(X.T @ X),
    "reshape of a total": (X.T @ X).reshape((D * D,)),
    "flatten of a total": (X.T @ X).ravel(),
    "set a total": pt.set_subtensor(pt.zeros(3)[1], x.sum()),
    "cast of a count": pt.cast((x > 0).sum(), "float64") / 2,
    "cast of whole numbers": (2.0 * (x > 0).sum() + pt.floor(x).sum()).astype("int64"),
    "cast of public whole numbers times counts": (pt.ones(N) @ k).astype("int64"),
    "cast to a wider type": (x > 0).sum(dtype="int32").astype("int64"),
    "over all axes": X.sum(),
    "mean over rows": X.mean(0),
    "transposed": X.T.sum(1),
    "maximum in a row": X.max(1).sum(),
    "product in a row": X.prod(1).sum(),
    "cumulative in a row": pt.cumsum(X, axis=1).sum(0),
    "softmax in a row": pt.special.softmax(X, axis=1).sum(0),
    "argmax in a row": pt.eq(pt.argmax(X, axis=1)[:, None], np.arange(D)).sum(0),
    "dot in a row": (X @ np.arange(3.0)).sum(),
    "switch": pt.switch(x > 0, x, 0).sum(),
    "comparison": (x > 0).sum(),
    "categories by eq": pt.eq(k[:, None], np.arange(K)).sum(0),
    "categories by identity matrix": pt.eye(K)[k].sum(0),
    "categories by one-hot rows": pt.zeros((N, K))[pt.arange(N), k].set(1).sum(0),
    "categories by counting": pt.zeros(K)[k].inc(1),
    "cross table": (pt.eq(k[:, None, None], np.arange(K)[:, None]) * X[:, None, :]).sum(0),
    "sums by group": pt.zeros(3)[GROUP].inc(x),
    "lookup by record": pt.as_tensor(Z[:K, 0])[k].sum(),
    "lookup by record and group": pt.as_tensor(Z[:K, :3])[k, GROUP].sum(),
    "lookup in the record": X[pt.arange(N), k % D].sum(),
    "first rows": x[:3].sum(),
    "chosen rows": x[np.array([1, 2, 4])].sum(),
    "masked rows": x[GROUP == 1].mean(),
    "chosen rows twice": (x[np.array([1, 2])] * X[np.array([1, 2]), 0]).sum(),
    "one record": x[0] + x.sum(),
    "column set": pt.set_subtensor(X[:, 0], 1.0).sum(0),
    "column written": pt.set_subtensor(pt.zeros((N, 2))[:, 1], x).sum(0),
    "einsum": pt.einsum("ni,nj->ij", X, X),
    "tensordot": pt.tensordot(X, X, axes=[[0], [0]]),
    "batched product": pt.matmul(pt.stack([X, 2 * X]).transpose(0, 2, 1), X),
    "a matrix of records from both sides": ROWS @ np.ones((N, 2))
    + (np.ones((2, N)) @ ROWS).sum(1)[0],
    "outer products": (X[:, :, None] * X[:, None, :]).sum(0),
    "lookup in the record by reshaped counting": X[
        pt.arange(X.shape[0]).reshape((-1, 1)), (k % D)[:, None]
    ].sum(),
    "lookup in the record along another axis": X.T[(k % D), pt.arange(N)].sum(),
    "lookup at the same place": X[pt.arange(N), np.array([1] * N)].sum(),
    "lookup in chosen records": X[:4][np.arange(4), (k % D)[:4]].sum(),
    "take along rows": pt.take_along_axis(X, (k % D)[:, None], axis=1).sum(),
    "columns chosen": X[:, np.array([2, 0])].sum(0),
    "sorted within rows": pt.sort(X, axis=1).sum(0),
    "ranks within rows": pt.argsort(X, axis=1).sum(0),
    "split rows": pt.split(X, [1, 2], n_splits=2, axis=1)[1].sum(0),
    "diagonals of records": pt.diagonal(X[:, :, None] * X[:, None, :], axis1=1, axis2=2).sum(0),
    "diagonals of other axes": pt.diagonal(
        (X[:, :, None] * X[:, None, :]).transpose(1, 0, 2), axis1=0, axis2=2
    ).sum(0),
    "diagonal matrices": pt.basic.alloc_diag(X, axis1=1, axis2=2).sum(0),
    "columns set": pt.set_subtensor(X[:, np.array([0, 2])], X[:, :2]).sum(0),
    "columns written by index": pt.zeros((N, 5))[:, np.array([3, 1, 1])].inc(X).sum(0),
    "joined axes of a row": pt.join_dims(X[:, :, None] * X[:, None, :], start_axis=1).sum(0),
    "axis joined with one of length one": pt.join_dims(X[:, None, :], start_axis=0, n_axes=2).sum(
        0
    ),
    "joined axes before the records": pt.join_dims(
        (X[:, :, None] * X[:, None, :]).transpose(1, 2, 0), start_axis=0, n_axes=2
    ).sum(1),
    "split axis of a row": pt.split_dims(pt.concatenate([X, X], axis=1), shape=(2, D), axis=1).sum(
        0
    ),
    "split axis before the records": pt.split_dims(
        pt.concatenate([X, X], axis=1).T, shape=(2, D), axis=0
    ).sum(2),
}

NOT_ADDITIVE = {
    "square of a total": (x.sum() ** 2, "Pow"),
    "variance": (x.var(), "total over all records"),
    "product over records": (x.prod(), "not a sum"),
    "maximum over records": (x.max(), "not a sum"),
    "pairs": (pt.outer(x, x).sum(), "other records"),
    "X X'": ((X @ X.T).sum(), "other records"),
    "sorted": (pt.sort(x)[0], "Sort"),
    "cumulative over records": (pt.cumsum(x).sum(), "over the records"),
    "ratio of totals": (x.sum() / (x**2).sum(), "TrueDiv"),
    "product of totals": (x.sum() * X.sum(), "multiplies totals"),
    "exponential of a total": (pt.exp(x.sum()), "Exp"),
    "cast that rounds": (x.sum().astype("int64"), "float64 to int64, which rounds"),
    "cast of halves": ((0.5 * k).sum().astype("int64"), "float64 to int64, which rounds"),
    "cast of a fraction added": (
        (1.0 * k.sum() + 0.5).astype("int64"),
        "float64 to int64, which rounds",
    ),
    "sum of numbers that rounds": (x.sum(dtype="int64"), "float64 to int64, which rounds"),
    "total written to integers": (
        pt.zeros(3, dtype="int64")[1].set(x.sum()),
        "float64 to int64, which rounds",
    ),
    "cast that wraps": (k.sum().astype("int8"), "int64 to int8, which cannot hold"),
    "sum that wraps": (k.sum(dtype="int8"), "int64 to int8, which cannot hold"),
    "cast that drops the sign": (k.sum().astype("uint64"), "int64 to uint64, which cannot hold"),
    "cast to a truth": (k.sum().astype("bool"), "int64 to bool, which cannot hold"),
    "determinant": (pt.linalg.det(X.T @ X), "Det"),
    "least squares": (pt.linalg.solve(X.T @ X, X.T @ x), "Solve"),
    "joined records": (pt.concatenate([x, x**2]).sum(), "sum each part"),
    "flattened records": (X.ravel().sum(), "record axis"),
    "reversed": ((x * x[::-1]).sum(), "selections"),
    "differences": ((x[1:] - x[:-1]).sum(), "selections"),
    "first record by index": (X[np.array([0]), k % D].sum(), "looks up"),
    "some record by counting": (X[pt.arange(1), k % D].sum(), "looks up"),
    "counting backwards": (X[pt.arange(N)[::-1], k % D].sum(), "looks up"),
    "turned counting": (
        X[pt.constant(np.arange(6).reshape(2, 3)).T.ravel(), (k % D)[:6]].sum(),
        "looks up",
    ),
    "reversed, then by each record": (X[::-1][pt.arange(N), k % D].sum(), "looks up|selections"),
    "masked by records": (pt.as_tensor(Z[:, 0])[x > 0].sum(), "what is in them"),
    "masked records": (x[x > 0].sum(), "what is in them"),
    "places of records": (pt.arange(N)[(x > 0).nonzero()[0]].sum(), "Nonzero"),
    "columns chosen by records": (pt.zeros((N, K))[:, k].set(1).sum(0), "other records' places"),
    "columns added to by records": (pt.zeros((N, K))[:, k].inc(x).sum(0), "other records' places"),
    "one record in all rows": (
        pt.zeros((N, 2))[:, np.array([0, 1])].set(x[:1, None]).sum(0),
        "single record",
    ),
    "one record in a column": (pt.zeros((N, 2))[:, 0].set(x[:1]).sum(0), "single record"),
    "a matrix of records times itself": ((ROWS @ ROWS).sum(0), "other records"),
    "diagonal across records": (pt.diagonal(X).sum(), "other records"),
    "sorted rows": (pt.sort(X, axis=0)[0].sum(), "over the records"),
    "split records": (pt.split(x, [3, 4], n_splits=2, axis=0)[0].sum(), "over the records"),
    "written to others' places": (
        pt.zeros((N, D))[k, np.arange(N) % D].set(x).sum(0),
        "other records' places",
    ),
    "joined with the records' axis": (pt.join_dims(X, start_axis=0).sum(), "record axis"),
    "split records' axis": (
        pt.split_dims(pt.concatenate([X, X], axis=1).ravel(), shape=(N, 2 * D), axis=0).sum(),
        "record axis",
    ),
    "index by a total": (pt.as_tensor(Z)[k.sum() % 2, 0], "index|linear|known|applied"),
}


def evaluate(outputs, values):
    mode = Mode(linker="py", optimizer=None)
    function = pytensor.function([x, X, k, b], outputs, mode=mode, on_unused_input="ignore")
    return function(*values)


def random_values(rng):
    return [rng.normal(size=N), rng.normal(size=(N, D)), rng.integers(0, K, size=N), 1.7]


@pytest.mark.parametrize("name", ADDITIVE)
def test_contribution_is_what_moving_one_record_changes(name):
    statistic = ADDITIVE[name]
    contributions = form_of(statistic, RECORDS).contributions
    rng = np.random.default_rng(1)
    values, other = random_values(rng), random_values(rng)
    before, rows = evaluate([statistic, contributions], values)
    assert rows.shape == (N, *np.shape(before))
    for i in (0, 2, N - 1):
        moved = [v.copy() for v in values[:3]] + values[3:]
        for old, new in zip(moved[:3], other[:3], strict=True):
            old[i] = new[i]
        after, moved_rows = evaluate([statistic, contributions], moved)
        np.testing.assert_allclose(after - before, moved_rows[i] - rows[i], atol=1e-9)
        np.testing.assert_allclose(np.delete(moved_rows, i, 0), np.delete(rows, i, 0))


@pytest.mark.parametrize("name", NOT_ADDITIVE)
def test_what_is_not_a_sum_is_refused_by_name(name):
    statistic, message = NOT_ADDITIVE[name]
    with pytest.raises(NotAdditiveError, match=message):
        form_of(statistic, RECORDS)


def test_forms_that_are_not_totals():
    assert form_of(x**2, [x]) == PerRecord(0)
    assert form_of(X.T, [X]) == PerRecord(1)
    assert form_of(b + 1, [x]) is None
    assert form_of(pt.as_tensor(x.shape[0] * 2), [x]) is None


def test_fixed_variables_hide_the_records_behind_them():
    y = 2 * x
    assert form_of((y * b).sum(), [x], fixed=[y]) is None


def test_direct_inputs_stop_at_the_first():
    y = 2 * x
    assert direct_inputs([y.sum() + b], [x, y]) == [y]
    assert set(direct_inputs([y.sum() + x.sum()], [x, y])) == {x, y}


def test_records_do_not_decide_where_an_array_is_cut():
    x = pt.matrix("x", shape=(2, 4))
    sizes = pt.cast(x[:, 0], "int64")
    with pytest.raises(NotAdditiveError, match="cuts at places that depend on records"):
        per_record_forms(Split(2, axis=1)(x, sizes)[0], {x: 0})
    kept = Split(2, axis=1)(x, [1, 3])[1]
    assert per_record_forms(kept, {x: 0})[kept].axis == 0
