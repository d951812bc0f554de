"""NormalX against quadrature, an independent reference, latent records and NUTS."""

import arviz as az
import numpy as np
import pymc as pm
import pytest

import pymc_dp as pmdp
from tests.checks import assert_mean_and_sd, assert_same_distribution
from tests.oracles import gram
from tests.sampling import draw, values

RATE = 1e-5  # false-alarm rate of each comparison, all seeds fixed


def one_feature(mechanism, observed=(40.0, 30.0), n=60):
    with pm.Model() as model:
        coef = pm.Normal("coef", 0, 1.5, shape=1)
        sigma2 = pm.InverseGamma("sigma2", 3, 1)
        cov_x = pmdp.regression.InverseWishart("cov_x", nu=4, psi=[[2.0]])
        (one,) = pmdp.HolderStatistics("h", n=n, coef=coef, sigma2=sigma2, cov_x=cov_x)
        pmdp.Privatized("r", one, mechanism, observed=observed)
    return model


@pytest.mark.wide_except("laplace")
@pytest.mark.parametrize(
    "mechanism",
    [pmdp.Gaussian(sigma=12), pmdp.DiscreteLaplace(scale=9)],
    ids=["gaussian", "laplace"],
)
def test_one_feature_is_exact(mechanism):
    laplace = "Laplace" in type(mechanism).__name__
    exact = gram.one_feature(60, 4, 2, 1.5, 3, 1, 40, 30, float(mechanism.noise), laplace)
    observed = np.array([40, 30]) if "Discrete" in type(mechanism).__name__ else [40.0, 30.0]
    model = one_feature(mechanism, observed)
    posterior = draw(model, 4000, var_names=["coef", "sigma2", "h_S"])
    for name, key in (("coef", "theta"), ("sigma2", "sigma2"), ("h_S", "S")):
        found = values(posterior, name).reshape(2, -1)
        assert_same_distribution(found, gram.cdf(*exact[key]), RATE)


def reference_model():
    """Release of `normalX_d2_J1`: n = 1000, bounds 1 and 1.5, epsilon 1, delta 0.001."""
    released = [110.24482622, 44.37413742, 60.74331745, 107.20476241, 21.15876327]
    with pm.Model() as model:
        coef = pm.Normal("coef", 0, 2, shape=2)
        sigma2 = pm.InverseGamma("sigma2", 3, 0.3)
        cov_x = pmdp.regression.InverseWishart("cov_x", nu=5, psi=0.3 * np.eye(2))
        (one,) = pmdp.HolderStatistics("h", n=1000, coef=coef, sigma2=sigma2, cov_x=cov_x)
        pmdp.Privatized("r", one, pmdp.Gaussian(sigma=7.737369107708612), observed=released)
    return model


# an affine-invariant ensemble sampler of the model with Sigma_x integrated out, 120 walkers times
# 20000 (reference file normalX_d2_J1): mean, sd, effective draws
REFERENCE = {
    "coef_0": (1.19575, 0.21686, 23939),
    "coef_1": (-0.50379, 0.32666, 23229),
    "S_00": (109.18895, 7.62274, 25819),
    "S_01": (42.52522, 7.06169, 24401),
    "S_11": (60.17881, 7.30668, 25752),
}
SIGMA2_QUANTILES = {0.05: 0.04758, 0.25: 0.07640, 0.5: 0.11210, 0.75: 0.17378, 0.95: 0.36475}


@pytest.mark.wide
def test_reference_with_two_features():
    posterior = draw(reference_model(), 5000, var_names=["coef", "sigma2", "h_S"])
    coef, S = values(posterior, "coef"), values(posterior, "h_S")[:, :, 0]
    found = {"coef_0": coef[..., 0], "coef_1": coef[..., 1]}
    found |= {"S_00": S[..., 0, 0], "S_01": S[..., 0, 1], "S_11": S[..., 1, 1]}
    for name, (mean, sd, size) in REFERENCE.items():
        errors = {"mean_error": sd / np.sqrt(size), "sd_error": sd / np.sqrt(size)}
        assert_mean_and_sd(found[name], mean, sd, RATE, **errors)
    sigma2 = values(posterior, "sigma2")
    size = min(float(az.ess(sigma2)), 39475)
    for level, point in SIGMA2_QUANTILES.items():
        error = np.sqrt(level * (1 - level) * (1 / size + 1 / 39475))
        assert abs((sigma2 <= point).mean() - level) < 4.8 * error
    assert float(az.rhat(coef[..., 1])) < 1.01
    assert float(az.ess(coef[..., 1])) > 2000  # the Wishart move has about 30


N_RECORDS = 30


def records(intercept):
    """The same release, of latent records."""
    with pm.Model() as model:
        coef = pm.Normal("coef", 0, 1, shape=2)
        sigma2 = pm.InverseGamma("sigma2", 4, 2)
        if intercept:
            cov_x = pmdp.regression.InverseWishart("cov_x", nu=5, psi=[[3.0]])
            mean_x = pm.MvNormal("mean_x", np.zeros(1), cov=cov_x / 2)
        else:
            cov_x = pmdp.regression.InverseWishart("cov_x", nu=6, psi=3 * np.eye(2))
            mean_x = np.zeros(2)
    return model, coef, sigma2, cov_x, mean_x


