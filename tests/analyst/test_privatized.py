"""`Privatized` is an ordinary PyMC variable, and refuses what cannot be meant."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.model_graph import ModelGraph
from scipy import stats

import pymc_dp as pmdp
from pymc_dp.analyst.records import record_variables
from pymc_dp.graph.intervals import ONCE
from tests.checks import assert_same_distribution


def small_model(observed=3.0, **kwargs):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 2)
        x = pm.Normal("x", mu, 1, shape=5)
        pmdp.Privatized(
            "s", pmdp.clamp(x, -2, 2).sum(), pmdp.Laplace(scale=1.5), observed=observed, **kwargs
        )
    return model


def test_large_counts_are_not_cut_off():
    """PyMC would store observed integers in 32 bits."""
    released = np.array([10**15, 5])
    with pm.Model() as model:
        counts = pm.Poisson("counts", 1e9, shape=2)
        cells = pmdp.Privatized("cells", counts, pmdp.DiscreteGaussian(sigma=2), observed=released)
    assert model.rvs_to_values[cells].eval(mode=ONCE).tolist() == released.tolist()


def test_log_density_of_the_model():
    model = small_model()
    x = np.array([0.1, -3.0, 1.0, 2.5, 0.2])
    expected = (
        stats.norm.logpdf(0.3, 0, 2)
        + stats.norm.logpdf(x, 0.3, 1).sum()
        + stats.laplace.logpdf(3.0, np.clip(x, -2, 2).sum(), 1.5)
    )
    assert model.compile_logp(mode=ONCE)({"mu": 0.3, "x": x}) == pytest.approx(expected)


def test_prior_predictive_draws_a_release():
    with small_model(observed=None):
        prior = pm.sample_prior_predictive(4000, random_seed=1, compile_kwargs={"mode": ONCE}).prior
    noise = prior["s"] - prior["x"].clip(-2, 2).sum("x_dim_0")
    # false-alarm rate 1e-5
    assert stats.kstest(noise.values.ravel(), stats.laplace(scale=1.5).cdf).pvalue > 1e-5


def test_posterior_predictive_and_set_data(made_only):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 2)
        x = pm.Normal("x", mu, 1, shape=5)
        released = pm.Data("released", 3.0)
        pmdp.Privatized("s", x.sum(), pmdp.Gaussian(sigma=1), observed=released)
        idata = pmdp.sample(
            200, tune=100, chains=1, cores=1, random_seed=1, quiet=True, progressbar=False
        )
        once = {"progressbar": False, "compile_kwargs": {"mode": ONCE}}
        predicted = pm.sample_posterior_predictive(idata, random_seed=1, **once)
        assert predicted.posterior_predictive["s"].shape == (1, 200)
        before = model.compile_logp(mode=ONCE)(model.initial_point())
        pm.set_data({"released": 50.0})
        assert model.compile_logp(mode=ONCE)(model.initial_point()) < before


@pytest.mark.wide
def test_nuts_over_all_latents_agrees():
    # false-alarm rate 1e-5
    n, released, sigma = 5, 3.0, 2.0
    with pm.Model():
        mu = pm.Normal("mu", 0, 2)
        x = pm.Normal("x", mu, 1, shape=n)
        pmdp.Privatized("s", x.sum(), pmdp.Gaussian(sigma=sigma), observed=released)
        posterior = pm.sample(
            2000, chains=2, cores=1, step=pm.NUTS(), random_seed=1, quiet=True, progressbar=False
        ).posterior
    precision = 1 / 4 + n**2 / (n + sigma**2)
    mean = n * released / (n + sigma**2) / precision
    assert_same_distribution(posterior["mu"].values, stats.norm(mean, precision**-0.5).cdf)


def test_shows_in_graphs_and_text():
    model = small_model()
    assert "s ~ PrivatizedLaplace(f(x))" in model.str_repr()
    assert ("x", "s") in [
        (parent, child)
        for child, parents in ModelGraph(model).make_compute_graph().items()
        for parent in parents
    ]


def test_vector_and_matrix_releases_with_dims():
    with pm.Model(coords={"row": ["a", "b"], "column": [0, 1]}) as model:
        x = pm.Normal("x", 0, 1, shape=(6, 2))
        vector = pmdp.Privatized(
            "vector", x.sum(0), pmdp.Laplace(scale=1), observed=[1, 2], dims="row"
        )
        matrix = pmdp.Privatized(
            "matrix", x.T @ x, pmdp.Gaussian(sigma=np.ones((2, 2))), dims=("row", "column")
        )
    assert vector.type.shape == (2,)
    assert matrix.type.ndim == 2
    assert model.named_vars_to_dims["matrix"] == ("row", "column")
    assert matrix in model.free_RVs


def test_integer_statistics_and_releases():
    with pm.Model() as model:
        x = pm.Bernoulli("x", 0.5, shape=4)
        pmdp.Privatized("s", x.sum(), pmdp.Laplace(scale=100), observed=2)
    assert np.isfinite(model.compile_logp(mode=ONCE)({"x": np.array([1, 0, 1, 1])}))


def test_models_made_from_this_one_keep_their_records():
    model = small_model()
    assert [rv.name for rv in record_variables(model)] == ["x"]
    assert [rv.name for rv in record_variables(model.copy())] == ["x"]
    assert [rv.name for rv in record_variables(pm.do(model, {"mu": 1.0}))] == ["x"]


def test_noise_on_every_record_is_left_to_pymc():
    with pm.Model() as model:
        theta = pm.Normal("theta", 0, 1, shape=3)
        pmdp.Privatized("s", 10 * theta, pmdp.Gaussian(sigma=1), observed=[1, 2, 3])
    assert record_variables(model) == []


def test_clamp():
    counts = pmdp.clamp(pt.as_tensor(np.array([1, 200, 9000])), 0, 1000)
    assert counts.dtype == "int64"
    assert counts.sum().eval(mode=ONCE) == 1201
    assert pmdp.clamp(pt.as_tensor([0.5, -9.0]), -2, 2).eval(mode=ONCE).tolist() == [0.5, -2.0]
    np.testing.assert_allclose(
        pmdp.clamp(np.ones((2, 2)) * 5, [0, 0], [1, 2]).eval(mode=ONCE), [[1, 2]] * 2
    )
    with pytest.raises(ValueError, match="lower < upper"):
        pmdp.clamp(np.ones(3), 2, 1)
    with pytest.raises(ValueError, match="whole numbers"):
        pmdp.clamp(np.ones(3, dtype=int), 0, 1.5)


def bad_model(build):
    with pm.Model():
        mu = pm.Normal("mu")
        build(mu)


LAPLACE = pmdp.Laplace(scale=1)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda mu: pmdp.Privatized("s", pt.as_tensor(np.ones(3)).sum(), LAPLACE, observed=1),
            "No record variable reaches the statistic of 's'",
        ),
        (
            lambda mu: pmdp.Privatized(
                "s", pm.Normal("x", mu, 1, observed=np.ones(3)).sum(), LAPLACE, observed=1
            ),
            "'x'.*drop observed=",
        ),
        (
            lambda mu: pmdp.Privatized(
                "s", pm.Normal("x", mu, 1, shape=3).sum(), LAPLACE, observed=[1, 2]
            ),
            r"'s' has shape \(2,\).*shape \(\)",
        ),
        (
            lambda mu: pmdp.Privatized(
                "s", pm.Normal("x", mu, 1, shape=3).sum(), LAPLACE, observed=np.nan
            ),
            "'s' has NaN or infinite",
        ),
        (
            lambda mu: pmdp.Privatized(
                "s", pm.Normal("x", mu, 1, shape=3).sum(), LAPLACE, observed=np.inf
            ),
            "'s' has NaN or infinite",
        ),
        (
            lambda mu: pmdp.Privatized(
                "s",
                pm.Normal("x", mu, 1, shape=3).sum(),
                LAPLACE,
                observed=pm.Data("d", np.array([2.0, 1.0])),
            ),
            r"'s' has shape \(2,\)",
        ),
        (
            lambda mu: pmdp.Privatized(
                "s",
                pm.Normal("x", mu, 1, shape=3).sum(),
                LAPLACE,
                observed=np.ma.masked_array(1.0, mask=True),
            ),
            "'s' is masked",
        ),
        (
            lambda mu: pmdp.Privatized(
                "s", pm.Normal("x", mu, 1, shape=3).sum(), pmdp.Laplace(scale=[1, 2]), observed=1
            ),
            "one for every component",
        ),
        (
            lambda mu: pmdp.Privatized(
                "s", pm.Normal("x", mu, 1, shape=0).sum(), LAPLACE, observed=1
            ),
            "'x' has no records",
        ),
    ],
)
def test_bad_input(build, message):
    with pytest.raises(ValueError, match=message):
        bad_model(build)


def test_a_mechanism_is_needed():
    with pytest.raises(TypeError, match=r"pmdp\.Laplace\(scale=10\)"):
        bad_model(lambda mu: pmdp.Privatized("s", pm.Normal("x", mu, 1, shape=3).sum(), 10))


def test_a_random_number_of_records_is_refused():
    with pm.Model():
        n = pm.Poisson("n", 10)
        x = pm.Normal("x", 0, 1, shape=n)
        with pytest.raises(ValueError, match=r"shape of 'x'.* is random"):
            pmdp.Privatized("r", pmdp.clamp(x, 0, 1).sum(), pmdp.Laplace(scale=1), observed=3.0)
        fixed = pm.Data("fixed", np.int64(5))
        y = pm.Normal("y", 0, 1, shape=fixed)
        pmdp.Privatized("s", pmdp.clamp(y, 0, 1).sum(), pmdp.Laplace(scale=1), observed=3.0)


def test_a_density_of_nothing_but_release_and_statistic():
    def build(used):
        pmdp.Privatized(
            "s",
            pm.Normal("x", 0, 1, shape=3).sum(),
            pmdp.CustomMechanism(logp=lambda r, s: -abs(r - s) / used, shape=()),
            observed=1.0,
        )

    with pytest.raises(ValueError, match="density of 's' uses 'mu' besides"):
        bad_model(lambda mu: build(pt.exp(mu)))
    with pytest.raises(ValueError, match=r"density of 's' uses 'scale' besides.*plain arrays"):
        bad_model(lambda mu: build(pm.Data("scale", 2.0)))
    bad_model(lambda mu: build(np.float64(2.0)))
