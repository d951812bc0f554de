"""A sampler of one's own for confidential data: what it takes to write, and what it cannot do.

Unadjusted Langevin moves on noised gradients, in as few lines as the base class leaves.
"""

import math

import numpy as np
import pymc as pm
import pytest
from pymc.step_methods.compound import Competence, StepMethodState

import pymc_dp as pmdp
from pymc_dp.accounting.allowance import Allowance
from pymc_dp.accounting.levels import GRADIENT_LEVELS
from pymc_dp.compat import dataclass_state
from pymc_dp.curator.steps.base import CuratorStep


@dataclass_state
class LangevinState(StepMethodState):
    """Nothing is carried on."""


class Langevin(CuratorStep):
    name = "langevin"
    _state_class = LangevinState
    stats_dtypes_shapes = {"noise_sd": (np.float64, [])}  # noqa: RUF012

    def __init__(self, *, clip_grad, step_size, model=None, **guarantee):
        super().__init__(None, Allowance(**guarantee), model=model, rng=None)
        self.clip_grad, self.step_size = clip_grad, step_size
        self.prior_gradient, self.gradients = self.records.prior_gradient, self.records.gradients

    def setup_chain(self, rng, tune, draws):
        super().setup_chain(rng, tune, draws)
        self.gradients.prepare(np.eye(self.space.size))

    def step(self, point):
        theta = self._arrive(point)
        levels = self.door.release(
            lambda: self.gradients.total(theta, self.clip_grad).tolist(), GRADIENT_LEVELS
        )
        gradient = self.clip_grad / GRADIENT_LEVELS * np.array(levels) + self.prior_gradient(theta)
        move = self.rng.normal(size=theta.size)
        theta = theta + self.step_size / 2 * gradient + math.sqrt(self.step_size) * move
        return self._leave(theta, point), [{"noise_sd": self.door.noise() * self.clip_grad}]

    @staticmethod
    def competence(var, has_grad):
        return Competence.INCOMPATIBLE


N, SETTINGS = 2000, {"clip_grad": 4.0, "step_size": 2e-5}
QUIET = {"cores": 1, "progressbar": False, "quiet": True, "compute_convergence_checks": False}


@pytest.fixture(scope="module")
def model():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        pm.Normal("y", mu, 1, observed=np.random.default_rng(1).normal(0.3, 1, size=N))
    return model


def test_it_runs_behind_budget_gate_and_redaction(model):
    budget = pmdp.PrivacyBudget(epsilon=2, delta=1e-6)
    step = Langevin(model=model, budget=budget, chains=1, **SETTINGS)
    tree = pmdp.sample(20, tune=10, chains=1, step=step, model=model, **QUIET)
    assert sorted(tree.children) == ["posterior", "sample_stats"]
    assert tree.attrs["privacy_epsilon"] == pytest.approx(2) == budget.spent
    [claim] = budget.claims()
    assert claim.iterations == 30
    np.testing.assert_allclose(tree.sample_stats["noise_sd"], claim.noise_multiplier * 2 * 4.0)
    last = {"mu": tree.posterior["mu"].values[0, -1]}
    with pytest.raises(pmdp.PrivacyError, match="No budget was claimed"):
        step.step(last)
    with pytest.raises(pmdp.PrivacyError):
        pmdp.sample(1, chains=1, step=step, model=model, **QUIET)
    with pytest.raises(pmdp.PrivacyError, match="NUTS"):
        pmdp.sample(1, chains=1, step=[step, pm.NUTS(model=model)], model=model, **QUIET)


def test_without_noise_it_finds_the_posterior(model):
    free = {"simulation": True, "noise_multiplier": 0.0, "chains": 1}
    step = Langevin(model=model, **SETTINGS, **free)
    tree = pmdp.sample(4000, tune=500, chains=1, step=step, model=model, random_seed=1, **QUIET)
    y = model.rvs_to_values[model["y"]].data
    mean, sd = y.sum() / (N + 1), 1 / math.sqrt(N + 1)
    drawn = tree.posterior["mu"].values
    # 4000 draws of autocorrelation .98, 40 effective ones: 6 standard errors of the mean
    assert abs(drawn.mean() - mean) < 6 * sd / math.sqrt(40)
    assert 0.5 < drawn.std() / sd < 1.7
