"""Exact posterior of a regression on one feature from noisy sums, by quadrature.

Sums S = sum x^2 and z = sum x y of n records, x ~ N(0, v), y ~ N(theta x, sigma2);
v ~ InverseGamma(nu / 2, psi / 2), theta ~ N(0, tau^2), sigma2 ~ InverseGamma(a, b); S and z are
released with independent noise.
"""

import numpy as np
from scipy import special


def _log_laplace_plus_normal(x, scale, sd):
    """Log-density of Laplace(scale) + Normal(0, sd)."""
    lam = sd / scale
    left = special.log_ndtr(x / sd - lam) - x / scale
    right = special.log_ndtr(-x / sd - lam) + x / scale
    return 0.5 * lam**2 - np.log(2 * scale) + np.logaddexp(left, right)


def one_feature(n, nu, psi, tau, a, b, S_hat, z_hat, noise, laplace=False, size=(160, 120, 161)):
    """Marginal distributions: grids and probabilities of S, theta, and sigma2."""
    sd = noise * (np.sqrt(2) if laplace else 1)
    log_S = np.linspace(np.log(max(S_hat - 7 * sd, S_hat / 60)), np.log(S_hat + 8 * sd), size[0])
    log_v = np.linspace(np.log(b / (a + 1)) - 3, np.log(b / (a + 1)) + 5, size[1])
    theta = np.linspace(-5 * tau, 5 * tau, size[2])
    S, sigma2 = np.exp(log_S)[:, None, None], np.exp(log_v)[None, :, None]
    t = theta[None, None, :]
    # S / v is chi-square with n degrees; v integrated out; d log S
    log_p = (n / 2) * np.log(S) - (nu + n) / 2 * np.log(psi + S)
    log_p = log_p - a * np.log(sigma2) - b / sigma2 - t**2 / (2 * tau**2)
    if laplace:
        log_p = log_p - np.abs(S_hat - S) / noise
        log_p = log_p + _log_laplace_plus_normal(z_hat - S * t, noise, np.sqrt(sigma2 * S))
    else:
        variance = sigma2 * S + noise**2
        log_p = log_p - (S_hat - S) ** 2 / (2 * noise**2)
        log_p = log_p - 0.5 * np.log(variance) - (z_hat - S * t) ** 2 / (2 * variance)
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    return {
        "S": (np.exp(log_S), p.sum((1, 2))),
        "sigma2": (np.exp(log_v), p.sum((0, 2))),
        "theta": (theta, p.sum((0, 1))),
    }


def cdf(grid, probability):
    """Distribution function, linear between the middles of the grid's cells."""
    edges = np.concatenate([[1.5 * grid[0] - 0.5 * grid[1]], (grid[1:] + grid[:-1]) / 2])
    edges = np.append(edges, 1.5 * grid[-1] - 0.5 * grid[-2])
    total = np.concatenate([[0.0], np.cumsum(probability)])
    return lambda x: np.interp(x, edges, total)
