"""What every mechanism is: a density of the released value, a way to draw it, a guarantee."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pytensor.tensor.variable import TensorVariable

from pymc_dp.accounting.gaussian import gaussian_epsilon

__all__ = ["Guarantee", "Mechanism", "PrivacyWarning"]


class PrivacyWarning(UserWarning):
    """Something weakens a privacy guarantee in practice."""


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
    """

    epsilon: float | None
    delta: float
    rho: float

    def __str__(self) -> str:
        if self.epsilon is None:
            return f"rho {self.rho:.6g} (zCDP)"
        return f"epsilon {self.epsilon:.6g}" + (f", delta {self.delta:g}" if self.delta else "")

    def epsilon_at(self, delta: float) -> float:
        """Epsilon at another delta, from rho as for Gaussian noise, or the pure one if smaller."""
        epsilon = gaussian_epsilon(delta, self.rho)
        return epsilon if self.epsilon is None or self.delta > delta else min(epsilon, self.epsilon)


class Mechanism(ABC):
    """A family of privacy noise with known parameters.

    A new mechanism is one module: subclass this, give the five abstract members, export it from
    :mod:`pymc_dp.mechanisms`. `noise` holds the noise parameter as float64, a scalar or one number
    a component of the statistic; `sensitivity` what the guarantee was calibrated to, if it was.
    """

    #: name of the noise parameter, as users write it
    noise_name: ClassVar[str]
    #: the norm of its sensitivity: 1 or 2
    norm: ClassVar[int]
    #: ``log_density(released, statistic, noise) -> float`` of one component, up to a constant:
    #: a numba-compiled function of three numbers, for the inner loops of samplers
    log_density: ClassVar[Any]

    noise: NDArray[np.float64]
    sensitivity: NDArray[np.float64] | None = None

    @abstractmethod
    def logp(self, released: Any, statistic: Any) -> TensorVariable:
        """Symbolic log-density of each component of `released` given the statistic."""

    @abstractmethod
    def draw(self, statistic: TensorVariable, rng: Any) -> tuple[Any, TensorVariable]:
        """Symbolic draw of a released value: the next generator state and the value."""

    @abstractmethod
    def release(self, statistic: ArrayLike) -> NDArray[np.float64]:
        """Release a confidential statistic with noise from operating-system entropy."""

    @abstractmethod
    def guarantee(self, sensitivity: ArrayLike | None = None) -> Guarantee:
        """Guarantee of one release; `sensitivity` defaults to the declared one."""

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.noise_name}={np.array2string(self.noise, threshold=6)})"
        )

    def _sensitivity_or_declared(self, sensitivity: ArrayLike | None) -> NDArray[np.float64]:
        if sensitivity is not None:
            return positive("sensitivity", sensitivity)
        if self.sensitivity is None:
            raise ValueError(
                f"{self!r} was given its noise directly: pass the statistic's sensitivity, "
                "guarantee(sensitivity=...)."
            )
        return self.sensitivity


def positive(name: str, value: ArrayLike) -> NDArray[np.float64]:
    """Cast to float64 and insist on positive, finite numbers."""
    array = np.asarray(value, dtype=np.float64)
    if array.size == 0 or not np.all(np.isfinite(array)) or not np.all(array > 0):
        raise ValueError(f"{name} must be positive and finite, got {value!r}.")
    return array


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
