"""zCDP and Rényi-DP conversions: looser than exact Gaussian formulas, but for any mechanism.

Random batches have formulas here that can be checked by hand. Tighter are privacy loss
distributions (:mod:`pymc_dp.accounting.privacy_loss`), which budgets use by default.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, logsumexp

from pymc_dp.accounting.gaussian import _MARGIN, _check_delta, _check_epsilon, _check_positive
from pymc_dp.types import Neighbours

ORDERS: NDArray[np.int64] = np.unique(np.geomspace(2, 2048, 90).round().astype(np.int64))
"""Whole orders at which subsampled mechanisms are accounted for."""
_STEEPEST = 500.0  # order times squared shift, beyond which batches are counted as all records


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Epsilon of a rho-zCDP mechanism at a given delta.

    Parameters
    ----------
    rho : float
        zCDP parameter; for Gaussian mechanisms the sum of ``sensitivity**2 / (2 * sigma**2)``.
    delta : float
        Privacy parameter between 0 and 1.

    Notes
    -----
    Theorem 1 of Räisä (2020): ``rho + sqrt(-4 rho ln delta)``. For Gaussian noise
    :func:`~pymc_dp.accounting.gaussian_epsilon` is exact and about a tenth smaller.

    Examples
    --------
    >>> from pymc_dp.accounting import zcdp_epsilon
    >>> round(zcdp_epsilon(0.5, 1e-6), 3)
    5.757
    """
    log_delta = math.log(_check_delta(delta))
    return 0.0 if rho == 0 else rho + math.sqrt(-4 * _check_positive("rho", rho) * log_delta)


def zcdp_rho(epsilon: float, delta: float) -> float:
    """Largest rho whose zCDP conversion stays within (epsilon, delta).

    Notes
    -----
    Theorem 6 of Räisä (2020), ``(sqrt(epsilon - ln delta) - sqrt(-ln delta))**2``, kept as a
    comparison: it pays for fewer iterations than :func:`~pymc_dp.accounting.gaussian_mu`.

    Examples
    --------
    >>> from pymc_dp.accounting import gaussian_mu, zcdp_rho
    >>> zcdp_rho(4.0, 1e-6) < gaussian_mu(4.0, 1e-6)
    True
    """
    epsilon, log_delta = _check_epsilon(epsilon), math.log(_check_delta(delta))
    return (epsilon / (math.sqrt(epsilon - log_delta) + math.sqrt(-log_delta))) ** 2


def rdp_epsilon(orders: ArrayLike, rdp: ArrayLike, delta: float) -> float:
    """Epsilon of a mechanism whose Rényi divergences are known at some orders.

    Parameters
    ----------
    orders, rdp : array_like
        Orders above 1 and the bound on the Rényi divergence at each.
    delta : float
        Privacy parameter between 0 and 1.

    Notes
    -----
    Proposition 12 of Canonne, Kamath and Steinke (2020), tighter than Theorem 1 of Räisä (2020):
    ``rdp + ln(1 - 1/order) - (ln delta + ln order) / (order - 1)``, the least over the orders.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_dp.accounting import rdp_epsilon
    >>> orders = np.linspace(1.1, 30, 500)
    >>> round(rdp_epsilon(orders, 0.5 * orders, 1e-6), 2)
    5.22
    """
    log_delta = math.log(_check_delta(delta))
    order = np.asarray(orders, dtype=float)
    if np.any(order <= 1):
        raise ValueError("Rényi orders must be above 1.")
    return max(0.0, float(np.min(np.asarray(rdp, dtype=float) + _conversion(order, log_delta))))


def _conversion(order: NDArray[np.float64], log_delta: float) -> NDArray[np.float64]:
    """Tell how far an epsilon is above a Rényi divergence."""
    return np.log1p(-1 / order) - (log_delta + np.log(order)) / (order - 1)


