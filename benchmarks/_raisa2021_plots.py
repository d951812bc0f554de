"""Figures 1 to 3 of Räisä et al. (2021) for the runs of ``raisa2021``."""

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
import matplotlib.pyplot as plt

COLOURS = {
    "DPHMC": "tab:blue",
    "HMC": "tab:blue",
    "DPMALA": "tab:cyan",
    "DPSGLD": "tab:green",
    "DPSGNHT": "tab:red",
    "DPBarker": "tab:purple",
    "DPPenalty": "tab:orange",
    "one component": "tab:brown",
    "guided": "tab:pink",
    "score release": "black",
}


def plot_comparison(rows, path):
    """MMD and mean error against epsilon, with the published medians."""
    models = list(dict.fromkeys(row["model"] for row in rows))
    figure, axes = plt.subplots(len(models), 2, figsize=(11, 3.6 * len(models)), squeeze=False)
    for line, model in zip(axes, models, strict=True):
        for method in dict.fromkeys(row["method"] for row in rows):
            some = [r for r in rows if (r["model"], r["method"]) == (model, method)]
            x = [r["epsilon"] for r in some]
            colour = COLOURS[method]
            line[0].plot(x, [r["mmd"] for r in some], "o-", color=colour, label=method)
            line[0].fill_between(
                x,
                [r["mmd_min"] for r in some],
                [r["mmd_max"] for r in some],
                color=colour,
                alpha=0.07,
            )
            published = [r["published"] for r in some]
            if published and not np.isnan(published).all():
                line[0].plot(x, published, "x--", color=colour, alpha=0.6)
            line[1].plot(x, [r["mean_error"] for r in some], "o-", color=colour, label=method)
        line[0].plot([], [], "x--", color="0.4", label="published")
        line[0].set(title=f"{model}: MMD", xlabel="epsilon", ylim=(0, None))
        line[1].set(title=f"{model}: error of the mean", xlabel="epsilon", ylim=(0, None))
        handles, labels = line[0].get_legend_handles_labels()
        line[1].legend(handles, labels, fontsize=8, loc="center left", bbox_to_anchor=(1.02, 0.5))
    figure.tight_layout()
    figure.savefig(path, dpi=80)
    plt.close(figure)


def plot_posteriors(samples, reference, path, epsilon=15):
    """Draws of each method over exact ones, and marginals."""
    figure, axes = plt.subplots(3, len(samples), figsize=(3.2 * len(samples), 8), squeeze=False)
    for column, (method, draws) in zip(axes.T, samples.items(), strict=True):
        draw = np.concatenate(draws)
        column[0].plot(*reference.T, ".", color="0.7", markersize=3, label="exact")
        column[0].plot(*draw.T, ".", color=COLOURS[method], markersize=2, alpha=0.4, label=method)
        column[0].set(title=f"{method}, epsilon = {epsilon:g}", xlabel="theta_1", ylabel="theta_2")
        column[0].legend(fontsize=8)
        for k in (0, 1):
            low, high = np.quantile(reference[:, k], [0.001, 0.999])
            bins = np.linspace(low - 0.3 * (high - low), high + 0.3 * (high - low), 50)
            column[k + 1].hist(reference[:, k], bins, density=True, color="0.8", label="exact")
            column[k + 1].hist(
                draw[:, k], bins, density=True, histtype="step", color=COLOURS[method]
            )
            column[k + 1].set(xlabel=f"theta_{k + 1}", yticks=[])
            column[k + 1].locator_params(axis="x", nbins=5)
    figure.tight_layout()
    figure.savefig(path, dpi=80)
    plt.close(figure)


def plot_clipping(rows, path):
    """MMD against the clip bound and against the share of clipped ratios, without noise."""
    models = list(dict.fromkeys(row["model"] for row in rows))
    figure, axes = plt.subplots(len(models), 2, figsize=(9, 3.2 * len(models)), squeeze=False)
    for line, model in zip(axes, models, strict=True):
        for method in dict.fromkeys(row["method"] for row in rows):
            some = [r for r in rows if (r["model"], r["method"]) == (model, method)]
            colour = COLOURS.get(method, "tab:orange")
            mmd = [r["mmd"] for r in some]
            line[0].plot([r["clip_logp"] for r in some], mmd, "o-", color=colour, label=method)
            line[1].plot([r["clipped"] for r in some], mmd, "o", color=colour, label=method)
        line[0].set(
            title=f"{model}", xlabel="clip_logp", ylabel="MMD", xlim=(0, None), ylim=(0, None)
        )
        line[1].set(title=f"{model}", xlabel="share of clipped log-ratios", ylim=(0, None))
        line[0].legend(fontsize=8)
        line[1].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=80)
    plt.close(figure)
