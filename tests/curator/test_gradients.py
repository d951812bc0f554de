"""Per-record gradients of many kinds of model; what cannot be differentiated is refused."""

import cloudpickle
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op

import pymc_dp as pmdp
from pymc_dp.curator.gradient_kernels import CLIPPED, GRADIENT_LEVELS
from pymc_dp.curator.gradients import RecordGradients
from pymc_dp.curator.likelihood import RecordLikelihood
from pymc_dp.curator.model import RecordModel
from pymc_dp.graph.vector import FlatSpace
from tests.curator.test_likelihood import GROUP, MODELS, REFUSED, N, X, Y


def with_intercept():
    a = pm.Normal("a")
    b = pm.Normal("b", shape=3)
    pm.Bernoulli("y", logit_p=a + X @ b, observed=(Y > 0).astype(int))


def poisson():
    pm.Poisson("k", pm.math.exp(X @ pm.Normal("b", shape=3)), observed=GROUP)


def scaled_coefficients():
    scale = pm.HalfNormal("scale")
    b = pm.Normal("b", shape=3)
    pm.Normal("y", X @ (scale * b), 1, observed=Y)


def two_predictors():
    b, g = pm.Normal("b", shape=3), pm.Normal("g", shape=2)
    pm.Normal("y", X @ b, pm.math.exp(X[:, :2] @ g), observed=Y)


def matrix_of_coefficients():
    b = pm.Normal("b", shape=(3, 4))
    pm.Categorical("k", logit_p=X @ b, observed=GROUP)


KINDS = {
    "regression": "pieces",
    "several_observed": "forward",
    "rows_of_vectors": "pieces",
    "data_containers": "rows",
    "transposed_covariates": "rows",
    "mixture": "pieces",
    "custom": "values",
    "with_intercept": "pieces",
    "poisson": "rows",
    "scaled_coefficients": "rows",
    "two_predictors": "pieces",
    "matrix_of_coefficients": "forward",
}
ALL = [
    *MODELS,
    with_intercept,
    poisson,
    scaled_coefficients,
    two_predictors,
    matrix_of_coefficients,
]


def differences(likelihood, theta, basis, width=1e-5):
    """Central differences of the records' log-likelihoods along the columns of a basis."""
    return np.array(
        [
            (likelihood(theta + width * along) - likelihood(theta - width * along)) / (2 * width)
            for along in basis.T
        ]
    )


@pytest.mark.wide_except("regression", "several_observed", "custom", "poisson")
@pytest.mark.parametrize(
    "build",
    [*ALL[:-2], *(pytest.param(build, marks=pytest.mark.calibrate) for build in ALL[-2:])],
    ids=lambda build: build.__name__,
)
def test_gradients_are_those_of_each_record(build):
    with pm.Model() as model:
        build()
    space = FlatSpace(model)
    likelihood = RecordLikelihood(model, space)
    gradients = RecordGradients(likelihood)
    assert gradients.kind == KINDS[build.__name__]
    rng = np.random.default_rng(1)
    theta = space.start + 0.3 * rng.normal(size=space.size)
    basis = np.linalg.cholesky(np.eye(space.size) + 0.5)
    gradients.prepare(basis)
    expected = differences(likelihood, theta, basis)
    found = np.hstack(list(gradients.jacobians(theta)))
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    shrink = np.minimum(1, 0.7 * CLIPPED / np.linalg.norm(expected, axis=0))
    total = gradients.total(theta, 0.7) / GRADIENT_LEVELS * 0.7
    np.testing.assert_allclose(total, (expected * shrink).sum(axis=1), rtol=2e-6, atol=2e-5)


def groups():
    pm.Normal("y", pm.Normal("a", shape=4)[GROUP], 1, observed=Y)


