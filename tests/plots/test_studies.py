"""Pictures of planned releases and of calibrations, and all pictures with every backend."""

import arviz as az
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from arviz_base import from_dict
from scipy import stats
from xarray import Dataset, DataTree

from pymc_dp import plots
from pymc_dp.plots.calibration import _band
from tests.plots.test_plots import SPENT

mpl.use("Agg")
RNG = np.random.default_rng(1)
EPSILONS, SIZES = [0.1, 1.0, 10.0], [100, 400]


def planned():
    """Widths of 3 / epsilon / n and shares, of a number and of two."""
    epsilon, n = np.array(EPSILONS)[:, None], np.array(SIZES)
    width = 300 / epsilon / n
    values = np.stack([width / 3, width, 0.9 + 0 * width])
    dims, coords = ("quantity", "epsilon", "n"), {"epsilon": EPSILONS, "n": SIZES}
    coords |= {"quantity": ["sd", "width", "coverage"]}
    both = np.stack([values, values], axis=-1)
    known = {"mu": (("quantity", "n"), np.array([[0.1, 0.05], [0.3, 0.15]]))}
    known["theta"] = (("quantity", "n", "group"), np.stack([known["mu"][1]] * 2, axis=-1))
    expected = Dataset({"mu": (dims, values), "theta": ((*dims, "group"), both)}, coords)
    tree = {"expected": expected, "mcse": 0 * expected + 0.01}
    tree["without_noise/expected"] = Dataset(known, {"quantity": ["sd", "width"], "n": SIZES})
    found = DataTree.from_dict(tree)
    found.attrs["ci_prob"] = 0.9
    return found


def places(values):
    return from_dict({"prior_sbc": {"mu": values}})


def test_lines_of_a_planned_release_are_its_widths():
    picture = plots.plot_design(planned(), backend="matplotlib")
    figure = plt.gcf()
    assert picture.viz["plot"]["theta"].sizes == {"quantity": 2, "group": 2}
    widths, shares = figure.axes[:2]
    lines = [line for line in widths.lines if len(line.get_xdata()) == 3]
    for line, n in zip(lines, SIZES, strict=True):
        np.testing.assert_allclose(line.get_xdata(), [-1, 0, 1])
        np.testing.assert_allclose(10 ** line.get_ydata(), 300 / np.array(EPSILONS) / n)
    # those of the records themselves
    dashed = [10 ** line.get_ydata()[0] for line in widths.lines if len(line.get_xdata()) == 2]
    np.testing.assert_allclose(dashed, [0.3, 0.15])
    assert [tick.get_text() for tick in widths.get_xticklabels()] == ["0.1", "1", "10"]
    ticks = zip(widths.get_yticks(), widths.get_yticklabels(), strict=True)
    assert all(10**place == pytest.approx(float(text.get_text())) for place, text in ticks)
    assert widths.get_ylabel() == "width of 90% intervals"
    assert [line.get_ydata()[0] for line in shares.lines if len(line.get_xdata()) == 2] == [0.9]
    assert figure.axes[-1].get_title() == "theta[1]"
    plt.close(figure)
    with pytest.raises(ValueError, match=r"no group 'expected'.*pymc_dp.design"):
        plots.plot_design(places(np.ones((1, 5))))


def test_line_of_a_calibration_is_the_distribution_function():
    """Of places that are twice as dense below a half, two thirds of which are there."""
    values = np.r_[np.linspace(0, 0.5, 200), np.linspace(0.5, 1, 100)]
    plots.plot_calibration(places(values[None]), backend="matplotlib")
    figure = plt.gcf()
    ranks, shares = figure.axes
    [line] = [line for line in ranks.lines if len(line.get_xdata()) > 2]
    middle = np.argmin(np.abs(line.get_xdata() - 0.5))
    assert line.get_ydata()[middle] == pytest.approx(2 / 3 - 1 / 2, abs=0.01)
    assert not _within(line, ranks.collections[0])
    [line] = [line for line in shares.lines if len(line.get_xdata()) > 2]
    assert _within(line, shares.collections[0])
    plt.close(figure)
    with pytest.raises(ValueError, match=r"no group 'prior_sbc'.*pymc_dp.calibrate"):
        plots.plot_calibration(planned())


