"""Bartlett's factor of a Wishart matrix: compiled, and as a graph.

Both, because a graph of PyMC cannot call compiled functions: samplers draw with the one, prior and
predictive draws with the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable

from pymc_dp.numerics.compiled import jit

__all__ = ["bartlett", "bartlett_graph"]


@jit
def bartlett(rng: Any, size: int, degrees: float) -> Any:
    """Lower factor A of a standard Wishart draw A A' (Bartlett 1933)."""
    A = np.zeros((size, size))
    for i in range(size):
        A[i, i] = np.sqrt(rng.chisquare(degrees - i))
        for k in range(i):
            A[i, k] = rng.standard_normal()
    return A


def bartlett_graph(
    rng: Any, degrees: TensorVariable, size: Any, batch: tuple[Any, ...]
) -> tuple[Any, TensorVariable]:
    """Symbolic draw of such factors.

    Parameters
    ----------
    rng : TensorVariable
        Generator.
    degrees : TensorVariable
        Degrees of freedom, one number or an array of shape `batch`.
    size : int or TensorVariable
        Rows and columns of a factor.
    batch : tuple
        Shape of the array of factors.

    Returns
    -------
    next_rng, factors : TensorVariable
        The generator afterwards, and the factors, of shape ``(*batch, size, size)``.
    """
    size = pt.as_tensor(size)
    rng, squares = pt.random.chisquare(
        degrees[..., None] - pt.arange(size).astype("float64"),
        size=(*batch, size),
        rng=rng,
        return_next_rng=True,
    )
    rng, normal = pt.random.normal(size=(*batch, size, size), rng=rng, return_next_rng=True)
    return rng, pt.tril(normal, -1) + pt.sqrt(squares)[..., None] * pt.eye(size)
