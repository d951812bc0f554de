"""Moves that are told to connect all tables, against all tables written out; nothing compiled."""

import itertools

import numpy as np
import pymc as pm
import pytest
from scipy import sparse

import pymc_dp as pmdp
from pymc_dp.analyst.count_gibbs.connected import MOST_MOVES, connecting_moves
from pymc_dp.analyst.count_gibbs.lattice import lattice_of
from pymc_dp.analyst.count_gibbs.noise import ReleasedComponents
from pymc_dp.analyst.count_gibbs.start import known_totals, started, table_lattice


def margins(rows, columns):
    return np.vstack(
        [np.kron(np.eye(rows), np.ones(columns)), np.kron(np.ones(rows), np.eye(columns))]
    ).astype(int)


def parts(totals, low, high, groups=None):
    """Numbers of tables in each part that moves connect, for all values of the totals.

    Moves are those of the lattice, a unit each, and exchanges within groups and of free cells.
    """
    lattice = lattice_of(sparse.csr_array(totals), bool(np.any(high < 6)), low == high)
    size = totals.shape[1]
    steps = [np.eye(size, dtype=int)[i] for i in np.flatnonzero(lattice.free)]
    for i, j in itertools.combinations(range(size), 2):
        if lattice.group[i] == lattice.group[j]:
            steps.append(np.eye(size, dtype=int)[i] - np.eye(size, dtype=int)[j])
    for where, units in lattice.moves:
        members = [np.flatnonzero(lattice.group == g) for g in where]
        for chosen in itertools.product(*members):
            step = np.zeros(size, dtype=int)
            step[list(chosen)] = units
            steps.append(step)
    tables = itertools.product(*(range(a, b + 1) for a, b in zip(low, high, strict=True)))
    fibres = {}
    for table in tables:
        fibres.setdefault(tuple(totals @ table), set()).add(table)
    found = []
    for left in fibres.values():
        number = 0
        while left:
            number, waiting = number + 1, [left.pop()]
            while waiting:
                here = np.array(waiting.pop())
                for step in steps:
                    for there in (tuple(here + step), tuple(here - step)):
                        if there in left:
                            left.remove(there)
                            waiting.append(there)
        found.append(number)
    return lattice, max(found)


def off_diagonal(most):
    return (most * (1 - np.eye(3, dtype=int))).ravel()


PROBLEMS = {
    # name: totals, most in each cell (6 stands for no bound), whether moves are proven
    "both margins": (margins(2, 3), np.full(6, 6), True),
    "both margins, bounds": (margins(3, 3), np.full(9, 1), True),
    "zeros on the diagonal": (margins(3, 3), off_diagonal(6), True),
    "zeros on the diagonal, bounds": (margins(3, 3), off_diagonal(2), True),
    "a zero in a corner": (margins(2, 3), np.array([0, 3, 3, 3, 3, 3]), True),
    "rows and one column": (margins(2, 3)[[0, 1, 2]], np.full(6, 4), True),
    "weights": (np.array([[1, 1, 1, 1], [0, 1, 2, 3]]), np.full(4, 5), True),
    "weights and cells alike": (np.array([[1, 1, 1, 1], [0, 1, 2, 2]]), np.full(4, 5), True),
    "three binary margins": (
        np.vstack(
            [
                np.kron(np.eye(4), np.ones(2)),
                np.kron(np.ones(2), np.eye(4)),
                np.kron(np.eye(2), np.kron(np.ones(2), np.eye(2))),
            ]
        ).astype(int),
        np.full(8, 2),
        True,
    ),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_proven_moves_reach_all_tables(name):
    """Every table with the same totals, whatever these are."""
    totals, high, proven = PROBLEMS[name]
    lattice, most = parts(totals, np.zeros(len(high), dtype=int), high)
    assert lattice.proven == proven
    assert most == 1
    fixed = np.flatnonzero(high == 0)
    assert not lattice.free[fixed].any()
    assert not np.isin(lattice.group[fixed], [g for where, _ in lattice.moves for g in where]).any()


def test_what_is_proven_of_random_totals():
    """Whatever is told to be proven is so."""
    rng, proven = np.random.default_rng(3), 0
    for _ in range(60):
        totals = rng.integers(0, 2, (rng.integers(2, 4), 6))
        high = rng.integers(0, 4, 6)
        lattice, most = parts(totals, np.zeros(6, dtype=int), high)
        proven += lattice.proven
        assert most == 1 or not lattice.proven
    assert proven > 30


def test_a_cycle_round_the_diagonal():
    """Six cells move together, and nothing smaller does."""
    high = off_diagonal(6)
    lattice = lattice_of(sparse.csr_array(margins(3, 3)), False, high == 0)
    [(where, units)] = lattice.moves
    assert len(where) == 6
    assert sorted(units) == [-1, -1, -1, 1, 1, 1]


def test_large_tables_have_all_their_squares():
    moves, proven = connecting_moves(margins(20, 20), bounded=False)
    assert proven
    assert len(moves) == 190**2 > MOST_MOVES
    diagonal = np.flatnonzero(1 - np.eye(8).ravel())
    moves, proven = connecting_moves(margins(8, 8)[:, diagonal], bounded=False)
    assert proven
    assert {int(np.abs(move).sum()) for move in moves} == {4, 6}
    assert sum(np.abs(move).sum() == 6 for move in moves) == 56  # one for three of the diagonal


def three_way():
    with pm.Model() as model:
        c = pm.Poisson("c", 2.0, shape=(3, 3, 3))
        for axis in range(3):
            observed = np.full((3, 3), 6)
            pmdp.Privatized(f"r{axis}", c.sum(axis=axis), pmdp.Exact(), observed=observed)
    return model


def test_what_is_not_proven_is_told_and_starts_apart(caplog):
    """No three-way interaction: primitive moves of 27 cells are too many to be found here."""
    model = three_way()
    table = pmdp.CountGibbs.plan(None, model)
    assert "not proven to reach all" in caplog.text
    components = ReleasedComponents(model, table).components()
    totals = known_totals(table, components)
    lattice = table_lattice(table, totals)
    assert not lattice.proven
    starts = [
        started(np.random.default_rng(seed), table, lattice, totals, components, np.full(27, 2.0))
        for seed in range(3)
    ]
    assert len({tuple(start) for start in starts}) == 3
    assert all(np.array_equal(totals.matrix @ start, totals.values) for start in starts)
