"""Where the moments of the covariates come from: a model, a prior, or a release.

Sections 3.4.4 of Bernstein & Sheldon (2019): a hierarchical normal prior (``-Update``) is
:class:`NormalMoments` of latent variables; a given prior (``-Prior``) is :class:`NormalMoments` of
numbers, :func:`student_moments`, or :func:`sample_moments`; released ones (``-Noisy``) are
:func:`noisy_moments`.
"""

from __future__ import annotations

import itertools
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import ArrayLike
from pytensor.graph.basic import Constant, Variable

from pymc_dp.analyst.regression.clt import product_covariance
from pymc_dp.holder.regression_statistics import StatisticsLayout, checked_count
from pymc_dp.numerics.positive import nearest_positive
from pymc_dp.types import Array

__all__ = [
    "FixedMoments",
    "NormalMoments",
    "fourth_moment_sums",
    "noisy_moments",
    "sample_moments",
    "student_moments",
]


class NormalMoments:
    """Moments of normal covariates, by Isserlis' formula.

    Mean and covariance may be random variables of the model, which are then inferred too.

    Parameters
    ----------
    mean : array_like or TensorVariable
        Of the covariates, of shape (d,); a number for one covariate.
    cov : array_like or TensorVariable
        Covariance, of shape (d, d); for one covariate its variance.

    Examples
    --------
    >>> from pymc_dp.regression import NormalMoments
    >>> NormalMoments(0.0, 1.0).n_covariates
    1
    """

    def __init__(self, mean: Any, cov: Any) -> None:
        self.mean = _float_tensor(mean)
        self.cov = _float_tensor(cov)
        if isinstance(self.mean, Constant) and not np.all(np.isfinite(self.mean.data)):
            raise ValueError(f"The mean of the covariates must be finite, got {mean!r}.")
        if isinstance(self.cov, Constant) and self.cov.type.ndim in (0, 2):
            _check_covariance("cov", np.atleast_2d(self.cov.data))
        if self.mean.type.ndim == 0:
            self.mean = self.mean[None]
        if self.cov.type.ndim == 0:
            self.cov = self.cov[None, None]
        if self.mean.type.ndim != 1 or self.cov.type.ndim != 2:
            raise ValueError(
                "The mean of the covariates must be a vector and their covariance a matrix, got "
                f"{self.mean.type.ndim} and {self.cov.type.ndim} dimensions."
            )
        sizes = {s for s in (*self.mean.type.shape, *self.cov.type.shape) if s is not None}
        if len(sizes) != 1:
            raise ValueError(
                f"The mean of the covariates has shape {self.mean.type.shape} and their covariance "
                f"{self.cov.type.shape}: write (d,) and (d, d), with a known d."
            )
        self.n_covariates: int = sizes.pop()

    @property
    def parameters(self) -> tuple[Any, Any]:
        """Inputs of the statistics' distribution."""
        return self.mean, self.cov


