"""Two applications and two hard cases of Ju et al. (2022): ours beside peers, every answer checked.

- naive Bayes (section 4) and regression (section 5) on the released numbers of the authors'
  examples, answers checked with those of an independent program, as in
  tests/analyst/test_ju2022.py; and regression with ten times the records;
- a normal mean from a clamped sum of 100 records, with epsilon = 0.1 or with a third of the
  records beyond the clamp, answers checked with exact ones.

Peers: stock PyMC (for categories that is Gibbs steps, with NUTS for the shares), nutpie, the plain
sampler of the paper. dapper's figures are those measured for that R package elsewhere, on another
machine. As many tuning steps, draws and chains for everyone. Cases that are done are kept in
benchmarks/results/applications/: delete it to start anew.
"""

import warnings

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy import stats

import pymc_dp as pmdp
from benchmarks._peers import (
    apart,
    by_marginalize,
    by_nutpie,
    by_step,
    columns,
    error,
    kept,
    plain_gibbs,
    rates,
)
from examples import naive_bayes, regression
from tests import oracles
from tests.analyst import test_ju2022
from tests.checks import effective_size

#: tuning steps and draws, of everyone
RUN = 1000, 4000


def quantiles_off(draws, references):
    """Largest distance of shares below reference quantiles from their levels, in errors."""
    off = []
    for x, (quantiles, effective) in zip(draws, references, strict=True):
        levels = test_ju2022.LEVELS
        spread = np.sqrt(levels * (1 - levels) * (1 / effective_size(x) + 1 / effective))
        off.append(np.abs((np.mean(x[..., None] <= quantiles, axis=(0, 1)) - levels) / spread))
    return float(np.max(off))


def naive_bayes_case():
    model = naive_bayes.build(test_ju2022.CELLS, epsilon=1)

    def stock():
        records = [model["y"], model["x"]]
        return [pm.CategoricalGibbsMetropolis(records), pm.NUTS([model["p"], model["px"]])]

    peers = {"stock PyMC": lambda: by_step(model, stock, *RUN)}
    peers["plain record Gibbs"] = lambda: by_step(model, plain_gibbs(model), *RUN)

    def off(idata):
        shares = columns(idata, ["p"]).values()
        return quantiles_off(shares, test_ju2022.SHARES)

    return model, ["p", "px"], peers, off, "19 to 77"


def non_centred(model_of_x, released, scale, n):
    """The regression with residuals in place of records."""
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 2, shape=3)
        x = np.asarray(model_of_x) + pm.Normal("x_residual", shape=(n, 2))
        residual = pm.Normal("y_residual", shape=n)
        y = beta[0] + x @ beta[1:] + regression.VARIANCE**0.5 * residual
        pmdp.Privatized("sums", regression.sums(x, y), pmdp.Laplace(scale=scale), observed=released)
    return model


def regression_case(n):
    mean, released = test_ju2022.MEAN, test_ju2022.SUMS
    if n > 100:
        rng = np.random.default_rng(1)
        x = rng.normal(mean, 1, size=(n, 2))
        y = -1.79 + x @ [-2.89, -0.66] + rng.normal(0, regression.VARIANCE**0.5, size=n)
        exact = regression.sums(pt.as_tensor(x), pt.as_tensor(y)).eval()
        released = exact + rng.laplace(0, 1.3, size=9)
    model = regression.build(released, epsilon=10, mean=mean, n=n)
    residuals = non_centred(mean, released, 1.3, n)
    peers = {
        "nutpie centred": lambda: by_nutpie(model, *RUN),
        "nutpie non-centred": lambda: by_nutpie(residuals, *RUN),
        "PyMC NUTS": lambda: by_step(model, pm.NUTS, *RUN),
        "plain record Gibbs": lambda: by_step(model, plain_gibbs(model), *RUN),
    }
    if n > 100:  # no reference but the peer that mixes
        return model, ["beta"], peers, None, ""

    def off(idata):
        return quantiles_off(columns(idata, ["beta"]).values(), test_ju2022.COEFFICIENTS)

    return model, ["beta"], peers, off, "2.3 to 5.1"


def hard_case(upper, scale, released, prior_sd, ends):
    """A normal mean where Algorithm 1 has 10 to 20 effective draws in 100000 sweeps."""

    def build(centred):
        with pm.Model() as model:
            mu = pm.Normal("mu", 0, prior_sd)
            x = pm.Normal("x", mu if centred else 0, 1, shape=100)
            total = pmdp.clamp(x if centred else mu + x, -5, upper).sum()
            pmdp.Privatized("s", total, pmdp.Laplace(scale=scale), observed=released)
        return model

    model, residuals = build(centred=True), build(centred=False)
    peers = {
        "nutpie centred": lambda: by_nutpie(model, *RUN),
        "nutpie non-centred": lambda: by_nutpie(residuals, *RUN),
        "PyMC NUTS": lambda: by_step(model, pm.NUTS, *RUN),
        "plain record Gibbs": lambda: by_step(model, plain_gibbs(model), *RUN),
    }
    grid = np.linspace(*ends, 281)
    record, noise = oracles.ClampedNormal(1.0, -5, upper), oracles.Laplace(scale)
    likelihood = oracles.sum_likelihood(released, 100, record, noise, grid)
    prior = stats.norm.logpdf(grid, 0, prior_sd)
    exact = oracles.posterior_from_likelihood(grid, prior, likelihood)

    def off(idata):
        [draws] = columns(idata, ["mu"]).values()
        return abs(draws.mean() - exact.mean()) / error(draws)

    return model, ["mu"], peers, off, ""


CASES = {
    "naive Bayes, n = 100, epsilon 1": naive_bayes_case,
    "regression, n = 100, epsilon 10": lambda: regression_case(100),
    "regression, n = 1000, epsilon 10": lambda: regression_case(1000),
    "mean, n = 100, epsilon 0.1": lambda: hard_case(5.0, 100.0, 80.0, 10.0, (-35, 35)),
    "mean, n = 100, a third clamped": lambda: hard_case(0.5, 10.0, 5.0, 3.0, (-6, 12)),
}


def row(case):
    model, names, peers, off, dapper = CASES[case]()
    own = by_step(model, pmdp.RecordGibbs, *RUN)
    worst, rhat = rates(own, names)
    result = {"case": case, "ours, worst a second": min(worst.values()), "R-hat": rhat}
    if off is not None:
        result["off, in errors"] = float(off(own[0]))
    try:
        small = by_marginalize(model, *RUN)
    except (ImportError, ValueError):  # no nutpie, or nothing that can be integrated out
        pass
    else:
        result["marginalize"] = min(rates(small, names)[0].values())
        result["marginalize apart, in errors"] = apart(own[0], small[0], names)
    best = 0.0
    for peer, run in peers.items():
        try:
            found = run()
        except ImportError:
            continue
        result[peer] = min(rates(found, names)[0].values())
        if off is None and result[peer] > best:
            result["off, in errors"] = apart(own[0], found[0], names)
        best = max(best, result[peer])
    return result | {"times the best peer": min(worst.values()) / best, "dapper": dapper}


def main() -> list[dict]:
    warnings.filterwarnings("ignore")
    return [kept("applications", case, lambda case=case: row(case)) for case in CASES]
