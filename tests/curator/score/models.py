"""Models of a curator and, without data, of an analyst, with records for them."""

import numpy as np
import pymc as pm

import pymc_dp as pmdp
from pymc_dp.accounting import noise
from pymc_dp.analyst.release import releases

N = 60


def records(name, seed=0, n=N):
    """Covariates and responses."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    eta = X @ [0.5, -0.3] + 0.2
    y = {
        "logistic": lambda: (rng.logistic(size=n) < eta).astype(int),
        "poisson": lambda: rng.poisson(np.exp(eta)),
        "negative binomial": lambda: rng.negative_binomial(3, 3 / (3 + np.exp(eta))),
        "normal": lambda: rng.normal(eta, 1.5),
        "gamma": lambda: rng.gamma(2, np.exp(eta) / 2),
        "student": lambda: eta + rng.standard_t(4, size=n),
        "slopes": lambda: rng.normal(eta, 1.0),
    }[name]()
    return X, y


def build(name, X=None, y=None, n=N, named=None):
    """Regressions with records observed, or latent where they are not given."""
    kwargs = {"shape": n} if y is None else {"observed": y}
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=2)
        a = pm.Normal("a", 0, 2)
        if named is not None:
            X = pm.Data("X", named)
        x = pm.Normal("X", 0, 1, shape=(n, 2)) if X is None else X
        # where parameters meet covariates one by one, or all together
        one_by_one = name == "slopes"
        eta = a + (b[0] * x[:, 0] + b[1] * x[:, 1] if one_by_one else pm.math.dot(x, b))
        if name == "logistic":
            pm.Bernoulli("y", logit_p=eta, **kwargs)
        elif name == "poisson":
            pm.Poisson("y", pm.math.exp(eta), **kwargs)
        elif name == "negative binomial":
            alpha = pm.HalfNormal("alpha", 5)
            pm.NegativeBinomial("y", mu=pm.math.exp(eta), alpha=alpha, **kwargs)
        elif name == "gamma":
            pm.Gamma("y", alpha=2.0, beta=2 / pm.math.exp(eta), **kwargs)
        elif name == "student":
            pm.StudentT("y", nu=4, mu=eta, sigma=pm.HalfNormal("sigma", 2), **kwargs)
        else:
            pm.Normal("y", eta, pm.HalfNormal("sigma", 2), **kwargs)
    return model


AT = {"b": [0.4, -0.4], "a": 0.1}
FAMILIES = {
    "logistic": AT,
    "poisson": AT,
    "negative binomial": AT | {"alpha": 2.5},
    "normal": AT | {"sigma": 1.3},
    "gamma": AT,
    "student": AT | {"sigma": 1.2},
    "slopes": AT | {"sigma": 1.2},
}


def without_noise(monkeypatch):
    """Let sums out as they are."""
    monkeypatch.setattr(noise, "release", lambda totals, sd, simulation=None: list(totals))


def seeded_noise(monkeypatch, seed):
    """Draw noise that can be drawn again."""
    release, rng = noise.release, np.random.default_rng(seed)
    monkeypatch.setattr(
        noise, "release", lambda totals, sd, simulation=None: release(totals, sd, rng)
    )


def analysts_sum(model, X, y):
    """What the analyst's statistic is of given records."""
    [release] = releases(model)
    given = {model["y"]: y} | ({model["X"]: X} if "X" in model.named_vars else {})
    return release.statistic.eval(
        {rv: np.asarray(value, dtype=rv.dtype) for rv, value in given.items()}, mode="FAST_COMPILE"
    )


def released(model, **kwargs):
    return pmdp.score_release(model, **({"epsilon": 1, "delta": 1e-6} | kwargs))
