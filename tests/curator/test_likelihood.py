"""Per-record log-likelihoods of many kinds of model; refusals that say what to write instead."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_dp as pmdp
from pymc_dp.curator.likelihood import RecordLikelihood, is_public
from pymc_dp.curator.model import RecordModel
from pymc_dp.graph.intervals import ONCE
from pymc_dp.graph.vector import FlatSpace

rng = np.random.default_rng(0)
N = 30
X = rng.normal(size=(N, 3))
Y = rng.normal(size=N)
GROUP = rng.integers(0, 4, size=N)


def regression():
    b = pm.Normal("b", 0, 1, shape=3)
    sigma = pm.HalfNormal("sigma", 1)
    pm.Normal("y", X @ b, sigma, observed=Y)


def several_observed():
    tau = pm.HalfNormal("tau", 1)
    a = pm.Normal("a", 0, tau, shape=4)
    pm.Normal("y", a[GROUP], 1, observed=Y)
    pm.Poisson("k", pm.math.exp(a[GROUP]), observed=GROUP)
    pm.Normal("x", a[:3], 2, observed=X)


def rows_of_vectors():
    mu = pm.Normal("mu", 0, 1, shape=3)
    pm.MvNormal("x", mu, np.eye(3) + 0.3, observed=X)


def data_containers():
    b = pm.Normal("b", 0, 1, shape=3)
    pm.Normal("y", pm.Data("X", X) @ b, 2, observed=pm.Data("Y", Y))


def transposed_covariates():
    b = pm.Normal("b", 0, 1, shape=3)
    pm.Normal("y", pm.math.dot(b, np.ascontiguousarray(X.T)), 1, observed=Y)


def mixture():
    w = pm.Dirichlet("w", np.ones(2))
    m = pm.Normal("m", [-1, 1], 1)
    pm.NormalMixture("y", w, m, 1, observed=Y)


def custom():
    m = pm.Normal("m")
    pm.CustomDist(
        "y", m, X[:, 0], logp=lambda v, m, x: -((v - m * x) ** 2), signature="(),()->()", observed=Y
    )


MODELS = [
    regression,
    several_observed,
    rows_of_vectors,
    data_containers,
    transposed_covariates,
    mixture,
    custom,
]


@pytest.mark.wide_except(
    "regression", "several_observed", "data_containers", "transposed_covariates", "custom"
)
@pytest.mark.parametrize("build", MODELS, ids=lambda build: build.__name__)
def test_sums_to_pymcs_own_log_density(build):
    with pm.Model() as model:
        build()
    records = RecordModel(model)
    space, likelihood, prior = records.space, records.likelihood, records.log_prior
    theta = space.start + 0.3 * np.random.default_rng(1).normal(size=space.size)
    point = space.unflatten(theta, model.initial_point())
    np.testing.assert_allclose(space.flatten(point), theta)
    assert likelihood(theta).shape == (N,)
    expected = model.compile_logp(vars=model.observed_RVs, mode=ONCE)(point)
    assert likelihood(theta).sum() == pytest.approx(float(expected))
    assert prior(theta) == pytest.approx(
        float(model.compile_logp(vars=model.free_RVs, mode=ONCE)(point))
    )
    if build is mixture:
        return  # holds the number of records in its graph; see the refusal of batch_size below
    some = np.array([3, 17, 8])
    np.testing.assert_allclose(likelihood.batch(theta, some), likelihood(theta)[some])


def test_a_public_potential_belongs_to_the_prior():
    with pm.Model() as model:
        regression()
        pm.Potential("soft", -(model["b"][0] ** 2))
    records = RecordModel(model)
    space, likelihood, prior = records.space, records.likelihood, records.log_prior
    theta = space.start + 0.5
    whole = model.compile_logp(mode=ONCE)(space.unflatten(theta, model.initial_point()))
    assert prior(theta) + likelihood(theta).sum() == pytest.approx(float(whole))


def test_the_likelihood_does_not_depend_on_hyperparameters():
    with pm.Model() as model:
        several_observed()
    space = FlatSpace(model)
    assert space.names == ["tau_log__", "a"]
    np.testing.assert_array_equal(RecordLikelihood(model, space).data_coordinates, [1, 2, 3, 4])


def test_new_data_is_read_and_a_new_length_refused():
    with pm.Model() as model:
        data_containers()
    space = FlatSpace(model)
    likelihood = RecordLikelihood(model, space)
    before = likelihood(space.start)
    with model:
        pm.set_data({"Y": Y + 1})
    likelihood.load()
    assert not np.allclose(before, likelihood(space.start))
    with model:
        pm.set_data({"Y": Y[:5], "X": X[:5]})
    with pytest.raises(ValueError, match="new step"):
        likelihood.load()


def time_series():
    pm.GaussianRandomWalk("y", mu=pm.Normal("m"), init_dist=pm.Normal.dist(), observed=Y)


def joint_over_records():
    pm.MvNormal("y", np.zeros(N), np.eye(N) * pm.HalfNormal("s"), observed=Y)


def centred_inside():
    x = pm.Data("x", X)
    pm.Normal("y", (x - x.mean(0)) @ pm.Normal("b", shape=3), 1, observed=Y)


def likelihood_in_a_potential():
    b = pm.Normal("b", shape=3)
    pm.Normal("y", X @ b, 1, observed=Y)
    pm.Potential("extra", pm.math.dot(X, b).sum())


def latent_from_covariates():
    z = pm.Normal("z", X @ pm.Normal("b", shape=3), 1)
    pm.Normal("y", z + X[:, 0], 1, observed=Y)


def discrete():
    pm.Normal("y", pm.Poisson("k", 3), 1, observed=Y)


def minibatch():
    pm.Normal("y", pm.Normal("m"), 1, observed=Y, total_size=1000)


def different_lengths():
    m = pm.Normal("m")
    pm.Normal("y", m, 1, observed=Y)
    pm.Normal("z", m, 1, observed=Y[:5])


def single_number():
    pm.Normal("y", pm.Normal("m"), 1, observed=1.3)


def nothing_observed():
    pm.Normal("m")


REFUSED = [
    (time_series, "'y' has one joint density.*first axis"),
    (joint_over_records, "'y' has one joint density"),
    (centred_inside, "'y' mixes records.*total over all records.*outside"),
    (likelihood_in_a_potential, "potential 'extra'.*CustomDist"),
    (latent_from_covariates, "prior 'z'"),
    (discrete, "'k' is discrete"),
    (minibatch, "'y' is a minibatch.*batch_size"),
    (different_lengths, "'z': 5"),
    (single_number, "'y' is observed as a single number"),
    (nothing_observed, "no observed variable"),
]


@pytest.mark.parametrize(
    ("build", "message"), REFUSED, ids=lambda value: getattr(value, "__name__", "")
)
def test_refused_by_name_with_what_to_write(build, message):
    with pm.Model() as model:
        build()
    with pytest.raises(ValueError, match=message):
        pmdp.DPPenalty(model=model, simulation=True, noise_multiplier=1.0, clip_logp=1, step_size=1)


def test_batches_need_a_likelihood_without_a_fixed_length():
    settings = {"epsilon": 1, "delta": 1e-6, "clip_logp": 1, "step_size": 1, "batch_size": 5}
    with pm.Model():
        mixture()
        assert pmdp.DPPenalty(**settings).likelihood.splits
    with pm.Model():
        pm.Normal("y", pt.full(N, pm.Normal("m")), 1, observed=Y)
        with pytest.raises(ValueError, match="leave batches out"):
            pmdp.DPPenalty(**settings)


def test_public_variables_are_made_of_free_variables_and_single_numbers():
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=3)
        pm.Deterministic("twice", 2 * b[0])
        pm.Deterministic("fitted", X @ b)
        pm.Deterministic("few_rows", X[:2] @ b)
        pm.Normal("y", X @ b, 1, observed=Y)
    public = {v.name: is_public(v, model) for v in model.deterministics}
    assert public == {"twice": True, "fitted": False, "few_rows": False}
