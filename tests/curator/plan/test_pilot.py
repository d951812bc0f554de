"""The pilot finds far posteriors, pays what it says before it looks, and tells bad input apart.

Where the noise is not the operating system's (`seeded`), a test gives the same answer every time:
its false-alarm rate is zero.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.optimize import minimize

import pymc_dp as pmdp
from pymc_dp.accounting import gaussian_mu, noise
from pymc_dp.curator.curated import read_freely
from pymc_dp.curator.gradient_kernels import GRADIENT_LEVELS
from pymc_dp.curator.gradients import RecordGradients
from pymc_dp.curator.model import RecordModel
from pymc_dp.curator.plan.marginal_mode import marginal_mode
from pymc_dp.curator.plan.scoring import SimulatedScores
from pymc_dp.graph.intervals import ONCE
from pymc_dp.graph.vector import FlatSpace

N = 20_000
FEW_STEPS = pytest.mark.filterwarnings("ignore:The last steps still disagree")


def normal(y):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 10)
        sigma = pm.HalfNormal("sigma", 5)
        pm.Normal("y", mu, sigma, observed=y)
    return model


def simulate_normal(values):
    rng = np.random.default_rng(11)
    return normal(rng.normal(values["mu"], values["sigma"], size=N))


def exponential(y):
    with pm.Model() as model:
        rate = pm.HalfNormal("rate", 10)
        pm.Exponential("y", rate, observed=y)
    return model


def logistic(X, y):
    with pm.Model() as model:
        width = pm.HalfNormal("width", 1)
        beta = pm.Normal("beta", 0, width, shape=3)
        pm.Bernoulli("y", logit_p=X @ beta, observed=y)
    return model


def simulate_logistic(values, n=N, width=1.0, seed=12):
    rng = np.random.default_rng(seed)
    X = width * rng.normal(size=(n, 3))
    return logistic(X, (rng.random(n) < 1 / (1 + np.exp(-X @ values["beta"]))).astype(int))


@pytest.fixture
def seeded(monkeypatch):
    rng = np.random.default_rng(1)

    def draw(scale, size):
        return np.rint(scale * rng.normal(size=size)).astype(np.int64)

    monkeypatch.setattr(noise, "system_discrete_gaussian", draw)


@pytest.fixture(scope="module")
def confidential():
    return normal(np.random.default_rng(0).normal(3, 0.4, size=N))


def find_mode(model, space):
    """Mode of the posterior in unconstrained coordinates, by SciPy."""
    theta, [logp] = space.on_vector([model.logp(jacobian=False)])
    function = pm.compile([theta], [-logp, -pt.grad(logp, theta)], mode=ONCE)
    return minimize(lambda x: function(x), space.start, jac=True, method="L-BFGS-B").x


def distance(model, point):
    """From the posterior's mode, in standard deviations the records tell, root mean square."""
    space = FlatSpace(model)
    mode = find_mode(model, space)
    off = SimulatedScores(model, mode, N).standardised(space.flatten(point) - mode)
    return np.sqrt(np.mean(off**2))


def test_a_far_mean_and_scale_are_found(confidential, seeded):
    budget = pmdp.PrivacyBudget(8, 1e-6)
    assert distance(confidential, confidential.initial_point()) > 300
    found = pmdp.pilot(budget, simulate_normal, model=confidential)
    assert found.error < 1
    assert distance(confidential, found.point) < 3 * found.error
    assert budget.unspent == pytest.approx(0.9)
    records = found.synthetic.rvs_to_values[found.synthetic["y"]].data
    assert records.mean() == pytest.approx(3, abs=0.1)


@pytest.mark.wide
@pytest.mark.parametrize("width", [1.0, 2.0], ids=["as simulated", "simulated too wide"])
def test_far_coefficients_are_found(width, seeded):
    model = simulate_logistic({"beta": np.array([0.9, -0.7, 0.3])}, seed=13)

    def simulate(values):
        return simulate_logistic(values, n=5000, width=width)

    assert distance(model, model.initial_point()) > 20
    found = pmdp.pilot(pmdp.PrivacyBudget(8, 1e-6), simulate, model=model)
    assert distance(model, found.point) < (1 if width == 1 else 4)


