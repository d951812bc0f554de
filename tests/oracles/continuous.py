"""One released sum of clamped continuous records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from tests.oracles.integers import convolution_power
from tests.oracles.noise import Gaussian, Laplace

Array = NDArray[np.float64]
LogDensity = Callable[[ArrayLike], NDArray[np.float64]]


class Record(Protocol):
    """A continuous record clamped to [lower, upper]: two atoms and a density between them."""

    lower: float
    upper: float

    def atoms(self, theta: float) -> tuple[float, float]:
        """Probabilities of the values lower and upper."""

    def length(self, theta: float) -> float:
        """Length over which the density changes."""

    def density(self, x: Array, theta: float) -> Array:
        """Density between the atoms."""

    def interior_cf(self, t: Array, theta: float) -> NDArray[np.complex128]:
        """Integral of density(x) exp(i t x) between the atoms."""


@dataclass(frozen=True)
class ClampedNormal:
    """Normal records with mean theta and known standard deviation."""

    sd: float
    lower: float
    upper: float

    def atoms(self, theta: float) -> tuple[float, float]:
        z_lower, z_upper = (self.lower - theta) / self.sd, (self.upper - theta) / self.sd
        return float(special.ndtr(z_lower)), float(special.ndtr(-z_upper))

    def length(self, theta: float) -> float:
        return self.sd

    def density(self, x: Array, theta: float) -> Array:
        z = (x - theta) / self.sd
        return np.exp(-0.5 * z**2) / (np.sqrt(2 * np.pi) * self.sd)

    def interior_cf(self, t: Array, theta: float) -> NDArray[np.complex128]:
        """Closed form by the complex error function, scaled against overflow."""

        def upper_tail(bound: float) -> NDArray[np.complex128]:
            z = (bound - theta) / self.sd
            w = (np.abs(z) - 1j * np.copysign(self.sd, z) * t) / np.sqrt(2)
            tail = 0.5 * np.exp(-0.5 * z**2 + 1j * t * bound) * special.wofz(1j * w)
            return tail if z >= 0 else np.exp(1j * t * theta - 0.5 * (self.sd * t) ** 2) - tail

        return upper_tail(self.lower) - upper_tail(self.upper)


@dataclass(frozen=True)
class ClampedExponential:
    """Exponential records with rate theta, clamped to 0 <= lower < upper."""

    lower: float
    upper: float

    def atoms(self, theta: float) -> tuple[float, float]:
        return float(-np.expm1(-theta * self.lower)), float(np.exp(-theta * self.upper))

    def length(self, theta: float) -> float:
        return 1 / theta

    def density(self, x: Array, theta: float) -> Array:
        return theta * np.exp(-theta * x)

    def interior_cf(self, t: Array, theta: float) -> NDArray[np.complex128]:
        """Elementary integral of theta exp((i t - theta) x)."""
        power = 1j * t - theta
        return theta * (np.exp(power * self.upper) - np.exp(power * self.lower)) / power


def _series(noise: Laplace | Gaussian, reach: float) -> tuple[float, Callable[[Array], Array]]:
    """Period and Fourier coefficients of a periodic function equal to the noise on |x| <= reach.

    The Laplace density is cut at half a period and repeated, which has coefficients in closed
    form, so nothing wraps around; the Gaussian density is repeated with a gap of ten sigma.
    """
    if isinstance(noise, Laplace):
        period, scale = 2 * reach, float(noise.scale)

        def coefficient(k: Array) -> Array:
            cut = np.where(k % 2 == 0, 1.0, -1.0) * np.exp(-reach / scale)
            return (1 - cut) / (1 + (2 * np.pi * k * scale / period) ** 2) / period

    else:
        period, sigma = reach + 10 * float(noise.sigma), float(noise.sigma)

        def coefficient(k: Array) -> Array:
            return np.exp(-0.5 * (2 * np.pi * k * sigma / period) ** 2) / period

    return period, coefficient


def _panels(edges: Array, order: int) -> tuple[Array, Array]:
    """Gauss-Legendre nodes and weights on the panels between edges (along the last axis)."""
    node, weight = special.roots_legendre(order)
    half = np.diff(edges, axis=-1)[..., None] / 2
    nodes = edges[..., :-1, None] + half * (1 + node)
    flat = (*edges.shape[:-1], -1)
    return nodes.reshape(flat), (half * weight).reshape(flat)


def _log_binomial(n: int, low: float, high: float) -> Array:
    """Log probability that j of n records are at the upper bound and the rest at the lower."""
    j = np.arange(n + 1.0)
    log_ways = special.gammaln(n + 1) - special.gammaln(j + 1) - special.gammaln(n - j + 1)
    return log_ways + special.xlogy(n - j, low) + special.xlogy(j, high)


def _few_free(
    released: float, n: int, record: Record, noise: Laplace | Gaussian, theta: float
) -> float:
    """Density of the release on the event that all records, or all but one, are at a bound."""
    low, high = record.atoms(theta)
    width = record.upper - record.lower
    left = released - n * record.lower - width * np.arange(n + 1)
    none_free = np.exp(_log_binomial(n, low, high) + noise(left)).sum()
    if n * (low + high) ** (n - 1) < 1e-14:
        return float(none_free)
    left = released - (n - 1) * record.lower - width * np.arange(n)  # for the free record
    scale = noise.scale if isinstance(noise, Laplace) else noise.sigma
    count = int(width / min(2 * float(scale), 1.5 * record.length(theta), width / 4)) + 1
    edges = np.tile(np.linspace(record.lower, record.upper, count + 1), (n, 1))
    edges = np.sort(np.column_stack([edges, np.clip(left, record.lower, record.upper)]), axis=1)
    x, weight = _panels(edges, 10)
    free = (weight * record.density(x, theta) * np.exp(noise(left[:, None] - x))).sum(axis=1)
    return float(none_free + n * np.exp(_log_binomial(n - 1, low, high)) @ free)


def sum_likelihood(
    released: float,
    n: int,
    record: Record,
    noise: Laplace | Gaussian,
    theta: ArrayLike,
    rtol: float = 1e-6,
    max_terms: int = 2**22,
) -> Array:
    r"""Log density of a noisy sum of n clamped records, at each theta.

    With A and C the parts of a record's characteristic function from the two atoms and from
    between them, and c_k the noise's Fourier coefficients at frequencies t_k,

    .. math:: p(s) = p(s, \text{at most one free})
              + \sum_k c_k ((A + C)^n - A^n - n A^{n-1} C)(t_k) e^{-i t_k s}.

    The first term, where at most one record is off the bounds, is a finite sum and a quadrature.
    Without it the series falls like k^-4 even for Laplace noise (k^-2 with it). Terms are added
    in blocks until a bound on the rest is below ``rtol`` of the sum plus 1e-12 of the noise
    density's peak. Values below 1e-11 of that peak cannot be told from zero and give -inf.
    """
    inside = float(np.clip(released, n * record.lower, n * record.upper))
    if isinstance(noise, Gaussian):
        inside = released
    # beyond the range of the sum a Laplace density is an exact multiple of its value at the end
    shift = noise(released - inside) - noise(0.0) if isinstance(noise, Laplace) else 0.0
    reach = max(inside - n * record.lower, n * record.upper - inside)
    period, coefficient = _series(noise, reach)
    peak = float(np.exp(noise(0.0)))

    def density(value: float) -> float:
        low, high = record.atoms(value)
        atoms = low + high
        total = _few_free(inside, n, record, noise, value)
        done = atoms**n + n * atoms ** (n - 1) * (1 - atoms)
        total += float(coefficient(np.zeros(1))[0]) * (1 - done)
        # |phi|^n may swell again each time the two atoms come into phase: see a whole period
        start, size = 1, max(256, 2 * int(period / (record.upper - record.lower)) + 2)
        while start < max_terms:
            k = np.arange(start, start + size, dtype=float)
            t = 2 * np.pi * k / period
            bound = low * np.exp(1j * t * record.lower) + high * np.exp(1j * t * record.upper)
            free = record.interior_cf(t, value)
            rest = (bound + free) ** n - bound**n - n * bound ** (n - 1) * free
            terms = 2 * coefficient(k) * rest
            total += float(np.sum((terms * np.exp(-1j * t * inside)).real))
            start += size
            if np.abs(terms[size // 2 :]).max() * start < rtol * abs(total) + 1e-12 * peak:
                return total
            size = max(size, min(2 * size, 2**16))
        raise ValueError(f"the series at theta = {value} needs more than {max_terms} terms")

    values = np.array([density(float(v)) for v in np.atleast_1d(np.asarray(theta, float))])
    usable = values > 1e-11 * peak
    return np.where(usable, np.log(np.where(usable, values, 1.0)), -np.inf) + shift


def sum_likelihood_on_lattice(
    released: float, n: int, record: Record, noise: LogDensity, theta: float, step: float
) -> float:
    """Compute `sum_likelihood` another way, as a check: a record's law on a fine grid, by FFT.

    The density is shared between neighbouring grid points so that the mean is kept; the error
    left is proportional to step^2 and one Richardson step removes it. `step` must divide the
    clamp's width.
    """

    def density(h: float) -> float:
        cells = round((record.upper - record.lower) / h)
        node, weight = special.roots_legendre(8)
        left = record.lower + h * np.arange(cells)
        inner = (node + 1) / 2
        mass = record.density(left[:, None] + h * inner, theta) * weight * h / 2
        pmf = np.zeros(cells + 1)
        pmf[:-1] += mass @ (1 - inner)
        pmf[1:] += mass @ inner
        pmf[[0, -1]] += record.atoms(theta)
        total = n * record.lower + h * np.arange(n * cells + 1)
        return float(convolution_power(pmf, n) @ np.exp(noise(released - total)))

    return float(np.log((4 * density(step / 2) - density(step)) / 3))
