"""Slice sampling of one parameter after another (Neal 2003): a part of a round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pymc_dp.kernels.arrays import Part, inner

__all__ = ["make_slice"]

#: how often a bracket may be widened by its width on either side together
MOST_STEPS = 50


def make_slice(log_density: Callable[..., Any], where: tuple[int, int]) -> Part:
    """Compile slice updates of ``theta[where[0]:where[1]]``, one entry at a time.

    Parameters
    ----------
    log_density : callable
        ``log_density(theta, given, table)``, up to terms without these parameters.
    where : tuple of int
        First position in theta, and the one after the last.

    Notes
    -----
    The bracket is stepped out and shrunk (Neal 2003, figures 3 and 5); its width is learned while
    tuning, about three times the usual move, and then stays.
    """
    start, stop = where

    @inner
    def part(rng, arrays, tune):  # type: ignore[no-untyped-def]
        theta, given, table, widths = arrays.theta, arrays.given, arrays.table, arrays.widths
        current = log_density(theta, given, table)[0].item()
        for i in range(start, stop):
            origin = theta[i]
            level = current - rng.standard_exponential()
            left = origin - widths[i] * rng.random()
            right = left + widths[i]
            steps_left = int(rng.random() * MOST_STEPS)
            steps_right = MOST_STEPS - 1 - steps_left
            while steps_left > 0:
                theta[i] = left
                if not log_density(theta, given, table)[0].item() > level:
                    break
                left -= widths[i]
                steps_left -= 1
            while steps_right > 0:
                theta[i] = right
                if not log_density(theta, given, table)[0].item() > level:
                    break
                right += widths[i]
                steps_right -= 1
            while True:
                theta[i] = left + (right - left) * rng.random()
                current = log_density(theta, given, table)[0].item()
                if current > level or right - left < 1e-14 * (1 + abs(origin)):
                    break
                if theta[i] < origin:
                    left = theta[i]
                else:
                    right = theta[i]
            if not current > level:  # the bracket has shrunk to the start: rounding
                theta[i] = origin
                current = log_density(theta, given, table)[0].item()
            if tune:
                move = 3 * np.abs(theta[i] - origin)
                widths[i] += (move - widths[i]) / (arrays.learned[0] + 1) ** 0.6

    return part