def filter_order(epsilon: float, delta: float) -> tuple[int, float]:
    r"""Order at which what is chosen as one goes is counted, and the divergence that is paid for.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee to meet.

    Returns
    -------
    int, float
        The order, and the sum of Rényi divergences that stays within the guarantee; negative if
        not even none does, at any order known here.

    Notes
    -----
    Where divergences at one order, settled before the first answer, add up to no more than B on
    every path, all that is released has a divergence of at most B at that order, however each round
    was chosen by the answers before it (Feldman & Zrnic 2021; Lécuyer 2021). B is what
    Proposition 12 of Canonne, Kamath and Steinke (2020) turns into :math:`(\epsilon, \delta)`. The
    order is the one that pays for most looks at all records, whose divergences are
    :math:`\alpha\mu`: it follows from the guarantee alone. At epsilon 1, 4 and 8 and delta 1e-6 it
    pays for 0.87, 0.89 and 0.88 of the looks at all records that an exact count does. For 2000
    looks at a hundredth of the records, noise is that of the best order, or up to 2 percent more
    for Poisson batches and 8 percent for batches of a fixed size. Over what privacy loss
    distributions ask for, where kinds are settled, it is 4 to 7 percent more for Poisson batches,
    but 187, 42 and 15 percent for fixed sizes, whose divergences are known by a loose bound alone.

    Examples
    --------
    >>> from pymc_dp.accounting import gaussian_mu
    >>> from pymc_dp.accounting.renyi import filter_order
    >>> order, divergence = filter_order(4.0, 1e-6)
    >>> order, round(divergence, 3)
    (7, 2.176)
    >>> round(divergence / order / gaussian_mu(4.0, 1e-6), 2)  # of what an exact count pays for
    0.89
    """
    bounds = epsilon - _settled_conversion(delta)
    best = int(np.argmax(bounds / ORDERS))
    return int(ORDERS[best]), float(bounds[best])


def filter_epsilon(divergence: Callable[[int], float], epsilon: float, delta: float) -> float:
    """Least epsilon whose filter, like those of all larger ones, covers what was claimed.

    Parameters
    ----------
    divergence : callable
        Tells the sum of the Rényi divergences that were claimed, at an order.
    epsilon, delta : float
        The guarantee that they were claimed from; larger ones are not looked at.

    Notes
    -----
    A filter of epsilon x has an order of its own. Who never spends more than x has stayed within
    the filter of x, so all of it is (x, delta)-private. The least epsilon over all orders does not
    have that: ends of several paths may each be cheap at another order.
    """
    costs = _settled_conversion(delta)
    place, top = int(np.argmax((epsilon - costs) / ORDERS)), math.inf
    while True:  # towards smaller guarantees, until one does not cover it
        found = divergence(int(ORDERS[place])) + float(costs[place])
        if place + 1 == ORDERS.size:
            return max(0.0, min(found, top))
        order, larger = ORDERS[place : place + 2].astype(float)
        # here the larger order begins to pay for more looks at all records
        change = float((larger * costs[place] - order * costs[place + 1]) / (larger - order))
        if found > change:
            return max(0.0, min(found, top))
        place, top = place + 1, change


def _settled_conversion(delta: float) -> NDArray[np.float64]:
    """Conversion at all orders, with room for rounding errors."""
    return _conversion(ORDERS.astype(float), math.log(_check_delta(delta)) - 2 * _MARGIN)


def subsampled_gaussian_rdp(
    noise_multiplier: float, fraction: float, orders: ArrayLike = ORDERS
) -> NDArray[np.float64]:
    """Rényi divergences of a Gaussian mechanism on a batch drawn without replacement.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise over the sensitivity of the value given the batch.
    fraction : float
        Batch size over number of records.
    orders : array_like
        Whole orders, 2 or more.

    Notes
    -----
    Theorem 9 of Räisä (2020), which is Theorem 9 of Wang, Balle and Kasiviswanathan (2019) with
    ``epsilon'(order) = order / (2 * noise_multiplier**2)`` (the thesis's tau multiplies the
    variance: it is ``noise_multiplier**2``). Never worse than without subsampling. In log space.

    Examples
    --------
    >>> from pymc_dp.accounting import subsampled_gaussian_rdp
    >>> bool(subsampled_gaussian_rdp(2.0, 0.01, [8])[0] < 8 / (2 * 2.0**2))
    True
    """
    _check_positive("noise_multiplier", noise_multiplier)
    if not 0 < fraction <= 1:
        raise ValueError(f"fraction must lie in (0, 1], not {fraction!r}.")
    scale = 1 / (2 * noise_multiplier**2)
    found = [_amplified(int(order), scale, math.log(fraction)) for order in np.ravel(orders)]
    return np.minimum(found, scale * np.ravel(orders).astype(float))


