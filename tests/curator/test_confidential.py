"""Which arrays are confidential, and which may be in a model beside them."""

import warnings

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import Mode
from pytensor.scan import scan

import pymc_dp as pmdp
from pymc_dp.curator.common_rows import shared_records
from pymc_dp.curator.likelihood import FlatSpace, RecordLikelihood, records_of
from pymc_dp.graph.intervals import ONCE

rng = np.random.default_rng(0)
N, OTHER = 30, 17
X = rng.normal(size=(N, 3))
Y = rng.normal(size=N)
Z = rng.normal(size=OTHER)  # other people's
FLAG = rng.integers(0, 2, size=N)


def likelihood_of(build, **vouched):
    with pm.Model() as model, warnings.catch_warnings():
        warnings.simplefilter("ignore", pm.exceptions.ImputationWarning)
        build()
    mode = {"mode": Mode(linker="py", optimizer=None)}
    return RecordLikelihood(model, FlatSpace(model), mode, **vouched)


# --- missing values ------------------------------------------------------------------------------


def gaps(values):
    values = values.copy()
    values[3] = np.nan
    return values


def missing_outcome():
    pm.Normal("y", X @ pm.Normal("b", shape=3), 1, observed=gaps(Y))


def masked_outcome():
    pm.Normal("y", pm.Normal("m"), 1, observed=np.ma.masked_array(Y, FLAG))


def missing_part_of_a_row():
    x = X.copy()
    x[2, 1] = np.nan
    pm.MvNormal("y", pm.Normal("m", shape=3), np.eye(3), observed=x)


def missing_whole_row():
    pm.MvNormal("y", pm.Normal("m", shape=3), np.eye(3), observed=gaps(X))


def missing_covariate():
    x = pm.Normal("y", 0, 1, observed=gaps(X[:, 0]))
    pm.Normal("outcome", x * pm.Normal("m"), 1, observed=Y)


def missing_in_a_mixture():
    pm.NormalMixture("y", [0.5, 0.5], pm.Normal("m", shape=2), 1, observed=gaps(Y))


@pytest.mark.parametrize(
    "build",
    [
        missing_outcome,
        masked_outcome,
        missing_part_of_a_row,
        missing_whole_row,
        missing_covariate,
        missing_in_a_mixture,
    ],
)
def test_missing_values_are_refused_with_how_to_code_them(build):
    with pytest.raises(ValueError, match=r"'y' is observed with missing values.*seen = pm\.Data"):
        likelihood_of(build)


def test_missing_values_coded_as_data_are_accepted():
    y = gaps(Y)

    def coded():
        mu = pm.Normal("m")
        seen = pm.Data("seen", ~np.isnan(y))

        def logp(y, mu, seen):
            return pm.math.switch(seen, pm.logp(pm.Normal.dist(mu, 1), y), 0)

        pm.CustomDist("y", mu, seen, logp=logp, observed=np.where(np.isnan(y), 0, y))

    log_likelihood = likelihood_of(coded)(np.array([0.3]))
    assert log_likelihood[3] == 0
    assert np.count_nonzero(log_likelihood) == N - 1


# --- data containers of integers -----------------------------------------------------------------


@pytest.mark.parametrize("step", ["penalty", "hmc"])
def test_integers_in_a_container_can_be_observed(step):
    with pm.Model() as model:
        m = pm.Normal("m")
        pm.Poisson("k", pm.math.exp(m), observed=pm.Data("counts", FLAG))
        pm.Bernoulli("flag", logit_p=m, observed=pm.Data("flags", FLAG.astype(bool)))
        settings = {"clip_logp": 3, "step_size": 0.1, "epsilon": 1, "delta": 1e-6, "chains": 1}
        if step == "penalty":
            method = pmdp.DPPenalty(**settings)
        else:
            method = pmdp.DPMALA(clip_grad=3, **settings)
        pm.set_data({"counts": 1 - FLAG})
    method.likelihood.load()
    theta = np.array([0.4])
    with model:
        total = model.compile_logp(vars=model.observed_RVs, mode=ONCE)({"m": theta[0]})
    assert method.likelihood(theta).sum() == pytest.approx(float(total))


# --- data without a row for each record ----------------------------------------------------------


def outcome(mean):
    pm.Normal("y", mean, 1, observed=Y)


def likelihood_in_a_potential(data):
    def build():
        m = pm.Normal("m")
        outcome(m)
        pm.Potential("extra", pm.logp(pm.Normal.dist(m, 1), data()).sum())

    return build


