"""DPSGLD and DPSGNHT: stationary laws in closed form, noise counted once, batches, refusals."""

import math

import numpy as np
import pymc as pm
import pytest

import pymc_dp as pmdp
from pymc_dp.accounting.levels import GRADIENT_LEVELS

N, SIZE = 2000, 3
Y = np.random.default_rng(1).normal(7.0, 1, size=(N, SIZE))  # off zero
VARIANCE = 1 / (N + 0.01)
MEAN = Y.sum(axis=0) * VARIANCE
QUIET = {"cores": 1, "progressbar": False, "quiet": True, "compute_convergence_checks": False}
SAMPLERS = {"sgld": pmdp.DPSGLD, "sgnht": pmdp.DPSGNHT}


@pytest.fixture(scope="module")
def model():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 10, shape=SIZE, initval=np.full(SIZE, 7.0))
        pm.Normal("y", mu, 1, observed=Y)
    return model


def standardised(model, cls, iterations, seed=5, **kwargs):
    """Draws less the posterior's mean, over its standard deviation; and the last statistics."""
    settings = {"clip_grad": 0.2, "noise_multiplier": 0.0, "inverse_mass": VARIANCE} | kwargs
    with model:
        step = cls(simulation=True, chains=1, **settings)
    step.setup_chain(np.random.default_rng(seed), 0, iterations)
    point, draws = {"mu": MEAN.copy()}, np.empty((iterations, SIZE))
    for i in range(iterations):
        point, (stats,) = step.step(point)
        draws[i] = point["mu"]
    return ((draws - MEAN) / math.sqrt(VARIANCE))[iterations // 20 :], stats


# noise of standard deviation s in the gradient, as a multiplier of 2 clip / fraction
def multiplier(s, fraction=1.0, clip=0.2):
    return s * fraction / (2 * clip)


SGLD = {
    "small": {"step_size": 0.4},
    "large": {"step_size": 0.9},
    "mostly privacy noise": {"step_size": 0.4, "noise_multiplier": multiplier(math.sqrt(8))},
    "poisson": {
        "step_size": 0.4,
        "noise_multiplier": multiplier(math.sqrt(3), 0.2),
        "batch_fraction": 0.2,
        "batch_noise": 2.0,
    },
    "fixed": {
        "step_size": 0.4,
        "noise_multiplier": multiplier(math.sqrt(3), 0.2),
        "batch_size": 400,
        "batch_noise": 2.0,
    },
}


@pytest.mark.parametrize("case", SGLD)
def test_sgld_has_its_stationary_law_whatever_the_noise_is_made_of(model, case):
    """On a normal posterior it is an autoregression: variance 1 / (1 - step / 4), first order."""
    iterations = 12_000
    draws, _ = standardised(model, pmdp.DPSGLD, iterations, **SGLD[case])
    size = SGLD[case]["step_size"]
    rho = 1 - size / 2
    expected = 1 / (1 - size / 4)
    effective = 0.95 * iterations * (1 - rho) / (1 + rho)
    # five standard errors each, of three coordinates: false alarm below 1e-5
    assert np.all(np.abs(draws.mean(axis=0)) < 5 * math.sqrt(expected / effective))
    of_squares = 0.95 * iterations * SIZE * (1 - rho**2) / (1 + rho**2)
    # batches of a known variance on average, and normal only about
    slack = 0.02 if "batch_noise" in SGLD[case] else 0.0
    error = abs(draws.var() / expected - 1)
    assert error < 5 * math.sqrt(2 / of_squares) + slack


@pytest.mark.parametrize("batches", [{}, {"batch_fraction": 0.2}, {"batch_size": 400}])
def test_sgnht_cools_what_batches_bring(model, batches):
    fraction = 0.2 if batches else 1.0
    noise = {"noise_multiplier": multiplier(4.0, fraction)}
    draws, stats = standardised(model, pmdp.DPSGNHT, 12_000, step_size=0.25, **noise, **batches)
    # a first run: .98 to 1.02, integrated autocorrelation of squares below 10
    assert abs(draws.var() - 1) < 0.12
    assert np.all(np.abs(draws.mean(axis=0)) < 0.25)
    expected = 0.25 * (16 + (4 if batches else 0)) / 2
    assert 0.5 * expected < stats["friction"] < 1.6 * expected


def test_sgnht_counts_privacy_noise_once(model):
    """Half of the noise of a kick is the gradient's own: friction stays at A."""
    with model:
        step = pmdp.DPSGNHT(
            simulation=True,
            chains=1,
            clip_grad=0.2,
            step_size=0.25,
            inverse_mass=VARIANCE,
            noise_multiplier=multiplier(2.0),
        )
    step.setup_chain(np.random.default_rng(6), 0, 12_000)
    point, frictions = {"mu": MEAN.copy()}, []
    for _ in range(12_000):
        point, (stats,) = step.step(point)
        frictions.append(stats["friction"])
    # it varies by 1 / sqrt(SIZE), over some units of time of 3000: a standard error of .03; were
    # the noise injected twice, friction would be 1.5
    assert abs(np.mean(frictions) - 1) < 0.25


def test_steps_decrease(model):
    _, stats = standardised(model, pmdp.DPSGLD, 100, step_size=0.5, decay=0.5)
    assert stats["step_size"] == pytest.approx(0.05)


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("neighbours", ["substitute", "add_remove"])
def test_behind_budget_gate_and_redaction(model, sampler, neighbours):
    budget = pmdp.PrivacyBudget(epsilon=2, delta=1e-6, neighbours=neighbours)
    with model:
        step = SAMPLERS[sampler](
            budget=budget,
            chains=1,
            clip_grad=0.1,
            step_size=1e-4,
            inverse_mass=VARIANCE,
            batch_fraction=0.1,
        )
        tree = pmdp.sample(20, tune=10, chains=1, step=step, **QUIET)
    assert sorted(tree.children) == ["posterior", "sample_stats"]
    [claim] = budget.claims()
    assert (claim.iterations, claim.fraction, claim.sampling) == (30, 0.1, "poisson")
    assert 1.99 < tree.attrs["privacy_epsilon"] == budget.spent <= 2
    assert tree.attrs["privacy_sampling"] == "poisson"
    assert tree.attrs["privacy_accountant"] == "pld"
    weight = 2 if neighbours == "substitute" else 1
    noise = claim.noise_multiplier * weight * 0.1 / 0.1
    np.testing.assert_allclose(tree.sample_stats["noise_sd"], noise)
    # nothing that has to do with the batch
    assert set(tree.sample_stats.data_vars) <= {"diverging", "step_size", "noise_sd", "friction"}
    with pytest.raises(pmdp.PrivacyError, match="No budget was claimed"):
        step.step({"mu": tree.posterior["mu"].values[0, -1]})
    with model, pytest.raises(pmdp.PrivacyError):
        pmdp.sample(1, chains=1, step=step, **QUIET)


def test_fixed_sizes_are_refused_where_the_number_of_records_is_confidential(model):
    settings = {"clip_grad": 1, "step_size": 1e-6, "epsilon": 1, "delta": 1e-6}
    for cls in SAMPLERS.values():
        with model, pytest.raises(ValueError, match="reveal the number of records"):
            cls(batch_size=10, neighbours="add_remove", **settings)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"batch_size": 10, "batch_fraction": 0.1}, "not both"),
        ({"batch_fraction": 1.0}, "batch_fraction"),
        ({"batch_fraction": 0.0}, "batch_fraction"),
        ({"batch_size": N}, "batch_size"),
        ({"clip_grad": 0.0}, "clip_grad"),
        ({"step_size": math.inf}, "step_size"),
        ({"decay": -1.0}, "decay"),
        ({"inverse_mass": -1.0}, "inverse_mass"),
    ],
)
def test_what_cannot_be_is_refused_by_name(model, wrong, message):
    settings = {"clip_grad": 1, "step_size": 1e-6, "epsilon": 1, "delta": 1e-6} | wrong
    with model, pytest.raises(ValueError, match=message):
        pmdp.DPSGLD(**settings)


