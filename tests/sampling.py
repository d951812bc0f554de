"""Short runs for tests."""

import arviz as az
import numpy as np

import pymc_dp as pmdp


def draw(model, draws=4000, tune=1000, seed=20261116, **kwargs):
    """Posterior draws of a model's parameters, steps picked automatically."""
    with model:
        return pmdp.sample(
            draws,
            tune=tune,
            chains=2,
            cores=1,
            random_seed=seed,
            progressbar=False,
            quiet=True,
            compute_convergence_checks=False,
            **kwargs,
        ).posterior


def values(posterior, name):
    """Draws of one scalar, of shape (chain, draw)."""
    return np.asarray(posterior[name])


def fewest_effective(posterior):
    """Smallest effective sample size over all variables."""
    return float(min(np.min(v) for v in az.ess(posterior).data_vars.values()))
