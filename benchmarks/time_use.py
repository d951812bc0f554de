"""Shares of time: Dirichlet records behind noisy sums of logarithms, their number known or not.

The release of the American Time Use Survey that Ju et al. (2022) and Awan, Barrientos & Ju (2024)
study: shares x of a day on a simplex of three, sums of log max(x, 1 / 1440) with Laplace noise.
``TIME_USE_DATA=path python -m benchmarks time_use`` reads the shares, three columns of a CSV file
with a header; the data is not in this repository.

- number known: all records, epsilon 1, effective draws a CPU second of the worst parameter;
- number unknown: the first 1000 records, nine tenths of epsilon 1 for the sums and one for a count,
  CPU seconds of 10000 draws.

Seconds are of tuning and drawing; those before the first draw are told beside them.
"""

import os
import time

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_dp as pmdp
from benchmarks._peers import by_nutpie, columns, rates
from pymc_dp.analyst.marginal.start import find_mode

SMALLEST = 1 / 1440  # of a day: a minute
REACH = 3 * np.log(1 / SMALLEST)  # by which one record changes the three sums


def shares():
    """Shares of time, a record a row."""
    return np.loadtxt(os.environ["TIME_USE_DATA"], delimiter=",", skiprows=1)


def known_number(x):
    """Concentrations behind the noisy means of the logarithms."""
    n, rng = len(x), np.random.default_rng(1)
    noise = pmdp.Laplace(scale=REACH / n)
    released = np.log(np.maximum(x, SMALLEST)).mean(axis=0) + rng.laplace(0, REACH / n, size=3)
    with pm.Model() as model:
        a = pm.Gamma("a", 1, 0.1, shape=3)
        x = pm.Dirichlet("x", a, shape=(n, 3))
        means = pt.log(pt.maximum(x, SMALLEST)).sum(axis=0) / n
        pmdp.Privatized("means", means, noise, observed=released)
    return model


def unknown_number(x, most=1200):
    """The same behind noisy sums and a noisy count."""
    rng = np.random.default_rng(1)
    noise = pmdp.Laplace(scale=REACH / 0.9)
    released = np.log(np.maximum(x, SMALLEST)).sum(axis=0) + rng.laplace(0, REACH / 0.9, size=3)
    count = len(x) + rng.laplace(0, 10)
    with pm.Model() as model:
        a = pm.Gamma("a", 1, 0.1, shape=3)
        there = pmdp.unknown_size("n", pm.DiscreteUniform.dist(1, most))
        x = pm.Dirichlet("x", a, shape=(most, 3))
        pmdp.Privatized("count", there.sum(), pmdp.Laplace(scale=10.0), observed=count)
        logs = there[:, None] * pt.log(pt.maximum(x, SMALLEST))
        pmdp.Privatized("sums", logs.sum(axis=0), noise, observed=released)
    return model


def row(name, model, names, tune, draws):
    """Integrate the records out, sample by nutpie, and tell."""
    start = time.process_time()
    small = pmdp.marginalize(model)
    mode = find_mode(small)
    found = by_nutpie(small, tune, draws, mode)
    whole = time.process_time() - start
    told = {
        "what": name,
        "tune + draws, two chains": f"{tune} + {draws}",
        "CPU seconds": found[1],
        "before the first draw": whole - found[1],
        "effective draws a second": min(rates(found, names)[0].values()),
        "R-hat": rates(found, names)[1],
    }
    for (name, i), values in columns(found[0], names).items():
        told[f"{name}[{i}]"] = f"{values.mean():.4g} ({values.std():.3g})"
    return told


def main():
    x = shares()
    return [
        row(f"{len(x)} records", known_number(x), ["a"], 1000, 2000),
        row("1000 records, number unknown", unknown_number(x[:1000]), ["a", "n"], 500, 5000),
    ]
