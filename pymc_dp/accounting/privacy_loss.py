r"""Privacy loss distributions of Gaussian noise on all records or on random batches, composed.

A mechanism is dominated by a pair (P, Q) of distributions if, for every :math:`\alpha \ge 0` and
all neighbours, :math:`\sup_S M(x)(S) - \alpha M(x')(S)` is no larger than the same of P and Q. What
dominates each of several looks, chosen adaptively, dominates them together by its products (Zhu,
Dong & Wang 2022, Theorem 10). In units of the noise's standard deviation, with c the bound on a
record's part of a sum, :math:`\varphi_u` the normal law around u and q a record's chance to be in a
batch, these are dominating pairs:

All records
    :math:`\varphi_m` and :math:`\varphi_0`, m the sensitivity (2c or c, by the relation).

Poisson batches, a record substituted
    Given the rest of the batch, :math:`(1 - q)\varphi_0 + q\varphi_u` and
    :math:`(1 - q)\varphi_0 + q\varphi_v` with u and v no longer than c. Among sets S of equal
    :math:`\varphi_0(S) = \Phi(s)`, :math:`\varphi_u(S) \le \Phi(s + c)` and
    :math:`\varphi_v(S) \ge \Phi(s - c)` by Neyman and Pearson, and both are attained by one
    half-space if u and v are opposite and of length c. So that pair dominates, in any dimension.

Poisson batches, a record added or removed
    :math:`(1 - q)\varphi_0 + q\varphi_c` and :math:`\varphi_0`, in this order or the other, the
    same for all looks.

Batches of fixed size, a record substituted
    Given the others, with w the part of the record that stands in where this one is not drawn,
    :math:`(1 - q)\varphi_w + q\varphi_u` and :math:`(1 - q)\varphi_w + q\varphi_v`, all within 2c
    of one another. For :math:`\alpha \ge 1` and :math:`a = 1 + (\alpha - 1)/q` the difference is q
    times that of :math:`\varphi_u` and a mixture of :math:`\varphi_w` and :math:`\varphi_v` at a
    (Balle, Barthe & Gaboardi 2018), so no larger than that of
    :math:`(1 - q)\varphi_0 + q\varphi_{2c}` and :math:`\varphi_0`. The relation is symmetric, which
    says the rest, for :math:`\alpha < 1`. No single pair of data sets attains both, and composing
    the worst pair of one look would not be enough (Lebeda et al. 2025).

Losses are put on a grid so that nothing is lost: the mass between two points moves to both, P's and
Q's kept, which can only raise the curve (Doroshenko et al. 2022). Sums of losses are convolved by
FFT under a tilt that puts the guarantee asked for in their middle, where its tiny mass is exact to
the relative precision of floats.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy
from scipy.special import logsumexp, ndtr

from pymc_dp.types import Vector

__all__ = ["Look", "composed_loss_epsilon"]

_REACH = 12.0  # standard deviations of noise beyond which losses count as infinite: 2e-33
_POINTS = 16.0  # of the grid in a standard deviation of a look's loss
_MOST_POINTS = 2**18  # of a look's losses
_LARGEST_LOSS = 600.0  # of a batch; the exponentials of losses are floats
_STEEPEST = 12.0  # tilt, over one standard deviation of the sum
_LEAST_DELTA = 1e-14  # sums of losses by FFT are right to some 1e-16 of the whole
_WIDE = 14.0  # half-width of the window, in standard deviations of the tilted sum


class Look(NamedTuple):
    """Looks of one kind, by the distributions that dominate each of them.

    Attributes
    ----------
    shift : float
        Distance of the pair's normal laws, in standard deviations: m, or c for Poisson batches.
    fraction : float
        A record's chance to be in the batch.
    form : {"all", "fixed", "poisson", "remove", "add"}
        Which pair, the last two for Poisson batches with a record added or removed.
    number : int
        How many looks.
    """

    shift: float
    fraction: float
    form: str
    number: int


def _mixture_place(loss: Vector, shift: float, q: float) -> Vector:
    """Where ``(1 - q) + q exp(shift x - shift^2 / 2)`` is the exponential of a loss."""
    with np.errstate(all="ignore"):
        excess = np.expm1(loss) + q
        place = (np.log(excess) - math.log(q) + shift**2 / 2) / shift
    return np.where(excess > 0, place, -np.inf)


def _tails(look: Look, loss: Vector) -> tuple[Vector, Vector]:
    """Mass of P and of Q where the loss is larger, at increasing losses."""
    m, q = look.shift, look.fraction
    if look.form == "all":
        place = loss / m + m / 2
        return ndtr(m - place), ndtr(-place)
    if look.form == "remove":
        place = _mixture_place(loss, m, q)
        none = ndtr(-place)
        return (1 - q) * none + q * ndtr(m - place), none
    if look.form == "add":  # the pair the other way round: large losses on the left
        place = _mixture_place(-loss, m, q)
        none = ndtr(place)
        return none, (1 - q) * none + q * ndtr(place - m)
    if look.form == "fixed":
        p_above, q_above = _tails(look._replace(form="remove"), np.abs(loss))
        up = loss >= 0
        return np.where(up, p_above, 1 - q_above), np.where(up, q_above, 1 - p_above)
    # the positive root y = exp(m x) of  q k y^2 + (1 - q)(1 - e^loss) y - e^loss q k = 0
    half = (1 - q) * np.expm1(loss) / 2
    log_edge = math.log(q) - m**2 / 2
    root = np.hypot(half, np.exp(log_edge + loss / 2))
    with np.errstate(all="ignore"):  # in logarithms: y itself may be beyond floats
        above, below = np.log(half + root) - log_edge, log_edge + loss - np.log(root - half)
        place = np.where(half > 0, above, below) / m
    none = (1 - q) * ndtr(-place)
    return none + q * ndtr(m - place), none + q * ndtr(-m - place)


def _largest_loss(look: Look) -> float:
    """Loss beyond which P has next to no mass."""
    m, q, x = look.shift, look.fraction, look.shift + _REACH
    if look.form == "all":
        return m * x - m**2 / 2
    if look.form == "add":
        return -math.log1p(-q) if q < 1 else m * _REACH + m**2 / 2
    top = np.logaddexp(math.log1p(-q) if q < 1 else -np.inf, math.log(q) + m * x - m**2 / 2)
    if look.form == "poisson":
        top -= np.logaddexp(math.log1p(-q) if q < 1 else -np.inf, math.log(q) - m * x - m**2 / 2)
    return float(top)


def _spread(look: Look) -> float:
    """Rough standard deviation of a look's loss."""
    if look.form == "all":
        return look.shift
    if look.form == "add":  # bounded above
        return min(_spread(look._replace(form="remove")), _largest_loss(look) / 2)
    chi = look.fraction * math.sqrt(math.expm1(min(look.shift**2, 60.0)))
    sign = 2.0 if look.form == "poisson" else 1.0
    return min(sign * chi, sign * look.shift)


