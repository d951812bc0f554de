"""A first private inference: what do 200 people sleep, when all we hold is one noisy number?

A clinic asked 200 patients how long they sleep, cut every answer to 3..12 hours, added the answers
up and published the sum with Laplace noise, epsilon = 0.5. We never see a patient. The model below
is the one we would write for the patients' answers; `Privatized` says what was published of them.
"""

from pathlib import Path

import arviz as az
import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

import pymc_dp as pmdp

N = 200
RELEASED = 1423.7
PLOT = Path(__file__).parent.parent / "quickstart.png"


def plot(draws: np.ndarray) -> None:
    """Draw the posterior, and below it the 95% intervals with the noise and without."""
    exact = np.quantile(draws, [0.025, 0.975])
    naive = RELEASED / N + 1.96 * np.array([-1, 1]) * 1.2 / np.sqrt(N)
    figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    heights, *_ = axes.hist(draws, bins=60, density=True, color="tab:blue", alpha=0.5)
    for interval, level, colour, text in (
        (exact, -0.07, "tab:blue", "95% interval"),
        (naive, -0.16, "tab:orange", "95% interval if the noise is ignored"),
    ):
        height = level * heights.max()
        axes.plot(interval, [height, height], color=colour, linewidth=4, solid_capstyle="butt")
        axes.annotate(
            text, (interval[1], height), (6, 0), textcoords="offset points", va="center", fontsize=9
        )
    axes.set(
        xlabel="mean hours of sleep (mu)",
        yticks=[],
        ylim=(-0.25 * heights.max(), None),
        xlim=(draws.min(), draws.max() + 0.3),
        title="Posterior from one noisy sum of 200 answers",
    )
    axes.spines[["top", "left", "right"]].set_visible(False)
    figure.savefig(PLOT, dpi=150)


def main() -> None:
    with pm.Model() as model:
        mu = pm.Normal("mu", 7, 2)
        x = pm.Normal("x", mu, 1.2, shape=N)  # the patients' answers, never seen
        pmdp.Privatized(
            "released",
            pmdp.clamp(x, 3, 12).sum(),
            pmdp.Laplace(epsilon=0.5, sensitivity=9),
            observed=RELEASED,
        )
        print(pmdp.explain(model), "\n")
        idata = pmdp.sample(3000, random_seed=1)
    print(az.summary(idata))

    plot(idata.posterior["mu"].values.ravel())
    print(f"\nThe posterior plot is in {PLOT}")


if __name__ == "__main__":  # chains run in processes of their own
    main()
