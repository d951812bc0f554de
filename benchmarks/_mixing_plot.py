"""The picture of `mixing`: one panel a statistic, one colour a number of records."""

SAMPLERS = {
    "marginalize": {"marker": "o", "linestyle": "-", "markersize": 5},
    "by hand": {"marker": "+", "linestyle": "", "markeredgewidth": 1.5, "markersize": 9},
    "RecordGibbs": {"marker": "s", "linestyle": "--", "markersize": 4},
    "best peer with records": {"marker": "x", "linestyle": ":", "markersize": 6},
}


def plot(rows, statistics, peers, folder):
    import matplotlib.pyplot as plt

    sizes = sorted({row["records"] for row in rows})
    figure, axes = plt.subplots(
        2, 2, figsize=(10, 7.2), sharex=True, sharey=True, layout="constrained"
    )
    for axis, statistic in zip(axes.flat, statistics, strict=True):
        for i, n in enumerate(sizes):
            cells = [r for r in rows if r["records"] == n and r["statistic"] == statistic]
            for sampler, style in SAMPLERS.items():
                best = [(r["noise"], rate_of(r, sampler, peers)) for r in cells]
                found = [point for point in best if point[1] is not None]
                if found:
                    axis.plot(*zip(*found, strict=True), color=f"C{i}", **style)
        axis.set(xscale="log", yscale="log", title=statistic)
        axis.grid(which="major", alpha=0.25)
    for axis in axes[-1]:
        axis.set_xlabel("scale of the noise")
    for axis in axes[:, 0]:
        axis.set_ylabel("effective draws per CPU second")
    lines = [
        plt.Line2D([], [], color="0.3", label=sampler, **style)
        for sampler, style in SAMPLERS.items()
    ]
    colours = [
        plt.Line2D([], [], color=f"C{i}", linewidth=4, label=f"n = {n:,}".replace(",", " "))
        for i, n in enumerate(sizes)
    ]
    rows_of_two = [handle for pair in zip(lines, colours, strict=True) for handle in pair]
    figure.legend(handles=rows_of_two, loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(folder / "mixing.png", dpi=120)


def rate_of(row, sampler, peers):
    if sampler in row:
        return row[sampler]
    return max((row[peer] for peer in peers if peer in row), default=None)
