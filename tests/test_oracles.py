"""The oracles against each other, against closed forms and against an independent program."""

from itertools import pairwise

import numpy as np
import pytest
from scipy import integrate, special, stats

from tests.oracles import (
    ClampedExponential,
    ClampedNormal,
    DirichletMixture,
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    GridPosterior,
    Laplace,
    bernoulli_pmf,
    clamped_poisson_pmf,
    conjugate_posterior,
    convolution_power,
    count_vectors,
    enumerate_likelihood,
    enumerate_posterior,
    group_means_posterior,
    lattice_likelihood,
    moments_likelihood,
    normal_plane_posterior,
    normal_sums_posterior,
    posterior_from_likelihood,
    sum_likelihood,
    sum_likelihood_on_lattice,
)

pytestmark = pytest.mark.oracles

NOISES = [Laplace(1.5), Gaussian(1.5)]


def test_grid_posterior_of_a_normal():
    grid = np.linspace(-7, 11, 181)
    posterior = GridPosterior.from_log_density(grid, stats.norm.logpdf(grid, 2, 1) + 3)
    assert posterior.mean() == pytest.approx(2, abs=1e-12)
    assert posterior.sd() == pytest.approx(1, abs=1e-10)
    x = np.linspace(-3, 7, 77)
    np.testing.assert_allclose(posterior.cdf(x), stats.norm.cdf(x, 2, 1), atol=1e-6)
    p = np.array([[0.01, 0.3], [0.5, 0.99]])
    np.testing.assert_allclose(posterior.quantile(p), stats.norm.ppf(p, 2, 1), atol=2e-5)
    assert posterior.cdf(-100.0) == 0
    assert posterior.cdf(100.0) == 1


def test_grid_posterior_refuses_a_likelihood_that_vanishes():
    with pytest.raises(ValueError, match="not finite"):
        posterior_from_likelihood([0.0, 1.0], [0.0, 0.0], [-np.inf, -np.inf])


@pytest.mark.parametrize("noise", [DiscreteLaplace(2.5), DiscreteGaussian(2.5)])
def test_integer_noise_sums_to_one(noise):
    assert np.exp(noise(np.arange(-200, 201))).sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("record", [ClampedNormal(1.3, -2, 3), ClampedExponential(0.2, 3)])
@pytest.mark.parametrize("theta", [0.3, 3.0, 9.0])
def test_record_law(record, theta):
    node, weight = np.polynomial.legendre.leggauss(300)
    half = (record.upper - record.lower) / 2
    x = record.lower + half * (1 + node)
    mass = weight * half * record.density(x, theta)
    t = np.linspace(0, 80, 40)
    by_quadrature = np.exp(1j * t[:, None] * x) @ mass
    np.testing.assert_allclose(record.interior_cf(t, theta), by_quadrature, atol=1e-12)
    assert mass.sum() + sum(record.atoms(theta)) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize(
    ("n", "record", "theta", "released"),
    [
        (1, ClampedNormal(1.0, -1, 1), 0.2, 0.4),
        (2, ClampedNormal(1.0, -2, 2), -1.0, 1.1),
        (3, ClampedNormal(5.0, -1, 2), 2.5, 9.5),  # most records at a bound, release out of range
        (10, ClampedNormal(20.0, -5, 5), 1.0, 10.0),
        (10, ClampedExponential(0.0, 3.0), 0.7, 14.0),
        (25, ClampedExponential(0.5, 2.0), 1.4, 20.0),
        (100, ClampedNormal(1.0, -1, 1), 1.0, 66.0),
        (100, ClampedNormal(50.0, -5, 5), 2.5, 30.0),  # the two atoms come into phase again
        (300, ClampedNormal(1.0, -5, 5), 1.0, 280.0),
    ],
)
def test_series_agrees_with_lattice(noise, n, record, theta, released):
    by_series = sum_likelihood(released, n, record, noise, theta)[0]
    by_lattice = sum_likelihood_on_lattice(released, n, record, noise, theta, step=0.02)
    assert by_series == pytest.approx(by_lattice, abs=1e-7)


