"""Privacy loss distributions against closed forms, quadrature and dp-accounting."""

import math

import numpy as np
import pytest
from scipy.special import logsumexp, ndtr
from scipy.stats import norm

from pymc_dp.accounting import GaussianQueries, composed_epsilon, gaussian_delta, gaussian_epsilon
from pymc_dp.accounting.privacy_loss import Look, composed_loss_epsilon

FORMS = ("all", "fixed", "poisson", "remove", "add")


def density(form, shift, q, x):
    """The pair's two densities."""
    at = norm.pdf(x)[None] * np.ones((2, 1))
    if form == "all":
        at[0] = norm.pdf(x - shift)
    elif form == "poisson":
        at = np.array([(1 - q) * norm.pdf(x) + q * norm.pdf(x - s) for s in (shift, -shift)])
    else:
        mixed = (1 - q) * norm.pdf(x) + q * norm.pdf(x - shift)
        at = np.array([mixed, norm.pdf(x)] if form in ("remove", "fixed") else [norm.pdf(x), mixed])
    return at


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shift", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("q", [0.02, 0.6])
def test_one_look_against_quadrature(form, shift, q):
    x = np.linspace(-14, 18, 400_001)
    one, other = density(form, shift, q, x)

    def delta(epsilon):
        return np.maximum(one - np.exp(epsilon) * other, 0).sum() * (x[1] - x[0])

    for epsilon in (0.0, 0.05, 0.5, 3.0):
        expected = delta(epsilon)
        if expected < 1e-14:
            continue
        found = composed_loss_epsilon([Look(shift, q, form, 1)], expected)
        # an upper bound, and a tight one
        assert epsilon - 1e-6 < found < epsilon + 2e-3 + 0.02 * epsilon


@pytest.mark.parametrize("delta", [1e-6, 1e-10])
def test_noise_so_small_that_ratios_are_beyond_floats(delta):
    """A Poisson batch whose losses are close to the largest that are told, in logarithms."""
    c, q = 24.3, 0.5
    x = np.linspace(-c - 20, c + 20, 400_001)
    width = math.log(x[1] - x[0])
    one, other = (
        np.logaddexp(math.log(1 - q) + norm.logpdf(x), math.log(q) + norm.logpdf(x - s)) + width
        for s in (c, -c)
    )

    def log_delta(epsilon):
        above = one - other > epsilon
        return logsumexp(one[above] + np.log(-np.expm1(epsilon - (one - other)[above])))

    found = composed_loss_epsilon([Look(c, q, "poisson", 1)], delta)
    assert math.log(delta) - 0.5 < log_delta(found) <= math.log(delta) + 1e-3


@pytest.mark.parametrize(("noise", "count"), [(1.0, 1), (0.3, 4), (30.0, 1000), (900.0, 10**6)])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-12])
def test_composition_without_batches_against_the_closed_form(noise, count, delta):
    exact = gaussian_epsilon(delta, count / (2 * noise**2))
    found = composed_loss_epsilon([Look(1 / noise, 1.0, "all", count)], delta)
    assert exact <= found < 1.002 * exact


def test_pairs_dominate_what_records_in_the_plane_can_do():
    """Records' parts in any direction, and any that stand in for them: quadrature in two dims."""
    rng = np.random.default_rng(0)
    axis = np.linspace(-9, 9, 361)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1)
    cell = (axis[1] - axis[0]) ** 2

    def normal(at):
        return np.exp(-((grid - at) ** 2).sum(-1) / 2) / (2 * np.pi)

    for _ in range(12):
        q, c = rng.uniform(0.05, 0.9), rng.uniform(0.2, 1.5)
        angles, lengths = rng.uniform(0, 2 * np.pi, 3), c * rng.uniform(0.3, 1, 3) ** 0.3
        u, v, w = (
            r * np.array([np.cos(a), np.sin(a)]) for a, r in zip(angles, lengths, strict=True)
        )
        cases = {
            "poisson": ([0, 0], u, v, Look(c, q, "poisson", 1)),
            "fixed": (w, u, v, Look(2 * c, q, "fixed", 1)),
        }
        for centre, one, other, look in cases.values():
            p = (1 - q) * normal(centre) + q * normal(one)
            r = (1 - q) * normal(centre) + q * normal(other)
            for epsilon in (0.0, 0.3, 1.0):
                delta = np.maximum(p - math.exp(epsilon) * r, 0).sum() * cell
                if delta > 1e-9:
                    assert composed_loss_epsilon([look], delta) >= epsilon - 1e-4


