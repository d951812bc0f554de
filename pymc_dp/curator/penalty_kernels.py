"""Inner loops and the acceptance test of the penalty samplers: arrays in, numbers out."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pymc_dp.accounting.levels import LEVELS
from pymc_dp.numerics.compiled import cached_jit

# reassociation lets the loops below be vectorised; sums of whole numbers are exact in any order
_jit = cached_jit(error_model="numpy", fastmath={"reassoc", "nsz"})
_TOP = float(LEVELS)
_CHUNK = 4096  # 2**12 values of at most 2**32 add up exactly in a float


@_jit
def _level(new: float, old: float, scale: float) -> float:
    """Clipped log-ratio of a record in whole numbers, antisymmetric in (new, old).

    Not-a-number is taken as a likelihood of zero, and no change between two such values as zero.
    """
    new = new if new == new else -np.inf
    old = old if old == old else -np.inf
    level = _plain_level(new, old, scale)
    return level if level == level else 0.0


@_jit
def _plain_level(new: float, old: float, scale: float) -> float:
    ratio = (new - old) * scale
    ratio = _TOP if ratio > _TOP else ratio
    ratio = -_TOP if ratio < -_TOP else ratio
    return np.rint(ratio)


@_jit
def _clipped_total(new: NDArray[np.float64], old: NDArray[np.float64], scale: float) -> np.int64:
    total = np.int64(0)
    for start in range(0, new.size, _CHUNK):
        # slices, whose indices start at 0: numba would have to allow for negative ones
        new_part, old_part = new[start : start + _CHUNK], old[start : start + _CHUNK]
        part = 0.0
        for i in range(new_part.size):
            part += _plain_level(new_part[i], old_part[i], scale)
        if part != part:  # rare: some value was not a number
            part = 0.0
            for i in range(new_part.size):
                part += _level(new_part[i], old_part[i], scale)
        total += np.int64(part)
    return total


def clipped_total(new: NDArray[np.float64], old: NDArray[np.float64], bound: float) -> int:
    """Sum of log-likelihood ratios, each clipped to +-bound, in units of ``bound / LEVELS``.

    Parameters
    ----------
    new, old : ndarray
        Log-likelihood of every record at the proposal and at the current point.
    bound : float
        Largest absolute log-ratio of a record that is let through.

    Notes
    -----
    Whole numbers: the sum is exact in any order, and swapping ``new`` and ``old`` changes its sign.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_dp.curator.penalty_kernels import clipped_total
    >>> from pymc_dp.accounting.levels import LEVELS
    >>> clipped_total(np.array([0.25, 9.0, np.nan]), np.zeros(3), bound=1.0) / LEVELS
    0.25
    """
    return int(_clipped_total(new, old, LEVELS / bound))


@_jit
def _clipped_count(new: NDArray[np.float64], old: NDArray[np.float64], scale: float) -> int:
    count = 0
    for i in range(new.size):
        count += abs(_level(new[i], old[i], scale)) == _TOP
    return count


def clipped_count(new: NDArray[np.float64], old: NDArray[np.float64], bound: float) -> int:
    """Count the records whose log-ratio reaches the bound."""
    return int(_clipped_count(new, old, LEVELS / bound))


@_jit
def _squares(
    new: NDArray[np.float64], old: NDArray[np.float64], scale: float
) -> tuple[np.int64, np.int64, np.int64]:
    """Add up products of the upper and lower halves of records' levels, which 64 bits hold."""
    upper_square, product, lower_square = np.int64(0), np.int64(0), np.int64(0)
    for i in range(new.size):
        level = np.int64(_level(new[i], old[i], scale))
        upper, lower = level >> 16, level & 0xFFFF
        upper_square += upper * upper
        product += upper * lower
        lower_square += lower * lower
    return upper_square, product, lower_square


class BatchMoments(NamedTuple):
    """Number, sum and sum of squares of a batch's clipped ratios, in whole numbers."""

    size: int
    total: int
    squares: int


def batch_moments(new: NDArray[np.float64], old: NDArray[np.float64], bound: float) -> BatchMoments:
    """Moments of log-likelihood ratios, each clipped to +-bound, in units of ``bound / LEVELS``.

    Parameters
    ----------
    new, old, bound
        As of :func:`clipped_total`.

    Notes
    -----
    Whole numbers, so that the moments of parts of a batch add up to its own.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_dp.curator.penalty_kernels import batch_moments
    >>> moments = batch_moments(np.array([1.0, -0.5]), np.zeros(2), bound=1.0)
    >>> moments.size, moments.total == 2**31, moments.squares == 5 * 2**62
    (2, True, True)
    """
    upper_square, product, lower_square = _squares(new, old, LEVELS / bound)
    squares = (int(upper_square) << 32) + (int(product) << 17) + int(lower_square)
    return BatchMoments(new.size, clipped_total(new, old, bound), squares)


class BatchQuery(NamedTuple):
    """What a batch says about the log-ratio of all records, ready to be noised."""

    value: float
    sensitivity: float