def container():
    return pm.Data("z", Z)


def constant():
    return pt.constant(Z)


def interpolated():
    points = np.linspace(-3, 3, 50)
    outcome(pm.Interpolated("m", points, np.exp(-(points**2))))


def quadrature():
    nodes = pm.Data("nodes", np.linspace(-2, 2, 15))

    def logp(value, m, nodes):
        return pt.logsumexp(-((value[:, None] - m * nodes) ** 2), axis=-1)

    pm.CustomDist("y", pm.Normal("m"), nodes, logp=logp, signature="(),(q)->()", observed=Y)


def inside_a_random_graph():
    def dist(m, size):
        return pm.Normal.dist(m + pt.constant(Z).mean(), 1, size=size)

    pm.CustomDist("y", pm.Normal("m"), dist=dist, observed=Y)


OTHER_DATA = {
    "potential of a container": (likelihood_in_a_potential(container), "potential 'extra'", "z"),
    "potential of constants": (likelihood_in_a_potential(constant), "potential 'extra'", "extra"),
    "prior of a container": (
        lambda: outcome(pm.Normal("m", container().mean(), 1)),
        "prior 'm'",
        "z",
    ),
    "prior of constants": (lambda: outcome(pm.Normal("m", constant().mean(), 1)), "prior 'm'", "m"),
    "prior's own container": (
        lambda: outcome(X @ pm.Normal("b", pm.Data("b0", [0.1, 0.2, 0.3]), 1)),
        "prior 'b'",
        "b0",
    ),
    "as long as the records": (
        lambda: outcome(pm.Normal("m", 0, pt.constant(X[:, 0]).std())),
        "prior 'm' depends on an array with as many entries as there are records",
        "m",
    ),
    "likelihood of a container": (
        lambda: outcome(pm.Normal("m") * container().mean()),
        "likelihood depends.*'z'",
        "z",
    ),
    "likelihood of constants": (
        lambda: outcome(pm.Normal("m") * constant().mean()),
        r"likelihood depends.*shape \(17,\)",
        "y",
    ),
    "interpolated prior": (interpolated, r"shape \(50,\)", "m"),
    "quadrature": (quadrature, "'nodes'", "nodes"),
    "inside a random graph": (inside_a_random_graph, r"shape \(17,\)", "y"),
}


@pytest.mark.parametrize("name", OTHER_DATA)
def test_data_without_a_row_for_each_record_is_refused_unless_named_public(name):
    build, message, vouch = OTHER_DATA[name]
    with pytest.raises(ValueError, match=message) as refusal:
        likelihood_of(build)
    assert "public_data=[" in str(refusal.value)
    assert likelihood_of(build, public_data=[vouch]).n_records == N


def test_hyperparameters_may_be_arrays():
    def build():
        mean = np.arange(6.0)
        b = pm.MvNormal("b", mean, np.eye(6) + 0.1)
        levels = pm.Normal("levels", np.array([0.1, 0.2, 0.3, 0.4]), np.ones(4), shape=4)
        outcome(X @ b[:3] + levels[FLAG] + X @ np.array([1.0, 2.0, 3.0]))
        pm.Potential("soft", -((b - mean) ** 2).sum())

    assert likelihood_of(build).n_records == N


def test_a_dimension_may_have_the_length_of_public_data():
    def build():
        pm.Data("levels", [10.0, 20.0, 30.0, 40.0, 50.0], dims="level")
        outcome(pm.Normal("a", 0, 1, dims="level")[FLAG])

    assert likelihood_of(build, public_data=["levels"]).n_records == N
    with pytest.raises(ValueError, match=r"public_data=\['levels'\]"):
        likelihood_of(build)


def test_the_length_of_other_arrays_is_not_told():
    def build():
        others = pm.Data("others", Y[Y > 0])  # how many there are is a count of records
        outcome(pm.Normal("a", others.shape[0], 1))

    with pytest.raises(ValueError, match=r"public_data=\['others'\]"):
        likelihood_of(build)


def test_names_of_public_data_must_exist():
    with pytest.raises(ValueError, match=r"\['nods'\]"):
        likelihood_of(quadrature, public_data=["nods"])
    with pytest.raises(TypeError, match="list of names"):
        likelihood_of(quadrature, public_data="nodes")


