"""The no-U-turn sampler as one compiled call, for densities that PyTensor compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pymc_dp.numerics.compiled import join
from pymc_dp.numerics.cycles import inner_cached
from pymc_dp.numerics.leapfrog import drift, kick, pull_back

__all__ = ["ACCEPT", "DIVERGING", "DOUBLINGS", "LEAPS", "LOG_DENSITY", "REPORT_SIZE", "make_nuts"]

#: a trajectory whose energy is off by more has diverged
_MOST_ENERGY = 1000.0
#: positions in the report of a move, and their number
ACCEPT, LEAPS, DIVERGING, DOUBLINGS, LOG_DENSITY = range(5)
REPORT_SIZE = 5


@inner_cached
def _take(out, values):  # type: ignore[no-untyped-def]
    for i in range(out.size):
        out[i] = values[i]


@inner_cached
def _add_momentum(momentum, total):  # type: ignore[no-untyped-def]
    """Add the momentum to a sum. Gives the kinetic energy."""
    kinetic = 0.0
    for i in range(momentum.size):
        kinetic += 0.5 * momentum[i] ** 2
        total[i] += momentum[i]
    return kinetic


@inner_cached
def _turns(total, before, first, last):  # type: ignore[no-untyped-def]
    """Whether a trajectory comes back, by the momenta at its ends and their sum.

    The sum is `total` less `before`, with the momentum of the first leaf.
    """
    at_first = at_last = 0.0
    for i in range(total.size):
        middle = total[i] - before[i] + 0.5 * (first[i] - last[i])
        at_first += middle * first[i]
        at_last += middle * last[i]
    return at_first <= 0.0 or at_last <= 0.0


@inner_cached
def _subtree_turns(leaf, momentum, total, momenta, totals):  # type: ignore[no-untyped-def]
    """Whether some balanced subtree that ends in this leaf turns.

    Momenta at the first leaves of the subtrees that are still open are kept, one for each level: a
    leaf's number in binary says which it closes (Phan et al. 2019, Algorithm 2).
    """
    top, rest = 0, leaf >> 1
    while rest:
        top, rest = top + (rest & 1), rest >> 1
    if leaf & 1 == 0:
        _take(momenta[top], momentum)
        _take(totals[top], total)
        return False
    level = top
    while leaf & 1:
        if _turns(total, totals[level], momenta[level], momentum):
            return True
        level, leaf = level - 1, leaf >> 1
    return False


def density(theta, given):  # type: ignore[no-untyped-def]
    """Log-density and gradient: a place to be taken."""
    raise NotImplementedError


def _move(rng, theta, given, factor, step_size, doublings, report):  # type: ignore[no-untyped-def]
    """See :func:`make_nuts`, which puts a density in the place of the global one."""
    size = theta.size
    # ends of the trajectory: 0 is the earlier, 1 the later
    places, momenta, slopes = np.empty((2, size)), np.empty((2, size)), np.empty((2, size))
    if factor.ndim == 3:  # noqa: SIM108  (decided when it is compiled)
        metric = factor
    else:
        metric = factor[np.newaxis]
    open_momenta = np.empty((doublings + 1, size))
    open_totals = np.empty((doublings + 1, size))
    # sums of momenta along the trajectory, and along the part that is being built
    total, part_total, part_place = np.zeros(size), np.empty(size), np.empty(size)
    for i in range(report.size):
        report[i] = 0.0
    found, gradient = density(theta, given)
    report[LOG_DENSITY] = found.item()
    for i in range(size):
        momenta[0, i] = rng.standard_normal()
    pull_back(metric, gradient, slopes[0])
    energy = report[LOG_DENSITY] - _add_momentum(momenta[0], total)
    _take(places[0], theta)
    _take(places[1], theta)
    _take(momenta[1], momenta[0])
    _take(slopes[1], slopes[0])
    log_weight, going = 0.0, energy > -np.inf
    while going and report[DOUBLINGS] < doublings:
        end = 1 if rng.random() < 0.5 else 0
        step = step_size if end == 1 else -step_size
        place, momentum, slope = places[end], momenta[end], slopes[end]
        part_weight, part_value = -np.inf, 0.0
        for i in range(size):
            part_total[i] = 0.0
        for leaf in range(2 ** int(report[DOUBLINGS])):
            kick(momentum, slope, 0.5 * step)
            drift(place, metric, momentum, step)
            found, gradient = density(place, given)
            pull_back(metric, gradient, slope)
            kick(momentum, slope, 0.5 * step)
            gain = found.item() - _add_momentum(momentum, part_total) - energy
            report[LEAPS] += 1
            if not gain > -_MOST_ENERGY:
                report[DIVERGING], going = 1.0, False
                break
            report[ACCEPT] += min(1.0, np.exp(gain))
            part_weight = np.logaddexp(part_weight, gain)
            if -rng.standard_exponential() < gain - part_weight:
                _take(part_place, place)
                part_value = found.item()
            if _subtree_turns(leaf, momentum, part_total, open_momenta, open_totals):
                going = False
                break
        if going:
            report[DOUBLINGS] += 1
            if -rng.standard_exponential() < part_weight - log_weight:
                _take(theta, part_place)
                report[LOG_DENSITY] = part_value
            log_weight = np.logaddexp(log_weight, part_weight)
            for i in range(size):
                total[i] += part_total[i]
            going = not _turns(total, momenta[0], momenta[0], momenta[1])
    report[ACCEPT] /= max(report[LEAPS], 1.0)


def make_nuts(density: Callable[..., Any], key: str | None) -> Callable[..., None]:
    """Compile ``move(rng, theta, given, factor, step_size, doublings, report)``: `theta` is moved.

    Parameters
    ----------
    density : callable
        ``density(theta, given)`` gives a log-density and its gradient, numba-compiled.
    key : str or None
        Names the density and this package, for PyTensor's cache on disk; None for no cache.

    Notes
    -----
    Multinomial sampling along the trajectory and generalised U-turns (Betancourt 2017, appendix
    A), subtrees built leaf after leaf instead of recursively (Phan, Pradhan & Jankowiak 2019). It
    moves with unit mass in coordinates q of ``theta + factor @ q``, factor lower triangular or
    block-diagonal as in :mod:`~pymc_dp.numerics.leapfrog`, and stops after `doublings` at the
    latest. The log-density weighs the places of a trajectory; its gradient only steers, and may be
    that of something similar.

    ``report`` takes the mean acceptance statistic, the number of leapfrog steps, whether the
    trajectory diverged, how often it was doubled and the log-density at the end.

    Examples
    --------
    >>> import numba
    >>> import numpy as np
    >>> from pymc_dp.numerics.nuts import make_nuts
    >>> density = numba.njit(lambda theta, given: (np.array(-0.5 * theta @ theta), -theta))
    >>> move = make_nuts(density, None)
    >>> rng, theta, report = np.random.default_rng(1), np.zeros(2), np.zeros(5)
    >>> squares = []
    >>> for _ in range(2000):
    ...     move(rng, theta, np.zeros(0), np.eye(2), 0.7, 8, report)
    ...     squares.append(theta @ theta)
    >>> bool(abs(np.mean(squares) - 2) < 0.3)
    True
    """
    compiled: Callable[..., None] = join(_move, {"density": density}, key)
    return compiled
