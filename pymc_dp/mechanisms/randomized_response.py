"""Randomised response: every record reports a category, not always its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import ArrayLike, NDArray
from pymc.vartypes import discrete_types
from pytensor.tensor.variable import TensorVariable

from pymc_dp.accounting.errors import PrivacyError
from pymc_dp.mechanisms.base import (
    Guarantee,
    Mechanism,
    check_finite,
    check_shape,
    check_whole,
    positive,
)
from pymc_dp.mechanisms.exact_sampling import weighted_choice
from pymc_dp.numerics.arguments import number, numbers

if TYPE_CHECKING:
    from pymc_dp.accounting.budget import PrivacyBudget

__all__ = ["RandomizedResponse"]


class RandomizedResponse(Mechanism):
    r"""Each record reports its own category, or another one, by known probabilities.

    The statistic is the vector of the records' categories 0, ..., k - 1. With `keep` a record tells
    the truth with that probability and one of the other categories otherwise, each alike; with
    `epsilon`, :math:`\text{keep} = e^\epsilon / (e^\epsilon + k - 1)` (Warner 1965 for two
    categories; Kairouz, Bonawitz & Ramage 2016 for more). The guarantee is local: it holds for
    every record's report, with epsilon the largest log-ratio within a column of the matrix.

    Parameters
    ----------
    n_categories : int, optional
        Number of categories, 2 or more.
    keep : float, optional
        Probability that the truth is reported, in (0, 1].
    epsilon : float, optional
        Local guarantee instead of `keep`.
    matrix : array of shape (k, r), optional
        Instead of all these, for asymmetric responses: row c has the probabilities of the r
        possible reports of a record in category c.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dp as pmdp
    >>> with pm.Model():
    ...     p = pm.Beta("p", 1, 1)
    ...     x = pm.Bernoulli("x", p, shape=4)
    ...     coin = pmdp.RandomizedResponse(2, keep=0.75)
    ...     reports = pmdp.Privatized("reports", x, coin, observed=[1, 0, 1, 1])
    >>> round(coin.guarantee().epsilon, 3)  # log(0.75 / 0.25)
    1.099
    """

    dtype = "int64"

    def __init__(
        self,
        n_categories: int | None = None,
        *,
        keep: float | None = None,
        epsilon: float | None = None,
        matrix: ArrayLike | None = None,
    ) -> None:
        given = (keep is not None) + (epsilon is not None) + (matrix is not None)
        if given != 1:
            raise ValueError(
                "Write RandomizedResponse(n_categories, keep=), RandomizedResponse(n_categories, "
                "epsilon=) or RandomizedResponse(matrix=)."
            )
        if matrix is not None:
            self.matrix = _checked_matrix(matrix, n_categories)
            return
        if n_categories is None or number("n_categories", n_categories) % 1 or n_categories < 2:
            raise ValueError(f"n_categories must be 2 or more, got {n_categories!r}.")
        k = int(n_categories)
        if epsilon is not None:
            # as a share of exp(-epsilon), which does not overflow
            keep = 1 / (1 + (k - 1) * np.exp(-float(positive("epsilon", epsilon))))
        keep = number("keep", keep)
        if not 0 < keep <= 1:
            raise ValueError(f"keep is a probability in (0, 1], got {keep!r}.")
        self.matrix = _symmetric(keep, k)

    @property
    def n_categories(self) -> int:
        """Number of categories of a record."""
        return len(self.matrix)

    @property
    def keep(self) -> float:
        """Probability that the truth is reported, where it is one for all categories."""
        truth = np.diagonal(self.matrix)
        if np.any(truth != truth[0]):
            raise AttributeError(f"{self!r} has a matrix= and no single keep=.")
        return float(truth[0])

    def logp(self, released: Any, statistic: Any) -> TensorVariable:
        """Symbolic log-probability of every record's report."""
        with np.errstate(divide="ignore"):
            table = pt.as_tensor(np.log(self.matrix))
        rows, columns = self.matrix.shape
        truth = pt.as_tensor(statistic).astype("int64")
        report = pt.as_tensor(released).astype("int64")
        inside = pt.and_(pt.and_(truth >= 0, truth < rows), pt.and_(report >= 0, report < columns))
        log_p = table[pt.clip(truth, 0, rows - 1), pt.clip(report, 0, columns - 1)]
        return pt.switch(inside, log_p, -np.inf)

    def draw(self, statistic: TensorVariable, rng: Any) -> tuple[Any, TensorVariable]:
        """Symbolic draw of every record's report."""
        p = pt.as_tensor(self.matrix)[statistic.astype("int64")]
        return pt.random.categorical(p, rng=rng, return_next_rng=True)

    def checked_input(self, statistic: ArrayLike) -> NDArray[np.int64]:
        """Insist on categories."""
        truth = check_whole("The statistic", statistic)
        self._check_range("the statistic", truth, self.matrix.shape[0])
        return truth

    def noised(self, value: NDArray) -> NDArray[np.int64]:
        """Draw every report exactly from operating-system entropy."""
        reports = [weighted_choice(self.matrix[c]) for c in value.ravel()]
        return np.array(reports, dtype=np.int64).reshape(value.shape)

    def check_charge(self, value: NDArray, sensitivity: ArrayLike | None = None) -> None:
        """Refuse tables: several reports of one record cost several times as much."""
        super().check_charge(value, sensitivity)
        if value.ndim > 1:
            raise ValueError(
                f"The statistic has shape {value.shape}, so that a record may have several "
                "reports, at the price of one: release every column by itself, or write all "
                "answers of a record as one category."
            )

    def charge(self, budget: PrivacyBudget, sensitivity: ArrayLike | None = None) -> None:
        """Claim the local guarantee: one record has one report. Their number must be public."""
        if budget.neighbours != "substitute":
            raise PrivacyError(
                "Reports reveal the number of records, which is not public under neighbours="
                f'{budget.neighbours!r}: charge a PrivacyBudget(neighbours="substitute").'
            )
        super().charge(budget, sensitivity)

    def guarantee(self, sensitivity: ArrayLike | None = None) -> Guarantee:
        """Local epsilon of one record's report; there is no sensitivity to give."""
        if sensitivity is not None:
            raise ValueError(
                "Randomised response has no sensitivity: its guarantee is the matrix's own. "
                "Write guarantee()."
            )
        drawn = self.matrix / self.matrix.sum(axis=1, keepdims=True)  # rows may be off by 1e-9
        highest, lowest = drawn.max(axis=0), drawn.min(axis=0)
        possible = highest > 0
        with np.errstate(divide="ignore"):
            epsilon = float(np.log(highest[possible] / lowest[possible]).max())
        return Guarantee(epsilon, 0.0, epsilon**2 / 2)

    def check_statistic(self, name: str, statistic: TensorVariable, shape: tuple[int, ...]) -> None:
        """Insist on a vector of categories."""
        if statistic.dtype not in discrete_types:
            raise ValueError(
                f"The statistic of {name!r} has type {statistic.dtype}: randomised response takes "
                "the vector of the records' categories, whole numbers from 0 on."
            )

    def checked_release(self, name: str, value: NDArray, shape: tuple[int, ...]) -> NDArray:
        """Insist on categories."""
        check_shape(name, value, shape)
        check_finite(name, value)
        reports = check_whole(f"The released value of {name!r} under {self!r}", value)
        self._check_range(f"the released value of {name!r}", reports, self.matrix.shape[1])
        return reports

    def _check_range(self, what: str, categories: NDArray[np.int64], number: int) -> None:
        outside = categories[(categories < 0) | (categories >= number)]
        if outside.size:
            raise ValueError(
                f"Category {outside.ravel()[0]} in {what} is out of range: {self!r} has "
                f"categories 0 to {number - 1}."
            )

    def __repr__(self) -> str:
        k, reports = self.matrix.shape
        if k == reports and np.all(self.matrix == _symmetric(self.matrix[0, 0], k)):
            return f"RandomizedResponse({k}, keep={self.matrix[0, 0]:.6g})"
        return f"RandomizedResponse(matrix=<{k}x{reports}>)"


def _symmetric(keep: float, k: int) -> NDArray[np.float64]:
    table = np.full((k, k), (1 - keep) / (k - 1))
    np.fill_diagonal(table, keep)
    return table


def _checked_matrix(matrix: ArrayLike, n_categories: int | None) -> NDArray[np.float64]:
    table = numbers("matrix", matrix)
    if table.ndim != 2 or table.shape[0] < 2:
        raise ValueError(f"matrix must have two or more rows, one a category, got {matrix!r}.")
    if n_categories not in (None, table.shape[0]):
        raise ValueError(f"matrix has {table.shape[0]} rows, n_categories is {n_categories!r}.")
    if not np.all((table >= 0) & (table <= 1)):
        raise ValueError("matrix has entries that are not probabilities in [0, 1].")
    if not np.allclose(table.sum(axis=1), 1, rtol=0, atol=1e-9):
        raise ValueError(f"Each row of matrix must sum to 1, got {table.sum(axis=1)}.")
    return table
