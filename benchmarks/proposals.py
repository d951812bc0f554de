"""Proposals for records where plain acceptance is low: is anything better than the model's draws?

Normal records with mean mu and standard deviation sd, both unknown, and releases with little
Laplace noise: a clamped sum (of which sd is known), sum and sum of squares, a histogram of 20 bins,
or the five first and second moments of records with two values each. A round of the
sampler draws mu and sd^2 from their conditionals, moves both with the records' residuals kept
(interweaving), and moves the records by

- plain: a draw from the model for every record (Algorithm 1 of Ju et al. 2022);
- walk: a random walk around every record, the best of four widths;
- SOMA (Xiong & Ju 2025, arXiv 2505.00635): one draw from the model, weighed against all records.
  Record i is replaced with a probability in proportion to w_i, the density of the release with the
  draw in its place, and that is accepted with probability min(1, W / (W - w_i + w)), W the sum of
  the w_i and w the present density: back, the old value is weighed against the same W less w_i
  plus w. As many offers as cost about a sweep.

Everything is numba. Effective draws a CPU second, the worse of mu and sd.
"""

import itertools
import time

import arviz as az
import numba
import numpy as np

STATISTICS = ("sum", "sum and squares", "histogram", "moments of two")
SIZES, NOISES = (100, 1000, 10_000), (0.01, 0.1, 1.0, 10.0)
WIDTHS = (0.03, 0.1, 0.3, 1.0)
SECONDS = 0.5


@numba.njit
def contribute(kind, x, out):
    """Write what one record, clamped to [-5, 5], adds to the statistic."""
    a = min(max(x[0], -5.0), 5.0)
    if kind == 2:
        out[:] = 0.0
        out[min(int(2 * (a + 5)), 19)] = 1.0
        return
    out[0] = a
    if kind == 1:
        out[1] = a * a
    if kind == 3:
        b = min(max(x[1], -5.0), 5.0)
        out[1], out[2], out[3], out[4] = b, a * a, a * b, b * b


@numba.njit
def log_density(gap, noise):
    total = 0.0
    for value in gap:
        total -= abs(value) / noise
    return total


@numba.njit
def replaced(gap, old, new, noise):
    total = 0.0
    for k in range(gap.size):
        total -= abs(gap[k] + old[k] - new[k]) / noise
    return total


@numba.njit
def put(x, parts, gap, i, value, part):
    for k in range(gap.size):
        gap[k] += parts[i, k] - part[k]
        parts[i, k] = part[k]
    x[i] = value


@numba.njit
def plain(rng, kind, x, parts, gap, noise, mu, sd, width):
    part, value = np.empty(gap.size), np.empty(x.shape[1])
    current, accepted = log_density(gap, noise), 0
    for i in range(x.shape[0]):
        for k in range(value.size):
            value[k] = mu + sd * rng.standard_normal()
        contribute(kind, value, part)
        found = replaced(gap, parts[i], part, noise)
        if found - current > -rng.standard_exponential():
            put(x, parts, gap, i, value, part)
            current = found
            accepted += 1
    return accepted


@numba.njit
def walk(rng, kind, x, parts, gap, noise, mu, sd, width):
    part, value = np.empty(gap.size), np.empty(x.shape[1])
    current, accepted = log_density(gap, noise), 0
    for i in range(x.shape[0]):
        prior = 0.0
        for k in range(value.size):
            value[k] = x[i, k] + width * sd * rng.standard_normal()
            prior += ((x[i, k] - mu) ** 2 - (value[k] - mu) ** 2) / (2 * sd**2)
        contribute(kind, value, part)
        found = replaced(gap, parts[i], part, noise)
        if found - current + prior > -rng.standard_exponential():
            put(x, parts, gap, i, value, part)
            current = found
            accepted += 1
    return accepted


@numba.njit
def soma(rng, kind, x, parts, gap, noise, mu, sd, width):
    part, value, weights = np.empty(gap.size), np.empty(x.shape[1]), np.empty(x.shape[0])
    accepted = 0
    for _ in range(3):
        for k in range(value.size):
            value[k] = mu + sd * rng.standard_normal()
        contribute(kind, value, part)
        current = largest = log_density(gap, noise)
        for i in range(x.shape[0]):
            weights[i] = replaced(gap, parts[i], part, noise)
            largest = max(largest, weights[i])
        whole = 0.0
        for i in range(x.shape[0]):
            weights[i] = np.exp(weights[i] - largest) if weights[i] > largest - 30 else 0.0
            whole += weights[i]
        left, chosen = rng.random() * whole, 0
        while left > weights[chosen] and chosen < x.shape[0] - 1:
            left -= weights[chosen]
            chosen += 1
        if rng.random() * (whole - weights[chosen] + np.exp(current - largest)) < whole:
            put(x, parts, gap, chosen, value, part)
            accepted += 1
    return accepted


@numba.njit
def draw_parameters(rng, kind, x):
    """Draw mu ~ N(0, 3^2) and sd^2 ~ InvGamma(2, 2) given the records."""
    mean, sd = x.mean(), 1.0
    square = ((x - mean) ** 2).sum()
    # by the prior of mu last, which is met by rejection: exact
    while True:
        if kind > 0:
            sd = np.sqrt((2 + square / 2) / rng.standard_gamma(2 + (x.size - 1) / 2))
        mu = mean + sd / np.sqrt(x.size) * rng.standard_normal()
        if -(mu**2) / 18 > -rng.standard_exponential():
            return mu, sd


