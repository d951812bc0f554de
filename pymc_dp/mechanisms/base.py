"""What every mechanism is: a density of the released value, a way to draw it, a guarantee."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytensor.tensor as pt
from numpy.typing import ArrayLike, NDArray
from pytensor.tensor.variable import TensorVariable

from pymc_dp.accounting.composition import GaussianQueries, pure_queries
from pymc_dp.accounting.errors import PrivacyError
from pymc_dp.accounting.gaussian import gaussian_epsilon
from pymc_dp.accounting.renyi import rdp_epsilon
from pymc_dp.numerics.arguments import numbers

if TYPE_CHECKING:
    from pymc_dp.accounting.budget import PrivacyBudget

__all__ = ["Guarantee", "Mechanism", "PrivacyWarning"]


class PrivacyWarning(UserWarning):
    """Something weakens a privacy guarantee in practice.

    Examples
    --------
    A job that publishes should stop there:

    >>> import warnings
    >>> import pymc_dp as pmdp
    >>> warnings.simplefilter("error", pmdp.PrivacyWarning)
    """


@dataclass(frozen=True)
class Guarantee:
    """What a release reveals about one record.

    Attributes
    ----------
    epsilon : float or None
        Epsilon at `delta`; None where the mechanism has none without a choice of delta.
    delta : float
        Zero for pure differential privacy.
    rho : float
        Zero-concentrated differential privacy (Bun & Steinke 2016).
    gaussian : bool
        Whether the noise is Gaussian, whose epsilon at a delta is known exactly.

    Examples
    --------
    >>> import pymc_dp as pmdp
    >>> print(pmdp.Laplace(scale=20).guarantee(sensitivity=10))
    epsilon 0.5
    >>> guarantee = pmdp.Gaussian(sigma=5).guarantee(sensitivity=1)
    >>> print(guarantee)
    rho 0.02 (zCDP)
    >>> round(guarantee.epsilon_at(delta=1e-6), 2)
    0.83
    """

    epsilon: float | None
    delta: float
    rho: float
    gaussian: bool = False

    def __str__(self) -> str:
        if self.epsilon is None:
            return f"rho {self.rho:.6g} (zCDP)"
        return f"epsilon {self.epsilon:.6g}" + (f", delta {self.delta:g}" if self.delta else "")

    def epsilon_at(self, delta: float) -> float:
        """Epsilon at another delta: from rho, or the known one where that is smaller."""
        if self.gaussian:
            epsilon = gaussian_epsilon(delta, self.rho)
        else:  # rho-zCDP is a Rényi divergence of at most rho * order at every order
            orders = 1 + np.geomspace(1e-3, 1e5, 2000)
            epsilon = rdp_epsilon(orders, self.rho * orders, delta)
        return epsilon if self.epsilon is None or self.delta > delta else min(epsilon, self.epsilon)


class Mechanism(ABC):
    """A privacy mechanism with known parameters: how a released value came from a statistic.

    Noise added to each component is an :class:`~pymc_dp.mechanisms.additive.AdditiveNoise`; this is
    what all mechanisms share. A new one is one module: subclass, give the abstract members,
    export it from :mod:`pymc_dp.mechanisms`.

    Examples
    --------
    >>> import pymc_dp as pmdp
    >>> noise = pmdp.DiscreteLaplace(epsilon=0.5, sensitivity=1)
    >>> print(noise.guarantee())
    epsilon 0.5
    >>> released = noise.release(412)  # real noise, for whoever holds the data
    >>> float(noise.logp(410, 412).eval()) > float(noise.logp(380, 412).eval())
    True
    """

    #: type of the released value
    dtype: str = "float64"
    #: the norm of its sensitivity: 1, 2, or None where it is not one of the statistic's
    norm: ClassVar[int | None] = None
    #: numba-compiled ``log_density(released, statistic, noise) -> float`` of one component, up to a
    #: constant; None where the density is not a sum over components, which samplers then compile
    #: from `logp_of_totals`
    log_density: Any = None
    #: whether each released number belongs to one component of the statistic
    elementwise: ClassVar[bool] = True
    #: parameter of `log_density`, a scalar or one number a component
    noise: NDArray[np.float64]
    #: what to write where a statistic is not a sum over records
    advice_on_sums: ClassVar[str] = (
        "Release the sums themselves (several, stacked, for a variance or a ratio); or, where all "
        "latent variables are continuous, sample them together with step=pm.NUTS()."
    )
    #: whether one sensitivity is that of one number, and numbers that a record changes together
    #: need one each
    number_by_number: ClassVar[bool] = False
    #: what the guarantee was calibrated to, if it was
    sensitivity: NDArray[np.float64] | None = None

    def _repr_html_(self) -> str:
        """Mechanism, what it is, and its guarantee where that is known, for notebooks."""
        what = (type(self).__doc__ or "").strip().partition("\n\n")[0].replace("``", "")
        try:
            promise = str(self.guarantee())
        except (NotImplementedError, ValueError):  # noise without a sensitivity
            promise = ""
        parts = [f"<code>{escape(repr(self))}</code>", f"<b>{escape(promise)}</b>" * bool(promise)]
        parts += [f"<small>{escape(what)}</small>"] * (":math:" not in what)
        return "<br>".join(filter(None, parts))

    @abstractmethod
    def logp(self, released: Any, statistic: Any) -> TensorVariable:
        """Symbolic log-density of each component of `released` given the statistic."""

    @abstractmethod
    def draw(self, statistic: TensorVariable, rng: Any) -> tuple[Any, TensorVariable]:
        """Symbolic draw of a released value: the next generator state and the value."""

    def release(
        self,
        statistic: ArrayLike,
        *,
        budget: PrivacyBudget | None = None,
        sensitivity: ArrayLike | None = None,
    ) -> NDArray:
        """Release a confidential statistic with noise from operating-system entropy.

        Parameters
        ----------
        statistic : array_like
            What was computed from confidential records.
        budget : PrivacyBudget, optional
            Pays for it, see :meth:`cost`: the claim is made before the noise is drawn, and what
            does not fit is refused. Without it nothing keeps account of the release.
        sensitivity : float or array, optional
            With a budget: the most that one record can change the statistic, where the mechanism
            was not calibrated to it, between data sets that are neighbours in the budget's sense
            (``budget.neighbours``).

        Raises
        ------
        PrivacyError
            If the budget does not cover it.

        Examples
        --------
        >>> import pymc_dp as pmdp
        >>> budget = pmdp.PrivacyBudget(epsilon=2, delta=1e-6)
        >>> noise = pmdp.DiscreteLaplace(epsilon=0.5, sensitivity=1)
        >>> int(noise.release(40, budget=budget)) in range(-200, 280)
        True
        >>> round(budget.unspent, 2)
        0.59
        """
        value = self.checked_input(statistic)
        if budget is not None:
            self.check_charge(value, sensitivity)
            self.charge(budget, sensitivity)
        elif sensitivity is not None:
            raise ValueError("sensitivity= tells what to charge a budget: write budget= too.")
        return self.noised(value)

    def check_charge(self, value: NDArray, sensitivity: ArrayLike | None = None) -> None:
        """Refuse a statistic that the price of one release would not cover."""
        shape = np.shape(sensitivity) if sensitivity is not None else ()
        if shape and shape != value.shape:
            raise ValueError(
                f"sensitivity has shape {shape}, the statistic {value.shape}: write one number for "
                "the whole statistic, or one for every component of it, or some of its numbers "
                "would leave without being paid for."
            )
        if self.number_by_number and value.size > 1 and not self.noise.ndim:
            raise ValueError(
                f"{self!r} tells what one number costs, and the statistic has {value.size}: give "
                "the mechanism a sensitivity for every component, in the statistic's shape."
            )

    def charge(self, budget: PrivacyBudget, sensitivity: ArrayLike | None = None) -> None:
        """Claim what one release costs, or refuse."""
        budget.claim(self.cost(sensitivity), f"release by {self!r}")

    def cost(self, sensitivity: ArrayLike | None = None) -> GaussianQueries:
        """Tell what one release costs a budget; `sensitivity` defaults to the declared one.

        Gaussian noise costs what it is; a pure epsilon guarantee what
        :func:`~pymc_dp.accounting.pure_queries` tells.
        """
        guarantee = self.guarantee(sensitivity)
        if guarantee.epsilon is None or guarantee.delta > 0 or not np.isfinite(guarantee.epsilon):
            raise PrivacyError(
                f"{self!r} has no pure epsilon guarantee ({guarantee}), by which alone it could be "
                "charged to a budget. Release with Gaussian, DiscreteGaussian, Laplace or "
                "DiscreteLaplace noise, or keep account of it apart, without budget=."
            )
        return pure_queries(guarantee.epsilon)

    @abstractmethod
    def checked_input(self, statistic: ArrayLike) -> NDArray:
        """Return a confidential statistic as an array, or say why it cannot be released."""

    @abstractmethod
    def noised(self, value: NDArray) -> NDArray:
        """Draw the released value with operating-system entropy."""

    @abstractmethod
    def guarantee(self, sensitivity: ArrayLike | None = None) -> Guarantee:
        """Guarantee of one release; `sensitivity` defaults to the declared one."""

    def released_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of the released value of a statistic of some shape."""
        return shape

    def check_statistic(self, name: str, statistic: TensorVariable, shape: tuple[int, ...]) -> None:
        """Raise where the mechanism cannot have been applied to such a statistic."""
        return None

    def checked_release(self, name: str, value: NDArray, shape: tuple[int, ...]) -> NDArray:
        """Return a released value in the mechanism's type, or say what is wrong with it."""
        check_shape(name, value, shape)
        check_finite(name, value)
        return numbers(f"The released value of {name!r}", value)

    def support_point(self, statistic: TensorVariable) -> TensorVariable:
        """Return a released value that is possible, to start a sampler from."""
        return statistic.astype(self.dtype)

    def totals(self, released: TensorVariable, statistic: TensorVariable) -> TensorVariable:
        """Quantities, summed over the records, through which alone the records enter `logp`."""
        return statistic

    def logp_of_totals(self, released: TensorVariable, totals: TensorVariable) -> TensorVariable:
        """Symbolic log-density as a function of `totals`."""
        return self.logp(released, totals)

    def _sensitivity_or_declared(self, sensitivity: ArrayLike | None) -> NDArray[np.float64]:
        if sensitivity is not None:
            return positive("sensitivity", sensitivity)
        if self.sensitivity is None:
            raise ValueError(
                f"{self!r} was given its noise directly: pass the statistic's sensitivity, "
                "guarantee(sensitivity=...) or release(statistic, budget=..., sensitivity=...)."
            )
        return self.sensitivity


