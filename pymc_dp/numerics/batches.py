"""Random batches of records, at a cost that does not grow with the number of records."""

import math

import numpy as np
from numpy.typing import NDArray

from pymc_dp.numerics.compiled import cached_jit
from pymc_dp.numerics.entropy import random_words, system_generator
from pymc_dp.numerics.exact_noise import Place, Words, below

__all__ = ["draw_batch"]

_jit = cached_jit(error_model="numpy")
_SPARE_WORDS = 16  # one is passed over with probability number / 2**64


@_jit
def _slot(table: NDArray[np.int64], value: np.int64) -> np.int64:
    """Where a value is in a table of open addresses, or where it belongs."""
    mask = table.size - 1
    # its high bits scatter consecutive values
    place = np.int64((np.uint64(value) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)) & mask
    while table[place] != -1 and table[place] != value:
        place = (place + 1) & mask
    return place


@_jit
def _without_replacement(
    out: NDArray[np.int64], table: NDArray[np.int64], number: int, words: Words, place: Place
) -> None:
    """Floyd's algorithm: every set of so many records is equally likely."""
    for i in range(out.size):
        last = np.int64(number - out.size + i)
        drawn = np.int64(below(np.uint64(last + 1), words, place))
        slot = _slot(table, drawn)
        if table[slot] != -1:
            drawn = last
            slot = _slot(table, drawn)
        table[slot] = drawn
        out[i] = drawn


def draw_batch(
    number: int,
    fraction: float,
    poisson: bool = False,
    simulation: np.random.Generator | None = None,
) -> NDArray[np.int64]:
    """Draw the records of a batch.

    Parameters
    ----------
    number : int
        Of records.
    fraction : float
        A record's chance to be drawn.
    poisson : bool
        Each record by itself, so that the size is random and confidential; or else ``fraction *
        number`` records without replacement.
    simulation : numpy.random.Generator, optional
        Source of reproducible batches for research; the operating system without it.

    Returns
    -------
    ndarray of int64
        Different records, in no order that means anything. Never to be shown.

    Notes
    -----
    Given its size, a Poisson batch is one drawn without replacement, and its size is binomial
    (drawn in floats, by a generator with a fresh seed from the operating system).

    Examples
    --------
    >>> from pymc_dp.numerics.batches import draw_batch
    >>> len(set(draw_batch(10**9, 1e-6).tolist()))
    1000
    """
    size = math.floor(fraction * number * (1 + 1e-12))  # no more than was paid for
    if poisson:
        size = int((simulation or system_generator()).binomial(number, fraction))
    out = np.empty(size, dtype=np.int64)
    table = np.full(2 ** max(2, (4 * size).bit_length()), -1, dtype=np.int64)
    words = random_words(size + _SPARE_WORDS, simulation)
    _without_replacement(out, table, number, words, np.zeros(3, dtype=np.int64))
    return out
