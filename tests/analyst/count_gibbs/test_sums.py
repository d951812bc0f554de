"""Sums over a cell's counts against the same sums written out, on plain arrays."""

import numpy as np
import pytest
from scipy import sparse, stats
from scipy.special import gammaln, logsumexp

from pymc_dp.analyst.count_gibbs.laws import TERMS, UNBOUNDED
from pymc_dp.analyst.count_gibbs.sums import LogSums, draw_cells
from pymc_dp.analyst.count_gibbs.windows import Components, windows_of

#: two released numbers for the first cell; one is dropped below a threshold; one far from its law
RELEASED = np.array([3.0, 6.0, -4.0, 0.0, 30.0, 2.0, 9.0, 1.0, 5.0, 4.0])
CELLS = np.array([0, 0, 1, 2, 3, 4, 5, 6, 7, 8])
NOISE = np.array([2.0, 3.0, 2.0, 1.0, 5.0, 2.0, 4.0, 1.0, 2.0, 2.0])
SIZE = 9
TRIALS = np.array([12, 4, 15, 40, 9, 20, 7, 8, 10.0])


def log_noise(which, statistic):
    """Gaussian noise; on the third released number all that is known is that it is below 2."""
    z = (RELEASED[which] - statistic) / NOISE[which]
    return np.where(which == 3, stats.norm.logcdf(2 - statistic), -0.5 * z**2)


def windows(trials):
    matrix = sparse.csr_array((np.ones(CELLS.size), (np.arange(CELLS.size), CELLS)))
    high = np.where(trials > 0, trials, UNBOUNDED).astype(np.int64)
    bounds = (np.zeros(SIZE, dtype=np.int64), high)
    components = Components(RELEASED, NOISE, np.zeros(RELEASED.size), np.zeros(RELEASED.size))
    found = windows_of(matrix, components, log_noise, bounds, trials, np.zeros(SIZE))
    return found, np.concatenate([found.header.ravel(), found.steps])


def log_weights(i, terms, trials):
    """Log of the law's terms and of the noise at all counts, up to a constant."""
    k = np.arange(0, int(trials[i]) + 1 if trials[i] else 2000)
    law = k * terms["phi"][i] - gammaln(k + 1) + terms["zero"][i] * (k == 0)
    if trials[i]:
        law -= gammaln(trials[i] - k + 1) - gammaln(trials[i] + 1)
    if terms["alpha"][i] >= 0:
        law += gammaln(k + terms["alpha"][i]) - gammaln(terms["alpha"][i])
    if terms["beta"][i] >= 0:
        rest = gammaln(trials[i] - k + terms["beta"][i])
        law += rest - gammaln(trials[i] + terms["beta"][i])
    seen = [log_noise(np.full(k.size, r), k) for r in np.flatnonzero(np.equal(CELLS, i))]
    return k, law + sum(seen)


CASES = {
    "poisson": (("phi",), False),
    "binomial": (("phi",), True),
    "negative binomial": (("phi", "alpha"), False),
    "beta-binomial": (("phi", "alpha", "beta"), True),
    "zero-inflated": (("phi", "zero"), False),
}


def case(name, seed=3):
    names, bounded = CASES[name]
    rng = np.random.default_rng(seed)
    terms = {name: np.full(SIZE, nothing) for name, nothing in TERMS.items()}
    terms["phi"] = np.log(rng.uniform(1, 6, SIZE)) if not bounded else rng.normal(size=SIZE)
    if name == "negative binomial":
        terms["phi"] = np.log(rng.uniform(0.3, 0.9, SIZE))
    for term in names[1:]:
        terms[term] = rng.uniform(0.2, 3, SIZE)
    return names, terms, TRIALS if bounded else np.zeros(SIZE)