@numba.njit
def log_target(kind, x, mu, sd, old_mu, old_sd, released, noise, part, moved):
    """Log-density of (mu, log sd) with residuals kept."""
    gap = released.copy()
    for i in range(x.shape[0]):
        for k in range(x.shape[1]):
            moved[k] = mu + sd / old_sd * (x[i, k] - old_mu)
        contribute(kind, moved, part)
        gap -= part
    return log_density(gap, noise) - mu**2 / 18 - 4 * np.log(sd) - 2 / sd**2


@numba.njit
def interweave(rng, kind, x, mu, sd, released, noise, widths):
    """Move mu or log sd along with the records by slice sampling, at random."""
    part, moved = np.empty(released.size), np.empty(x.shape[1])
    which = int(rng.random() * 2) if kind > 0 else 0
    width = widths[which]
    level = -rng.standard_exponential() + log_target(
        kind, x, mu, sd, mu, sd, released, noise, part, moved
    )
    left = -width * rng.random()
    right = left + width
    stage, steps = 0, 20
    while True:
        step = left if stage == 0 else right if stage == 1 else left + (right - left) * rng.random()
        new_mu, new_sd = (mu + step, sd) if which == 0 else (mu, sd * np.exp(step))
        inside = level < log_target(kind, x, new_mu, new_sd, mu, sd, released, noise, part, moved)
        if stage < 2 and inside and steps > 0:
            steps -= 1
            left, right = (left - width, right) if stage == 0 else (left, right + width)
        elif stage < 2:
            stage, steps = stage + 1, 20
        elif inside:
            x[:] = new_mu + new_sd / sd * (x - mu)
            return new_mu, new_sd, which, abs(step)
        elif step < 0:
            left = step
        else:
            right = step


@numba.njit
def run(move, rng, kind, x, released, noise, width, widths, rounds, tune):
    n, trace, accepted = x.shape[0], np.empty((rounds, 2)), 0
    parts = np.empty((n, released.size))
    mu, sd = 0.0, 1.0
    for t in range(rounds):
        gap = released.copy()
        for i in range(n):
            contribute(kind, x[i], parts[i])
            gap -= parts[i]
        mu, sd = draw_parameters(rng, kind, x)
        accepted += move(rng, kind, x, parts, gap, noise, mu, sd, width)
        mu, sd, which, step = interweave(rng, kind, x, mu, sd, released, noise, widths)
        if tune:
            widths[which] += (3 * step - widths[which]) / (t + 2) ** 0.6
        trace[t] = mu, sd
    return trace, accepted / rounds / n


def problem(kind, n, noise):
    """Records, and a release of another table of the same model."""
    rng = np.random.default_rng([kind, n])
    size = (1, 2, 20, 5)[kind]
    released, part = np.zeros(size), np.empty(size)
    x = rng.normal(0.5, 1.0, (n, 2 if kind == 3 else 1))
    for row in x:
        contribute(kind, row, part)
        released += part
    return x, released + rng.laplace(0, noise, size)


def measure(move, kind, n, noise, width=0.0):
    """Effective draws a second of mu and of sd, and acceptance; chains start near the truth."""
    rng, widths = np.random.default_rng(1), np.full(2, 0.1)
    x, released = problem(kind, n, noise)
    arguments = (move, rng, kind, x, released, noise, width, widths)
    run(*arguments, 2, True)
    begin = time.process_time()
    run(*arguments, 100, True)
    rounds = int(100 * SECONDS / (time.process_time() - begin)) + 100
    run(*arguments, rounds // 4, True)
    begin = time.process_time()
    trace, acceptance = run(*arguments, rounds, False)
    seconds = time.process_time() - begin
    trace = trace if kind > 0 else trace[:, :1]
    effective = np.array([float(az.ess(column[None])) for column in trace.T])
    errors = trace.std(axis=0) / np.sqrt(effective)
    return min(effective) / seconds, acceptance, trace.mean(axis=0), errors


def main() -> list[dict]:
    rows = []
    for kind, name in enumerate(STATISTICS):
        for n in SIZES:
            for noise in NOISES:
                walks = [measure(walk, kind, n, noise, width) for width in WIDTHS]
                found = {
                    "plain": measure(plain, kind, n, noise),
                    "walk": max(walks, key=lambda result: result[0]),
                    "SOMA": measure(soma, kind, n, noise),
                }
                row = {"release": name, "records": n, "noise": noise}
                row |= {"plain acceptance": found["plain"][1]}
                row |= {move: float(result[0]) for move, result in found.items()}
                row["means apart, in errors"] = apart(*found.values())
                rows.append(row)
                print(row, flush=True)
    return rows


def apart(*results):
    """Largest distance between posterior means of two moves, in standard errors of both."""
    return max(
        float(np.max(np.abs(a[2] - b[2]) / np.hypot(a[3], b[3])))
        for a, b in itertools.combinations(results, 2)
    )
