"""From a guarantee and a sensitivity to noise, and back: what families of noise share."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_dp.accounting.composition import GaussianQueries
from pymc_dp.mechanisms.base import (
    Guarantee,
    Mechanism,
    check_one_way,
    check_same_shape,
    positive,
)
from pymc_dp.numerics.arguments import number

__all__ = ["GaussianCalibration", "LaplaceCalibration"]


def as_given(noise: NDArray[np.float64]) -> float | NDArray[np.float64]:
    """Return one number as such."""
    return float(noise) if noise.ndim == 0 else noise


class LaplaceCalibration(Mechanism):
    """Noise with a scale: pure epsilon under an l1 sensitivity, epsilon = sensitivity / scale."""

    noise_name = "scale"
    norm = 1

    def __init__(
        self,
        scale: ArrayLike | None = None,
        *,
        epsilon: ArrayLike | None = None,
        sensitivity: ArrayLike | None = None,
    ) -> None:
        ways = {"epsilon=": epsilon is not None}
        check_one_way(type(self).__name__, "scale", scale, sensitivity, ways)
        self.epsilon = epsilon
        if scale is not None:
            self.noise = positive("scale", scale)
        else:
            self.sensitivity = positive("sensitivity", sensitivity)  # type: ignore[arg-type]
            each = positive("epsilon", epsilon)  # type: ignore[arg-type]
            check_same_shape("epsilon", each, "sensitivity", self.sensitivity)
            self.noise = np.asarray(self.sensitivity / each)

    @property
    def scale(self) -> float | NDArray[np.float64]:
        """Scale of the noise, one number or one a component."""
        return as_given(self.noise)

    def guarantee(self, sensitivity: ArrayLike | None = None) -> Guarantee:
        """Epsilon for an l1 sensitivity, or for one sensitivity a component.

        One sensitivity with noise that differs between components gives an upper bound.
        """
        delta_1 = self._sensitivity_or_declared(sensitivity)
        check_same_shape("sensitivity", delta_1, "the noise", self.noise)
        together = delta_1 / self.noise.min() if delta_1.ndim == 0 else np.sum(delta_1 / self.noise)
        epsilon = float(together)
        # pure epsilon-DP implies (epsilon^2 / 2)-zCDP: Bun & Steinke 2016, Proposition 1.4
        return Guarantee(epsilon, 0.0, epsilon**2 / 2)


class GaussianCalibration(Mechanism):
    """Noise with a sigma: rho-zCDP under an l2 sensitivity, rho = sensitivity^2 / (2 sigma^2)."""

    noise_name = "sigma"
    norm = 2
    #: whether epsilon at a delta is known exactly from rho
    gaussian = False

    def __init__(
        self,
        sigma: ArrayLike | None = None,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: ArrayLike | None = None,
        sensitivity: ArrayLike | None = None,
    ) -> None:
        approximate = epsilon is not None or delta is not None
        ways = {"epsilon=, delta=": approximate, "rho=": rho is not None}
        check_one_way(type(self).__name__, "sigma", sigma, sensitivity, ways)
        self.epsilon, self.rho = epsilon, rho
        self.delta = None if delta is None else number("delta", delta)
        if sigma is not None:
            self.noise = positive("sigma", sigma)
            return
        self.sensitivity = positive("sensitivity", sensitivity)  # type: ignore[arg-type]
        if rho is not None:
            each = positive("rho", rho)
            check_same_shape("rho", each, "sensitivity", self.sensitivity)
            unit: NDArray[np.float64] | float = 1 / np.sqrt(2 * each)
        elif epsilon is None or delta is None:
            missing = "delta" if delta is None else "epsilon"
            raise ValueError(
                f"{missing} is missing. Write {type(self).__name__}(epsilon=, delta=, "
                "sensitivity=): Gaussian noise gives no pure epsilon guarantee."
            )
        else:
            unit = self.unit_sigma(float(positive("epsilon", epsilon)), delta)
        self.noise = np.asarray(self.sensitivity * unit)

    @property
    def sigma(self) -> float | NDArray[np.float64]:
        """Sigma of the noise, one number or one a component."""
        return as_given(self.noise)

    @staticmethod
    def unit_sigma(epsilon: float, delta: float) -> float:
        """Sigma that meets (epsilon, delta) at sensitivity 1."""
        raise NotImplementedError

    def guarantee(self, sensitivity: ArrayLike | None = None) -> Guarantee:
        """Rho for an l2 sensitivity, or for one sensitivity a component.

        One sensitivity with noise that differs between components gives an upper bound.

        The epsilon is that at the delta the mechanism was calibrated to;
        ``guarantee(...).epsilon_at(delta)`` gives it at any other.
        """
        return self._at_rho(self._rho(sensitivity, self.noise))

    def cost(self, sensitivity: ArrayLike | None = None) -> GaussianQueries:
        """Tell what one release costs a budget: one query of this noise over the sensitivity."""
        rho = self._rho(sensitivity, self.continuous_noise)
        return GaussianQueries(float(1 / np.sqrt(2 * rho)), 1)

    @property
    def continuous_noise(self) -> NDArray[np.float64]:
        """Sigma of continuous Gaussian noise that costs no less."""
        return self.noise

    def _rho(self, sensitivity: ArrayLike | None, noise: NDArray[np.float64]) -> float:
        delta_2 = self._sensitivity_or_declared(sensitivity)
        check_same_shape("sensitivity", delta_2, "the noise", noise)
        together = delta_2 / noise.min() if delta_2.ndim == 0 else delta_2 / noise
        return float(np.sum(together**2) / 2)

    def _at_rho(self, rho: float) -> Guarantee:
        bare = Guarantee(None, 0.0, rho, self.gaussian)
        if self.delta is None:
            return bare
        return Guarantee(bare.epsilon_at(self.delta), self.delta, rho, self.gaussian)
