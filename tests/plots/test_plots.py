"""Pictures show the numbers they say; drawn without a backend, or with matplotlib."""

import re
import subprocess
import sys

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import pytest
from arviz_base import from_dict
from scipy.stats import norm

import pymc_dp as pmdp
from pymc_dp import plots
from pymc_dp.accounting import GaussianQueries, PrivacyBudget
from pymc_dp.accounting.allowance import Allowance, PrivacySpent
from pymc_dp.plots.budget import budget_by_look

mpl.use("Agg")
RNG = np.random.default_rng(1)
SPENT = PrivacySpent(
    7.0,
    1e-6,
    iterations=1000,
    chains=2,
    noise_multiplier=30.0,
    gradients=11_000,
    grad_noise_multiplier=70.0,
    neighbours="substitute",
    simulation=False,
)


def posterior(**variables):
    return from_dict({"posterior": variables})


def test_importing_the_package_does_not_import_pictures():
    code = "import sys, pymc_dp; sys.exit('pymc_dp.plots' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_noise_effect_has_every_posterior_and_only_common_variables():
    aware = posterior(mu=RNG.normal(size=(2, 50)), extra=RNG.normal(size=(2, 50)))
    ignoring = posterior(mu=RNG.normal(9, 0.1, size=(4, 100)))
    prior = from_dict({"prior": {"mu": RNG.normal(0, 5, size=(1, 70))}})
    picture = plots.plot_noise_effect(aware, ignoring=ignoring, prior=prior, backend="matplotlib")
    figure = plt.gcf()
    lines = [line for axes in figure.axes for line in axes.lines]
    assert len(lines) == 3
    assert min(lines[1].get_xdata()) > 8  # the one that ignores the noise
    assert list(picture.viz["plot"].data_vars) == ["mu"]
    plt.close(figure)
    with pytest.raises(ValueError, match="'extra' is not in all of them; in common they have mu"):
        plots.plot_noise_effect(aware, ignoring=ignoring, var_names="extra")


def test_release_is_a_line_where_it_was_observed():
    idata = from_dict(
        {
            "posterior_predictive": {"cells": RNG.normal(5, 2, size=(2, 60, 3))},
            "observed_data": {"cells": np.array([3.0, 5.0, 12.0])},
        }
    )
    plots.plot_release(idata, backend="matplotlib")
    figure = plt.gcf()
    lines = [line.get_xdata() for axes in figure.axes for line in axes.lines]
    places = sorted(float(x[0]) for x in lines if len(x) == 2)
    assert places == [3.0, 5.0, 12.0]
    plt.close(figure)
    with pytest.raises(ValueError, match="no group 'posterior_predictive'"):
        plots.plot_release(posterior(mu=RNG.normal(size=(2, 50))))


def test_budget_ends_where_the_composition_does():
    """Against the profile of a Gaussian mechanism, delta as a function of epsilon."""
    data = budget_by_look(SPENT)["epsilon"]
    for look, mu in {
        "log ratios": 1000 / (2 * 30**2),
        "gradients": 11_000 / (2 * 70**2),
        "all": 1000 / (2 * 30**2) + 11_000 / (2 * 70**2),
    }.items():
        epsilon, shift = float(data.sel(look=look)[-1]), np.sqrt(2 * mu)
        delta = norm.cdf(shift / 2 - epsilon / shift)
        delta -= np.exp(epsilon) * norm.cdf(-shift / 2 - epsilon / shift)
        assert delta == pytest.approx(1e-6, rel=1e-4)
    assert (data.diff("iteration") > 0).all()
    assert (data.isel(iteration=0) == 0).all()
    plots.plot_budget(SPENT, backend="matplotlib")
    assert len(plt.gca().lines) == 3
    plt.close()


def test_a_budget_that_may_mix_is_drawn_as_it_counts():
    budget = PrivacyBudget(12, 1e-6, accountant="rdp")
    details = SPENT.details
    budget.claim(GaussianQueries(details["noise_multiplier"], details["iterations"]), "ratios")
    budget.claim(GaussianQueries(details["grad_noise_multiplier"], details["gradients"]), "more")
    spent = PrivacySpent(budget.spent, 1e-6, **(details | {"accountant": "rdp"}))
    data = budget_by_look(spent)["epsilon"]
    assert float(data.sel(look="all")[-1]) == pytest.approx(budget.spent, rel=1e-9)
    exactly = budget_by_look(SPENT)["epsilon"]
    assert (data[:, 1:] > exactly[:, 1:]).all()


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
def test_a_budget_of_chains_of_different_lengths_ends_where_it_counts(accountant):
    budget = PrivacyBudget(4, 1e-6, accountant=accountant)
    allowance = Allowance(budget=budget, chains=2)
    for iterations in (20, 2000):
        allowance.open(iterations, RNG)
    data = budget_by_look(allowance.spent())["epsilon"]
    assert float(data[-1, -1]) == pytest.approx(budget.spent, rel=1e-9)


@pytest.mark.parametrize(
    ("changed", "message"), [({"simulation": True}, "promises nothing"), ({"iterations": 0}, "yet")]
)
def test_budgets_that_cannot_be_drawn(changed, message):
    with pytest.raises(ValueError, match=message):
        budget_by_look(PrivacySpent(7.0, 1e-6, **(SPENT.details | changed)))


def small_model():
    with pm.Model() as model:
        x = pm.Normal("x", pm.Normal("mu", 0, 10), 1, shape=100)
        total = pmdp.clamp(x, -5, 5).sum()
        pmdp.Privatized("s", total, pmdp.Laplace(epsilon=1, sensitivity=10), observed=103.0)
    return model


def test_graph_tells_records_statistic_and_mechanism_apart():
    source = plots.model_graph(small_model()).source
    assert 'x -> "s statistic"' in source
    assert '"s statistic" -> s' in source
    assert "x -> s\n" not in source
    assert "sum over x of clip(x, -5, 5)" in source
    assert "Laplace(scale=10.)" in source
    nodes = dict(re.findall(r"(\w+) \[(label=.*?)\]\n", source, flags=re.S))
    assert "dashed" in nodes["x"]
    assert "dashed" not in nodes["mu"]


def test_html_for_notebooks():
    html = pmdp.explain(small_model())._repr_html_()
    assert "<b>Records</b>" in html
    assert "<b>x</b>: n = 100" in html
    assert "epsilon 1" in pmdp.Laplace(epsilon=1, sensitivity=10)._repr_html_()
    assert "epsilon" not in pmdp.Gaussian(sigma=2)._repr_html_()
    assert "<lambda>" not in pmdp.CustomMechanism(logp=lambda r, s: -((r - s) ** 2))._repr_html_()


def test_a_wide_prior_is_cut_off_and_a_narrow_one_is_not():
    aware = posterior(mu=RNG.normal(size=(2, 200)), tau=RNG.normal(size=(2, 200, 2)))
    prior = {"mu": RNG.normal(0, 50, size=(1, 400)), "tau": RNG.normal(0, 0.1, size=(1, 400, 2))}
    plots.plot_noise_effect(aware, prior=from_dict({"prior": prior}), backend="matplotlib")
    figure = plt.gcf()
    widths = [np.ptp(axes.get_xlim()) for axes in figure.axes if axes.lines]
    seen = np.ptp(aware["posterior"]["mu"].values)
    assert 1 < widths[0] / seen <= 2.001
    assert len(widths) == 3
    for width, k in zip(widths[1:], range(2), strict=True):
        assert width == pytest.approx(np.ptp(aware["posterior"]["tau"].values[..., k]))
    plt.close(figure)
