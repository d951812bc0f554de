"""Proposals for records where plain acceptance is low: is anything better than the model's draws?

A table of n standard normal records, theta known, released as a clamped sum or as a histogram with
little Laplace noise. Three moves, each a numba loop: a draw from the model for every record
(Algorithm 1 of Ju et al. 2022); a random walk around every record; and SOMA (Xiong & Ju 2025,
arXiv 2505.00635), one draw weighed against all records: record i is replaced with a probability in
proportion to w_i, the density of the release with the draw in place of record i, and the exchange
is accepted with probability min(1, W / (W - w_i + w)), W the sum of the w_j and w the present
density. Effective draws of the mean square of the records a CPU second.
"""

import time

import arviz as az
import numba
import numpy as np

SIZES, NOISES = (100, 1000), (0.01, 0.1, 1.0)
EDGES = np.linspace(-3, 3, 19)


@numba.njit
def contribution(x, histogram):
    """Bin of a record, or its clamped value in bin 0, as (position, amount)."""
    if histogram:
        return min(max(int((x + 3) * 3 + 1), 0), 19), 1.0
    return 0, min(max(x, -3.0), 3.0)


@numba.njit
def change_of_density(total, released, scale, old, new, histogram):
    i, a = contribution(old, histogram)
    j, b = contribution(new, histogram)
    if i == j:
        return (abs(released[i] - total[i]) - abs(released[i] - total[i] - b + a)) / scale
    first = abs(released[i] - total[i]) - abs(released[i] - total[i] + a)
    return (first + abs(released[j] - total[j]) - abs(released[j] - total[j] - b)) / scale


@numba.njit
def exchange(x, total, i, new, histogram):
    place, amount = contribution(x[i], histogram)
    total[place] -= amount
    place, amount = contribution(new, histogram)
    total[place] += amount
    x[i] = new


@numba.njit
def plain(rng, x, total, released, scale, histogram, width):
    accepted = 0
    for i in range(x.size):
        new = rng.standard_normal()
        change = change_of_density(total, released, scale, x[i], new, histogram)
        if change > -rng.standard_exponential():
            exchange(x, total, i, new, histogram)
            accepted += 1
    return accepted


@numba.njit
def random_walk(rng, x, total, released, scale, histogram, width):
    accepted = 0
    for i in range(x.size):
        new = x[i] + width * rng.standard_normal()
        change = change_of_density(total, released, scale, x[i], new, histogram)
        if change + (x[i] ** 2 - new**2) / 2 > -rng.standard_exponential():
            exchange(x, total, i, new, histogram)
            accepted += 1
    return accepted


@numba.njit
def soma(rng, x, total, released, scale, histogram, width):
    """As many offers as cost about a sweep."""
    accepted, weights = 0, np.empty(x.size)
    for _ in range(8):
        new = rng.standard_normal()
        largest = 0.0
        for i in range(x.size):
            weights[i] = change_of_density(total, released, scale, x[i], new, histogram)
            largest = max(largest, weights[i])
        whole = 0.0
        for i in range(x.size):
            weights[i] = np.exp(weights[i] - largest)
            whole += weights[i]
        left, chosen = rng.random() * whole, 0
        while left > weights[chosen] and chosen < x.size - 1:
            left -= weights[chosen]
            chosen += 1
        present = np.exp(-largest)
        if rng.random() * (whole - weights[chosen] + present) < whole:
            exchange(x, total, chosen, new, histogram)
            accepted += 1
    return accepted


@numba.njit
def run(move, rng, x, total, released, scale, histogram, width, sweeps):
    trace, accepted = np.empty(sweeps), 0
    for t in range(sweeps):
        accepted += move(rng, x, total, released, scale, histogram, width)
        trace[t] = np.mean(x**2)
    return trace, accepted


def start(rng, n, histogram):
    x, total = rng.standard_normal(n), np.zeros(20)
    for value in x:
        place, amount = contribution(value, histogram)
        total[place] += amount
    return x, total


def measure(move, n, noise, histogram, width=0.0):
    rng = np.random.default_rng(1)
    x, total = start(rng, n, histogram)
    released = total + rng.laplace(0, noise, 20) * (1.0 if histogram else np.eye(20)[0])
    arguments = (rng, x, total, released, noise, histogram, width)
    run(move, *arguments, 2)
    begin = time.process_time()
    trace, accepted = run(move, *arguments, int(3e6 / n))
    seconds = time.process_time() - begin
    return float(az.ess(trace[None])) / seconds, accepted / seconds


def main() -> list[dict]:
    rows = []
    for histogram in (False, True):
        for n in SIZES:
            for noise in NOISES:
                found = {"plain": measure(plain, n, noise, histogram)}
                walks = [measure(random_walk, n, noise, histogram, w) for w in (0.03, 0.3, 1.0)]
                found["random walk"] = max(walks)
                found["SOMA"] = measure(soma, n, noise, histogram)
                row = {"release": "histogram" if histogram else "sum", "records": n, "noise": noise}
                rows.append(row | {name: rate for name, (rate, _) in found.items()})
                print(rows[-1], flush=True)
    return rows
