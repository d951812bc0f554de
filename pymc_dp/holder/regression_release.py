"""For data holders: release X'X and X'y with noise, in a form that can be sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pymc_dp.accounting.budget import PrivacyBudget, record_weight
from pymc_dp.graph.sensitivity import Sensitivity
from pymc_dp.holder.bounds import BoxBounds, NormBounds
from pymc_dp.holder.regression_sensitivity import averaged_sensitivity
from pymc_dp.holder.regression_statistics import (
    StatisticsLayout,
    holder_layout,
    regression_statistics,
)
from pymc_dp.mechanisms import Gaussian, Laplace
from pymc_dp.mechanisms.base import positive
from pymc_dp.types import Array, Neighbours

__all__ = ["RegressionRelease", "regression_release"]


#: share of the statistics' sensitivity that each count takes: two of them add 1 % to the noise
COUNT_SHARE = 0.1


@dataclass(frozen=True)
class RegressionRelease:
    """What a holder sends: noisy statistics, their noise and what they guarantee.

    Attributes
    ----------
    released : list of float
        Noisy unique entries of X'X, then noisy X'y.
    n : int
        Number of rows behind them: records, or groups of averaged records. Noisy where neighbours
        differ in a record's presence, since the number is then confidential itself.
    n_covariates : int
        Number of features, the intercept not counted.
    intercept : bool
        Whether X has a column of ones, the last.
    noise : str
        ``"gaussian"`` or ``"laplace"``.
    noise_sd : list of float
        Standard deviation of the noise of every released number.
    epsilon, delta : float
        Guarantee of everything in this object together.
    neighbours : str
        ``"substitute"`` or ``"add_remove"``.
    bounds : dict
        The public bounds.
    average : int
        How many records make a row.
    clipped, clipped_sd : float
        Noisy number of records outside of the bounds, and the noise's standard deviation.
    smallest_eigenvalue : float or None
        Noisy lower bound of the smallest eigenvalue of X'X, for :func:`adassp`.
    """

    released: list[float]
    n: int
    n_covariates: int
    intercept: bool
    noise: str
    noise_sd: list[float]
    epsilon: float
    delta: float
    neighbours: str
    bounds: Mapping[str, Any]
    average: int
    clipped: float
    clipped_sd: float
    smallest_eigenvalue: float | None = None

    def __post_init__(self) -> None:
        size = self.layout.size
        if self.noise not in ("gaussian", "laplace"):
            raise ValueError(f'noise must be "gaussian" or "laplace", not {self.noise!r}.')
        for name in ("released", "noise_sd"):
            numbers = np.asarray(getattr(self, name), dtype=np.float64)
            if numbers.shape != (size,) or not np.all(np.isfinite(numbers)):
                raise ValueError(
                    f"{name} must be {size} finite numbers for {self.n_covariates} features"
                    f"{' and an intercept' if self.intercept else ''}, got shape {numbers.shape}."
                )
        positive("noise_sd", self.noise_sd)
        if not isinstance(self.n, int) or self.n < 1:
            raise ValueError(f"n must be a number of rows, got {self.n!r}.")

    @property
    def layout(self) -> StatisticsLayout:
        """Order of the released numbers."""
        return holder_layout(self.n_covariates, self.intercept)

    @property
    def mechanism(self) -> Gaussian | Laplace:
        """The noise, for :func:`~pymc_dp.Privatized`."""
        sd = np.asarray(self.noise_sd)
        return Gaussian(sigma=sd) if self.noise == "gaussian" else Laplace(scale=sd / np.sqrt(2))

    def to_json(self) -> str:
        """Write everything as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> RegressionRelease:
        """Read what :meth:`to_json` wrote."""
        try:
            return cls(**json.loads(text))
        except (json.JSONDecodeError, TypeError) as error:
            raise ValueError(f"This is not the JSON of a RegressionRelease: {error}.") from error

    def __str__(self) -> str:
        return (
            f"{len(self.released)} regression statistics of {self.n} rows, {self.noise} noise; "
            f"epsilon {self.epsilon:g}, delta {self.delta:g} ({self.neighbours}); "
            f"records out of bounds: {self.clipped:.0f} (noise sd {self.clipped_sd:.0f})"
        )


