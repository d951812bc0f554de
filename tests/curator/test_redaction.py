"""The published tree has no data, nothing computed from it without noise, and says what it cost."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.ops import wrap_py

import pymc_dp as pmdp
from pymc_dp.graph.intervals import ONCE

X = np.random.default_rng(0).normal(size=(50, 2))
Y = np.random.default_rng(1).integers(0, 2, size=50)
QUIET = {"cores": 1, "progressbar": False, "quiet": True}
#: for PyMC's own functions, which compile all variables; pmdp.sample leaves most of them out
PLAIN = {"progressbar": False, "compile_kwargs": {"mode": ONCE}}


@pytest.fixture(scope="module")
def model():
    with pm.Model(coords={"person": [f"name{i}" for i in range(50)]}) as model:
        covariates = pm.Data("covariates", X, dims=("person", "feature"))
        beta = pm.Normal("beta", 0, 1, shape=2)
        pm.Deterministic("contrast", beta[0] - beta[1])
        pm.Deterministic("fitted", covariates @ beta, dims="person")
        pm.Deterministic("fitted_first_rows", X[:3] @ beta)
        pm.Bernoulli("y", logit_p=covariates @ beta, observed=Y, dims="person")
    return model


def penalty(model, **kwargs):
    with model:
        return pmdp.DPPenalty(
            **(
                {"epsilon": 1, "delta": 1e-6, "chains": 2, "clip_logp": 2, "step_size": 0.3}
                | kwargs
            )
        )


def plain_sample(make_step=None, **kwargs):
    """Draws by PyMC's own function, without compiling all that it keeps."""
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        kwargs |= {"step": make_step()} if make_step else {}
        return pm.sample(10, **kwargs, **QUIET)


def everything_in(tree):
    for node in tree.subtree:
        yield from node.attrs.items()
        for name, variable in node.dataset.variables.items():
            yield name, variable.values


def test_sample_leaves_only_what_is_noised(model):
    step = penalty(model)
    with model:
        tree = pmdp.sample(20, step=step, tune=5, discard_tuned_samples=False, **QUIET)
    assert set(tree.children) == {
        "posterior",
        "sample_stats",
        "warmup_posterior",
        "warmup_sample_stats",
    }
    assert set(tree.posterior.data_vars) == {"beta", "contrast"}
    assert set(tree.sample_stats.data_vars) == {"accepted", "noisy_log_ratio", "noise_sd"}
    assert "person" not in tree.posterior.coords
    names = {str(name) for name, _ in everything_in(tree)}
    assert not names & {"sampling_time", "created_at"}
    assert not any("name0" in str(value) for _, value in everything_in(tree))


def test_the_guarantee_is_told(model):
    step = penalty(model)
    with model:
        tree = pmdp.sample(30, tune=20, step=step, **QUIET)
    spent = pmdp.privacy_spent(step)
    epsilon, delta = spent
    assert (epsilon, delta) == (spent.epsilon, spent.delta) == (pytest.approx(1.0), 1e-6)
    told = {name.removeprefix("privacy_"): value for name, value in tree.attrs.items()}
    assert told["epsilon"] == epsilon <= 1
    assert told["iterations"] == 100
    assert told["chains"] == 2
    assert told["clip_logp"] == 2
    assert told["neighbours"] == "substitute"
    assert told["simulation"] == 0
    assert told["mu"] == pytest.approx(100 / (2 * told["noise_multiplier"] ** 2))


def test_half_the_chains_spend_less(model):
    step = penalty(model)
    with model:
        pmdp.sample(10, step=step, chains=1, **QUIET)
    assert 0.5 < pmdp.privacy_spent(step).epsilon < 0.8


def test_plain_sample_warns_once_and_redact_repairs(model):
    step = penalty(model)
    with model, pytest.warns(pmdp.ConfidentialDataWarning) as warned:
        raw = plain_sample(step=step, chains=2)
    assert len(warned) == 1
    assert "observed_data" in raw.children
    assert "constant_data" in raw.children
    for tree in (pmdp.redact(raw), pmdp.redact(raw, model)):  # outside the model's context
        assert set(tree.children) == {"posterior", "sample_stats"}
        assert set(tree.posterior.data_vars) == {"beta", "contrast"}
    assert "observed_data" in raw.children


def test_another_model_in_context_does_not_make_variables_public(model):
    step = penalty(model)
    with model, pytest.warns(pmdp.ConfidentialDataWarning):
        raw = plain_sample(step=step, chains=2)
    with pm.Model():  # the same names, made of parameters alone
        beta = pm.Normal("beta", 0, 1, shape=2)
        pm.Normal("fitted", shape=50)
        pm.Deterministic("contrast", beta[0])
        tree = pmdp.redact(raw)
    assert set(tree.posterior.data_vars) == {"beta", "contrast"}


