"""Slice sampling along lines (Neal 2003): one update, and parts of a cycle made of it.

Parameters without a conditional of a known family move one by one, given the records. Parameters
that take the records along (interweaving) move in directions of the shape learned while tuning.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pymc_dp.numerics.cholesky import lower_cholesky
from pymc_dp.numerics.cycles import Part, inner, inner_cached

__all__ = ["make_interweaving", "make_line_slice", "make_slice"]

#: how often a bracket may be widened by its width, on both sides together
MOST_STEPS = 50
#: how often a bracket is shrunk at the most: from the widest to what rounding leaves nothing of
#: takes a third of that, and hardly ever half
MOST_SHRUNK = 200
#: between which widths are kept
NARROWEST, WIDEST = 1e-150, 1e150
#: cycles of tuning between new shapes of the directions
RESHAPE_EVERY = 50


def make_line_slice(log_density: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a slice update along a line, stepped out and shrunk (figures 3 and 5 there).

    The steps are shared out between both sides at random: otherwise a slice longer than all of
    them together, as vague priors have, would be left towards one side more often than entered.

    Parameters
    ----------
    log_density : callable
        ``log_density(distance, line)``, compiled: a number, at a distance from the start.

    Returns
    -------
    callable
        ``update(rng, line, width, current)`` gives the distance that was moved and the log-density
        there, which the last call of `log_density` gave if the distance is not zero. `line` is
        passed on, `width` that of the first bracket and `current` the log-density at the start.
        Nothing is moved where the width is not a positive number.
    """

    @inner
    def update(rng, line, width, current):  # type: ignore[no-untyped-def]
        if not 0.0 < width < np.inf:
            return 0.0, current
        level = current - rng.standard_exponential()
        left = -width * rng.random()
        right = left + width
        steps_left = int(rng.random() * MOST_STEPS)
        steps_right = MOST_STEPS - 1 - steps_left
        # one loop, so that the density is compiled into it once: 0 widens on the left, 1 on the
        # right, 2 shrinks
        stage, shrunk = 0, 0
        while shrunk < MOST_SHRUNK:
            if stage == 0 and steps_left == 0:
                stage = 1
            if stage == 1 and steps_right == 0:
                stage = 2
            if stage == 0:
                distance = left
            elif stage == 1:
                distance = right
            else:
                distance = left + (right - left) * rng.random()
            value = log_density(distance, line)
            inside = value > level
            if stage == 0:
                if inside:
                    left -= width
                    steps_left -= 1
                else:
                    stage = 1
            elif stage == 1:
                if inside:
                    right += width
                    steps_right -= 1
                else:
                    stage = 2
            elif inside:
                return distance, value
            elif right - left < 1e-12 * width:  # rounding: nothing but the start is left
                return 0.0, current
            else:
                shrunk += 1
                if distance < 0.0:
                    left = distance
                else:
                    right = distance
        return 0.0, current

    return update


@inner_cached
def _learned_width(width, distance, cycles):  # type: ignore[no-untyped-def]
    """Bring a width closer to three times the usual move, at least a hundredth of what it is."""
    if not 0.0 < width < np.inf:
        return 1.0
    towards = max(3 * abs(distance), 0.01 * width)
    return min(max(width + (towards - width) / (cycles + 1) ** 0.6, NARROWEST), WIDEST)


def _make_direction_slice(density: Callable[..., Any]) -> Callable[..., Any]:
    """Compile an update of theta in a direction; `proposal` is where it ended, if it moved.

    ``density(proposal, theta, given, table, drawn)`` gives a tuple, the log-density.
    """

    @inner
    def log_density(distance, line):  # type: ignore[no-untyped-def]
        proposal, direction, theta, given, table, drawn = line
        for i in range(theta.size):
            proposal[i] = theta[i] + distance * direction[i]
        return density(proposal, theta, given, table, drawn)[0].item()

    line_slice = make_line_slice(log_density)

    @inner
    def update(rng, arrays, direction, width, current, drawn, proposal):  # type: ignore[no-untyped-def]
        line = (proposal, direction, arrays.theta, arrays.given, arrays.table, drawn)
        return line_slice(rng, line, width, current)

    return update


def make_slice(log_density: Callable[..., Any], where: tuple[int, int]) -> Part:
    """Compile slice updates of ``theta[where[0]:where[1]]``, one entry at a time.

    Parameters
    ----------
    log_density : callable
        ``log_density(theta, given, table)`` gives a tuple of one: the log-density, up to terms
        without these parameters.
    where : tuple of int
        First position in theta, and the one after the last.

    Notes
    -----
    The width of the first bracket is learned while tuning, about three times the usual move.
    """
    start, stop = where

    @inner
    def density(proposal, theta, given, table, drawn):  # type: ignore[no-untyped-def]
        return log_density(proposal, given, table)

    update = _make_direction_slice(density)

    @inner
    def part(rng, arrays, tune):  # type: ignore[no-untyped-def]
        theta, widths = arrays.theta, arrays.widths
        current = log_density(theta, arrays.given, arrays.table)[0].item()
        direction, proposal = np.zeros(theta.size), np.empty(theta.size)
        for i in range(start, stop):
            direction[i] = 1.0
            distance, current = update(
                rng, arrays, direction, widths[i], current, arrays.table, proposal
            )
            direction[i] = 0.0
            theta[i] += distance
            if tune:
                widths[i] = _learned_width(widths[i], distance, arrays.learned[0])

    return part


