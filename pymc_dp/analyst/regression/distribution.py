"""Latent sufficient statistics of a linear regression, as a PyMC distribution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.continuous import Continuous
from pytensor.graph.basic import Variable
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.variable import TensorVariable

from pymc_dp.analyst.regression.clt import normal_record, record_moments
from pymc_dp.analyst.regression.moments import FixedMoments, NormalMoments, as_moments
from pymc_dp.analyst.regression.normal_x.wishart import CrossProductRV, GramRV
from pymc_dp.compat import (
    SymbolicRandomVariable,
    default_transform_rules,
    normalize_rng_param,
    normalize_size_param,
    rv_size_is_none,
)
from pymc_dp.graph.additivity import direct_inputs
from pymc_dp.graph.intervals import ONCE
from pymc_dp.holder.regression_statistics import StatisticsLayout, checked_count
from pymc_dp.mechanisms import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace, Mechanism

__all__ = [
    "RegressionStatistics",
    "RegressionStatisticsRV",
    "released_statistics",
    "smoothed",
]


class RegressionStatisticsRV(SymbolicRandomVariable):
    """Normal vector of regression statistics.

    Inputs after the generator and the size: n, coefficients, error variance, and mean and
    covariance of normal covariates where `normal`, else the two arrays of fixed moments.
    """

    _print_name = ("RegressionStatistics", "\\operatorname{RegressionStatistics}")

    def __init__(self, *args: Any, layout: StatisticsLayout, normal: bool, **kwargs: Any) -> None:
        self.layout = layout
        self.normal = normal
        super().__init__(*args, **kwargs)

    @classmethod
    def rv_op(
        cls,
        *params: Any,
        layout: StatisticsLayout,
        normal: bool,
        size: Any = None,
        rng: Any = None,
    ) -> TensorVariable:
        """Draw from the normal approximation."""
        rng, size = normalize_rng_param(rng), normalize_size_param(size)
        mean, cov = _mean_and_cov(layout, normal, *params)
        # by eigenvalues: covariances may be singular, e.g. where x is 0 or 1 and x^2 = x
        values, vectors = pt.linalg.eigh(cov)
        root = vectors * pt.sqrt(pt.maximum(values, 0))
        batch = () if rv_size_is_none(size) else tuple(size)
        next_rng, normal_draws = pt.random.normal(
            size=(*batch, layout.size), rng=rng, return_next_rng=True
        )
        draws = mean + (root * normal_draws[..., None, :]).sum(axis=-1)
        first = "d" if normal else "a,b"
        op = cls(
            [rng, size, *params],
            [next_rng, draws],
            layout=layout,
            normal=normal,
            extended_signature=f"[rng],[size],(),(p),(),({first}),(e,f)->[rng],(k)",
        )
        return op(rng, size, *params)

    def rebuild_rv(self, *args: Any, **kwargs: Any) -> TensorVariable:
        """Build again with other inputs."""
        return self.rv_op(*args, layout=self.layout, normal=self.normal, **kwargs)

    def mean_and_cov(self, *params: Any) -> tuple[Any, Any]:
        """Mean and covariance of the statistics, from the inputs after generator and size."""
        return _mean_and_cov(self.layout, self.normal, *params)


def _mean_and_cov(
    layout: StatisticsLayout, normal: bool, n: Any, coef: Any, sigma2: Any, a: Any, b: Any
) -> tuple[Any, Any]:
    mean, cov = (normal_record if normal else record_moments)(layout, coef, sigma2, a, b)
    return n * mean, n * cov


class RegressionStatistics(Continuous):
    r"""Unique entries of X'X, X'y and y'y of n unseen records.

    By the central limit theorem their distribution is
    :math:`\mathcal N(n\mu_t, n\Sigma_t)`, with :math:`\mu_t` and :math:`\Sigma_t` from the
    coefficients, the error variance and moments of x (Bernstein & Sheldon 2019, equations 2 and 3).
    It costs the same for ten records and for ten million. An approximation for few records: where
    n is small and the noise is smaller than the statistics, model the records themselves.

    :class:`~pymc_dp.GibbsSS` samples a model in which it is released by
    :func:`~pymc_dp.Privatized`; NUTS and prior predictive work as for any PyMC variable.

    Parameters
    ----------
    n : int
        Number of records, public.
    coef : tensor_like of float
        Coefficients, of shape (d,) or, with an intercept, (d + 1,) with the intercept last.
    sigma2 : tensor_like of float
        Error variance.
    x_moments : NormalMoments or FixedMoments
        Moments of the covariates: see :mod:`pymc_dp.analyst.regression.moments`.
    intercept : bool
        Whether the regression has one.

    Notes
    -----
    The order of the entries is that of :class:`~pymc_dp.regression.StatisticsLayout`; with one
    covariate and an intercept: sums of x^2, x, xy, y, y^2. The normal approximation also gives
    some probability to numbers that no data can have (a negative y'y).

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dp as pmdp
    >>> with pm.Model():
    ...     sigma2 = pm.InverseGamma("sigma2", 20, 0.5)
    ...     theta = pm.Normal("theta", 0, 6 * pm.math.sqrt(sigma2), shape=2)
    ...     x = pmdp.regression.NormalMoments(0.0, 0.02)
    ...     s = pmdp.RegressionStatistics("s", n=1000, coef=theta, sigma2=sigma2, x_moments=x)
    ...     noise = pmdp.Laplace(epsilon=1, sensitivity=5.34)
    ...     z = pmdp.Privatized("z", s, noise, observed=[21.0, 3.1, 14.2, 230.0, 90.5])
    """

    rv_type = RegressionStatisticsRV
    rv_op = RegressionStatisticsRV.rv_op

    @classmethod
    def dist(
        cls,
        n: Any,
        coef: Any,
        sigma2: Any,
        x_moments: NormalMoments | FixedMoments,
        *,
        intercept: bool = True,
        **kwargs: Any,
    ) -> TensorVariable:
        """Build an unregistered variable."""
        moments = as_moments(x_moments)
        if isinstance(moments, FixedMoments) and moments.intercept != intercept:
            raise ValueError(
                f"The moments were made for intercept={moments.intercept}, and the statistics have "
                f"intercept={intercept}: write the same in both."
            )
        layout = StatisticsLayout(moments.n_covariates, intercept)
        coef = pt.as_tensor(coef).astype("float64")
        _check_coefficients(coef, layout)
        sigma2 = pt.as_tensor(sigma2).astype("float64")
        if sigma2.type.ndim != 0:
            raise ValueError(f"sigma2 is one number, got {sigma2.type.ndim} dimensions.")
        _check_positive(sigma2)
        params = [_count_tensor(n), coef, sigma2, *moments.parameters]
        normal = isinstance(moments, NormalMoments)
        return super().dist(params, layout=layout, normal=normal, **kwargs)

    def support_point(rv: Any, rng: Any, size: Any, *params: Any) -> Any:  # noqa: N805
        """Return the mean."""
        mean, _ = rv.owner.op.mean_and_cov(*params)
        return pt.full_like(rv, mean)


@pm.logprob.abstract._logprob.register(RegressionStatisticsRV)
def _statistics_logprob(
    op: RegressionStatisticsRV, values: Any, rng: Any, size: Any, *params: Any, **kwargs: Any
) -> TensorVariable:
    [value] = values
    mean, cov = op.mean_and_cov(*params)
    return pm.logp(pm.MvNormal.dist(mean, cov=cov), value)


def _count_tensor(n: Any) -> TensorVariable:
    if isinstance(n, Variable):
        return pt.as_tensor(n).astype("float64")
    return pt.as_tensor(np.float64(checked_count(n)))


def _check_coefficients(coef: TensorVariable, layout: StatisticsLayout) -> None:
    p = layout.n_features
    if coef.type.ndim != 1 or coef.type.shape[0] not in (None, p):
        raise ValueError(
            f"coef has shape {coef.type.shape}; {layout.n_covariates} covariates"
            f"{' and an intercept (the last)' if layout.intercept else ''} need ({p},)."
        )


def _check_positive(sigma2: TensorVariable) -> None:
    """Refuse an error variance that can be negative, as far as its support or draws tell."""
    op = sigma2.owner.op if sigma2.owner is not None else None
    is_rv = isinstance(op, RandomVariable | SymbolicRandomVariable)
    positive = not is_rv or default_transform_rules(op, sigma2) is not None
    if positive:
        try:
            positive = bool(np.all(pm.draw(sigma2, 200, random_seed=1, mode=ONCE) > 0))
        except NotImplementedError:  # a prior that cannot be drawn from, such as HalfFlat
            return
    if not positive:
        raise ValueError(
            f"The prior of the error variance {sigma2.name or 'sigma2'} gives zero or negative "
            'values. Write a positive one, e.g. pm.InverseGamma("sigma2", 3, 1) (conjugate) or '
            'pm.HalfNormal("sd", 1) ** 2.'
        )


def smoothed(mechanism: Mechanism, statistic: TensorVariable, model: pm.Model) -> Mechanism:
    """Return the continuous form of integer noise, where it was added to regression statistics.

    Sums of integers are then modelled as continuous, and as a function of the sum the density of
    integer noise is that of the continuous one with the same parameter.
    """
    continuous = {DiscreteLaplace: Laplace, DiscreteGaussian: Gaussian}.get(type(mechanism))
    latent = (RegressionStatisticsRV, GramRV, CrossProductRV)
    reached = direct_inputs([statistic], model.basic_RVs)
    if continuous is None or not any(isinstance(rv.owner.op, latent) for rv in reached):
        return mechanism
    return continuous(mechanism.noise)


def released_statistics(statistic: TensorVariable, model: pm.Model) -> list[TensorVariable]:
    """Latent regression statistics that a statistic is computed from."""
    return [
        rv
        for rv in direct_inputs([statistic], model.basic_RVs)
        if isinstance(rv.owner.op, RegressionStatisticsRV)
    ]