def regression_release(
    X: ArrayLike,
    y: ArrayLike,
    bounds: NormBounds | BoxBounds,
    epsilon: float,
    delta: float,
    *,
    neighbours: Neighbours = "substitute",
    intercept: bool = False,
    average: int = 1,
    smallest_eigenvalue: bool = False,
    budget: PrivacyBudget | None = None,
) -> RegressionRelease:
    """Clip records, sum X'X and X'y, and release them with calibrated noise.

    Values out of bounds are clipped, and how many records that were is released with noise of its
    own, at the price of 1 % more noise on everything. The guarantee holds for all numbers in the
    result together.

    Parameters
    ----------
    X : array (n, d)
        Features.
    y : array (n,)
        Responses.
    bounds : NormBounds or BoxBounds
        Public bounds: chosen without looking at the data.
    epsilon, delta : float
        The guarantee. Gaussian noise by the analytic calibration of Balle & Wang (2018); with
        ``delta=0`` Laplace noise.
    neighbours : {"substitute", "add_remove"}
        Tables that differ in one record's values, or in a record's presence; then n is released
        with noise too.
    intercept : bool
        Append a column of ones to X.
    average : int
        Average so many consecutive records, times the square root of their number, to make rows
        more normal (Alparslan, Yildirim & Birbil 2023, appendix B.1); a remainder is left out. Its
        sensitivity is up to twice as large, which the paper overlooks. Needs NormBounds and
        ``neighbours="substitute"``: without one record all later ones are in other rows.
    smallest_eigenvalue : bool
        Spend a third of the guarantee on the smallest eigenvalue of X'X, for :func:`adassp`.
    budget : PrivacyBudget, optional
        Pays for the release, with the same neighbours. It is charged for the noise that `epsilon`
        and `delta` ask for before that is drawn; what does not fit is refused.

    Returns
    -------
    RegressionRelease
        To send as JSON.

    Raises
    ------
    ValueError
        Also where X or y has entries that are not finite: leave such records out before. The error
        is for the holder; that it was raised is not covered by the guarantee.
    PrivacyError
        If the budget does not cover the release.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_dp as pmdp
    >>> rng = np.random.default_rng(1)
    >>> X = rng.normal(0, 0.3, (500, 2))
    >>> y = X @ [1.0, -0.5] + rng.normal(0, 0.3, 500)
    >>> bounds = pmdp.regression.NormBounds(x_norm=1.0, y_bound=1.5)
    >>> sent = pmdp.regression_release(X, y, bounds, epsilon=1, delta=1e-4).to_json()
    >>> received = pmdp.regression.RegressionRelease.from_json(sent)
    >>> received.n, received.mechanism.noise.round(2)
    (500, array([9.6, 9.6, 9.6, 9.6, 9.6]))
    """
    X, y = _checked(X, y, bounds)
    if not delta >= 0:
        raise ValueError(f"delta must be 0, for Laplace noise, or positive, got {delta!r}.")
    if budget is not None and budget.neighbours != neighbours:
        raise ValueError(
            f"The budget's neighbours are {budget.neighbours!r}, the release's {neighbours!r}: "
            f"write regression_release(..., neighbours={budget.neighbours!r})."
        )
    layout = holder_layout(X.shape[1], intercept)
    sensitivity = _sensitivity(layout, bounds, neighbours, average)
    clipped_X, clipped_y = bounds.clip(X, y)
    out = np.any(clipped_X != X, axis=1) | (clipped_y != y)
    rows, responses = _averaged(clipped_X, clipped_y, int(average))
    statistics = regression_statistics(rows, responses, intercept=intercept, parts=layout.parts)
    share = 2 / 3 if smallest_eigenvalue else 1.0
    counts = (
        [float(out.sum())] if neighbours == "substitute" else [float(out.sum()), float(len(rows))]
    )
    vector = np.concatenate([statistics, counts])
    calibrated, mechanism, sd = _calibrated(
        sensitivity, len(counts), layout.size, epsilon * share, delta * share
    )
    extra = None
    if smallest_eigenvalue:
        extra = _eigenvalue_noise(layout, bounds, average, epsilon / 3, delta / 3)
    if budget is not None:
        noises = [calibrated] if extra is None else [calibrated, extra]
        budget.claim([noise.cost() for noise in noises], "regression release")
    noisy = mechanism.release(vector)
    eigenvalue = None if extra is None else _eigenvalue(rows, extra, delta / 3)
    return RegressionRelease(
        released=[float(v) for v in noisy[: layout.size]],
        n=len(rows) if neighbours == "substitute" else max(round(float(noisy[-1])), 1),
        n_covariates=X.shape[1],
        intercept=bool(intercept),
        noise="gaussian" if delta > 0 else "laplace",
        noise_sd=[float(s) for s in sd[: layout.size]],
        epsilon=float(epsilon),
        delta=float(delta),
        neighbours=neighbours,
        bounds=bounds.plain(),
        average=int(average),
        clipped=float(noisy[layout.size]),
        clipped_sd=float(sd[layout.size]),
        smallest_eigenvalue=eigenvalue,
    )