@pytest.mark.parametrize("removed", [0, 7, 20])
def test_fixed_batches_cover_looks_that_take_turns_in_direction(removed):
    looks = [Look(1.2, 0.1, "remove", removed), Look(1.2, 0.1, "add", 20 - removed)]
    turns = composed_loss_epsilon([look for look in looks if look.number], 1e-5)
    assert composed_loss_epsilon([Look(1.2, 0.1, "fixed", 20)], 1e-5) >= turns * 0.999


@pytest.mark.parametrize("neighbours", ["substitute", "add_remove"])
@pytest.mark.parametrize(
    ("noise", "count", "q"), [(1.2, 300, 0.01), (4.5, 3000, 0.02), (0.8, 20, 0.3)]
)
def test_poisson_batches_against_another_package(neighbours, noise, count, q):
    dp_accounting = pytest.importorskip("dp_accounting")
    from dp_accounting import pld

    relation = dp_accounting.NeighboringRelation
    substitute = neighbours == "substitute"
    accountant = pld.PLDAccountant(
        relation.REPLACE_ONE if substitute else relation.ADD_OR_REMOVE_ONE,
        value_discretization_interval=1e-4,
    )
    # our multiplier counts from one bound to the other, theirs one bound
    event = dp_accounting.GaussianDpEvent(noise * (2 if substitute else 1))
    accountant.compose(dp_accounting.PoissonSampledDpEvent(q, event), count)
    accountant.compose(dp_accounting.GaussianDpEvent(40.0 * (2 if substitute else 1)), 10)
    queries = [GaussianQueries(noise, count, q, sampling="poisson"), GaussianQueries(40.0, 10)]
    found = composed_epsilon(queries, 1e-6, "pld", neighbours)
    assert found == pytest.approx(accountant.get_epsilon(1e-6), rel=3e-3)
    assert found < composed_epsilon(queries, 1e-6, "rdp", neighbours) < 1.35 * found


def test_a_substituted_record_costs_more_than_one_added_and_fixed_sizes_more_than_chance():
    noise, count, q = 3.0, 2000, 0.01
    poisson = GaussianQueries(noise, count, q, sampling="poisson")
    fixed = GaussianQueries(noise, count, q)
    # the same noise against the same clip bound: substitution counts it as half the multiplier
    halved = GaussianQueries(noise / 2, count, q, sampling="poisson")
    added = composed_epsilon([poisson], 1e-6, "pld", "add_remove")
    assert added < composed_epsilon([halved], 1e-6, "pld")
    half = GaussianQueries(noise / 2, count, q)
    assert composed_epsilon([halved], 1e-6) < composed_epsilon([half], 1e-6)
    assert composed_epsilon([fixed], 1e-6) < composed_epsilon([fixed], 1e-6, "rdp")
    with pytest.raises(ValueError, match="reveal the number of records"):
        composed_epsilon([fixed], 1e-6, neighbours="add_remove")


def test_hardly_any_noise_is_no_guarantee():
    for noise in (1e-3, 1e-6):
        assert composed_epsilon([GaussianQueries(noise, 1, 0.01)], 1e-6) == math.inf
    with pytest.raises(ValueError, match="sampling"):
        GaussianQueries(1.0, 1, 0.1, sampling="sometimes")


def test_closed_form_of_delta_is_the_one_used():
    # the tail that everything here is built on, where it is easy to say
    assert gaussian_delta(0.0, 0.5) == pytest.approx(2 * ndtr(0.5) - 1)


@pytest.mark.parametrize("form", ["fixed", "poisson", "remove"])
@pytest.mark.parametrize("shift", [36.0, 49.0])
def test_losses_beyond_floats_are_not_counted(form, shift):
    assert composed_loss_epsilon([Look(shift, 0.5, form, 1)], 1e-6) == math.inf


def test_deltas_below_what_sums_of_losses_can_tell_are_refused():
    assert composed_loss_epsilon([Look(0.1, 0.1, "poisson", 10)], 1e-15) == math.inf
    assert composed_loss_epsilon([Look(0.1, 0.1, "poisson", 10)], 1e-13) < math.inf
