"""Integer records without a largest value: the values that matter to a release."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.random.basic import GeometricRV, NegBinomialRV, PoissonRV
from pytensor.tensor.variable import TensorVariable

from pymc_dp.analyst.marginal.values import clamp_of
from pymc_dp.analyst.records import length_of
from pymc_dp.analyst.release import Release
from pymc_dp.graph.intervals import ONCE
from pymc_dp.mechanisms.additive import AdditiveNoise
from pymc_dp.mechanisms.around import Around

__all__ = ["Window", "window"]

#: values that a record may take in a sum, at the most
MOST_VALUES = 2000
#: what the noise's tail beyond the window is, as a logarithm, where there is room for it: release
#: and parameters may contradict each other as much (24 sigmas of Gaussian noise); and at the most
LOG_TAIL, LARGEST_LOG_TAIL = -300.0, -37.0

_COUNTS = (PoissonRV, NegBinomialRV, GeometricRV)


@dataclass(frozen=True)
class Window:
    """Values of each record to sum over.

    Attributes
    ----------
    values : TensorVariable of shape (number of values, n)
        Whole numbers.
    log_weights : TensorVariable
        Zero, or minus infinity for values that do not count.
    lumped : bool
        Whether the last value stands for all from there on, between which a clamp makes no
        difference. Otherwise what is left out changes the density of a release by less than
        ``exp(LOG_TAIL)`` times the noise's largest, or, where that are more than `MOST_VALUES`
        values, by what their number leaves, ``exp(LARGEST_LOG_TAIL)`` times it at the most.
    """

    values: TensorVariable
    log_weights: TensorVariable
    lumped: bool


def window(record: Any, releases: Sequence[Release], released: Sequence[Any]) -> Window | str:
    """Values of a count that its releases tell apart, or why they cannot be listed."""
    if not isinstance(record.owner.op, _COUNTS):
        return f"the values of {record.name!r} cannot be listed, or have no end that is known."
    n = length_of(record)
    clamps = [clamp_of(release.statistic, record) for release in releases]
    highest = [high for clamp in clamps if (high := _largest(clamp)) is not None]
    if len(highest) == len(clamps):
        most = max(1, math.ceil(max(highest)))  # a bound between whole numbers: all above it
        if most > MOST_VALUES:
            return f"{record.name!r} is clamped to more than {MOST_VALUES} values."
        listed = np.broadcast_to(np.arange(most + 1)[:, None], (most + 1, n))
        return Window(pt.constant(listed, dtype="int64"), pt.zeros((1, 1)), True)
    for release, clamp, value in zip(releases, clamps, released, strict=True):
        if clamp == (None, None) and _is_plain(release):
            return _around(record, release, value)
    return f"{record.name!r} has no largest value: clamp it, pmdp.clamp({record.name}, 0, upper)."


def _is_plain(release: Release) -> bool:
    return isinstance(release.mechanism, AdditiveNoise) and not isinstance(
        release.mechanism, Around
    )


def _around(record: Any, release: Release, value: Any) -> Window | str:
    """Values within reach of the noise from what was released."""
    mechanism: Any = release.mechanism
    noise, most = float(np.max(mechanism.noise)), MOST_VALUES // 2
    if mechanism.log_tail(float(most), noise) > LARGEST_LOG_TAIL:
        return (
            f"the noise of {release.name!r} reaches more than {MOST_VALUES} values of "
            f"{record.name!r}: clamp it, pmdp.clamp({record.name}, 0, upper)."
        )
    tails = range(1, most)  # the first one that is thin enough, the tail being monotone
    width = 1 + bisect_left(tails, -LOG_TAIL, key=lambda w: -mechanism.log_tail(float(w), noise))
    steps = np.arange(-width, width + 1)[:, None]
    listed = pt.round(pt.as_tensor(value).astype("float64")).astype("int64")[None, :] + steps
    return Window(pt.maximum(listed, 0), pt.switch(listed < 0, -np.inf, 0.0), False)


def _largest(clamp: tuple[Any, Any] | None) -> float | None:
    return None if clamp is None or clamp[1] is None else float(np.max(clamp[1].eval(mode=ONCE)))
