"""Public bounds of a data holder's records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_dp.graph.sensitivity import Sensitivity
from pymc_dp.holder.regression_sensitivity import box_sensitivity, norm_sensitivity
from pymc_dp.holder.regression_statistics import StatisticsLayout
from pymc_dp.types import Array, Neighbours

__all__ = ["BoxBounds", "NormBounds"]


@dataclass(frozen=True)
class NormBounds:
    """Public bounds: norm(x) <= x_norm and abs(y) <= y_bound.

    Examples
    --------
    >>> import pymc_dp as pmdp
    >>> pmdp.regression.NormBounds(x_norm=1.0, y_bound=1.5)
    NormBounds(x_norm=1.0, y_bound=1.5)
    """

    x_norm: float
    y_bound: float

    def clip(self, X: Array, y: Array) -> tuple[Array, Array]:
        """Shorten rows that are too long, and move responses into their range."""
        length = np.maximum(np.linalg.norm(X, axis=1), self.x_norm)
        return X * (self.x_norm / length)[:, None], np.clip(y, -self.y_bound, self.y_bound)

    def sensitivity(self, layout: StatisticsLayout, neighbours: Neighbours) -> Sensitivity:
        """Sensitivity of the statistics within these bounds."""
        return norm_sensitivity(self.x_norm, self.y_bound, **_keywords(layout, neighbours))

    def plain(self) -> dict[str, Any]:
        """Return the bounds in types that JSON gives back."""
        return {"x_norm": float(self.x_norm), "y_bound": float(self.y_bound)}


@dataclass(frozen=True)
class BoxBounds:
    """Public bounds: lower and upper for every feature, or for all of them, and for y.

    Examples
    --------
    >>> import pymc_dp as pmdp
    >>> pmdp.regression.BoxBounds(x=(0.0, 1.0), y=(-1.0, 1.0))
    BoxBounds(x=(0.0, 1.0), y=(-1.0, 1.0))
    """

    x: tuple[Any, Any]
    y: tuple[float, float]

    def clip(self, X: Array, y: Array) -> tuple[Array, Array]:
        """Move every value into its range."""
        return np.clip(X, *self.x), np.clip(y, *self.y)

    def sensitivity(self, layout: StatisticsLayout, neighbours: Neighbours) -> Sensitivity:
        """Sensitivity of the statistics within these bounds."""
        return box_sensitivity(self.x, self.y, **_keywords(layout, neighbours))

    def plain(self) -> dict[str, Any]:
        """Return the bounds in types that JSON gives back."""
        parts = {"x": self.x, "y": self.y}
        return {name: [np.asarray(b, float).tolist() for b in part] for name, part in parts.items()}


def _keywords(layout: StatisticsLayout, neighbours: Neighbours) -> dict[str, Any]:
    return {
        "n_covariates": layout.n_covariates,
        "intercept": layout.intercept,
        "neighbours": neighbours,
        "parts": layout.parts,
    }