class _Grid(NamedTuple):
    """Log-masses of P on whole multiples of a step, the first one's place, what is infinite."""

    first: int
    log_mass: Vector
    infinite: float

    @property
    def places(self) -> Vector:
        return np.arange(self.first, self.first + self.log_mass.size, dtype=float)


def _on_grid(look: Look, step: float) -> _Grid:
    top = math.ceil(_largest_loss(look) / step) + 1
    low = -top
    if look.form == "remove":
        low = math.floor(max(-top, _lowest(look) / step)) - 1
    elif look.form == "add":
        low = -math.ceil(_largest_loss(look._replace(form="remove")) / step) - 1
    low = max(low, -_MOST_POINTS // 4)
    places = np.arange(low, top + 1)
    loss = step * places.astype(np.float64)
    p_above, q_above = _tails(look, loss)
    p_cell = np.maximum(p_above[:-1] - p_above[1:], 0.0)
    q_cell = np.maximum(q_above[:-1] - q_above[1:], 0.0)
    # a + b = q_cell and a e^low + b e^high = p_cell, in P's masses
    with np.errstate(all="ignore"):
        right = (p_cell - np.exp(loss[:-1]) * q_cell) / -math.expm1(-step)
    right = np.clip(np.nan_to_num(right, nan=0.0, posinf=np.inf), 0.0, p_cell)
    mass = np.zeros(places.size)
    mass[:-1] += p_cell - right
    mass[1:] += right
    mass[0] += max(0.0, 1.0 - p_above[0])  # lower still: counted as if it were here
    with np.errstate(divide="ignore"):
        return _Grid(low, np.log(mass), float(p_above[-1]))


def _lowest(look: Look) -> float:
    return math.log1p(-look.fraction) if look.fraction < 1 else -math.inf


def composed_loss_epsilon(looks: Sequence[Look], delta: float) -> float:
    """Epsilon of all the looks together.

    Parameters
    ----------
    looks : sequence of Look
        With pairs in one direction, if they have one.
    delta : float
        Privacy parameter between 0 and 1.

    Returns
    -------
    float
        Infinite where noise is too small to tell, or delta below 1e-14.

    Examples
    --------
    >>> from pymc_dp.accounting.privacy_loss import Look, composed_loss_epsilon
    >>> round(composed_loss_epsilon([Look(0.1, 1.0, "all", 100)], 1e-6), 2)  # exactly 4.887
    4.89
    >>> round(composed_loss_epsilon([Look(0.1, 0.01, "fixed", 100)], 1e-6), 3)
    0.035
    """
    if delta < _LEAST_DELTA and any(look.form != "all" for look in looks):
        return math.inf
    if any(look.form != "all" and _largest_loss(look) > _LARGEST_LOSS for look in looks):
        return math.inf
    total = math.fsum(look.number * _spread(look) ** 2 for look in looks)
    step = min(0.2, *(_spread(look) for look in looks)) / _POINTS
    # coarser, which costs a little, where there would be too many points
    step = max(step, math.sqrt(total) / 4e5, *(_largest_loss(o) / _MOST_POINTS for o in looks))
    grids = [(_on_grid(look, step), look.number) for look in looks]
    infinite = math.fsum(count * grid.infinite for grid, count in grids)
    left = delta * (1 - 1e-9) - infinite
    if left <= 0:
        return math.inf
    tilt = _best_tilt(grids, step, left)
    return _tilted_epsilon(grids, step, left, tilt)


def _log_moments(grids: Sequence[tuple[_Grid, int]], step: float, tilt: float) -> float:
    """Logarithm of the expectation of the tilted exponential of the sum of losses."""
    return math.fsum(
        count * float(logsumexp(grid.log_mass + tilt * step * grid.places)) for grid, count in grids
    )


def _best_tilt(grids: Sequence[tuple[_Grid, int]], step: float, delta: float) -> float:
    """Find the tilt for which Chernoff's bound on the guarantee is least.

    Not beyond what a normal sum would need for the least delta: floats hold no wider a range.
    """
    variance = math.fsum(count * _variance(grid) for grid, count in grids) * step**2
    largest = _STEEPEST / max(math.sqrt(variance), step)  # all mass may be in one place
    tilts = largest * np.geomspace(1e-4, 1.0, 61)
    bounds: list[float] = []
    for tilt in tilts:
        bounds.append((_log_moments(grids, step, float(tilt)) - math.log(delta)) / tilt)
        if len(bounds) > 3 and bounds[-1] > bounds[-2] > bounds[-3]:
            break
    return float(tilts[int(np.argmin(bounds))])


def _variance(grid: _Grid) -> float:
    mass = np.exp(grid.log_mass)
    mean = float(mass @ grid.places)
    return float(mass @ (grid.places - mean) ** 2)


def _tilted_epsilon(
    grids: Sequence[tuple[_Grid, int]], step: float, delta: float, tilt: float
) -> float:
    means, variances, tilted, log_scale = 0.0, 0.0, [], 0.0
    for grid, count in grids:
        places = grid.places
        weights = grid.log_mass + tilt * step * places
        scale = float(logsumexp(weights))
        mass = np.exp(weights - scale)
        mean = float(mass @ places)
        means += count * mean
        variances += count * float(mass @ (places - mean) ** 2)
        log_scale += count * scale
        tilted.append((grid.first, mass, count))
    half = math.ceil(_WIDE * math.sqrt(variances)) + 2 * max(len(mass) for _, mass, _ in tilted)
    size = 2 ** math.ceil(math.log2(2 * half))
    first = round(means) - size // 2
    spectrum, turned = np.zeros(size // 2 + 1, dtype=complex), 0
    for start, mass, count in tilted:
        folded = np.bincount(np.arange(mass.size) % size, weights=mass, minlength=size)
        spectrum = spectrum + count * np.log(np.fft.rfft(folded) + 0j)
        turned += count * start
    summed = np.fft.irfft(np.exp(spectrum), size)
    summed = np.maximum(np.roll(summed, turned - first), 0.0)
    loss = step * np.arange(first, first + size)
    with np.errstate(divide="ignore"):
        log_mass = np.log(summed) - tilt * loss + log_scale  # of the losses themselves

    def surplus(epsilon: float) -> float:
        above = loss > epsilon
        if not above.any():
            return -math.inf
        return float(logsumexp(log_mass[above] + np.log(-np.expm1(epsilon - loss[above])))) - (
            math.log(delta)
        )

    low, high = max(0.0, float(loss[0])), float(loss[-2])
    if surplus(low) <= 0:
        return low
    return (
        float(scipy.optimize.brentq(surplus, low, high, xtol=1e-9)) * (1 + 1e-9) + 1e-9
        if high > low
        else math.inf
    )
