"""Posteriors of clamped sums with Laplace noise, without Monte Carlo, to check samplers with.

Each is a mean and a standard deviation for every parameter, on a grid around a guess of both.
"""

from dataclasses import dataclass

import numpy as np
from scipy import special, stats

from tests import oracles


@dataclass(frozen=True)
class ClampedGamma:
    """Gamma records of shape 1/2, cut at `upper`; theta is the logarithm of their rate."""

    upper: float
    lower: float = 0.0

    def atoms(self, theta):
        return 0.0, float(special.erfc(np.sqrt(np.exp(theta) * self.upper)))

    def length(self, theta):
        return np.exp(-theta)

    def density(self, x, theta):
        return stats.gamma.pdf(np.maximum(x, 1e-300), 0.5, scale=np.exp(-theta))

    def interior_cf(self, t, theta):
        rate = np.exp(theta)
        power = rate - 1j * t
        return np.sqrt(rate / power) * special.erf(np.sqrt(power * self.upper))

    def moments(self, theta):
        """Mean and mean square."""
        rate, above = np.exp(theta), self.atoms(theta)[1]
        inside = [special.gammainc(0.5 + k, rate * self.upper) for k in (1, 2)]
        return (
            0.5 / rate * inside[0] + self.upper * above,
            0.75 / rate**2 * inside[1] + self.upper**2 * above,
        )


class ClampedNormal(oracles.ClampedNormal):
    """Normal records of known standard deviation; theta is their mean."""

    def moments(self, theta):
        z, weight = _normal_nodes()
        x = np.clip(theta + self.sd * z, self.lower, self.upper)
        return x @ weight, x**2 @ weight


def of_sum(released, n, noise, record, prior, guess):
    """By Fourier series; with more than 10000 records by the normal law of their sum.

    Where a clamp acts, sums hardly change any more with the parameter: the posterior has a long low
    tail, so that the prior is covered, too. What is far from the guess has the normal law.
    """
    near = np.linspace(guess[0] - 9 * guess[1], guess[0] + 9 * guess[1], 241)
    centre, variance = prior.stats("mv")
    theta = np.union1d(near, centre + 4 * np.sqrt(variance) * np.linspace(-1, 1, 161))
    mean, square = np.array([record.moments(value) for value in theta]).T
    spread = np.sqrt(np.maximum(n * (square - mean**2), (1e-3 * noise) ** 2))
    likelihood = normal_plus_laplace(released, n * mean, spread, noise)
    if n <= 10_000:
        inside = (theta >= near[0]) & (theta <= near[-1])
        laplace = oracles.Laplace(float(noise))
        likelihood[inside] = oracles.sum_likelihood(released, n, record, laplace, theta[inside])
    log_p = prior.logpdf(theta) + likelihood
    p = np.exp(log_p - log_p.max()) * np.gradient(theta)
    p /= p.sum()
    found = float(p @ theta)
    return found, float(np.sqrt(p @ (theta - found) ** 2))


def _normal_nodes():
    z = np.linspace(-8, 8, 4001)
    return z, stats.norm.pdf(z) * (z[1] - z[0])


def normal_plus_laplace(x, mean, sd, scale):
    """Log-density at x of a normal plus a Laplace variable."""
    z, ratio = (x - mean) / sd, sd / scale
    tails = special.log_ndtr(z - ratio) - z * ratio, special.log_ndtr(-z - ratio) + z * ratio
    return np.logaddexp(*tails) + ratio**2 / 2 - np.log(2 * scale)


def of_both(released, n, noise, bounds, guess):
    """Of mean (prior sd 3) and sd (half-normal, 2) of normal records, from sum and sum of squares.

    The two sums are taken as normal: for many records.
    """
    axes = [np.linspace(m - 7 * s, m + 7 * s, 91) for m, s in guess]
    mu, sd = np.meshgrid(*axes, indexing="ij")
    z, weight = _normal_nodes()
    log_p = np.full(mu.shape, -np.inf)
    for i in np.ndindex(mu.shape):
        if sd[i] <= 0:
            continue
        x = np.clip(mu[i] + sd[i] * z, *bounds)
        moments = np.array([x, x**2])
        mean = n * moments @ weight
        cov = n * ((moments * weight) @ moments.T) - np.outer(mean, mean) / n
        # the first sum by quadrature, where it is not far from its mean and from its release
        spread = np.sqrt(cov[0, 0])
        t = np.linspace(-15, 15, 601)
        near = released[0] + noise[0] * np.sinh(t / 2)
        first = np.sort(np.concatenate([mean[0] + spread * t / 2, near]))
        first = first[np.abs(first - mean[0]) < 8 * spread]
        slope = cov[0, 1] / cov[0, 0]
        rest = np.sqrt(cov[1, 1] - slope * cov[0, 1])
        expected = mean[1] + slope * (first - mean[0])
        second = normal_plus_laplace(released[1], expected, rest, noise[1])
        log_f = stats.norm.logpdf(first, mean[0], spread) + second
        log_f -= np.abs(released[0] - first) / noise[0]
        top = log_f.max()
        log_p[i] = top + np.log(np.trapezoid(np.exp(log_f - top), first))
        log_p[i] += stats.norm.logpdf(mu[i], 0, 3) + stats.halfnorm.logpdf(sd[i], scale=2)
    p = np.exp(log_p - log_p.max())
    p /= p.sum()

    def moments_of(x):
        mean = float((p * x).sum())
        return mean, float(np.sqrt((p * (x - mean) ** 2).sum()))

    return {"mu": moments_of(mu), "sd": moments_of(sd)}