@pytest.mark.parametrize("name", CASES)
def test_sums_and_slopes(name):
    names, terms, trials = case(name)
    found, whole = windows(trials)
    compiled = LogSums(names, SIZE).compiled(python=True)

    def value(values):
        total, *slopes = compiled(whole, *(values[t] for t in names))
        peaks = found.header[:, 0]
        for term in ("alpha", "beta"):  # the part that is left to PyTensor
            if term in names:
                at = trials - peaks if term == "beta" else peaks
                base = trials if term == "beta" else 0.0
                total += (gammaln(at + values[term]) - gammaln(base + values[term])).sum()
        return float(total), slopes

    def exact(values):
        return sum(logsumexp(log_weights(i, values, trials)[1]) for i in range(SIZE))

    total, slopes = value(terms)
    for seed in (4, 5):  # sums are known up to a constant
        _, other, _ = case(name, seed)
        np.testing.assert_allclose(value(other)[0] - total, exact(other) - exact(terms), rtol=1e-9)
    up, down = ({**terms, "phi": terms["phi"] + h} for h in (1e-4, -1e-4))
    np.testing.assert_allclose(slopes[0].sum(), (exact(up) - exact(down)) / 2e-4, rtol=1e-5)
    for term, slope in zip(names[1:], slopes[1:], strict=True):
        for i in (0, 5):
            step = np.zeros(SIZE)
            step[i] = 1e-4
            ends = [{**terms, term: terms[term] + s * step} for s in (1, -1)]
            k, log_p = log_weights(i, terms, trials)
            direct = (value(ends[0])[0] - value(ends[1])[0]) / 2e-4
            np.testing.assert_allclose(direct, (exact(ends[0]) - exact(ends[1])) / 2e-4, rtol=1e-5)
            if term == "zero":
                p = np.exp(log_p - logsumexp(log_p))
                np.testing.assert_allclose(slope[i], p[k == 0].sum(), rtol=1e-9)


def test_laws_far_from_the_release():
    """Weights that would overflow or vanish are scaled, and none is lost."""
    _, terms, trials = case("poisson")
    found, whole = windows(trials)
    compiled = LogSums(("phi",), SIZE).compiled(python=True)
    for shift in (-900.0, -250.0, -40.0, 3.0, 40.0, 250.0):
        far = {**terms, "phi": terms["phi"] + shift}
        total, slope = compiled(whole, far["phi"])
        first, last = (
            found.header[:, 0] - found.header[:, 4],
            found.header[:, 0] + found.header[:, 2],
        )
        for i in range(SIZE):
            k, log_p = log_weights(i, far, trials)
            inside = (k >= first[i]) & (k <= last[i])
            p = np.exp(log_p[inside] - logsumexp(log_p[inside]))
            np.testing.assert_allclose(slope[i], (p * k[inside]).sum(), rtol=1e-6, atol=1e-9)
        assert np.isfinite(total)


@pytest.mark.parametrize("name", CASES)
def test_cells_are_drawn_from_their_conditional(name):
    """Chi-square of 4000 draws of each of nine cells: false alarms 1e-5 in all."""
    _, terms, trials = case(name)
    found, _ = windows(trials)
    rng, laws = np.random.default_rng(7), np.array(list(terms.values()))
    draws = np.empty((4000, SIZE))
    for row in draws:
        draw_cells(rng, laws, found.header, found.steps, row)
    for i in range(SIZE):
        k, log_p = log_weights(i, terms, trials)
        p = np.exp(log_p - logsumexp(log_p))
        often = p * len(draws) > 5
        counts = np.bincount(draws[:, i].astype(int), minlength=k.size)[: k.size]
        seen = np.append(counts[often], len(draws) - counts[often].sum())
        expected = np.append(p[often], max(1 - p[often].sum(), 1e-12)) * len(draws)
        keep = expected > 1
        chi = ((seen - expected)[keep] ** 2 / expected[keep]).sum()
        assert stats.chi2.sf(chi, max(keep.sum() - 1, 1)) > 1e-5 / SIZE


def test_noise_that_bounds_nothing_has_no_window():
    """A value at an upper clamp leaves all larger counts possible."""
    matrix = sparse.csr_array(np.ones((1, 1)))
    components = Components(np.array([5.0]), np.ones(1), np.zeros(1), np.zeros(1))
    bounds = (np.zeros(1, dtype=np.int64), np.full(1, UNBOUNDED))
    one = np.zeros(1)
    assert (
        windows_of(matrix, components, lambda r, s: stats.norm.logcdf(s - 5), bounds, one, one)
        is None
    )