def make_interweaving(
    density: Callable[..., Any],
    moved: Callable[..., Any],
    which: NDArray[np.int64],
    times: int,
    draw: Callable[..., Any] | None,
) -> Part:
    """Compile slice updates of parameters that take the records along.

    Parameters
    ----------
    density, moved : callable
        Of ``(proposal, theta, given, table, drawn)``: the log-density at the proposal with the
        records moved along, and the moved records.
    which : ndarray
        Positions in `theta` of the parameters that move.
    times : int
        Updates a cycle, in random directions that are at right angles in the learned shape.
    draw : callable or None
        ``draw(rng, theta, given, table)`` gives what residuals have that is random given parameters
        and records, as a matrix; None where there is nothing.
    """
    size = which.size
    update = _make_direction_slice(density)
    draw_residuals = _draw_nothing if draw is None else draw

    @inner
    def part(rng, arrays, tune):  # type: ignore[no-untyped-def]
        theta, given, table, width = arrays.theta, arrays.given, arrays.table, arrays.width
        drawn = draw_residuals(rng, theta, given, table)[0]
        current = density(theta, theta, given, table, drawn)[0].item()
        direction, proposal = np.zeros(theta.size), theta.copy()
        normals = np.empty((times, size))
        for turn in range(times):
            _another_direction(rng, normals, turn)
            for i in range(size):
                step = 0.0
                for j in range(i + 1):
                    step += arrays.factor[i, j] * normals[turn, j]
                direction[which[i]] = step
            distance, current = update(rng, arrays, direction, width[0], current, drawn, proposal)
            if distance != 0.0:
                table[:] = moved(proposal, theta, given, table, drawn)[0]
                theta[:] = proposal
            if tune:
                width[0] = _learned_width(width[0], distance, arrays.learned[0])
        if tune:
            _learn(which, arrays)

    return part


@inner
def _draw_nothing(rng, theta, given, table):  # type: ignore[no-untyped-def]
    """Pass the table on, where something of its type is needed."""
    return (table,)


@inner_cached
def _another_direction(rng, normals, turn):  # type: ignore[no-untyped-def]
    """Fill ``normals[turn]`` with a random unit vector at right angles to the last ones."""
    size = normals.shape[1]
    for i in range(size):
        normals[turn, i] = rng.standard_normal()
    for before in range(turn - turn % size, turn):
        part = 0.0
        for i in range(size):
            part += normals[before, i] * normals[turn, i]
        for i in range(size):
            normals[turn, i] -= part * normals[before, i]
    length = 0.0
    for i in range(size):
        length += normals[turn, i] ** 2
    for i in range(size):
        normals[turn, i] /= np.sqrt(length)


@inner_cached
def _learn(which, arrays):  # type: ignore[no-untyped-def]
    """Keep running moments of the parameters (Haario et al. 2001), and at times a new shape."""
    theta, size, learned = arrays.theta, which.size, arrays.learned[0]
    weight = 2 / (learned + 2)  # the later half counts most
    if learned == 1:  # where a chain starts: what was there before has no unit
        for i in range(size):
            arrays.mean[i] = theta[which[i]]
            for j in range(size):
                arrays.cov[i, j] = 0.0
    for i in range(size):
        for j in range(size):
            step = (theta[which[i]] - arrays.mean[i]) * (theta[which[j]] - arrays.mean[j])
            arrays.cov[i, j] = (1 - weight) * (arrays.cov[i, j] + weight * step)
    for i in range(size):
        arrays.mean[i] += weight * (theta[which[i]] - arrays.mean[i])
    if learned % RESHAPE_EVERY == 0:
        factor = arrays.cov.copy()
        for i in range(size):  # each beside its own size, since they may have several units
            factor[i, i] *= 1 + 1e-6
            if factor[i, i] == 0:
                factor[i, i] = arrays.factor[i, i] ** 2
        if lower_cholesky(factor, factor):
            before = after = 0.0
            for i in range(size):
                before += np.log(arrays.factor[i, i]) / size
                after += np.log(factor[i, i]) / size
                for j in range(size):
                    arrays.factor[i, j] = factor[i, j]
            width = arrays.width[0] * np.exp(before - after)  # the size stays as it was learned
            arrays.width[0] = min(max(width, NARROWEST), WIDEST)
