"""CPU time of an iteration on a random batch of 1000 records, against the number of records.

The Gaussian problem with ten parameters; batches of a fixed size and Poisson ones, with batches and
noise from the operating system; and all records for comparison.
"""

import json
import time
from pathlib import Path

import numpy as np

import pymc_dp as pmdp

RESULTS = Path(__file__).parent / "results"
SIZES = (10_000, 100_000, 1_000_000)


def time_step(step, model, iterations):
    step.setup_chain(np.random.default_rng(0), 0, 7 * iterations + 10)
    point, rounds = model.initial_point(), []
    for _ in range(10):
        point, _ = step.step(point)
    for _ in range(7):
        start = time.process_time()
        for _ in range(iterations):
            point, _ = step.step(point)
        rounds.append((time.process_time() - start) / iterations)
    return 1e3 * float(np.median(rounds))


def main(iterations=300) -> list[dict]:
    """Rows, one for each number of records and sampler."""
    rows = []
    for n in SIZES:
        model = pmdp.datasets.correlated_gaussian(n).model()
        for name in ("DPSGLD", "DPSGNHT"):
            row = {"sampler": name, "n": n}
            for column, batches in (
                ("fixed_ms", {"batch_size": 1000}),
                ("poisson_ms", {"batch_fraction": 1000 / n}),
                ("all_records_ms", {}),
            ):
                with model:
                    step = getattr(pmdp, name)(
                        epsilon=4, delta=1e-6, chains=1, clip_grad=10.0, step_size=1e-12, **batches
                    )
                few = iterations if batches else max(3, iterations * 1000 // n)
                row[column] = time_step(step, model, few)
            rows.append(row)
            print(
                {k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}, flush=True
            )
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "batches.json").write_text(json.dumps(rows, indent=1))
    return rows


if __name__ == "__main__":
    main()
