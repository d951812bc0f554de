"""The thermostat's errors are of second order, and noise of unknown size is made up for."""

import numpy as np

from pymc_dp.numerics.thermostat import thermostat_step

CHAINS, DIMENSIONS, TIME, BURN = 12_000, 3, 60.0, 20.0


def variance(size, diffusion=1.0, unknown=0.0, seed=0):
    """Of a standard normal's draws, and the friction at the end, over many chains."""
    rng = np.random.default_rng(seed)
    x, p = rng.normal(size=(2, CHAINS, DIMENSIONS))
    friction, squares = np.full(CHAINS, diffusion), []
    added = np.sqrt(2 * diffusion * size + (size * unknown) ** 2)
    for turn in range(int((TIME + BURN) / size)):
        noise = added * rng.normal(size=x.shape)
        moved, p, friction = thermostat_step(
            p, friction, size, lambda by, x=x, noise=noise: -size * (x + by) + noise
        )
        x = x + moved
        if turn * size > BURN:
            squares.append((x**2).mean())
    return np.mean(squares), friction.mean()


def test_errors_are_of_second_order():
    # 36 000 coordinates over 60 time units: standard errors of .001 (from a first run)
    small, large = (variance(size)[0] - 1 for size in (0.25, 0.5))
    assert -0.06 < large < -0.03
    assert 2.5 < large / small < 7  # 4 for second order, 2 for first


def test_noise_of_unknown_size_is_cooled_away():
    found, friction = variance(0.2, unknown=3.0)
    assert abs(found - 1) < 0.02
    assert abs(friction - (1 + 0.2 * 9 / 2)) < 0.1