def poisson_gaussian_rdp(
    noise_multiplier: float, fraction: float, neighbours: Neighbours, orders: ArrayLike = ORDERS
) -> NDArray[np.float64]:
    r"""Rényi divergences of a Gaussian mechanism on batches that each record joins by itself.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise over the sensitivity: of 2c for a record substituted, of c
        for one added or removed, with c the bound on a record's part.
    fraction : float
        A record's chance to be in the batch.
    neighbours : {"substitute", "add_remove"}
        Which.
    orders : array_like
        Whole orders, 2 or more.

    Notes
    -----
    Added or removed: Mironov, Talwar and Zhang (2019), :math:`\sum_k \binom{\alpha}{k}
    (1 - q)^{\alpha - k} q^k e^{(k^2 - k) / 2\sigma^2}`. Substituted: the divergence of the pair in
    :mod:`~pymc_dp.accounting.privacy_loss`, by the trapezoidal rule.

    Examples
    --------
    >>> from pymc_dp.accounting.renyi import poisson_gaussian_rdp
    >>> added = poisson_gaussian_rdp(2.0, 0.01, "add_remove", [8])
    >>> bool(added[0] < 8 / (2 * 2.0**2))
    True
    """
    _check_positive("noise_multiplier", noise_multiplier)
    known = np.ravel(orders).astype(int)
    if neighbours == "add_remove":
        found = [_mixture_divergence(int(order), noise_multiplier, fraction) for order in known]
    else:
        shift = 1 / (2 * noise_multiplier)
        found = [_opposite_divergence(int(order), shift, fraction) for order in known]
    return np.minimum(found, known / (2 * noise_multiplier**2))


def _mixture_divergence(order: int, noise: float, fraction: float) -> float:
    # less the sum of all weights, which is one and would round off what is far less
    k = np.arange(2, order + 1)
    log_binomial = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
    weights = (order - k) * math.log1p(-fraction) + k * math.log(fraction)
    excess = logsumexp(log_binomial + weights + _log_expm1((k**2 - k) / (2 * noise**2)))
    return float(np.logaddexp(0.0, excess)) / (order - 1)


def _opposite_divergence(order: int, shift: float, fraction: float) -> float:
    if order * shift**2 > _STEEPEST:
        return math.inf  # would take a grid of millions of points
    reach = 12 + 2 * order * shift
    width = 0.2 / math.sqrt(1 + order * shift**2)
    x = np.linspace(-reach, reach, 2 * math.ceil(reach / width) + 1)
    log_p, log_q = (_log_mixed(sign * shift * x - shift**2 / 2, fraction) for sign in (1, -1))
    log_normal = -(x**2) / 2 - math.log(2 * math.pi) / 2
    log_step = math.log(2 * reach / (x.size - 1))  # a difference of two points is rounded
    excess = _log_excess(log_p - log_q, order)
    return float(np.logaddexp(0.0, logsumexp(log_q + log_normal + excess) + log_step)) / (order - 1)


def _log_mixed(exponent: NDArray[np.float64], fraction: float) -> NDArray[np.float64]:
    """Logarithm of (1 - q) + q exp(x), to all digits where it is close to 0."""
    near = np.log1p(fraction * np.expm1(np.minimum(exponent, 30.0)))
    far = np.logaddexp(math.log1p(-fraction), math.log(fraction) + exponent)
    return np.where(exponent < 30, near, far)


def _log_excess(loss: NDArray[np.float64], order: int) -> NDArray[np.float64]:
    """Logarithm of exp(a l) - 1 - a (exp(l) - 1), or a bit more: the rest integrates to one."""
    tilted = order * loss
    moderate = np.minimum(tilted, 50.0)
    excess = np.expm1(moderate) - order * np.expm1(moderate / order)
    series = sum((order**k - order) / math.factorial(k) * loss**k for k in range(2, 7))
    excess = np.where(np.abs(tilted) < 1e-2, series, excess)
    with np.errstate(divide="ignore"):
        return np.where(tilted > 50, tilted, np.log(excess))


def _log_expm1(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Logarithm of exp(x) - 1, for x above 0."""
    return x + np.log(-np.expm1(-x))


def _amplified(order: int, scale: float, log_fraction: float) -> float:
    two = 2 * scale
    # min{4 (exp(two) - 1), 2 exp(two)} in log space; expm1 keeps small noise ratios exact
    second = min(math.log(4 * math.expm1(two)) if two < 700 else math.inf, math.log(2) + two)
    j = np.arange(3, order + 1)
    log_binomial = gammaln(order + 1) - gammaln(j + 1) - gammaln(order - j + 1)
    terms = np.concatenate(
        [
            [2 * log_fraction + math.log(order * (order - 1) / 2) + second],
            math.log(2) + j * log_fraction + log_binomial + (j - 1) * j * scale,
        ]
    )
    return float(np.logaddexp(0.0, logsumexp(terms))) / (order - 1)
