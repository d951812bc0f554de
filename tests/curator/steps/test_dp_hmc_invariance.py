"""DPHMC keeps the exact posterior, whatever noise and clipping its gradients have.

Draws of a Gaussian posterior are compared by the test of ``test_dp_penalty_invariance``; logistic
regression, a scale and a simplex against quadrature and closed forms. Levels as there: 1e-4 over
all comparisons of a case, with fixed seeds. Tests on a step that is broken on purpose show that
each ingredient of the proof is seen.
"""

import numpy as np
import pymc as pm
import pytest
from scipy import integrate, stats
from scipy.stats import kstest

import pymc_dp as pmdp
from pymc_dp.accounting import noise
from pymc_dp.curator import hmc_iteration
from pymc_dp.curator.model import RecordModel
from tests.curator.steps.test_dp_penalty_invariance import LEVEL, Problem


def draws(model, iterations, thin, seed=1, change=None, cls=pmdp.DPHMC, start=None, **kwargs):
    """Thinned unconstrained draws of one chain, and how many moves were accepted."""
    with model:
        step = cls(simulation=True, chains=1, **({"clip_logp": 12.0} | kwargs))
    if change:
        change(step)
    step.setup_chain(np.random.default_rng(seed), 0, iterations)
    point, kept, accepted = model.initial_point(), [], 0
    if start is not None:
        point = step.space.unflatten(np.asarray(start, dtype=float), point)
    for i in range(iterations):
        point, (stat,) = step.step(point)
        accepted += stat["accepted"]
        if i % thin == thin - 1:
            kept.append(step.space.flatten(point))
    return np.array(kept)[20:], accepted / iterations


HMC = {
    "noise_multiplier": 0.05,
    "grad_noise_multiplier": 0.3,
    "clip_grad": 5.0,
    "step_size": 0.12,
    "n_leapfrog": 3,
}
MASS = np.array([[0.03, -0.01], [-0.01, 0.02]])
CASES = {
    "exact gradients": ({}, HMC | {"grad_noise_multiplier": 0.0}, 6000, 6),
    "noisy gradients": ({}, HMC, 7000, 7),
    # gradients that say little, so that acceptance has to do the work
    "noisy ratios": (
        {},
        HMC | {"noise_multiplier": 0.3, "step_size": 0.25, "n_leapfrog": 1, "clip_grad": 0.1},
        25_000,
        25,
    ),
    "heavy clipping": (
        {},
        HMC | {"clip_grad": 0.1, "grad_noise_multiplier": 1.0, "grad_scale": 2.0},
        9000,
        9,
    ),
    "dense mass": (
        {},
        HMC | {"inverse_mass": MASS, "clip_logp": 2.0, "clip_grad": 0.5, "step_size": 0.6},
        6000,
        6,
    ),
    "tempered": (
        {"n": 200, "tempering": 0.2},
        HMC | {"noise_multiplier": 0.3, "step_size": 0.15, "tempering": 0.2, "jitter": 0.0},
        6000,
        6,
    ),
    "hyperparameter": ({"hyper": True}, HMC | {"inverse_mass": [1, 1, 30]}, 7000, 7),
    "one step": (
        {},
        HMC | {"noise_multiplier": 0.02, "step_size": 0.15, "n_leapfrog": 1},
        10_000,
        10,
    ),
}


@pytest.mark.wide_except("noisy ratios", "heavy clipping", "dense mass")
@pytest.mark.parametrize("case", CASES)
def test_the_posterior_is_kept(case):
    problem, kwargs, iterations, thin = CASES[case]
    problem = Problem(**problem)
    found, _ = draws(problem.model, iterations, thin, start=problem.mean, **kwargs)
    assert problem.worst_p_value(found) > LEVEL


@pytest.mark.wide
def test_lengths_told_by_public_records_keep_it_too():
    problem, other = Problem(), Problem(n=30, seed=1)
    kwargs = HMC | {"public": other.model, "noise_multiplier": 0.2, "clip_logp": 8.0}
    found, accepted = draws(problem.model, 7000, 7, start=problem.mean, **kwargs)
    assert problem.worst_p_value(found) > LEVEL
    assert accepted > 0.1


def test_mala_is_one_leapfrog_step():
    problem = Problem()
    _, kwargs, _, _ = CASES["one step"]
    one, _ = draws(problem.model, 400, 1, **kwargs)
    kwargs = {name: value for name, value in kwargs.items() if name != "n_leapfrog"}
    other, _ = draws(problem.model, 400, 1, cls=pmdp.DPMALA, **kwargs)
    np.testing.assert_array_equal(one, other)