def _within(line, band):
    corners = band.get_paths()[0].vertices
    above, below = corners[corners[:, 1] >= 0], corners[corners[:, 1] <= 0]
    x, y = line.get_data()
    upper = [above[np.abs(above[:, 0] - place) < 0.01, 1].max() for place in x]
    lower = [below[np.abs(below[:, 0] - place) < 0.01, 1].min() for place in x]
    return np.all((y <= np.array(upper) + 1e-9) & (y >= np.array(lower) - 1e-9))


def test_bands_hold_lines_of_uniform_places():
    """A line as a whole: 2000 of them, five standard deviations; no band is too wide either."""
    band = _band(100, 0.9)
    inside = 0
    for values in np.random.default_rng(5).uniform(size=(2000, 100)):
        share = np.searchsorted(np.sort(values), band["x"], side="right") / 100 - band["x"]
        inside += np.all((share >= band["y_bottom"] - 1e-9) & (share <= band["y_top"] + 1e-9))
    assert stats.binom.cdf(inside, 2000, 0.9 - 0.02) > 1e-6
    assert stats.binom.sf(inside, 2000, 0.9 + 0.05) > 1e-6


@pytest.mark.wide_except("matplotlib", "none")
@pytest.mark.parametrize("backend", ["matplotlib", "bokeh", "plotly", "none"])
def test_pictures_of_every_backend(backend):
    draws = from_dict(
        {
            "posterior": {"mu": RNG.normal(size=(2, 50))},
            "prior": {"mu": RNG.normal(0, 5, size=(1, 50))},
            "posterior_predictive": {"s": RNG.normal(5, 2, size=(2, 50))},
            "observed_data": {"s": 3.0},
        }
    )
    for picture in (
        plots.plot_noise_effect(draws, backend=backend),
        plots.plot_release(draws, backend=backend),
        plots.plot_budget(SPENT, places=3, backend=backend),
        plots.plot_design(planned(), backend=backend),
        plots.plot_calibration(places(RNG.uniform(size=(1, 30))), backend=backend),
    ):
        assert picture.backend == backend
    plt.close("all")


def scalars():
    return from_dict(
        {
            "posterior_predictive": {
                "s": RNG.normal(5, 2, size=(2, 200)),
                "t": RNG.normal(500, 20, size=(2, 200)),
                "cells": RNG.normal(5, 2, size=(2, 200, 3)),
            },
            "observed_data": {"s": 3.0, "t": 520.0, "cells": np.array([4.0, 5.0, 6.0])},
        }
    )


def test_scalar_releases_in_predictive_plots_of_arviz():
    """Which fail on a variable without dimensions."""
    with pytest.raises(TypeError):
        az.plot_ppc_interval(scalars(), var_names="s", backend="none")
    idata = scalars()
    stack = plots.stack_releases(idata)
    assert stack["observed_data"]["releases"].values.tolist() == [3.0, 520.0, 4.0, 5.0, 6.0]
    predicted = stack["posterior_predictive"]["releases"]
    np.testing.assert_array_equal(predicted.sel(release="t"), idata.posterior_predictive["t"])
    cell = idata.posterior_predictive["cells"][..., 2]
    np.testing.assert_array_equal(predicted.sel(release="cells[2]"), cell)
    az.plot_ppc_interval(stack, backend="matplotlib")
    drawn = np.concatenate([c.get_offsets() for c in plt.gca().collections if len(c.get_offsets())])
    assert 520.0 in np.round(drawn[:, 1], 9)
    for plot in (az.plot_ppc_pit, az.plot_ppc_dist, az.plot_ppc_tstat):
        plot(stack, backend="matplotlib")
    plt.close("all")


def test_standardized_releases_have_one_scale():
    stack = plots.stack_releases(scalars(), var_names=["s", "t"], standardize=True)
    draws = stack["posterior_predictive"]["releases"]
    np.testing.assert_allclose(draws.std(("chain", "draw")), 1)
    # what is observed is where it was among the draws
    assert -2 < stack["observed_data"]["releases"].sel(release="s") < 0
    assert 0 < stack["observed_data"]["releases"].sel(release="t") < 2
    with pytest.raises(ValueError, match="no group 'posterior_predictive'"):
        plots.stack_releases(places(np.ones((1, 5))))
