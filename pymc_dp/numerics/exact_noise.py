r"""Discrete Laplace and Gaussian noise of whole scale in 64-bit integers: no float is formed.

Canonne, Kamath & Steinke (2020), The discrete Gaussian for differential privacy, Algorithms 1 to 3,
for a whole scale s and proposals of the same scale. A proposal is :math:`|y| = u + v s` with
u < s, and it is kept with probability :math:`\exp(-(|y| - s)^2 / 2s^2)`. With
:math:`||y| - s| = q s + r`, r < s, the exponent is :math:`q^2/2 + q r/s + r^2 / 2s^2`, and each
part asks only whether uniform integers below s are below r: nothing larger than s is multiplied.

Random words come in an array; a number whose words run out is drawn again from its first word on,
with more words after them, so that how many there were has no influence. How many words a number
takes depends on random words alone, not on what the noise is added to.
"""

import numpy as np
from numpy.typing import NDArray

from pymc_dp.numerics.compiled import cached_jit

__all__ = ["LARGEST_GAUSSIAN", "LARGEST_LAPLACE", "Place", "Words", "below", "fill"]

_END = 2**62
LARGEST_GAUSSIAN = 2**56
"""Largest scale: no mass at 2**62 and beyond, 64 scales, where there should be 1e-891."""
LARGEST_LAPLACE = 2**40
"""Largest scale: no mass at 2**62 and beyond, 2**22 scales, where there should be 10**-1800000."""

Words = NDArray[np.uint64]
Place = NDArray[np.int64]

_jit = cached_jit(error_model="numpy")
# numba makes floats of 64-bit integers with and without a sign: all of these have none
_ZERO, _ONE, _TWO, _MOST = np.uint64(0), np.uint64(1), np.uint64(2), np.uint64(_END)


@_jit
def below(number: np.uint64, words: Words, place: Place) -> np.uint64:
    """Draw uniformly from 0, ..., number - 1.

    The least ``2**64 mod number`` words are passed over; the rest are whole rounds of remainders.
    """
    while True:
        if place[0] == words.size:
            raise IndexError
        word = words[place[0]]
        place[0] += 1
        if word >= number or word >= (_ZERO - number) % number:
            return word % number


@_jit
def _exp_minus(
    a: np.uint64, b: np.uint64, c: np.uint64, scale: np.uint64, words: Words, place: Place
) -> bool:
    """Draw true with probability exp(-x), x = (a / scale) (b / scale) / c, where a, b <= scale.

    Algorithm 1: the first k for which an event of probability x / k, here made of independent ones,
    does not happen is odd.
    """
    k = _ONE
    while (
        (c * k == _ONE or below(c * k, words, place) == _ZERO)
        and (a == scale or below(scale, words, place) < a)
        and (b == scale or below(scale, words, place) < b)
    ):
        k += _ONE
    return k % _TWO == _ONE


@_jit
def _laplace(scale: np.uint64, words: Words, place: Place) -> tuple[np.uint64, np.uint64]:
    """Draw u and v of a magnitude u + v * scale (Algorithm 2)."""
    u = below(scale, words, place)
    while not _exp_minus(u, scale, _ONE, scale, words, place):
        u = below(scale, words, place)
    v = _ZERO
    while _exp_minus(scale, scale, _ONE, scale, words, place):
        v += _ONE
    return u, v


@_jit
def _kept(u: np.uint64, v: np.uint64, scale: np.uint64, words: Words, place: Place) -> bool:
    """Draw true with probability exp(-(u + (v - 1) scale)^2 / (2 scale^2)) (Algorithm 3)."""
    if v > _ZERO:
        q, r = v - _ONE, u
    elif u > _ZERO:
        q, r = _ZERO, scale - u
    else:
        q, r = _ONE, _ZERO
    for _ in range(q * q):
        if not _exp_minus(scale, scale, _TWO, scale, words, place):
            return False
    for _ in range(q):
        if not _exp_minus(r, scale, _ONE, scale, words, place):
            return False
    return _exp_minus(r, r, _TWO, scale, words, place)


@_jit
def _draw(scale: np.uint64, gaussian: bool, words: Words, place: Place) -> np.int64:
    while True:
        u, v = _laplace(scale, words, place)
        negative = below(_TWO, words, place) == _ONE
        if (negative and u == _ZERO and v == _ZERO) or v >= _MOST // scale:
            continue
        if not gaussian or _kept(u, v, scale, words, place):
            magnitude = np.int64(u + v * scale)
            return -magnitude if negative else magnitude


@_jit
def fill(
    out: NDArray[np.int64], scale: np.uint64, gaussian: bool, words: Words, place: Place
) -> None:
    """Fill an array with noise.

    Parameters
    ----------
    out : ndarray of int64
        Where the numbers go.
    scale : uint64
        1 or more, and no more than ``LARGEST_GAUSSIAN`` or ``LARGEST_LAPLACE``.
    gaussian : bool
        P(k) proportional to exp(-k^2 / (2 scale^2)), or else to exp(-|k| / scale).
    words : ndarray of uint64
        Random bits.
    place : ndarray of int64
        The next word, the first word of the number that is being drawn, and how many are drawn.

    Raises
    ------
    IndexError
        Where words run out. To go on: the words from ``place[1]`` on, more after them, and
        ``place[:2] = 0``.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_dp.numerics.exact_noise import fill
    >>> words = np.random.default_rng(0).integers(2**64, size=1000, dtype=np.uint64)
    >>> out = np.empty(3, dtype=np.int64)
    >>> fill(out, np.uint64(10), True, words, np.zeros(3, dtype=np.int64))
    >>> bool(np.all(np.abs(out) < 100))
    True
    """
    while place[2] < out.size:
        place[1] = place[0]
        out[place[2]] = _draw(scale, gaussian, words, place)
        place[2] += 1