@pytest.mark.parametrize("noise", [Laplace(4.0), Gaussian(4.0)])
@pytest.mark.parametrize(
    ("n", "record", "released", "ends"),
    [
        (60, ClampedNormal(1.0, -1, 1), 35.0, (-0.5, 4.0)),  # a third of the records at a bound
        (5, ClampedNormal(1.0, -1, 1), 3.0, (-6.0, 8.0)),
        (40, ClampedExponential(0.0, 2.0), 35.0, (0.05, 4.0)),
    ],
)
def test_posterior_by_series_and_by_lattice(noise, n, record, released, ends):
    grid = np.linspace(*ends, 61)
    log_prior = stats.norm.logpdf(grid, 1.0, 1.5)
    by_series = posterior_from_likelihood(
        grid, log_prior, sum_likelihood(released, n, record, noise, grid)
    )
    log_likelihood = [
        sum_likelihood_on_lattice(released, n, record, noise, v, step=0.02) for v in grid
    ]
    by_lattice = posterior_from_likelihood(grid, log_prior, log_likelihood)
    assert by_series.mean() == pytest.approx(by_lattice.mean(), rel=1e-7)
    assert by_series.sd() == pytest.approx(by_lattice.sd(), rel=1e-7)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("n", [1, 2, 7, 60, 1000])
def test_likelihood_integrates_to_one(noise, n):
    record, theta = ClampedNormal(1.0, -1, 2), 0.7
    around = 0.7 * n + 8 * np.sqrt(n) * np.array([-1, 0, 1])
    knots = np.sort([-n - 30, -n, *np.clip(around, -n, 2 * n), 2 * n, 2 * n + 30])
    edges = np.unique(np.concatenate([np.linspace(a, b, 5) for a, b in pairwise(knots)]))
    node, weight = np.polynomial.legendre.leggauss(12)
    half = np.diff(edges)[:, None] / 2
    s = (edges[:-1, None] + half * (1 + node)).ravel()
    density = np.exp([sum_likelihood(v, n, record, noise, theta)[0] for v in s])
    assert (half * weight).ravel() @ density == pytest.approx(1, abs=1e-5)


def test_laplace_release_far_out_of_range():
    record, theta = ClampedNormal(1.0, -1, 2), np.array([-0.5, 0.3])
    near, far = (sum_likelihood(s, 5, record, Laplace(0.7), theta) for s in (10.0, 80.0))
    np.testing.assert_allclose(near - far, 100.0, rtol=1e-12)


def test_wide_clamp_agrees_with_closed_form():
    grid = np.linspace(-3, 5, 201)
    log_likelihood = sum_likelihood(9.0, 8, ClampedNormal(1.5, -40, 40), Gaussian(2.0), grid)
    exact = normal_sums_posterior(9.0, np.ones(8), 1.5, 0.5, 2.0, 2.0)
    posterior = posterior_from_likelihood(grid, stats.norm.logpdf(grid, 0.5, 2), log_likelihood)
    assert posterior.mean() == pytest.approx(exact.mean[0], rel=1e-8)
    assert posterior.sd() == pytest.approx(exact.sd()[0], rel=1e-8)
    np.testing.assert_allclose(posterior.cdf(grid), exact.cdf(0, grid), atol=1e-7)
    by_hand = stats.norm.logpdf(9.0, 8 * grid, np.sqrt(8 * 1.5**2 + 4))
    keep = by_hand > -12
    np.testing.assert_allclose(log_likelihood[keep], by_hand[keep], atol=1e-7)


# n, released sum, grid, posterior mean, sd and quantiles from a program written by others: x_i ~
# N(mu, 1) clamped to [-5, 5], mu ~ N(0, 10^2), Laplace noise of scale 10 (its own error in the
# likelihood is stated as 2e-6 for n = 100 and 2e-5 for n = 1000)
PUBLISHED = [
    (
        100,
        83.4741973885367,
        (-2.279, 4.028),
        (0.8344973277090534, 0.17316568818472652, -7.830309391498183),
        {0.01: 0.39322850908582674, 0.25: 0.7298881680574942, 0.975: 1.1838052529599463},
    ),
    (
        1000,
        929.098514916574,
        (0.563, 1.2965),
        (0.9290925621596311, 0.03464102710452433, -10.133577749901901),
        {0.01: 0.8479444965097958, 0.25: 0.9059023000645967, 0.975: 0.9971163653309407},
    ),
]


