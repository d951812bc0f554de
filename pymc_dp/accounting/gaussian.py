"""Exact privacy of Gaussian mechanisms, composed adaptively.

Everything is said in ``mu = sum_i sensitivity_i**2 / (2 * sigma_i**2)``, the quantity of Theorem
2.4 of Räisä et al. (2021), numerically the rho of zCDP. Mechanisms compose by adding their mu, and
a total mu gives delta as a function of epsilon exactly. Formulas are evaluated in log space, and
every answer is rounded to the side that promises less privacy than there is.
"""

import math

import numpy as np
import scipy
from scipy.special import erfcx, log_ndtr

# Relative room left in delta for rounding errors; measured errors are below a tenth of it.
_MARGIN = 1e-9
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(5)


def _check_epsilon(epsilon: float) -> float:
    if not (epsilon >= 0 and math.isfinite(epsilon)):
        raise ValueError(f"epsilon must be a finite number >= 0, not {epsilon!r}.")
    return float(epsilon)


def _check_delta(delta: float) -> float:
    if not 0 < delta < 1:
        raise ValueError(
            f"delta must lie strictly between 0 and 1, not {delta!r}: Gaussian noise gives no pure "
            "epsilon guarantee. Write a small one, well below 1/n."
        )
    return float(delta)


def _check_positive(name: str, value: float) -> float:
    if not (value > 0 and math.isfinite(value)):
        raise ValueError(f"{name} must be a finite number > 0, not {value!r}.")
    return float(value)


def _log_delta(epsilon: float, mu: float) -> float:
    """Logarithm of delta(epsilon) for composed Gaussian mechanisms, without safety margin."""
    s = math.sqrt(2 * mu)
    t = epsilon / s
    a = float(log_ndtr(s / 2 - t))
    if a < -10_000:  # far below any float; a alone is a valid bound and the rest loses precision
        return a
    if s < 0.1:
        # b - a cancels; it is minus the integral of (hazard(x) - x) over [t - s/2, t + s/2].
        x = t + s / 2 * _NODES
        hazard = math.sqrt(2 / math.pi) / erfcx(x / math.sqrt(2))
        log_ratio = -s / 2 * float(_WEIGHTS @ (hazard - x))
    else:
        log_ratio = epsilon + float(log_ndtr(-s / 2 - t)) - a
    return a + math.log(-math.expm1(log_ratio))


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Delta of composed Gaussian mechanisms at a given epsilon.

    Parameters
    ----------
    epsilon : float
        Privacy parameter, at least 0.
    mu : float
        Sum over the mechanisms of ``sensitivity**2 / (2 * sigma**2)``.

    Returns
    -------
    float
        The smallest valid delta, rounded up by one part in a billion.

    Notes
    -----
    Theorem 2.4 of Räisä, Koskela and Honkela (2021), which prints it with erfc; evaluated here as
    ``ln delta = a + log1p(-exp(b - a))`` with ``s = sqrt(2 mu)``, ``a = log_ndtr(s/2 - epsilon/s)``
    and ``b = epsilon + log_ndtr(-s/2 - epsilon/s)``, which neither overflows nor cancels.

    Examples
    --------
    >>> from pymc_dp.accounting import gaussian_delta
    >>> f"{gaussian_delta(1.0, mu=0.05):.3e}"
    '1.098e-04'
    """
    epsilon = _check_epsilon(epsilon)
    if mu == 0:
        return 0.0
    log_delta = _log_delta(epsilon, _check_positive("mu", mu)) + _MARGIN
    return min(1.0, max(math.exp(log_delta), math.ulp(0.0)))


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Largest mu whose composed Gaussian mechanisms satisfy (epsilon, delta).

    Parameters
    ----------
    epsilon, delta : float
        The guarantee to meet: epsilon at least 0, delta between 0 and 1.

    Returns
    -------
    float
        The total ``sum_i sensitivity_i**2 / (2 * sigma_i**2)`` that may be spent, rounded down.

    Notes
    -----
    The inverse in mu of Theorem 2.4 of Räisä et al. (2021).

    Examples
    --------
    >>> from pymc_dp.accounting import gaussian_mu
    >>> round(gaussian_mu(1.0, 1e-6), 5)
    0.02801
    """
    epsilon, target = _check_epsilon(epsilon), math.log(_check_delta(delta)) - 2 * _MARGIN

    def excess(log_mu: float) -> float:
        return _log_delta(epsilon, math.exp(log_mu)) - target

    # zCDP's own conversion is a valid, slightly too small, answer when epsilon > 0.
    low = 2 * math.log(max(epsilon, delta) / (math.sqrt(epsilon - target) + math.sqrt(-target)))
    while low > -700 and excess(low) > 0:
        low -= 1
    if low <= -700:
        raise ValueError(f"epsilon={epsilon!r} with delta={delta!r} is too strict for floats.")
    high = low + 1
    while excess(high) < 0:
        high += 1
    return math.exp(scipy.optimize.brentq(excess, low, high, xtol=1e-14, rtol=1e-14))