def batch_query(
    moments: BatchMoments, bound: float, n_records: int, tempering: float = 1.0
) -> BatchQuery:
    """Estimated log-ratio of all records, less half its variance, from a batch of them.

    Parameters
    ----------
    moments : BatchMoments
        Of the batch's records, drawn without replacement.
    bound : float
        Largest absolute log-ratio of a record that was let through.
    n_records : int
        Number of records the batch was drawn from.
    tempering : float
        Power T of the likelihood.

    Notes
    -----
    Section 4.1 of Räisä (2020), corrected: the variance is ``(nT)^2 / b (1 - b/n) s^2`` with the
    unbiased sample variance s^2 (the thesis prints n T^2 in between and leaves out the finite
    population); the value's sensitivity is ``2nTL||d||/b``; and in Lemma 1 the constant 2 is enough
    (3 is printed), so half the variance moves by at most ``2 (nT/b)^2 (1 - b/n) L^2 ||d||^2``.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_dp.curator.penalty_kernels import batch_moments, batch_query
    >>> moments = batch_moments(np.array([0.5, 0.5]), np.zeros(2), bound=1.0)
    >>> batch_query(moments, bound=1.0, n_records=10).value
    5.0
    """
    size, total, squares = moments
    deviations = (size * squares - total * total) / (size * LEVELS**2)
    scale = n_records * tempering / size * bound
    left_out = 1 - size / n_records
    half_variance = scale**2 * left_out * size / (size - 1) * deviations / 2
    sensitivity = batch_sensitivity(size, bound, n_records, tempering)
    return BatchQuery(scale * (total / LEVELS) - half_variance, sensitivity)


def batch_sensitivity(size: int, bound: float, n_records: int, tempering: float = 1.0) -> float:
    """How far one record can move the value of :func:`batch_query`, which is public.

    Examples
    --------
    >>> from pymc_dp.curator.penalty_kernels import batch_sensitivity
    >>> round(batch_sensitivity(size=5, bound=0.1, n_records=10), 3)
    0.44
    """
    scale = n_records * tempering / size * bound
    sensitivity = 2 * scale + 2 * scale**2 * (1 - size / n_records)
    # the last factor covers the rounding of floats, which here are not whole numbers, and to a
    # whole number: a sum of b squares is off by at most b^2 2**-53, and over the sensitivity of
    # half the variance, and twice, by no more than that
    return sensitivity * (1 + 1e-6 + size**2 * 2.0**-53)


@_jit
def _two_point_total(
    new: NDArray[np.float64],
    old: NDArray[np.float64],
    scale: float,
    words: NDArray[np.uint64],
) -> int:
    total = 0
    for i in range(new.size):
        # uniform on 0, ..., 2 LEVELS - 1: the highest bits of a word
        chance = np.int64(words[i] >> np.uint64(31))
        total += 1 if chance < np.int64(_level(new[i], old[i], scale)) + LEVELS else -1
    return total


def two_point_total(
    new: NDArray[np.float64],
    old: NDArray[np.float64],
    bound: float,
    words: NDArray[np.uint64],
) -> int:
    """Sum of log-likelihood ratios, each clipped and rounded at random to one of its bounds.

    Parameters
    ----------
    new, old, bound
        As of :func:`clipped_total`, in whose units the sum is.
    words : ndarray of uint64
        Random bits, a word a record.

    Notes
    -----
    A ratio becomes plus or minus the bound with itself as the mean: its second moment is the
    bound's square, whatever it was.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_dp.curator.penalty_kernels import two_point_total
    >>> from pymc_dp.accounting.levels import LEVELS
    >>> words = np.random.default_rng(0).integers(2**64, size=3, dtype=np.uint64)
    >>> two_point_total(np.array([9.0, 9.0, -9.0]), np.zeros(3), 1.0, words) / LEVELS
    1.0
    """
    return int(_two_point_total(new, old, LEVELS / bound, words)) * LEVELS


def ratio_scale(new: NDArray[np.float64], old: NDArray[np.float64]) -> float:
    """Root mean square of records' log-likelihood ratios, those that are not finite left out.

    Parameters
    ----------
    new, old : ndarray
        Log-likelihood of public records at two points.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_dp.curator.penalty_kernels import ratio_scale
    >>> ratio_scale(np.array([0.5, -0.5, -np.inf]), np.zeros(3))
    0.5
    """
    with np.errstate(all="ignore"):
        ratios = new - old
    kept = ratios[np.isfinite(ratios)]
    return float(np.sqrt(np.mean(kept**2))) if kept.size else 0.0


class NoisyRatio(NamedTuple):
    """A noised log-likelihood ratio, the noise in it, and the power it is still to be raised to."""

    log_ratio: float
    sd: float
    tempering: float


def ratio_bound(clip_logp: float, length: float) -> float:
    """Largest absolute log-ratio of a record that a move of this length lets through."""
    return clip_logp * max(length, 1e-200)


def log_acceptance(
    noisy_log_ratio: float, log_prior_ratio: float, sd: float, tempering: float = 1.0
) -> float:
    """Logarithm of the penalty algorithm's acceptance probability, before the minimum with 0.

    Parameters
    ----------
    noisy_log_ratio : float
        Log-likelihood ratio with Gaussian noise of standard deviation ``sd`` in it.
    log_prior_ratio : float
        Log-ratio of the public part: prior, Jacobian, proposal.
    sd : float
        Standard deviation of the noise before tempering.
    tempering : float
        Power T of the likelihood.

    Notes
    -----
    Section 3.1 of Räisä (2020) prints ``lambda - sigma^2 / 2``; there lambda must carry the noise.
    With tempering, ``T * noisy_log_ratio + log_prior_ratio - (T * sd)**2 / 2``.

    Examples
    --------
    >>> from pymc_dp.curator.penalty_kernels import log_acceptance
    >>> log_acceptance(1.0, 0.5, sd=2.0, tempering=0.5)
    0.5
    """
    tempered = tempering * sd
    # a product, since a power that overflows raises: after a move that long nothing is accepted
    return tempering * noisy_log_ratio + log_prior_ratio - tempered * tempered / 2