def test_good_gradients_are_followed():
    # the sign of the kick: with the paper's printed one, acceptance is far lower (and right still)
    problem = Problem()
    kwargs = HMC | {"noise_multiplier": 0.0, "grad_noise_multiplier": 0.0}
    _, good = draws(problem.model, 500, 1, start=problem.mean, **kwargs)

    def against(step):
        step._noisy_gradient, gradient = (lambda theta: -gradient(theta)), step._noisy_gradient

    _, bad = draws(problem.model, 500, 1, start=problem.mean, change=against, **kwargs)
    assert good > 0.95
    assert bad < 0.4


# --- broken on purpose ---------------------------------------------------------------------------


def worst(case, change=None, shorter=1):
    problem, kwargs, iterations, thin = CASES[case]
    iterations //= shorter
    problem = Problem(**problem)
    found, _ = draws(problem.model, iterations, thin, start=problem.mean, change=change, **kwargs)
    return problem.worst_p_value(found)


@pytest.mark.oracles
@pytest.mark.parametrize("kept_part", [0.0, 0.5, pytest.param(2.0, marks=pytest.mark.calibrate)])
def test_a_wrong_penalty_is_found(kept_part, monkeypatch):
    def wrong(noisy_log_ratio, public, sd, tempering):
        return tempering * noisy_log_ratio + public - kept_part * (tempering * sd) ** 2 / 2

    monkeypatch.setattr(hmc_iteration, "log_acceptance", wrong)
    assert worst("noisy ratios", shorter=1 if kept_part else 3) < LEVEL


def fresh_looks(step, monkeypatch, point):
    """Whether an iteration takes new noise for all its gradients and its ratio."""
    answers = []
    release = noise.release

    def record(totals, *args):
        released = release(totals, *args)
        answers.extend(level - total for level, total in zip(released, totals, strict=True))
        return released

    monkeypatch.setattr(noise, "release", record)
    counts = []
    for _ in range(20):
        before = len(answers)
        point, _ = step.step(point)
        counts.append(len(answers) - before)
    return set(counts) == {2 * (step.n_leapfrog + 1) + 1} and len(set(answers)) == len(answers)


def reuse(step):
    fresh, kept = step._noisy_gradient, {}

    def again(theta):
        key = theta.tobytes()
        if key not in kept:
            kept[key] = fresh(theta)
        return kept[key]

    step._noisy_gradient = again


def test_gradients_are_fresh_and_those_used_again_are_found(monkeypatch):
    problem = Problem()
    for change, expected in ((lambda step: None, True), (reuse, False)):
        with problem.model:
            step = pmdp.DPHMC(simulation=True, chains=1, clip_logp=12.0, **HMC)
        step.setup_chain(np.random.default_rng(1), 0, 100)
        change(step)
        assert fresh_looks(step, monkeypatch, problem.model.initial_point()) == expected


@pytest.mark.oracles
def test_a_forgotten_kinetic_energy_is_found(monkeypatch):
    leapfrog = hmc_iteration.leapfrog

    def still(gradient, theta, basis, momentum, step_size, n_steps):
        end = leapfrog(gradient, theta, basis, momentum, step_size, n_steps)
        return end._replace(momentum=momentum)

    monkeypatch.setattr(hmc_iteration, "leapfrog", still)
    assert worst("noisy gradients") < LEVEL


@pytest.mark.oracles
def test_an_uneven_last_kick_is_found(monkeypatch):
    leapfrog = hmc_iteration.leapfrog

    def uneven(gradient, theta, basis, momentum, step_size, n_steps):
        end = leapfrog(gradient, theta, basis, momentum, step_size, n_steps)
        kick = step_size / 2 * gradient(end.theta)
        return end._replace(momentum=end.momentum + kick)

    def more(step):
        step.gradients_per_iteration += 1

    monkeypatch.setattr(hmc_iteration, "leapfrog", uneven)
    assert worst("exact gradients", more) < LEVEL


# --- other posteriors ----------------------------------------------------------------------------


