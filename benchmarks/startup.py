"""CPU seconds from a model to its first draws: empty cache, warm cache, other numbers.

Each model runs in new processes that share a directory of compiled code, empty at first. What
PyMC's NUTS takes for eight schools, in the same way, is beside it.
"""

import os
import subprocess
import sys
import tempfile
import time

import numpy as np

Z = [13.1, 15.2, 7.2, -5.0, 10.7]


def readme(pm, pmdp, shift):
    with pm.Model() as model:
        mu = pm.Normal("mu", 7 + shift, 2)
        x = pm.Normal("x", mu, 1.2, shape=200)
        noise = pmdp.Laplace(epsilon=0.5, sensitivity=9)
        pmdp.Privatized("released", pmdp.clamp(x, 3, 12).sum(), noise, observed=1423.7 + shift)
    return model


def regression(pm, pmdp, shift):
    n = 100
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 2, shape=3)
        sigma = pm.HalfNormal("sigma", 1)
        X = pm.Normal("X", 0, 1, shape=(n, 2))
        y = pm.Normal("y", beta[0] + X @ beta[1:], sigma, shape=n)
        Z, w = pmdp.clamp(X, -3, 3) / 3, pmdp.clamp(y, -6, 6) / 6
        noise = pmdp.Laplace(scale=2)
        pmdp.Privatized("xy", Z.T @ w, noise, observed=np.array([10.0, 5.0]) + shift)
        pmdp.Privatized("xx", (Z**2).sum(0), noise, observed=np.array([11.0, 11.0]) + shift)
        pmdp.Privatized("yy", (w**2).sum(), noise, observed=9.0 + shift)
    return model


def naive_bayes(pm, pmdp, shift):
    import pytensor.tensor as pt

    with pm.Model() as model:
        p = pm.Dirichlet("p", np.full(5, 2.0))
        px = pm.Dirichlet("px", np.full((5, 5, 3), 2.0))
        y = pm.Categorical("y", p, shape=100)
        x = pm.Categorical("x", px[y], shape=(100, 5))
        in_class = pt.eq(y[:, None, None, None], np.arange(5)[:, None])
        cells = in_class * pt.eq(x[:, :, None, None], np.arange(3))
        released = np.random.default_rng(1).normal(7, 3, (5, 5, 3)) + shift
        pmdp.Privatized("cells", cells.sum(0), pmdp.Laplace(scale=1.0), observed=released)
    return model


def gibbs_ss(pm, pmdp, shift):
    with pm.Model() as model:
        sigma2 = pm.InverseGamma("sigma2", 3, 0.5)
        theta = pm.Normal("theta", 0, pm.math.sqrt(sigma2), shape=2)
        tau2 = pm.InverseGamma("tau2", 3, 0.5)
        moments = pmdp.regression.NormalMoments(pm.Normal("mu_x", 0, pm.math.sqrt(tau2)), tau2)
        s = pmdp.RegressionStatistics("s", n=50, coef=theta, sigma2=sigma2, x_moments=moments)
        pmdp.Privatized("z", s, pmdp.Laplace(scale=2), observed=np.array(Z) + shift)
    return model


def normal_x(pm, pmdp, shift):
    with pm.Model() as model:
        coef = pm.Normal("coef", 0, 2, shape=2)
        sigma2 = pm.InverseGamma("sigma2", 3, 0.5)
        cov_x = pmdp.regression.InverseWishart("cov_x", nu=4, psi=np.eye(2))
        [holder] = pmdp.HolderStatistics("h", n=400, coef=coef, sigma2=sigma2, cov_x=cov_x)
        released = np.array([64.0, 3.0, 70.0, 60.0, -30.0]) + shift
        pmdp.Privatized("release", holder, pmdp.Gaussian(sigma=9), observed=released)
    return model


def eight_schools(pm, pmdp, shift):
    effects = np.array([28, 8, -3, 7, -1, 1, 18, 12.0]) + shift
    with pm.Model() as model:
        mu, tau = pm.Normal("mu", 0, 5), pm.HalfCauchy("tau", 5)
        theta = pm.Normal("theta", 0, 1, shape=8)
        errors = np.array([15, 10, 16, 11, 9, 11, 10, 18.0])
        pm.Normal("y", mu + tau * theta, errors, observed=effects)
    return model


MODELS = [readme, regression, naive_bayes, gibbs_ss, normal_x, eight_schools]


def first_draws(name: str) -> None:
    """Print CPU seconds of a first run, and of another one with other numbers."""
    import pymc as pm

    import pymc_dp as pmdp

    build = next(model for model in MODELS if model.__name__ == name)
    for shift in (0, 0.5):
        start = time.process_time()
        with build(pm, pmdp, shift):
            pmdp.sample(20, tune=20, chains=1, cores=1, progressbar=False, random_seed=1)
        print(time.process_time() - start)


def importing() -> float:
    code = (
        "import time, pymc; start = time.process_time(); import pymc_dp;"
        "print(time.process_time() - start)"
    )
    return min(float(_run([sys.executable, "-c", code], {})) for _ in range(5))


def main() -> list[dict]:
    rows = []
    names = sys.argv[2:] or [model.__name__ for model in MODELS]
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            cached = {"PYTENSOR_FLAGS": f"base_compiledir={folder}", "NUMBA_CACHE_DIR": folder}
            command = [sys.executable, "-m", "benchmarks.startup", name]
            empty, other = map(float, _run(command, cached).split())
            warm, _ = map(float, _run(command, cached).split())
        rows.append({"model": name, "empty": empty, "warm": warm, "other numbers": other})
        print(rows[-1], flush=True)
    rows.append({"model": "import pymc_dp beyond pymc", "warm": importing()})
    return rows


def _run(command: list[str], variables: dict) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout


if __name__ == "__main__":
    first_draws(sys.argv[1])