def gaussian_epsilon(delta: float, mu: float) -> float:
    """Epsilon of composed Gaussian mechanisms at a given delta.

    Parameters
    ----------
    delta : float
        Privacy parameter between 0 and 1.
    mu : float
        Sum over the mechanisms of ``sensitivity**2 / (2 * sigma**2)``.

    Returns
    -------
    float
        The smallest valid epsilon, rounded up; 0 where delta alone already covers mu.

    Notes
    -----
    The inverse in epsilon of Theorem 2.4 of Räisä et al. (2021).

    Examples
    --------
    >>> from pymc_dp.accounting import gaussian_epsilon
    >>> round(gaussian_epsilon(1e-6, mu=0.02801), 3)
    1.0
    """
    target = math.log(_check_delta(delta)) - 2 * _MARGIN
    if mu == 0:
        return 0.0
    mu = _check_positive("mu", mu)
    if _log_delta(0.0, mu) <= target:
        return 0.0
    bound = mu + 2 * math.sqrt(-mu * target)  # zCDP's conversion, always enough
    return scipy.optimize.brentq(
        lambda epsilon: _log_delta(epsilon, mu) - target, 0.0, bound, xtol=1e-300, rtol=1e-14
    )


def gaussian_sigma(
    epsilon: float, delta: float, sensitivity: float = 1.0, iterations: int = 1
) -> float:
    """Noise that makes a number of Gaussian mechanisms satisfy (epsilon, delta) together.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee to meet.
    sensitivity : float
        L2 sensitivity of each released value.
    iterations : int
        How many values are released with this noise.

    Returns
    -------
    float
        Standard deviation of the noise, rounded up.

    Notes
    -----
    ``sensitivity * sqrt(iterations / (2 * mu))``; with one iteration this is the analytic Gaussian
    mechanism of Balle and Wang (2018).

    Examples
    --------
    >>> from pymc_dp.accounting import gaussian_sigma
    >>> round(gaussian_sigma(1.0, 1 / 7655), 3)
    3.119
    """
    sensitivity = _check_positive("sensitivity", sensitivity)
    iterations = _check_iterations(iterations)
    # so that the square of its inverse does not exceed mu by a rounding error
    return sensitivity * math.sqrt(iterations / (2 * gaussian_mu(epsilon, delta))) * (1 + 1e-14)


def _check_iterations(iterations: int) -> int:
    if iterations != int(iterations) or iterations < 1:
        raise ValueError(f"iterations must be a whole number >= 1, not {iterations!r}.")
    return int(iterations)


def gaussian_iterations(epsilon: float, delta: float, noise_multiplier: float) -> int:
    """How many Gaussian mechanisms a guarantee pays for.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee to meet.
    noise_multiplier : float
        Standard deviation of each mechanism's noise over its sensitivity.

    Returns
    -------
    int
        The largest number of releases that still satisfy (epsilon, delta); 0 if not even one does.

    Examples
    --------
    >>> from pymc_dp.accounting import gaussian_iterations
    >>> gaussian_iterations(4.0, 1e-6, noise_multiplier=0.05 * 100_000**0.5)
    175
    """
    noise_multiplier = _check_positive("noise_multiplier", noise_multiplier)
    return math.floor(2 * gaussian_mu(epsilon, delta) * noise_multiplier**2)
