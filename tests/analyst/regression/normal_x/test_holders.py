"""HolderStatistics: densities against SciPy, what NormalX takes, and messages."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy import stats

import pymc_dp as pmdp
from pymc_dp.analyst.regression.normal_x.wishart import (
    CrossProductRV,
    GramRV,
    GramTransform,
    ResidualTransform,
)
from pymc_dp.graph.intervals import ONCE

COV = np.array([[2.0, 0.3], [0.3, 1.0]])
MEAN = np.array([1.0, -2.0])


def test_gram_density_is_wishart():
    S = np.array([stats.wishart(n, COV).rvs(random_state=n) for n in (5, 9)])
    rv = GramRV.rv_op(pt.as_tensor([5.0, 9.0]), pt.zeros(2), pt.as_tensor(COV), 0)
    expected = sum(stats.wishart(n, COV).logpdf(s) for n, s in zip((5, 9), S, strict=True))
    assert pm.logp(rv, S).eval(mode=ONCE) == pytest.approx(expected)


def test_gram_density_with_intercept():
    n = 9
    X = np.random.default_rng(1).multivariate_normal(MEAN, COV, n)
    X = np.hstack([X, np.ones((n, 1))])
    S = X.T @ X
    mean = S[2, :2] / n
    scatter = S[:2, :2] - n * np.outer(mean, mean)
    # n mean and scatter + n mean mean': the first has Jacobian n^2, the second 1
    expected = stats.wishart(n - 1, COV).logpdf(scatter) - 2 * np.log(n)
    expected += stats.multivariate_normal(MEAN, COV / n).logpdf(mean)
    rv = GramRV.rv_op(pt.as_tensor([9.0]), pt.as_tensor(MEAN), pt.as_tensor(COV), 1)
    assert pm.logp(rv, S[None]).eval(mode=ONCE) == pytest.approx(expected)


def test_cross_product_density():
    S = np.array([stats.wishart(n, COV).rvs(random_state=n) for n in (5, 9)])
    coef, z = np.array([1.0, 0.5]), np.array([[3.0, -1.0], [8.0, 2.0]])
    rv = CrossProductRV.rv_op(pt.as_tensor(S), pt.as_tensor(coef), pt.as_tensor(0.3))
    laws = [stats.multivariate_normal(s @ coef, 0.3 * s) for s in S]
    expected = sum(law.logpdf(v) for law, v in zip(laws, z, strict=True))
    assert pm.logp(rv, z).eval(mode=ONCE) == pytest.approx(expected)


def declare(n=(50, 80), d=2, cov_x=None, intercept=False, **kwargs):
    coef = kwargs.pop("coef", None)
    coef = pm.Normal("coef", 0, 2, shape=d + intercept) if coef is None else coef
    sigma2 = kwargs.pop("sigma2", None)
    sigma2 = pm.InverseGamma("sigma2", 3, 1) if sigma2 is None else sigma2
    if cov_x is None:
        cov_x = pmdp.regression.InverseWishart("cov_x", nu=d + 2, psi=np.eye(d))
    mean_x = pm.MvNormal("mean_x", np.zeros(d), cov=cov_x / 2) if intercept else None
    return pmdp.HolderStatistics(
        "h", n=n, coef=coef, sigma2=sigma2, cov_x=cov_x, mean_x=mean_x, **kwargs
    )


def release(statistics, mechanism=None):
    for j, statistic in enumerate(statistics):
        size = statistic.type.shape[0] or len(statistic.eval(mode=ONCE))
        mech = pmdp.Gaussian(sigma=5) if mechanism is None else mechanism
        pmdp.Privatized(f"r{j}", statistic, mech, observed=np.arange(1.0, size + 1))


def taken(model):
    """Names of the variables that pm.sample would give to NormalX."""
    with model:
        return {rv.name for rv in model.free_RVs if pmdp.NormalX.competence(rv) > 0}


@pytest.mark.parametrize("intercept", [False, True])
def test_conjugate_parameters_are_taken(intercept):
    with pm.Model() as model:
        release(declare(intercept=intercept))
    expected = {"h_S", "h_z", "coef", "sigma2", "cov_x"} | ({"mean_x"} if intercept else set())
    assert taken(model) == expected


def test_other_priors_are_left_to_nuts():
    with pm.Model() as model:
        coef = pm.StudentT("coef", nu=4, mu=0, sigma=1, shape=2)
        sigma = pm.HalfNormal("sigma", 1)
        _, corr, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.HalfNormal.dist(1, size=2))
        release(declare(coef=coef, sigma2=sigma**2, cov_x=corr))
    assert taken(model) == {"h_S", "h_z"}


def test_parameters_with_another_use_are_left_to_nuts():
    with pm.Model() as model:
        coef = pm.Normal("coef", 0, 2, shape=2)
        release(declare(coef=coef))
        pm.Normal("survey", coef[0], 0.1, observed=1.0)
    assert taken(model) == {"h_S", "h_z", "sigma2", "cov_x"}


def test_few_records_are_refused():
    with pm.Model(), pytest.raises(ValueError, match=r"Holder 1 of 'h' has n = 1 records and 2"):
        declare(n=(50, 1))


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"n": (50, 7.5)}, "whole numbers"),
        ({"n": []}, "one a holder"),
        ({"sigma2": -1.0}, "is a variance and must be positive"),
        ({"cov_x": np.array([[1.0, 2.0], [2.0, 1.0]])}, "symmetric and positive definite"),
        ({"coef": np.ones(3)}, r"expected \(2,\): 2 slopes"),
        ({"sigma2": np.ones(2)}, "one variance"),
        ({"cov_x": np.array(2.0)}, r"write \[\[variance\]\]"),
        ({"cov_x": np.ones((2, 3))}, "square"),
    ],
)
def test_bad_declarations_say_what_to_write(kwargs, message):
    with pm.Model(), pytest.raises(ValueError, match=message):
        declare(**kwargs)


def test_releases_of_different_sizes_are_refused():
    with pm.Model():
        statistics = declare()
        with pytest.raises(ValueError, match="shape"):
            pmdp.Privatized("r", statistics[0], pmdp.Gaussian(sigma=5), observed=np.ones(9))


def test_missing_releases_are_named():
    with pm.Model():
        release(declare()[:1])
        with pytest.raises(ValueError, match=r"Not every entry of 'h_z' was released"):
            pmdp.NormalX()


def test_entries_released_twice_are_named():
    with pm.Model():
        statistics = declare()
        release(statistics)
        pmdp.Privatized("again", statistics[0][:1], pmdp.Gaussian(sigma=5), observed=[2.0])
        with pytest.raises(ValueError, match=r"'again' releases an entry of 'h_S'"):
            pmdp.NormalX()


def test_whole_matrices_are_refused():
    """Both triangles with noise of their own: not symmetric, and two looks at one number."""
    with pm.Model() as model:
        declare(n=50)
        asymmetric = np.array([[50.0, 3.0], [5.0, 60.0]])
        pmdp.Privatized("S", model["h_S"][0], pmdp.Gaussian(sigma=5), observed=asymmetric)
        pmdp.Privatized("z", model["h_z"][0], pmdp.Gaussian(sigma=5), observed=[20.0, 30.0])
        with pytest.raises(ValueError, match=r"'S' holds an entry twice; X'X is symmetric"):
            pmdp.NormalX()


def test_latent_multiples_of_the_statistics_are_refused():
    with pm.Model():
        unit = pm.LogNormal("unit", 0, 1)
        release([statistic * unit for statistic in declare()])
        with pytest.raises(ValueError, match=r"'r0' depends on 'unit' besides"):
            pmdp.NormalX()


def test_functions_of_the_statistics_are_refused():
    with pm.Model():
        release([statistic.sum()[None] for statistic in declare()])
        with pytest.raises(ValueError, match=r"'r0' is not made of entries"):
            pmdp.NormalX()


def test_parts_and_multiples_are_read(made_only):
    with pm.Model():
        statistics = declare(n=50)
        pmdp.Privatized("z", 2 * statistics[0][3:], pmdp.Gaussian(sigma=4), observed=[20.0, 30.0])
        pmdp.Privatized("S", statistics[0][:3], pmdp.Laplace(scale=3), observed=[50.0, 5.0, 60.0])
        step = pmdp.NormalX()
    np.testing.assert_allclose(step.releases.z_hat, [[10, 15]])
    np.testing.assert_allclose(step.releases.z_noise, [[2, 2]])
    np.testing.assert_allclose(step.releases.S_hat, [[[50, 5], [5, 60]]])
    assert step.releases.S_laplace.all()
    assert not step.releases.z_laplace.any()


def test_other_mechanisms_are_named():
    with pm.Model():
        release(declare(n=50), pmdp.Gaussian(sigma=3).rounded(1))
        with pytest.raises(ValueError, match=r"'r0' has Gaussian.*rounded.*step=pm.NUTS"):
            pmdp.NormalX()


def test_bad_steps_are_explained():
    with pm.Model() as model:
        release(declare(intercept=True))
        with pytest.raises(ValueError, match='use move="hamiltonian"'):
            pmdp.NormalX(move="wishart")
        with pytest.raises(ValueError, match='"hamiltonian" or "wishart"'):
            pmdp.NormalX(move="walk")
        with pytest.raises(ValueError, match=r"'h_S' and 'h_z' together"):
            pmdp.NormalX([model["h_S"]])
    with pm.Model() as model:
        release(declare(coef=pm.StudentT("coef", nu=4, mu=0, sigma=1, shape=2)))
        with pytest.raises(ValueError, match="NormalX cannot move 'coef'"):
            pmdp.NormalX([model["h_S"], model["h_z"], model["coef"]])


def test_models_are_explained():
    with pm.Model() as model:
        release(declare())
    found = pmdp.explain(model)
    assert set(found.steps.values()) == {"NormalX"}
    assert found.latent["r1"] == "Gaussian(sigma=5.) on entries of h_S, h_z"
    assert not found.problems
    assert "r1: Gaussian(sigma=5.) on" in repr(found)


def test_synthetic_releases_follow_the_model():
    """Prior predictive draws; false-alarm rate below 1e-4 (two means at 4.2 standard errors)."""
    with pm.Model():
        (one,) = declare(n=50, coef=np.array([1.0, -2.0]), sigma2=0.5, cov_x=COV)
        pmdp.Privatized("r", one, pmdp.Gaussian(sigma=4))
        draws = pm.sample_prior_predictive(
            400, random_seed=1, compile_kwargs={"mode": ONCE}
        ).prior.r.to_numpy()[0]
    expected = 50 * np.concatenate([COV[np.triu_indices(2)], COV @ [1.0, -2.0]])
    for k in (0, 3):
        error = draws[:, k].std() / np.sqrt(len(draws))
        assert abs(draws[:, k].mean() - expected[k]) < 4.2 * error


def test_sample_leaves_matrices_out():
    with pm.Model():
        release(declare(n=50))
        quick = {"chains": 1, "cores": 1, "progressbar": False, "quiet": True}
        idata = pmdp.sample(5, tune=5, random_seed=1, compute_convergence_checks=False, **quick)
    assert set(idata.posterior.data_vars) == {"coef", "sigma2", "cov_x"}
    assert "accept" in idata.sample_stats


def test_new_data_are_read_by_an_old_step():
    with pm.Model():
        data = pm.Data("data", np.array([50.0, 5.0, 60.0, 20.0, 30.0]))
        pmdp.Privatized("r", declare(n=50)[0], pmdp.Gaussian(sigma=4), observed=data)
        step = pmdp.NormalX()
        pm.set_data({"data": np.array([70.0, 7.0, 80.0, 1.0, 2.0])})
        step.setup_chain(np.random.default_rng(1), 5, 5)
    np.testing.assert_allclose(step.releases.S_hat, [[[70, 7], [7, 80]]])
    np.testing.assert_allclose(step.releases.z_hat, [[1, 2]])


def test_intercept_is_first_inside(made_only):
    with pm.Model():
        statistics = declare(n=50, d=1, intercept=True)
        # x*x, x, x*y, y
        pmdp.Privatized(
            "r", statistics[0], pmdp.Gaussian(sigma=[1.0, 2, 3, 4]), observed=[9.0, 8, 7, 6]
        )
        step = pmdp.NormalX()
    np.testing.assert_allclose(step.releases.S_hat, [[[0, 8], [8, 9]]])
    np.testing.assert_allclose(step.releases.S_noise, [[[0, 2], [2, 1]]])
    np.testing.assert_allclose(step.releases.z_hat, [[6, 7]])
    np.testing.assert_allclose(step.releases.z_noise, [[4, 3]])


@pytest.mark.parametrize("first", [0, 1])
def test_values_for_nuts_have_the_right_jacobian(first):
    """Against finite differences of the unique entries that vary."""
    holders, p = 2, 2 + first
    n, mean, cov = pt.as_tensor([9.0, 20.0]), pt.as_tensor(MEAN), pt.as_tensor(COV)
    inputs = None, n, mean, cov
    transform = GramTransform(holders, p, first)
    size = holders * (p * (p + 1) // 2 - first)
    value = pt.dvector("value")
    S = transform.backward(value, *inputs)
    back = transform.forward(S, *inputs)
    outputs = [S, back, transform.log_jac_det(value, *inputs)]
    evaluate = pytensor.function([value], outputs, mode=ONCE)
    start = np.random.default_rng(1).standard_normal(size)
    _, again, found = evaluate(start)
    np.testing.assert_allclose(again, start, atol=1e-9)
    i, k = np.triu_indices(p)
    vary = ~((i == p - 1) & (k == p - 1)) if first else i >= 0

    def entries(x):
        return evaluate(x)[0][:, i[vary], k[vary]].ravel()

    steps = 1e-5 * np.eye(size)
    slopes = [(entries(start + s) - entries(start - s)) / 2e-5 for s in steps]
    assert found == pytest.approx(np.linalg.slogdet(np.array(slopes))[1], rel=1e-6)


def test_residuals_have_the_right_jacobian():
    S = np.array([stats.wishart(n, COV).rvs(random_state=n) for n in (5, 9)])
    inputs = None, pt.as_tensor(S), pt.as_tensor([1.0, 0.5]), pt.as_tensor(0.3)
    found = ResidualTransform().log_jac_det(pt.zeros((2, 2)), *inputs).eval(mode=ONCE)
    assert found == pytest.approx(sum(np.linalg.slogdet(0.3 * s)[1] / 2 for s in S))
