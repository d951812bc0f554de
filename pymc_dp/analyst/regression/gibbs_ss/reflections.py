"""Reflections of regression coefficients that keep what is known of the responses.

The moments M = E[f f'] of the features f (the intercept last) say what sums over records see of
coefficients c: E[f y] is M c, with E[y] its last entry, and E[y^2] is c'M c plus the error's
variance. Where noise hides some of these and not the others, the posterior lies near coefficients
for which the others are the same: two points, a circle, an ellipsoid.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pymc_dp.types import Array

__all__ = ["draw_reflection"]


#: how far a reflection done twice may be from nothing done, by rounding
_ROUNDING = 1e-9


def draw_reflection(rng: Any, moments: Array, centred: bool) -> Array:
    """Draw a linear map of the coefficients that is its own inverse.

    It depends on nothing but the moments and chance, so that it is a proposal of equal density in
    both directions.

    Parameters
    ----------
    rng : Generator
        Source of randomness.
    moments : array of shape (p, p)
        Second moments of the features.
    centred : bool
        Keep the mean response: the slopes are reflected in the metric of the features' covariance
        and the intercept, the last feature, makes up for it.

    Returns
    -------
    array of shape (p, p)
        Of one of these kinds: one coefficient's sign is turned, or all; or a Householder
        reflection in the metric of the moments, which leaves c'M c as it is, with either sign.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_dp.analyst.regression.gibbs_ss.reflections import draw_reflection
    >>> moments = np.array([[1.09, 1.0], [1.0, 1.0]])  # x ~ N(1, 0.3^2), and the intercept
    >>> draw_reflection(np.random.default_rng(1), moments, centred=True) + 0
    array([[-1.,  0.],
           [ 2.,  1.]])
    """
    if not centred:
        return _in_metric(rng, moments)
    mean = moments[:-1, -1]
    slopes = _in_metric(rng, moments[:-1, :-1] - np.outer(mean, mean))
    whole = np.eye(len(moments))
    whole[:-1, :-1] = slopes
    whole[-1, :-1] = mean - mean @ slopes
    return whole


def _in_metric(rng: Any, metric: Array) -> Array:
    """Turn one sign, or all, or reflect in a hyperplane at right angles to a drawn direction."""
    size = len(metric)
    kind, which = rng.integers(5), rng.integers(size)
    sign = 1.0 if rng.random() < 0.5 else -1.0
    normal = rng.standard_normal(size)
    if kind == 0 or size == 1:
        return -np.eye(size)
    if kind == 1:
        turned = np.eye(size)
        turned[which, which] = -1
        return turned
    scale = np.sqrt(np.maximum(np.diag(metric), 0.0))
    if not scale.min() > 0:  # a covariate that is constant
        return -np.eye(size)
    metric = metric / np.outer(scale, scale)
    try:
        direction = _direction(kind, which, normal, metric)
    except np.linalg.LinAlgError:  # a covariate that is a sum of others
        return -np.eye(size)
    along = metric @ direction
    length = direction @ along
    if not length > 0:
        return -np.eye(size)
    reflection = np.eye(size) - 2 * np.outer(direction, along) / length
    if np.abs(reflection @ reflection - np.eye(size)).max() > _ROUNDING:
        return -np.eye(size)
    return sign * reflection * scale / scale[:, None]


def _direction(kind: int, which: int, normal: Array, metric: Array) -> Array:
    if kind == 2:  # one coefficient changes, so that E[f y] has the other sign in its place
        return np.eye(len(metric))[which]
    if kind == 3:  # one entry of E[f y] changes, so that its coefficient has the other sign
        return np.linalg.solve(metric, np.eye(len(metric))[which])
    return np.linalg.solve(np.linalg.cholesky(metric).T, normal)  # all directions alike