def test_the_shift_of_the_clip_is_made_up_for():
    rng = np.random.default_rng(3)
    theta = np.zeros(1)
    scores = SimulatedScores(exponential(rng.exponential(size=N)), theta, N)
    step = scores.step(noise=1e5)  # much noise: a low bound
    assert abs(step.offset[0]) > 30  # standard deviations that clipped gradients alone are off
    gradients = 1 - rng.exponential(size=N)
    clipped = np.clip(scores.basis[0, 0] * gradients, -step.bound, step.bound)
    exact = scores.basis[0, 0] * gradients.sum()
    assert abs(step.move(np.array([clipped.sum()]))[0] - exact) < 5


@FEW_STEPS
def test_too_little_budget_is_told_beforehand(confidential):
    budget = pmdp.PrivacyBudget(0.1, 1e-6)
    with pytest.warns(UserWarning, match=r"standard deviations: write a larger share="):
        pmdp.pilot(budget, simulate_normal, model=confidential)
    assert budget.unspent == pytest.approx(0.9)
    with pytest.raises(UserWarning, match="larger share"):  # as an error, before it is paid
        pmdp.pilot(budget, simulate_normal, model=confidential)
    assert budget.unspent == pytest.approx(0.9)


def test_a_place_that_was_not_reached_is_told(confidential, seeded):
    far = confidential.initial_point() | {"mu": np.array(-400.0), "sigma_log__": np.array(-1.0)}
    with pytest.warns(UserWarning, match="The last steps still disagree"):
        found = pmdp.pilot(
            pmdp.PrivacyBudget(8, 1e-6), simulate_normal, model=confidential, start=far
        )
    assert found.error > 2


# --- parameters that records do not identify ------------------------------------------------------

GROUPS, PRIOR_MEAN, PRIOR_SPREAD = 6, 10.0, 2.0


def hierarchical(group, y):
    """Non-centred: eight parameters, of which records of unit variance identify six group means."""
    with pm.Model() as model:
        m0 = pm.Normal("m0", 0, PRIOR_MEAN)
        s = pm.HalfNormal("s", PRIOR_SPREAD)
        z = pm.Normal("z", 0, 1, shape=GROUPS)
        pm.Normal("y", m0 + s * z[group], 1, observed=y)
    return model


def simulate_hierarchical(values, rng, n):
    group = rng.integers(GROUPS, size=n)
    means = values["m0"] + values["s"] * values["z"]
    return hierarchical(group, rng.normal(means[group]))


def group_means(point):
    return point["m0"] + np.exp(point["s_log__"]) * point["z"]


def exact_group_means(group, y):
    """Posterior mean and standard deviation of group means, by quadrature over m0 and log s."""
    counts = np.bincount(group, minlength=GROUPS)
    means, variances = np.bincount(group, y) / counts, 1 / counts
    m0, log_s = np.meshgrid(np.linspace(-8, 12, 301), np.linspace(-4, 3, 201), indexing="ij")
    spread = np.exp(2 * log_s)
    logp = -((m0 / PRIOR_MEAN) ** 2) / 2 - spread / PRIOR_SPREAD**2 / 2 + log_s
    for mean, variance in zip(means, variances, strict=True):
        logp -= (mean - m0) ** 2 / (spread + variance) / 2 + np.log(spread + variance) / 2
    weights = np.exp(logp - logp.max())
    weights /= weights.sum()
    centre, sd = np.empty(GROUPS), np.empty(GROUPS)
    for k, (mean, variance) in enumerate(zip(means, variances, strict=True)):
        kept = spread / (spread + variance)
        given = kept * mean + (1 - kept) * m0
        centre[k] = (weights * given).sum()
        sd[k] = np.sqrt((weights * (kept * variance + (given - centre[k]) ** 2)).sum())
    return centre, sd


