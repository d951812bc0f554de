r"""Densities of Gram matrices and of what was released of them, each as one operation.

Both depend on small matrices, many times a draw: see :mod:`~pymc_dp.graph.kernel_graph`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.linalg import solve_triangular

from pymc_dp.graph.kernel_graph import DensityGraph
from pymc_dp.numerics.cholesky import lower_cholesky
from pymc_dp.numerics.compiled import jit

__all__ = ["log_determinants", "log_released"]

LOG_2PI = float(np.log(2 * np.pi))


def log_determinants(S: Any, prior: Any, powers: Any, power: Any, first: int) -> Any:
    r"""Evaluate :math:`\sum_j a_j \log|S_j| - b \log|\Psi + \sum_j S_j|`.

    Parameters
    ----------
    S : (J, p, p)
        Gram matrices, an intercept in the last place.
    prior : (p, p)
        The prior's matrix, in the same order.
    powers, power : (J,), ()
        a and b.
    first : int
        Whether there is an intercept: then its own entry of the total is taken out of the second
        determinant.
    """
    holders, p, _ = S.type.shape
    given = [_real(part) for part in (S, powers, power, prior)]
    made: Any = _determinants(holders, p, first)(*given, np.int64(first))
    return made[0]


def _real(part: Any) -> Any:
    return pt.as_tensor(part).astype("float64")


@cache
def _determinants(holders: int, p: int, first: int) -> DensityGraph:
    S = pt.tensor("S", dtype="float64", shape=(holders, p, p))
    powers = pt.tensor("powers", dtype="float64", shape=(holders,))
    power, prior = pt.dscalar("power"), pt.tensor("prior", dtype="float64", shape=(p, p))
    each = 2 * pt.log(pt.diagonal(pt.linalg.cholesky(S), axis1=-2, axis2=-1)).sum(axis=-1)
    whole = S.sum(axis=0) + prior
    left = 2 * pt.log(pt.diagonal(pt.linalg.cholesky(whole))).sum()
    if first:
        left = left - pt.log(whole[-1, -1])
    value = (powers * each).sum() - power * left
    known = pt.lscalar("first")
    return DensityGraph([S, powers, power, prior, known], value, 3, _log_determinants)


def log_released(
    S: Any, coef: Any, sigma2: Any, variances: Any, hat: Any, entries: tuple[Any, ...]
) -> Any:
    """Evaluate the log-density of noisy Gram matrices and X'y; X'y itself is integrated out.

    Parameters
    ----------
    S : (J, p, p)
        Gram matrices.
    coef, sigma2 : (p,), ()
        Coefficients and error variance.
    variances : (J, p)
        Of the noise on X'y.
    hat : (J, p)
        X'y with noise.
    entries : tuple of array
        Of noisy entries of the Gram matrices: their places one after the other, values, sigma or
        scale of their noise, and 1 where it is Laplace noise, 0 where it is Gaussian.
    """
    holders, p, _ = S.type.shape
    given = [_real(part) for part in (S, coef, sigma2, variances, hat, *entries[1:])]
    given.insert(5, pt.as_tensor(entries[0]))
    made: Any = _released(holders, p, len(entries[0]))(*given)
    return made[0]


@cache
def _released(holders: int, p: int, number: int) -> DensityGraph:
    S = pt.tensor("S", dtype="float64", shape=(holders, p, p))
    coef, sigma2 = pt.tensor("coef", dtype="float64", shape=(p,)), pt.dscalar("sigma2")
    variances, hat = (
        pt.tensor(name, dtype="float64", shape=(holders, p)) for name in ("variances", "hat")
    )
    place = pt.tensor("place", dtype="int64", shape=(number,))
    released, noise, laplace = (
        pt.tensor(name, dtype="float64", shape=(number,))
        for name in ("released", "noise", "laplace")
    )
    off = released - S.ravel()[place]
    normal = -0.5 * (off / noise) ** 2 - pt.log(noise) - 0.5 * LOG_2PI
    heavy = -pt.abs(off) / noise - pt.log(2 * noise)
    value = pt.switch(pt.eq(laplace, 1), heavy, normal).sum()
    spread = sigma2 * S + pt.eye(p) * variances[:, None, :]
    factor = pt.linalg.cholesky(spread)
    z = solve_triangular(factor, (hat - S @ coef)[..., None], lower=True, b_ndim=2)
    value -= 0.5 * (z**2).sum() + pt.log(pt.diagonal(factor, axis1=-2, axis2=-1)).sum()
    value -= 0.5 * LOG_2PI * holders * p
    inputs = [S, coef, sigma2, variances, hat, place, released, noise, laplace]
    return DensityGraph(inputs, value, 4, _log_released)


@jit
def _invert(factor: Any, out: Any) -> None:
    """Write the inverse of a matrix, from its lower Cholesky factor, which is overwritten."""
    p = len(factor)
    for k in range(p):  # inverse of the factor
        factor[k, k] = 1.0 / factor[k, k]
        for i in range(k + 1, p):
            total = 0.0
            for m in range(k, i):
                total -= factor[i, m] * factor[m, k]
            factor[i, k] = total / factor[i, i]
    for i in range(p):
        for k in range(i + 1):
            total = 0.0
            for m in range(i, p):
                total += factor[m, i] * factor[m, k]
            out[i, k] = total
            out[k, i] = total


@jit
def _log_determinants(S: Any, powers: Any, power: Any, prior: Any, first: Any) -> Any:
    holders, p, _ = S.shape
    by_S, by_powers, by_power = np.zeros((holders, p, p)), np.zeros(holders), np.zeros(())
    whole, factor, inverse = prior.copy(), np.empty((p, p)), np.empty((p, p))
    value = 0.0
    for j in range(holders + 1):
        last = j == holders
        if not last:
            whole += S[j]
        if not lower_cholesky(whole if last else S[j], factor):
            by_S[:] = 0.0
            return np.asarray(-np.inf), by_S, np.zeros(holders), np.zeros(())
        log_det = 0.0
        for i in range(p):
            log_det += 2.0 * np.log(factor[i, i])
        _invert(factor, inverse)
        if last:
            if first.item():
                log_det -= np.log(whole[p - 1, p - 1])
                inverse[p - 1, p - 1] -= 1.0 / whole[p - 1, p - 1]
            value -= power.item() * log_det
            by_power[()] = -log_det
            for k in range(holders):
                by_S[k] -= power.item() * inverse
        else:
            value += powers[j] * log_det
            by_powers[j] = log_det
            by_S[j] = powers[j] * inverse
    return np.asarray(value), by_S, by_powers, by_power


@jit
def _log_released(
    S: Any, coef: Any, sigma2: Any, variances: Any, hat: Any, place: Any, released: Any,
    noise: Any, laplace: Any,
) -> Any:  # fmt: skip
    holders, p, _ = S.shape
    s2 = sigma2.item()
    by_S, by_coef, by_s2 = np.zeros((holders, p, p)), np.zeros(p), 0.0
    by_variances = np.empty((holders, p))
    factor, inverse, u = np.empty((p, p)), np.empty((p, p)), np.empty(p)
    value = -0.5 * LOG_2PI * holders * p
    for entry in range(len(place)):
        j, rest = divmod(place[entry], p * p)
        i, k = divmod(rest, p)
        off, width = released[entry] - S[j, i, k], noise[entry]
        if laplace[entry]:
            value -= np.abs(off) / width + np.log(2.0 * width)
            by_S[j, i, k] += np.sign(off) / width
        else:
            value -= 0.5 * (off / width) ** 2 + np.log(width) + 0.5 * LOG_2PI
            by_S[j, i, k] += off / width**2
    for j in range(holders):
        for i in range(p):
            for k in range(i + 1):
                inverse[i, k] = s2 * S[j, i, k]
            inverse[i, i] += variances[j, i]
        if not lower_cholesky(inverse, factor):
            by_S[:], by_variances[:] = 0.0, 0.0
            return np.asarray(-np.inf), by_S, np.zeros(p), np.zeros(()), by_variances
        for i in range(p):
            value -= np.log(factor[i, i])
        _invert(factor, inverse)
        for i in range(p):  # hat - S coef
            u[i] = hat[j, i]
            for k in range(p):
                u[i] -= S[j, i, k] * coef[k]
        for i in range(p):  # times the inverse; the factor is no longer needed
            total = 0.0
            for k in range(p):
                total += inverse[i, k] * u[k]
            factor[0, i] = total
        for i in range(p):
            value -= 0.5 * u[i] * factor[0, i]
        u[:] = factor[0]
        for i in range(p):
            by_variances[j, i] = 0.5 * (u[i] * u[i] - inverse[i, i])
            for k in range(p):
                spread = 0.5 * (u[i] * u[k] - inverse[i, k])
                by_S[j, i, k] += u[i] * coef[k] + s2 * spread
                by_s2 += spread * S[j, i, k]
                by_coef[k] += S[j, i, k] * u[i]
    return np.asarray(value), by_S, by_coef, np.asarray(by_s2), by_variances
