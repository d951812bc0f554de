"""Figures 3 and 4 of Bernstein & Sheldon (2019) from the rows of benchmarks.bernstein2019."""

import json
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np

COLOURS = {
    "update": "tab:blue",
    "prior": "tab:cyan",
    "noisy": "tab:green",
    "paper": "tab:orange",
    "records": "tab:purple",
    "naive": "tab:red",
    "non-private": "black",
}
LABELS = {
    "update": "Update",
    "prior": "Prior",
    "noisy": "Noisy",
    "paper": "Update, paper's loop",
    "records": "latent records (MCMC-Ind)",
    "naive": "Naive",
    "non-private": "non-private",
}
NAMES = ("slope", "intercept", "sigma2")


def read(path):
    """Return the trials that were written down."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def draw(folder, rows):
    """Write figure3.png and figure4.png of whatever rows there are."""
    mpl.use("Agg")
    folder = Path(folder)
    calibrated = [row for row in rows if row["part"] == "calibration"]
    if calibrated:
        figure_3(folder, calibrated)
    predicted = [row for row in rows if row["part"] == "prediction"]
    if predicted:
        figure_4(folder, predicted)


def figure_3(folder, rows):
    figure, axes = plt.subplots(5, 3, figsize=(10, 14))
    for k, name in enumerate(NAMES):
        for method, colour in COLOURS.items():
            own = [row for row in rows if row["method"] == method]
            style = {"color": colour, "label": LABELS[method], "marker": "o", "ms": 3}
            for axis, at, fixed, field in (
                (axes[0, k], "n", ("epsilon", 0.1), f"ks {name}"),
                (axes[1, k], "epsilon", ("n", 10), f"ks {name}"),
                (axes[3, k], "n", ("epsilon", 0.1), f"cover {name}"),
            ):
                line = sorted((r[at], r[field]) for r in own if r[fixed[0]] == fixed[1])
                if line:
                    axis.semilogx(*zip(*line, strict=True), **style)
            for row in own:
                if (row["n"], row["epsilon"]) == (10, 0.1):
                    u = np.sort([v[k] for v in row["u"]])
                    axes[2, k].plot(u, np.arange(1, len(u) + 1) / len(u), color=colour)
        for axis in axes[:2, k]:
            axis.axhline(rows[0]["ks 5% point"], color="grey", ls=":", lw=1)
            axis.set_ylim(0, 1)
        axes[0, k].set(title=name, xlabel="n  (epsilon 0.1)")
        axes[1, k].set_xlabel("epsilon  (n 10)")
        axes[2, k].plot([0, 1], [0, 1], color="grey", ls=":", lw=1)
        axes[2, k].set_xlabel("quantile  (n 10, epsilon 0.1)")
        axes[3, k].axhline(0.95, color="grey", ls=":", lw=1)
        axes[3, k].set(xlabel="n  (epsilon 0.1)", ylim=(0, 1.02))
    for axis, label in zip(
        axes[:4, 0],
        ("KS statistic", "KS statistic", "share of trials", "95% coverage"),
        strict=True,
    ):
        axis.set_ylabel(label)
    for axis, field in ((axes[4, 0], "mmd"), (axes[4, 1], "s")):
        for method, colour in COLOURS.items():
            own = [r for r in rows if r["method"] == method and r["epsilon"] == 0.1]
            if line := sorted((r["n"], r[field]) for r in own if r[field] > 0):
                axis.semilogx(*zip(*line, strict=True), color=colour, marker="o", ms=3)
        axis.set(xlabel="n  (epsilon 0.1)", ylabel=field, ylim=(0, None))
    axes[4, 0].set_ylabel("MMD to non-private")
    axes[4, 1].set_ylabel("CPU seconds")
    axes[4, 2].axis("off")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    handles.append(mpl.lines.Line2D([], [], color="grey", ls=":"))
    axes[4, 2].legend(handles, [*labels, "5% point, or exact"], loc="center")
    figure.tight_layout()
    figure.savefig(folder / "figure3.png", dpi=75)
    plt.close(figure)


def figure_4(folder, rows):
    levels = sorted({row["epsilon"] for row in rows})
    figure, axes = plt.subplots(1, len(levels), figsize=(4 * len(levels), 3), squeeze=False)
    for axis, epsilon in zip(axes[0], levels, strict=True):
        own = [row for row in rows if row["epsilon"] == epsilon]
        for shift, (field, target) in enumerate((("cover 50%", 0.5), ("cover 90%", 0.9))):
            at = np.arange(len(own)) + 0.4 * shift - 0.2
            axis.bar(at, [row[field] for row in own], width=0.38, label=field)
            axis.axhline(target, color="grey", ls=":", lw=1)
        axis.set_xticks(range(len(own)), [row["method"] for row in own])
        axis.set(title=f"epsilon {epsilon}", ylim=(0, 1))
    axes[0, 0].legend(fontsize=8)
    axes[0, 0].set_ylabel("coverage")
    figure.tight_layout()
    figure.savefig(folder / "figure4.png", dpi=90)
    plt.close(figure)