def advance(rng: Any, value: TensorVariable) -> tuple[Any, TensorVariable]:
    """Tie a value that needs no randomness to a generator, as PyMC asks of every draw."""
    rng, unused = pt.random.uniform(rng=rng, return_next_rng=True)
    return rng, value + (0 * unused).astype(value.dtype)


def check_finite(name: str, value: ArrayLike) -> None:
    """Insist that a released value is known and finite."""
    if not np.all(np.isfinite(numbers(f"The released value of {name!r}", value))):
        raise ValueError(
            f"The released value of {name!r} has NaN or infinite entries. Release only what was "
            "really published: leave out the components that are missing, statistic[known] with "
            "observed=released[known]."
        )


def check_shape(name: str, value: ArrayLike, shape: tuple[int, ...]) -> None:
    """Insist that a released value has the shape that the mechanism gives it."""
    if np.shape(value) != shape:
        raise ValueError(
            f"The released value of {name!r} has shape {np.shape(value)}, its statistic has shape "
            f"{shape}. Write the release in the statistic's shape."
        )


def check_same_shape(name: str, value: NDArray, other_name: str, other: NDArray) -> None:
    """Insist that of two parameters one is a number, or both have the same shape."""
    if value.ndim and other.ndim and value.shape != other.shape:
        raise ValueError(
            f"{name} has shape {value.shape} and {other_name} has shape {other.shape}: write one "
            "number, or one for every component of the statistic, in its shape."
        )


