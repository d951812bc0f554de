"""Effective draws a CPU second, over records and noise: ours beside NUTS over all latents.

Normal records with a clamped sum released, or a clamped sum and sum of squares, with Laplace noise;
a sum whose clamp acts on a third of the records; and a sum of skewed records, gamma of shape 1/2
with unknown rate. Everyone has as many tuning steps and draws. "marginalize" is the same model with
its records integrated out, sampled by nutpie, "by hand" the same written in plain PyMC.
``python -m benchmarks mixing`` writes docs/mixing.png. A cell that is done is kept in
benchmarks/results/mixing/, so that a run that was stopped goes on: delete that folder to start
anew. nutpie is used where it is installed. Peers that have records are run with 1000 of them
at the most, and PyMC's NUTS with 100, to keep it short.
"""

import warnings
from pathlib import Path

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy import stats

import pymc_dp as pmdp
from benchmarks import _exact_sums, _mixing_plot
from benchmarks._by_hand import gamma_moments, normal_moments, one_sum, two_sums
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
from pymc_dp.analyst.marginal.start import find_mode

SIZES = (100, 1000, 10_000, 100_000)
NOISES = (1, 10, 100, 1000)
#: each with its clamp, and what is released of a record, on average
STATISTICS = {
    "sum": ((-5.0, 5.0), 1.0),
    "sum, clamp acting": ((-5.0, 1.43), 0.7),
    "sum and squares": ((-5.0, 5.0), (1.0, 2.0)),
    "sum, skewed records": ((0.0, 6.0), 0.5),
}
SKEWED = "sum, skewed records"
BOTH = "sum and squares"
#: tuning steps, of everyone
TUNE = 500
#: records at the most, of every peer that has them
PEERS = {
    "nutpie centred": 1000,
    "nutpie non-centred": 1000,
    "PyMC NUTS": 100,
    "plain record Gibbs, NUTS for theta": 1000,
}
#: with more records than this only nutpie's parametrisation that is better with this many is run:
#: centred below a noise of 100, non-centred from there on
EVERY_PEER_UP_TO = 100


def released(n, noise, statistic):
    """What was released, and the scale of its noise."""
    value = n * np.array(STATISTICS[statistic][1])
    return (value, noise * np.array([1.0, 5.0])) if statistic == BOTH else (float(value), noise)


def build(n, noise, statistic, centred=True):
    observed, scale = released(n, noise, statistic)
    with pm.Model() as model:
        if statistic == SKEWED:
            rate = pt.exp(pm.Normal("log_rate", 0, 1))
            records = pm.Gamma("x", 0.5, rate if centred else 1, shape=n)
            x = records if centred else records / rate
        else:
            mu = pm.Normal("mu", 0, 3)
            sd = pm.HalfNormal("sd", 2) if statistic == BOTH else 1.0
            records = pm.Normal("x", *((mu, sd) if centred else (0, 1)), shape=n)
            x = records if centred else mu + sd * records
        x = pmdp.clamp(x, *STATISTICS[statistic][0])
        sums = pt.stack([x.sum(), (x**2).sum()]) if statistic == BOTH else x.sum()
        pmdp.Privatized("s", sums, pmdp.Laplace(scale=scale), observed=observed)
    return model


def by_hand(n, noise, statistic):
    """The model without its records, in plain PyMC."""
    observed, scale = released(n, noise, statistic)
    low, high = STATISTICS[statistic][0]
    with pm.Model() as model:
        if statistic == SKEWED:
            moments = gamma_moments(0.5, pt.exp(pm.Normal("log_rate", 0, 1)), high)
        else:
            mu = pm.Normal("mu", 0, 3)
            sd = pm.HalfNormal("sd", 2) if statistic == BOTH else 1.0
            moments = normal_moments(mu, sd, low, high)
        if statistic == BOTH:
            two_sums(observed, n, scale, moments)
        else:
            one_sum(observed, n, scale, moments[:2])
    return model


def run_peer(peer, n, noise, statistic, draws):
    model = build(n, noise, statistic, centred=not peer.endswith("non-centred"))
    if peer.startswith("nutpie"):
        return by_nutpie(model, TUNE, draws)
    return by_step(model, plain_gibbs(model) if peer.startswith("plain") else pm.NUTS, TUNE, draws)


