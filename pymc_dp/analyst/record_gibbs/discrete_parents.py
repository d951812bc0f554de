"""Move discrete parameters of records, the records' residuals held fixed.

A discrete parameter k that is drawn given the records, x ~ Normal(k, 1) with many of them, never
leaves its value: all records would have to follow it at once. In the coordinates (k, u) of
:mod:`~pymc_dp.analyst.record_gibbs.interweave` the posterior is

    p(k) * noise(released | statistic(x(k, u))),

from which k is drawn, one entry at a time: among all its values where they are few, elsewhere among
those in a window that is laid around it at random. Each value of a window is in as many windows
with each other one, so that this leaves the posterior as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from pymc.vartypes import continuous_types

from pymc_dp.analyst.marginal.values import finite_values
from pymc_dp.numerics.cycles import Part, inner

__all__ = ["Window", "chosen_discrete", "make_discrete_moves", "one_after_the_other"]

#: values of one entry that are tried, and of all entries together, a cycle
MOST_VALUES, MOST_TRIED = 16, 64


class Window(NamedTuple):
    """Values of an entry of a discrete parameter that are tried in one move.

    Attributes
    ----------
    first, number : int
        The first one, and how many.
    slides : bool
        Whether it is laid around the entry at random instead.
    """

    first: int
    number: int
    slides: bool

    @classmethod
    def of(cls, rv: Any) -> Window:
        """Find it for the entries of a discrete variable."""
        found = finite_values(rv)
        if found is None or len(found) > MOST_VALUES:
            return cls(0, MOST_VALUES, True)
        return cls(found.start, len(found), False)


def chosen_discrete(sizes: dict[Any, int]) -> dict[Any, Window]:
    """Discrete parameters that are few enough to be moved so, and their windows."""
    chosen: dict[Any, Window] = {}
    left = MOST_TRIED
    for rv in sorted(
        (rv for rv in sizes if rv.dtype not in continuous_types), key=sizes.__getitem__
    ):
        window = Window.of(rv)
        if sizes[rv] * window.number <= left:
            chosen[rv] = window
            left -= sizes[rv] * window.number
    return chosen


def make_discrete_moves(
    density: Callable[..., Any],
    moved: Callable[..., Any],
    draw: Callable[..., Any] | None,
    where: Sequence[int],
    windows: Sequence[Window],
) -> Part:
    """Compile draws of discrete parameters that take the records along.

    Parameters
    ----------
    density, moved, draw : callable
        As for :func:`~pymc_dp.numerics.slice.make_interweaving`;
    where : sequence of int
        Positions in theta.
    windows : sequence of Window
        The window of each.
    """
    draw_residuals = _draw_nothing if draw is None else draw
    places = np.array(where, dtype=np.int64)
    firsts, numbers, slides = (
        np.array(column, dtype=np.int64) for column in zip(*windows, strict=True)
    )

    @inner
    def part(rng, arrays, tune):  # type: ignore[no-untyped-def]
        theta, given, table = arrays.theta, arrays.given, arrays.table
        for entry in range(places.size):
            place, number, first = places[entry], numbers[entry], float(firsts[entry])
            if slides[entry]:
                first = theta[place] - np.floor(number * rng.random())
            # residuals that are drawn are drawn anew: those of counts say where u was
            drawn = draw_residuals(rng, theta, given, table)[0]
            proposal, values = theta.copy(), np.empty(number)
            for k in range(number):
                proposal[place] = first + k
                value = density(proposal, theta, given, table, drawn)[0].item()
                values[k] = value if np.isfinite(value) else -np.inf
            # where the residuals do not lead back to here, they lead nowhere
            here = int(theta[place] - first)
            if 0 <= here < number and np.isfinite(values[here]):
                weights = np.cumsum(np.exp(values - np.max(values)))
                chosen = min(np.searchsorted(weights, rng.random() * weights[-1]), number - 1)
                if chosen != here:
                    proposal[place] = first + chosen
                    table[:] = moved(proposal, theta, given, table, drawn)[0]
                    theta[place] = proposal[place]

    return part


def one_after_the_other(first: Part, second: Part) -> Part:
    """Compile two parts of a cycle as one."""

    @inner
    def part(rng, arrays, tune):  # type: ignore[no-untyped-def]
        first(rng, arrays, tune)
        second(rng, arrays, tune)

    return part


@inner
def _draw_nothing(rng, theta, given, table):  # type: ignore[no-untyped-def]
    """Pass the table on, where something of its type is needed."""
    return (table,)
