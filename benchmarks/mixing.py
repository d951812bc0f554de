"""Effective draws a CPU second, over records and noise: ours beside NUTS over all latents.

Normal records with a clamped sum released, or a clamped sum and sum of squares, with Laplace noise;
and a sum whose clamp acts on a third of the records. Everyone has as many tuning steps and draws.
"marginalize" is the same model with its records integrated out, sampled by nutpie.
``python -m benchmarks mixing`` writes docs/mixing.png. A cell that is done is kept in
benchmarks/results/mixing/, so that a run that was stopped goes on: delete that folder to start
anew. nutpie is used where it is installed. No peer is run with 100000 records, to keep it short.
"""

import warnings
from pathlib import Path

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy import special, stats

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
from tests import oracles

SIZES = (100, 1000, 10_000, 100_000)
NOISES = (1, 10, 100, 1000)
STATISTICS = ("sum", "sum, clamp acting", "sum and squares")
#: tuning steps, of everyone
TUNE = 1000
#: records at the most, of every peer
PEERS = {
    "nutpie centred": 10_000,
    "nutpie non-centred": 10_000,
    "PyMC NUTS": 1000,
    "plain record Gibbs, NUTS for theta": 1000,
}
#: with more records than this only the parametrisation that is better with this many is run:
#: centred below a noise of 100, non-centred from there on
EVERY_PEER_UP_TO = 1000


def build(n, noise, statistic, centred=True):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 3)
        sd = pm.HalfNormal("sd", 2) if statistic == "sum and squares" else 1.0
        records = pm.Normal("x", *((mu, sd) if centred else (0, 1)), shape=n)
        x = pmdp.clamp(records if centred else mu + sd * records, -5, upper_of(statistic))
        if statistic != "sum and squares":
            observed = float(n if statistic == "sum" else 0.7 * n)
            pmdp.Privatized("s", x.sum(), pmdp.Laplace(scale=noise), observed=observed)
        else:
            pmdp.Privatized(
                "s",
                pt.stack([x.sum(), (x**2).sum()]),
                pmdp.Laplace(scale=[noise, 5 * noise]),
                observed=[1.0 * n, 2.0 * n],
            )
    return model


def upper_of(statistic):
    return 1.43 if statistic == "sum, clamp acting" else 5


def run_peer(peer, n, noise, statistic, draws):
    model = build(n, noise, statistic, centred=not peer.endswith("non-centred"))
    if peer.startswith("nutpie"):
        return by_nutpie(model, TUNE, draws)
    return by_step(model, plain_gibbs(model) if peer.startswith("plain") else pm.NUTS, TUNE, draws)


def exact_of_sum(n, noise, guess):
    """Exact mean and sd of mu, around a guess of both."""
    grid = np.linspace(guess[0] - 9 * guess[1], guess[0] + 9 * guess[1], 241)
    likelihood = oracles.sum_likelihood(
        float(n), n, oracles.ClampedNormal(1.0, -5, 5), oracles.Laplace(float(noise)), grid
    )
    exact = oracles.posterior_from_likelihood(grid, stats.norm.logpdf(grid, 0, 3), likelihood)
    return {"mu": (exact.mean(), exact.sd())}


def normal_plus_laplace(x, mean, sd, scale):
    """Log-density at x of a normal plus a Laplace variable."""
    z, ratio = (x - mean) / sd, sd / scale
    tails = special.log_ndtr(z - ratio) - z * ratio, special.log_ndtr(-z - ratio) + z * ratio
    return np.logaddexp(*tails) + ratio**2 / 2 - np.log(2 * scale)


def normal_law_of_sum(n, noise, guess):
    """Mean and sd of mu with the sum taken as normal: for very many records."""
    mu = np.linspace(guess[0] - 9 * guess[1], guess[0] + 9 * guess[1], 241)
    z = np.linspace(-8, 8, 4001)
    weight = stats.norm.pdf(z) * (z[1] - z[0])
    x = np.clip(mu[:, None] + z, -5, 5)
    mean, square = x @ weight, x**2 @ weight
    spread = np.sqrt(n * (square - mean**2))
    likelihood = normal_plus_laplace(float(n), n * mean, spread, noise)
    exact = oracles.posterior_from_likelihood(mu, stats.norm.logpdf(mu, 0, 3), likelihood)
    return {"mu": (exact.mean(), exact.sd())}