@dataclass(frozen=True)
class FixedMoments:
    """Known second moments of the features, and covariances of their products.

    Attributes
    ----------
    second : array of shape (p, p)
        E[x x'], the intercept's 1 included as the last feature.
    covariance : array
        Cov(x_i x_j, x_k x_l) between the unique entries of x x', in the order of
        :class:`StatisticsLayout`.
    intercept : bool
        Whether the last feature is the constant 1.

    Examples
    --------
    One covariate that is 0 or 1 with equal chances: what varies of x x' is x^2 and x.

    >>> from pymc_dp.regression import FixedMoments
    >>> moments = FixedMoments(
    ...     second=[[0.5, 0.5], [0.5, 1.0]],
    ...     covariance=[[0.25, 0.25], [0.25, 0.25]],
    ... )
    >>> moments.n_covariates
    1
    """

    second: Array
    covariance: Array
    intercept: bool = True

    def __post_init__(self) -> None:
        second = np.asarray(self.second, dtype=np.float64)
        covariance = np.asarray(self.covariance, dtype=np.float64)
        if second.ndim != 2 or second.shape[0] != second.shape[1]:
            raise ValueError(f"second must be a square matrix, got shape {second.shape}.")
        object.__setattr__(self, "second", second)
        object.__setattr__(self, "covariance", covariance)
        size = self.layout.n_xx
        if covariance.shape != (size, size):
            raise ValueError(
                f"covariance must have shape {(size, size)}, one row for each unique entry of "
                f"x x', got {covariance.shape}."
            )
        if self.intercept and not np.isclose(second[-1, -1], 1.0):
            raise ValueError("The intercept is the last feature: second[-1, -1] must be 1.")
        _check_covariance("second", second)
        _check_covariance("covariance", covariance)
        if self.intercept:
            mean = second[:-1, -1]
            of_x = second[:-1, :-1] - np.outer(mean, mean)
            if not np.allclose(of_x, _covariance_of_x(covariance, self.layout), rtol=1e-5):
                raise ValueError(
                    "second and covariance disagree about the covariance of x itself: these are "
                    "the moments of no distribution."
                )

    @property
    def layout(self) -> StatisticsLayout:
        """Order of the entries."""
        return StatisticsLayout(len(self.second) - self.intercept, self.intercept)

    @property
    def n_covariates(self) -> int:
        """Number of covariates, the intercept not counted."""
        return self.layout.n_covariates

    @property
    def parameters(self) -> tuple[Any, Any]:
        """Inputs of the statistics' distribution."""
        return pt.as_tensor(self.second), pt.as_tensor(self.covariance)

    @classmethod
    def from_fourth(cls, fourth: ArrayLike, second: ArrayLike | None = None) -> FixedMoments:
        """Take raw moments E[x_i x_j x_k x_l] of the features, of shape (p, p, p, p).

        With an intercept as the last feature they contain the second moments; without one, pass
        E[x_i x_j] as `second`.
        """
        raw = np.asarray(fourth, dtype=np.float64)
        if raw.ndim != 4 or len(set(raw.shape)) != 1:
            raise ValueError(f"fourth must have shape (p, p, p, p), got {raw.shape}.")
        if any(
            not np.allclose(raw, raw.transpose(order)) for order in itertools.permutations(range(4))
        ):
            raise ValueError("fourth is not symmetric: E[x_i x_j x_k x_l] has no order of indices.")
        intercept = second is None
        eta = raw[:, :, -1, -1] if second is None else np.asarray(second, dtype=np.float64)
        layout = StatisticsLayout(len(raw) - intercept, intercept)
        i, j = layout.pairs[: layout.n_xx].T
        products = raw[i[:, None], j[:, None], i[None, :], j[None, :]]
        return cls(eta, products - np.outer(eta[i, j], eta[i, j]), intercept)


def student_moments(
    df: float, mean: ArrayLike, scale: ArrayLike, *, intercept: bool = True
) -> FixedMoments:
    """Moments of multivariate Student t covariates, by formula.

    Under mean, cov ~ NIW(mu0, lambda, psi, nu) each record by itself is Student t with
    df = nu - d + 1, mean mu0 and scale psi (lambda + 1) / (lambda df).

    Parameters
    ----------
    df : float
        Degrees of freedom, above 4, or ``np.inf`` for a normal.
    mean : array_like
        Of shape (d,), or a number.
    scale : array_like
        Scale matrix, of shape (d, d), or a number: the covariance is scale * df / (df - 2).
    intercept : bool
        Whether the regression has one.

    Examples
    --------
    >>> from pymc_dp.regression import student_moments
    >>> float(student_moments(10, 0.0, 0.8).second[0, 0])
    1.0
    """
    if not df > 4:
        raise ValueError(f"Fourth moments need more than 4 degrees of freedom, got {df}.")
    m = np.atleast_1d(np.asarray(mean, dtype=np.float64))
    factor = 1.0 if np.isinf(df) else df / (df - 2)
    # a normal times an independent factor w: E[w^4] / E[w^2]^2
    kurtosis = 1.0 if np.isinf(df) else (df - 2) / (df - 4)
    cov = np.atleast_2d(np.asarray(scale, dtype=np.float64)) * factor
    if intercept:
        m = np.append(m, 1.0)
        cov = np.pad(cov, (0, 1))
    layout = StatisticsLayout(len(m) - intercept, intercept)
    pairs = layout.pairs[: layout.n_xx]
    i, j = pairs.T
    centred = product_covariance(0 * m, cov, pairs)
    excess = (kurtosis - 1) * (centred + np.outer(cov[i, j], cov[i, j]))
    covariance = product_covariance(m, cov, pairs) + excess
    return FixedMoments(cov + np.outer(m, m), covariance, intercept)


