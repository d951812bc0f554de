"""A step of the stochastic gradient Nosé-Hoover thermostat: arrays in, arrays out."""

from collections.abc import Callable

import numpy as np

from pymc_dp.types import Array

__all__ = ["thermostat_step"]


def thermostat_step(
    momentum: Array, friction: Array, size: float, kick: Callable[[Array], Array]
) -> tuple[Array, Array, Array]:
    r"""Drift, thermostat and friction for half a step, a kick, and the same in reverse.

    Parameters
    ----------
    momentum : ndarray
        Coordinates along the last axis.
    friction : ndarray
        One number for each momentum.
    size : float
        Of the step, in time.
    kick : callable
        What is added to the momentum, force and noise together, where the position has moved by
        the displacement it is given.

    Returns
    -------
    tuple of ndarray
        Displacement, momentum and friction.

    Notes
    -----
    Ding et al. (2014), :math:`\dot\theta = p`, :math:`\dot\xi = p^\top p / d - 1`,
    :math:`\dot p = -\xi p + f`, split symmetrically: where noise is white, errors in averages are
    of second order in the step.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_dp.numerics.thermostat import thermostat_step
    >>> displacement, momentum, friction = thermostat_step(
    ...     np.ones(2), np.zeros(()), 0.1, lambda moved: -0.1 * moved
    ... )
    >>> displacement
    array([0.09975, 0.09975])
    """
    half = size / 2
    size_of = momentum.shape[-1]
    displacement = half * momentum
    friction = friction + half * ((momentum**2).sum(-1) / size_of - 1)
    shrink = np.exp(-half * friction)[..., None]
    momentum = shrink * (shrink * momentum + kick(displacement))
    friction = friction + half * ((momentum**2).sum(-1) / size_of - 1)
    return displacement + half * momentum, momentum, friction
