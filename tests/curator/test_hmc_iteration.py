"""The iteration that DPHMC runs, and that settings are tried with."""

import numpy as np
import pymc as pm
import pytest

import pymc_dp as pmdp
from pymc_dp.curator.hmc_iteration import hmc_iteration
from pymc_dp.curator.penalty_kernels import NoisyRatio, ratio_bound
from pymc_dp.curator.plan.suggest_hmc import _Trial
from pymc_dp.curator.plan.synthetic import SyntheticPosterior
from pymc_dp.curator.steps import dp_hmc


def with_hyperparameter(seed):
    """It comes last, and so has a column of the inverse mass's root to itself."""
    with pm.Model() as model:
        m = pm.Normal("m", 0, 1, shape=2)
        pm.Normal("h", m.sum(), 2)
        x = np.random.default_rng(seed).normal(size=(300, 2))
        pm.Normal("y", m, [0.5, 1.0], observed=x)
    return model


class Momentum:
    """In place of a generator: a momentum, and no noise."""

    def __init__(self, momentum):
        self.momentum = momentum

    def normal(self, size=None):
        return 0.0 if size is None else self.momentum[:size]


@pytest.mark.parametrize("public", [False, True])
def test_settings_are_tried_with_what_the_step_does(public, monkeypatch):
    model = with_hyperparameter(0)
    with np.errstate(all="ignore"):
        rng = np.random.default_rng(1)
        targets = [SyntheticPosterior(with_hyperparameter(seed), 300, None, rng) for seed in (1, 0)]
        trial = _Trial(targets, with_hyperparameter(1) if public else None, 1.0, "substitute")
    found = []
    iteration = dp_hmc.hmc_iteration
    monkeypatch.setattr(
        dp_hmc,
        "hmc_iteration",
        lambda theta, momentum, *args, **kwargs: (
            found.append((theta, momentum, iteration(theta, momentum, *args, **kwargs)))
            or found[-1][-1]
        ),
    )
    step = pmdp.DPHMC(
        clip_logp=trial.clip_logp,
        clip_grad=trial.clip_grad,
        grad_scale=trial.grad_scale,
        inverse_mass=trial.mass,
        public=trial.public,
        step_size=0.4,
        n_leapfrog=3,
        jitter=0.0,
        simulation=True,
        noise_multiplier=0.0,
        grad_noise_multiplier=0.0,
        model=model,
    )
    assert step.data_columns.tolist() == [True, True, False]
    step.setup_chain(np.random.default_rng(2), 0, 20)
    point = model.initial_point()
    for _ in range(20):
        point, _ = step.step(point)
    for theta, momentum, proposal in found:
        # the second target has the model's own records
        chance, moved = trial._iterate(targets[1], theta, 3, 0.4, 0.0, 0.0, Momentum(momentum))
        assert chance == pytest.approx(proposal.acceptance, rel=1e-9)
        np.testing.assert_allclose(moved, proposal.displacement, rtol=1e-9)
    assert len({proposal.acceptance for *_, proposal in found}) > 5


def test_a_move_too_long_for_its_square_is_rejected():
    """What bounds a ratio, and its noise, grows with the length."""
    with pm.Model() as model:
        pm.Normal("y", pm.Flat("m"), 1, observed=np.arange(5.0))
    step = pmdp.DPHMC(
        clip_logp=1.0,
        clip_grad=1.0,
        step_size=1e200,
        n_leapfrog=1,
        simulation=True,
        noise_multiplier=1.0,
        grad_noise_multiplier=1.0,
        model=model,
    )
    step.setup_chain(np.random.default_rng(2), 0, 5)
    point = {"m": np.array(0.5)}
    for _ in range(5):
        with np.errstate(all="ignore"):
            point, (stats,) = step.step(point)
        assert not stats["accepted"]


@pytest.mark.parametrize("log_prior", [-np.inf, np.nan])
def test_records_are_not_asked_about_an_end_outside_the_support(log_prior):
    found = hmc_iteration(
        np.zeros(2),
        np.ones(2),
        0.1,
        2,
        basis=np.eye(2),
        gradient=lambda theta: -theta,
        noisy_log_ratio=None,
        log_prior=lambda theta: log_prior,
        log_prior_here=0.0,
        length=None,
    )
    assert found.diverged
    assert found.acceptance == 0
    assert np.isnan(found.ratio.sd)


def test_an_acceptance_that_is_not_a_number_is_none():
    found = hmc_iteration(
        np.zeros(1),
        np.ones(1),
        0.1,
        1,
        basis=np.eye(1),
        gradient=lambda theta: -theta,
        noisy_log_ratio=lambda theta, end, length: NoisyRatio(np.inf, np.inf, 1.0),
        log_prior=lambda theta: 0.0,
        log_prior_here=0.0,
        length=lambda theta, end, displacement: 1.0,
    )
    assert not found.diverged
    assert found.acceptance == 0
    assert not (found.log_acceptance > 0)


def test_no_move_has_a_bound_all_the_same():
    assert 0 < ratio_bound(3.0, 0.0) < 1e-100