def sample_moments(
    x: Any,
    *,
    intercept: bool = True,
    draws: int = 100_000,
    random_seed: int | None = None,
) -> FixedMoments:
    """Moments of a prior for the covariates by Monte Carlo.

    Parameters
    ----------
    x : array_like or TensorVariable
        Draws of shape (draws, d), from the prior and never from confidential records; or an
        unregistered PyMC variable for one record, e.g. ``pm.Beta.dist(2, 3)`` or
        ``pm.MvNormal.dist(mu, cov)``.
    intercept : bool
        Whether the regression has one.
    draws : int
        How many to take of a variable.
    random_seed : int, optional
        For these draws.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_dp.regression import sample_moments
    >>> moments = sample_moments(pm.Uniform.dist(0, 1), random_seed=1)
    >>> float(moments.second[0, 0].round(2))
    0.33
    """
    values = pm.draw(x, draws, random_seed=random_seed) if isinstance(x, Variable) else x
    rows = np.asarray(values, dtype=np.float64)
    rows = rows[:, None] if rows.ndim == 1 else rows
    layout = StatisticsLayout(rows.shape[1], intercept)
    if intercept:
        rows = np.column_stack([rows, np.ones(len(rows))])
    i, j = layout.pairs[: layout.n_xx].T
    products = rows[:, i] * rows[:, j]
    covariance = np.atleast_2d(np.cov(products, rowvar=False, bias=True))
    return FixedMoments(rows.T @ rows / len(rows), covariance, intercept)


def fourth_moment_sums(
    X: ArrayLike, *, x_bounds: tuple[ArrayLike, ArrayLike] | None = None
) -> Array:
    """Sum all products of one to four covariates over records, each unique product once.

    For a data holder who releases moments of x (``-Noisy``). The order is that of
    ``itertools.combinations_with_replacement`` of four features, the intercept last, without the
    constant; with one covariate: sums of x^4, x^3, x^2, x.

    Parameters
    ----------
    X : array_like
        Covariates, of shape (n, d), or (n,) for one.
    x_bounds : (lower, upper), optional
        Public bounds to which values are clipped first. Each product's range then bounds how much
        one record can change its sum; for values in [0, 1] the l1 sensitivity is their number.

    Examples
    --------
    >>> from pymc_dp.regression import fourth_moment_sums
    >>> fourth_moment_sums([1.0, 2.0])
    array([17.,  9.,  5.,  3.])
    """
    x = np.asarray(X, dtype=np.float64)
    x = x[:, None] if x.ndim == 1 else x
    if x_bounds is not None:
        x = np.clip(x, *x_bounds)
    features = np.column_stack([x, np.ones(len(x))])
    return np.array([features[:, list(c)].prod(axis=1).sum() for c in _quadruples(x.shape[1])])