def test_public_arrays_as_long_as_the_records_are_not_among_them():
    def build():
        outcome(pm.Data("time", X[:, 0]) * pm.Normal("m"))

    assert len(likelihood_of(build).data) == 2
    assert len(likelihood_of(build, public_data=["time"]).data) == 1


# --- the records of two models -------------------------------------------------------------------


def logistic(x, labels):
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=x.shape[1])
        pm.Bernoulli("y", logit_p=pm.math.dot(x, b), observed=labels)
    return model


BIG = rng.normal(size=(400, 2))
LABELS = rng.integers(0, 2, size=400)
FRESH = rng.normal(size=(300, 2))
SAME_RECORDS = {
    "the same": (BIG, LABELS),
    "covariates": (BIG.copy(), LABELS[::-1]),
    "labels": (rng.normal(size=(400, 2)), LABELS.copy()),
    "some of them": (BIG[::3], LABELS[::3]),
    "permuted": (rng.permutation(BIG), LABELS[::-1]),
    "among others": (np.vstack([BIG[:200], FRESH[:100]]), rng.integers(0, 2, size=300)),
}


@pytest.mark.parametrize("name", SAME_RECORDS)
def test_records_of_another_model_are_recognised(name):
    confidential = logistic(BIG, LABELS)
    assert shared_records(*records_of(logistic(*SAME_RECORDS[name])), *records_of(confidential))


def test_other_records_are_not_taken_for_the_same():
    few = rng.integers(0, 5, size=(400, 1)).astype(float)
    again = rng.integers(0, 5, size=(300, 1)).astype(float)
    assert not shared_records([few, np.ones(400)], [0, 0], [again, np.ones(400)], [0, 0])
    rounded = np.round(BIG[:, :1], 1)
    assert not shared_records([rounded], [0], [np.round(FRESH[:, :1], 1)], [0])
    assert not shared_records([BIG], [0], [FRESH], [0])
    assert shared_records([BIG], [0], [BIG.T.copy()], [1])


def test_confidential_records_are_refused_as_public_ones():
    settings = {"clip_logp": 1, "clip_grad": 1, "step_size": 1, "epsilon": 1, "delta": 1e-6}
    confidential = logistic(BIG, LABELS)
    with pytest.raises(ValueError, match=r"public= has records of this model"):
        pmdp.DPMALA(model=confidential, public=logistic(BIG, 1 - LABELS), **settings)
    step = pmdp.DPMALA(model=confidential, public=logistic(FRESH, LABELS[:300]), **settings)
    assert step.public.n_records == 300

    suggest = {"epsilon": 1, "delta": 1e-6, "n": 400}
    for synthetic in (confidential, logistic(BIG.copy(), 1 - LABELS)):
        with pytest.raises(ValueError, match=r"synthetic= (is|has records of)"):
            pmdp.suggest(dim=2, synthetic=synthetic, **suggest)
        with pytest.raises(ValueError, match=r"synthetic= (is|has records of)"):
            pmdp.suggest_hmc(synthetic=[logistic(FRESH, LABELS[:300]), synthetic], **suggest)


def test_records_of_the_model_in_context_are_refused_as_synthetic_ones():
    x, labels = rng.normal(size=(200, 2)), rng.integers(0, 2, size=200)
    other = logistic(x.copy(), 1 - labels)
    with logistic(x, labels) as model:
        for synthetic in (model, other):
            with pytest.raises(ValueError, match=r"synthetic= (is|has records of)"):
                pmdp.suggest(1, 1e-6, n=200, dim=2, synthetic=synthetic)


def test_records_that_settings_were_computed_from_are_refused_afterwards():
    x, labels = rng.normal(size=(300, 2)), rng.integers(0, 2, size=300)
    taken = logistic(x, labels)
    pmdp.suggest(1, 1e-6, n=300, dim=2, synthetic=taken)
    settings = {"clip_logp": 1, "step_size": 1, "epsilon": 1, "delta": 1e-6}
    for model in (taken, logistic(x[::-1].copy(), labels)):
        with pytest.raises(pmdp.PrivacyError, match=r"were passed as synthetic="):
            pmdp.DPPenalty(model=model, **settings)
    pmdp.DPPenalty(model=taken, simulation=True, **settings)


# --- arrays that functions and operations bring in -----------------------------------------------


def start_of(values):
    def build():
        m = pm.CustomDist(
            "m",
            0.0,
            logp=lambda v, loc: -((v - loc) ** 2),
            support_point=lambda rv, size, loc: pt.as_tensor(values).mean(),
            signature="()->()",
            shape=(),
        )
        pm.Normal("y", m, 1, observed=Y)

    return build


