"""CPU time of one DPPenalty iteration at n = 100000, against the bare ratio and against JAX.

Rows: DPPenalty as ``pm.sample`` runs it (proposal, clipping, noise from the operating system,
acceptance); the compiled log-likelihood ratio of the model alone; and, where JAX is installed, the
same sampler fused into one jitted loop, for one chain and for four, by chain, with ratios that are
linear in the records where they can be. CPU seconds count all threads.
"""

import json
import time
from pathlib import Path

import numpy as np
import pymc as pm

import pymc_dp as pmdp
from pymc_dp.graph.vector import FlatSpace

N = 100_000
RESULTS = Path(__file__).parent / "results"


def logistic():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 10))
    y = (rng.random(N) < 1 / (1 + np.exp(-X[:, 0]))).astype(np.int64)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=10)
        pm.Bernoulli("y", logit_p=X @ beta, observed=y)
    return model, (X, y)


def problems():
    banana, gauss = pmdp.datasets.banana(N), pmdp.datasets.correlated_gaussian(N)
    return {
        "banana": (banana.model(), (banana.data,), 0.15, 0.06),
        "gaussian": (gauss.model(), (gauss.data,), 10.0, 7e-4),
        "logistic": (*logistic(), 3.0, 3e-3),
    }


def cpu_per_call(call, seconds=2.0):
    """Least over five rounds of the CPU seconds of a call: what others leave of a busy machine."""
    call()
    start = time.perf_counter()
    call()
    calls = max(1, int(seconds / 5 / (time.perf_counter() - start)))
    rounds = []
    for _ in range(5):
        start = time.process_time()
        for _ in range(calls):
            call()
        rounds.append((time.process_time() - start) / calls)
    return min(rounds)


def time_penalty(model, clip_logp, step_size, seconds):
    with model:
        step = pmdp.DPPenalty(
            epsilon=4, delta=1e-6, chains=1, clip_logp=clip_logp, step_size=step_size
        )
    step.setup_chain(np.random.default_rng(0), 0, 10**7)
    state = {"point": model.initial_point()}

    def iterate():
        state["point"], _ = step.step(state["point"])

    return cpu_per_call(iterate, seconds)


def time_bare_ratio(model, step_size, seconds):
    space = FlatSpace(model)
    logp = model.logp(vars=model.observed_RVs)
    (new, new_logp), (old, old_logp) = space.on_vector([logp]), space.on_vector([logp])
    ratio = pm.compile([new, old], new_logp[0] - old_logp[0])
    ratio.trust_input = True
    rng = np.random.default_rng(0)
    moves = [space.start + step_size * rng.normal(size=space.size) for _ in range(8)]
    turn = iter(range(10**9))

    def evaluate():
        i = next(turn)
        ratio(moves[i % 8], moves[(i + 1) % 8])

    return cpu_per_call(evaluate, seconds)


def jax_ratios(name, data):
    """What a point says to all records, their ratios of two such, and arrays, in JAX's best form.

    What no step changes is precomputed: ratios of the normal problems are linear in the records.
    Columns are contiguous, and arrays are arguments, which compiled code reads faster than
    constants.
    """
    import jax
    import jax.numpy as jnp

    def linear(new, old, columns):
        # written out as a sum, which is fused with what follows, it takes up to three times as long
        return new[0] - old[0] + (new[1] - old[1]) @ columns

    if name == "banana":

        def banana(theta, columns):
            height = theta[1] + 20 * theta[0] ** 2
            constant = -(theta[0] ** 2) / 4000 - height**2 / 5000
            return constant, jnp.stack([theta[0] / 2000, height / 2500])

        return banana, linear, data[0].T, 2
    if name == "gaussian":
        covariance = pmdp.datasets.correlated_gaussian(N).covariance * N  # the prior is flat
        whiten = np.linalg.inv(np.linalg.cholesky(covariance)).T

        def gaussian(theta, columns):
            mean = theta @ jnp.asarray(whiten, theta.dtype)
            return -mean @ mean / 2, mean

        return gaussian, linear, (data[0] @ whiten).T, 10
    X, y = data
    return (
        lambda theta, signed: -jax.nn.softplus(theta @ signed),
        lambda new, old, signed: new - old,
        np.where(y == 1, -1.0, 1.0) * X.T,
        10,
    )


def time_jax(name, data, clip_logp, step_size, chains, seconds, dtype="float64"):
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    said, ratios, data, size = jax_ratios(name, data)
    data = jnp.asarray(np.ascontiguousarray(data), dtype)

    def run(theta, key, data):
        def iteration(state, key):
            theta, old = state
            k1, k2, k3 = jax.random.split(key, 3)
            proposal = theta + step_size * jax.random.normal(k1, (size,), dtype)
            distance = jnp.linalg.norm(proposal - theta)
            bound = clip_logp * distance
            new = said(proposal, data)
            sd = 20.0 * bound
            ratio = jnp.clip(ratios(new, old, data), -bound, bound).sum()
            ratio += sd * jax.random.normal(k2, (), dtype)
            prior = ((theta**2).sum() - (proposal**2).sum()) / 2000
            chance = jnp.log(jax.random.uniform(k3, (), dtype))
            accept = chance < ratio + prior - sd**2 / 2
            kept = jax.tree.map(lambda a, b: jnp.where(accept, a, b), new, old)
            return (jnp.where(accept, proposal, theta), kept), None

        keys = jax.random.split(key, 20)
        return jax.lax.scan(iteration, (theta, said(theta, data)), keys)[0][0]

    jitted = jax.jit(jax.vmap(run, in_axes=(0, 0, None)))
    if chains == 1:
        jitted = jax.jit(lambda thetas, keys, data: run(thetas[0], keys[0], data))
    thetas = jnp.zeros((chains, size), dtype)
    keys = jax.random.split(jax.random.key(0), chains)
    call = lambda: jitted(thetas, keys, data).block_until_ready()  # noqa: E731
    return cpu_per_call(call, seconds) / (20 * chains)


def main(seconds: float = 2.0) -> list[dict]:
    rows = []
    for name, (model, data, clip_logp, step_size) in problems().items():
        row = {
            "problem": name,
            "n": N,
            "penalty_ms": 1e3 * time_penalty(model, clip_logp, step_size, seconds),
            "bare_ratio_ms": 1e3 * time_bare_ratio(model, step_size, seconds),
        }
        row["penalty_over_bare"] = row["penalty_ms"] / row["bare_ratio_ms"]
        try:
            for chains in (1, 4):
                row[f"jax_{chains}_chains_ms"] = 1e3 * time_jax(
                    name, data, clip_logp, step_size, chains, seconds
                )
            row["jax_single_precision_ms"] = 1e3 * time_jax(
                name, data, clip_logp, step_size, 1, seconds, "float32"
            )
        except ImportError:
            pass
        rows.append(row)
        print("  ".join(f"{k}={v:.3g}" if isinstance(v, float) else f"{v}" for k, v in row.items()))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "dp_penalty.json").write_text(json.dumps(rows, indent=1))
    return rows


if __name__ == "__main__":
    main()
