r"""Cells whose probabilities are products of shares.

.. math:: \log q_i = \sum_k M_{ik} \log x_k + \text{constant}

Here x are shares with Dirichlet or beta priors, row by row. Given the counts c the shares of a row
are Dirichlet again, with M'c added to the prior's parameters: a table of classes and of features
within classes has its margins there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor
from numpy.typing import NDArray
from pytensor.tensor.random import basic as rvs
from pytensor.tensor.variable import TensorVariable
from scipy import sparse

from pymc_dp.analyst.count_gibbs.cells import CountTable, shape_of
from pymc_dp.analyst.count_gibbs.graphs import law_terms, own_terms
from pymc_dp.analyst.record_gibbs.conjugate import possible_families, smooth_in
from pymc_dp.graph.additivity import direct_inputs
from pymc_dp.graph.intervals import ONCE
from pymc_dp.graph.support import has_whole_support
from pymc_dp.types import Matrix, Vector

__all__ = ["Shares", "known_sums", "products_of_shares", "released"]

Indices = NDArray[np.int64]

#: released sums up to which it is looked at whether shares follow from them
_MOST_SUMS = 2000
#: evaluations of a cell's probability by which the powers are found, at the most
_MOST_EVALUATIONS = 50_000_000


class Shares(NamedTuple):
    """Shares and the cells whose probabilities are products of them.

    Attributes
    ----------
    prior : ndarray
        Parameters of the Dirichlet priors, side by side; a beta has two.
    rows : ndarray
        Where each begins, and the end.
    beta : ndarray
        Which of them are of a beta.
    starts, entries, powers : ndarray
        The matrix M by rows: which shares a cell's probability has.
    by_share, cells, by_share_powers : ndarray
        The same by columns.
    constant : ndarray
        Log-probability of every cell but for the shares.
    """

    prior: Vector
    rows: Indices
    beta: NDArray[np.bool_]
    starts: Indices
    entries: Indices
    powers: Vector
    by_share: Indices
    cells: Indices
    by_share_powers: Vector
    constant: Vector


def products_of_shares(
    model: pm.Model, table: CountTable, parameters: Sequence[TensorVariable]
) -> Shares | None:
    """Read the shares of a multinomial table; None where its probabilities are no such products.

    The graph says that they are analytic functions of the parameters, so that having this form at a
    few points, chosen at random, they have it everywhere.
    """
    plain = all(law.known_sum and law.alpha is None for law in table.laws)
    if not plain or not parameters:
        return None
    others = [var for var in own_terms(model, parameters, table) if var not in parameters]
    if others or not all(_is_public_prior(model, rv) for rv in parameters):
        return None
    if not all(
        smooth_in(cells, rv, model)
        for cells in table.cells
        for rv in direct_inputs(cells.owner.inputs, parameters)
    ):
        return None
    phi = law_terms(table)["phi"]
    if direct_inputs([phi], [rv for rv in model.basic_RVs if rv not in parameters]):
        return None
    priors = [_prior(rv) for rv in parameters]
    number = sum(prior.size for prior in priors)
    if number * table.size > _MOST_EVALUATIONS:
        return None
    evaluate = pytensor.function(list(parameters), phi, mode=ONCE, on_unused_input="ignore")
    beta = [_is_beta(rv) for rv, prior in zip(parameters, priors, strict=True) for _ in prior]
    return _read(lambda x: np.asarray(evaluate(*_natural(x, parameters, priors))), priors, beta)


def released(table: CountTable, shares: Shares) -> bool:
    """Whether the sums that the shares depend on are sums of what was released.

    Moves of a few units are then enough: what noise leaves open is all that they have to cross.
    Counts that no release sees would be crossed a few units at a time.
    """
    known, varying = known_sums(table), np.flatnonzero(~table.fixed)
    seen = sparse.csr_array(sparse.vstack([known, table.matrix], format="csr"))[:, varying]
    if seen.shape[0] > _MOST_SUMS:
        return False
    shape = (table.size, shares.prior.size)
    powers = sparse.csr_array((shares.powers, shares.entries, shares.starts), shape=shape)[varying]
    weights = np.linalg.pinv((seen @ seen.T).toarray()) @ (seen @ powers).toarray()
    return bool(np.abs(powers.toarray() - seen.T @ weights).max(initial=0.0) < 1e-6)


def known_sums(table: CountTable) -> Any:
    """Rows of multinomial tables, whose sums are known: a matrix, one column a cell."""
    sides = [np.repeat(shape[-1], int(np.prod(shape[:-1]))) for shape in table.shapes]
    rows = np.repeat(np.arange(sum(map(len, sides))), np.concatenate(sides))
    return sparse.csr_array((np.ones(table.size), (rows, np.arange(table.size))))


def _is_public_prior(model: pm.Model, rv: TensorVariable) -> bool:
    """Whether a parameter has a Dirichlet or beta prior that is known, and its usual transform."""
    known = {"dirichlet", "beta"} & set(possible_families(rv))
    usual = model.rvs_to_transforms.get(rv) is not None and has_whole_support(model, rv)
    return bool(known) and usual and not direct_inputs(rv.owner.inputs, model.basic_RVs)


def _is_beta(rv: TensorVariable) -> bool:
    return not isinstance(rv.owner.op, rvs.DirichletRV)


def _prior(rv: TensorVariable) -> Matrix:
    """Parameters of a prior, one row a vector of shares: (p, 1 - p) for a beta."""
    op, shape = rv.owner.op, shape_of(rv)
    found = [np.asarray(p.eval(mode=ONCE), dtype=float) for p in op.dist_params(rv.owner)]
    if isinstance(op, rvs.DirichletRV):
        return np.broadcast_to(found[0], shape).reshape(-1, shape[-1])
    if isinstance(op, rvs.UniformRV):
        return np.ones((int(np.prod(shape)), 2))
    return np.stack([np.broadcast_to(part, shape).ravel() for part in found], axis=1)


def _natural(
    x: Vector, parameters: Sequence[TensorVariable], priors: Sequence[Matrix]
) -> list[NDArray]:
    """Values of the parameters from shares side by side; the second of a beta is not looked at."""
    found, start = [], 0
    for rv, prior in zip(parameters, priors, strict=True):
        part = x[start : start + prior.size].reshape(prior.shape)
        found.append((part[:, 0] if _is_beta(rv) else part).reshape(shape_of(rv)))
        start += prior.size
    return found


def _read(log_q: Any, priors: Sequence[Matrix], beta: list[bool]) -> Shares | None:
    """Find the powers by changing one share after the other, and try the form elsewhere."""
    rng = np.random.default_rng(0)
    flat = [row for prior in priors for row in prior]
    rows = np.cumsum([0, *(len(row) for row in flat)])

    def anywhere() -> Vector:
        return np.concatenate([rng.dirichlet(np.full(len(row), 3.0)) for row in flat])

    x, columns = anywhere(), []
    base = log_q(x)
    for row, start, is_beta in zip(flat, rows, beta, strict=False):
        find = _powers_of_beta if is_beta else _powers
        with np.errstate(invalid="ignore"):  # what is no number does not pass the trial
            powers = [np.maximum(np.round(found), 0) for found in find(log_q, x, start, row, base)]
        columns += [sparse.csc_array(power[:, np.newaxis]) for power in powers]
    matrix = sparse.csc_array(sparse.hstack(columns, format="csc"))
    constant = base - matrix @ np.log(x)
    for _ in range(3):
        x = anywhere()
        found = matrix @ np.log(x) + constant
        if not np.allclose(found, log_q(x), rtol=1e-9, atol=1e-9):
            return None
    by_cell = sparse.csr_array(matrix)
    return Shares(
        np.concatenate(flat),
        rows.astype(np.int64),
        np.array(beta),
        by_cell.indptr.astype(np.int64),
        by_cell.indices.astype(np.int64),
        by_cell.data,
        matrix.indptr.astype(np.int64),
        matrix.indices.astype(np.int64),
        matrix.data,
        constant,
    )


def _powers(log_q: Any, x: Vector, start: int, row: Vector, base: Vector) -> list[Vector]:
    """Powers of the shares of one row in every cell.

    Shares are changed one at a time, whether or not they still sum to one.
    """
    places = range(start, start + len(row))
    return [(log_q(_with(x, k, 2 * x[k])) - base) / np.log(2) for k in places]


def _powers_of_beta(log_q: Any, x: Vector, start: int, row: Vector, base: Vector) -> list[Vector]:
    """Powers of p and of 1 - p in every cell, from two changes of p."""
    places = np.array([0.3, 0.8])
    changes = np.array([log_q(_with(x, start, place)) - base for place in places])
    logs = np.column_stack([np.log(places / x[start]), np.log((1 - places) / (1 - x[start]))])
    return list(np.linalg.solve(logs, changes))


def _with(x: Vector, k: int, value: float) -> Vector:
    changed = x.copy()
    changed[k] = value
    return changed
