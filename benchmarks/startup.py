"""CPU seconds from a model to its first draws: empty cache, warm cache, other numbers.

Each model runs in new processes that share a directory of compiled code, empty at first. What
PyMC's NUTS takes for eight schools, in the same way, is beside it. What the README imports (ArviZ,
PyMC, this package) is imported before: what that takes is told apart, with the bytecode that an
installed package has. Other numbers are 0.5 more in what is released and in a prior, so that whole
numbers become real ones.
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


def counties(pm, pmdp, shift):
    rng = np.random.default_rng(21)
    y = rng.poisson(np.exp(rng.normal(2.0, 0.9, 200)))
    y = y + np.round(rng.normal(0, 2, 200)).astype(int) + int(2 * shift)
    with pm.Model() as model:
        mu, tau = pm.Normal("mu", 2 + shift, 1), pm.HalfNormal("tau", 1)
        counts = pm.Poisson("counts", pm.LogNormal("rate", mu, tau, shape=200))
        pmdp.Privatized("cells", counts, pmdp.DiscreteGaussian(sigma=2), observed=y)
    return model


def thresholded(pm, pmdp, shift):
    rng = np.random.default_rng(22)
    trials = rng.integers(20, 400, 40)
    y = rng.binomial(trials, rng.beta(2, 18, 40)) + np.round(rng.normal(0, 5, 40))
    with pm.Model() as model:
        mean, spread = pm.Beta("mean", 1, 1), pm.Gamma("spread", 2 + shift, 0.1)
        p = pm.Beta("p", mean * spread, (1 - mean) * spread, shape=40)
        noise = pmdp.DiscreteGaussian(sigma=5).thresholded(15, dropped=np.nan)
        released = np.where(y < 15, np.nan, y + int(2 * shift))
        pmdp.Privatized("cells", pm.Binomial("counts", trials, p), noise, observed=released)
    return model


def margins(pm, pmdp, shift):
    rng = np.random.default_rng(3)
    true = rng.multinomial(50_000, rng.dirichlet(np.full(24, 2.0))).reshape(2, 3, 4)
    with pm.Model() as model:
        counts = pm.Multinomial("counts", 50_000, pm.Dirichlet("p", np.full(24, 1.0 + shift)))
        table = counts.reshape((2, 3, 4))
        for axes in ((), (1, 2), (0, 2), (0, 1)):
            value = true.sum(axis=axes) if axes else true
            value = value + rng.laplace(0, 40, value.shape) + shift
            statistic = table.sum(axis=axes) if axes else table
            pmdp.Privatized(f"over{axes}", statistic, pmdp.Laplace(scale=40), observed=value)
    return model


MODELS = [
    readme, regression, naive_bayes, gibbs_ss, normal_x, counties, thresholded, margins,
    eight_schools,
]  # fmt: skip


def first_draws(name: str) -> None:
    """Print CPU seconds of a first run, and of another one with other numbers."""
    import arviz  # noqa: F401
    import pymc as pm

    import pymc_dp as pmdp

    [getattr(pmdp, public) for public in pmdp.__all__]  # imported when first used
    build = next(model for model in MODELS if model.__name__ == name)
    for shift in (0, 0.5):
        start = time.process_time()
        with build(pm, pmdp, shift):
            pmdp.sample(20, tune=20, chains=1, cores=1, progressbar=False, random_seed=1)
        print(time.process_time() - start)


def importing(statements: str) -> float:
    """CPU seconds beyond `import pymc`, the least of five, with bytecode on disk."""
    code = (
        f"import time, pymc; start = time.process_time(); {statements};"
        "print(time.process_time() - start)"
    )
    with tempfile.TemporaryDirectory() as folder:
        kept = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": folder}
        return min(float(_run([sys.executable, "-c", code], kept)) for _ in range(5))


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
    every = "import pymc_dp; from pymc_dp import *"
    needed = "import numba; import pytensor.link.numba.dispatch.basic"
    result = "import arviz_base, numpy, xarray; xarray.DataArray(numpy.zeros(2))"
    for what, statements in {
        "import pymc_dp beyond pymc": "import pymc_dp",
        "the same, all names used once": every,
        "of which numba and PyTensor's part for it": needed,
        "a first result of any sampler: ArviZ, xarray and Dask where it is installed": result,
    }.items():
        rows.append({"model": what, "warm": importing(statements)})
    return rows


def _run(command: list[str], variables: dict) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout


if __name__ == "__main__":
    first_draws(sys.argv[1])
