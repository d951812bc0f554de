"""For data holders: release X'X and X'y with noise, in a form that can be sent."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pymc_dp.accounting.budget import PrivacyBudget
from pymc_dp.formats.document import Source, document_of, in_field, known_fields, write
from pymc_dp.formats.published import Published
from pymc_dp.holder.bounds import BoxBounds, NormBounds
from pymc_dp.holder.regression_noise import (
    EIGENVALUE_SHARE,
    calibrated_noise,
    eigenvalue_noise,
    released_sensitivity,
)
from pymc_dp.holder.regression_statistics import (
    StatisticsLayout,
    holder_layout,
    regression_statistics,
)
from pymc_dp.mechanisms import Gaussian, Laplace
from pymc_dp.mechanisms.base import one_positive, positive
from pymc_dp.numerics.arguments import number, numbers
from pymc_dp.types import Array, Neighbours

__all__ = ["RegressionRelease", "regression_release"]


#: what a document has beside the fields of every release
_DETAILS = (
    "n_covariates",
    "intercept",
    "noise",
    "noise_sd",
    "average",
    "clipped",
    "clipped_sd",
    "smallest_eigenvalue",
)


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

    Examples
    --------
    >>> import numpy as np
    >>> import pymc_dp as pmdp
    >>> from pymc_dp.regression import NormBounds, RegressionRelease
    >>> X, y = np.random.default_rng(1).normal(0, 0.3, size=(2, 500))  # confidential
    >>> bounds = NormBounds(x_norm=1, y_bound=1)
    >>> sent = pmdp.regression_release(X[:, None], y, bounds, epsilon=1, delta=1e-6).to_json()
    >>> received = RegressionRelease.from_json(sent)
    >>> received.n, received.epsilon, len(received.released)
    (500, 1.0, 2)
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
        for name, least in (("n_covariates", 1), ("average", 1), ("n", 1)):
            found = getattr(self, name)
            whole = isinstance(found, int | np.integer) and not isinstance(found, bool)
            if not whole or not least <= found < 2**53:
                rows = "a number of rows" if name == "n" else f"a whole number, {least} or more"
                raise ValueError(f"{name} must be {rows}, got {found!r}.")
        if not isinstance(self.intercept, bool | np.bool_):
            raise ValueError(f"intercept must be true or false, got {self.intercept!r}.")
        p = int(self.n_covariates) + bool(self.intercept)
        size = p * (p + 1) // 2 - bool(self.intercept) + p  # before the layout is made
        if self.noise not in ("gaussian", "laplace"):
            raise ValueError(f'noise must be "gaussian" or "laplace", not {self.noise!r}.')
        for name in ("released", "noise_sd"):
            found = numbers(name, getattr(self, name))
            if found.shape != (size,) or not np.all(np.isfinite(found)):
                raise ValueError(
                    f"{name} must be {size} finite numbers for {self.n_covariates} features"
                    f"{' and an intercept' if self.intercept else ''}, got shape {found.shape}."
                )
        positive("noise_sd", self.noise_sd)
        one_positive("clipped_sd", self.clipped_sd)
        for name in ("clipped", "smallest_eigenvalue"):
            each = getattr(self, name)
            known = each is not None or name == "clipped"
            if known and (isinstance(each, bool) or not np.isfinite(number(name, each))):
                raise ValueError(f"{name} must be a finite number, got {each!r}.")

    @property
    def layout(self) -> StatisticsLayout:
        """Order of the released numbers."""
        return holder_layout(self.n_covariates, self.intercept)

    @property
    def mechanism(self) -> Gaussian | Laplace:
        """The noise, for :func:`~pymc_dp.Privatized`."""
        sd = np.asarray(self.noise_sd)
        return Gaussian(sigma=sd) if self.noise == "gaussian" else Laplace(scale=sd / np.sqrt(2))

    def published(self) -> Published:
        """Return what releases of all kinds tell, checked: see :mod:`pymc_dp.formats`."""
        intercept = " and an intercept" if self.intercept else ""
        confidential = self.neighbours == "add_remove"
        return Published(
            f"unique entries of X'X, then X'y, of {self.n_covariates} features{intercept}",
            self.mechanism,
            self.released,
            sensitivity=self._checked_sensitivity(),
            neighbours=self.neighbours,  # type: ignore[arg-type]
            epsilon=self.epsilon,
            delta=self.delta,
            n=self.n,
            n_mechanism=self._noise_of_n().rounded().clamped(lower=1) if confidential else None,
            bounds=self.bounds,
        )

    def _noise_of_n(self) -> Gaussian | Laplace:
        """Both counts, of records and of those out of bounds, have the same noise."""
        sd = self.clipped_sd
        return Gaussian(sigma=sd) if self.noise == "gaussian" else Laplace(scale=sd / np.sqrt(2))

    def _checked_sensitivity(self) -> float:
        """Sensitivity within the bounds, if every number has the noise that the guarantee asks."""
        kinds: dict[Any, Any] = {("x_norm", "y_bound"): NormBounds, ("x", "y"): BoxBounds}
        kind = kinds.get(tuple(sorted(self.bounds)))
        if kind is None:
            raise ValueError(
                f"bounds: {dict(self.bounds)!r} are neither x_norm and y_bound nor x and y, without"
                " which nobody knows what the noise guarantees."
            )
        if (self.noise == "laplace") != (self.delta == 0):
            raise ValueError(
                f"guarantee: {self.noise} noise with delta {self.delta:g}: it is Laplace noise "
                "where delta is 0, and Gaussian noise where it is not."
            )
        bounds, share = kind(**self.bounds), 0.0
        sensitivity = released_sensitivity(self.layout, bounds, self.neighbours, self.average)  # type: ignore[arg-type]
        if self.smallest_eigenvalue is not None:
            share = EIGENVALUE_SHARE
            eigenvalue_noise(self.layout, bounds, self.average, self.epsilon, self.delta)
        _, _, sd = calibrated_noise(
            sensitivity,
            1 if self.neighbours == "substitute" else 2,
            self.layout.size,
            self.epsilon * (1 - share),
            self.delta * (1 - share),
        )
        for name, found in (("noise_sd", self.noise_sd), ("clipped_sd", [self.clipped_sd])):
            least = sd[0] if name == "noise_sd" else sd[-1]
            if np.min(found) < least * (1 - 1e-6):
                raise ValueError(
                    f"guarantee: {name} is {np.min(found):.6g}, and epsilon {self.epsilon:g} and "
                    f"delta {self.delta:g} within these bounds ask for {least:.6g}: its noise is "
                    "too small for that."
                )
        return sensitivity.l2 if self.noise == "gaussian" else sensitivity.l1

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """Write everything as JSON, to a file if one is named."""
        details = {name: getattr(self, name) for name in _DETAILS}
        return write("RegressionRelease", self.published().plain(), path, **details)

    @classmethod
    def from_json(cls, source: Source) -> RegressionRelease:
        """Read what :meth:`to_json` wrote: a file, the text itself, or its fields."""
        fields = document_of(source, ["RegressionRelease"])
        details = known_fields("details", fields["details"], _DETAILS)
        told = Published.from_plain(fields)
        if told.n is None or told.epsilon is None or told.bounds is None:
            raise ValueError("guarantee, n and bounds of a RegressionRelease must not be null.")
        with in_field("details"):
            release = cls(
                released=told.value.tolist(),
                n=int(told.n),
                epsilon=told.epsilon,
                delta=told.delta,
                neighbours=str(told.neighbours),
                bounds=told.bounds,
                **details,
            )
        with in_field("details"):
            own = release.published()
        own.check_agrees(told)
        return release

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
    sensitivity = released_sensitivity(layout, bounds, neighbours, average)
    clipped_X, clipped_y = bounds.clip(X, y)
    out = np.any(clipped_X != X, axis=1) | (clipped_y != y)
    rows, responses = _averaged(clipped_X, clipped_y, int(average))
    statistics = regression_statistics(rows, responses, intercept=intercept, parts=layout.parts)
    share = 1 - EIGENVALUE_SHARE if smallest_eigenvalue else 1.0
    counts = (
        [float(out.sum())] if neighbours == "substitute" else [float(out.sum()), float(len(rows))]
    )
    vector = np.concatenate([statistics, counts])
    calibrated, mechanism, sd = calibrated_noise(
        sensitivity, len(counts), layout.size, epsilon * share, delta * share
    )
    extra = None
    if smallest_eigenvalue:
        extra = eigenvalue_noise(layout, bounds, average, epsilon, delta)
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


def _averaged(X: Array, y: Array, size: int) -> tuple[Array, Array]:
    """Sum `size` consecutive rows and divide by the square root of `size`."""
    groups = len(X) // size
    if size > 1 and not groups:
        raise ValueError(f"average={size} needs at least so many records, got {len(X)}.")
    X, y = X[: groups * size], y[: groups * size]
    sums = X.reshape(groups, size, X.shape[1]).sum(1), y.reshape(groups, size).sum(1)
    return sums[0] / np.sqrt(size), sums[1] / np.sqrt(size)


def _eigenvalue(X: Array, mechanism: Gaussian, delta: float) -> float:
    """Noisy lower bound of the smallest eigenvalue of X'X (Wang 2018, Algorithm 2).

    The bound holds with probability 1 - delta/2 or more.
    """
    value = float(mechanism.release(np.linalg.eigvalsh(X.T @ X)[0]))
    # delta here is a third of the guarantee's: 2 / delta is Wang's 6 / delta
    return max(value - float(mechanism.noise) * np.sqrt(2 * np.log(2 / delta)), 0.0)
