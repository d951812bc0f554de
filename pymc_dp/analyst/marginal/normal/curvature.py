"""How the mean of a sum bends with the parameters, from as many simulated records as that takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pymc_dp.analyst.marginal.normal.densities import Column, Density
from pymc_dp.types import Matrix, Vector

__all__ = ["Bend", "columns_of"]

_ENOUGH = 0.02  # error of a sum's mean by that of the curvature, in the sum's sds
_KEPT = 2**23  # second derivatives that are kept rather than computed twice


class Bend:
    """Second derivatives of a mean, the average of several simulations.

    Parameters
    ----------
    reach : ndarray
        Covariance of the posterior, roughly: how far the curvature has to hold.
    scale : ndarray
        Standard deviations of the sums over the number of records.
    """

    def __init__(self, reach: Matrix, scale: Vector) -> None:
        self.reach, self.scale = reach, np.maximum(scale, 1e-300)
        values, vectors = np.linalg.eigh(reach)
        self._root = vectors * np.sqrt(np.maximum(values, 0.0))
        self._found: list[NDArray[np.float64]] = []

    def add(self, curvature: NDArray[np.float64]) -> None:
        """Take one more simulation's."""
        self._found.append(curvature)

    @property
    def mean(self) -> NDArray[np.float64]:
        """Average so far."""
        return np.mean(self._found, axis=0)

    @property
    def is_known(self) -> bool:
        r"""Whether its error moves the sums' means by next to nothing, as far as posteriors reach.

        With :math:`\delta` normal of covariance R, :math:`\delta^T E \delta / 2` has variance
        :math:`\operatorname{tr}(E R E R) / 2` for an error E of the curvature.
        """
        many = len(self._found)
        if many < 2:
            return False
        # entries of root' E root are independent enough for the sum of their variances to do
        turned = np.array([self._root.T @ each @ self._root for each in self._found])
        variance = turned.var(axis=0, ddof=1).sum(axis=(1, 2)) / many
        return bool(np.all(np.sqrt(variance / 2) < _ENOUGH * self.scale))


def columns_of(
    densities: Sequence[Density], theta: Vector, rows: Sequence[NDArray[Any]]
) -> Callable[[], Iterator[Column]]:
    """Second derivatives of log-densities, to be gone through several times."""

    def columns() -> Iterator[Column]:
        for density in densities:
            yield from density.columns(theta, rows)

    if len(rows[0]) * sum(each.own.size**2 for each in densities) > _KEPT:
        return columns
    kept = list(columns())
    return lambda: iter(kept)