def test_group_means_are_found_to_within_the_error():
    """Noise of the operating system: twelve normal errors beyond twice what is told, 1e-5."""
    off, errors = [], []
    for seed in range(2):
        rng = np.random.default_rng(seed)
        group = rng.integers(GROUPS, size=5000)
        y = rng.normal((1 + rng.normal(size=GROUPS))[group])

        def simulate(values, rng=rng):
            return simulate_hierarchical(values, rng, 5000)

        found = pmdp.pilot(
            pmdp.PrivacyBudget(20, 1e-6), simulate, n_gradients=8, model=hierarchical(group, y)
        )
        centre, sd = exact_group_means(group, y)
        off.append((group_means(found.point) - centre) / sd)
        errors.append(found.error)
    assert max(errors) < 0.6
    assert np.sqrt(np.mean(np.square(off))) < 2 * max(errors)


def marginal_mode_by_hand(means):
    """Mode of m0 and log s given group means, which are normal around m0 with spread s."""

    def surprise(u):
        prior = (u[0] / PRIOR_MEAN) ** 2 / 2 + np.exp(2 * u[1]) / PRIOR_SPREAD**2 / 2 - u[1]
        return prior + ((means - u[0]) ** 2).sum() / np.exp(2 * u[1]) / 2 + GROUPS * u[1]

    return minimize(surprise, [means.mean(), np.log(means.std())]).x


def test_hyperparameters_move_and_the_likelihood_does_not():
    """From places where s is a third or thrice what it should be; there is no noise in it."""
    rng = np.random.default_rng(5)
    means = 1 + rng.normal(size=GROUPS)
    values = {"m0": 0.0, "s": 1.0, "z": means}
    model = simulate_hierarchical(values, rng, 5000)
    records = RecordModel(model)
    space = records.space
    for m0, s in ((0.0, 1.0), (3.0, 0.3), (-1.0, 4.0)):
        place = np.concatenate([[m0, np.log(s)], (means - m0) / s])
        scores = SimulatedScores(model, place, N)
        end, change = marginal_mode(place, scores, records.log_prior, records.prior_gradient)
        assert change < 0.05
        point = space.unflatten(end, model.initial_point())
        sd = np.sqrt(GROUPS / N)
        np.testing.assert_allclose(group_means(point), means, atol=0.05 * sd)
        # posterior standard deviations are 0.4 and 0.3
        np.testing.assert_allclose(end[:2], marginal_mode_by_hand(means), atol=0.02)


@pytest.mark.parametrize("information", [np.nan, 0.0], ids=["not finite", "singular"])
def test_hyperparameters_stay_where_the_likelihood_cannot_be_held(information):
    """The budget is spent by then: whatever happens, there is an answer."""

    class Scores:
        basis, eigenvectors, data_coordinates = np.ones((2, 1)), np.eye(2), np.arange(2)

        def distance(self, theta, other):
            return 1e3 * float(np.abs(theta - other).max())

        def least_squares(self, theta, other):
            return self.information(theta), theta - other

        def information(self, theta):
            return np.full((2, 2), information)

    place = np.array([1.0, 2.0])
    end, change = marginal_mode(
        place, Scores(), lambda theta: -(theta @ theta), lambda theta: -theta
    )
    assert change == 0
    np.testing.assert_array_equal(end, place)


def test_the_scale_of_coefficients_follows_them():
    beta = np.array([0.9, -0.7, 0.3])
    model = simulate_logistic({"beta": beta}, n=2000)
    place, records = np.concatenate([[2.0], beta]), RecordModel(model)
    scores = SimulatedScores(model, place, N)
    end, change = marginal_mode(place, scores, records.log_prior, records.prior_gradient)
    assert change == 0
    np.testing.assert_array_equal(end[1:], beta)
    width = minimize(lambda u: 2 * u + (beta**2).sum() / np.exp(2 * u) / 2 + np.exp(2 * u) / 2, 0).x
    np.testing.assert_allclose(end[0], width, atol=1e-3)


# --- what it costs -------------------------------------------------------------------------------


