"""What drives a trajectory: the gradients of prior and likelihood by the sampler's coordinates."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray

from pymc_dp.likelihood import FlatSpace, Variable, Vector, compile_gradient


def compile_force(
    model: pm.Model,
    space: FlatSpace,
    basis: NDArray[np.float64],
    seen: NDArray[np.bool_],
    compile_kwargs: dict[str, Any] | None = None,
) -> Callable[[Vector, Vector], Vector]:
    """Compile ``force(theta, likelihood)``, the prior's gradient with the likelihood's added.

    One call, because a call takes longer than the few operations in it.

    Parameters
    ----------
    model, space, compile_kwargs
        As of :func:`~pymc_dp.likelihood.compile_prior_gradient`.
    basis : ndarray
        Columns are the sampler's coordinates, in those of `theta`.
    seen : ndarray of bool
        Coordinates that the likelihood's gradient is given for; it is zero by the others.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_dp.force import compile_force
    >>> from pymc_dp.likelihood import FlatSpace
    >>> with pm.Model() as model:
    ...     _ = pm.Normal("m", 0, 1, shape=2)
    >>> force = compile_force(model, FlatSpace(model), 2 * np.eye(2), np.array([False, True]))
    >>> force(np.array([1.0, 1.0]), np.array([5.0]))
    array([-2.,  3.])
    """
    likelihood = pt.dvector("likelihood")

    def by_coordinates(gradient: Variable) -> Variable:
        return (basis.T @ gradient)[np.flatnonzero(seen)].inc(likelihood)

    return compile_gradient(model, space, [likelihood], by_coordinates, compile_kwargs)