@pytest.mark.wide_except("poisson")
@pytest.mark.parametrize("build", [poisson, with_intercept, groups])
def test_blocks_of_records_add_up(build):
    with pm.Model() as model:
        build()
    space = FlatSpace(model)
    gradients = RecordGradients(RecordLikelihood(model, space))
    gradients.prepare(np.eye(space.size))
    theta = space.start + 0.1
    whole = gradients.total(theta, 1.0)
    gradients._cut(7)
    np.testing.assert_allclose(gradients.total(theta, 1.0), whole, atol=2)
    assert len(list(gradients.jacobians(theta))) == -(-N // 7)


def test_the_priors_gradient_has_its_jacobian():
    with pm.Model() as model:
        pm.Normal("y", 0, pm.HalfNormal("sigma", 2), observed=Y)
    gradient = RecordModel(model).prior_gradient
    # d/du of -exp(2u)/8 + u
    np.testing.assert_allclose(gradient(np.array([0.3])), [1 - np.exp(0.6) / 4])


def mean_and_scale():
    pm.Normal("y", pm.Normal("m"), pm.HalfNormal("s"), observed=np.tile(Y, 60))


def wave():
    def logp(y, a, b):
        return -pm.math.log(2 + pm.math.cos(a * y)) - (y / b) ** 2

    a, b = pm.Normal("a"), pm.HalfNormal("b")
    pm.CustomDist("y", a, b, logp=logp, signature="(),()->()", observed=np.tile(Y, 60))


@pytest.mark.wide_except("mean_and_scale")
@pytest.mark.parametrize("build", [mean_and_scale, wave])
def test_the_joined_function_gives_what_blocks_of_arrays_give(build):
    with pm.Model() as model:
        build()
    space = FlatSpace(model)
    gradients = RecordGradients(RecordLikelihood(model, space))
    gradients.prepare(np.array([[1.0, 0.0], [0.5, 2.0]]))
    assert gradients._joined is not None
    theta = space.start + 0.2
    joined = gradients.total(theta, 0.5)
    gradients._joined = None
    np.testing.assert_allclose(joined, gradients.total(theta, 0.5), atol=0.2 * len(Y) * 60)


def test_bad_records_count_as_zero_and_raise_nothing():
    def logp(y, m, x):
        return y * (m / x - m * pm.math.log(x))

    with pm.Model() as model:
        x = np.array([0.0, np.nan, np.inf, -1.0, 1.0])
        y = np.ones(5)
        pm.CustomDist("y", pm.Normal("m"), x, logp=logp, signature="(),()->()", observed=y)
    gradients = RecordGradients(RecordLikelihood(model, FlatSpace(model)))
    gradients.prepare(np.eye(1))
    assert gradients._joined is not None
    assert gradients.total(np.zeros(1), 4.0) == round(GRADIENT_LEVELS / 4)


@pytest.mark.wide
def test_more_coordinates_than_are_written_out():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("m", shape=70).sum(), pm.HalfNormal("s"), observed=Y)
    space = FlatSpace(model)
    likelihood = RecordLikelihood(model, space)
    gradients = RecordGradients(likelihood)
    gradients.prepare(np.eye(71))
    assert (gradients.kind, gradients._joined) == ("values", None)
    expected = differences(likelihood, space.start, np.eye(71)).sum(axis=1)
    total = gradients.total(space.start, 1e3) / GRADIENT_LEVELS * 1e3
    np.testing.assert_allclose(total, expected, rtol=1e-4, atol=N * 1e3 / 2**20)


def test_other_data_is_used_from_the_next_chain_on():
    with pm.Model() as model:
        data = pm.Data("data", Y)
        pm.Normal("y", pm.Normal("m"), 1, observed=data)
        settings = {"clip_logp": 3, "clip_grad": 3, "step_size": 0.05, "n_leapfrog": 2}
        step = pmdp.DPHMC(epsilon=2, delta=1e-6, chains=2, **settings)
    theta = np.zeros(1)
    step.setup_chain(np.random.default_rng(0), 0, 5)
    before = step._total(theta)
    with model:
        pm.set_data({"data": Y + 1})
    step.setup_chain(np.random.default_rng(0), 0, 5)
    assert step._total(theta) != before
    assert step._total(theta) == step.gradients.total(theta, 3).tolist()