def cdf_by_quadrature(log_density, grid):
    """Marginal distribution functions of a density on a grid of two coordinates or one."""
    mesh = np.meshgrid(*grid, indexing="ij")
    logs = log_density(*mesh)
    density = np.exp(logs - logs.max())
    functions = []
    for axis, points in enumerate(grid):
        others = tuple(i for i in range(len(grid)) if i != axis)
        below = integrate.cumulative_trapezoid(density.sum(axis=others), points, initial=0)
        functions.append(
            lambda x, below=below, points=points: np.interp(x, points, below / below[-1])
        )
    return functions


def worst_against(found, functions):
    values = [kstest(column, cdf).pvalue for column, cdf in zip(found.T, functions, strict=True)]
    return min(values) * len(values)


def logistic():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = (rng.random(60) < 1 / (1 + np.exp(-X @ [1.0, -0.5]))).astype(int)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 2, shape=2)
        pm.Bernoulli("y", logit_p=X @ beta, observed=y)

    def log_density(a, b):
        eta = a[..., None] * X[:, 0] + b[..., None] * X[:, 1]
        return (y * eta - np.logaddexp(0, eta)).sum(-1) - (a**2 + b**2) / 8

    grid = [np.linspace(-2, 5, 281), np.linspace(-4, 3, 281)]
    return model, cdf_by_quadrature(log_density, grid)


def scale():
    y = np.random.default_rng(1).normal(0, 1.5, size=30)
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma", 1)
        pm.Normal("y", 0, sigma, observed=y)

    def log_density(log_sigma):  # with its Jacobian
        sigma = np.exp(log_sigma)
        return -(sigma**2) / 2 + log_sigma - 30 * log_sigma - (y**2).sum() / 2 / sigma**2

    return model, cdf_by_quadrature(log_density, [np.linspace(-1.5, 2.5, 2001)])


COUNTS = np.array([7, 4, 2])


def simplex():
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.array([1.0, 2.0, 3.0]))
        pm.Categorical("k", p, observed=np.repeat([0, 1, 2], COUNTS))
    return model


OTHER = {
    "noisy gradients": {},
    "heavy clipping": {"clip_grad": 0.1, "grad_noise_multiplier": 1.0},
}


@pytest.mark.wide_except("noisy gradients")
@pytest.mark.parametrize("gradients", OTHER)
def test_logistic_regression(gradients):
    model, functions = logistic()
    kwargs = HMC | {"step_size": 0.2, "clip_logp": 5.0} | OTHER[gradients]
    found, _ = draws(model, 6000, 6, start=[1.0, -0.5], **kwargs)
    assert worst_against(found, functions) > LEVEL


@pytest.mark.wide_except("noisy gradients")
@pytest.mark.parametrize("gradients", OTHER)
def test_a_scale(gradients):
    model, functions = scale()
    found, _ = draws(model, 6000, 6, **HMC | {"step_size": 0.08} | OTHER[gradients])
    assert worst_against(found, functions) > LEVEL


def simplex_functions(found):
    expand = np.concatenate([found, -found.sum(axis=1, keepdims=True)], axis=1)
    shares = np.exp(expand) / np.exp(expand).sum(axis=1, keepdims=True)
    alpha = COUNTS + np.array([1.0, 2.0, 3.0])
    return shares, [stats.beta(a, alpha.sum() - a).cdf for a in alpha]


@pytest.mark.wide
@pytest.mark.parametrize("gradients", OTHER)
def test_a_simplex(gradients):
    kwargs = HMC | {"clip_grad": 2.0, "clip_logp": 4.0, "step_size": 0.25}
    found, _ = draws(simplex(), 6000, 6, **kwargs | OTHER[gradients])
    assert worst_against(*simplex_functions(found)) > LEVEL


@pytest.mark.oracles
@pytest.mark.parametrize("build", [scale, simplex])
def test_a_forgotten_jacobian_is_found(build, monkeypatch):
    built = build()
    model = built if build is simplex else built[0]

    def without(step):
        step.log_prior = log_prior_without_jacobian(model)

    found, _ = draws(model, 6000, 6, change=without, **HMC | {"step_size": 0.1, "clip_logp": 4.0})
    pairs = simplex_functions(found) if build is simplex else (found, built[1])
    assert worst_against(*pairs) < LEVEL


def log_prior_without_jacobian(model):
    with pytest.MonkeyPatch.context() as patch:
        logp = model.logp
        patch.setattr(
            type(model), "logp", lambda self, **asked: logp(**asked | {"jacobian": False})
        )
        return RecordModel(model).log_prior
