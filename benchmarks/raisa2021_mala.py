"""The thesis's DP-MALA against one leapfrog step, on a whitened Gaussian posterior.

Effective draws that a budget buys at best, over settings of both, from single iterations at exact
draws. No record is clipped: bounds are those of the largest of 100000 standard normal records,
and the thesis's bound on the summed gradient at three times its typical length, which favours it.
"""

import math

import numpy as np

N, TRIALS = 100_000, 2000
CLIP_GRAD, CLIP_LOGP = 6.0, 4.0


def effective(iterations, jumps, chance):
    """Draws worth independent ones, from squared jumps in posterior standard deviations."""
    moved = np.clip((chance[:, None] * jumps**2).mean() / 2, 1e-9, 1.0)
    return iterations * moved / (2 - moved)


def one_step(mu, size, iterations, step, share, rng):
    """DP-HMC with one leapfrog step; lengths in posterior standard deviations."""
    ratio_tau = math.sqrt(iterations / (2 * mu * (1 - share)))
    grad_tau = math.sqrt(2 * iterations / (2 * mu * share))
    x, p = rng.normal(size=(2, TRIALS, size))
    force_noise = 2 * CLIP_GRAD * grad_tau / math.sqrt(N)
    after = p + step / 2 * (-x + force_noise * rng.normal(size=x.shape))
    move = step * after
    end = after + step / 2 * (-(x + move) + force_noise * rng.normal(size=x.shape))
    gain = ((x**2).sum(1) - ((x + move) ** 2).sum(1)) / 2 + ((p**2).sum(1) - (end**2).sum(1)) / 2
    sd = 2 * CLIP_LOGP * ratio_tau * np.linalg.norm(move, axis=1) / math.sqrt(N)
    gain += sd * rng.normal(size=TRIALS) - sd**2 / 2
    return effective(iterations, move, np.exp(np.minimum(gain, 0)))


def thesis(mu, size, iterations, step, share, rng):
    """Section 4.2 of Räisä (2020): noise is the proposal, and its density's ratio is noised too."""
    tau = math.sqrt(iterations / (2 * mu * (1 - share)))
    grad_tau = math.sqrt(iterations / (2 * mu * share))
    clip_grad = CLIP_GRAD / math.sqrt(N)
    spread = max(step, grad_tau * step**2 * clip_grad)  # sqrt(a) sigma_p
    bound = 3 * math.sqrt(size)
    x = rng.normal(size=(TRIALS, size))

    def drift(place):
        lengths = np.linalg.norm(place, axis=1, keepdims=True)
        return -(step**2) / 2 * place * np.minimum(1, bound / lengths)

    move = drift(x) + spread * rng.normal(size=x.shape)
    there = x + move
    log_q = ((move - drift(x)) ** 2).sum(1) - ((-move - drift(there)) ** 2).sum(1)
    gain = ((x**2).sum(1) - (there**2).sum(1)) / 2 + log_q / (2 * spread**2)
    length = np.linalg.norm(move, axis=1)
    ratio = 2 * CLIP_LOGP * length / math.sqrt(N)
    # a record moves each drift by up to step^2 clip_grad
    proposal = step**2 * clip_grad / (2 * spread**2)
    proposal *= 2 * (length + step**2 / 2 * bound) * 2 + 2 * step**2 * clip_grad
    sd = tau * (ratio + proposal)
    gain += sd * rng.normal(size=TRIALS) - sd**2 / 2
    return effective(iterations, move, np.exp(np.minimum(gain, 0)))


def mala_rows(size=10):
    from pymc_dp.accounting import gaussian_mu

    rows = []
    for epsilon in (4.0, 8.0, 15.0):
        mu = gaussian_mu(epsilon, 1e-6)
        row = {"model": "whitened Gaussian", "epsilon": epsilon}
        for name, method in (("one_leapfrog_step", one_step), ("thesis", thesis)):
            row[name] = max(
                method(mu, size, iterations, step, share, np.random.default_rng(0))
                for iterations in np.geomspace(20, 20_000, 16)
                for step in np.geomspace(0.05, 1.6, 12)
                for share in (0.1, 0.25, 0.5, 0.75)
            )
        row["ratio"] = row["one_leapfrog_step"] / row["thesis"]
        rows.append(row)
        print({k: v if isinstance(v, str) else round(v, 3) for k, v in row.items()})
    return rows


def main() -> list[dict]:
    return mala_rows()
