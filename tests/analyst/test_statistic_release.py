"""A release that was read enters a model as if it had been written there."""

import numpy as np
import pymc as pm
import pytest

import pymc_dp as pmdp
from pymc_dp.analyst.release import releases


def model_with(declare):
    with pm.Model() as model:
        rate = pm.Gamma("rate", 2, 0.1, shape=3)
        pages = pm.Poisson("pages", rate, shape=(10, 3))
        declare(pages.sum(axis=0))
    return model


def test_declared_as_privatized():
    views = pmdp.DiscreteGaussian(sigma=10.0).thresholded(90, dropped=np.nan)
    value = [np.nan, 104, 233]
    read = pmdp.read_release(pmdp.StatisticRelease("page views", views, value).to_json())
    written = model_with(lambda s: pmdp.Privatized("views", s, views, observed=value))
    declared = model_with(lambda s: read.declare("views", s))
    point = written.initial_point()
    one, two = (m.compile_logp(mode="FAST_COMPILE")(point) for m in (written, declared))
    assert one == two
    with pytest.raises(ValueError, match=r"noise of shape|its statistic has shape"):
        model_with(lambda s: read.declare("views", s[:2]))


def test_functions_are_written_again():
    def votes(x, candidate):
        """Number of records that are the candidate."""
        return pm.math.eq(x, candidate).sum()

    winner = pmdp.ExponentialMechanism(votes, epsilon=1, sensitivity=1, candidates=range(3))
    made = pmdp.StatisticRelease("the most frequent answer", winner, 2, neighbours="substitute")
    read = pmdp.read_release(made.to_json())
    with pm.Model() as model:
        x = pm.Categorical("x", [0.2, 0.3, 0.5], shape=30)
        with pytest.raises(
            ValueError, match=r"'Number of records that are the candidate\.'.*utility="
        ):
            read.declare("most", x)
        with pytest.raises(ValueError, match="takes no gradient="):
            read.declare("most", x, gradient=votes)
        read.declare("most", x, utility=votes)
        pmdp.Privatized("again", x, winner, observed=2)
    one, two = (
        pm.logp(release.rv, 2.0).eval({x: np.arange(30) % 3}, mode="FAST_COMPILE")
        for release in releases(model)
    )
    assert one == two
    with pytest.raises(ValueError, match="takes no utility="):
        pmdp.StatisticRelease("a sum", pmdp.Laplace(scale=1), 1.0).declare("a", x, utility=votes)