def _checked(X: ArrayLike, y: ArrayLike, bounds: Any) -> tuple[Array, Array]:
    if not isinstance(bounds, NormBounds | BoxBounds):
        raise TypeError(
            f"bounds is {bounds!r}. Write pmdp.regression.NormBounds(x_norm=, y_bound=) or "
            "pmdp.regression.BoxBounds(x=(lower, upper), y=(lower, upper)), without seeing data."
        )
    X, y = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if X.ndim != 2 or y.shape != X.shape[:1]:
        raise ValueError(f"X has shape {X.shape} and y {y.shape}: write (n, d) and (n,).")
    if not (np.all(np.isfinite(X)) and np.all(np.isfinite(y))):
        raise ValueError("X or y has NaN or infinite entries: leave incomplete records out.")
    return X, y


def _sensitivity(
    layout: StatisticsLayout, bounds: NormBounds | BoxBounds, neighbours: Neighbours, average: int
) -> Sensitivity:
    """Sensitivity of what is released; everything here is public."""
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


def _averaged(X: Array, y: Array, size: int) -> tuple[Array, Array]:
    """Sum `size` consecutive rows and divide by the square root of `size`."""
    groups = len(X) // size
    if size > 1 and not groups:
        raise ValueError(f"average={size} needs at least so many records, got {len(X)}.")
    X, y = X[: groups * size], y[: groups * size]
    sums = X.reshape(groups, size, X.shape[1]).sum(1), y.reshape(groups, size).sum(1)
    return sums[0] / np.sqrt(size), sums[1] / np.sqrt(size)


def _calibrated(
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


def _eigenvalue_noise(
    layout: StatisticsLayout,
    bounds: NormBounds | BoxBounds,
    average: int,
    epsilon: float,
    delta: float,
) -> Gaussian:
    """Noise for the smallest eigenvalue of X'X.

    One record changes it by at most the squared norm of a row, in either sense of neighbours, since
    eigenvalues are monotone.
    """
    if layout.intercept or average != 1 or not isinstance(bounds, NormBounds) or delta <= 0:
        raise ValueError(
            "smallest_eigenvalue needs NormBounds, delta > 0, no intercept, average=1."
        )
    return Gaussian(epsilon=epsilon, delta=delta, sensitivity=bounds.x_norm**2)


def _eigenvalue(X: Array, mechanism: Gaussian, delta: float) -> float:
    """Noisy lower bound of the smallest eigenvalue of X'X (Wang 2018, Algorithm 2).

    The bound holds with probability 1 - delta/2 or more.
    """
    value = float(mechanism.release(np.linalg.eigvalsh(X.T @ X)[0]))
    # delta here is a third of the guarantee's: 2 / delta is Wang's 6 / delta
    return max(value - float(mechanism.noise) * np.sqrt(2 * np.log(2 / delta)), 0.0)