@pytest.mark.parametrize(("n", "released", "ends", "moments", "quantiles"), PUBLISHED)
def test_independent_program(n, released, ends, moments, quantiles):
    grid = np.linspace(*ends, 401)
    log_prior = stats.norm.logpdf(grid, 0, 10)
    log_likelihood = sum_likelihood(released, n, ClampedNormal(1.0, -5, 5), Laplace(10.0), grid)
    posterior = posterior_from_likelihood(grid, log_prior, log_likelihood)
    mean, sd, log_evidence = moments
    assert posterior.mean() == pytest.approx(mean, rel=1e-8)
    assert posterior.sd() == pytest.approx(sd, rel=5e-6)
    evidence = np.trapezoid(np.exp(log_prior + log_likelihood), grid)
    assert np.log(evidence) == pytest.approx(log_evidence, abs=1e-6)
    for p, value in quantiles.items():
        assert posterior.quantile(p) == pytest.approx(value, abs=1e-5 * sd)


def test_convolution_power_is_binomial():
    np.testing.assert_allclose(
        convolution_power(bernoulli_pmf(0.3), 200),
        stats.binom.pmf(np.arange(201), 200, 0.3),
        atol=1e-15,
    )


@pytest.mark.parametrize("noise", [Laplace(2.0), Gaussian(2.0), DiscreteLaplace(2.0)])
def test_enumeration_agrees_with_convolution_for_bernoulli(noise):
    grid = np.linspace(0, 1, 101)
    prior = np.zeros_like(grid)
    by_sum = lattice_likelihood(5, 8, bernoulli_pmf, noise, grid)
    by_multisets = enumerate_posterior([0, 1], bernoulli_pmf, 8, lambda x: x, 5, noise, grid, prior)
    posterior = posterior_from_likelihood(grid, prior, by_sum)
    np.testing.assert_allclose(posterior.density, by_multisets.density, rtol=1e-10)
    (conjugate,) = conjugate_posterior(8, [[0], [1]], 5, noise, [([1, 1], np.eye(2))])
    fine = np.linspace(0, 1, 4001)
    log_likelihood = lattice_likelihood(5, 8, bernoulli_pmf, noise, fine)
    posterior = posterior_from_likelihood(fine, np.zeros_like(fine), log_likelihood)
    assert posterior.mean() == pytest.approx(conjugate.mean()[1], rel=1e-6)
    assert posterior.sd() == pytest.approx(conjugate.sd()[1], rel=1e-6)
    np.testing.assert_allclose(posterior.cdf(grid), conjugate.cdf(1, grid), atol=1e-7)


def test_enumeration_agrees_with_convolution_for_clamped_poisson():
    rates = np.array([0.2, 1.0, 3.5])
    by_sum = lattice_likelihood(
        7.3, 5, lambda rate: clamped_poisson_pmf(rate, 4), Laplace(1.2), rates
    )
    by_multisets = enumerate_likelihood(
        range(5),
        lambda rate: clamped_poisson_pmf(rate, 4),
        5,
        lambda x: x,
        7.3,
        Laplace(1.2),
        rates,
    )
    np.testing.assert_allclose(by_sum, by_multisets, rtol=1e-12)
    assert clamped_poisson_pmf(1.7, 6).sum() == pytest.approx(1, abs=1e-14)


def test_count_vectors():
    counts = count_vectors(8, 3)
    assert len(counts) == len({tuple(row) for row in counts}) == 45
    assert np.all(counts >= 0)
    assert np.all(counts.sum(axis=1) == 8)


def brute_force_likelihood(cells, n, contributions, released, noise):
    """Sum over every ordered database, none of the oracle's shortcuts."""
    total = 0.0
    for database in np.ndindex(*[len(cells)] * n):
        statistic = contributions[list(database)].sum(axis=0)
        total += np.prod(cells[list(database)]) * np.exp(noise(released - statistic).sum())
    return np.log(total)


def test_histogram_release_against_every_database():
    p, noise, released = np.array([0.2, 0.5, 0.3]), Laplace(np.array([1.0, 2, 1])), [1.2, 3.9, -1.0]
    by_multisets = enumerate_likelihood(
        "abc", lambda _: p, 5, lambda v: [v == c for c in "abc"], released, noise, [0.0]
    )
    by_hand = brute_force_likelihood(p, 5, np.eye(3), np.array(released), noise)
    assert by_multisets[0] == pytest.approx(by_hand, abs=1e-12)


