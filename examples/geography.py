"""Nested areas with noisy histograms at every level and exact totals, as in a census.

A state has counties, and these have tracts. In every area the same histogram was counted; discrete
Gaussian noise was added to all of them, each level with its own share of the privacy budget (rho),
and the number of people in the state is published as it is. The data are synthetic: a reader of
noisy measurement files supplies, for every level, the released histograms in the order of areas,
the noise's sigma, and which tract is in which county.

    python examples/geography.py
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import arviz as az
import numpy as np
import pymc as pm
from numpy.typing import NDArray

import pymc_dp as pmdp

#: share of rho for state, counties and tracts, and rho in all
SHARES, RHO = (0.2, 0.3, 0.5), 1.0


@dataclass(frozen=True)
class Geography:
    """What is public of a nested geography.

    Attributes
    ----------
    counties, tracts, cells : int
        Number of counties, of tracts in each, and of cells of the histogram.
    released : dict
        Noisy histograms by level, one row an area.
    total : int
        Number of people in the state.
    """

    counties: int
    tracts: int
    cells: int
    released: dict[str, NDArray[np.int64]]
    total: int


def noise(level: int) -> pmdp.DiscreteGaussian:
    """Noise on a level's histograms: one person is in one cell, so that sensitivity is sqrt(2)."""
    return pmdp.DiscreteGaussian(rho=RHO * SHARES[level], sensitivity=2**0.5)


def simulate(
    seed: int, counties: int = 20, tracts: int = 25, cells: int = 24
) -> tuple[Geography, NDArray[np.int64]]:
    """Make a synthetic geography and its confidential tract histograms."""
    rng = np.random.default_rng(seed)
    profile = rng.gamma(1.0, 40.0, cells)
    size = rng.lognormal(0, 0.5, (counties, 1, 1)) * rng.lognormal(0, 0.3, (counties, tracts, 1))
    true = rng.poisson(rng.gamma(5.0, profile * size / 5.0))
    statistics = {"state": true.sum((0, 1)), "county": true.sum(1), "tract": true}
    released = {
        name: noise(level).release(value) for level, (name, value) in enumerate(statistics.items())
    }
    return Geography(counties, tracts, cells, released, int(true.sum())), true


def build(public: Geography) -> pm.Model:
    """Model of the tracts' histograms, with everything that was released."""
    with pm.Model() as model:
        spread = pm.Gamma("spread", 4, 1)
        profile = pm.LogNormal("profile", 3, 2, shape=public.cells)
        size = pm.LogNormal("size", 0, 0.5, shape=public.counties)
        mean = size[:, None, None] * profile
        shape = (public.counties, public.tracts, public.cells)
        people = pm.NegativeBinomial("people", mu=mean, alpha=spread, shape=shape)
        for level, (name, statistic) in enumerate(
            {"state": people.sum((0, 1)), "county": people.sum(1), "tract": people}.items()
        ):
            pmdp.Privatized(name, statistic, noise(level), observed=public.released[name])
        pmdp.Privatized("total", people.sum(), pmdp.Exact(), observed=public.total)
        pm.Deterministic("county_people", people.sum((1, 2)))
        pm.Deterministic("state_histogram", people.sum((0, 1)))
    return model


def main() -> Any:
    """Sample a state of 500 tracts, and compare with the confidential truth."""
    public, true = simulate(seed=1)
    margins = ["county_people", "state_histogram"]
    with build(public):
        idata = pmdp.sample(1000, tune=1000, chains=2, var_names=margins, random_seed=1)
    print(az.summary(idata, var_names=["county_people"], kind="all"))
    print("confidential:", true.sum((1, 2)))
    return idata


if __name__ == "__main__":
    main()