def normal_law_of_both(n, noise, guess):
    """Means and sds of mu and sd with the two sums taken as normal: for many records."""
    axes = [np.linspace(m - 7 * s, m + 7 * s, 91) for m, s in guess]
    mu, sd = np.meshgrid(*axes, indexing="ij")
    z = np.linspace(-8, 8, 4001)
    weight = stats.norm.pdf(z) * (z[1] - z[0])
    log_p = np.full(mu.shape, -np.inf)
    for i in np.ndindex(mu.shape):
        if sd[i] <= 0:
            continue
        x = np.clip(mu[i] + sd[i] * z, -5, 5)
        moments = np.array([x, x**2])
        mean = n * moments @ weight
        cov = n * ((moments * weight) @ moments.T) - np.outer(mean, mean) / n
        # the first sum by quadrature, where it is not far from its mean and from its release
        spread = np.sqrt(cov[0, 0])
        t = np.linspace(-15, 15, 601)
        first = np.sort(np.concatenate([mean[0] + spread * t / 2, n + noise * np.sinh(t / 2)]))
        first = first[np.abs(first - mean[0]) < 8 * spread]
        slope = cov[0, 1] / cov[0, 0]
        rest = np.sqrt(cov[1, 1] - slope * cov[0, 1])
        second = normal_plus_laplace(2.0 * n, mean[1] + slope * (first - mean[0]), rest, 5 * noise)
        log_f = stats.norm.logpdf(first, mean[0], spread) - np.abs(n - first) / noise + second
        top = log_f.max()
        log_p[i] = top + np.log(np.trapezoid(np.exp(log_f - top), first))
        log_p[i] += stats.norm.logpdf(mu[i], 0, 3) + stats.halfnorm.logpdf(sd[i], scale=2)
    p = np.exp(log_p - log_p.max())
    p /= p.sum()

    def moments_of(x):
        mean = float((p * x).sum())
        return mean, float(np.sqrt((p * (x - mean) ** 2).sum()))

    return {"mu": moments_of(mu), "sd": moments_of(sd)}


def agreement(idata, n, noise, statistic):
    """Distance of means from the exact ones, in Monte Carlo errors, and sds over exact ones."""
    names = ["mu", "sd"] if statistic == "sum and squares" else ["mu"]
    draws = {name: column for (name, _), column in columns(idata, names).items()}
    guess = [(float(x.mean()), float(x.std())) for x in draws.values()]
    if statistic == "sum":
        exact = (exact_of_sum if n <= 10_000 else normal_law_of_sum)(n, noise, guess[0])
    elif statistic == "sum and squares" and n >= 10_000:
        exact = normal_law_of_both(n, noise, guess)
    else:
        return {}
    off = [abs(x.mean() - exact[name][0]) / error(x) for name, x in draws.items()]
    ratios = [float(x.std()) / exact[name][1] for name, x in draws.items()]
    furthest = max(ratios, key=lambda ratio: abs(np.log(ratio)))
    return {"mean off, in errors": float(max(off)), "sd over exact": furthest}


def row(n, noise, statistic):
    names = ["mu", "sd"] if statistic == "sum and squares" else ["mu"]
    draws = int(np.clip(4e6 / n, 1000, 4000))
    own = by_step(build(n, noise, statistic), pmdp.RecordGibbs, TUNE, draws)
    own_rates, rhat = rates(own, names)
    result = {"records": n, "noise": noise, "statistic": statistic}
    result |= {f"ours, {name} a second": rate for name, rate in own_rates.items()}
    result |= {"R-hat": rhat} | agreement(own[0], n, noise, statistic)
    try:
        small = by_marginalize(build(n, noise, statistic), TUNE, draws)
    except ImportError:
        pass
    else:
        result["marginalize"] = min(rates(small, names)[0].values())
        result["marginalize apart, in errors"] = apart(own[0], small[0], names)
    for peer, largest in PEERS.items():
        if n > largest:
            continue
        if n > EVERY_PEER_UP_TO and peer.endswith(" centred") == (noise >= 100):
            continue
        try:
            found = run_peer(peer, n, noise, statistic, draws)
        except ImportError:
            continue
        result[peer] = min(rates(found, names)[0].values())
        if "mean off, in errors" not in result and peer == "nutpie non-centred":
            result["mean off, in errors"] = apart(own[0], found[0], names)
    best = max((result[peer] for peer in PEERS if peer in result), default=None)
    if best is not None:
        result["times the best peer"] = min(own_rates.values()) / best
    return result


def plot(rows, path):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(14, 3.6), sharey=True, layout="constrained")
    for axis, statistic in zip(axes, STATISTICS, strict=True):
        for i, n in enumerate(SIZES):
            cells = [r for r in rows if r["records"] == n and r["statistic"] == statistic]
            worst = [min(v for k, v in r.items() if k.startswith("ours")) for r in cells]
            axis.plot([r["noise"] for r in cells], worst, "o-", color=f"C{i}", label=f"n = {n}")
            best = [
                (r["noise"], max(r[p] for p in PEERS if p in r))
                for r in cells
                if any(p in r for p in PEERS)
            ]
            if best:
                axis.plot(*zip(*best, strict=True), "x--", color=f"C{i}", alpha=0.6)
        axis.set(xscale="log", yscale="log", xlabel="scale of the noise", title=statistic)
    axes[0].set_ylabel("effective draws per CPU second")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, title="ours (o),\nbest peer (x)", loc="outside right center", frameon=False
    )
    figure.savefig(path, dpi=120)


def main() -> list[dict]:
    warnings.filterwarnings("ignore")
    rows = [
        kept("mixing", f"{s} {n} {noise}", lambda n=n, noise=noise, s=s: row(n, noise, s))
        for s in STATISTICS
        for n in SIZES
        for noise in NOISES
    ]
    plot(rows, Path(__file__).parents[1] / "docs" / "mixing.png")
    return rows