def test_dirichlet_histogram_against_quadrature_on_the_simplex():
    alpha, released, noise = np.array([2.0, 1.0, 3.0]), [3.1, 0.4, 5.2], Laplace(1.5)
    (posterior,) = conjugate_posterior(8, np.eye(3), released, noise, [(alpha, np.eye(3))])
    assert posterior.mean().sum() == pytest.approx(1, abs=1e-12)
    node, weight = np.polynomial.legendre.leggauss(24)
    u, w = (node + 1) / 2, weight / 2
    first, share = (v.ravel() for v in np.meshgrid(u, u, indexing="ij"))
    p = np.stack([first, (1 - first) * share, (1 - first) * (1 - share)], axis=1)
    log_likelihood = enumerate_likelihood(
        range(3), lambda v: v, 8, np.eye(3).__getitem__, released, noise, p
    )
    density = np.exp(log_likelihood + special.xlogy(alpha - 1, p).sum(axis=1))
    mass = np.outer(w, w).ravel() * (1 - first) * density
    mean = mass @ p / mass.sum()
    np.testing.assert_allclose(posterior.mean(), mean, rtol=1e-10)
    np.testing.assert_allclose(
        posterior.sd(), np.sqrt(mass @ p**2 / mass.sum() - mean**2), rtol=1e-9
    )


def naive_bayes_blocks(alpha_class, alpha_feature):
    """Cells (y, x) in the order (0, 0), (0, 1), (0, 2), (1, 0), ..."""
    by_class = np.repeat(np.eye(2), 3, axis=0)
    features = [np.kron(np.eye(2)[:, [y]], np.eye(3)) for y in (0, 1)]
    return [(alpha_class, by_class), *((alpha_feature, m) for m in features)]


def test_naive_bayes_toy_against_importance_sampling():
    released, noise = np.array([1.5, 0.2, -0.3, 0.1, 2.2, 1.1]), Laplace(1.0)
    blocks = naive_bayes_blocks([1.0, 2.0], [1.0, 1.0, 2.0])
    posteriors = conjugate_posterior(4, np.eye(6), released, noise, blocks)
    rng = np.random.default_rng(1)
    size = 30_000
    pi = rng.dirichlet([1, 2], size)
    x_given_y = rng.dirichlet([1, 1, 2], (size, 2))
    cells = (pi[:, :, None] * x_given_y).reshape(size, 6)
    weight = np.exp(
        enumerate_likelihood(
            range(6), lambda v: v, 4, np.eye(6).__getitem__, released, noise, cells
        )
    )
    for posterior, draws in zip(posteriors, [pi, x_given_y[:, 0], x_given_y[:, 1]], strict=True):
        assert isinstance(posterior, DirichletMixture)
        error = np.sqrt(weight**2 @ (draws - posterior.mean()) ** 2) / weight.sum()
        assert np.all(np.abs(weight @ draws / weight.sum() - posterior.mean()) < 5 * error)


@pytest.mark.parametrize("kind", [Laplace, Gaussian])
def test_quadrature_agrees_with_series_when_squares_tell_nothing(kind):
    record, theta = ClampedNormal(1.0, -1.5, 2), np.array([-1.0, 0.4, 2.2])
    noise = kind(np.array([0.8, 1e9]))
    for n, released in ((1, 0.7), (2, 2.3)):
        pair = moments_likelihood([released, 0.0], n, record, noise, theta)
        pair = pair - noise(np.zeros(2))[1]
        np.testing.assert_allclose(
            pair, sum_likelihood(released, n, record, kind(0.8), theta), atol=1e-7
        )


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("noise", [Laplace(np.array([1.0, 2.0])), Gaussian(np.array([1.0, 2.0]))])
def test_moments_quadrature_has_converged_and_is_right(n, noise):
    record, theta, released = ClampedNormal(1.2, -2, 3), np.array([-1.0, 0.5]), np.array([1.3, 3.7])
    coarse = moments_likelihood(released, n, record, noise, theta)
    fine = moments_likelihood(released, n, record, noise, theta, panels=30, order=16)
    np.testing.assert_allclose(coarse, fine, atol=1e-6)
    x = np.clip(stats.norm.rvs(0.5, 1.2, size=(400_000, n), random_state=3), -2, 3)
    sums = np.stack([x.sum(axis=1), (x**2).sum(axis=1)], axis=1)
    kernel = np.exp(noise(released - sums).sum(axis=1))
    error = kernel.std() / np.sqrt(len(kernel))
    assert np.exp(fine[1]) == pytest.approx(kernel.mean(), abs=4.5 * error)


def plane_log_prior(mean, sd):
    return stats.norm.logpdf(mean, 0, 2) + stats.norm.logpdf(np.log(sd), 0, 0.5) - np.log(sd)


