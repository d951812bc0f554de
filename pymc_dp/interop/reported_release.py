"""Releases of diffprivlib, SmartNoise and Tumult, in the package's own format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pymc_dp.analyst.statistic_release import StatisticRelease
from pymc_dp.interop.diffprivlib_mechanism import from_diffprivlib
from pymc_dp.interop.reported import from_smartnoise, from_tumult
from pymc_dp.mechanisms import RandomizedResponse

__all__ = ["diffprivlib_release", "smartnoise_release", "tumult_release"]


def diffprivlib_release(
    mechanism: Any, value: Any, statistic: str, **facts: Any
) -> StatisticRelease:
    """Describe what a mechanism of diffprivlib released.

    Parameters
    ----------
    mechanism : diffprivlib mechanism
        The object, as of :func:`from_diffprivlib`.
    value : number or list
        What it returned.
    statistic : str
        What was released, in words.
    **facts
        Other arguments of :class:`~pymc_dp.StatisticRelease`; among them ``neighbours``, which only
        whoever chose the sensitivity knows. Several numbers cost several times what one does,
        unless ``epsilon`` says what all that one record changes cost together.

    Returns
    -------
    StatisticRelease
        The guarantee is what the noise keeps, which may be better than the epsilon asked for.

    Examples
    --------
    >>> from pymc_dp.interop import diffprivlib_release
    >>> class Geometric:  # stands for diffprivlib.mechanisms.Geometric
    ...     def __init__(self, epsilon, sensitivity):
    ...         self.epsilon, self.delta, self.sensitivity = epsilon, 0.0, sensitivity
    >>> diffprivlib_release(Geometric(0.5, 1), 41, "visits", neighbours="add_remove")
    StatisticRelease of visits: 41, DiscreteLaplace(scale=2.); epsilon 0.5 (add_remove)
    """
    told: dict[str, Any] = {"provenance": {"tool": "diffprivlib"}, **facts}
    noise = from_diffprivlib(mechanism)
    several = np.size(value) > 1 and not isinstance(noise, RandomizedResponse)
    if several and not {"epsilon", "rho"} & set(facts):
        one = StatisticRelease(statistic, noise, np.ravel(value)[0], **told)
        costs = {"epsilon": one.epsilon, "delta": one.delta, "rho": one.rho}
        told |= {name: np.size(value) * cost for name, cost in costs.items() if cost}
    return StatisticRelease(statistic, noise, value, **told)


def smartnoise_release(
    mechanism: Any,
    value: Any,
    statistic: str,
    *,
    column: str | None = None,
    clamp_counts: bool = False,
    epsilon: float | None = None,
    delta: float | None = None,
    sensitivity: float | None = None,
    max_contrib: int = 1,
    **facts: Any,
) -> StatisticRelease:
    """Describe a number that SmartNoise SQL released.

    Parameters
    ----------
    mechanism : str or SmartNoise mechanism
        As of :func:`from_smartnoise`; of an object, all below but `column` and `clamp_counts` is
        read.
    value : number or list
        What the query returned.
    statistic : str
        What was released, in words.
    column, clamp_counts
        As of :func:`from_smartnoise`.
    epsilon, delta, sensitivity, max_contrib : float, optional
        What the query was asked for.
    **facts
        Other arguments of :class:`~pymc_dp.StatisticRelease`. Neighbours are "add_remove".

    Returns
    -------
    StatisticRelease

    Examples
    --------
    >>> from pymc_dp.interop import smartnoise_release
    >>> smartnoise_release("laplace", 41, "COUNT(*)", column="int", epsilon=0.5, sensitivity=1)
    StatisticRelease of COUNT(*): 41., Laplace(scale=2.).rounded(1, how='trunc'); epsilon 0.5 (add_remove)
    """  # noqa: E501
    asked = {"epsilon": epsilon, "delta": delta, "sensitivity": sensitivity}
    given = {name: each for name, each in asked.items() if each is not None}
    if isinstance(mechanism, str):
        noise = from_smartnoise(
            mechanism, column=column, clamp_counts=clamp_counts, max_contrib=max_contrib, **given
        )
    else:
        noise = from_smartnoise(mechanism, column=column, clamp_counts=clamp_counts)
        names = ("epsilon", "delta", "sensitivity")
        given = {name: getattr(mechanism, name) for name in names if getattr(mechanism, name)}
        max_contrib = mechanism.max_contrib
    if "sensitivity" in given:
        given["sensitivity"] *= max_contrib
    origin: dict[str, Any] = {"provenance": {"tool": "SmartNoise SQL"}, "neighbours": "add_remove"}
    return StatisticRelease(statistic, noise, value, **{**origin, **given, **facts})


def tumult_release(
    noise_info: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    value: Any,
    statistic: str,
    *,
    threshold: float | None = None,
    **facts: Any,
) -> StatisticRelease:
    """Describe a column that Tumult Analytics released.

    Parameters
    ----------
    noise_info : mapping or list
        As of :func:`from_tumult`.
    value : number or list
        The column; where rows were suppressed, with ``np.nan`` in their place.
    statistic : str
        What was released, in words, with the groups in the order of `value`.
    threshold : float, optional
        The threshold of ``suppress``, which the noise information does not tell.
    **facts
        Other arguments of :class:`~pymc_dp.StatisticRelease`.

    Returns
    -------
    StatisticRelease

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_dp.interop import tumult_release
    >>> told = [{"noise_mechanism": "GEOMETRIC", "noise_parameter": 2}]
    >>> release = tumult_release(told, [np.nan, 41], "visits by ward: east, north", threshold=5)
    >>> release.mechanism
    DiscreteLaplace(scale=2.).thresholded(5, dropped=nan)
    """
    noise: Any = from_tumult(noise_info)
    if threshold is not None:
        noise = noise.thresholded(threshold, dropped=float("nan"))
    told: dict[str, Any] = {"provenance": {"tool": "Tumult Analytics"}, **facts}
    return StatisticRelease(statistic, noise, value, **told)
