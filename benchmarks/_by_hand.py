"""Clamped sums with Laplace noise and their records integrated out, written by hand in plain PyMC.

The normal law of the sums with moments in closed form: what `pmdp.marginalize` is compared with.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy import special


def normal_moments(mu, sd, low, high):
    """Raw moments 1 to 4 of a clamped normal, as a user would write them."""
    a, b = (low - mu) / sd, (high - mu) / sd
    phi = [pt.exp(-0.5 * z**2) / np.sqrt(2 * np.pi) for z in (a, b)]
    below, above = 0.5 * pt.erfc(-a / np.sqrt(2)), 0.5 * pt.erfc(b / np.sqrt(2))
    inner = [1 - below - above, phi[0] - phi[1]]
    for k in (2, 3, 4):
        inner.append((k - 1) * inner[k - 2] + a ** (k - 1) * phi[0] - b ** (k - 1) * phi[1])
    m, s, i = mu, sd, inner
    powers = [
        m * i[0] + s * i[1],
        m**2 * i[0] + 2 * m * s * i[1] + s**2 * i[2],
        m**3 * i[0] + 3 * m**2 * s * i[1] + 3 * m * s**2 * i[2] + s**3 * i[3],
        m**4 * i[0]
        + 4 * m**3 * s * i[1]
        + 6 * m**2 * s**2 * i[2]
        + 4 * m * s**3 * i[3]
        + s**4 * i[4],
    ]
    return [p + low ** (k + 1) * below + high ** (k + 1) * above for k, p in enumerate(powers)]


def gamma_moments(shape, rate, high):
    """Raw moments 1 and 2 of a gamma variable cut at `high`."""
    above = pt.gammaincc(shape, rate * high)
    return [
        special.poch(shape, k) / rate**k * pt.gammainc(shape + k, rate * high) + high**k * above
        for k in (1, 2)
    ]


def normal_plus_laplace(x, mean, variance, scale):
    s = pt.sqrt(variance)
    z, ratio = pt.abs(x - mean) / s, s / scale
    u = (ratio - z) / np.sqrt(2)
    near = pt.log(pt.erfcx(pt.maximum(u, 0))) - 0.5 * z**2
    far = 0.5 * ratio**2 - z * ratio + pt.log(pt.erfc(pt.minimum(u, 0)))
    other = pt.log(pt.erfcx((ratio + z) / np.sqrt(2))) - 0.5 * z**2
    return pt.logaddexp(pt.switch(u > 0, near, far), other) - np.log(4 * scale)


def one_sum(released, n, noise, moments):
    """Add the density of a noisy sum to the model of the context."""
    m1, m2 = moments
    pm.Potential("s", normal_plus_laplace(released, n * m1, n * (m2 - m1**2), noise))


def two_sums(released, n, noise, moments):
    """Likewise of a sum and a sum of squares; Laplace noise is a scale mixture."""
    m1, m2, m3, m4 = moments
    w = pm.Exponential("w", 0.5, shape=2)
    mean = n * pt.stack([m1, m2])
    c11, c12, c22 = m2 - m1**2, m3 - m1 * m2, m4 - m2**2
    d1, d2 = n * c11 + noise[0] ** 2 * w[0], n * c22 + noise[1] ** 2 * w[1]
    c = n * c12
    e = np.asarray(released) - mean
    det = d1 * d2 - c**2
    square = (d2 * e[0] ** 2 - 2 * c * e[0] * e[1] + d1 * e[1] ** 2) / det
    pm.Potential("s", -0.5 * (square + pt.log(det)))