def density_in_a_closure():
    m = pm.CustomDist(
        "m", 0.0, logp=lambda v, loc: -((v - loc - Z.copy()) ** 2).sum(), signature="()->()"
    )
    pm.Normal("y", m, 1, observed=Y)


def transform_in_a_closure():
    lower = pm.distributions.transforms.Interval(bounds_fn=lambda *_: (pt.as_tensor(Z).min(), None))
    scale = pm.Flat("m", default_transform=lower)
    pm.Normal("y", pm.Normal("n", scale, 1), 1, observed=Y)


def shifted(m):
    inside = pt.dscalar()
    return OpFromGraph([inside], [inside + pt.as_tensor(Z).mean()])(m)


def prior_inside_an_operation():
    pm.Normal("y", pm.Normal("m", shifted(pm.Normal("n")), 1), 1, observed=Y)


def likelihood_inside_an_operation():
    pm.Normal("y", shifted(pm.Normal("m")), 1, observed=Y)


def likelihood_inside_a_scan():
    m = pm.Normal("m")
    steps = scan(
        lambda i, m: m + pt.as_tensor(Z)[i],
        sequences=[pt.arange(3)],
        non_sequences=[m],
        return_updates=False,
    )
    pm.Normal("y", steps[-1], 1, observed=Y)


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (start_of(Y), "prior 'm'.*as many entries"),
        (start_of(FLAG), "prior 'm'.*as many entries"),
        (start_of(Z), "prior 'm'.*without a row"),
        (density_in_a_closure, "prior 'm'.*without a row"),
        (transform_in_a_closure, "prior 'm'.*without a row"),
        (prior_inside_an_operation, "prior 'm'.*without a row"),
        (likelihood_inside_an_operation, "likelihood.*without a row"),
        (likelihood_inside_a_scan, "likelihood.*without a row"),
    ],
)
def test_arrays_in_functions_and_operations_are_seen(build, match):
    with pytest.raises(ValueError, match=match):
        likelihood_of(build)


def test_arrays_of_functions_can_be_vouched_for():
    assert likelihood_of(start_of(Z), public_data=["m"]).n_records == N


@pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS")
def test_places_in_arrays_of_pymc_itself_are_no_data():
    with pm.Model() as model:
        spread = pm.Exponential.dist(1.0, size=7)
        packed = pm.LKJCholeskyCov("c", n=7, eta=2, sd_dist=spread, compute_corr=False)
        pm.Normal("y", packed[0], 1, observed=Y)
    assert penalty(model).likelihood.n_records == N


# --- the number of records by name ---------------------------------------------------------------


def named(use):
    with pm.Model(coords={"person": range(N)}) as model:
        n = model.dim_lengths["person"].astype("float64")
        use(n)
    return model


def told_by_a_deterministic(n):
    m = pm.Normal("m")
    pm.Deterministic("told", m / n)
    pm.Normal("y", m, 1, observed=Y, dims="person")


def told_by_a_prior(n):
    pm.Normal("y", pm.Normal("told", n, 1), 1, observed=Y, dims="person")


def told_by_a_potential(n):
    m = pm.Normal("m")
    pm.Potential("told", -m * n)
    pm.Normal("y", m, 1, observed=Y, dims="person")


def told_by_nothing(n):
    pm.Normal("y", pm.Normal("m"), 1, observed=Y, dims="person")


def penalty(model, **kwargs):
    return pmdp.DPPenalty(
        epsilon=1, delta=1e-6, chains=1, clip_logp=3, step_size=0.1, model=model, **kwargs
    )


@pytest.mark.parametrize("use", [told_by_a_deterministic, told_by_a_prior, told_by_a_potential])
def test_a_dimension_does_not_tell_the_number_of_records(use):
    model = named(use)
    assert penalty(model).likelihood.n_records == N
    with pytest.raises(ValueError, match="'told' is made of the number of records"):
        penalty(model, neighbours="add_remove")
    assert penalty(named(told_by_nothing), neighbours="add_remove").likelihood.n_records == N


def test_a_likelihood_does_not_use_the_length_of_a_dimension():
    model = named(lambda n: pm.Normal("y", pm.Normal("m") / n, 1, observed=Y, dims="person"))
    with pytest.raises(ValueError, match="changes with the number of records"):
        penalty(model)