def test_a_pickled_step_goes_on_without_what_it_computed():
    with pm.Model():
        poisson()
        settings = {"clip_logp": 3, "clip_grad": 3, "step_size": 0.05, "n_leapfrog": 2}
        step = pmdp.DPHMC(epsilon=2, delta=1e-6, chains=2, **settings)
    step.setup_chain(np.random.default_rng(0), 0, 5)
    copy = cloudpickle.loads(cloudpickle.dumps(step))
    assert copy.gradients._chunks == []
    point = {"b": np.zeros(3)}
    step.step(point)
    with pytest.raises(pmdp.PrivacyError, match="No budget was claimed"):
        copy.step(point)
    copy.setup_chain(np.random.default_rng(0), 0, 5)
    copy.step(point)


# --- refusals ------------------------------------------------------------------------------------


class BlackBox(Op):
    itypes = otypes = [pt.dvector]  # noqa: RUF012

    def make_node(self, x):
        return Apply(self, [pt.as_tensor(x)], [pt.dvector()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = np.asarray(inputs[0]) ** 2


def black_box():
    m = pm.Normal("m", shape=1)
    pm.Normal("y", BlackBox()(m)[0], 1, observed=Y)


def rounded():
    pm.Normal("y", pm.math.floor(pm.Normal("m")), 1, observed=Y)


def switched():
    pm.Normal("y", pm.math.switch(pm.Normal("m") > 0, 1.0, -1.0), 1, observed=Y)


def cast():
    pm.Normal("y", pt.cast(pm.Normal("m"), "int64"), 1, observed=Y)


def prior_without_gradient():
    m = pm.Normal("m", shape=1)
    pm.Potential("soft", BlackBox()(m).sum())
    pm.Normal("y", m[0], 1, observed=Y)


def picked():
    y = pm.Data("y_all", Y)
    x = pm.Data("x_all", X)
    pm.CustomDist(
        "y",
        pm.Normal("m"),
        x[::-1, 0],
        logp=lambda v, m, x: -((v - m * x) ** 2),
        signature="(),()->()",
        observed=y,
    )


@pytest.mark.filterwarnings("ignore:Numba will use object mode")
@pytest.mark.parametrize(
    ("build", "message"),
    [
        (black_box, "'y' has no gradient.*DPPenalty"),
        (switched, "'y' has no gradient .it is zero everywhere"),
        (cast, "'y' has no gradient .it is zero everywhere"),
        (rounded, "rounds a parameter .`Floor`.*DPPenalty"),
        (prior_without_gradient, "prior of 'm', 'soft' has no gradient"),
        (picked, "'y' mixes records"),
        *REFUSED,
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_refused_by_name_with_what_to_write(build, message):
    with pm.Model() as model:
        build()
    settings = {"clip_logp": 1, "clip_grad": 1, "step_size": 1, "n_leapfrog": 1}
    with pytest.raises(ValueError, match=message):
        pmdp.DPHMC(model=model, epsilon=1, delta=1e-6, **settings)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"step_size": [0.1, 0.2, 0.3]}, "inverse_mass"),
        ({"step_size": -1.0}, "positive, finite"),
        ({"n_leapfrog": None}, "one of n_leapfrog= and path_length="),
        ({"path_length": 1.0}, "one of n_leapfrog= and path_length="),
        ({"n_leapfrog": 0}, "whole number >= 1"),
        ({"n_leapfrog": None, "path_length": -1.0}, "path_length must be positive"),
        ({"clip_grad": 0}, "clip_grad must be positive"),
        ({"clip_logp": np.inf}, "clip_logp must be positive"),
        ({"grad_share": 1.0}, "grad_share must lie in"),
        ({"grad_scale": 0.0}, "grad_scale must be positive"),
        ({"jitter": 1.0}, "jitter must lie in"),
        ({"inverse_mass": np.eye(2)}, "3 variances or a matrix of 3 by 3"),
        ({"inverse_mass": [1.0, -1.0, 1.0]}, "positive .definite."),
        ({"inverse_mass": -np.eye(3)}, "positive .definite."),
        ({"noise_multiplier": 1.0}, "both noise_multiplier= and|simulation=True"),
        ({"grad_noise_multiplier": 1.0}, "both noise_multiplier= and"),
    ],
    ids=str,
)
def test_wrong_settings_are_told(wrong, message):
    settings = {"clip_logp": 1, "clip_grad": 1, "step_size": 0.1, "n_leapfrog": 1}
    with pm.Model():
        poisson()
        with pytest.raises(ValueError, match=message):
            pmdp.DPHMC(**{"epsilon": 1, "delta": 1e-6} | settings | wrong)