def exact_posterior(n, noise, statistic, guess):
    """Mean and sd of every parameter, around a guess of both; None where there is no answer."""
    observed, scale = released(n, noise, statistic)
    bounds = STATISTICS[statistic][0]
    if statistic == BOTH:
        guesses = guess["mu"], guess["sd"]
        return _exact_sums.of_both(observed, n, scale, bounds, guesses) if n >= 10_000 else None
    if statistic == SKEWED:
        record, prior = _exact_sums.ClampedGamma(bounds[1]), stats.norm(0, 1)
    else:
        record, prior = _exact_sums.ClampedNormal(1.0, *bounds), stats.norm(0, 3)
    [(name, about)] = guess.items()
    return {name: _exact_sums.of_sum(observed, n, scale, record, prior, about)}


def agreement(idata, exact):
    """Distance of means from the exact ones, in Monte Carlo errors and sds, and sds over exact."""
    draws = {name: column for (name, _), column in columns(idata, list(exact)).items()}
    off = {name: abs(x.mean() - exact[name][0]) for name, x in draws.items()}
    ratios = [float(x.std()) / exact[name][1] for name, x in draws.items()]
    return {
        "mean off, in errors": float(max(off[name] / error(x) for name, x in draws.items())),
        "in sds": float(max(off[name] / exact[name][1] for name in draws)),
        "sd over exact": max(ratios, key=lambda ratio: abs(np.log(ratio))),
    }


def row(n, noise, statistic):
    names = {BOTH: ["mu", "sd"], SKEWED: ["log_rate"]}.get(statistic, ["mu"])
    draws = int(np.clip(4e6 / n, 1000, 2000))
    result = {"records": n, "noise": noise, "statistic": statistic}
    runs = {"RecordGibbs": by_step(build(n, noise, statistic), pmdp.RecordGibbs, TUNE, draws)}
    try:
        runs["marginalize"] = by_marginalize(build(n, noise, statistic), TUNE, draws)
        hand = by_hand(n, noise, statistic)
        runs["by hand"] = by_nutpie(hand, TUNE, draws, find_mode(hand))
    except ImportError:
        pass
    found = columns(runs.get("marginalize", runs["RecordGibbs"])[0], names).items()
    guess = {name: (float(x.mean()), float(x.std())) for (name, _), x in found}
    exact = exact_posterior(n, noise, statistic, guess)
    for peer, largest in PEERS.items():
        if n > largest:
            continue
        worse = "nutpie centred" if noise >= 100 else "nutpie non-centred"
        if n > EVERY_PEER_UP_TO and peer == worse:
            continue
        try:
            runs[peer] = run_peer(peer, n, noise, statistic, draws)
        except ImportError:
            continue
    worst, rhats = {}, {}
    for sampler, found in runs.items():
        parameters, rhats[sampler] = rates(found, names)
        worst[sampler] = min(parameters.values())
    result |= worst
    ours = [sampler for sampler in ("RecordGibbs", "marginalize") if sampler in runs]
    nutpie = [runs[peer][0] for peer in PEERS if peer.startswith("nutpie") and peer in runs]
    for sampler in ours:
        result[f"R-hat, {sampler}"] = rhats[sampler]
        told = {}
        if exact is not None:
            told = agreement(runs[sampler][0], exact)
        elif nutpie:
            told = {"from nutpie, in errors": apart(runs[sampler][0], nutpie[-1], names)}
        result |= {f"{what}, {sampler}": value for what, value in told.items()}
    with_records = [worst[peer] for peer in PEERS if peer in worst]
    if with_records:
        result["RecordGibbs, times the best with records"] = worst["RecordGibbs"] / max(
            with_records
        )
    if "marginalize" in worst:
        others = [rate for sampler, rate in worst.items() if sampler not in ours]
        result["marginalize, times the best other"] = worst["marginalize"] / max(others)
    return result


def main() -> list[dict]:
    warnings.filterwarnings("ignore")
    rows = [
        kept("mixing", f"{s} {n} {noise}", lambda n=n, noise=noise, s=s: row(n, noise, s))
        for s in STATISTICS
        for n in SIZES
        for noise in NOISES
    ]
    _mixing_plot.plot(rows, list(STATISTICS), list(PEERS), Path(__file__).parents[1] / "docs")
    return rows