@FEW_STEPS
@pytest.mark.parametrize(("neighbours", "weight"), [("substitute", 2), ("add_remove", 1)])
def test_noise_is_that_of_the_share(neighbours, weight, confidential, monkeypatch):
    budget = pmdp.PrivacyBudget(8, 1e-6, neighbours=neighbours)
    release, asked = noise.release, []

    def record(totals, sd, simulation=None):
        assert budget.unspent == pytest.approx(0.7)  # claimed before anything leaves
        assert len(totals) == 2
        asked.append(sd / GRADIENT_LEVELS / weight)
        return release(totals, sd, simulation)

    monkeypatch.setattr(noise, "release", record)
    pmdp.pilot(budget, simulate_normal, share=0.3, n_gradients=4, n=N, model=confidential)
    assert len(asked) == 4
    mu = sum(1 / (2 * sd**2) for sd in asked)
    assert mu == pytest.approx(0.3 * gaussian_mu(8, 1e-6), rel=1e-9)
    assert sum(claim.mu for claim in budget.claims("pilot")) == pytest.approx(mu)


@FEW_STEPS
@pytest.mark.wide_except("1e+300", "-inf")
@pytest.mark.parametrize("wild", [1e4, 1e300, -np.inf])
def test_one_record_moves_sums_by_no_more_than_the_bound(wild, monkeypatch):
    """Answers of a first run are played to a neighbour, so that both are asked the same."""
    release, answers, totals = noise.release, [], [[], []]

    def record(sums, sd, simulation=None):
        totals[0].append(sums)
        answers.append(release(sums, sd, simulation))
        return answers[-1]

    def play(sums, sd, simulation=None):
        totals[1].append(sums)
        return answers[len(totals[1]) - 1]

    records = np.random.default_rng(0).normal(3, 0.4, size=500)
    for door in (record, play):
        monkeypatch.setattr(noise, "release", door)
        budget = pmdp.PrivacyBudget(100, 1e-6)
        pmdp.pilot(budget, simulate_normal, n_gradients=5, model=normal(records))
        records[7] = wild
    first, second = (np.array(each, dtype=float) for each in totals)
    moved = np.linalg.norm(first - second, axis=1) / GRADIENT_LEVELS
    assert np.all(moved <= 2 + 1e-6)
    assert np.all(moved > 0)


@FEW_STEPS
def test_nothing_is_looked_at_before_the_claim(confidential, monkeypatch):
    budget = pmdp.PrivacyBudget(8, 1e-6)
    total, claims = RecordGradients.total, []

    def watched(self, theta, bound):
        claims.append(len(budget.claims("pilot")))
        return total(self, theta, bound)

    monkeypatch.setattr(RecordGradients, "total", watched)
    pmdp.pilot(budget, simulate_normal, n_gradients=3, model=confidential)
    assert claims == [3, 3, 3]


def test_records_that_settings_were_computed_from_are_refused():
    budget, records = pmdp.PrivacyBudget(8, 1e-6), np.random.default_rng(3).normal(size=N)
    same = normal(records[::-1].copy())
    read_freely.add(same)  # as suggest(synthetic=same) does
    with pytest.raises(pmdp.PrivacyError, match="were passed as synthetic="):
        pmdp.pilot(budget, simulate_normal, model=normal(records))
    read_freely.discard(same)
    assert budget.unspent == 1


def test_it_is_refused_when_too_little_is_left(confidential, monkeypatch):
    budget = pmdp.PrivacyBudget(8, 1e-6)
    budget.claim(budget.gaussian_queries(1, 0.95), "another run")
    monkeypatch.setattr(noise, "release", None)
    monkeypatch.setattr(RecordGradients, "total", None)
    with pytest.raises(pmdp.PrivacyError, match="pilot"):
        pmdp.pilot(budget, simulate_normal, model=confidential)
    assert budget.unspent == pytest.approx(0.05)


def test_a_crash_gives_nothing_back(confidential):
    budget, calls = pmdp.PrivacyBudget(8, 1e-6), []

    def failing(values):
        calls.append(values)
        if len(calls) > 3:
            raise RuntimeError("out of luck")
        return simulate_normal(values)

    with pytest.raises(RuntimeError, match="out of luck"):
        pmdp.pilot(budget, failing, model=confidential)
    assert budget.unspent == pytest.approx(0.9)


def test_the_rest_of_the_budget_can_be_named():
    budget = pmdp.PrivacyBudget(8, 1e-6)
    assert budget.remaining == pytest.approx((8, 1e-6))
    budget.claim(budget.gaussian_queries(3, 0.25), "a pilot")
    assert gaussian_mu(*budget.remaining) == pytest.approx(0.75 * budget.mu)
    budget.claim(budget.gaussian_queries(3, 0.75), "a run")
    assert budget.remaining == (0.0, 1e-6)