@pytest.mark.calibrate
@pytest.mark.parametrize("intercept", [False, True])
def test_agrees_with_latent_records(intercept):
    d = 1 if intercept else 2
    released = [40.0, 21.0, 50.0, 28.0] if intercept else [22.0, 9.0, 20.0, 14.0, 18.0]
    noise = pmdp.Gaussian(sigma=6)
    model, coef, sigma2, cov_x, mean_x = records(intercept)
    with model:
        mean = mean_x if intercept else None
        (one,) = pmdp.HolderStatistics(
            "h", n=N_RECORDS, coef=coef, sigma2=sigma2, cov_x=cov_x, mean_x=mean
        )
        pmdp.Privatized("r", one, noise, observed=released)
    ours = draw(model, 4000, var_names=["coef", "sigma2", "cov_x"])

    model, coef, sigma2, cov_x, mean_x = records(intercept)
    with model:
        if intercept:
            x = pm.Normal("x", mean_x[0], cov_x[0, 0] ** 0.5, shape=(N_RECORDS, 1))
        else:
            x = pm.MvNormal("x", mean_x, cov=cov_x, shape=(N_RECORDS, 2))
        mu = (x * coef[:d]).sum(axis=1) + (coef[d] if intercept else 0)
        y = pm.Normal("y", mu, sigma2**0.5, shape=N_RECORDS)
        statistic = pmdp.regression_statistics(x, y, intercept=intercept, parts=("xx", "xy"))
        pmdp.Privatized("r", statistic, noise, observed=released)
    latent = draw(model, 4000)
    for name in ("coef", "sigma2"):
        for k in range(np.atleast_3d(values(ours, name)).shape[-1]):
            a, b = (np.atleast_3d(values(p, name))[..., k] for p in (ours, latent))
            a, b = (np.log(v) if name == "sigma2" else v for v in (a, b))
            size = max(float(az.ess(b)) - 3 * np.sqrt(12 * float(az.ess(b))), 50)
            errors = {"mean_error": b.std() / np.sqrt(size), "sd_error": b.std() / np.sqrt(size)}
            assert_mean_and_sd(a, b.mean(), b.std(), RATE, **errors)


@pytest.mark.calibrate
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_other_priors_agree_with_nuts():
    """Two holders that differ in n and noise, no conjugate prior at all; 1e-5 a comparison."""
    with pm.Model() as model:
        coef = pm.StudentT("coef", nu=5, mu=0, sigma=1, shape=2)
        sigma = pm.HalfNormal("sigma", 1)
        sd_dist = pm.HalfNormal.dist(1, size=2)
        chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=sd_dist)
        holders = pmdp.HolderStatistics(
            "h", n=[40, 70], coef=coef, sigma2=sigma**2, cov_x=chol @ chol.T
        )
        pmdp.Privatized("r0", holders[0], pmdp.Gaussian(sigma=5), observed=[30.0, 9, 25, 22, 3])
        pmdp.Privatized("r1", holders[1], pmdp.Gaussian(sigma=9), observed=[60.0, 12, 41, 50, -9])
        step = pmdp.NormalX([model["h_S"], model["h_z"]])
    names = ["coef", "sigma", "chol"]
    ours = draw(model, 4000, step=[step], var_names=names)
    nuts = draw(model, 3000, step=pm.NUTS(model=model, target_accept=0.9), var_names=names)
    for name in names:
        for k in range(np.atleast_3d(values(ours, name)).shape[-1]):
            a, b = (np.atleast_3d(values(p, name))[..., k] for p in (ours, nuts))
            size = max(float(az.ess(b)) - 3 * np.sqrt(12 * float(az.ess(b))), 50)
            errors = {"mean_error": b.std() / np.sqrt(size), "sd_error": b.std() / np.sqrt(size)}
            assert_mean_and_sd(a, b.mean(), b.std(), RATE, **errors)


@pytest.mark.calibrate
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_agrees_with_gibbs_ss_for_many_records():
    """Two holders without y'y; the normal law of S is within a tenth of an sd at these n."""
    releases = [40.0, 12.0, 30.0, 35.0, -3.0], [50.0, 10.0, 44.0, 45.0, -12.0]
    counts, noise = (4000, 6000), (6.0, 8.0)
    found = {}
    for method in ("NormalX", "GibbsSS"):
        with pm.Model() as model:
            coef = pm.Normal("coef", 0, 2, shape=2)
            sigma2 = pm.InverseGamma("sigma2", 3, 0.01)
            cov_x = pmdp.regression.InverseWishart("cov_x", nu=4, psi=0.02 * np.eye(2))
            if method == "NormalX":
                law = {"coef": coef, "sigma2": sigma2, "cov_x": cov_x}
                statistics = pmdp.HolderStatistics("h", n=counts, **law)
            else:
                law = {"coef": coef, "sigma2": sigma2, "intercept": False}
                law["x_moments"] = pmdp.regression.NormalMoments(np.zeros(2), cov_x)
                statistics = [
                    pmdp.RegressionStatistics(f"s{j}", n=n, **law)[:-1]
                    for j, n in enumerate(counts)
                ]
            for j, (statistic, sd) in enumerate(zip(statistics, noise, strict=True)):
                mechanism = pmdp.Gaussian(sigma=sd)
                pmdp.Privatized(f"r{j}", statistic, mechanism, observed=np.array(releases[j]))
            assert set(pmdp.explain(model).steps.values()) == {method}
        found[method] = values(draw(model, 1500, var_names=["coef", "cov_x"]), "coef")
    for k in range(2):
        one, two = found["NormalX"][..., k], found["GibbsSS"][..., k]
        size = min(float(az.ess(one)), float(az.ess(two)))
        # 4.5 standard errors, and a tenth of an sd for the approximation
        allowed = one.std() * (4.5 * np.sqrt(2 / size) + 0.1)
        assert abs(one.mean() - two.mean()) < allowed
        assert abs(one.std() - two.std()) < allowed
