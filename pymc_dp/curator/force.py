"""What drives a trajectory: the gradients of prior and likelihood by the sampler's coordinates."""

from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray

from pymc_dp.compat import jit_function
from pymc_dp.curator.likelihood import compile_gradient
from pymc_dp.graph.vector import FlatSpace
from pymc_dp.types import Variable, Vector


class Force:
    """A compiled function of two vectors, called without PyTensor's own ceremony.

    That takes longer than the few operations in it. Data of the prior, if there is any, comes after
    the two vectors.
    """

    def __init__(self, function: Any) -> None:
        self.function = function

    def __call__(self, theta: Vector, likelihood: Vector) -> Vector:
        """Gradient of the log-density."""
        data = [container.storage[0] for container in self.function.input_storage[2:]]
        return jit_function(self.function)(theta, likelihood, *data)[0]


def compile_force(
    model: pm.Model,
    space: FlatSpace,
    basis: NDArray[np.float64],
    seen: NDArray[np.bool_],
    compile_kwargs: dict[str, Any] | None = None,
) -> Force:
    """Compile ``force(theta, likelihood)``, the prior's gradient with the likelihood's added.

    Parameters
    ----------
    model, space, compile_kwargs
        As of :func:`~pymc_dp.curator.likelihood.compile_prior_gradient`.
    basis : ndarray
        Columns are the sampler's coordinates, in those of `theta`.
    seen : ndarray of bool
        Coordinates that the likelihood's gradient is given for; it is zero by the others.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_dp.curator.force import compile_force
    >>> from pymc_dp.graph.vector import FlatSpace
    >>> with pm.Model() as model:
    ...     _ = pm.Normal("m", 0, 1, shape=2)
    >>> force = compile_force(model, FlatSpace(model), 2 * np.eye(2), np.array([False, True]))
    >>> force(np.array([1.0, 1.0]), np.array([5.0]))
    array([-2.,  3.])
    """
    likelihood = pt.dvector("likelihood")

    def by_coordinates(gradient: Variable) -> Variable:
        return (basis.T @ gradient)[np.flatnonzero(seen)].inc(likelihood)

    options = (compile_kwargs or {}) | {"mode": "NUMBA"}
    return Force(compile_gradient(model, space, [likelihood], by_coordinates, options))