def test_plane_posterior_agrees_with_adaptive_quadrature():
    means, sds = np.linspace(-9, 9, 91), np.linspace(0.08, 8, 80)
    noise = Gaussian(1.5)
    plane = normal_plane_posterior(
        lambda sd, m: sum_likelihood(8.0, 10, ClampedNormal(sd, -30, 30), noise, m),
        means,
        sds,
        plane_log_prior,
    )

    def density(sd):
        """No record reaches the bounds, so the mean can be integrated out by hand."""
        evidence = stats.norm.pdf(8.0, 0, np.sqrt(100 * 4 + 10 * sd**2 + 1.5**2))
        return evidence * np.exp(plane_log_prior(0.0, sd) - stats.norm.logpdf(0, 0, 2))

    norm, first, second = (
        integrate.quad(lambda v, k=k: v**k * density(v), 0.08, 8, epsabs=1e-13)[0] for k in range(3)
    )
    assert plane.second.mean() == pytest.approx(first / norm, rel=1e-5)
    assert plane.second.sd() == pytest.approx(
        np.sqrt(second / norm - (first / norm) ** 2), rel=1e-5
    )
    assert np.trapezoid(plane.first.density, means) == pytest.approx(1, abs=1e-12)


def test_plane_posterior_of_two_moments_against_importance_sampling():
    means, sds = np.linspace(-8, 8, 41), np.linspace(0.25, 8, 63)
    noise, released = Laplace(np.array([0.5, 1.0])), np.array([2.0, 4.5])
    plane = normal_plane_posterior(
        lambda sd, m: moments_likelihood(released, 2, ClampedNormal(sd, -3, 3), noise, m),
        means,
        sds,
        plane_log_prior,
    )
    rng = np.random.default_rng(2)
    mean, sd = rng.normal(0, 2, 500_000), np.exp(rng.normal(0, 0.5, 500_000))
    x = np.clip(rng.normal(mean, sd, size=(2, mean.size)), -3, 3)
    sums = np.stack([x.sum(axis=0), (x**2).sum(axis=0)], axis=1)
    weight = np.exp(noise(released - sums).sum(axis=1)) * ((sd > 0.25) & (sd < 8))
    for marginal, draws in ((plane.first, mean), (plane.second, sd)):
        center = weight @ draws / weight.sum()
        error = np.sqrt(weight**2 @ (draws - center) ** 2) / weight.sum()
        assert marginal.mean() == pytest.approx(center, abs=4.5 * error)
        spread = np.sqrt(weight @ (draws - center) ** 2 / weight.sum())
        assert marginal.sd() == pytest.approx(spread, rel=0.02)


def test_several_weighted_sums():
    """Adding a copy of a sum with the same noise sd must act like halving the noise variance."""
    weights = np.array([1.0, 2.0, -0.5])
    twice = normal_sums_posterior([3.0, 3.0], np.stack([weights, weights]), 1.0, 0.0, 2.0, 1.0)
    once = normal_sums_posterior(3.0, weights, 1.0, 0.0, 2.0, np.sqrt(0.5))
    np.testing.assert_allclose(twice.mean, once.mean, rtol=1e-12)
    np.testing.assert_allclose(twice.sd(), once.sd(), rtol=1e-12)


def test_group_means_against_records_written_out():
    """Condition the joint law of (overall, groups, every record) instead of the sums."""
    sizes, released, sigma = [2, 3], np.array([1.0, 7.0]), np.array([0.5, 1.5])
    short = group_means_posterior(released, sizes, 1.0, 0.7, 0.3, 2.0, sigma)
    group = np.repeat([0, 1], sizes)
    loads = np.zeros((8, 8))
    loads[:, 0] = 2.0
    loads[[1, 2], [1, 2]] = 0.7
    loads[np.arange(3, 8), 1 + group] = 0.7
    loads[np.arange(3, 8), np.arange(3, 8)] = 1.0
    cov = loads @ loads.T
    design = np.hstack([np.zeros((2, 3)), np.eye(2)[:, group]])
    precision = np.linalg.inv(cov) + design.T @ np.diag(sigma**-2) @ design
    after = np.linalg.inv(precision)
    mean = after @ (np.linalg.solve(cov, np.full(8, 0.3)) + design.T @ (released / sigma**2))
    np.testing.assert_allclose(short.mean, mean[:3], rtol=1e-10)
    np.testing.assert_allclose(short.cov, after[:3, :3], atol=1e-12)
