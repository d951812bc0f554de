"""Where to clip records' log-ratios: what clipping does to a posterior, against what noise does."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pymc_dp.types import Vector

_HALVINGS = 20  # of the fraction of ratios that is clipped


class Move(NamedTuple):
    """A move in the posterior, as synthetic records see it.

    Attributes
    ----------
    slopes : ndarray
        Records' log-likelihood ratios over the length of the move.
    length : float
        Of the move.
    weight : float
        How many confidential records a synthetic one stands for.
    """

    slopes: Vector
    length: float
    weight: float


class ClipBound(NamedTuple):
    """A bound, and by how many standard deviations it moves the posterior, by coordinate."""

    bound: float
    shift: float


def choose_bound(
    moves: Sequence[Move], squared_length: float, noise_variance: float, most_clipped: float
) -> ClipBound:
    """Clip where the mean square error of posterior means is least.

    Parameters
    ----------
    moves : sequence of Move
        Some moves of about a posterior standard deviation.
    squared_length : float
        Mean square of a move's length, in posterior standard deviations.
    noise_variance : float
        Monte Carlo variance of a posterior mean, in posterior variances, when bounds are the root
        mean square of slopes; it grows as the bound's square.
    most_clipped : float
        Fraction of ratios that may be clipped.

    Notes
    -----
    Clipping tilts the log-posterior: where log-ratios change by c over a move of one standard
    deviation, the posterior moves by c standard deviations. Records pull more strongly in one
    direction than in the other in many models, and the tilt grows as the root of their number; the
    noise that a higher bound costs does not.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_dp.curator.plan.clipping import Move, choose_bound
    >>> slopes = np.random.default_rng(1).exponential(size=10_000) - 1
    >>> few, many = (
    ...     choose_bound([Move(slopes, n**-0.5, n / 10_000)], 1.0, 10 / n, 0.05)
    ...     for n in (1000, 100_000)
    ... )
    >>> bool(few.bound < many.bound < slopes.max())
    True
    """
    sizes = np.concatenate([np.abs(move.slopes) for move in moves])
    mean_square = float(np.mean(sizes**2))
    clipped = most_clipped / 2.0 ** np.arange(_HALVINGS)
    bounds = np.unique(np.append(np.quantile(sizes, 1 - clipped), sizes.max()))
    tails = [_Tail.above(float(bounds[0]), move) for move in moves]
    shifts = [
        max(0.0, float(np.mean([tail.squared_change(bound) for tail in tails])) / squared_length)
        for bound in bounds
    ]
    best = int(np.argmin(shifts + noise_variance * bounds**2 / mean_square))
    return ClipBound(float(bounds[best]), float(np.sqrt(shifts[best])))


class _Tail(NamedTuple):
    """Those of a move's slopes that may be clipped."""

    slopes: Vector
    size: int
    length: float
    weight: float

    @classmethod
    def above(cls, bound: float, move: Move) -> "_Tail":
        kept = move.slopes[np.abs(move.slopes) > bound]
        return cls(kept, move.slopes.size, move.length, move.weight)

    def squared_change(self, bound: float) -> float:
        """Square of the change of all records' log-ratio, without that of having few synthetic."""
        cut = self.length * (np.clip(self.slopes, -bound, bound) - self.slopes)
        total = float(cut.sum())
        spread = float(cut @ cut) - total**2 / self.size
        return self.weight**2 * (total**2 - spread) + self.weight * spread