def check_whole(name: str, value: ArrayLike) -> NDArray[np.int64]:
    """Cast to int64 and insist that nothing is lost."""
    array = np.asarray(value)
    floats = numbers(name, array)
    if not np.all(np.isfinite(floats)) or np.any(array != np.round(array)):
        raise ValueError(f"{name} must be whole numbers, got {array!r}.")
    if np.any(np.abs(floats) >= 2.0**63):  # a cast would turn the largest into the smallest
        raise ValueError(
            f"{name} must be whole numbers below 2**63, got {array!r}: count in a larger unit."
        )
    return array.astype(np.int64)


def warn_floating_point(mechanism: Mechanism) -> None:
    """Say what floating-point noise does not cover."""
    warnings.warn(
        f"{mechanism!r} draws floating-point noise: the low-order bits of a released float can "
        "reveal the statistic (Mironov 2012). Round the release to a coarse grid, or use a library "
        "with a hardened sampler, before you publish it.",
        PrivacyWarning,
        stacklevel=3,
    )


def positive(name: str, value: ArrayLike) -> NDArray[np.float64]:
    """Cast to float64 and insist on positive, finite numbers."""
    array = numbers(name, value)
    if array.size == 0 or not np.all(np.isfinite(array)) or not np.all(array > 0):
        raise ValueError(f"{name} must be positive and finite, got {value!r}.")
    return array


def one_positive(name: str, value: Any) -> float:
    """Cast to a float and insist on one positive, finite number."""
    array = positive(name, value)
    if array.ndim:
        raise ValueError(f"{name} must be one number, got {value!r}.")
    return float(array)


def check_one_way(
    mechanism: str, noise_name: str, noise: Any, sensitivity: Any, ways: Mapping[str, Any]
) -> None:
    """Insist that noise was given either directly or as one guarantee with its sensitivity.

    `ways` maps each way to write a guarantee, e.g. ``"epsilon=, delta="``, to whether it was used.
    """
    used = [way for way, given in ways.items() if given]
    options = " or ".join(f"{mechanism}({way}, sensitivity=)" for way in ways)
    advice = f"Write {mechanism}({noise_name}=) or {options}."
    if noise is not None and (used or sensitivity is not None):
        raise ValueError(f"Both {noise_name} and a guarantee were given. {advice}")
    if noise is None and len(used) != 1:
        given = "Neither the noise nor a guarantee was given." if not used else "Two guarantees."
        raise ValueError(f"{given} {advice}")
    if noise is None and sensitivity is None:
        raise ValueError(f"A guarantee needs the statistic's sensitivity. {advice}")