def noisy_moments(released: ArrayLike, n: int, *, n_covariates: int = 1) -> FixedMoments:
    """Moments from released noisy sums of products of covariates (``-Noisy``).

    Noise can make them the moments of no distribution. They are then repaired, with a warning: the
    covariance of all x_i and x_i x_j gets eigenvalues of at least a small positive number, the
    means stay as released, and second moments are what follows from both. The noise in them is not
    accounted for (section 3.4.4 of the paper): credible intervals come out too narrow where it is
    large.

    Parameters
    ----------
    released : array_like
        Noisy sums in the order of :func:`fourth_moment_sums`.
    n : int
        Number of records.
    n_covariates : int
        Number of covariates.

    Examples
    --------
    >>> from pymc_dp.regression import noisy_moments
    >>> moments = noisy_moments([20.5, 24.1, 33.0, 48.9], n=100)
    >>> float(moments.second[0, 0])
    0.33
    """
    quadruples = _quadruples(n_covariates)
    sums = np.asarray(released, dtype=np.float64)
    if sums.shape != (len(quadruples),):
        raise ValueError(
            f"{len(quadruples)} sums are expected for {n_covariates} covariates, in the order of "
            f"fourth_moment_sums; got shape {sums.shape}."
        )
    if not np.all(np.isfinite(sums)):
        raise ValueError("The released sums must be finite.")
    n = int(checked_count(n))
    p = n_covariates + 1
    raw = np.ones((p, p, p, p))
    for index, value in zip(quadruples, sums / n, strict=True):
        for order in set(itertools.permutations(index)):
            raw[order] = value
    second = raw[:, :, -1, -1].copy()
    layout = StatisticsLayout(n_covariates)
    i, j = layout.pairs[: layout.n_xx].T
    products = raw[i[:, None], j[:, None], i[None, :], j[None, :]]
    covariance, moved = _nearest_covariance(products - np.outer(second[i, j], second[i, j]))
    if moved:
        second[:-1, :-1] = _covariance_of_x(covariance, layout) + np.outer(
            second[:-1, -1], second[:-1, -1]
        )
        warnings.warn(
            "The released moments are those of no distribution, because of their noise: a variance "
            "is negative. They were moved to the nearest ones that are.",
            UserWarning,
            stacklevel=2,
        )
    return FixedMoments(second, covariance, True)


def _quadruples(n_covariates: int) -> list[tuple[int, ...]]:
    found = itertools.combinations_with_replacement(range(n_covariates + 1), 4)
    return [index for index in found if index != (n_covariates,) * 4]


def _covariance_of_x(covariance: Array, layout: StatisticsLayout) -> Array:
    """Pick out the products of x_i and the intercept."""
    own = np.flatnonzero(layout.pairs[: layout.n_xx, 1] == layout.n_features - 1)
    return covariance[np.ix_(own, own)]


def _nearest_covariance(matrix: Array) -> tuple[Array, bool]:
    """Raise eigenvalues, if any is negative, to a thousandth of the mean absolute one."""
    raised, negative = nearest_positive(matrix, lambda values: 1e-3 * float(np.abs(values).mean()))
    return (raised if negative else matrix), negative


def _check_covariance(name: str, matrix: Array) -> None:
    if not np.all(np.isfinite(matrix)) or not np.allclose(matrix, matrix.T):
        raise ValueError(f"{name} of the covariates must be finite and symmetric.")
    values = np.linalg.eigvalsh(matrix)
    if values[0] < -1e-9 * max(values[-1], 1e-300):
        raise ValueError(
            f"{name} has the negative eigenvalue {values[0]:.3g}: these are the moments of no "
            "distribution (a fourth moment below the square of a second, or second moments that "
            "are no covariance). For released noisy moments write noisy_moments(...)."
        )


def _float_tensor(value: Any) -> Any:
    if isinstance(value, Variable):
        return pt.as_tensor(value).astype("float64")
    return pt.as_tensor(np.asarray(value, dtype=np.float64))


def as_moments(given: Any) -> NormalMoments | FixedMoments:
    """Insist on moments of one of the two kinds."""
    if isinstance(given, NormalMoments | FixedMoments):
        return given
    if isinstance(given, list | tuple | np.ndarray):
        hint = "pmdp.regression.FixedMoments.from_fourth(...) for an array of fourth moments"
    else:
        hint = "pmdp.regression.NormalMoments(mu_x, cov_x) for normal covariates"
    raise TypeError(f"x_moments is {type(given).__name__}. Write {hint}.")