def test_steps_that_noise_alone_would_heat_are_refused_before_the_claim(model):
    budget = pmdp.PrivacyBudget(1.0, 1e-6)
    with model:
        step = pmdp.DPSGLD(
            budget=budget, chains=1, clip_grad=0.2, step_size=0.9, inverse_mass=VARIANCE
        )
        with pytest.raises(ValueError, match="too large for the gradients' noise"):
            pmdp.sample(1000, chains=1, step=step, **QUIET)
    assert budget.claims() == []


def test_batches_after_a_look_at_all_records_take_a_budget_that_may_mix(model):
    settings = {"chains": 2, "clip_grad": 0.1, "step_size": 1e-4, "inverse_mass": VARIANCE}
    for accountant in ("pld", "rdp"):
        budget = pmdp.PrivacyBudget(2.0, 1e-6, accountant=accountant)
        budget.claim(budget.gaussian_queries(1, 0.3), "a look at all records")
        with model:
            step = pmdp.DPSGLD(budget=budget, batch_fraction=0.1, **settings)
            if accountant == "pld":
                with pytest.raises(pmdp.PrivacyError, match='accountant="rdp"'):
                    pmdp.sample(20, tune=0, chains=2, step=step, **QUIET)
                assert len(budget.claims()) == 1
            else:
                tree = pmdp.sample(20, tune=0, chains=2, step=step, **QUIET)
    assert tree.attrs["privacy_accountant"] == "rdp"
    assert tree.attrs["privacy_epsilon"] == budget.spent == pytest.approx(2, rel=1e-8)
    assert budget.spent <= 2
    assert budget.unspent < 1e-9