def test_another_curated_model_in_context_does_not_either(model):
    step = penalty(model)
    with model, pytest.warns(pmdp.ConfidentialDataWarning):
        raw = plain_sample(step=step, chains=2)
    with pm.Model() as other:
        beta = pm.Normal("beta", 0, 1, shape=2)
        for name in ("contrast", "fitted", "fitted_first_rows"):
            pm.Deterministic(name, beta[0])
        pm.Normal("y", beta[0], 1, observed=Y[:40])
    assert penalty(other).likelihood.n_records == 40
    with other:
        assert set(pmdp.redact(raw).posterior.data_vars) == {"beta", "contrast"}


def test_redact_cannot_make_other_draws_private(model):
    with model:
        raw = plain_sample(pm.Metropolis, tune=10, chains=1)
        with pytest.warns(pmdp.ConfidentialDataWarning, match="cannot make"):
            tree = pmdp.redact(raw)
    assert not set(tree.sample_stats.data_vars) & {"accept", "scaling"}


def test_redact_must_know_the_model():
    with pm.Model() as other:
        pm.Normal("unheard_of")
        raw = pm.sample(5, tune=5, chains=1, step=pm.Metropolis(), **QUIET)
    with pytest.raises(ValueError, match="model=model"):
        pmdp.redact(raw)
    del other


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"var_names": ["fitted"]}, "'fitted'"),
        ({"return_inferencedata": False}, "observed data"),
        ({"idata_kwargs": {"log_likelihood": True}}, "log-likelihood"),
    ],
)
def test_what_would_leak_is_refused_before_anything_is_spent(model, asked, message):
    step = penalty(model)
    with model, pytest.raises(pmdp.PrivacyError, match=message):
        pmdp.sample(10, step=step, **asked, **QUIET)
    assert pmdp.privacy_spent(step).epsilon == 0


def test_variables_left_to_another_step_are_refused():
    with pm.Model() as model:
        a, b = pm.Normal("a"), pm.Normal("b")
        pm.Normal("y", a + b, 1, observed=np.zeros(10))
    step = penalty(model, vars=[a])
    with model, pytest.raises(pmdp.PrivacyError, match="'b'"):
        pmdp.sample(10, step=step, **QUIET)


def test_two_steps_share_a_budget():
    budget = pmdp.PrivacyBudget(1.0, 1e-6)
    with pm.Model() as model:
        a, b = pm.Normal("a"), pm.Normal("b")
        pm.Normal("y", a + 2 * b, 1, observed=np.linspace(-1, 1, 30))
    kwargs = {"epsilon": None, "delta": None, "budget": budget, "share": 0.5}
    steps = [penalty(model, vars=[var], **kwargs) for var in (a, b)]
    with model:
        tree = pmdp.sample(15, step=steps, chains=2, **QUIET)
    assert budget.spent == pytest.approx(1.0)
    assert tree.attrs["privacy_epsilon"] == budget.spent
    assert tree.attrs["privacy_0_chains"] == tree.attrs["privacy_1_chains"] == 2
    assert set(tree.posterior.data_vars) == {"a", "b"}


def effects(observed=Y, **coords):
    """One effect a record, and one a group."""
    n = len(observed)
    names = {"person": [f"name{i}" for i in range(n)], "group": ["north", "south"]}
    with pm.Model(coords=names | coords) as model:
        u = pm.Normal("u", dims="person")
        v = pm.Normal("v", dims="group")
        pm.Deterministic("twice", 2 * u, dims="person")
        pm.Bernoulli("y", logit_p=u + v[np.arange(n) % 2], observed=observed, dims="person")
    return model


def test_one_value_a_record_and_its_labels_stay_inside():
    model = effects()
    with model:
        tree = pmdp.sample(5, step=penalty(model, chains=1), **QUIET)
    assert set(tree.posterior.data_vars) == {"v"}
    assert set(tree.posterior.coords) == {"chain", "draw", "group"}
    assert list(tree.posterior["group"].values) == ["north", "south"]
    assert not any("name0" in str(value) for _, value in everything_in(tree))
    assert 50 not in tree.posterior.sizes.values()
    with model, pytest.raises(pmdp.PrivacyError, match="'u' has one value a record"):
        pmdp.sample(5, step=penalty(model, chains=1), var_names="u", **QUIET)


def test_their_number_is_confidential_under_add_remove():
    with pytest.raises(ValueError, match="'u' has one value for each"):
        penalty(effects(), neighbours="add_remove")