def test_public_records_are_of_the_same_model():
    with pm.Model() as other:
        pm.Normal("y", pm.Normal("mean"), 1, observed=Y)
    settings = {"clip_logp": 1, "clip_grad": 1, "step_size": 0.1, "n_leapfrog": 1}
    with pm.Model():
        poisson()
        with pytest.raises(ValueError, match=r"same variables as the model, \['b'\]"):
            pmdp.DPHMC(epsilon=1, delta=1e-6, public=other, **settings)
    with pytest.raises(ValueError, match="whose records are confidential"):
        pmdp.DPHMC(epsilon=1, delta=1e-6, model=other, public=other, **settings)


def test_path_length_is_in_steps():
    with pm.Model():
        poisson()
        settings = {"clip_logp": 1, "clip_grad": 1, "step_size": 0.1, "path_length": 0.72}
        assert pmdp.DPHMC(epsilon=1, delta=1e-6, **settings).n_leapfrog == 7
        with pytest.raises(TypeError, match="leave path_length out"):
            pmdp.DPMALA(epsilon=1, delta=1e-6, **settings)


def test_steps_are_jittered_evenly_around_their_size():
    with pm.Model():
        poisson()
        settings = {"clip_logp": 1, "clip_grad": 1, "step_size": 0.1, "n_leapfrog": 1}
        step = pmdp.DPHMC(epsilon=1, delta=1e-6, jitter=0.5, **settings)
    step.jitter_shift = 0.37
    sizes = np.sort([step._next_step_size() for _ in range(256)])
    # low discrepancy: one in every 128th of the range or the next
    assert np.abs(sizes - np.linspace(0.05, 0.15, 256)).max() < 0.1 / 100


def test_steps_grow_while_a_chain_is_tuned():
    with pm.Model():
        poisson()
        settings = {"clip_logp": 1, "clip_grad": 1, "step_size": 0.1, "n_leapfrog": 1}
        step = pmdp.DPHMC(epsilon=1, delta=1e-6, jitter=0.0, chains=1, **settings)
    step.setup_chain(np.random.default_rng(0), 20, 10)
    sizes = [step._next_step_size() for _ in range(30)]
    np.testing.assert_allclose(sizes[:10], 0.1 * 0.1 ** (1 - np.arange(10) / 10))
    np.testing.assert_allclose(sizes[10:], 0.1)


def test_the_posteriors_gradient_uses_lengths_of_dims_and_data_of_the_prior():
    with pm.Model(coords={"group": ["north", "south"]}) as model:
        v = pm.Normal("v", 0, pm.Data("width", np.array([1.0, 2.0])), dims="group")
        pm.Normal("y", v.sum(), 1, observed=Y)
    gradient = RecordModel(model, public_data=["width"]).posterior_gradient(np.eye(2))
    theta = np.array([1.0, 1.0])
    np.testing.assert_allclose(gradient(theta, np.zeros(2)), [-1, -0.25])
    with model:
        pm.set_data({"width": np.array([1.0, 1.0])})
    np.testing.assert_allclose(gradient(theta, np.zeros(2)), [-1, -1])


def test_the_likelihoods_gradient_is_given_by_coordinates_that_it_depends_on():
    with pm.Model() as model:
        pm.Normal("other", 0, 1)
        pm.Normal("y", pm.Normal("m", 0, 1), 1, observed=Y)
    gradient = RecordModel(model).posterior_gradient(2 * np.eye(2))
    np.testing.assert_allclose(gradient(np.ones(2), np.array([5.0])), [-2, 3])
