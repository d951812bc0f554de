r"""The door through which numbers computed from confidential data leave: exact noise on integers.

Sums of clipped values are held as whole numbers of a public unit, so they are exact, one record's
influence on them is exact too, and the set of values that can come out does not depend on the data.
The noise is a discrete Gaussian drawn in integer arithmetic from the operating system's random bits
(:mod:`pymc_dp.numerics.exact_noise`): no float is formed, and no bit of what comes out is less
random than it should be.

What it costs
-------------
Budgets count each vector that leaves as a Gaussian mechanism with noise of standard deviation sd.
The discrete Gaussian of scale :math:`S \ge \sqrt{sd^2 + 4}`, which is drawn, costs no more:

Let :math:`\tau = 2` and :math:`s^2 = S^2 - \tau^2 \ge sd^2`. To a whole number x add continuous
Gaussian noise of standard deviation s, and call it y; then draw k with probability
:math:`g(k - y) / \rho(y)`, where :math:`g(t) = \exp(-t^2 / 2\tau^2)` and
:math:`\rho(y) = \sum_k g(k - y)`. The second step only processes y, so this costs what Gaussian
noise s costs. By Poisson's formula
:math:`\rho(y) = \tau\sqrt{2\pi} (1 + 2 \sum_{j \ge 1} e^{-2\pi^2\tau^2 j^2} \cos 2\pi j y)`, so
that :math:`\rho` is constant up to a factor :math:`1 \pm \eta`,
:math:`\eta = 2.001\, e^{-8\pi^2} < 10^{-33}`. Were it constant, the law of k would be the normal
convolution on whole numbers, proportional to :math:`\exp(-(k - x)^2 / 2S^2)`: the discrete
Gaussian. As it is, the two laws' probabilities differ by factors within
:math:`(1 + \eta) / (1 - \eta)`, those of any events after N numbers, chosen adaptively or not, by
factors within :math:`e^{3N\eta}`. If Gaussian noise is :math:`(\epsilon, \delta)`-private, the
noise drawn here is :math:`(\epsilon + 6N\eta, e^{3N\eta}\delta)`-private: after :math:`N = 10^{15}`
numbers :math:`\epsilon` is off by :math:`10^{-17}` and :math:`\delta` by a part in
:math:`10^{17}`, far inside the parts in :math:`10^9` of delta that :mod:`pymc_dp.accounting` keeps
in hand. The same factors hold with random batches.

Beyond :math:`2^{62}`, which is 64 standard deviations or more, there is no mass where there should
be :math:`10^{-891}`, less than any delta that floats can express.

How many random bits are used depends on these bits alone and not on the data. It does depend on the
noise: who measures each look to the nanosecond could learn something of it. Time is not covered.
"""

from collections.abc import Sequence

import numpy as np

from pymc_dp.accounting.errors import PrivacyError
from pymc_dp.accounting.levels import LEVELS
from pymc_dp.numerics.entropy import system_discrete_gaussian
from pymc_dp.numerics.exact_noise import LARGEST_GAUSSIAN

__all__ = ["LEVELS", "release"]

_SMALLEST = 2


def release(
    totals: Sequence[int], sd: float, simulation: np.random.Generator | None = None
) -> list[int]:
    """Add discrete Gaussian noise to whole numbers, to each its own.

    Parameters
    ----------
    totals : sequence of int
        Computed from confidential data.
    sd : float
        Standard deviation of the noise, in the same unit, from 2 to below 2**56. What is added has
        up to two units more, and so costs no more than continuous noise of standard deviation sd.
    simulation : numpy.random.Generator, optional
        Source of reproducible noise for research: rounded floats, and any sd, 0 too. Without it
        noise is exact and comes from the operating system.

    Returns
    -------
    list of int
        The noised numbers, which may be published at the price of ``sd``.

    Raises
    ------
    PrivacyError
        Where sd is out of range.

    Examples
    --------
    >>> from pymc_dp.accounting.noise import LEVELS, release
    >>> noisy = release([5 * LEVELS, 0], sd=100.0 * LEVELS)
    >>> [isinstance(level, int) for level in noisy]
    [True, True]
    """
    if simulation is not None:
        draws = simulation.normal(size=len(totals)).tolist()
        return [int(total) + round(sd * draw) for total, draw in zip(totals, draws, strict=True)]
    if not _SMALLEST <= sd < LARGEST_GAUSSIAN:
        raise PrivacyError(
            f"Noise of standard deviation {sd:g} cannot be drawn exactly: in units of the sums it "
            "must be from 2 to below 2**56, some 2e-6 to 8e6 times a record's influence. Choose "
            "another epsilon, or other numbers of draws and chains."
        )
    scale = int(sd) + 2  # at least sd + 1, the square of which exceeds that of sd by 2 sd + 1 > 4
    noise = system_discrete_gaussian(scale, len(totals)).tolist()
    return [int(total) + drawn for total, drawn in zip(totals, noise, strict=True)]
