"""Mean and covariance of one record's regression statistics: the normal approximation of their sum.

Bernstein & Sheldon (2019), section 3.4.1. With y = x'theta + e, e normal, a record's products are
linear in its products of covariates: x_k y = sum_l theta_l x_k x_l + e x_k and
y^2 = sum_kl theta_k theta_l x_k x_l + 2 e x'theta + e^2. Hence equations (2) and (3), without a
loop over fourth moments; Cov(x_i y, x_j y) is sigma^2 E[x_i x_j] and
sum_kl theta_k theta_l Cov(x_i x_k, x_j x_l), where the paper prints Cov(x_i x_j, x_k x_l).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt

from pymc_dp.holder.regression_statistics import StatisticsLayout

__all__ = ["normal_record", "product_covariance", "record_moments"]


def product_covariance(mean: Any, cov: Any, pairs: Any) -> Any:
    """Covariance of the products u_i u_j of a normal vector (Isserlis' formula).

    Cov(u_i u_j, u_k u_l) = C_ik C_jl + C_il C_jk + m_i m_k C_jl + m_j m_l C_ik + m_i m_l C_jk +
    m_j m_k C_il, every term of it a product of two factors: nothing cancels where means are large.

    Parameters
    ----------
    mean, cov : TensorVariable or array
        Of u.
    pairs : array of shape (k, 2)
        Which products.

    Returns
    -------
    TensorVariable or array of shape (k, k)
    """
    i, j = np.asarray(pairs).T
    m_i, m_j = mean[i], mean[j]
    c_ik, c_jl, c_il = cov[i][:, i], cov[j][:, j], cov[i][:, j]
    c_jk = c_il.T
    straight = c_ik * (c_jl + m_j[:, None] * m_j[None, :]) + c_jl * m_i[:, None] * m_i[None, :]
    crossed = c_il * (c_jk + m_j[:, None] * m_i[None, :]) + c_jk * m_i[:, None] * m_j[None, :]
    return straight + crossed


def normal_record(
    layout: StatisticsLayout, coef: Any, sigma2: Any, mean: Any, cov: Any
) -> tuple[Any, Any]:
    """Mean and covariance of a record's statistics where x is normal.

    Parameters
    ----------
    layout : StatisticsLayout
        The statistics.
    coef, sigma2 : TensorVariable
        Coefficients, of shape (p,), and error variance.
    mean, cov : TensorVariable
        Of the covariates, of shapes (d,) and (d, d).

    Returns
    -------
    mean, cov : TensorVariable
        Of shapes (k,) and (k, k).
    """
    d = layout.n_covariates
    slopes = coef[:d]
    cross = cov @ slopes
    spread = (slopes @ cross + sigma2)[None, None]
    level = slopes @ mean
    if layout.intercept:
        level = level + coef[d]
        zeros = np.zeros((d, 1))
        rows = [
            pt.concatenate([cov, zeros, cross[:, None]], axis=1),
            np.zeros((1, d + 2)),
            pt.concatenate([cross[None, :], np.zeros((1, 1)), spread], axis=1),
        ]
        u_mean = pt.concatenate([mean, np.ones(1), level[None]])
    else:
        rows = [
            pt.concatenate([cov, cross[:, None]], axis=1),
            pt.concatenate([cross[None, :], spread], axis=1),
        ]
        u_mean = pt.concatenate([mean, level[None]])
    u_cov = pt.concatenate(rows, axis=0)
    i, j = layout.pairs.T
    products = u_mean[i] * u_mean[j] + u_cov[i, j]
    return products, product_covariance(u_mean, u_cov, layout.pairs)


def record_moments(
    layout: StatisticsLayout, coef: Any, sigma2: Any, second: Any, covariance: Any
) -> tuple[Any, Any]:
    """Mean and covariance of a record's statistics from moments of x.

    Parameters
    ----------
    layout : StatisticsLayout
        The statistics.
    coef, sigma2 : TensorVariable
        Coefficients, of shape (p,), and error variance.
    second : TensorVariable or array of shape (p, p)
        E[x x'], the intercept included.
    covariance : TensorVariable or array
        Cov(x_i x_j, x_k x_l) of the layout's entries of X'X.

    Returns
    -------
    mean, cov : TensorVariable
        Of shapes (k,) and (k, k).
    """
    p = layout.n_features
    i, j = layout.pairs[: layout.n_xx].T
    k = np.arange(p)[:, None]
    # x'y and y^2 as linear maps of the products x_i x_j
    to_xy = (k == i) * coef[j][None, :] + ((k == j) & (i != j)) * coef[i][None, :]
    to_yy = coef[i] * coef[j] * np.where(i == j, 1.0, 2.0)
    maps = pt.concatenate([pt.eye(layout.n_xx), to_xy, to_yy[None, :]], axis=0)
    cross = second @ coef
    explained = coef @ cross
    by_error = pt.zeros((layout.size, layout.size))
    xy, yy = np.arange(layout.n_xx, layout.size - 1), layout.size - 1
    by_error = by_error[layout.n_xx : yy, layout.n_xx : yy].set(second)
    by_error = by_error[xy, yy].set(2 * cross)
    by_error = by_error[yy, xy].set(2 * cross)
    by_error = by_error[yy, yy].set(2 * sigma2 + 4 * explained)
    mean = pt.concatenate([second[i, j], cross, (sigma2 + explained)[None]])
    return mean, maps @ covariance @ maps.T + sigma2 * by_error
