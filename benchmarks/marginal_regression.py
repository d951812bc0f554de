"""Regression from noisy statistics: `marginalize` and nutpie beside GibbsSS, NormalX and by hand.

- several holders' X'X and X'y with Gaussian noise, over features d, holders J and epsilon: NormalX,
  and by hand z and the rows' law integrated out in plain PyMC;
- one holder's X'X, X'y, y'y with Laplace noise, one feature and an intercept: GibbsSS, and by hand
  statistics in standard coordinates.

All have the same tuning and draws; effective draws a CPU second of the worst coefficient or error
variance.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_dp as pmdp
from benchmarks._peers import apart, by_nutpie, by_step, kept, rates
from pymc_dp.regression import StatisticsLayout

TUNE, DRAWS = 1000, 2000
NAMES = ["coef", "sigma2"]


def holders(d, J, epsilon, n=1000):
    """Model of J holders with n rows each, and the same by hand."""
    rng = np.random.default_rng(d + J)
    truth = rng.normal(size=d)
    layout = StatisticsLayout(d, False, ("xx", "xy"))
    pairs = tuple(layout.pairs[: layout.n_xx].T)
    mechanism = pmdp.Gaussian(epsilon=epsilon, delta=1e-5, sensitivity=3.0)
    sigma = float(mechanism.noise)
    released = []
    for _ in range(J):
        X = rng.normal(size=(n, d)) / np.sqrt(d)
        y = X @ truth + 0.5 * rng.normal(size=n)
        values = np.concatenate([(X.T @ X)[pairs], X.T @ y])
        released.append(values + sigma * rng.normal(size=values.size))
    psi, nu = np.eye(d) / d, d + 2
    with pm.Model() as model:
        coef = pm.Normal("coef", 0, 2, shape=d)
        sigma2 = pm.InverseGamma("sigma2", 3, 1)
        cov = pmdp.regression.InverseWishart("cov_x", nu=nu, psi=psi)
        found = pmdp.HolderStatistics("h", n=[n] * J, coef=coef, sigma2=sigma2, cov_x=cov)
        for j in range(J):
            pmdp.Privatized(f"r{j}", found[j], mechanism, observed=released[j])
    return model, holders_by_hand(np.array(released), d, J, n, sigma, psi, nu, layout)


def holders_by_hand(released, d, J, n, sigma, psi, nu, layout):
    """Plain PyMC: Cholesky factors of X'X near the released ones, all else integrated out."""
    hat = np.zeros((d, d))
    i, k = layout.pairs[: layout.n_xx].T
    hat[i, k] = hat[k, i] = released[:, : layout.n_xx].sum(axis=0) / (n * J)
    values, vectors = np.linalg.eigh(hat)
    root = np.linalg.cholesky(vectors * np.maximum(values, 1e-3) @ vectors.T)
    below = np.tril_indices(d, -1)
    with pm.Model() as model:
        coef = pm.Normal("coef", 0, 2, shape=d)
        sigma2 = pm.InverseGamma("sigma2", 3, 1)
        logs = pm.Flat("logs", shape=(J, d))
        A = pt.zeros((J, d, d))
        diagonal = np.sqrt(n) * pt.exp(logs / np.sqrt(2 * n))
        A = A[:, np.arange(d), np.arange(d)].set(diagonal)
        if d > 1:
            A = A[:, below[0], below[1]].set(pm.Flat("below", shape=(J, len(below[0]))))
        lower = root @ A
        S = lower @ lower.mT
        log_diagonal = pt.log(pt.diagonal(lower, axis1=1, axis2=2))
        whole = pt.linalg.cholesky(psi + S.sum(axis=0))
        law = (n - d - 1) * log_diagonal.sum()
        law -= (nu + n * J) * pt.log(pt.diagonal(whole)).sum()
        jacobian = ((d - np.arange(d)) * log_diagonal).sum() + logs.sum() / np.sqrt(2 * n)
        pm.Potential("law", law + jacobian)
        pm.Normal("xx", S[:, i, k], sigma, observed=released[:, : layout.n_xx])
        spread = sigma2 * S + sigma**2 * pt.eye(d)
        pm.MvNormal("xy", S @ coef, cov=spread, observed=released[:, layout.n_xx :])
    return model


def statistics(epsilon, n):
    """One holder with one feature: Laplace noise on five sums, and the same by hand."""
    rng = np.random.default_rng(n)
    X = rng.normal(0, 0.3, size=n)
    y = 0.6 * X + 0.1 + 0.2 * rng.normal(size=n)
    sums = np.array([X @ X, X.sum(), X @ y, y.sum(), y @ y])
    scale = 5.34 / epsilon
    released = sums + rng.laplace(0, scale, size=5)
    x = pmdp.regression.NormalMoments(0.0, 0.09)
    with pm.Model() as model:
        sigma2 = pm.InverseGamma("sigma2", 3, 0.2)
        coef = pm.Normal("coef", 0, 1, shape=2)
        s = pmdp.RegressionStatistics("s", n=n, coef=coef, sigma2=sigma2, x_moments=x)
        pmdp.Privatized("z", s, pmdp.Laplace(scale=scale), observed=released)
    mean, cov = s.owner.op.mean_and_cov(*s.owner.inputs[2:])
    from pytensor.graph.replace import graph_replace

    with pm.Model() as by_hand:
        sigma2 = pm.InverseGamma("sigma2", 3, 0.2)
        coef = pm.Normal("coef", 0, 1, shape=2)
        given = {model["sigma2"]: sigma2, model["coef"]: coef}
        mean, cov = graph_replace([mean, cov], given, strict=False)
        residual = pm.Normal("residual", shape=5)
        s = mean + pt.linalg.cholesky(cov) @ residual
        pm.Laplace("z", s, scale, observed=released)
    return model, by_hand


CASES = {
    **{
        f"holders d = {d}, J = {J}, epsilon {epsilon}": (holders, (d, J, epsilon))
        for d, J, epsilon in [(2, 1, 1), (2, 1, 0.1), (2, 5, 1), (2, 5, 0.1), (10, 10, 1)]
    },
    **{
        f"statistics n = {n}, epsilon {epsilon}": (statistics, (epsilon, n))
        for n, epsilon in [(100, 0.1), (100, 1), (10000, 0.1), (10000, 1)]
    },
}


def run_case(name):
    make, arguments = CASES[name]
    model, by_hand = make(*arguments)
    own = "NormalX" if make is holders else "GibbsSS"
    runs = {
        "marginalize": by_nutpie(pmdp.marginalize(model), TUNE, DRAWS),
        "by hand, nutpie": by_nutpie(by_hand, TUNE, DRAWS),
        own: by_step(model, lambda: None, TUNE, DRAWS),
    }
    row = {"case": name}
    for peer, found in runs.items():
        row[peer if peer != own else "GibbsSS or NormalX"] = min(rates(found, NAMES)[0].values())
    row["R-hat"] = " ".join(f"{rates(found, NAMES)[1]:.3f}" for found in runs.values())
    row["errors from by hand"] = apart(runs["marginalize"][0], runs["by hand, nutpie"][0], NAMES)
    row["errors from ours"] = apart(runs["marginalize"][0], runs[own][0], NAMES)
    return row


def main():
    return [kept("marginal_regression", name, lambda name=name: run_case(name)) for name in CASES]
