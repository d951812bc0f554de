"""RecordGibbs as a PyMC step: who picks it, what it reports, how it runs in chains."""

import inspect

import cloudpickle
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.sampling.mcmc import assign_step_methods
from pymc.step_methods.state import equal_dataclass_values
from scipy import stats

import pymc_dp as pmdp
from pymc_dp.graph.intervals import ONCE
from tests import oracles
from tests.checks import assert_same_distribution
from tests.sampling import draw, values

QUIET = {"progressbar": False, "quiet": True, "compute_convergence_checks": False}


def normal_model(n=20, noise=None, observed=15.0, prior_sd=2.5, sd=1.5):
    """Models of as many records differ in numbers alone, and are compiled once."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, prior_sd)
        x = pm.Normal("x", mu, sd, shape=n)
        pmdp.Privatized(
            "s", pmdp.clamp(x, -2, 2).sum(), noise or pmdp.Laplace(scale=4), observed=observed
        )
    return model


def picked(model):
    _, chosen = assign_step_methods(model)
    return {model.values_to_rvs[v].name: cls.__name__ for cls, vs in chosen.items() for v in vs}


def test_picked_for_records_their_parameters_and_nothing_else():
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        lam = pm.Exponential("lam", pm.HalfNormal("above"))
        x = pm.Bernoulli("x", p, shape=4)
        k = pm.Categorical("k", np.ones(3) / 3, shape=4)
        c = pm.Poisson("c", lam, shape=4)
        z = pm.Normal("z", 0, 1, shape=4)
        pm.Bernoulli("switch", 0.5)
        pm.Normal("other", 0, 1, shape=4)
        total = x.sum() + c.sum() + pmdp.clamp(z, -1, 1).sum() + pt.eq(k, 1).sum()
        pmdp.Privatized("s", total, pmdp.Laplace(scale=1), observed=3)
    chosen = picked(model)
    # outside the model's context too, as pm.sample(model=...) asks
    ours = {name for name, step in chosen.items() if step == "RecordGibbs"}
    assert ours == {"x", "k", "c", "z", "p", "lam"}
    assert chosen["other"] == chosen["above"] == "NUTS"
    assert chosen["switch"] == "BinaryGibbsMetropolis"


def test_variables_of_steps(made_only):
    with normal_model() as model:
        x = model["x"]
        for step in (pmdp.RecordGibbs([x]), pmdp.RecordGibbs(x)):
            assert [v.name for v in step.vars] == ["x"]
        assert [v.name for v in pmdp.RecordGibbs().vars] == ["mu", "x"]


def test_explicit_steps():
    with normal_model() as model:
        x, mu = model["x"], model["mu"]
        idata = pm.sample(
            20, tune=5, chains=1, cores=1, step=[pm.Slice([mu]), pmdp.RecordGibbs([x])], **QUIET
        )
    assert idata.posterior["x"].shape == (1, 20, 20)
    assert {"accept", "accept_min"} <= set(idata.sample_stats.data_vars)


def test_keywords_through_pm_sample():
    with normal_model():
        pm.sample(5, tune=5, chains=1, cores=1, record_gibbs={"rng": 3}, **QUIET)


def test_acceptance_is_bounded_under_pure_privacy():
    """Proposition 3.1 of Ju et al. (2022): at least exp(-epsilon), for every record and sweep."""
    epsilon = 0.7
    noise = pmdp.Laplace(epsilon=epsilon, sensitivity=4)
    with normal_model(noise=noise, observed=17.0, prior_sd=5, sd=3):
        stats_ = pm.sample(400, tune=50, chains=1, cores=1, random_seed=2, **QUIET).sample_stats
    assert stats_["accept_min"].min() >= np.exp(-epsilon) - 1e-12
    assert stats_["accept_min"].min() < np.exp(-epsilon) + 0.05
    assert 0.5 < stats_["accept"].mean() < 1


@pytest.mark.wide_except("fork")
@pytest.mark.parametrize("context", ["spawn", "fork"])
def test_chains_in_processes_and_seeds(context):
    runs = []
    for cores, seed in ((2, 5), (1, 5), (1, 6)):
        with normal_model():
            idata = pmdp.sample(
                30,
                tune=20,
                chains=2,
                cores=cores,
                mp_ctx=context if cores == 2 else None,
                random_seed=seed,
                var_names=["mu", "x"],
                **QUIET,
            )
        runs.append(idata.posterior)
    np.testing.assert_array_equal(runs[0]["x"], runs[1]["x"])
    np.testing.assert_array_equal(runs[0]["mu"], runs[1]["mu"])
    assert not np.array_equal(runs[1]["x"], runs[2]["x"])
    assert not np.array_equal(runs[1]["x"][0], runs[1]["x"][1])


def test_a_new_release_reuses_the_compiled_step():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 2)
        x = pm.Normal("x", mu, 1, shape=10)
        released = pm.Data("released", 0.0)
        pmdp.Privatized("s", x.sum(), pmdp.Gaussian(sigma=1), observed=released)
        step = [pmdp.RecordGibbs([x]), pm.Slice([mu])]
        compiled = step[0].blocks[0].tables[0].propose
        means = []
        for value in (-20.0, 20.0):
            pm.set_data({"released": value})
            idata = pmdp.sample(800, tune=200, chains=1, cores=1, step=step, random_seed=1, **QUIET)
            means.append(float(idata.posterior["mu"].mean()))
        assert step[0].blocks[0].tables[0].propose is compiled
        assert means[0] < -1 < 1 < means[1]
        pm.set_data({"released": np.inf})
        step[0].setup_chain(1, 0, 1)
        with pytest.raises(ValueError, match="'s' has NaN or infinite"):
            step[0].step(model.initial_point())


def test_pickled_step_goes_on_the_same():
    with normal_model() as model:
        step = pmdp.RecordGibbs(rng=1)
        point = model.initial_point()
        point, _ = step.step(point)
        copy = cloudpickle.loads(cloudpickle.dumps(step))
        after, _ = step.step(point)
        again, _ = copy.step({k: v.copy() for k, v in point.items()})
    np.testing.assert_array_equal(after["x"], again["x"])


def test_sampling_state():
    with normal_model() as model:
        one, two = pmdp.RecordGibbs(rng=1), pmdp.RecordGibbs(rng=2)
        two.sampling_state = one.sampling_state
        assert equal_dataclass_values(one.sampling_state, two.sampling_state)
        a, _ = one.step(model.initial_point())
        b, _ = two.step(model.initial_point())
    np.testing.assert_array_equal(a["x"], b["x"])


def test_the_given_point_is_left_alone():
    with normal_model() as model:
        step = pmdp.RecordGibbs(rng=1)
        point = model.initial_point()
        kept = {k: v.copy() for k, v in point.items()}
        first, _ = step.step(point)
        x = first["x"].copy()
        step.step(first)
    for name in kept:
        np.testing.assert_array_equal(point[name], kept[name])
    np.testing.assert_array_equal(first["x"], x)


@pytest.mark.wide
def test_release_that_is_not_observed_moves_with_the_rest():
    # integrating a free release out leaves the prior: false-alarm rate 1e-5
    with pm.Model() as model:
        mu = pm.Normal("mu", 1, 2)
        x = pm.Normal("x", mu, 3, shape=2)
        pmdp.Privatized("s", x.sum(), pmdp.Gaussian(sigma=4))
    assert_same_distribution(values(draw(model), "mu"), stats.norm(1, 2).cdf)


@pytest.mark.wide
def test_two_tables_in_one_release_by_two_steps():
    # each step must see the other table's moves: false-alarm rate 1e-5
    released, sigma = 12.0, 1.0
    with pm.Model():
        mu = pm.Normal("mu", 0, 2)
        a = pm.Normal("a", mu, 1, shape=3)
        b = pm.Normal("b", mu, 1, shape=5)
        pmdp.Privatized("s", a.sum() + b.sum(), pmdp.Gaussian(sigma=sigma), observed=released)
        idata = pmdp.sample(
            5000,
            chains=2,
            cores=1,
            step=[pmdp.RecordGibbs([a]), pmdp.RecordGibbs([b])],
            random_seed=4,
            **QUIET,
        )
    exact = oracles.normal_sums_posterior([released], np.ones((1, 8)), 1, 0, 2, sigma)
    assert_same_distribution(idata.posterior["mu"].values, lambda m: exact.cdf(0, m))


@pytest.mark.wide_except("truncated")
@pytest.mark.parametrize(
    "build",
    [
        lambda theta: pm.Truncated("x", pm.Exponential.dist(pt.exp(theta)), upper=2, shape=6),
        lambda theta: pm.Mixture(
            "x",
            pt.stack([0.3, 0.7]),
            [pm.Normal.dist(theta, 1), pm.Normal.dist(-theta, 2)],
            shape=6,
        ),
        lambda theta: pm.Uniform("x", theta - 1, theta + 1, shape=6),
        lambda theta: pm.Dirichlet("x", pt.exp(theta) * np.ones(3), shape=(6, 3)),
        lambda theta: pm.MvStudentT(
            "x", nu=5, mu=theta * np.ones(2), scale=np.eye(2), shape=(6, 2)
        ),
        lambda theta: pm.StudentT("x", 4, mu=theta, sigma=1, shape=(6, 2)),
    ],
    ids=["truncated", "mixture", "uniform", "dirichlet", "multivariate t", "matrix of t"],
)
def test_record_distributions_of_many_kinds(build):
    # proposals stay inside the support, values keep their transform
    with pm.Model() as model:
        theta = pm.Normal("theta", 0, 1)
        x = build(theta)
        pmdp.Privatized("s", pmdp.clamp(x, -1, 1).sum(), pmdp.Laplace(scale=1), observed=1.0)
        step = pmdp.RecordGibbs(rng=3)
        logp = model.compile_logp(mode=ONCE)
        point = model.initial_point()
        for _ in range(20):
            point, found = step.step(point)
            assert np.isfinite(logp(point))
    assert 0 < found[0]["accept"] <= 1


def test_statistics_in_the_progress_bar():
    step = object.__new__(pmdp.RecordGibbs)
    columns, fields = step._progressbar_config(n_chains=3)
    assert len(columns) == 2
    [update] = step._make_progressbar_update_functions()
    assert update({"accept": 0.5, "accept_min": 0.1, "else": 1}) == {
        "accept": 0.5,
        "accept_min": 0.1,
    }
    assert set(fields) == {"accept", "accept_min"}


def test_progress_bar_runs(capsys):
    with normal_model():
        pm.sample(10, tune=5, chains=2, cores=1, random_seed=1, compute_convergence_checks=False)


# --- sample --------------------------------------------------------------------------------------


def test_sample_has_the_signature_of_pm_sample():
    own = dict(inspect.signature(pmdp.sample).parameters)
    assert own.pop("executor").default is None
    assert own == dict(inspect.signature(pm.sample).parameters)


def test_sample_leaves_records_out_unless_named():
    with normal_model() as model:
        pm.Deterministic("double", 2 * model["mu"])
        short = pmdp.sample(5, tune=5, chains=1, cores=1, **QUIET)
        named = pmdp.sample(5, tune=5, chains=1, cores=1, var_names=["x"], **QUIET)
    assert set(short.posterior.data_vars) == {"mu", "double"}
    assert set(named.posterior.data_vars) == {"x"}
    outside = pmdp.sample(5, tune=5, chains=1, cores=1, model=model, **QUIET)
    assert set(outside.posterior.data_vars) == {"mu", "double"}


# --- bad input -----------------------------------------------------------------------------------


def test_a_record_in_two_steps():
    with normal_model() as model:
        x, mu = model["x"], model["mu"]
        step = [pm.NUTS([mu, x]), pmdp.RecordGibbs([x])]
        with pytest.raises(ValueError, match="'x' is given to RecordGibbs and to NUTS"):
            pmdp.sample(5, tune=5, chains=1, cores=1, step=step, **QUIET)
        with pytest.raises(ValueError, match="'x' is moved by RecordGibbs and by another step"):
            pm.sample(5, tune=5, chains=1, cores=1, step=step, **QUIET)


def test_observed_records_and_strangers():
    with pm.Model():
        mu = pm.Normal("mu")
        x = pm.Normal("x", mu, 1, shape=3)
        y = pm.Normal("y", mu, 1, observed=np.ones(3))
        pmdp.Privatized("s", (x * y).sum(), pmdp.Laplace(scale=1), observed=1)
        with pytest.raises(ValueError, match="'y' has observed values"):
            pmdp.RecordGibbs([y])
        with pytest.raises(ValueError, match="not a variable of the model"):
            pmdp.RecordGibbs([pt.vector("z")])
        with pytest.raises(ValueError, match="No release reaches"):
            pmdp.RecordGibbs([pm.Normal("w", 0, 1, shape=3)])
        assert pmdp.RecordGibbs.plan([x], pm.modelcontext(None))  # y is public


def test_models_without_records():
    with pm.Model():
        pm.Normal("mu")
        with pytest.raises(ValueError, match="no records"):
            pmdp.RecordGibbs()


def test_not_additive_through_pm_sample():
    with pm.Model():
        x = pm.Normal("x", 0, 1, shape=5)
        pmdp.Privatized("s", x.sum() ** 2, pmdp.Laplace(scale=1), observed=1)
        with pytest.raises(ValueError, match=r"'s' is not a sum over records.*pm\.NUTS\(\)"):
            pm.sample(5, tune=5, chains=1, cores=1, **QUIET)
        pm.sample(5, tune=5, chains=1, cores=1, step=pm.NUTS(), **QUIET)


def test_the_numerical_check_catches_a_wrong_rule(monkeypatch):
    # if a rule of the graph analysis were wrong, construction would notice
    from pymc_dp.analyst import records
    from pymc_dp.graph.additivity import Additive

    right = records.form_of
    monkeypatch.setattr(
        records,
        "form_of",
        lambda *args: (
            Additive(f.contributions * 2) if isinstance(f := right(*args), Additive) else f
        ),
    )
    with normal_model(), pytest.raises(ValueError, match="changes the released statistic"):
        pmdp.RecordGibbs()


def test_draws_made_ahead_are_dropped_when_another_step_moves():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 100)
        x = pm.Normal("x", mu, 1, shape=20)
        pmdp.Privatized("s", x.sum(), pmdp.Gaussian(sigma=1e6), observed=0)
        step = pmdp.RecordGibbs([x], interweave=False, cycles=1)
    step.setup_chain(np.random.default_rng(1), 0, 100)
    point = model.initial_point()
    for _ in range(10):  # of the last call's draws some are left
        point, _ = step.step(point)
    assert abs(point["x"].mean()) < 2
    for place in (50.0, -50.0):
        point["mu"] = np.array(place)
        point, _ = step.step(point)
        assert abs(point["x"].mean() - place) < 2
