r"""Gram matrices from standardised entries of Bartlett's factors.

.. math::

    S_j = R A_j A_j' R', \qquad
    (A_j)_{ii} = \sqrt{n_j} \exp\bigl(v_{ji} / \sqrt{2 n_j}\bigr),

with the other entries of `v` below the diagonal: the logarithm of a diagonal entry has a standard
deviation of about :math:`1 / \sqrt{2 n_j}`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import disconnected_type
from pytensor.graph.basic import Apply
from pytensor.tensor.linalg import solve_triangular

from pymc_dp.graph.kernel_graph import KernelGraph
from pymc_dp.numerics.cholesky import lower_cholesky
from pymc_dp.numerics.compiled import jit
from pymc_dp.types import Variable

__all__ = ["gram_matrices", "residuals", "standardised_entries"]


def gram_matrices(value: Any, n: Any, R: Any, holders: int, p: int, first: int) -> Any:
    """Make Gram matrices (J, p, p), an intercept in the last place.

    Parameters
    ----------
    value : (size,)
        Standardised entries of all holders: of each those on the diagonal, then those below it.
    n : (J,)
        Numbers of rows.
    R : (p, p)
        Lower triangular, R R' are second moments of a row; with `first` of (1, x).
    holders, p : int
        Numbers of matrices, and of their rows.
    first : int
        Whether there is an intercept: its row of the factor is known.
    """
    return _grams(holders, p, first)(
        value, pt.sqrt(n), pt.specify_shape(R, (p, p)), np.int64(first)
    )


def standardised_entries(S: Any, n: Any, R: Any, holders: int, p: int, first: int) -> Any:
    """Invert :func:`gram_matrices`, whose parameters these are otherwise."""
    given = pt.specify_shape(S, (holders, p, p)), pt.sqrt(n), pt.specify_shape(R, (p, p))
    return _entries(holders, p, first)(*given, np.int64(first))


def residuals(z: Any, S: Any, coef: Any, sigma2: Any) -> Any:
    """Standardise cross products, z = S coef + sqrt(sigma2) chol(S) residual."""
    given = [part.astype("float64") for part in (z, S, coef, sigma2)]
    return _residuals(*(part.type for part in given))(*given)


def _factors(value: Any, root: Any, p: int, first: int) -> Any:
    """Write the factors A (J, p, p) as a graph; `root` are the square roots of the n."""
    holders = root.type.shape[0]
    value = value.reshape((holders, -1))
    diagonal, below = np.arange(first, p), np.tril_indices(p, -1)
    split = diagonal.size
    grown = root[:, None] * pt.exp(value[:, :split] / (np.sqrt(2) * root[:, None]))
    A = pt.zeros((holders, p, p))
    if first:
        A = A[:, 0, 0].set(root)
    A = A[:, diagonal, diagonal].set(grown)
    return A[:, below[0], below[1]].set(value[:, split:]) if below[0].size else A


class GramsGraph(KernelGraph):
    """Gram matrices of values, square roots of n and R; see :func:`gram_matrices`."""

    def __init__(self, holders: int, p: int, first: int) -> None:
        self.sizes = holders, p, first
        value, root, R, known = _inputs(holders, p)
        super().__init__([value, root, R, known], [_written(value, root, R, first)], _multiply_out)

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Tell that there are no derivatives by the last input."""
        return [[True], [True], [True], [False]]

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Any]:
        """Differentiate by the first three, in one operation."""
        *smooth, known = inputs
        pulled: Any = _pulled(*self.sizes)(*smooth, known, cotangents[0])
        return [*pulled, disconnected_type()]


def _inputs(holders: int, p: int) -> tuple[Any, Any, Any, Any]:
    root = pt.tensor("root", dtype="float64", shape=(holders,))
    R = pt.tensor("R", dtype="float64", shape=(p, p))
    return pt.dvector("value"), root, R, pt.lscalar("first")


def _written(value: Any, root: Any, R: Any, first: int) -> Any:
    p = R.type.shape[0]
    factor = R @ _factors(value, root, p, first)
    S = factor @ factor.mT
    if first:
        S = pt.roll(pt.roll(S, -1, axis=-1), -1, axis=-2)
    return pt.specify_shape(S, (root.type.shape[0], p, p))


@cache
def _grams(holders: int, p: int, first: int) -> GramsGraph:
    return GramsGraph(holders, p, first)


@cache
def _pulled(holders: int, p: int, first: int) -> KernelGraph:
    """Differentiate a weighted sum of the matrices' entries."""
    # by R below the diagonal alone: it is the factor of a matrix
    value, root, R, known = _inputs(holders, p)
    weights = pt.tensor("weights", dtype="float64", shape=(holders, p, p))
    total: Variable = (weights * _written(value, root, R, first)).sum()
    slopes: Any = pt.grad(total, [value, root, R])
    return KernelGraph([value, root, R, known, weights], slopes, _pull_grams)


@cache
def _entries(holders: int, p: int, first: int) -> KernelGraph:
    _, root, R, known = _inputs(holders, p)
    S = pt.tensor("S", dtype="float64", shape=(holders, p, p))
    ordered = pt.roll(pt.roll(S, 1, axis=-1), 1, axis=-2) if first else S
    A = solve_triangular(R, pt.linalg.cholesky(ordered), lower=True)
    diagonal, below = np.arange(first, p), np.tril_indices(p, -1)
    logs = np.sqrt(2) * root[:, None] * pt.log(A[:, diagonal, diagonal] / root[:, None])
    value = pt.concatenate([logs, A[:, below[0], below[1]]], axis=1).reshape((-1,))
    return KernelGraph([S, root, R, known], [value], _read_entries)


