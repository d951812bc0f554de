"""Regression statistics of several data holders as latent variables of a PyMC model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import ArrayLike, NDArray
from pymc.vartypes import discrete_types
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_dp.analyst.regression.normal_x.wishart import CrossProductRV, GramRV
from pymc_dp.graph.intervals import ONCE
from pymc_dp.holder.regression_statistics import holder_layout

__all__ = ["HolderStatistics"]


def HolderStatistics(  # noqa: N802  (declares variables, as pm.Normal beside it does)
    name: str,
    *,
    n: Any,
    coef: Any,
    sigma2: Any,
    cov_x: Any,
    mean_x: Any = None,
) -> list[TensorVariable]:
    r"""Declare the regression statistics of J data holders with normal features.

    .. math::

        S_j = X_j^T X_j \sim \mathrm{Wishart}(\Sigma_x, n_j), \qquad
        z_j = X_j^T y_j \mid S_j \sim N(S_j \theta, \sigma^2 S_j)

    (Alparslan, Yildirim & Birbil 2023, Proposition 3.1 and section 4.1). The cost of everything
    that follows does not depend on the number of records.

    Two variables enter the model, ``{name}_S`` of shape (J, p, p) and ``{name}_z`` of shape (J, p).
    ``pm.sample`` picks :class:`~pymc_dp.NormalX` for them and for the parameters with conjugate
    priors; NUTS samples them too, on unbounded scales.

    Parameters
    ----------
    name : str
        Prefix of the variables' names.
    n : array of int, shape (J,), or sequence of int and TensorVariable
        Number of records of each holder; a number where there is one holder. Where only a noisy
        count of a holder's records is known, the number is a variable of the model:
        ``pmdp.unknown_size("n", prior).sum()``, see :func:`~pymc_dp.unknown_size`. Such a model is
        sampled with z integrated out (:func:`~pymc_dp.marginalize`).
    coef : TensorVariable, shape (p,)
        Regression coefficients, the intercept last where there is one.
    sigma2 : TensorVariable
        Error variance (not the standard deviation).
    cov_x : TensorVariable or array, shape (d, d)
        Covariance of the features: :class:`~pymc_dp.regression.InverseWishart`, a known matrix, or
        what ``pm.LKJCholeskyCov`` gives.
    mean_x : TensorVariable or array, shape (d,), optional
        Mean of the features. With it the regression has an intercept (appendix B.2), and the
        statistics are those of X with a column of ones appended. Without it features are centred
        at zero and there is none.

    Returns
    -------
    list of TensorVariable
        For every holder the vector of unique entries of S_j and then z_j, to pass to
        :func:`~pymc_dp.Privatized`; its order is that of
        ``StatisticsLayout(d, intercept, ("xx", "xy"))``.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_dp as pmdp
    >>> with pm.Model():
    ...     coef = pm.Normal("coef", 0, 2, shape=2)
    ...     sigma2 = pm.InverseGamma("sigma2", 3, 1)
    ...     cov_x = pmdp.regression.InverseWishart("cov_x", nu=4, psi=np.eye(2))
    ...     holders = pmdp.HolderStatistics("h", n=[100], coef=coef, sigma2=sigma2, cov_x=cov_x)
    ...     released = [104.0, 3.0, 95.0, 101.0, -8.0]  # x0*x0, x0*x1, x1*x1, x0*y, x1*y
    ...     r = pmdp.Privatized("release", holders[0], pmdp.Gaussian(sigma=5), observed=released)
    ...     idata = pmdp.sample(50, tune=50, chains=1, cores=1, quiet=True)
    """
    model = pm.modelcontext(None)
    _check_known(name, sigma2, cov_x)
    cov = pt.as_tensor_variable(cov_x).astype("float64")
    d = _side(name, cov)
    first = int(mean_x is not None)
    layout = holder_layout(d, bool(first))
    p = layout.n_features
    counts = _counts(name, n, p)
    coef = pt.as_tensor_variable(coef).astype("float64")
    if coef.type.ndim != 1 or coef.type.shape[0] not in (p, None):
        last = f"{d} slopes and the intercept, in this order" if first else f"{d} slopes"
        raise ValueError(
            f"coef of {name!r} has shape {coef.type.shape}, expected ({p},): {last}. "
            "An intercept needs mean_x, the mean of the features."
        )
    sigma2 = pt.as_tensor_variable(sigma2).astype("float64")
    if sigma2.type.ndim != 0:
        raise ValueError(f"sigma2 of {name!r} must be one variance, got {sigma2.type.ndim} axes.")
    mean = pt.as_tensor_variable(np.zeros(d) if mean_x is None else mean_x).astype("float64")
    if mean.type.ndim != 1 or mean.type.shape[0] not in (d, None):
        raise ValueError(f"mean_x of {name!r} has shape {mean.type.shape}, expected ({d},).")
    S = GramRV.rv_op(
        counts,
        pt.specify_shape(mean, (d,)),
        pt.specify_shape(cov, (d, d)),
        first,
    )
    S = model.register_rv(S, f"{name}_S")
    z = CrossProductRV.rv_op(S, pt.specify_shape(coef, (p,)), sigma2)
    z = model.register_rv(z, f"{name}_z")
    i, k = layout.pairs[: layout.n_xx].T
    return [pt.concatenate([S[j][i, k], z[j]]) for j in range(counts.type.shape[0])]


def _check_known(name: str, sigma2: Any, cov_x: Any) -> None:
    """Insist that a variance and a covariance matrix given as numbers can be ones."""
    if not isinstance(sigma2, Variable) and not np.all(np.asarray(sigma2) > 0):
        raise ValueError(f"sigma2 of {name!r} is a variance and must be positive, got {sigma2!r}.")
    if isinstance(cov_x, Variable) or np.ndim(cov_x) != 2 or len(set(np.shape(cov_x))) != 1:
        return  # to be sampled, or of a shape that is refused later
    cov = np.asarray(cov_x, dtype=np.float64)
    if not np.allclose(cov, cov.T) or not np.linalg.eigvalsh(cov)[0] > 0:
        raise ValueError(f"cov_x of {name!r} must be symmetric and positive definite.")


def _side(name: str, cov: TensorVariable) -> int:
    if cov.type.ndim != 2:
        raise ValueError(
            f"cov_x of {name!r} must be a matrix, got {cov.type.ndim} axes. For one feature write "
            "[[variance]]."
        )
    sides = [side for side in cov.type.shape if side is not None]
    side = sides[0] if sides else int(cov.shape[0].eval(mode=ONCE))
    if any(other != side for other in sides):
        raise ValueError(f"cov_x of {name!r} must be square, got shape {cov.type.shape}.")
    return int(side)


def _counts(name: str, n: Any, p: int) -> TensorVariable:
    """Numbers of records as a vector; those that are latent are whole by their priors."""
    listed = list(n) if isinstance(n, list | tuple) else [n]
    if not any(isinstance(one, Variable) for one in listed):
        return pt.as_tensor_variable(_known_counts(name, n, p))
    counts = []
    for one in listed:
        if not isinstance(one, Variable):
            counts.append(pt.constant(_known_counts(name, one, p)[0]))
            continue
        number: Any = pt.as_tensor_variable(one)
        if number.type.ndim or number.dtype not in discrete_types:
            raise ValueError(
                f"n of {name!r} must be whole numbers, one a holder; {one} is {number.dtype} with "
                f"{number.type.ndim} axes. Write [n_0, n_1], each a number or "
                'pmdp.unknown_size("n_0", pm.DiscreteUniform.dist(1, 5000)).sum().'
            )
        counts.append(number.astype("float64"))
    return pt.stack(counts)


def _known_counts(name: str, n: ArrayLike, p: int) -> NDArray[np.float64]:
    counts = np.atleast_1d(np.asarray(n, dtype=np.float64))
    if (
        counts.ndim != 1
        or not counts.size
        or not np.all(np.isfinite(counts))
        or np.any(counts != np.round(counts))
    ):
        raise ValueError(f"n of {name!r} must be whole numbers, one a holder, got {n!r}.")
    for j in np.flatnonzero(counts < p):
        raise ValueError(
            f"Holder {j} of {name!r} has n = {counts[j]:.0f} records and {p} coefficients: its X'X "
            "is singular, and has no Wishart density. Let such holders pool their records "
            "before they release, or use fewer features; a model with latent records "
            "(RecordGibbs) takes any n."
        )
    return counts
