"""Mechanisms that choose a value by its score: exponential and K-norm gradient."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from numpy.typing import ArrayLike, NDArray
from pytensor.graph.replace import vectorize_graph
from pytensor.tensor.variable import TensorVariable

from pymc_dp.accounting.errors import PrivacyError
from pymc_dp.mechanisms.base import (
    Guarantee,
    Mechanism,
    check_finite,
    check_shape,
    one_positive,
    warn_floating_point,
)
from pymc_dp.mechanisms.custom import cannot_draw, check_uses
from pymc_dp.numerics.arguments import numbers
from pymc_dp.numerics.entropy import system_uniform

__all__ = ["ExponentialMechanism", "KNormGradient"]


class ExponentialMechanism(Mechanism):
    r"""Released = r with probability proportional to exp(epsilon u(x, r) / (2 sensitivity)).

    McSherry & Talwar (2007). The statistic is the records themselves, the utility a sum over
    them; or any sums over the records from which the utility is computed. The normaliser depends
    on the records: over finitely many candidates it is summed, and enters every acceptance ratio.

    Parameters
    ----------
    utility : callable
        ``utility(statistic, candidate)``: a scalar PyTensor expression, the larger the better.
    epsilon : float
        Guarantee.
    sensitivity : float
        The most that one record can change the utility of any candidate.
    candidates : array of shape (k,) or (k, d), optional
        The values among which one is released.
    log_normaliser : callable, optional
        Instead of `candidates`, for a continuous choice: ``log_normaliser(statistic)``, the log of
        the integral of ``exp(epsilon u / (2 sensitivity))`` over r. Pass as the statistic the sums
        that it needs. The released value is then a number; for a vector write a
        :class:`~pymc_dp.CustomMechanism`.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_dp as pmdp
    >>> def votes(x, candidate):
    ...     return pm.math.eq(x, candidate).sum()
    >>> winner = pmdp.ExponentialMechanism(votes, epsilon=1, sensitivity=1, candidates=range(3))
    >>> with pm.Model():
    ...     p = pm.Dirichlet("p", np.ones(3))
    ...     x = pm.Categorical("x", p, shape=30)
    ...     most = pmdp.Privatized("most", x, winner, observed=2)

    A median: the utility is minus the distance of a candidate's rank from the middle, computed from
    the counts of records below each candidate.

    >>> ages = np.arange(20.0, 80.0)
    >>> def near_the_middle(below, candidate):
    ...     return -pm.math.abs((below * pm.math.eq(ages, candidate)).sum() - 30 / 2)
    >>> median = pmdp.ExponentialMechanism(
    ...     near_the_middle, epsilon=1, sensitivity=1, candidates=ages
    ... )
    >>> with pm.Model():
    ...     mu = pm.Normal("mu", 50, 20)
    ...     age = pm.Normal("age", mu, 15, shape=30)
    ...     below = (age[:, None] < ages).sum(axis=0)
    ...     released = pmdp.Privatized("released", below, median, observed=46)
    """

    elementwise = False
    advice_on_sums = (
        "Pass as the statistic the sums over records from which the utility is computed. For a "
        "quantile, whose utility is -|rank - n / 2|, these are the counts of records below each "
        "candidate: statistic below = (x[:, None] < candidates).sum(axis=0), and utility "
        "lambda below, c: -pt.abs((below * pt.eq(candidates, c)).sum() - n / 2)."
    )

    def __init__(
        self,
        utility: Callable[[Any, Any], Any],
        epsilon: float,
        sensitivity: float,
        *,
        candidates: ArrayLike | None = None,
        log_normaliser: Callable[[Any], Any] | None = None,
    ) -> None:
        if not callable(utility):
            raise TypeError(f"Write a function of (statistic, candidate), not {utility!r}.")
        if (candidates is None) == (log_normaliser is None):
            raise ValueError(
                f"{type(self).__name__} needs its normaliser, which depends on the records: give "
                "candidates= for finitely many values, or log_normaliser= for a continuous one."
            )
        self._utility = utility
        self._log_normaliser = log_normaliser
        self.epsilon = one_positive("epsilon", epsilon)
        self.sensitivity = np.asarray(one_positive("sensitivity", sensitivity))
        self.candidates = None if candidates is None else _checked_candidates(candidates)
        self._ndim = 0 if self.candidates is None else self.candidates.ndim - 1

    def check_statistic(self, name: str, statistic: TensorVariable, shape: tuple[int, ...]) -> None:
        """Insist on a utility that uses what it is given."""
        candidate = pt.tensor("candidate", dtype="float64", shape=self.released_shape(()))
        what = f"The utility of {self!r} for {name!r}"
        check_uses(what, self._utility(statistic, candidate), candidate=candidate)

    def score(self, totals: TensorVariable) -> TensorVariable:
        """Score of a candidate from what is summed over the records for it."""
        return totals

    def totals(self, released: TensorVariable, statistic: TensorVariable) -> TensorVariable:
        """Utilities: of every candidate, or of the released value with the log-normaliser after."""
        released, statistic = pt.as_tensor(released, dtype="float64"), pt.as_tensor(statistic)
        if self.candidates is None:
            assert self._log_normaliser is not None
            own = self._checked_utility(statistic, released)
            return pt.stack([own, pt.as_tensor(self._log_normaliser(statistic))])
        candidate = pt.tensor("candidate", dtype="float64", shape=self.candidates.shape[1:])
        utility = self._checked_utility(statistic, candidate).astype("float64")
        return vectorize_graph(utility, {candidate: pt.as_tensor(self.candidates)})

    def _checked_utility(self, statistic: TensorVariable, candidate: Any) -> TensorVariable:
        utility = pt.as_tensor(self._utility(statistic, candidate))
        if utility.ndim != self._utility_ndim:
            raise ValueError(
                f"The function of {type(self).__name__} must return {self._utility_ndim} "
                f"dimensions for each candidate, not {utility.ndim}: sum over the records."
            )
        return utility

    @property
    def _utility_ndim(self) -> int:
        """Dimensions of what the user's function returns for one candidate."""
        return 0

    def logp_of_totals(self, released: TensorVariable, totals: TensorVariable) -> TensorVariable:
        """Symbolic log-density as a function of the utilities."""
        released = pt.as_tensor(released)
        factor = self.epsilon / (2 * float(self.sensitivity))  # type: ignore[arg-type]
        if self.candidates is None:
            return factor * self.score(totals[0]) - totals[1]
        log_p = pt.special.log_softmax(factor * self.score(totals), axis=-1)
        same = pt.eq(self.candidates, released)
        chosen = same.all(axis=-1) if self.candidates.ndim > 1 else same
        return pt.switch(chosen.any(), log_p[pt.argmax(chosen)], -np.inf)

    def logp(self, released: Any, statistic: Any) -> TensorVariable:
        """Symbolic log-probability, or log-density, of the released value."""
        return self.logp_of_totals(released, self.totals(released, statistic))

    def draw(self, statistic: TensorVariable, rng: Any) -> tuple[Any, TensorVariable]:
        """Symbolic draw of a candidate."""
        if self.candidates is None:
            return cannot_draw(f"{type(self).__name__} without candidates", pt.zeros(()), rng)
        p = pt.special.softmax(self._scaled_scores(statistic), axis=-1)
        rng, position = pt.random.categorical(p, rng=rng, return_next_rng=True)
        return rng, pt.as_tensor(self.candidates)[position]

    def _scaled_scores(self, statistic: TensorVariable) -> TensorVariable:
        totals = self.totals(pt.zeros([0] * self._ndim), statistic)
        return self.epsilon / (2 * float(self.sensitivity)) * self.score(totals)  # type: ignore[arg-type]

    def support_point(self, statistic: TensorVariable) -> TensorVariable:
        """Return the first candidate."""
        if self.candidates is None:
            return pt.zeros(())
        return pt.as_tensor(self.candidates[0])

    def checked_input(self, statistic: ArrayLike) -> NDArray:
        """Insist on a choice that can be drawn."""
        if self.candidates is None:
            raise NotImplementedError("Only a choice among finitely many candidates= can be drawn.")
        check_finite("the statistic", statistic)
        return np.asarray(statistic)

    def noised(self, value: NDArray) -> NDArray[np.float64]:
        """Choose a candidate with entropy of the operating system (Gumbel's trick)."""
        assert self.candidates is not None
        warn_floating_point(self)
        scores = _compiled_scores(self, value.ndim, str(value.dtype))(value)
        if not np.all(np.isfinite(scores)):
            raise PrivacyError(
                f"The utility of some candidate of {self!r} is not a finite number for this "
                "statistic, which would choose it for certain, or never: clip what the records "
                "add to it, and leave out candidates that may not be chosen. What was claimed for "
                "this release stays spent."
            )
        noisy = scores - np.log(-np.log(system_uniform(scores.shape)))
        return self.candidates[int(np.argmax(noisy))]

    def guarantee(self, sensitivity: ArrayLike | None = None) -> Guarantee:
        """Epsilon, and rho by the bounded range of the privacy loss (Cesar & Rogers 2021)."""
        actual = one_positive("sensitivity", self._sensitivity_or_declared(sensitivity))
        epsilon = self.epsilon * actual / float(self.sensitivity)  # type: ignore[arg-type]
        return Guarantee(epsilon, 0.0, epsilon**2 / 8)

    def released_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of one candidate."""
        return () if self.candidates is None else self.candidates.shape[1:]

    def checked_release(self, name: str, value: NDArray, shape: tuple[int, ...]) -> NDArray:
        """Insist on one of the candidates."""
        value = numbers(f"The released value of {name!r}", value)
        check_shape(name, value, self.released_shape(()))
        check_finite(name, value)
        if self.candidates is None:
            return value
        same = np.reshape(self.candidates == value, (len(self.candidates), -1)).all(axis=1)
        if not same.any():
            raise ValueError(
                f"The released value of {name!r}, {value}, is none of the candidates of {self!r}."
            )
        return value

    def __repr__(self) -> str:
        among = "" if self.candidates is None else f", {len(self.candidates)} candidates"
        sensitivity = f"{float(self.sensitivity):g}"  # type: ignore[arg-type]
        return f"{type(self).__name__}(epsilon={self.epsilon:g}, sensitivity={sensitivity}{among})"


class KNormGradient(ExponentialMechanism):
    r"""Released = r, density proportional to ``exp(-epsilon |grad L(x, r)| / (2 sensitivity))``.

    Reimherr & Awan (2019): a private minimiser of a loss that is a sum over records. The gradient,
    again such a sum, is all that a sampler needs (Ju et al. 2022, Assumption 2, type 2).

    Parameters
    ----------
    gradient : callable
        ``gradient(statistic, candidate)``: the loss's gradient in the candidate, a number or a
        vector, regularisation included.
    epsilon : float
        Guarantee.
    sensitivity : float
        The most that one record can change the gradient, in the norm chosen.
    candidates : array of shape (k,) or (k, d), optional
        The values among which one is released.
    log_normaliser : callable, optional
        As for :class:`ExponentialMechanism`.
    order : 1, 2 or inf
        The norm of a vector gradient.

    Examples
    --------
    A private median: the loss is the sum of absolute distances, its gradient counts records to the
    left minus records to the right.

    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_dp as pmdp
    >>> import pytensor.tensor as pt
    >>> def left_minus_right(x, candidate):
    ...     return pt.sign(candidate - x).sum()
    >>> median = pmdp.KNormGradient(
    ...     left_minus_right, epsilon=1, sensitivity=2, candidates=np.linspace(-3, 3, 61)
    ... )
    >>> with pm.Model():
    ...     mu = pm.Normal("mu", 0, 1)
    ...     x = pm.Normal("x", mu, 1, shape=30)
    ...     released = pmdp.Privatized("released", x, median, observed=median.candidates[35])
    """

    def __init__(
        self,
        gradient: Callable[[Any, Any], Any],
        epsilon: float,
        sensitivity: float,
        *,
        candidates: ArrayLike | None = None,
        log_normaliser: Callable[[Any], Any] | None = None,
        order: float = 2,
    ) -> None:
        if order not in (1, 2, np.inf):
            raise ValueError(f"order of the norm must be 1, 2 or np.inf, got {order!r}.")
        super().__init__(
            gradient,
            epsilon,
            sensitivity,
            candidates=candidates,
            log_normaliser=log_normaliser,
        )
        self.order = order

    @property
    def _utility_ndim(self) -> int:
        return self._ndim

    def score(self, totals: TensorVariable) -> TensorVariable:
        """Negative norm of the gradient."""
        if self._ndim == 0:
            return -pt.abs(totals)
        if self.order == 1:
            return -pt.abs(totals).sum(axis=-1)
        if self.order == 2:
            return -pt.sqrt((totals**2).sum(axis=-1))
        return -pt.abs(totals).max(axis=-1)


@lru_cache(maxsize=256)  # not all that were ever made
def _compiled_scores(mechanism: ExponentialMechanism, ndim: int, dtype: str) -> Any:
    statistic = pt.tensor("statistic", dtype=dtype, shape=(None,) * ndim)
    return pytensor.function([statistic], mechanism._scaled_scores(statistic))


def _checked_candidates(candidates: ArrayLike) -> NDArray[np.float64]:
    values = numbers("candidates", candidates)
    if values.ndim not in (1, 2) or len(values) < 2 or not np.all(np.isfinite(values)):
        raise ValueError(
            f"candidates must be two or more finite values, one a row, got shape {values.shape}."
        )
    if len(np.unique(values, axis=0)) < len(values):
        raise ValueError("candidates has the same value twice.")
    return values
