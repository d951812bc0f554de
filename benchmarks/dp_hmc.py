"""CPU time of one DPHMC iteration at n = 100000, against plain gradients and against JAX.

Rows: DPHMC as ``pm.sample`` runs it (noise from the operating system, L as published); the same
number, L + 1, of plain PyMC gradients (``model.logp_dlogp_function``, as PyMC's HMC calls); and,
where JAX is installed, the same iteration fused into one jitted loop, for one chain and for four,
by chain. CPU seconds count all threads.
"""

import numpy as np

import pymc_dp as pmdp
from benchmarks.dp_penalty import N, cpu_per_call, jax_log_likelihood, logistic, problems

# published: n_leapfrog, step size, clip_logp, clip_grad; for the logistic model of our own choice
SETTINGS = {
    "banana": (25, 0.006, 0.1, 0.05),
    "gaussian": (12, 1.5e-4, 6.0, 10.0),
    "logistic": (12, 1e-3, 3.0, 3.0),
}


def time_hmc(model, settings, seconds):
    steps, step_size, clip_logp, clip_grad = settings
    with model:
        step = pmdp.DPHMC(
            epsilon=4,
            delta=1e-6,
            chains=1,
            clip_logp=clip_logp,
            clip_grad=clip_grad,
            step_size=step_size,
            n_leapfrog=steps,
        )
    step.setup_chain(np.random.default_rng(0), 0, 10**6)
    state = {"point": model.initial_point()}

    def iterate():
        state["point"], _ = step.step(state["point"])

    return cpu_per_call(iterate, seconds)


def time_plain(model, seconds):
    function = model.logp_dlogp_function(ravel_inputs=True)
    function.set_extra_values({})
    theta = np.concatenate([np.ravel(v) for v in model.initial_point().values()])
    return cpu_per_call(lambda: function._pytensor_function(theta), seconds)


def time_jax(name, data, settings, chains, seconds):
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    of_arrays, arrays, size = jax_log_likelihood(name, data)
    arrays = jnp.asarray(np.ascontiguousarray(arrays))

    def log_likelihood(theta):
        return of_arrays(theta, arrays)

    steps, step_size, clip_logp, clip_grad = settings
    record_gradients = jax_gradients(name, data)

    def force(theta, key):
        rows = record_gradients(theta)
        lengths = jnp.linalg.norm(rows, axis=1, keepdims=True)
        clipped = rows * jnp.minimum(1.0, clip_grad / jnp.maximum(lengths, 1e-30))
        return clipped.sum(0) + 100.0 * clip_grad * jax.random.normal(key, (size,)) - theta / 1000

    def iteration(theta, key):
        k1, k2, k3, k4 = jax.random.split(key, 4)
        start = jax.random.normal(k1, (size,))
        keys = jax.random.split(k4, steps + 1)

        def leap(state, key):
            place, speed = state
            place = place + step_size * speed
            return (place, speed + step_size * force(place, key)), None

        begun = start + step_size / 2 * force(theta, keys[0])
        (place, speed), _ = jax.lax.scan(leap, (theta, begun), keys[1:-1])
        place = place + step_size * speed
        speed = speed + step_size / 2 * force(place, keys[-1])
        bound = clip_logp * jnp.linalg.norm(place - theta)
        sd = 20.0 * bound
        ratio = jnp.clip(log_likelihood(place) - log_likelihood(theta), -bound, bound).sum()
        ratio = ratio + sd * jax.random.normal(k2) + ((theta**2).sum() - (place**2).sum()) / 2000
        gain = ratio + ((start**2).sum() - (speed**2).sum()) / 2 - sd**2 / 2
        return jnp.where(jnp.log(jax.random.uniform(k3)) < gain, place, theta), None

    def run(theta, key):
        return jax.lax.scan(iteration, theta, jax.random.split(key, 2))[0]

    jitted = jax.jit(jax.vmap(run))
    thetas, keys = jnp.zeros((chains, size)), jax.random.split(jax.random.key(0), chains)
    return cpu_per_call(lambda: jitted(thetas, keys).block_until_ready(), seconds) / (2 * chains)


def jax_gradients(name, data):
    """Every record's gradient, written by hand where that is cheaper than vmap of grad."""
    import jax
    import jax.numpy as jnp

    if name == "gaussian":
        covariance = pmdp.datasets.correlated_gaussian(N).covariance * N
        whiten = jnp.asarray(np.linalg.inv(np.linalg.cholesky(covariance)).T)
        white = jnp.asarray(data[0]) @ whiten
        return lambda theta: (white - theta @ whiten) @ whiten.T
    if name == "logistic":
        X, y = (jnp.asarray(array) for array in data)
        return lambda theta: (y - jax.nn.sigmoid(X @ theta))[:, None] * X
    x = jnp.asarray(data[0])

    def banana(theta):
        first = (x[:, 0] - theta[0]) / 2000
        second = (x[:, 1] - theta[1] - 20 * theta[0] ** 2) / 2500
        return jnp.stack([first + 40 * theta[0] * second, second], axis=1)

    return banana


def main(seconds: float = 2.0) -> list[dict]:
    rows = []
    made = problems()
    for name, (model, data, *_) in made.items():
        settings = SETTINGS[name]
        row = {
            "problem": name,
            "n_leapfrog": settings[0],
            "hmc_ms": 1e3 * time_hmc(model, settings, seconds),
            "plain_gradients_ms": 1e3 * (settings[0] + 1) * time_plain(model, seconds),
        }
        row["hmc_over_plain"] = row["hmc_ms"] / row["plain_gradients_ms"]
        try:
            for chains in (1, 4):
                found = 1e3 * time_jax(name, data, settings, chains, seconds)
                row[f"jax_{chains}_chains_ms"] = found
        except ImportError:
            pass
        rows.append(row)
    return [*rows, *growth(seconds)]


def growth(seconds: float = 2.0) -> list[dict]:
    """Time of an iteration against the number of records, logistic regression of 10 covariates."""
    import benchmarks.dp_penalty as peer

    rows, kept = [], peer.N
    try:
        for n in (10_000, 100_000, 1_000_000):
            peer.N = n
            model, _ = logistic()
            found = time_hmc(model, SETTINGS["logistic"], seconds)
            rows.append({"problem": f"logistic, n = {n}", "hmc_ms": 1e3 * found})
            rows[-1]["ns_a_record"] = 1e9 * found / n
    finally:
        peer.N = kept
    return rows
