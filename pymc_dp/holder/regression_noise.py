"""Noise of a data holder's regression release: everything here is public."""

from __future__ import annotations

import numpy as np

from pymc_dp.accounting.budget import record_weight
from pymc_dp.graph.sensitivity import Sensitivity
from pymc_dp.holder.bounds import BoxBounds, NormBounds
from pymc_dp.holder.regression_sensitivity import averaged_sensitivity
from pymc_dp.holder.regression_statistics import StatisticsLayout
from pymc_dp.mechanisms import Gaussian, Laplace
from pymc_dp.types import Array, Neighbours

__all__ = ["EIGENVALUE_SHARE", "calibrated_noise", "eigenvalue_noise", "released_sensitivity"]

#: share of the statistics' sensitivity that each count takes: two of them add 1 % to the noise
COUNT_SHARE = 0.1
#: share of the guarantee that the smallest eigenvalue takes, where it is asked for
EIGENVALUE_SHARE = 1 / 3


def released_sensitivity(
    layout: StatisticsLayout, bounds: NormBounds | BoxBounds, neighbours: Neighbours, average: int
) -> Sensitivity:
    """Sensitivity of what is released."""
    record_weight(neighbours)
    if average == 1:
        return bounds.sensitivity(layout, neighbours)
    if int(average) != average or average < 1:
        raise ValueError(f"average must be a whole number of records, got {average!r}.")
    if layout.intercept or neighbours != "substitute" or not isinstance(bounds, NormBounds):
        raise ValueError(
            'average needs NormBounds, no intercept and neighbours="substitute": were a record '
            "removed, all later ones would move to other rows, by more than any noise covers."
        )
    return averaged_sensitivity(
        bounds.x_norm, bounds.y_bound, average, n_covariates=layout.n_covariates
    )


def calibrated_noise(
    sensitivity: Sensitivity, n_counts: int, size: int, epsilon: float, delta: float
) -> tuple[Gaussian | Laplace, Gaussian | Laplace, Array]:
    """Noise for all numbers on one scale, for each on its own, and its standard deviations.

    A count c of sensitivity 1 is released as if it were c * share * sensitivity, and scaled back.
    """
    if delta > 0:
        # times n_counts: a count of records and one of clipped ones change by 1 each
        together = sensitivity.l2 * np.sqrt(1 + n_counts * COUNT_SHARE**2)
        gaussian = Gaussian(epsilon=epsilon, delta=delta, sensitivity=together)
        sd = np.full(size + n_counts, float(gaussian.noise))
        sd[size:] /= COUNT_SHARE * sensitivity.l2
        return gaussian, Gaussian(sigma=sd), sd
    together = sensitivity.l1 * (1 + n_counts * COUNT_SHARE**2)
    laplace = Laplace(epsilon=epsilon, sensitivity=together)
    scale = np.full(size + n_counts, float(laplace.noise))
    scale[size:] /= COUNT_SHARE**2 * sensitivity.l1
    return laplace, Laplace(scale=scale), np.sqrt(2) * scale


def eigenvalue_noise(
    layout: StatisticsLayout,
    bounds: NormBounds | BoxBounds,
    average: int,
    epsilon: float,
    delta: float,
) -> Gaussian:
    """Noise for the smallest eigenvalue of X'X, at its share of the guarantee.

    One record changes it by at most the squared norm of a row, in either sense of neighbours, since
    eigenvalues are monotone.
    """
    if layout.intercept or average != 1 or not isinstance(bounds, NormBounds) or delta <= 0:
        raise ValueError(
            "smallest_eigenvalue needs NormBounds, delta > 0, no intercept, average=1."
        )
    share = EIGENVALUE_SHARE
    return Gaussian(epsilon=epsilon * share, delta=delta * share, sensitivity=bounds.x_norm**2)