def test_a_chain_that_leaves_the_numbers_stays_where_it_was(model):
    for cls in SAMPLERS.values():
        draws, stats = standardised(model, cls, 3, step_size=1e299, inverse_mass=1e20)
        assert stats["diverging"]
        assert np.all(np.isfinite(draws))


def test_batches_add_up_to_all_records(model):
    """Unbiased, and what a record adds does not depend on its place or on others."""
    with model:
        step = pmdp.DPSGLD(simulation=True, noise_multiplier=0, clip_grad=1.0, step_size=1e-9)
    gradients, theta = step.gradients, np.full(SIZE, 6.5)
    gradients.prepare(np.eye(SIZE))
    total = gradients.total(theta, 1.0)
    gradients.prepare(np.eye(SIZE), batches=True)
    order = np.random.default_rng(0).permutation(N)
    for least in (1, 5000):
        parts = [gradients.batch_total(theta, 1.0, part, least) for part in np.split(order, 8)]
        # in whole numbers, but for the joined kernel's own rounding of a record
        assert np.abs(np.sum(parts, axis=0) - total).max() <= N
    ones = [gradients.batch_total(theta, 1.0, np.array([i]), 1) for i in order[:20]]
    np.testing.assert_array_equal(
        np.sum(ones, axis=0), gradients.batch_total(theta, 1.0, order[:20], 1)
    )
    lengths = np.linalg.norm(ones, axis=1)
    assert np.all(lengths <= GRADIENT_LEVELS)
    assert np.all(gradients.batch_total(theta, 1.0, order[:0], 1) == 0)


def test_no_batch_is_drawn_twice_and_none_follows_the_seed(model):
    with model:
        step = pmdp.DPSGLD(
            epsilon=100, delta=1e-3, chains=1, clip_grad=1.0, step_size=1e-9, batch_size=5
        )
    seen = []
    total = step.gradients.batch_total
    step.gradients.batch_total = lambda theta, bound, batch, least: (
        seen.append(tuple(sorted(batch))) or total(theta, bound, batch, least)
    )
    step.setup_chain(np.random.default_rng(0), 0, 50)
    for _ in range(50):
        step.step({"mu": MEAN})
        step._left_at = None
    assert len(set(seen)) == 50
    assert all(len(set(batch)) == 5 for batch in seen)