# --- what may be written -------------------------------------------------------------------------


@FEW_STEPS
def test_it_runs_inside_the_model(confidential):
    before = [rv.name for rv in confidential.basic_RVs]
    with confidential:
        found = pmdp.pilot(pmdp.PrivacyBudget(8, 1e-6), simulate_normal, n_gradients=2)
        assert pm.modelcontext(None) is confidential
    assert [rv.name for rv in confidential.basic_RVs] == before
    assert set(found.point) == set(confidential.initial_point())
    assert found.synthetic is not confidential


def another(values):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 10)
        pm.Normal("y", mu, 1, observed=np.zeros(200))
    return model


@pytest.mark.parametrize(
    ("kwargs", "error", "match"),
    [
        ({"share": 1.0}, ValueError, r"share must lie in \(0, 1\)"),
        ({"share": 0.0}, ValueError, r"share must lie in \(0, 1\)"),
        ({"n_gradients": 0}, ValueError, "n_gradients must be"),
        ({"n": 0.5}, ValueError, "n must be a whole number"),
        ({"simulate": lambda values: values}, TypeError, r"return a pymc.Model, not dict"),
        ({"simulate": another}, ValueError, r"'sigma_log__', \(\).*not \[\('mu', \(\)\)\]"),
        ({"simulate": lambda values: normal(np.arange(50.0))}, ValueError, "with 50 records"),
        ({"simulate": lambda values: normal(np.full(200, np.inf))}, ValueError, "start="),
    ],
)
def test_bad_input_is_named_before_anything_is_paid(kwargs, error, match, confidential):
    budget = pmdp.PrivacyBudget(8, 1e-6)
    with pytest.raises(error, match=match):
        pmdp.pilot(budget, **({"simulate": simulate_normal, "model": confidential} | kwargs))
    assert budget.unspent == 1


def test_the_confidential_model_is_refused_as_synthetic(confidential):
    with pytest.raises(ValueError, match="confidential"):
        pmdp.pilot(pmdp.PrivacyBudget(8, 1e-6), lambda values: confidential, model=confidential)


def test_confidential_covariates_are_refused_as_simulated():
    X, y = np.random.default_rng(1).normal(size=(500, 3)), np.arange(500) % 2
    with pytest.raises(ValueError, match="simulate covariates too"):
        pmdp.pilot(
            pmdp.PrivacyBudget(8, 1e-6), lambda values: logistic(X, 1 - y), model=logistic(X, y)
        )


def test_the_number_of_records_must_be_written_under_add_remove(confidential):
    budget = pmdp.PrivacyBudget(8, 1e-6, neighbours="add_remove")
    with pytest.raises(ValueError, match="write n="):
        pmdp.pilot(budget, simulate_normal, model=confidential)


def test_a_start_computed_from_records_is_refused():
    budget, y = pmdp.PrivacyBudget(8, 1e-6), np.linspace(-1, 3, 50)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 10, initval=pt.as_tensor(y).mean())
        pm.Normal("y", mu, 1, observed=y)
    with pytest.raises(pmdp.PrivacyError, match="starting value of 'mu'"):
        pmdp.pilot(budget, simulate_normal, model=model)
    assert budget.unspent == 1


def test_variables_that_tell_the_number_of_records_are_refused_under_add_remove():
    budget = pmdp.PrivacyBudget(8, 1e-6, neighbours="add_remove")
    with pm.Model() as model:
        pm.Normal("effect", shape=50)
        pm.Normal("y", pm.Normal("mu", 0, 10), 1, observed=np.linspace(-1, 3, 50))
    with pytest.raises(ValueError, match="'effect' has one value for each"):
        pmdp.pilot(budget, simulate_normal, model=model, n=100)
    assert budget.unspent == 1


def test_a_model_without_gradients_is_refused():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 10)
        pm.Normal("y", pm.math.floor(mu), 1, observed=np.zeros(200))
    with pytest.raises(ValueError, match="rounds a parameter"):
        pmdp.pilot(pmdp.PrivacyBudget(8, 1e-6), another, model=model)
