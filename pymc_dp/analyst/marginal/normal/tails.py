"""Records whose sums have no normal law, however many there are: their variance is infinite."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from pymc.distributions.continuous import HalfCauchyRV, HalfStudentTRV
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.random.basic import CauchyRV, InvGammaRV, ParetoRV, StudentTRV

from pymc_dp.graph.intervals import ONCE
from pymc_dp.types import Array

__all__ = ["growth", "tail_index"]

#: families in which P(|x| > t) falls as a power of t: which parameter that is, or the power
_POWERS: dict[type, tuple[int | None, float]] = {
    CauchyRV: (None, 1.0),
    HalfCauchyRV: (None, 1.0),
    HalfStudentTRV: (0, 0.0),
    InvGammaRV: (0, 0.0),
    ParetoRV: (0, 0.0),
    StudentTRV: (0, 0.0),
}
#: far out
_PLACES = np.array([-1e12, -1e9, 1e9, 1e12])


def tail_index(rv: Any) -> float | None:
    """Smallest power at which tails fall, where it is known; None for others.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_dp.analyst.marginal.normal.tails import tail_index
    >>> tail_index(pm.StudentT.dist(nu=1.5)), tail_index(pm.Normal.dist())
    (1.5, None)
    """
    if type(rv.owner.op) not in _POWERS:
        return None
    position, power = _POWERS[type(rv.owner.op)]
    if position is None:
        return power
    parameter = rv.owner.op.dist_params(rv.owner)[position]
    if not all(isinstance(var, Constant) for var in graph_inputs([parameter])):
        return None
    return float(np.min(parameter.eval(mode=ONCE)))


def growth(function: Callable[[Array], Sequence[Array]], rows: int) -> float:
    """Power at which what records add grows far out, the largest; zero where it is bounded.

    Parameters
    ----------
    function : callable
        What they add, by one number for each of some rows.
    rows : int
        How many rows.
    """
    with np.errstate(all="ignore"):
        lower, low, high, higher = (
            np.concatenate([np.ravel(part) for part in function(np.full(rows, place))])
            for place in _PLACES
        )
        ends = [(lower, low), (higher, high)]
        powers = np.concatenate([np.log10(np.abs(far) / np.abs(near)) / 3 for far, near in ends])
    return float(np.max(powers[np.isfinite(powers)], initial=0.0))
