"""Noise on every record: records integrated out (`marginalize`) beside the same by hand and Gibbs.

- a regression with four categories behind randomised response, 2000 records;
- two yes-or-no questions behind randomised response, 400 records;
- Laplace noise on each of 500 clamped normal records; answers checked on a grid;
- the same with gamma records, which are integrated by quadrature.

By hand is the best that plain PyMC can be given: probabilities of the reports themselves, counts of
reports, and for noise on continuous records latent residuals. All have the same tuning and draws.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy import stats

import pymc_dp as pmdp
from benchmarks._peers import apart, by_nutpie, by_step, columns, kept, rates

TUNE, DRAWS = 500, 1000


def categories(n=2000):
    """Regression with four categories; their law by a softmax of two covariates and a constant."""
    rng = np.random.default_rng(1)
    X = np.column_stack([np.ones(n), rng.normal(size=(n, 2))])
    truth = rng.normal(size=(3, 3))
    coin = pmdp.RandomizedResponse(4, keep=0.7)

    def shares(b):
        return pm.math.softmax(pt.concatenate([np.zeros((n, 1)), X @ b], axis=1), axis=1)

    p = shares(truth).eval()
    answers = (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    reports = (coin.matrix[answers].cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    with pm.Model() as model:
        b = pm.Normal("b", 0, 2, shape=(3, 3))
        x = pm.Categorical("x", p=shares(b), shape=n)
        pmdp.Privatized("r", x, coin, observed=reports)
    with pm.Model() as by_hand:
        b = pm.Normal("b", 0, 2, shape=(3, 3))
        pm.Categorical("r", p=shares(b) @ coin.matrix, observed=reports)
    return model, by_hand, ["b"]


def two_by_two(n=400):
    """Two questions, the second depending on the first."""
    rng = np.random.default_rng(2)
    coin = pmdp.RandomizedResponse(2, keep=0.75)
    x = rng.random(n) < 0.4
    y = rng.random(n) < np.where(x, 0.7, 0.2)
    rx, ry = (np.where(rng.random(n) < 0.75, v, ~v).astype(int) for v in (x, y))
    with pm.Model() as model:
        p, q = pm.Beta("p", 1, 1), pm.Beta("q", 1, 1, shape=2)
        x = pm.Bernoulli("x", p, shape=n)
        y = pm.Bernoulli("y", q[x], shape=n)
        pmdp.Privatized("rx", x, coin, observed=rx)
        pmdp.Privatized("ry", y, coin, observed=ry)
    with pm.Model() as by_hand:
        p, q = pm.Beta("p", 1, 1), pm.Beta("q", 1, 1, shape=2)
        table = pt.stack([(1 - p) * (1 - q[0]), (1 - p) * q[0], p * (1 - q[1]), p * q[1]])
        seen = np.kron(coin.matrix, coin.matrix).T @ table
        counts = np.bincount(2 * rx + ry, minlength=4)
        pm.Multinomial("counts", n, seen, observed=counts)
    return model, by_hand, ["p", "q"]


def clamped_normal(n=500):
    """Mean and standard deviation behind clamps that act, and Laplace noise on each."""
    rng = np.random.default_rng(3)
    released = np.clip(rng.normal(1, 2, size=n), -2, 3) + rng.laplace(0, 1, size=n)
    with pm.Model() as model:
        mu, sigma = pm.Normal("mu", 0, 5), pm.HalfNormal("sigma", 5)
        x = pm.Normal("x", mu, sigma, shape=n)
        pmdp.Privatized("r", pmdp.clamp(x, -2, 3), pmdp.Laplace(scale=1), observed=released)
    with pm.Model() as by_hand:
        mu, sigma = pm.Normal("mu", 0, 5), pm.HalfNormal("sigma", 5)
        x = mu + sigma * pm.Normal("residual", shape=n)
        pm.Laplace("r", pt.clip(x, -2.0, 3.0), 1, observed=released)
    return model, by_hand, ["mu", "sigma"]


def clamped_gamma(n=500):
    """Shape and rate behind a clamp, and Laplace noise on each."""
    rng = np.random.default_rng(4)
    released = np.clip(rng.gamma(2, 1, size=n), 0, 3) + rng.laplace(0, 1, size=n)
    with pm.Model() as model:
        shape, rate = pm.LogNormal("shape", 0, 1), pm.LogNormal("rate", 0, 1)
        x = pm.Gamma("x", shape, rate, shape=n)
        pmdp.Privatized("r", pmdp.clamp(x, 0, 3), pmdp.Laplace(scale=1), observed=released)
    with pm.Model() as by_hand:
        shape, rate = pm.LogNormal("shape", 0, 1), pm.LogNormal("rate", 0, 1)
        x = pm.Gamma("x", shape, rate, shape=n)
        pm.Laplace("r", pt.clip(x, 0.0, 3.0), 1, observed=released)
    return model, by_hand, ["shape", "rate"]


def grid_sds(model, names):
    """Posterior means and sds of two parameters of the clamped normal model, on a grid."""
    released = model.rvs_to_values[model["r"]].eval()
    mu = np.linspace(0.2, 1.9, 120)[:, None, None]
    sigma = np.linspace(1.2, 3.2, 120)[None, :, None]
    x = np.linspace(-2, 3, 801)
    weights = np.full(x.size, x[1] - x[0])
    weights[[0, -1]] /= 2
    noise = stats.laplace.pdf(released[:, None], x)
    log_lik = np.zeros((120, 120))
    for i in range(120):
        law = stats.norm.pdf(x, mu[i], sigma[0]) * weights  # (sigma, x)
        density = law @ noise.T
        density += stats.norm.cdf(-2, mu[i], sigma[0]) * stats.laplace.pdf(released, -2)
        density += stats.norm.sf(3, mu[i], sigma[0]) * stats.laplace.pdf(released, 3)
        log_lik[i] = np.log(density).sum(axis=1)
    log_lik += stats.norm.logpdf(mu[..., 0], 0, 5) + stats.halfnorm.logpdf(sigma[..., 0], scale=5)
    share = np.exp(log_lik - log_lik.max())
    share /= share.sum()
    found = {}
    for name, values, axis in (("mu", mu.ravel(), 1), ("sigma", sigma.ravel(), 0)):
        marginal = share.sum(axis=axis)
        mean = float(marginal @ values)
        found[name] = (mean, float(np.sqrt(marginal @ (values - mean) ** 2)))
    return found


CASES = {
    "four categories, n = 2000": categories,
    "two by two, n = 400": two_by_two,
    "clamped normal, n = 500": clamped_normal,
    "clamped gamma, n = 500": clamped_gamma,
}


def run_case(name):
    model, by_hand, names = CASES[name]()
    small = pmdp.marginalize(model)
    ours = by_nutpie(small, TUNE, DRAWS)
    peers = {
        "by hand, nutpie": by_nutpie(by_hand, TUNE, DRAWS),
        "RecordGibbs": by_step(model, lambda: None, TUNE, DRAWS),
    }
    row = {"case": name, "marginalize": min(rates(ours, names)[0].values())}
    row["R-hat"] = rates(ours, names)[1]
    for peer, found in peers.items():
        row[peer] = min(rates(found, names)[0].values())
        row[f"R-hat of {peer.split(',')[0]}"] = rates(found, names)[1]
    row["errors from by hand"] = apart(ours[0], peers["by hand, nutpie"][0], names)
    if name.startswith("clamped normal"):
        truth = grid_sds(model, names)
        draws = {key: values for (key, _), values in columns(ours[0], names).items()}
        row["sds / grid"] = " ".join(f"{draws[k].std() / truth[k][1]:.3f}" for k in names)
    return row


def main():
    return [kept("marginal_local", name, lambda name=name: run_case(name)) for name in CASES]