def test_arrays_inside_operations_are_found():
    with pm.Model() as model:
        beta = pm.Normal("beta", shape=2)
        rows = pytensor.scan(
            lambda i, b: (X[:3] @ b)[i], pt.arange(3), non_sequences=[beta], return_updates=False
        )
        pm.Deterministic("scanned", rows)
        inner = pt.vector(shape=(2,))
        fitted = pytensor.compile.builders.OpFromGraph([inner], [pt.as_tensor(X[:3]) @ inner])
        pm.Deterministic("inside", fitted(beta))

        @wrap_py(itypes=[pt.dvector], otypes=[pt.dvector])
        def called(b):
            return X[:3] @ b

        pm.Deterministic("called", called(beta))
        pm.Deterministic("softmax", pm.math.softmax(beta))
        pm.Bernoulli("y", logit_p=X @ beta, observed=Y)
    with model:
        tree = pmdp.sample(5, step=penalty(model, chains=1), **QUIET)
    assert set(tree.posterior.data_vars) == {"beta", "softmax"}


def test_nothing_rides_along_on_variables(model):
    with model:
        tree = pmdp.sample(5, step=penalty(model), **QUIET)
    laden = tree.copy(deep=True)
    laden.attrs |= {"privacy_rows": Y, "comment": "name0"}
    posterior = laden["posterior"].to_dataset()
    posterior["beta"].attrs["rows"] = Y
    posterior["beta"].encoding["rows"] = Y
    posterior = posterior.assign_coords(mean=Y.mean(), name=("draw", ["name0"] * 5))
    laden["posterior"].dataset = posterior
    laden["posterior/inside"] = posterior
    again = pmdp.redact(laden, model)
    assert again.identical(tree)
    assert again["posterior"]["beta"].encoding == {}


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_pymc_puts_back_goes_again(model):
    with model:
        tree = pmdp.sample(5, step=penalty(model), **QUIET)
        extended = pm.sample_posterior_predictive(tree.copy(), extend_inferencedata=True, **PLAIN)
        extended = pm.compute_log_likelihood(extended, **PLAIN)
        assert {"observed_data", "constant_data", "log_likelihood"} <= set(extended.children)
        assert pmdp.redact(extended).identical(tree)


def fitted_inside():
    beta, inner = pm.Normal("beta", shape=2), pt.vector(shape=(2,))
    rows = pt.as_tensor(X) - pt.as_tensor(X).mean(axis=0)
    logits = pytensor.compile.builders.OpFromGraph([inner], [rows @ inner])(beta)
    pm.Bernoulli("y", logit_p=logits, observed=Y)


def prior_inside():
    labels = pytensor.scan(
        lambda i, one: pt.as_tensor(Y)[i] * one,
        pt.arange(50),
        non_sequences=[pt.as_tensor(1.0)],
        return_updates=False,
    )
    mu = pm.Normal("mu", labels.mean(), 1)
    pm.Bernoulli("y", logit_p=mu, observed=Y)


def potential_inside():
    mu, inner = pm.Normal("mu"), pt.scalar()
    off = pytensor.compile.builders.OpFromGraph([inner], [inner - pt.as_tensor(Y).mean()])
    pm.Potential("near", -(off(mu) ** 2))
    pm.Bernoulli("y", logit_p=mu, observed=Y)


def prior_in_a_function():
    def logp(value):
        return -((value - pt.as_tensor(Y).mean()) ** 2)

    mu = pm.CustomDist("mu", logp=logp)
    pm.Bernoulli("y", logit_p=mu, observed=Y)


def likelihood_in_a_function():
    def dist(beta, size):
        return pm.Normal.dist((pt.as_tensor(X) - pt.as_tensor(X).mean(axis=0)) @ beta, 1, size=size)

    pm.CustomDist("y", pm.Normal("beta", shape=2), dist=dist, observed=X[:, 0])


@pytest.mark.parametrize(
    ("build", "what"),
    [
        (fitted_inside, "'y'"),
        (prior_inside, "'mu'"),
        (potential_inside, "'near'"),
        (prior_in_a_function, "The prior of 'mu'"),
        (likelihood_in_a_function, "'y'"),
    ],
)
def test_records_inside_operations_are_refused(build, what):
    with pm.Model() as model:
        build()
    with pytest.raises(ValueError, match=f"{what} has an array"):
        penalty(model)


def test_gaps_in_new_data_are_refused_in_words():
    with pm.Model():
        y = pm.Data("scores", np.arange(20.0))
        pm.Normal("y", pm.Normal("a"), 1, observed=y)
        budget = pmdp.PrivacyBudget(1, 1e-6)
        step = pmdp.DPPenalty(budget=budget, clip_logp=1, step_size=0.1, chains=1)
        pm.set_data({"scores": np.where(np.arange(20) == 3, np.nan, np.arange(20.0))})
        with pytest.raises(ValueError, match="'scores' has missing values"):
            pmdp.sample(20, tune=0, chains=1, step=step)
    assert budget.unspent == 1.0
