"""Laplace noise as a normal with a random variance."""

import numpy as np
from numpy.typing import NDArray

from pymc_dp.numerics.compiled import cached_jit
from pymc_dp.types import Array

__all__ = ["laplace_variances", "mean_variances"]


def mean_variances(noise: Array, laplace: NDArray[np.bool_]) -> Array:
    """Variances of noise from the scales of Laplace, and the sigmas of other noise."""
    return np.where(laplace, 2.0, 1.0) * noise**2


@cached_jit()
def laplace_variances(rng: np.random.Generator, residual: Array, scale: Array) -> Array:
    r"""Draw the variances of Laplace noise, given the noise itself.

    Laplace noise of scale b is normal with a variance :math:`\omega^2` that has mean
    :math:`2b^2` and an exponential distribution. Given the noise r,
    :math:`1/\omega^2` is inverse Gaussian with mean :math:`1/(b|r|)` and shape :math:`1/b^2`
    (Park & Casella 2008; Bernstein & Sheldon 2019, Algorithm 1, line 6).

    Drawn by the two roots of Michael, Schucany & Haas (1976), written for :math:`\omega^2` so that
    nothing cancels where r is near zero, not even at zero itself.

    Parameters
    ----------
    rng : Generator
        Source of randomness.
    residual : array of shape (k,)
        Released value minus statistic.
    scale : array of shape (k,)
        Scale of the noise.

    Returns
    -------
    array of shape (k,)
    """
    out = np.empty(residual.size)
    for i in range(residual.size):
        m = scale[i] * abs(residual[i])
        normal = rng.standard_normal()
        g = max(0.5 * (scale[i] * normal) ** 2, 1e-300)
        root = m + g + np.sqrt(g * (g + 2 * m))
        out[i] = root if rng.random() * (root + m) <= root else m * m / root
    return np.maximum(out, 1e-300)