@cache
def _residuals(*kinds: Any) -> KernelGraph:
    z, S, coef, sigma2 = (kind() for kind in kinds)
    left = (z - S @ coef)[..., None]
    whitened = solve_triangular(pt.linalg.cholesky(S), left, lower=True)[..., 0]
    return KernelGraph([z, S, coef, sigma2], [whitened / pt.sqrt(sigma2)], _read_residuals)


@jit
def _read_entries(S: Any, root: Any, R: Any, first: Any) -> Any:
    holders, p, _ = S.shape
    shift, at = first.item(), 0
    value = np.empty(holders * (p * (p + 1) // 2 - shift))
    ordered, A = np.empty((p, p)), np.empty((p, p))
    for j in range(holders):
        for i in range(p):
            for k in range(p):
                ordered[i, k] = S[j, i - shift, k - shift]
        if not lower_cholesky(ordered, A):
            value[:] = np.nan
            return value
        for k in range(p):  # R A = L, column by column
            for i in range(k, p):
                for m in range(k, i):
                    A[i, k] -= R[i, m] * A[m, k]
                A[i, k] /= R[i, i]
        for i in range(shift, p):
            value[at] = np.sqrt(2.0) * root[j] * np.log(A[i, i] / root[j])
            at += 1
        for i in range(p):
            for k in range(i):
                value[at] = A[i, k]
                at += 1
    return value


@jit
def _read_residuals(z: Any, S: Any, coef: Any, sigma2: Any) -> Any:
    holders, p, _ = S.shape
    found, L = np.empty((holders, p)), np.empty((p, p))
    for j in range(holders):
        if not lower_cholesky(S[j], L):
            found[:] = np.nan
            return found
        for i in range(p):
            left = z[j, i]
            for k in range(p):
                left -= S[j, i, k] * coef[k]
            left /= np.sqrt(sigma2.item())
            for k in range(i):
                left -= L[i, k] * found[j, k]
            found[j, i] = left / L[i, i]
    return found


@jit
def _fill_factor(value: Any, at: int, root: float, first: int, A: Any) -> int:
    """Write one holder's factor from its entries, which begin at `at`; tell where they end."""
    p = len(A)
    if first:
        A[0, 0] = root
    for i in range(first, p):
        A[i, i] = root * np.exp(value[at] / (np.sqrt(2.0) * root))
        at += 1
    for i in range(p):
        for k in range(i):
            A[i, k] = value[at]
            at += 1
    return at


@jit
def _multiply_factor(R: Any, A: Any, L: Any) -> None:
    """Write R A, of lower triangles."""
    for i in range(len(A)):
        for m in range(i + 1):
            total = 0.0
            for k in range(m, i + 1):
                total += R[i, k] * A[k, m]
            L[i, m] = total


@jit
def _multiply_out(value: Any, root: Any, R: Any, first: Any) -> Any:
    holders, p, shift = len(root), len(R), first.item()
    S = np.empty((holders, p, p))
    A, L = np.zeros((p, p)), np.empty((p, p))
    at = 0
    for j in range(holders):
        at = _fill_factor(value, at, root[j], shift, A)
        _multiply_factor(R, A, L)
        for i in range(p):  # an intercept, first in L, is last in S
            for k in range(i + 1):
                total = 0.0
                for m in range(k + 1):
                    total += L[i, m] * L[k, m]
                S[j, i - shift, k - shift] = total
                S[j, k - shift, i - shift] = total
    return S


@jit
def _pull_grams(value: Any, root: Any, R: Any, first: Any, weights: Any) -> Any:
    holders, p, shift = len(root), len(R), first.item()
    by_value, by_root, by_R = np.empty_like(value), np.zeros(holders), np.zeros((p, p))
    A, L, by_L = np.zeros((p, p)), np.empty((p, p)), np.empty((p, p))
    at = 0
    for j in range(holders):
        start = at
        at = _fill_factor(value, at, root[j], shift, A)
        _multiply_factor(R, A, L)
        for i in range(p):
            for m in range(i + 1):  # (W + W') L
                total = 0.0
                for k in range(m, p):
                    weight = weights[j, i - shift, k - shift] + weights[j, k - shift, i - shift]
                    total += weight * L[k, m]
                by_L[i, m] = total
                for k in range(m, i + 1):
                    by_R[i, k] += total * A[k, m]
        below = start + p - shift
        for i in range(p):
            for m in range(i + 1):  # R' by_L
                total = 0.0
                for k in range(i, p):
                    total += R[k, i] * by_L[k, m]
                if m < i:
                    by_value[below] = total
                    below += 1
                elif i < shift:
                    by_root[j] += total
                else:
                    v = value[start + i - shift]
                    by_value[start + i - shift] = total * A[i, i] / (np.sqrt(2.0) * root[j])
                    by_root[j] += total * A[i, i] * (1.0 - v / (np.sqrt(2.0) * root[j])) / root[j]
    return by_value, by_root, by_R
